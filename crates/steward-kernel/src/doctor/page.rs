//! The doctor's page for people.

use std::fmt;

use steward_core::disk::calibration;
use steward_core::disk::config::{self, Order};
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, Choice, Need};
use steward_core::memory::source::Source;
use steward_core::quantity::format_size;

use super::abilities::Ability;
use super::facts::{Facts, Pressure};
use super::promises::{Holds, Promise};
use super::{Diagnosis, MechanismKind};
use crate::disk::mounted::WrittenByRoot;
use crate::memory::ages::NoPageAges;

/// How wide the page is, in characters.
const WIDTH: usize = 96;
/// Where the text of a promise begins.
const INDENT: usize = 8;

impl fmt::Display for Diagnosis {
    fn fmt(&self, page: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.mechanism {
            Some(MechanismKind::SchedExt) => "through its own scheduler (sched_ext)".to_owned(),
            Some(mechanism) => format!("through {mechanism}"),
            None => "in no way".into(),
        };
        write_wrapped(page, 0, &format!("Steward can make promises here {how}: {}.", self.mechanism_why))?;
        if !self.mechanism_what_to_do.is_empty() {
            write_wrapped(page, 0, &format!("For all promises: {}.", self.mechanism_what_to_do))?;
        }
        let missing = self.abilities.iter().filter(|ability| ability.works == Holds::No);
        let missing: Vec<&str> = missing.map(|ability| ability.name.as_str()).collect();
        if !missing.is_empty() {
            write_wrapped(page, 0, &format!("Not to be had here: {}.", missing.join(", ")))?;
        }
        writeln!(page, "\nWhat works:")?;
        for ability in &self.abilities {
            write_ability(page, ability, &self.mechanism_what_to_do)?;
        }
        writeln!(page, "\nWhich promises hold:")?;
        for promise in &self.promises {
            write_promise(page, promise, &self.mechanism_what_to_do)?;
        }
        writeln!(page)?;
        for (name, value) in rows(&self.facts) {
            writeln!(page, "{name:<20}{value}")?;
        }
        write_notes(page, &self.facts)
    }
}

/// What is to be done for all promises is said once, above them.
fn write_promise(page: &mut fmt::Formatter<'_>, promise: &Promise, said: &str) -> fmt::Result {
    let Promise { text, holds, why, what_to_do, .. } = promise;
    write_judgement(page, (*holds, text), why, what_to_do, said)
}

fn write_ability(page: &mut fmt::Formatter<'_>, ability: &Ability, said: &str) -> fmt::Result {
    let Ability { name, commands, works, lost, what_to_do } = ability;
    write_judgement(page, (*works, &format!("{name} ({commands})")), lost, what_to_do, said)
}

fn write_judgement(
    page: &mut fmt::Formatter<'_>,
    (holds, text): (Holds, &str),
    why: &str,
    what_to_do: &str,
    said: &str,
) -> fmt::Result {
    writeln!(page, "{holds:<INDENT$}{text}")?;
    if holds == Holds::Yes {
        return Ok(());
    }
    write_wrapped(page, INDENT, &format!("{}.", capitalised(why)))?;
    if what_to_do.is_empty() || what_to_do == said {
        Ok(())
    } else {
        write_wrapped(page, INDENT, &format!("To do: {what_to_do}."))
    }
}

fn write_notes(page: &mut fmt::Formatter<'_>, facts: &Facts) -> fmt::Result {
    let mut notes = Vec::new();
    for manager in &facts.managers {
        let pid = manager.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
        notes.push(format!(
            "{}{pid} sets {}; Steward leaves alone what it finds set.",
            manager.name, manager.sets
        ));
    }
    if facts.lockdown.as_deref() == Some("confidentiality") {
        notes.push(
            "The kernel is locked down (confidentiality), which may keep it from loading a scheduler.".into(),
        );
    }
    if !facts.caller.may_load_scheduler || !facts.caller.may_schedule {
        notes.push(format!(
            "You are user {} without the rights of the daemon: whether it may load a scheduler and give reservations \
             was not tried. Run `sudo steward doctor` to see all.",
            facts.caller.uid
        ));
    }
    if let Some(obstacle @ (NoPageAges::TurnedOff | NoPageAges::NoDebugfs)) = facts.memory.no_page_ages {
        notes.push(format!("Page ages: {}. To have them, {}.", obstacle.why(), obstacle.what_to_do()));
    }
    if let (Some(Source::None), Some(disk)) = (facts.memory.used_from, &facts.memory.slow_disk) {
        notes.push(format!(
            "Memory used: {disk} rotates, so it is not tried what protected domains can do without; what is taken from them by \
             mistake would be missed for seconds. Where nobody's memory is there, write ages = \"refaults-and-pressure\" under \
             [memory] in steward.toml."
        ));
    }
    notes.extend(
        facts
            .disks
            .iter()
            .map(|disk| format!("Disk {}: {}.", disk.name, elevator::backend(disk, &facts.disks_in_force))),
    );
    notes.extend(facts.no_such_disks.iter().map(|name| format!("{}.", config::no_such_device(name))));
    notes.extend(facts.written_by_root.iter().map(written_by_root));
    let ordered = |disk: &&Device| matches!(elevator::choose(disk, Need::default()), Choice::Order(_));
    if facts.has_elevator == Some(false) && facts.disks.iter().any(|disk| ordered(&disk)) {
        let name = elevator::BY_CLASS;
        notes.push(format!(
            "This kernel has no elevator {name}, neither built in nor as a module: on disks that rotate interactive programs come first \
             by {}, and neither what is in the background nor fractions of domains count. Use a kernel with CONFIG_IOSCHED_{}.",
            elevator::SECOND,
            name.to_uppercase()
        ));
    }
    notes.extend(says_that_it_rotates(&facts.disks));
    notes.extend(facts.not_seen.iter().map(|what| format!("Not seen: {what}.")));
    if !notes.is_empty() {
        writeln!(page)?;
    }
    notes.iter().try_for_each(|note| write_wrapped(page, 0, note))
}

/// What to do about disks that may say wrongly that they rotate: those of virtual machines do whatever they are.
fn says_that_it_rotates(disks: &[Device]) -> Option<String> {
    let is_doubtful = |disk: &&Device| {
        let by_itself = disk.model.is_none() && disk.order == Order::Auto && disk.rotational;
        by_itself && !disk.stands_for_others && calibration::unsuited(disk).is_none()
    };
    let names: Vec<&str> = disks.iter().filter(is_doubtful).map(|disk| disk.name.as_str()).collect();
    let example = names.first()?;
    Some(format!(
        "Taken for disks that rotate, because they say so, as many do that do not (in virtual machines all): {}. Whether they do is \
         found by `sudo steward disk calibrate {example}`, or say it below [disk.devices] in steward.toml.",
        names.join(", ")
    ))
}

/// The facts that a person or a bug report wants, with their names.
fn rows(facts: &Facts) -> Vec<(&'static str, String)> {
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let ext = &facts.sched_ext;
    let state = match (&ext.state, &ext.loaded) {
        (None, _) => "not in this kernel".to_owned(),
        (Some(state), Some(loaded)) => format!("{state}, {loaded} is loaded"),
        (Some(state), None) => format!("{state}, nothing is loaded"),
    };
    let controllers = match &facts.cgroup.controllers {
        None => "not mounted in its usual place".to_owned(),
        Some(names) => names.join(" "),
    };
    let realtime = match (facts.realtime_budget_us, facts.realtime_period_us) {
        (Some(-1), _) => "all CPU time".to_owned(),
        (Some(budget), Some(period)) => format!("{budget} of {period} us"),
        _ => "unknown".into(),
    };
    let kernel = format!("{}{}", facts.release, if facts.realtime { " (PREEMPT_RT)" } else { "" });
    let mut rows = vec![
        ("kernel", kernel),
        ("tick", facts.tick_hz.map_or("unknown".into(), |hz| format!("{hz} Hz"))),
        ("sched_ext", state),
        ("types (BTF)", yes_no(facts.btf)),
        ("lockdown", facts.lockdown.clone().unwrap_or("none".into())),
        ("cgroup v2", controllers),
    ];
    if !facts.cgroup.version_1_controllers.is_empty() {
        rows.push(("cgroup v1", facts.cgroup.version_1_controllers.join(" ")));
    }
    let pressure = match facts.pressure {
        Pressure::On => "yes",
        Pressure::Off => "off; boot with psi=1",
        Pressure::Absent => "not in this kernel",
    };
    let page_ages = match facts.memory.no_page_ages {
        None => "yes",
        Some(NoPageAges::NotInKernel) => "not in this kernel",
        Some(NoPageAges::Denied) if facts.caller.uid != 0 => "unknown",
        Some(_) => "no",
    };
    let swap = match facts.memory.swap_bytes {
        0 => "none".to_owned(),
        bytes => format_size(bytes),
    };
    rows.extend([
        ("FUSE", yes_no(facts.fuse)),
        ("pressure (PSI)", pressure.to_owned()),
        ("page ages (MGLRU)", page_ages.to_owned()),
        ("memory used, by", facts.memory.used_from.map_or("unknown", Source::name).to_owned()),
        ("memory.reclaim", yes_no(facts.memory.reclaim)),
        ("swap", swap),
        ("real time at most", realtime),
    ]);
    rows
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect::<String>() + characters.as_str())
}

fn write_wrapped(page: &mut fmt::Formatter<'_>, indent: usize, text: &str) -> fmt::Result {
    let mut line = String::new();
    for word in text.split_ascii_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(page, "{:indent$}{line}", "")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(page, "{:indent$}{line}", "")
}

fn written_by_root(found: &WrittenByRoot) -> String {
    format!(
        "{point} ({kind}, on {disks}): what programs change there is written back for nobody, as this file system does not say whose it is \
         (ext4, XFS, btrfs and f2fs do). Classes, fractions and limits of domains count there for reads, and for what is written past the \
         cache or brought to the disk with fsync.",
        point = found.point.display(),
        kind = found.kind,
        disks = found.disks.join(" and ")
    )
}

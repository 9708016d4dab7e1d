//! From facts to what a person can do with Steward on a machine. Pure, as the promises.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use steward_core::cpu::mechanism::MechanismKind;
use steward_core::memory::source::Source;

use super::facts::{Facts, Pressure};
use super::promises::{Choice, Holds, NEWER_KERNEL};
use crate::memory::ages::NoPageAges;

/// Something that Steward does where the machine has what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ability {
    /// A short name that stays the same over versions.
    pub name: String,
    /// The commands and files that are it.
    pub commands: String,
    /// Whether it works.
    pub works: Holds,
    /// What is lost, and for want of what; empty when it works.
    pub lost: String,
    /// What the person can do about it; empty when it works.
    pub what_to_do: String,
}

/// What judging an ability gives: whether it works, what is lost, and what to do.
type Verdict = (Holds, String, Cow<'static, str>);

const UNIFIED_HIERARCHY: &str =
    "boot with systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=all without systemd";
const CPU_CONTROLLER: &str = "take the cpu controller off the hierarchies of version 1 (cgroup_no_v1=cpu), or use a \
    kernel built with CONFIG_CGROUP_SCHED";
const MEMORY_CONTROLLER: &str = "take the memory controller off the hierarchies of version 1 (cgroup_no_v1=memory), boot \
    without cgroup_disable=memory, or use a kernel built with CONFIG_MEMCG";

/// All abilities, judged for the mechanism that was chosen.
pub fn abilities(facts: &Facts, choice: &Choice) -> Vec<Ability> {
    type Judge = fn(&Facts, &Choice) -> Verdict;
    let judged: [(&str, &str, Judge); 8] = [
        ("reservations", "steward run, set, tune", reservations),
        ("domains", "steward domain, run --domain, status DOMAIN", domains),
        (
            "memory",
            "minima, maxima and protection: steward domain, run --memory-min, --memory-max, --protect",
            memory,
        ),
        ("background", "steward background", background),
        ("forecasts", "steward forecast, top", forecasts),
        ("pools", "steward pool", pools),
        ("control files", "/run/steward", control_files),
        ("recordings", "steward record", recordings),
    ];
    judged
        .into_iter()
        .map(|(name, commands, judge)| {
            let (works, lost, what_to_do) = judge(facts, choice);
            let what_to_do = what_to_do.into_owned();
            Ability { name: name.into(), commands: commands.into(), works, lost, what_to_do }
        })
        .collect()
}

fn yes() -> Verdict {
    (Holds::Yes, String::new(), "".into())
}

fn reservations(_: &Facts, choice: &Choice) -> Verdict {
    match choice.mechanism {
        Some(MechanismKind::SchedExt) => yes(),
        Some(MechanismKind::Deadline) => (
            Holds::Partly,
            "through SCHED_DEADLINE; the promises below say what that does not keep".into(),
            NEWER_KERNEL.into(),
        ),
        Some(MechanismKind::Nice) => (
            Holds::No,
            "who would have a reservation has a better nice value, which promises nothing".into(),
            "find why the kernel took the scheduler out (`steward status`), then `systemctl restart stewardd`".into(),
        ),
        None => (
            Holds::No,
            "every reservation is refused, since nothing enforces one here".into(),
            "set kernel.sched_rt_runtime_us to 950000, the kernel's default".into(),
        ),
    }
}

/// Why there are no domains, and what to do about it.
fn obstacle_to_domains(facts: &Facts) -> Option<(&'static str, &'static str)> {
    match &facts.cgroup.controllers {
        None => Some((
            "the unified cgroup hierarchy (version 2) is not mounted at /sys/fs/cgroup",
            UNIFIED_HIERARCHY,
        )),
        Some(names) if names.iter().any(|name| name == "cpu") => None,
        Some(_) if facts.cgroup.version_1_controllers.iter().any(|name| name == "cpu") => Some((
            "the unified cgroup hierarchy does not hand out the CPU, which is on one of version 1",
            UNIFIED_HIERARCHY,
        )),
        Some(_) => Some(("the unified cgroup hierarchy does not hand out the CPU", CPU_CONTROLLER)),
    }
}

fn domains(facts: &Facts, choice: &Choice) -> Verdict {
    if let Some((why, what_to_do)) = obstacle_to_domains(facts) {
        let lost = format!("programs cannot be put into groups, and all are judged one by one: {why}");
        return (Holds::No, lost, what_to_do.into());
    }
    match choice.mechanism {
        Some(MechanismKind::SchedExt) => yes(),
        _ => (
            Holds::Partly,
            "fractions and priorities are refused, since the kernel's own scheduler keeps neither; weights count".into(),
            NEWER_KERNEL.into(),
        ),
    }
}

/// Without domains that have memory there are neither minima nor maxima; each of the others costs a part.
fn memory(facts: &Facts, choice: &Choice) -> Verdict {
    let obstacle = match &facts.cgroup.controllers {
        Some(names) if !names.iter().any(|name| name == "memory") => {
            Some(("the unified cgroup hierarchy does not hand out memory", MEMORY_CONTROLLER))
        }
        _ => obstacle_to_domains(facts),
    };
    if let Some((why, what_to_do)) = obstacle {
        return (Holds::No, format!("nobody's memory is promised or limited: {why}"), what_to_do.into());
    }
    let lacks = memory_lacks(facts, choice);
    if lacks.is_empty() {
        return yes();
    }
    let lost: Vec<&str> = lacks.iter().map(|(lost, _)| *lost).collect();
    let what_to_do: Vec<&str> = lacks.iter().map(|(_, what_to_do)| *what_to_do).collect();
    (Holds::Partly, lost.join("; "), what_to_do.join("; ").into())
}

/// What is lost, and what to do about it, for each thing that is missing.
fn memory_lacks(facts: &Facts, choice: &Choice) -> Vec<(&'static str, &'static str)> {
    let mut lacks = Vec::new();
    if !facts.memory.reclaim {
        lacks.push((
            "nobody gets a maximum below what they use, and nothing is taken from others ahead of the kernel for those who are \
             protected, since the kernel has no memory.reclaim to take it with",
            "use Linux 5.19 or later",
        ));
    }
    if facts.memory.swap_bytes == 0 {
        lacks.push((
            "only what is in files can be taken from anybody, for a maximum below what they use or for who is protected, since there \
             is no swap",
            "add swap, on a disk or as zram",
        ));
    }
    // What an ordinary user may not read, the daemon may.
    let is_told = |obstacle: &NoPageAges| *obstacle != NoPageAges::Denied || facts.caller.uid == 0;
    if let Some(obstacle) = facts.memory.no_page_ages.filter(is_told) {
        lacks.push((
            match facts.memory.used_from {
                Some(Source::RefaultsAndPressure) => {
                    "what a protected domain has not used for its period is given up slowly, a little at a time, since nobody knows \
                     the ages of pages"
                }
                _ => {
                    "what a protected domain has not used for its period is kept all the same, since nobody knows the ages of pages"
                }
            },
            obstacle.what_to_do(),
        ));
    }
    if choice.mechanism != Some(MechanismKind::SchedExt) {
        lacks.push((
            "nobody is held back who takes memory faster than it can be taken from others: only Steward's scheduler does that",
            NEWER_KERNEL,
        ));
    } else if !facts.sched_ext.whereabouts {
        lacks.push((
            "nobody is held back who takes memory faster than it can be taken from others, since the kernel does not say where \
             a task was preempted",
            "use Linux 6.16 or later",
        ));
    }
    match facts.pressure {
        Pressure::On => {}
        Pressure::Off => lacks.push((
            "how long domains wait for memory is not seen, and whether promises of it were kept only estimated from faults, since \
             this kernel counts it only where it is told to at boot",
            "boot with psi=1",
        )),
        Pressure::Absent => lacks.push((
            "how long domains wait for memory is not seen, and whether promises of it were kept only estimated from faults, since \
             this kernel cannot count it",
            "use a kernel built with CONFIG_PSI",
        )),
    }
    lacks
}

fn background(facts: &Facts, choice: &Choice) -> Verdict {
    if let Some((_, what_to_do)) = obstacle_to_domains(facts) {
        let lost =
            "it puts its program into a domain, and there are none; nice -n 19 CMD comes closest".into();
        return (Holds::No, lost, what_to_do.into());
    }
    match choice.mechanism {
        Some(MechanismKind::SchedExt) => yes(),
        _ => (
            Holds::Partly,
            "its program has the least weight in place of the lowest priority, and is suspended by freezing"
                .into(),
            NEWER_KERNEL.into(),
        ),
    }
}

fn forecasts(facts: &Facts, _: &Choice) -> Verdict {
    if !facts.scheduling_statistics {
        let lost = "nobody counts how long tasks wait for a CPU (no /proc/self/schedstat)".into();
        return (Holds::No, lost, "use a kernel built with CONFIG_SCHED_INFO".into());
    }
    match obstacle_to_domains(facts) {
        None => yes(),
        Some((_, what_to_do)) => (
            Holds::Partly,
            "for tasks and the machine as a whole; there are no domains to sum up".into(),
            what_to_do.into(),
        ),
    }
}

fn pools(facts: &Facts, choice: &Choice) -> Verdict {
    match forecasts(facts, choice) {
        (Holds::Yes, ..) => yes(),
        (Holds::Partly, _, what_to_do) => (
            Holds::Partly,
            "for a server that is named with --pid; there are no domains to name".into(),
            what_to_do,
        ),
        (Holds::No, lost, what_to_do) => (Holds::No, lost, what_to_do),
    }
}

fn control_files(facts: &Facts, _: &Choice) -> Verdict {
    if !facts.fuse {
        let lost =
            "nothing is mounted there, since this kernel has no FUSE; every command works without".into();
        return (
            Holds::No,
            lost,
            "load the module (modprobe fuse), or use a kernel built with CONFIG_FUSE_FS".into(),
        );
    }
    match obstacle_to_domains(facts) {
        None => yes(),
        Some((_, what_to_do)) => (
            Holds::Partly,
            "only forecasts and last_error; the others are those of domains, and there are none".into(),
            what_to_do.into(),
        ),
    }
}

fn recordings(facts: &Facts, _: &Choice) -> Verdict {
    if facts.btf {
        return yes();
    }
    let lost =
        "the kernel does not describe its types (no /sys/kernel/btf/vmlinux), which the recorder needs"
            .into();
    (Holds::No, lost, "use a kernel built with CONFIG_DEBUG_INFO_BTF".into())
}

//! From a scenario to what the agent does: which program runs how under which contender. Pure.

use std::time::Duration;

use anyhow::{Context, Result};
use steward_core::disk::Class;
use steward_lab_guest::{PROGRAM_DIRECTORY, Plan, Program, Run, StewardSetup};

use crate::scenario::{Contender, ProgramRow, Reservation, Scenario};
use crate::{disk, domains, memory};

/// What root gives by hand to what is to be smooth.
const FOREGROUND_NICE: i32 = -20;

/// Name of the pseudo-contender that prepares the machine.
pub const PREPARATION: &str = "prepare";

/// How long a preparation may take. Where the machine's clock counts instructions, it runs ahead while it waits for a
/// disk that a busy host serves late: hours of it are minutes of the host's.
const PREPARATION_MAX: Duration = Duration::from_secs(600);
const PREPARATION_COUNTED_MAX: Duration = Duration::from_secs(36_000);

/// All runs of a scenario: preparations first, then every contender in turn, `repeat` times, so that what changes
/// slowly in the machine touches all of them alike.
///
/// # Errors
/// When a command is not valid shell quoting, with the program's name.
pub fn plan(scenario: &Scenario, contenders: &[Contender], repeat: u32) -> Result<Plan> {
    let mut runs = preparations(scenario)?;
    for repeat in 1..=repeat {
        for contender in contenders {
            if scenario.points.is_empty() {
                runs.push(run(scenario, *contender, repeat)?);
            }
            for point in &scenario.points {
                let run = run(&point.scenario, *contender, repeat)?;
                runs.push(Run { point: Some(point.label.clone()), ..run });
            }
        }
    }
    Ok(Plan { runs })
}

fn preparations(scenario: &Scenario) -> Result<Vec<Run>> {
    // The disk comes first: what else is prepared may be on it.
    let disk = scenario.machine.timed_disk.iter().map(|disk| disk.command());
    let rows = disk.chain(scenario.preparations.iter().map(|row| row.command.clone())).enumerate();
    let within =
        if scenario.machine.icount_shift.is_some() { PREPARATION_COUNTED_MAX } else { PREPARATION_MAX };
    rows.map(|(index, command)| {
        Ok(Run {
            contender: PREPARATION.into(),
            repeat: index as u32 + 1,
            point: None,
            duration_ms: ms(within),
            one_after_another: true,
            steward: None,
            scheduler: None,
            idle_between_ms: None,
            memory: None,
            disk: None,
            domains: Vec::new(),
            programs: vec![Program {
                name: PREPARATION.into(),
                command: shell_words::split(&command).with_context(|| format!("[[prepare]] {command}"))?,
                start_ms: 0,
                stop_ms: None,
                nice: None,
                deadline_ns: None,
                affinity: Vec::new(),
                user: None,
                domain: None,
                protected: false,
                memory_min_bytes: None,
                group_settings: Vec::new(),
                stamp_lines: false,
            }],
        })
    })
    .collect()
}

fn run(scenario: &Scenario, contender: Contender, repeat: u32) -> Result<Run> {
    let mut programs = Vec::new();
    let runs = |row: &&ProgramRow| row.under.is_empty() || row.under.contains(&contender);
    for row in scenario.programs.iter().filter(runs) {
        for (index, name) in (0..).zip(row.names()) {
            let own = row.own_domain.then_some(name.as_str());
            let domain = domains::of_program(scenario, contender, row.domain.as_deref(), own);
            // Several of a row can each have a file of their own.
            let numbered = ProgramRow {
                command: row.command.replace("{index}", &(index + 1).to_string()),
                ..row.clone()
            };
            let program =
                program(&numbered, name, contender).with_context(|| format!("program `{}`", row.name))?;
            let start_ms = ms(row.start + row.apart * index);
            programs.push(memory::protect(scenario, row, contender, Program { domain, start_ms, ..program }));
        }
    }
    let steward = match contender.is_steward() {
        true => Some(StewardSetup {
            specifications: specifications(scenario)?,
            best_effort: contender.best_effort().map(str::to_owned),
            mechanism: contender.mechanism().map(str::to_owned),
            configuration: contender.configuration().map(str::to_owned),
            calibrated: disk::calibrated(scenario),
        }),
        false => None,
    };
    Ok(Run {
        contender: contender.name().into(),
        repeat,
        point: None,
        duration_ms: ms(scenario.duration),
        one_after_another: scenario.one_after_another,
        steward,
        scheduler: contender.holder().map(|name| format!("{PROGRAM_DIRECTORY}/{name}")),
        idle_between_ms: scenario.measure.idle.map(|(from, to)| (ms(from), ms(to))),
        memory: memory::planned(scenario, contender),
        disk: disk::planned(scenario, contender),
        domains: domains::planned(scenario, contender),
        programs,
    })
}

fn program(row: &ProgramRow, name: String, contender: Contender) -> Result<Program> {
    let mut command = shell_words::split(&row.command)?;
    let mut nice = row.nice;
    let mut deadline_ns = None;
    let reservation = row.cpu.or(row.interactive);
    match contender {
        Contender::Stock | Contender::NullScheduler => {}
        // They are about memory alone.
        Contender::MinByHand | Contender::MinWrong | Contender::HighByHand => {}
        // And they about the disk alone.
        Contender::BfqByHand | Contender::BfqStrictByHand | Contender::IocostByHand => {}
        // A bomb that tries to be interactive has no other means here than the nice value.
        // Nor has a program under another project's scheduler, which knows no reservations.
        Contender::StockNice | Contender::ScxBpfland | Contender::ScxFlash | Contender::ScxCosmos => {
            if row.foreground || row.interactive.is_some() {
                nice = Some(FOREGROUND_NICE);
            }
        }
        Contender::Deadline => {
            deadline_ns = row.cpu.map(|cpu| (cpu.budget.as_nanos() as u64, cpu.period.as_nanos() as u64));
            if let Some(arguments) = &row.deadline_arguments {
                command.extend(shell_words::split(arguments)?);
            }
        }
        Contender::Steward
        | Contender::StewardWrr
        | Contender::StewardMtrLs
        | Contender::StewardDeadline
        | Contender::StewardNoReserve => {
            let mut launcher = vec!["steward".to_owned(), "run".to_owned()];
            if let Some(reservation) = reservation {
                launcher.extend(["--cpu".to_owned(), reservation.to_string()]);
            }
            if row.protect {
                launcher.push("--protect".to_owned());
            }
            if let Some(class) = row.io {
                launcher.extend(["--io".to_owned(), class.to_string()]);
            }
            if launcher.len() > 2 {
                launcher.push("--".to_owned());
                command.splice(0..0, launcher);
            }
        }
    }
    Ok(Program {
        name,
        command,
        start_ms: ms(row.start),
        stop_ms: row.stop.map(ms),
        nice,
        deadline_ns,
        affinity: row.affinity.clone(),
        user: row.user,
        domain: None,
        protected: false,
        memory_min_bytes: None,
        group_settings: disk::of_program(row, contender),
        stamp_lines: row.fps.is_some() || row.count_lines,
    })
}

/// The scenario's own specifications, and one for the executable of each bomb that tries to be interactive.
fn specifications(scenario: &Scenario) -> Result<String> {
    let own =
        scenario.specifications.iter().map(|row| specification(&row.path, row.cpu, row.inherit, row.io));
    let mut sections: Vec<String> = own.collect();
    for row in &scenario.programs {
        let Some(interactive) = row.interactive else { continue };
        let words = shell_words::split(&row.command)?;
        let path = match words[0].starts_with('/') {
            true => words[0].clone(),
            false => format!("{PROGRAM_DIRECTORY}/{}", words[0]),
        };
        sections.push(specification(&path, interactive, true, None));
    }
    let classes = scenario.programs.iter().map(|row| row.io);
    if classes
        .chain(scenario.specifications.iter().map(|row| row.io))
        .any(|io| io == Some(Class::Interactive))
    {
        sections.push(JOURNAL.to_owned());
    }
    sections.dedup();
    Ok(sections.concat())
}

/// As specs/ has it: every save waits for it in the end.
const JOURNAL: &str =
    "[[spec]]\npath = \"[jbd2]\"\ncpu = \"10ms/100ms\"\nrevocable = false\nio = \"interactive\"\n\n";

fn specification(path: &str, cpu: Reservation, inherit: bool, io: Option<Class>) -> String {
    let io = io.map(|class| format!("io = \"{class}\"\n")).unwrap_or_default();
    format!("[[spec]]\npath = \"{path}\"\ncpu = \"{cpu}\"\ninherit = {inherit}\nrevocable = true\n{io}\n")
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn planned(contender: Contender) -> Run {
        let text = r#"
title = "t"
duration = "10s"
[[program]]
name = "film"
command = "frame-player --fps 25"
foreground = true
cpu = "5ms/30ms"
[[program]]
name = "bomb"
command = "busy-loops --count 3"
interactive = "10ms/100ms"
deadline_arguments = "--deadline 10ms/100ms"
start = "2s"
"#;
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        plan(&scenario, &[contender], 1).unwrap().runs.remove(0)
    }

    #[test]
    fn stock_gives_nothing_to_anyone() {
        let run = planned(Contender::Stock);
        assert!(run.programs.iter().all(|program| program.nice.is_none() && program.deadline_ns.is_none()));
        assert_eq!(run.programs[1].start_ms, 2000);
    }

    #[test]
    fn under_stock_nice_the_foreground_and_a_bomb_that_tries_have_the_same_means() {
        let run = planned(Contender::StockNice);
        assert_eq!(run.programs.iter().map(|program| program.nice).collect::<Vec<_>>(), [Some(-20); 2]);
    }

    #[test]
    fn under_deadline_programs_are_given_their_reservation_and_bombs_ask_for_it() {
        let run = planned(Contender::Deadline);
        assert_eq!(run.programs[0].deadline_ns, Some((5_000_000, 30_000_000)));
        assert_eq!(run.programs[1].deadline_ns, None);
        assert!(run.programs[1].command.ends_with(&["--deadline".into(), "10ms/100ms".into()]));
    }

    #[test]
    fn who_asks_for_a_class_has_it_under_steward_alone_and_the_journal_comes_first_with_who_is_interactive() {
        let text =
            "title='t'\nduration='9s'\n[[program]]\nname='save'\ncommand='file-save'\nio='interactive'\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let run = |contender| plan(&scenario, &[contender], 1).unwrap().runs.remove(0);
        assert_eq!(run(Contender::Stock).programs[0].command, ["file-save"]);
        let steward = run(Contender::Steward);
        assert_eq!(steward.programs[0].command, ["steward", "run", "--io", "interactive", "--", "file-save"]);
        assert!(steward.steward.unwrap().specifications.contains("[jbd2]"));
        let text = "title='t'\nduration='9s'\n[[spec]]\npath='/lab/bin/file-save'\ncpu='5ms/100ms'\nio='interactive'\n\
                    [[program]]\nname='save'\ncommand='file-save'\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let steward = plan(&scenario, &[Contender::Steward], 1).unwrap().runs.remove(0);
        assert_eq!(steward.programs[0].command, ["file-save"]);
        let specifications = steward.steward.unwrap().specifications;
        assert!(
            specifications.contains("revocable = true\nio = \"interactive\"\n\n[[spec]]\npath = \"[jbd2]\"")
        );
    }

    #[test]
    fn under_steward_programs_start_through_its_command_and_bombs_have_a_specification() {
        let run = planned(Contender::Steward);
        assert_eq!(run.programs[0].command[..5], ["steward", "run", "--cpu", "5000us/30000us", "--"]);
        let specifications = run.steward.unwrap().specifications;
        assert!(specifications.contains("path = \"/lab/bin/busy-loops\"\ncpu = \"10000us/100000us\""));
        assert!(!specifications.contains("frame-player"));
    }

    #[test]
    fn without_the_reserve_is_a_configuration_that_the_daemon_takes() {
        let started = planned(Contender::StewardNoReserve).steward.unwrap();
        let text = started.configuration.unwrap();
        let (configuration, problems) = steward_core::config::parse_config(Path::new("steward.toml"), &text);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(configuration.memory.reserve_bytes, 0);
        assert_eq!(planned(Contender::Steward).steward.unwrap().configuration, None);
    }

    #[test]
    fn a_program_that_belongs_to_some_contenders_runs_under_no_other() {
        let text = "title='t'\nduration='1s'\n[[program]]\nname='a'\ncommand='true'\n\
            [[program]]\nname='b'\ncommand='true'\nunder=['steward']\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let plan = plan(&scenario, &[Contender::Stock, Contender::Steward], 1).unwrap();
        assert_eq!(plan.runs.iter().map(|run| run.programs.len()).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn contenders_take_turns() {
        let scenario = "title='t'\nduration='1s'\n[[program]]\nname='p'\ncommand='true'\n";
        let scenario = Scenario::parse(scenario, Path::new("t.toml")).unwrap();
        let plan = plan(&scenario, &[Contender::Stock, Contender::Steward], 2).unwrap();
        let order: Vec<_> = plan.runs.iter().map(|run| (run.contender.as_str(), run.repeat)).collect();
        assert_eq!(order, [("stock", 1), ("steward", 1), ("stock", 2), ("steward", 2)]);
    }
}

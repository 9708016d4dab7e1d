//! The daemon from start to stop: specifications, their change, loss of the scheduler, restart.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use crate::common::{Machine, Running, Sleeper, reservation, row, set};
use libsteward::api;
use steward_core::cpu::mechanism::{MechanismKind, Standing};
use stewardd::cpu::mechanisms::LoadFailure;

/// Asks for the status until it is as wanted. Each question is a turn of the daemon's loop, so nothing is waited
/// for that does not happen.
fn until(daemon: &Running, wanted: impl Fn(&api::StatusReply) -> bool) -> api::StatusReply {
    for _ in 0..100_000 {
        let status = daemon.status();
        if wanted(&status) {
            return status;
        }
    }
    panic!("never: {:?}", daemon.status());
}

fn broken(kind: MechanismKind, reason: &str, kernel_lacks_it: bool) -> (MechanismKind, LoadFailure) {
    (kind, LoadFailure { reason: reason.to_owned(), kernel_lacks_it })
}

fn budget_ns(machine: &Machine, pid: i32) -> Option<u64> {
    machine.fake.machine().tasks.get(&pid).map(|(grant, _)| grant.reservation.budget_ns)
}

#[test]
fn specifications_are_in_force_at_the_start_for_running_programs_too() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    assert_eq!(machine.fake.machine().exec_table.len(), 1);
    assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000));
    let specs = daemon.client().call(&api::ListSpecs {}).expect("everyone may read").specs;
    assert_eq!((specs[0].name.as_str(), specs[0].resolved), (program.to_str().unwrap(), true));
    assert_eq!(daemon.status().cpu.tasks[0].grant.spec.as_deref(), program.to_str());
}

#[test]
fn a_bad_row_costs_itself_and_nothing_else() {
    let machine = Machine::new();
    let (one, other) = (machine.program("one"), machine.program("other"));
    let daemon = machine.start();
    let sleeper = Sleeper::start(&one);
    let bad = "[[spec]]\npath = \"relative\"\ncpu = \"5ms/30ms\"\n";
    machine.write_specs("a.toml", &(row(&one, "5ms/30ms") + bad + &row(&other, "1ms/10ms")));
    machine.write_specs("b.toml", "this is not TOML");
    let reloaded = daemon.client().call(&api::Reload {}).expect("root may");
    assert_eq!(reloaded.specs, 2);
    let problems = daemon.status().problems;
    let at = |file: &str, line| {
        problems.iter().any(|problem| problem.file.ends_with(file) && problem.line == line)
    };
    assert!(problems.len() == 2 && at("a.toml", Some(5)) && at("b.toml", Some(1)), "{problems:?}");
    assert_eq!(machine.fake.machine().exec_table.len(), 2);
    assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000));
}

/// Whatever root has put there: the daemon starts, and takes it at a change too.
#[test]
fn what_would_wait_or_never_end_among_specifications_is_a_problem_and_keeps_nobody_waiting() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let place = |name: &str| machine.path("specs").join(name);
    let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, place("fifo.toml"), owner_only).expect("a FIFO");
    std::os::unix::fs::symlink("/proc/kmsg", place("kmsg.toml")).expect("a link");
    std::os::unix::fs::symlink("/dev/zero", place("zero.toml")).expect("a link");
    let large = std::fs::File::create(place("large.toml")).expect("a file");
    large.set_len(1 << 40).expect("a file without blocks");
    let daemon = machine.start();
    for _ in 0..2 {
        let problems = daemon.status().problems;
        for (file, what) in [
            ("fifo.toml", "is a FIFO"),
            ("kmsg.toml", "procfs"),
            ("zero.toml", "is a device"),
            ("large.toml", "at most 1048576 are read"),
        ] {
            let found = problems.iter().find(|problem| problem.file.ends_with(file));
            assert!(found.is_some_and(|problem| problem.message.contains(what)), "{file}: {problems:#?}");
        }
        assert_eq!(machine.fake.machine().exec_table.len(), 1);
        daemon.client().call(&api::Reload {}).expect("root may");
    }
}

#[test]
fn a_program_of_many_names_is_one_problem_and_the_name_that_is_no_link_counts() {
    let machine = Machine::new();
    let program = machine.program("box");
    let mut text = String::new();
    for (name, cpu) in
        [("a", "1ms/30ms"), ("b", "2ms/30ms"), ("c", "3ms/30ms"), ("d", "4ms/30ms"), ("e", "5ms/30ms")]
    {
        std::os::unix::fs::symlink(&program, machine.path(name)).expect("linked");
        text += &row(&machine.path(name), cpu);
    }
    machine.write_specs("a.toml", &(text + &row(&program, "7ms/30ms")));
    let daemon = machine.start();
    let problems = daemon.status().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains("(and 2 more)"), "{problems:?}");
    let given = machine.fake.machine().exec_table[0].1.map(|grant| grant.reservation.budget_ns);
    assert_eq!(given, Some(7_000_000));
}

#[test]
fn a_best_effort_row_is_told_to_the_mechanism_and_listed() {
    let machine = Machine::new();
    let program = machine.program("program");
    let best_effort = format!("[[spec]]\npath = \"{}\"\nclass = \"best-effort\"\n", program.display());
    machine.write_specs("a.toml", &best_effort);
    let daemon = machine.start();
    let sleeper = Sleeper::start(&program);
    assert_eq!(machine.fake.machine().exec_table[0].1, None);
    assert_eq!(daemon.client().call(&api::ListSpecs {}).expect("everyone may read").specs[0].grant, None);
    let text = daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("it runs").text;
    assert!(text.contains("says so"), "{text}");
}

#[test]
fn a_change_reaches_running_programs_and_a_removal_releases_them() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    machine.write_specs("a.toml", &row(&program, "8ms/30ms"));
    daemon.client().call(&api::Reload {}).expect("root may");
    assert_eq!(budget_ns(&machine, sleeper.pid()), Some(8_000_000));
    assert_eq!(daemon.client().call(&api::Reload {}).expect("root may").assigned, 0);
    machine.write_specs("a.toml", "");
    daemon.client().call(&api::Reload {}).expect("root may");
    assert_eq!(budget_ns(&machine, sleeper.pid()), None);
}

/// What the daemon says of this process.
fn explained(daemon: &Running, pid: i32) -> String {
    daemon.client().call(&api::Explain { pid }).expect("it runs").text
}

#[test]
fn a_mistake_in_a_row_takes_nothing_away_and_is_named_with_its_line_until_it_is_corrected() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sound = row(&program, "5ms/30ms");
    machine.write_specs("a.toml", &sound);
    let sleeper = Sleeper::start(&program);
    let mut daemon = machine.start();
    let outside = format!("inherrit = true\n{sound}");
    for (wrong, line) in [
        (format!("{sound}inherrit = true\n"), 4),
        (sound.replace("5ms", "5"), 3),
        (sound.replace("path", "pth"), 2),
        (sound.replace("[[spec]]", "[[spce]]"), 1),
        (format!("{sound}["), 4),
        (outside.replace("path", "pth"), 1),
    ] {
        machine.replace_specs("a.toml", &wrong);
        let reloaded = daemon.client().call(&api::Reload {}).expect("root may");
        assert_eq!((reloaded.specs, reloaded.assigned, reloaded.released), (1, 0, 0), "{wrong}");
        assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000), "{wrong}");
        let in_force = format!("the earlier version of {} is in force", program.display());
        let problem =
            daemon.status().problems.into_iter().find(|problem| problem.message.contains(&in_force));
        assert_eq!(problem.expect("it is named").line, Some(line), "{wrong}");
        let text = explained(&daemon, sleeper.pid());
        assert!(text.contains(&in_force) && text.contains(&format!("a.toml:{line}: ")), "{text}");
        // The daemon starts again while the file is wrong, as at an upgrade.
        drop(daemon);
        daemon = machine.start();
        assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000), "after a restart: {wrong}");
    }
    machine.write_specs("a.toml", &row(&program, "8ms/30ms"));
    assert!(daemon.client().call(&api::Reload {}).expect("root may").problems.is_empty());
    assert_eq!(budget_ns(&machine, sleeper.pid()), Some(8_000_000));
    machine.write_specs("a.toml", "");
    daemon.client().call(&api::Reload {}).expect("root may");
    assert_eq!(budget_ns(&machine, sleeper.pid()), None, "what is left out without a mistake is gone");
}

#[test]
fn a_row_that_was_never_right_is_named_where_its_program_is_explained() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    machine.write_specs("a.toml", &format!("{}inherrit = true\n", row(&program, "5ms/30ms")));
    let daemon = machine.start();
    let text = explained(&daemon, sleeper.pid());
    assert!(text.contains("There is a row for it") && text.contains("a.toml:4: "), "{text}");
    machine.write_specs("a.toml", "[[spec");
    daemon.client().call(&api::Reload {}).expect("root may");
    let text = explained(&daemon, sleeper.pid());
    assert!(text.contains("may be where there is a mistake: ") && text.contains("a.toml:1: "), "{text}");
}

#[test]
fn changes_are_noticed_without_being_told() {
    let machine = Machine::new();
    let program = machine.program("program");
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    let mut events = daemon.client().stream(&api::Monitor::default()).expect("sent");
    // The stream has begun once a request that was sent after it is answered.
    daemon.status();
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let event = events.next().expect("the daemon runs").expect("an event").event;
    assert_eq!((event.pid(), event.kind), (Some(sleeper.pid()), api::EventKind::Admitted));
}

#[test]
fn an_executable_that_is_replaced_is_known_by_its_new_file() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let daemon = machine.start();
    let before = machine.fake.machine().exec_table[0].0;
    std::fs::rename(machine.program("new"), &program).expect("replaced");
    until(&daemon, |_| machine.fake.machine().exec_table.first().is_some_and(|(file, _)| *file != before));
}

#[test]
fn a_signal_reads_everything_again_thresholds_included() {
    let machine = Machine::new();
    let daemon = machine.start();
    std::fs::write(machine.path("steward.toml"), "[cpu.thresholds]\nadmit_below = 0.7\n").expect("written");
    daemon.signal_reload();
    until(&daemon, |status| status.cpu.thresholds.admit_below == 0.7);
    assert_eq!(machine.fake.machine().thresholds.admit_below, 0.7);
}

#[test]
fn what_was_given_by_hand_survives_a_restart() {
    let machine = Machine::new();
    let program = machine.program("program");
    let (kept, released, ended) =
        (Sleeper::start(&program), Sleeper::start(&program), Sleeper::start(&program));
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let daemon = machine.start();
    for sleeper in [&kept, &ended] {
        daemon.client().call(&set(sleeper.pid(), reservation(2, 100))).expect("it fits");
    }
    daemon.client().call(&api::Release { pid: released.pid() }).expect("root may");
    daemon.stop();
    assert!(machine.fake.machine().tasks.is_empty(), "a stop takes everything back");
    let ended_pid = ended.pid();
    drop(ended);
    let _daemon = machine.start();
    assert_eq!(budget_ns(&machine, kept.pid()), Some(2_000_000));
    assert_eq!(budget_ns(&machine, released.pid()), None);
    assert_eq!(budget_ns(&machine, ended_pid), None);
}

/// A program that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What ends at exec has ended, also for a daemon that starts again after it: the next program may have other rights,
/// and so may the same one, where it is a set-user-ID program that had given them up.
#[test]
fn what_was_given_to_a_program_is_not_given_anew_to_the_one_that_its_process_executed_since() {
    let machine = Machine::new();
    let shell = |executes: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("read line; exec {executes}")]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let (other, same) = ("sh -c 'echo; exec sleep 1000'", "/bin/sh -c 'echo; read line'");
    // The first three execute something, the third the same file again; what the second has is inherited.
    let mut children = [other, other, same, other].map(|executes| Ends(shell(executes)));
    let pids = children.each_ref().map(|child| child.0.id() as i32);
    let daemon = machine.start();
    for (pid, inherit) in pids.into_iter().zip([false, true, false, false]) {
        let request = api::Set { inherit: Some(inherit), ..set(pid, reservation(2, 100)) };
        daemon.client().call(&request).expect("it fits");
    }
    daemon.stop();
    for Ends(child) in &mut children[..3] {
        writeln!(child.stdin.as_mut().expect("it is a pipe")).expect("it reads");
        let mut said = [0];
        child.stdout.as_mut().expect("it is a pipe").read_exact(&mut said).expect("it has executed it");
    }
    let _daemon = machine.start();
    assert_eq!(pids.map(|pid| budget_ns(&machine, pid)), [None, Some(2_000_000), None, Some(2_000_000)]);
}

#[test]
fn a_damaged_state_file_is_set_aside_and_said() {
    let machine = Machine::new();
    std::fs::create_dir(machine.path("state")).expect("created");
    std::fs::write(machine.path("state/by-hand.json"), "{\"schema\":1,").expect("written");
    let daemon = machine.start();
    let problems = daemon.status().problems;
    assert!(problems.iter().any(|problem| problem.message.contains("by-hand.json.damaged")), "{problems:?}");
    assert!(machine.path("state/by-hand.json.damaged").exists());
}

#[test]
fn an_ejected_scheduler_is_loaded_again_three_times_and_then_replaced() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "5ms/30ms"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    for attempt in 1..=3 {
        machine.fake.eject("runnable task stall");
        let status = until(&daemon, |status| status.cpu.mechanism.restarts == attempt);
        assert_eq!(status.cpu.mechanism.kind, Some(api::MechanismKind::SchedExt));
        assert_eq!(status.cpu.mechanism.exit_reason.as_deref(), Some("runnable task stall"));
        assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000));
    }
    machine.fake.eject("runnable task stall");
    let status = until(&daemon, |status| status.cpu.mechanism.restarts == 4);
    assert_eq!(status.cpu.mechanism.kind, Some(api::MechanismKind::Nice));
    let note = status.cpu.mechanism.note.expect("it says why");
    assert!(note.contains("3 attempts") && note.contains("runnable task stall"), "{note}");
    assert!(note.contains("nothing is reserved"), "{note}");
    assert_eq!(machine.fake.machine().loaded, Some(MechanismKind::Nice));
    assert_eq!(budget_ns(&machine, sleeper.pid()), Some(5_000_000));
}

#[test]
fn with_nothing_left_the_daemon_answers_that_nothing_is_in_force() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    std::fs::write(machine.path("steward.toml"), "[cpu]\nmechanism = \"sched_ext\"\n").expect("written");
    let daemon = machine.start();
    for attempt in 1..=3 {
        machine.fake.eject("stall");
        until(&daemon, |status| status.cpu.mechanism.restarts == attempt);
    }
    machine.fake.eject("stall");
    let status = until(&daemon, |status| status.cpu.mechanism.kind.is_none());
    assert!(status.cpu.mechanism.exit_reason.is_some());
    let error =
        daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).expect_err("nothing enforces it");
    assert!(matches!(error, libsteward::Error::Api(libsteward::ApiError::MechanismGone { .. })), "{error}");
}

#[test]
fn without_sched_ext_the_daemon_starts_on_the_other_mechanism_and_says_why() {
    let machine = Machine::new();
    machine.fake.machine().broken.push(broken(MechanismKind::SchedExt, "this kernel has no sched_ext", true));
    let status = machine.start().status();
    assert_eq!(status.cpu.mechanism.kind, Some(api::MechanismKind::Deadline));
    assert!(status.cpu.mechanism.note.is_some_and(|note| note.contains("no sched_ext")));
}

#[test]
fn where_another_scheduler_is_loaded_the_daemon_does_not_start_beside_it() {
    let machine = Machine::new();
    machine.fake.machine().broken = vec![broken(MechanismKind::SchedExt, "another scheduler", false)];
    let error = machine.try_start().err().expect("somebody has to decide").to_string();
    assert_eq!(error, "sched_ext: another scheduler");
    assert_eq!(machine.fake.machine().loads, 0);
}

#[test]
fn without_any_mechanism_the_daemon_does_not_start_and_says_why_for_each() {
    let machine = Machine::new();
    machine.fake.machine().broken = vec![
        broken(MechanismKind::SchedExt, "no sched_ext", true),
        broken(MechanismKind::Deadline, "no CAP_SYS_NICE", false),
    ];
    let error = machine.try_start().err().expect("nothing can be in force").to_string();
    assert!(error.contains("no sched_ext") && error.contains("no CAP_SYS_NICE"), "{error}");
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_ones_socket_is_replaced() {
    let machine = Machine::new();
    let daemon = machine.start();
    let error = machine.try_start().err().expect("one is enough").to_string();
    assert!(error.contains("another stewardd"), "{error}");
    daemon.status();
    daemon.stop();
    assert!(!machine.path("socket").exists());
    drop(std::os::unix::net::UnixListener::bind(machine.path("socket")).expect("bound"));
    assert!(machine.path("socket").exists());
    machine.start().status();
}

#[test]
fn free_memory_is_told_to_the_mechanism_while_a_task_waits_to_be_taken_back() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "29ms/30ms"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    until(&daemon, |_| machine.fake.machine().memory_free.is_some_and(|bytes| bytes > 0));
    daemon.client().call(&api::Release { pid: sleeper.pid() }).expect("root may");
    until(&daemon, |_| machine.fake.machine().memory_free.is_none());
}

#[test]
fn a_refused_program_is_shown_as_refused() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine.write_specs("a.toml", &row(&program, "29ms/30ms"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    assert_eq!(machine.fake.machine().tasks[&sleeper.pid()].1, Standing::Refused);
    assert_eq!(daemon.status().cpu.tasks[0].standing, api::Standing::Refused);
    let text = daemon.client().call(&api::Explain { pid: sleeper.pid() }).expect("it runs").text;
    assert!(text.contains("NOT in force"), "{text}");
}

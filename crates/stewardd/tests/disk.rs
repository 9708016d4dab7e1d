//! What specifications say of the disk, from the file to the tasks that have a reservation.

mod common;

use common::{Machine, Running, Sleeper, row};
use steward_core::disk::priority::Priority;
use stewardd::disk::knobs::Wanted;

/// Asks for the status, each time a turn of the daemon's loop, until disks are wanted as they should be.
fn until(machine: &Machine, daemon: &Running, wanted: impl Fn(&Wanted) -> bool) {
    for _ in 0..100_000 {
        daemon.status();
        if wanted(&machine.disk.wanted()) {
            return;
        }
    }
    panic!("never: {:?}", machine.disk.wanted());
}

fn priority_of(wanted: &Wanted, pid: i32) -> Option<Priority> {
    wanted.priorities.iter().find(|(task, _)| task.tid == pid).map(|(_, priority)| *priority)
}

#[test]
fn an_interactive_programs_requests_come_first_as_long_as_its_specification_says_so() {
    let machine = Machine::new();
    let (editor, shell) = (machine.program("editor"), machine.program("shell"));
    let text = row(&editor, "5ms/30ms") + "io = \"interactive\"\n" + &row(&shell, "5ms/30ms");
    machine.write_specs("a.toml", &text);
    let (editing, other) = (Sleeper::start(&editor), Sleeper::start(&shell));
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()) == Some(Priority::RealTime(2)));
    let wanted = machine.disk.wanted();
    assert!(wanted.ordered && priority_of(&wanted, other.pid()).is_none(), "{wanted:?}");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + &row(&shell, "5ms/30ms")));
    daemon.signal_reload();
    until(&machine, &daemon, |wanted| wanted.priorities.is_empty() && !wanted.ordered);
    drop(other);
}

#[test]
fn what_is_in_the_background_is_served_last_and_for_it_alone_no_disk_is_ordered() {
    let machine = Machine::new();
    let indexer = machine.program("indexer");
    let text = format!("[[spec]]\npath = \"{}\"\nio = \"background\"\n", indexer.display());
    machine.write_specs("a.toml", &text);
    let running = Sleeper::start(&indexer);
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, running.pid()) == Some(Priority::BestEffort(7)));
    assert!(!machine.disk.wanted().ordered);
}

#[test]
fn whoever_is_started_by_an_interactive_program_does_not_keep_its_priority() {
    let machine = Machine::new();
    // The daemon looks who started whom: this process is the parent of both.
    let own = std::env::current_exe().expect("a path");
    machine.write_specs("a.toml", &(row(&own, "5ms/30ms") + "io = \"interactive\"\n"));
    let child = Sleeper::start(&machine.program("make"));
    let daemon = machine.start();
    let own_pid = std::process::id() as i32;
    until(&machine, &daemon, |wanted| priority_of(wanted, own_pid) == Some(Priority::RealTime(2)));
    machine.fake.machine().heirs.push(child.pid());
    until(&machine, &daemon, |wanted| {
        wanted.heirs.iter().any(|(task, from)| task.tid == child.pid() && *from == Priority::RealTime(2))
    });
    assert!(priority_of(&machine.disk.wanted(), child.pid()).is_none());
}

#[test]
fn what_cannot_be_done_is_said_until_it_can() {
    let machine = Machine::new();
    machine.disk.fail(&["sda: classes of disk requests count for nothing there"]);
    let editor = machine.program("editor");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + "io = \"interactive\"\n"));
    let editing = Sleeper::start(&editor);
    let daemon = machine.start();
    let said =
        || daemon.status().problems.iter().any(|problem| problem.message.contains("count for nothing there"));
    assert!((0..100_000).any(|_| said()));
    machine.disk.fail(&[]);
    drop(editing);
    daemon.signal_reload();
    assert!((0..100_000).any(|_| !said()));
}

#[test]
fn who_wants_disks_left_as_they_are_has_that() {
    let machine = Machine::new();
    std::fs::write(machine.path("steward.toml"), "[disk]\norder = \"keep\"\n").expect("written");
    let editor = machine.program("editor");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + "io = \"interactive\"\n"));
    let editing = Sleeper::start(&editor);
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()).is_some());
    assert!(!machine.disk.wanted().ordered);
}

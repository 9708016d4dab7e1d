//! The lab from one end to the other: a scenario file goes in, numbers from a booted machine come out. The programs are
//! those of the same build, which `make test-kernel` makes first.

use steward_lab::{Contender, RunOptions, run_scenario};

const SCENARIO: &str = r#"
title = "A film and a bomb"
duration = "4s"
repeat = 1
contenders = ["stock", "deadline", "null-scheduler"]
[machine]
cpus = 1
memory = "256M"
icount_shift = 4
[[program]]
name = "film"
command = "frame-player --fps 25 --cpu-ms 4.5 --seconds 3"
cpu = "10ms/40ms"
metrics = "player"
[[program]]
name = "bomb"
command = "busy-loops --count 20"
start = "1s"
stop = "3s"
[[program]]
name = "missing"
command = "no-such-program"
start = "3.5s"
"#;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_film_that_stutters_under_stock_is_smooth_with_a_reservation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.toml");
    std::fs::write(&path, SCENARIO.split("[[program]]\nname = \"missing\"").next().unwrap()).unwrap();
    let outcome = run_scenario(&path, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    assert!(outcome.is_complete(), "{:?}", outcome.failures);
    let late = |contender| outcome.contenders[&contender]["frames_late"];
    assert!(late(Contender::Stock) > 20.0, "{}", outcome.table());
    assert_eq!(late(Contender::Deadline), 0.0, "{}", outcome.table());
    assert_eq!(outcome.contenders[&Contender::Deadline]["frames_total"], 75.0);
}

/// Five loops on four processors leave one of them to the film at nearly every moment: a frame is late only when the
/// emulation lets some processors run on while others wait, as QEMU before 8.1 does (a quarter of the frames).
const ROOM_FOR_ALL: &str = r#"
title = "A film and five loops on four processors"
duration = "8s"
repeat = 1
contenders = ["stock"]
[machine]
cpus = 4
memory = "512M"
icount_shift = 3
[[program]]
name = "film"
command = "frame-player --fps 25 --cpu-ms 4.5 --seconds 7"
metrics = "player"
[[program]]
name = "loops"
command = "busy-loops --count 5"
[measure]
idle = ["2s", "7s"]
"#;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn four_processors_with_counted_instructions_advance_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.toml");
    std::fs::write(&path, ROOM_FOR_ALL).unwrap();
    let outcome = run_scenario(&path, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    assert!(outcome.is_complete(), "{:?}", outcome.failures);
    let stock = &outcome.contenders[&Contender::Stock];
    assert_eq!(stock["frames_late"], 0.0, "{}", outcome.table());
    // All four were at work: five loops in 8 s are 32 s of CPU time.
    assert!(stock["share_loops"] > 0.9 && stock["idle_ms_per_second"] < 100.0, "{}", outcome.table());
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_program_that_cannot_be_started_fails_its_run_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.toml");
    std::fs::write(&path, SCENARIO).unwrap();
    let options = RunOptions { contenders: vec![Contender::Stock], quiet: true, ..RunOptions::default() };
    let outcome = run_scenario(&path, &options).unwrap();
    assert!(!outcome.is_complete());
    assert!(outcome.failures[&Contender::Stock][0].contains("no-such-program"), "{:?}", outcome.failures);
}

/// Somebody takes the scheduler out, and loads it anew: one is in force at the end.
const LOADED_ANEW: &str = r#"
title = "A scheduler that goes and comes"
duration = "4s"
repeat = 1
contenders = ["null-scheduler"]
[machine]
cpus = 1
memory = "256M"
icount_shift = 4
[[program]]
name = "anew"
command = "sh -c 'killall -9 null-scheduler; until /lab/bin/null-scheduler; do sleep 0.1; done'"
start = "1s"
"#;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_run_in_which_the_scheduler_was_taken_out_and_loaded_again_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.toml");
    std::fs::write(&path, LOADED_ANEW).unwrap();
    let outcome = run_scenario(&path, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    assert!(!outcome.is_complete());
    let failure = &outcome.failures[&Contender::NullScheduler][0];
    assert!(failure.contains("taken out during the run and loaded again"), "{failure}");
}

/// A key after a pause in which two hogs needed more memory than there is.
const KEYS: &str = r#"
title = "A key and two hogs"
duration = "70s"
repeat = 1
contenders = ["stock", "high-by-hand"]
ceiling = "70M"
[machine]
cpus = 1
memory = "256M"
icount_shift = 3
[machine.timed_disk]
kind = "5400rpm"
files = "16M"
swap = "320M"
[[prepare]]
command = "dd if=/dev/urandom of=/timed/book bs=1M count=4"
[[program]]
name = "editor"
command = "keystrokes --anonymous-mb 12 --file /timed/book --keys 1 --pause 40"
protect = true
metrics = "reply"
[[program]]
name = "hog"
command = "memory-hog --mb 160 --rounds 3"
count = 2
start = "2s"
metrics = "work"
[measure]
of = ["editor", "hog"]
"#;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn an_editor_waits_for_the_disk_in_the_guests_time_unless_all_others_have_a_ceiling() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.toml");
    std::fs::write(&path, KEYS).unwrap();
    let outcome = run_scenario(&path, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    assert!(outcome.is_complete(), "{:?}", outcome.failures);
    let metric = |contender, name: &str| {
        let found = outcome.contenders[&contender].get(name);
        *found.unwrap_or_else(|| panic!("{contender:?} has no {name}:\n{}", outcome.table()))
    };
    // A request of the disk takes 10 ms, and there are others before it.
    assert!(metric(Contender::Stock, "swapped_out_mib") > 10.0, "{}", outcome.table());
    // Some 400 of its pages went while it paused, and each comes back alone. A ceiling on the others keeps all of them
    // but for one or two; without a fault the answer takes the time to touch them, by a program not optimized here.
    let (kept, lost) =
        (metric(Contender::HighByHand, "major_faults"), metric(Contender::Stock, "major_faults"));
    assert!(lost > 20.0 && kept * 20.0 < lost, "{}", outcome.table());
    let (soon, late) =
        (metric(Contender::HighByHand, "latency_ms_max"), metric(Contender::Stock, "latency_ms_max"));
    assert!(soon * 20.0 < late, "{}", outcome.table());
    assert!(metric(Contender::HighByHand, "work_per_second") > 0.0, "{}", outcome.table());
}

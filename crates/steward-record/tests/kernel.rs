//! The recorder on the lab's kernel: what a busy loop and a sleeper in a cgroup did is in the recording, and the
//! simulator replays it.

use std::path::PathBuf;
use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, run};
use steward_sim::Machine;
use steward_sim::cpu::recording::{Cycle, Recording};

const SCRIPT: &str = "
exec >/run/lab/results 2>&1
mkdir -p /sys/fs/cgroup/kept
sh -c 'while :; do :; done' &
sh -c 'echo $$ >/sys/fs/cgroup/kept/cgroup.procs; while :; do sleep 0.02; done' &
steward record --duration 2s -o /run/lab/recording.jsonl --json
echo == recording
cat /run/lab/recording.jsonl
";

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_recording_has_who_ran_and_who_slept_and_can_be_replayed() {
    let config = MachineConfig {
        cpus: 1,
        icount_shift: Some(2),
        timeout_host: Duration::from_secs(240),
        ..MachineConfig::default()
    };
    let steward = GuestFile::from_host(build_directory().join("steward"), "/usr/bin/steward");
    let files = [steward.expect("make test-kernel built it")];
    let command = ["/bin/sh", "-c", SCRIPT].map(String::from);
    let mut lines: Vec<String> = Vec::new();
    run(&config, &files, &command, &mut |line| lines.push(line.to_owned())).expect("the guest runs");
    let begin = lines.iter().position(|line| line == "== recording");
    let begin = begin.unwrap_or_else(|| panic!("no recording: {lines:#?}"));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recording.jsonl");
    std::fs::write(&path, lines[begin + 1..].join("\n") + "\n").expect("a place for the recording");

    let recording = Recording::read(&path).unwrap_or_else(|problem| panic!("{problem}: {lines:#?}"));
    assert_eq!((recording.header.cpus, recording.end.lost), (1, 0));
    assert!(recording.end.at_ns > 1_900_000_000, "{:?}", recording.end);
    let ran_ns = |tid: i32| -> u64 {
        let own = recording.cycles.iter().filter(|Cycle(of, ..)| *of == tid);
        own.map(|Cycle(_, _, ran_ns, ..)| ran_ns).sum()
    };
    let most_ns = recording.tasks.keys().map(|tid| ran_ns(*tid)).max().expect("threads");
    assert!(most_ns > 1_000_000_000, "the loop ran {most_ns} ns");
    assert!(recording.tasks.values().any(|task| task.domain == "kept"), "{:?}", recording.tasks);
    assert!(recording.domains.iter().any(|domain| domain.path == "kept"));
    let slept = recording.cycles.iter().filter(|Cycle(_, _, _, _, slept_ns, _)| *slept_ns > 15_000_000);
    assert!(slept.clone().count() > 10, "{} sleeps of 20 ms", slept.count());

    let outcome = Machine::new(&recording.scenario()).run();
    assert!(outcome.busy > 0.5, "{outcome}");
}

//! The scheduler on a real kernel: runs examples/checks in the lab's machine.
//!
//! The machines' clocks count instructions, so that the host's load cannot disturb them. `--nocapture` shows what each
//! check found, and how many of the host's seconds it took.

use std::time::{Duration, Instant};

use steward_machine::{GuestFile, MachineConfig, build_directory, run};

/// Runs the checks for that many CPUs, and fails with the lines of those that failed, or when fewer than `least`
/// passed.
fn run_checks(cpus: u32, least: usize) {
    let program = build_directory().join("examples/checks");
    let config = MachineConfig {
        cpus,
        icount_shift: Some(3),
        timeout_host: Duration::from_secs(1800),
        ..MachineConfig::default()
    };
    let files = [GuestFile::from_host(program, "/usr/bin/checks").expect("make test-kernel built it")];
    let command = ["/bin/sh", "-c", "exec checks >/run/lab/results 2>&1"].map(String::from);
    let (mut lines, mut since) = (Vec::new(), Instant::now());
    let outcome = run(&config, &files, &command, &mut |line| {
        println!("{:4} s {line}", since.elapsed().as_secs());
        since = Instant::now();
        lines.push(line.to_owned());
    })
    .expect("the guest runs");
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed ")).collect();
    assert!(failed.is_empty() && outcome.status == 0, "{failed:#?}, exit status {}", outcome.status);
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= least, "only {passed} checks ran");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn shares_reservations_and_load_control_hold_on_one_cpu() {
    run_checks(1, 44);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn pinned_tasks_hotplug_and_affinity_hold_on_two_cpus() {
    run_checks(2, 12);
}

//! The scheduler on a real kernel: runs examples/checks in the lab's machine.
//!
//! The machines' clocks count instructions, so that the host's load cannot disturb them.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, repository, run};

/// Runs the checks for that many CPUs, those of that part, and fails with the lines of those that failed, or when fewer
/// than `least` passed.
fn run_checks(cpus: u32, part: &str, least: usize) {
    let binary = repository().join("target/release/examples/checks");
    assert!(
        binary.exists(),
        "{} is missing: cargo build --release -p steward-sched --examples",
        binary.display()
    );
    let config = MachineConfig {
        cpus,
        icount_shift: Some(3),
        timeout_host: Duration::from_secs(1800),
        ..MachineConfig::default()
    };
    let files = [GuestFile::from_host(&binary, "/usr/bin/checks").expect("the binary can be read")];
    let command =
        ["/bin/sh".into(), "-c".into(), format!("exec checks --part {part} >/run/lab/results 2>&1")];
    let mut lines = Vec::new();
    let outcome = run(&config, &files, &command, &mut |line| {
        println!("{line}");
        lines.push(line.to_owned());
    })
    .expect("the guest runs");
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed ")).collect();
    assert!(failed.is_empty() && outcome.status == 0, "{failed:#?}, exit status {}", outcome.status);
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= least, "only {passed} checks ran");
}

// In several machines, because these checks are what takes longest of all tests.

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn shares_reservations_and_load_control_hold_on_one_cpu_first_part() {
    run_checks(1, "1/2", 15);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn shares_reservations_and_load_control_hold_on_one_cpu_second_part() {
    run_checks(1, "2/2", 15);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn pinned_tasks_hotplug_and_affinity_hold_on_two_cpus_first_part() {
    run_checks(2, "1/2", 4);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn pinned_tasks_hotplug_and_affinity_hold_on_two_cpus_second_part() {
    run_checks(2, "2/2", 4);
}

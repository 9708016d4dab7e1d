//! The scheduler on a real kernel: runs examples/checks in the lab's machine.
//!
//! Shares are checked on one CPU whose clock counts instructions, so that the host's load cannot disturb them. What needs
//! two CPUs runs without such a clock: with it this QEMU lets one emulated CPU stand still for seconds.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, repository, run};

/// Runs the checks for that many CPUs and fails with the lines of those that failed.
fn run_checks(config: &MachineConfig, least: usize) {
    let binary = repository().join("target/release/examples/checks");
    assert!(
        binary.exists(),
        "{} is missing: cargo build --release -p steward-sched --examples",
        binary.display()
    );
    let files = [GuestFile::from_host(&binary, "/usr/bin/checks").expect("the binary can be read")];
    let command = ["/bin/sh", "-c", "exec checks >/run/lab/results 2>&1"].map(String::from);
    let mut lines = Vec::new();
    let outcome = run(config, &files, &command, &mut |line| {
        println!("{line}");
        lines.push(line.to_owned());
    })
    .expect("the guest runs");
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed ")).collect();
    assert!(failed.is_empty() && outcome.status == 0, "{failed:#?}, exit status {}", outcome.status);
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= least, "only {passed} checks ran: {lines:?}");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn shares_reservations_and_load_control_hold_on_one_cpu() {
    let config = MachineConfig {
        cpus: 1,
        icount_shift: Some(3),
        timeout_host: Duration::from_secs(1800),
        ..MachineConfig::default()
    };
    run_checks(&config, 20);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn bound_tasks_hotplug_and_affinity_hold_on_two_cpus() {
    let config =
        MachineConfig { cpus: 2, timeout_host: Duration::from_secs(1800), ..MachineConfig::default() };
    run_checks(&config, 8);
}

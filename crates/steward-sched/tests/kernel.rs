//! The scheduler on a real kernel: runs examples/checks in the lab's machine.
//!
//! Shares are checked on one CPU whose clock counts instructions, so that the host's load cannot disturb them. What needs
//! two CPUs runs without such a clock: with it this QEMU lets one emulated CPU stand still for seconds.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, repository, run};

/// Runs the checks for that many CPUs, those of that part, and fails with the lines of those that failed. Returns how
/// many passed.
fn run_checks(config: &MachineConfig, part: &str) -> usize {
    let binary = repository().join("target/release/examples/checks");
    assert!(
        binary.exists(),
        "{} is missing: cargo build --release -p steward-sched --examples",
        binary.display()
    );
    let files = [GuestFile::from_host(&binary, "/usr/bin/checks").expect("the binary can be read")];
    let command =
        ["/bin/sh".into(), "-c".into(), format!("exec checks --part {part} >/run/lab/results 2>&1")];
    let mut lines = Vec::new();
    let outcome = run(config, &files, &command, &mut |line| {
        println!("{line}");
        lines.push(line.to_owned());
    })
    .expect("the guest runs");
    let failed: Vec<&String> = lines.iter().filter(|line| line.starts_with("failed ")).collect();
    assert!(failed.is_empty() && outcome.status == 0, "{failed:#?}, exit status {}", outcome.status);
    lines.iter().filter(|line| line.starts_with("ok ")).count()
}

/// In two machines at once, because these checks are what takes longest of all tests.
#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn shares_reservations_and_load_control_hold_on_one_cpu() {
    let config = MachineConfig {
        cpus: 1,
        icount_shift: Some(3),
        timeout_host: Duration::from_secs(1800),
        ..MachineConfig::default()
    };
    let passed: usize = std::thread::scope(|scope| {
        let parts = ["1/2", "2/2"].map(|part| {
            scope.spawn({
                let config = &config;
                move || run_checks(config, part)
            })
        });
        parts.into_iter().map(|part| part.join().expect("what failed was said above")).sum()
    });
    assert!(passed >= 20, "only {passed} checks ran");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn bound_tasks_hotplug_and_affinity_hold_on_two_cpus() {
    let config =
        MachineConfig { cpus: 2, timeout_host: Duration::from_secs(1800), ..MachineConfig::default() };
    let passed = run_checks(&config, "1/1");
    assert!(passed >= 8, "only {passed} checks ran");
}

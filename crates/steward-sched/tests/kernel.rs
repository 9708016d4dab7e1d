//! The scheduler on a real kernel: runs examples/checks in the lab's machine.
//!
//! The machines' clocks count instructions, so that the host's load cannot disturb them. `--nocapture` shows what each
//! check found, and how many of the host's seconds it took.

use std::path::Path;
use std::time::{Duration, Instant};

use steward_machine::{GuestFile, MachineConfig, build_directory, repository, run};

/// Runs the checks for that many CPUs, or those of these names, and fails with the lines of those that failed, or when
/// fewer than `least` passed. An instruction takes 2 to the power of `icount_shift` ns.
fn run_checks(cpus: u32, icount_shift: u8, names: &str, least: usize) {
    let program = build_directory().join("examples/checks");
    let config = MachineConfig {
        cpus,
        icount_shift: Some(icount_shift),
        timeout_host: Duration::from_secs(1800),
        ..MachineConfig::default()
    };
    let timed_disk = repository().join("lab/machine/timed-disk.sh");
    let files = [
        (program.as_path(), "/usr/bin/checks"),
        (&timed_disk, "/lab/timed-disk.sh"),
        (Path::new("/usr/sbin/mke2fs"), "/lab/bin/mke2fs"),
    ];
    let files = files
        .map(|(host, guest)| GuestFile::from_host(host, guest).expect("made by `make test-kernel` or there"));
    let script = format!("exec checks {names} >/run/lab/results 2>&1");
    let command = ["/bin/sh", "-c", &script].map(String::from);
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
    run_checks(1, 3, "", 50);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn pinned_tasks_hotplug_and_affinity_hold_on_two_cpus() {
    run_checks(2, 3, "", 25);
}

/// For longer than the kernel lets a scheduler keep its watchdog waiting.
#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn crowds_of_an_ordinary_user_take_nothing_away_on_one_cpu() {
    let names = "a-crowd-that-is-never-revoked-takes-nothing-away a-crowd-of-shells-takes-nothing-away \
                 beside-thousands-at-nice-19-an-ordinary-task-waits-by-its-weight \
                 who-is-held-behind-thousands-keeps-nobody-waiting-inside-the-kernel";
    run_checks(1, 4, names, 4);
}

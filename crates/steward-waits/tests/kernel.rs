//! Who is announced on a real kernel.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, run};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn exactly_those_are_announced_who_are_served_first() {
    let config = MachineConfig { timeout_host: Duration::from_secs(900), ..MachineConfig::default() };
    let program = build_directory().join("examples/waits-seen");
    let files = [GuestFile::from_host(program, "/usr/bin/waits-seen").expect("make test-kernel built it")];
    let mut told = String::new();
    let command = ["/bin/sh".into(), "-c".into(), "waits-seen /run/saved >/run/lab/results 2>&1".into()];
    let outcome =
        run(&config, &files, &command, &mut |line| told += &format!("{line}\n")).expect("the guest runs");
    assert!(outcome.status == 0 && told.contains("all are seen"), "status {}:\n{told}", outcome.status);
}

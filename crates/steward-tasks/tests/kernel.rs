//! The sources on a real kernel, against each other.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, run};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn all_sources_tell_the_same_of_a_crowd() {
    let config = MachineConfig { timeout_host: Duration::from_secs(1800), ..MachineConfig::default() };
    let program = build_directory().join("examples/sources-agree");
    let files = [GuestFile::from_host(program, "/usr/bin/sources-agree").expect("make test-kernel built it")];
    let mut told = String::new();
    let command = ["/bin/sh".into(), "-c".into(), "sources-agree >/run/lab/results 2>&1".into()];
    let outcome =
        run(&config, &files, &command, &mut |line| told += &format!("{line}\n")).expect("the guest runs");
    assert!(outcome.status == 0 && told.contains("all sources agree"), "status {}:\n{told}", outcome.status);
}

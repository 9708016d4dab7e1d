//! The holder of file pages on the lab's kernel: pages that another cgroup is charged for stay in memory while they are
//! held, whatever is taken from that cgroup, and can be taken afterwards. The checks are those of
//! `examples/hold-probe`.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, release_directory, run};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn held_pages_stay_though_the_cgroup_that_they_are_charged_to_is_reclaimed() {
    let config = MachineConfig {
        cpus: 1,
        memory_mib: 512,
        disk_mib: Some(64),
        icount_shift: Some(2),
        timeout_host: Duration::from_secs(240),
        ..MachineConfig::default()
    };
    let program = release_directory().join("examples/hold-probe");
    let files = [GuestFile::from_host(program, "/usr/bin/hold-probe").expect("make test-kernel built it")];
    let script = "hold-probe /scratch >/run/lab/results 2>&1; echo \"status $?\" >>/run/lab/results";
    let command = ["/bin/sh", "-c", script].map(String::from);
    let mut lines: Vec<String> = Vec::new();
    run(&config, &files, &command, &mut |line| lines.push(line.to_owned())).expect("the guest runs");
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert!(passed == 6 && lines.iter().any(|line| line == "status 0"), "{lines:#?}");
}

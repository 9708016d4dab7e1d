//! Who is announced on a real kernel.

use std::path::Path;
use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, repository, run};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn exactly_those_are_announced_who_are_served_first_and_wait_beside_others() {
    let config = MachineConfig { timeout_host: Duration::from_secs(900), ..MachineConfig::default() };
    let program = build_directory().join("examples/waits-seen");
    let disk = repository().join("lab/machine/timed-disk.sh");
    let files = [
        (program.as_path(), "/usr/bin/waits-seen"),
        (disk.as_path(), "/lab/timed-disk.sh"),
        (Path::new("/usr/sbin/mke2fs"), "/lab/bin/mke2fs"),
    ];
    let files =
        files.map(|(host, guest)| GuestFile::from_host(host, guest).expect("make test-kernel built it"));
    let mut told = String::new();
    let script = "exec >/run/lab/results 2>&1; sh /lab/timed-disk.sh ssd 16 0 && waits-seen /timed/saved";
    let command = ["/bin/sh".into(), "-c".into(), script.into()];
    let outcome =
        run(&config, &files, &command, &mut |line| told += &format!("{line}\n")).expect("the guest runs");
    assert!(outcome.status == 0 && told.contains("all are seen"), "status {}:\n{told}", outcome.status);
}

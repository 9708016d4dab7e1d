//! Who is announced on a real kernel.

use std::path::Path;
use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, repository, run};

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn exactly_those_are_announced_who_are_served_first_and_wait_beside_others() {
    see("sh /lab/timed-disk.sh ssd 16 0 && waits-seen /timed/saved");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn what_stands_in_an_elevator_is_wanted_until_it_is_done() {
    // Neither is anything held back before it is in the elevator.
    see("sh /lab/timed-disk.sh 5400rpm 32 0 && cd /sys/block/nullb0/queue && echo 1024 >nr_requests && \
         echo 0 >wbt_lat_usec && waits-seen /timed/saved behind");
}

/// Runs this in the lab's machine, where the program is, and a disk can be made.
fn see(script: &str) {
    // By a clock that counts instructions: what is to be seen depends on what happens within 2 s, and on a busy host no
    // more than a few saves do.
    let config = MachineConfig {
        icount_shift: Some(2),
        timeout_host: Duration::from_secs(900),
        ..MachineConfig::default()
    };
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
    let command = ["/bin/sh".into(), "-c".into(), format!("exec >/run/lab/results 2>&1; {script}")];
    let outcome =
        run(&config, &files, &command, &mut |line| told += &format!("{line}\n")).expect("the guest runs");
    assert!(outcome.status == 0 && told.contains("all are seen"), "status {}:\n{told}", outcome.status);
}

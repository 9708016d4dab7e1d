//! The memory room on the lab's kernel: what is touched is found, what is used is told from what is not, memory is
//! taken and protected, and pages that another cgroup is charged for stay while they are held. The checks are those of
//! `examples/memory-probe`; what has to hold is there.

use std::time::Duration;

use steward_machine::{GuestFile, MachineConfig, build_directory, run};

/// Nothing that can be taken, then a file, then pages of a file that are held, then swap.
const SCRIPT: &str = "
exec >/run/lab/results 2>&1
probe() { echo \"== $1\"; shift; memory-probe \"$@\"; echo \"status $?\"; }
probe nothing room
probe file room /scratch
probe held hold /scratch
modprobe zram; echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null; swapon /dev/zram0
probe swap room
";

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn memory_is_read_aged_taken_protected_and_held_with_files_with_swap_and_with_neither() {
    let config = MachineConfig {
        cpus: 1,
        memory_mib: 512,
        disk_mib: Some(128),
        icount_shift: Some(2),
        timeout_host: Duration::from_secs(240),
        ..MachineConfig::default()
    };
    let program = build_directory().join("examples/memory-probe");
    let files = [GuestFile::from_host(program, "/usr/bin/memory-probe").expect("make test-kernel built it")];
    let command = ["/bin/sh", "-c", SCRIPT].map(String::from);
    let mut lines: Vec<String> = Vec::new();
    run(&config, &files, &command, &mut |line| lines.push(line.to_owned())).expect("the guest runs");
    let passed = lines.iter().filter(|line| line.starts_with("ok ")).count();
    let well = lines.iter().filter(|line| *line == "status 0").count();
    assert_eq!((passed, well), (3 * 9 + 8, 4), "{lines:#?}");
    let taken: Vec<&String> = lines.iter().filter(|line| line.starts_with("ok memory-is-taken")).collect();
    assert!(taken[0].contains("nothing to be had"), "{taken:#?}");
}

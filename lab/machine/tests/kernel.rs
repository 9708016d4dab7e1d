//! The machine itself, with real boots: what it promises to those who run something in it.

use anyhow::Result;
use std::time::Duration;
use steward_machine::{GuestFile, KernelChoice, MachineConfig, MachineOutcome, cache_directory, run};

/// Runs `script` in a guest and returns what it wrote to the result channel.
fn shell(config: &MachineConfig, files: &[GuestFile], script: &str) -> Result<(MachineOutcome, Vec<String>)> {
    let command = ["/bin/sh", "-c", script].map(String::from);
    let mut lines = Vec::new();
    let outcome = run(config, files, &command, &mut |line| lines.push(line.to_owned()))?;
    Ok((outcome, lines))
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_program_of_the_host_runs_and_its_results_and_status_come_back() {
    let files = [
        GuestFile::from_host("/bin/ls", "/usr/local/bin/the-hosts-ls").expect("every host has ls"),
        GuestFile::from_bytes("some contents", "/data/file", 0o640),
    ];
    let script =
        "{ the-hosts-ls -l /data; ls /sys/kernel/sched_ext/state; nproc; } >/run/lab/results; exit 7";
    let config = MachineConfig { cpus: 3, ..MachineConfig::default() };
    let (outcome, lines) = shell(&config, &files, script).expect("the guest runs");
    assert_eq!(outcome.status, 7);
    assert!(lines.iter().any(|line| line.starts_with("-rw-r-----") && line.ends_with("file")), "{lines:?}");
    assert_eq!(lines[lines.len() - 2..], ["/sys/kernel/sched_ext/state", "3"]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn every_controller_is_enabled_below_the_root_of_cgroup2() {
    let script = "cat /sys/fs/cgroup/cgroup.subtree_control >/run/lab/results";
    let (_, lines) = shell(&MachineConfig::default(), &[], script).expect("the guest runs");
    for controller in ["cpuset", "cpu", "io", "memory", "pids"] {
        assert!(lines[0].split(' ').any(|word| word == controller), "{controller} is not in {lines:?}");
    }
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_panic_is_an_error_that_shows_its_reason() {
    let error = shell(&MachineConfig::default(), &[], "echo c >/proc/sysrq-trigger; sleep 60")
        .expect_err("it panics");
    let text = format!("{error:#}");
    assert!(text.contains("sysrq triggered crash"), "{text}");
    assert!(text.contains("before its command had ended"), "{text}");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_guest_that_does_not_end_is_killed_at_the_time_limit() {
    let config = MachineConfig { timeout_host: Duration::from_secs(2), ..MachineConfig::default() };
    let error = shell(&config, &[], "sleep 100000").expect_err("it takes too long");
    assert!(format!("{error:#}").contains("had not ended after 2 s"));
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn the_scratch_disk_is_there_and_keeps_what_is_written() {
    let config = MachineConfig { disk_mib: Some(64), ..MachineConfig::default() };
    let script = "echo kept >/scratch/file; sync; echo 3 >/proc/sys/vm/drop_caches; cat /scratch/file >/run/lab/results";
    let (outcome, lines) = shell(&config, &[], script).expect("the guest runs");
    assert_eq!((outcome.status, lines), (0, vec!["kept".to_owned()]));
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn counted_instructions_are_the_guests_clock() {
    // At 32 ns an instruction, booting seems to take far longer inside than it does at 4 ns.
    let boot = |shift| {
        let config = MachineConfig { icount_shift: Some(shift), cpus: 1, ..MachineConfig::default() };
        shell(&config, &[], "true").expect("the guest runs").0.boot_guest
    };
    let (slow, quick) = (boot(5), boot(2));
    assert!(slow > quick * 4, "{slow:?} at 32 ns an instruction, {quick:?} at 4 ns");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn debian_packages_and_the_runs_files_are_on_the_guests_disk() {
    let config = MachineConfig { packages: vec!["bc".into()], ..MachineConfig::default() };
    let files = [GuestFile::from_bytes("6*7\n", "/sbin/sum", 0o644)];
    let (outcome, lines) =
        shell(&config, &files, "bc </usr/sbin/sum >/run/lab/results").expect("the guest runs");
    assert_eq!((outcome.status, lines), (0, vec!["42".to_owned()]));
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_kernel_given_by_path_boots_with_its_modules() {
    shell(&MachineConfig::default(), &[], "true").expect("the cached kernel boots");
    let directory = std::fs::read_dir(cache_directory().join("kernel"))
        .expect("the cache has a kernel now")
        .filter_map(Result::ok)
        .find(|entry| entry.path().join("complete").exists())
        .expect("one that is complete")
        .path();
    let kernel =
        KernelChoice::Path { image: directory.join("vmlinuz"), modules: Some(directory.join("lib/modules")) };
    let config = MachineConfig { kernel, disk_mib: Some(64), ..MachineConfig::default() };
    let (outcome, _) = shell(&config, &[], "modprobe bfq").expect("the guest runs");
    assert_eq!(outcome.status, 0);
    assert_eq!(directory.file_name().expect("it has a name").to_string_lossy(), outcome.kernel_version);
}

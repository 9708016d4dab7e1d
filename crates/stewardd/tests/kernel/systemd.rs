//! Steward beside systemd, on a real kernel.

use libsteward::api::MechanismKind;
use steward_machine::{GuestFile, MachineConfig};

use crate::check;
use crate::transcript::Transcript;

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn beside_systemd_each_keeps_what_it_has_set_and_steward_can_do_under_its_unit_what_it_is_for() {
    let packages = ["polkitd", "dbus-daemon", "util-linux", "sed", "grep", "coreutils"];
    let packages = packages.iter().map(|name| (*name).to_owned()).collect();
    let kernel_arguments = vec!["lab.manager=/lib/systemd/systemd".to_owned()];
    let config = MachineConfig { cpus: 1, packages, kernel_arguments, ..MachineConfig::default() };
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/stewardd.service");
    let unit = GuestFile::from_host(unit, "/lab/stewardd.service").expect("it is part of the source");
    let told = Transcript::with_files(config, vec![unit], include_str!("systemd.sh"));
    let limit = "web-disk: 254:0 rbps=10485760 wbps=10485760";
    let of_web = ["web: 300", "web-memory: 104857600", limit];
    let of_first = ["first-max: 50331648", "first-min: 8388608", "first-runs: first"];
    let of_second = [
        "second-max: 50331648",
        "second-min: 8388608",
        "second-runs: second",
        "user-min: 8388608",
        "slice-min: 8388608",
    ];
    let has = |section: &str, figures: &[&str]| {
        let text = told.text(section);
        let is_there = |figure: &&str| text.lines().any(|line| line.starts_with(*figure));
        assert!(figures.iter().all(is_there), "{section} is not {figures:?}:\n{text}");
    };
    let in_the_kernel = || told.text("as-it-ships-in-the-kernel");
    let sections = ["as-it-ships", "as-it-ships-killed", "as-it-ships-beside-another-manager"];
    check(&[
        ("the-unit-that-ships-starts-and-nothing-is-changed", &|| {
            has("started", &["exit code 0", "handed-out: memory pids", "web: none"]);
        }),
        ("domains-can-be-made-under-it", &|| has("made", &of_web)),
        ("they-have-theirs-again-when-systemd-has-the-root-hand-nothing-out", &|| {
            has("files-read-anew", &of_web);
            has(
                "files-read-anew",
                &["decision=\"cpu-handed-out-again\"", "decision=\"disk-handed-out-again\""],
            );
        }),
        ("a-users-manager-works-beside-that-users-domains", &|| {
            has("user", &of_web);
            has(
                "user",
                &["build: 50", "service: 50", "service-quota: 20000 100000", "service-memory: 209715200"],
            );
        }),
        ("what-either-sets-stays-when-the-other-does", &|| {
            has(
                "set",
                &["web: 400", "build: 60", "slice: 33", "service: 77", "service-memory: 157286400", limit],
            );
        }),
        ("also-when-the-daemon-is-killed", &|| assert_eq!(told.text("killed"), told.text("set"))),
        ("domains-outlive-the-session-whose-cgroups-go", &|| {
            has("session-ended", &[" build ", "web: 400", "build: 60", "service: none", limit]);
        }),
        ("where-a-unit-asks-for-cpu-and-disk-there-is-no-gap", &|| {
            has("asked-for", &["handed-out: cpu io memory pids", "web: 400", limit]);
        }),
        ("a-program-that-systemd-has-placed-has-a-scope-of-its-own-in-its-slice", &|| {
            has("scopes", &of_first);
            has("scopes", &of_second);
            has("scopes", &["system-min: 8388608", "placed: active active"]);
        }),
        ("it-keeps-what-it-was-promised-when-systemd-writes-its-own-again", &|| {
            has("scopes-written-anew", &of_first);
            has("scopes-written-anew", &of_second);
        }),
        ("its-scope-goes-with-it-and-what-its-slice-was-promised-for-it", &|| {
            has("scopes-ended", &["first-max: none"]);
            has("scopes-ended", &of_second);
        }),
        ("a-program-that-runs-gets-a-scope-with-what-it-has-started-when-somebody-says-so", &|| {
            let moved = "Process PID and 1 that descend from it were moved from hand.slice/hand.service to \
                         hand.slice/steward-program-PID.scope";
            has("by-hand", &[moved, "exit code 0", "hand-min: 4194304", "hand-runs: 2, active"]);
            has("by-hand", &["Process PID stays in", "hand-changed: 6291456", "hand-slice: 6291456"]);
        }),
        ("what-it-is-promised-stays-within-the-maximum-of-its-slice", &|| {
            let told = told.text("by-hand");
            let refused = "hand.slice, which it is in, may use at most 40M with all below it (memory.max)";
            let lessened = "hand.slice may use at most 5M with all below it by now (memory.max), so of the 6M that are promised 5M are kept";
            assert!(told.contains(refused) && told.contains(lessened), "{told}");
            has(
                "by-hand",
                &["exit code 1", "hand-refused: 6291456", "hand-lessened: 5242880", "hand-again: 6291456"],
            );
        }),
        ("nothing-is-left-in-scopes-and-slices-by-a-daemon-that-stops", &|| {
            has("stopped", &["second-max: max", "second-min: 0", "second-runs: second"]);
            has("stopped", &["system-min: 0", "user-min: 0", "slice-min: 0"]);
        }),
        ("a-daemon-that-stops-takes-nothing-from-systemds-units", &|| {
            has(
                "stopped",
                &["exit code 0", "web: 100", "web-memory: max", "user-disk: default 50", "plain: 20"],
            );
        }),
        ("what-a-daemon-has-changed-that-does-not-stop-in-time-is-put-back", &|| {
            has("killed-in-the-end", &["Result=timeout", "ActiveState=failed", "web-memory: max"]);
        }),
        ("the-unit-that-ships-may-load-the-scheduler-also-when-it-was-killed", &|| {
            let told = sections.map(|section| told.status(section));
            for (section, status) in sections.iter().zip(&told) {
                let mechanism = &status.cpu.mechanism;
                assert_eq!(mechanism.kind, Some(MechanismKind::SchedExt), "{section}: {mechanism:?}");
                assert_eq!(mechanism.restarts, 0, "{section}: {mechanism:?}");
            }
            assert_ne!(told[0].pid, told[1].pid, "it was killed");
            assert_eq!(told[1].pid, told[2].pid, "who takes over from process 1 starts nothing anew");
            has("as-it-ships-in-the-kernel", &["enabled", "steward", "ActiveState=active", "NRestarts=1"]);
            let unit = in_the_kernel();
            assert!(unit.lines().any(|line| line == "DropInPaths="), "it is not as it ships:\n{unit}");
        }),
        ("under-it-the-kernel-says-which-cpus-are-to-go-offline", &|| {
            has("as-it-ships-in-the-kernel", &["not told of active CPUs: 0"]);
        }),
    ]);
}

//! Experiments on the disk: how it is set under each contender, and what is made of its counters. Pure.
//!
//! A scenario is one of these when its machine has a `timed_disk` that names the `elevator` it has by itself. What root
//! sets by hand takes somebody who knows who is who: weights are for the cgroups of all programs that are marked
//! `foreground`, and of all that are not.

use anyhow::bail;
use steward_lab_guest::{DiskSetup, MachineDisk, Setting};

use crate::domains;
use crate::metrics::Metrics;
use crate::scenario::{Contender, DiskKind, Elevator, FileSystem, ProgramRow, Scenario, TimedDisk};

/// An elevator at a device that takes one request at a time would have two to choose from.
const REQUESTS: u32 = 128;
/// Of what the person at the machine looks at, and of all others.
const BFQ_WEIGHTS: [u32; 2] = [1000, 1];
const COST_WEIGHTS: [u32; 2] = [1000, 10];
/// The kernel's own.
const USUAL_WEIGHTS: [u32; 2] = [100, 100];
const BYTES_PER_MIB: f64 = (1 << 20) as f64;
/// Where `lab/machine/timed-disk.sh` puts its file system.
const MOUNT_POINT: &str = "/timed";
const GROUPS: &str = "/sys/fs/cgroup";
const COST: &str = "/sys/fs/cgroup/io.cost";

/// What the agent is to set under `contender`; nothing in other experiments.
pub fn planned(scenario: &Scenario, contender: Contender) -> Option<DiskSetup> {
    let disk = scenario.machine.timed_disk.as_ref()?;
    let usual = disk.elevator?;
    let nothing = || DiskSetup { divided: false, journal_first: false, settings: elevator(disk.kind, usual) };
    let by_hand = |settings| DiskSetup { divided: true, journal_first: true, settings };
    let shares = |file| shares(scenario, file);
    let mut setup = match contender {
        Contender::BfqByHand => by_hand([bfq(disk.kind), shares("io.bfq.weight")].concat()),
        Contender::BfqStrictByHand => {
            by_hand([bfq(disk.kind), strict(disk.kind), shares("io.bfq.weight")].concat())
        }
        Contender::IocostByHand => by_hand(
            [
                elevator(disk.kind, usual),
                cost(disk.kind),
                weights("io.weight", COST_WEIGHTS),
                shares("io.weight"),
            ]
            .concat(),
        ),
        _ => nothing(),
    };
    // Whatever was set before. Weights go with the controller where nobody hands the disk out.
    let mut before = match setup.divided {
        true => [weights("io.bfq.weight", USUAL_WEIGHTS), weights("io.weight", USUAL_WEIGHTS)].concat(),
        false => Vec::new(),
    };
    before.push(setting(&format!("{COST}.qos"), "{disk} enable=0 ctrl=auto"));
    before.push(setting(&format!("{COST}.model"), "{disk} ctrl=auto"));
    setup.settings.splice(0..0, before);
    Some(setup)
}

/// The file system whose disk Steward is to calibrate: of a disk that an experiment is about, if it does not rotate.
pub fn calibrated(scenario: &Scenario) -> Option<String> {
    let disk = scenario.machine.timed_disk.as_ref()?;
    (disk.elevator.is_some() && !disk.kind.rotates()).then(|| MOUNT_POINT.to_owned())
}

/// What stands in a program's own cgroup: BFQ lets one go before another at once only if its own cgroup has the larger
/// weight, whatever those above it have (`bfq_bfqq_higher_class_or_weight`).
pub fn of_program(row: &ProgramRow, contender: Contender) -> Vec<Setting> {
    let (file, [first, other]) = match contender {
        Contender::BfqByHand | Contender::BfqStrictByHand => ("io.bfq.weight", BFQ_WEIGHTS),
        Contender::IocostByHand => ("io.weight", COST_WEIGHTS),
        _ => return Vec::new(),
    };
    // The weights of domains are theirs, and theirs alone.
    if row.domain.is_some() || row.own_domain {
        return Vec::new();
    }
    vec![setting(file, &if row.foreground { first } else { other }.to_string())]
}

fn setting(path: &str, value: &str) -> Setting {
    Setting { path: path.to_owned(), value: value.to_owned() }
}

/// A file of the disk's queue.
fn of_queue(kind: DiskKind, file: &str) -> String {
    format!("/sys/block/{}/queue/{file}", kind.device_name())
}

fn elevator(kind: DiskKind, elevator: Elevator) -> Vec<Setting> {
    let chosen = setting(&of_queue(kind, "scheduler"), &elevator.to_string());
    let requests = setting(&of_queue(kind, "nr_requests"), &REQUESTS.to_string());
    // Without one, requests are not put in order, and as many wait as the device takes.
    std::iter::once(chosen).chain((elevator != Elevator::None).then_some(requests)).collect()
}

fn weights(file: &str, values: [u32; 2]) -> Vec<Setting> {
    let groups = ["lab-protected", "lab"].iter().zip(values);
    groups.map(|(group, weight)| setting(&format!("{GROUPS}/{group}/{file}"), &weight.to_string())).collect()
}

/// The weights that come to what domains are due; 1000 is the largest that BFQ knows.
fn shares(scenario: &Scenario, file: &str) -> Vec<Setting> {
    let weight = |share: f64| (share * 1000.0).round().clamp(1.0, 1000.0).to_string();
    let shares = domains::disk_shares(scenario).into_iter();
    shares.map(|(group, share)| setting(&format!("{GROUPS}/{group}/{file}"), &weight(share))).collect()
}

/// Weights of 1000:1, and nobody's raised for being new (Documentation/block/bfq-iosched.rst, `low_latency`).
fn bfq(kind: DiskKind) -> Vec<Setting> {
    let plain = vec![setting(&of_queue(kind, "iosched/low_latency"), "0")];
    [elevator(kind, Elevator::Bfq), plain, weights("io.bfq.weight", BFQ_WEIGHTS)].concat()
}

/// One request at a time, and 2 ms in which the one that was served may ask again.
fn strict(kind: DiskKind) -> Vec<Setting> {
    let settings = [("strict_guarantees", "1"), ("slice_idle", "2")];
    settings.iter().map(|(file, value)| setting(&of_queue(kind, &format!("iosched/{file}")), value)).collect()
}

/// A model that was fitted to how long a page and half a MiB take: the cost of a request is that of its start and that
/// of its bytes. With `min` and `max` at 100 the model alone says what is spent; the latencies give the period for
/// which somebody counts as active.
fn cost(kind: DiskKind) -> Vec<Setting> {
    let (per_second, bytes, latency_us) = match kind {
        DiskKind::Rotating | DiskKind::RotatingQueue => (101, 300_000_000_u64, 20_000),
        DiskKind::Flash => (3_700, 200_000_000, 5_000),
        DiskKind::SolidState => (22_000, 500_000_000, 2_000),
    };
    let [read, write] = ["r", "w"]
        .map(|way| format!("{way}bps={bytes} {way}seqiops={per_second} {way}randiops={per_second}"));
    let quality = format!("rpct=95 rlat={latency_us} wpct=95 wlat={latency_us} min=100 max=100");
    vec![
        setting(&format!("{COST}.model"), &format!("{{disk}} ctrl=user model=linear {read} {write}")),
        setting(&format!("{COST}.qos"), &format!("{{disk}} enable=1 ctrl=user {quality}")),
    ]
}

/// What contenders need to know is there, and what is there means something.
///
/// # Errors
/// Says what is missing.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let disk = scenario.machine.timed_disk.as_ref();
    let is_about_disk = disk.is_some_and(|disk| disk.elevator.is_some());
    for contender in &scenario.contenders {
        use Contender::{BfqByHand, BfqStrictByHand, IocostByHand};
        let needs = matches!(contender, BfqByHand | BfqStrictByHand | IocostByHand);
        let is_told =
            scenario.programs.iter().any(|row| row.foreground) || !domains::disk_shares(scenario).is_empty();
        if needs && !(is_about_disk && is_told) {
            bail!(
                "{contender} is for experiments on the disk: the machine's [machine.timed_disk] must name its usual \
                 elevator, and a program must be the foreground or a domain have a part of the disk"
            );
        }
    }
    if disk.is_some_and(|disk| needs_package(disk, &scenario.machine.packages)) {
        bail!("a timed disk with xfs needs the package xfsprogs in [machine]");
    }
    Ok(())
}

fn needs_package(disk: &TimedDisk, packages: &[String]) -> bool {
    disk.file_system == FileSystem::Xfs && !packages.iter().any(|package| package == "xfsprogs")
}

/// `disk_read_mib_per_second`, `disk_written_mib_per_second`: the whole run's mean.
pub fn machine_metrics(seen: &MachineDisk) -> Metrics {
    let numbers = [("disk_read", seen.read_bytes), ("disk_written", seen.written_bytes)];
    let rate = |bytes: u64| bytes as f64 / BYTES_PER_MIB / seen.seconds;
    numbers.iter().map(|(metric, bytes)| (format!("{metric}_mib_per_second"), rate(*bytes))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan;

    const TEXT: &str = r#"
title = "a save"
duration = "60s"
contenders = ["stock", "bfq-by-hand", "iocost-by-hand"]
[machine]
cpus = 1
icount_shift = 2
[machine.timed_disk]
kind = "5400rpm"
elevator = "none"
[[program]]
name = "save"
command = "file-save"
foreground = true
metrics = "reply"
[[program]]
name = "load"
command = "disk-load direct --file /timed/load-{index}"
count = 2
metrics = "work"
"#;

    fn scenario(text: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(text, Path::new("t.toml"))
    }

    #[test]
    fn each_contender_sets_the_whole_disk_and_leaves_nothing_to_the_next() {
        let scenario = scenario(TEXT).unwrap();
        let plan = plan::plan(&scenario, &scenario.contenders, 1).unwrap();
        let setups: Vec<_> = plan.runs.iter().filter_map(|run| run.disk.as_ref()).collect();
        let value = |setup: &DiskSetup, path: &str| {
            setup.settings.iter().rfind(|setting| setting.path == path).map(|setting| setting.value.clone())
        };
        let elevators: Vec<_> =
            setups.iter().map(|setup| value(setup, "/sys/block/nullb0/queue/scheduler")).collect();
        assert_eq!(elevators, ["none", "bfq", "none"].map(|name| Some(name.to_owned())));
        assert_eq!(setups.iter().map(|setup| setup.divided).collect::<Vec<_>>(), [false, true, true]);
        for (setup, is_on) in setups.iter().zip([false, false, true]) {
            let quality = value(setup, "/sys/fs/cgroup/io.cost.qos").unwrap();
            assert_eq!(quality.contains("enable=1"), is_on, "{quality}");
        }
        let own = |run: usize| plan.runs[run].programs.iter().map(|program| program.group_settings.clone());
        let weights: Vec<_> = own(2).map(|settings| settings[0].value.clone()).collect();
        assert_eq!(weights, ["1000", "1", "1"]);
        assert!(own(1).all(|settings| settings.is_empty()));
        let save = &plan.runs.last().unwrap().programs;
        assert_eq!(save.iter().map(|program| program.protected).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(save[2].command, ["disk-load", "direct", "--file", "/timed/load-2"]);
    }

    #[test]
    fn under_steward_a_disk_that_does_not_rotate_is_calibrated_first() {
        let calibrated = |kind: &str| {
            let scenario = scenario(&TEXT.replace("5400rpm", kind)).unwrap();
            let plan = plan::plan(&scenario, &[Contender::Steward], 1).unwrap();
            plan.runs.iter().find_map(|run| run.steward.clone()).and_then(|setup| setup.calibrated)
        };
        assert_eq!(calibrated("ssd").as_deref(), Some("/timed"));
        assert_eq!(calibrated("flash").as_deref(), Some("/timed"));
        assert_eq!(calibrated("5400rpm"), None);
        assert_eq!(calibrated("ncq"), None);
    }

    #[test]
    fn a_disk_with_a_queue_of_its_own_is_set_under_the_name_that_it_has() {
        let scenario = scenario(&TEXT.replace("5400rpm", "ncq")).unwrap();
        let setup = planned(&scenario, Contender::BfqStrictByHand).unwrap();
        let of_disk: Vec<&str> = setup
            .settings
            .iter()
            .map(|setting| setting.path.as_str())
            .filter(|path| path.contains("/queue/"))
            .collect();
        assert!(of_disk.contains(&"/sys/block/sda/queue/iosched/strict_guarantees"), "{of_disk:?}");
        assert!(of_disk.iter().all(|path| path.starts_with("/sys/block/sda/queue/")), "{of_disk:?}");
    }

    #[test]
    fn an_experiment_on_memory_sets_nothing_of_the_disk() {
        let text =
            TEXT.replace("elevator = \"none\"\n", "").replace(", \"bfq-by-hand\", \"iocost-by-hand\"", "");
        let scenario = scenario(&text).unwrap();
        assert_eq!(planned(&scenario, Contender::Stock), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        let complaint = |text: &str| format!("{:#}", scenario(text).expect_err("the text has a mistake"));
        assert!(
            complaint(&TEXT.replace("elevator = \"none\"\n", "")).contains("must name its usual elevator")
        );
        assert!(
            complaint(&TEXT.replace("foreground = true", "")).contains("a program must be the foreground")
        );
        let xfs = TEXT.replace("elevator = \"none\"", "elevator = \"none\"\nfile_system = \"xfs\"");
        assert!(complaint(&xfs).contains("needs the package xfsprogs"));
        assert!(scenario(&xfs.replace("cpus = 1", "cpus = 1\npackages = [\"xfsprogs\"]")).is_ok());
    }

    #[test]
    fn domains_have_weights_by_what_they_are_due() {
        let domains = "[[domain]]\nname = \"big\"\ndisk = 0.5\n[[domain]]\nname = \"small\"\n";
        let scenario = scenario(&format!("{TEXT}{domains}")).unwrap();
        let weights = |contender, file: &str| {
            let settings = planned(&scenario, contender).unwrap().settings;
            let value = |group: &str| {
                let path = format!("/sys/fs/cgroup/{group}/{file}");
                settings.iter().find(|setting| setting.path == path).map(|setting| setting.value.clone())
            };
            ["big", "small"].map(value)
        };
        let due = ["750", "250"].map(|text| Some(text.to_owned()));
        assert_eq!(weights(Contender::BfqByHand, "io.bfq.weight"), due);
        assert_eq!(weights(Contender::IocostByHand, "io.weight"), due);
        assert_eq!(weights(Contender::Stock, "io.weight"), [None, None]);
    }

    #[test]
    fn rates_are_of_the_whole_run() {
        let seen = MachineDisk { read_bytes: 1 << 20, written_bytes: 30 << 20, seconds: 10.0 };
        let metrics = machine_metrics(&seen);
        assert_eq!((metrics["disk_read_mib_per_second"], metrics["disk_written_mib_per_second"]), (0.1, 3.0));
    }
}

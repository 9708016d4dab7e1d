//! The doctor's judgement of machines that are not at hand, and its look at a directory that stands in for one.

use super::*;
use crate::disk::mounted::WrittenByRoot;
use crate::memory::ages::NoPageAges;
use crate::roots::with_files;
use steward_core::disk::config::Order;
use steward_core::disk::cost::{Lines, Model, Way};
use steward_core::disk::device::Device;
use steward_core::disk::elevator::InForce;
use steward_core::memory::source::Source;

/// Kernel 7.3 with everything, as root, under systemd.
fn complete() -> Facts {
    Facts {
        release: "7.3.4+deb13-cloud-amd64".into(),
        realtime: false,
        tick_hz: Some(250),
        sched_ext: SchedExt {
            present: true,
            state: Some("disabled".into()),
            loaded: None,
            cgroup_weight: true,
            cgroup_bandwidth: true,
            cgroup_idle: true,
            whereabouts: true,
            server: true,
        },
        btf: true,
        lockdown: Some("none".into()),
        unprivileged_bpf_disabled: Some(2),
        cgroup: Cgroup {
            controllers: Some(["cpuset", "cpu", "io", "memory", "pids"].map(String::from).to_vec()),
            version_1_controllers: Vec::new(),
        },
        scheduling_statistics: true,
        fuse: true,
        pressure: Pressure::On,
        page_ages: Some(true),
        memory: Memory {
            no_page_ages: None,
            slow_disk: None,
            used_from: Some(Source::Mglru),
            reclaim: true,
            swap_bytes: 1 << 30,
        },
        disks: Vec::new(),
        no_such_disks: Vec::new(),
        disks_in_force: InForce::default(),
        written_by_root: Vec::new(),
        has_elevator: Some(true),
        realtime_budget_us: Some(950_000),
        realtime_period_us: Some(1_000_000),
        autogroup: Some(true),
        caller: Caller { uid: 0, may_load_scheduler: true, may_schedule: true },
        managers: vec![Manager {
            name: "systemd".into(),
            pid: Some(1),
            sets: "cpu.weight, cpu.max and memory limits of units that ask for them".into(),
        }],
        not_seen: Vec::new(),
    }
}

fn without_sched_ext(release: &str) -> Facts {
    Facts { release: release.into(), sched_ext: SchedExt::default(), ..complete() }
}

/// The names of the promises that hold in this way.
fn named(diagnosis: &Diagnosis, holds: Holds) -> Vec<&str> {
    let matching = diagnosis.promises.iter().filter(|promise| promise.holds == holds);
    matching.map(|promise| promise.name.as_str()).collect()
}

/// The names of the abilities that work in this way.
fn able(diagnosis: &Diagnosis, works: Holds) -> Vec<&str> {
    let matching = diagnosis.abilities.iter().filter(|ability| ability.works == works);
    matching.map(|ability| ability.name.as_str()).collect()
}

#[test]
fn each_disk_is_told_with_what_orders_it_and_why() {
    let disk = |name: &str, rotational| Device {
        name: name.into(),
        rotational,
        queues: true,
        elevator: "none".into(),
        requests: 64,
        ..Device::default()
    };
    let page = diagnose(Facts { disks: vec![disk("sda", true), disk("nvme0n1", false)], ..complete() });
    let page = page.to_string();
    assert!(page.contains("Disk sda: none with 64 places until somebody has a class"), "{page}");
    assert!(page.contains("Disk nvme0n1: classes and fractions count for nothing"), "{page}");
    assert!(!page.contains("no elevator bfq"), "{page}");
}

#[test]
fn what_the_configuration_says_of_a_disk_that_is_not_there_is_told() {
    let page = diagnose(Facts { no_such_disks: vec!["sdx".into()], ..complete() }).to_string();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("[disk.devices] of sdx, and no disk is called or known so now"), "{page}");
    assert!(!diagnose(complete()).to_string().contains("[disk.devices] of"));
}

#[test]
fn a_file_system_that_does_not_say_whose_pages_it_writes_is_told_with_what_still_counts() {
    let stick = WrittenByRoot { point: "/stick".into(), kind: "vfat".into(), disks: vec!["sdb".into()] };
    let page = diagnose(Facts { written_by_root: vec![stick], ..complete() }).to_string();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("/stick (vfat, on sdb): what programs change there is written back for nobody"),
        "{page}"
    );
    assert!(!diagnose(complete()).to_string().contains("written back for nobody"));
}

#[test]
fn a_disk_that_does_not_rotate_is_told_with_its_calibration_or_how_to_come_to_one() {
    let way = Way { bytes_per_second: 500 << 20, sequential_per_second: 22_000, random_per_second: 20_000 };
    let model = Model { read: way, write: way };
    let disk = |name: &str, model: Option<Model>, quality: &str| Device {
        name: name.into(),
        number: "8:0".into(),
        queues: true,
        elevator: "none".into(),
        cost: Some(Lines { quality: quality.into(), ..Lines::default() }),
        model,
        ..Device::default()
    };
    let disks = vec![
        disk("known", Some(model), ""),
        disk("unknown", None, ""),
        disk("others", Some(model), "8:0 enable=1 ctrl=auto"),
    ];
    let page = diagnose(Facts { disks, ..complete() }).to_string();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "Disk known: nothing is set of it until a domain has a class or a fraction; then io.cost by its calibration",
        "Disk unknown: classes and fractions count for nothing",
        "steward disk calibrate unknown",
        "Disk others:",
        "io.cost is set by somebody else, whose it stays",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
}

#[test]
fn a_kernel_without_the_elevator_is_said_to_have_none_where_a_disk_would_need_it() {
    let disk = |rotational| Device { name: "sda".into(), rotational, queues: true, ..Device::default() };
    let page = |rotational, has_elevator| {
        diagnose(Facts { disks: vec![disk(rotational)], has_elevator, ..complete() }).to_string()
    };
    assert!(page(true, Some(false)).contains("This kernel has no elevator bfq"));
    let lacking = Device { lacks_by_class: true, ..disk(true) };
    let told = diagnose(Facts { disks: vec![lacking], has_elevator: Some(false), ..complete() }).to_string();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in ["interactive programs come first by mq-deadline", "and mq-deadline with 128 then"] {
        assert!(told.contains(says), "{told}");
    }
    for (rotational, has_elevator) in [(false, Some(false)), (true, Some(true)), (true, None)] {
        assert!(!page(rotational, has_elevator).contains("no elevator bfq"));
    }
}

#[test]
fn a_disk_that_may_say_wrongly_that_it_rotates_is_named_until_it_is_known() {
    let disk = |depth| Device {
        name: "vda".into(),
        rotational: true,
        queues: true,
        depth: Some(depth),
        ..Device::default()
    };
    let page = |disk| diagnose(Facts { disks: vec![disk], ..complete() }).to_string();
    assert!(page(disk(256)).contains("`sudo steward disk calibrate vda`"), "{}", page(disk(256)));
    let way = Way { bytes_per_second: 100, sequential_per_second: 99, random_per_second: 99 };
    for known in [
        // It cannot be calibrated.
        disk(1),
        Device { rotational: false, ..disk(256) },
        Device { model: Some(Model { read: way, write: way }), ..disk(256) },
        Device { order: Order::Elevator, ..disk(256) },
    ] {
        assert!(!page(known.clone()).contains("Taken for disks that rotate"), "{}", page(known));
    }
}

#[test]
fn what_stands_for_a_disk_is_told_with_that_disk() {
    let below = vec!["sda".to_owned()];
    let mapped = Device { name: "dm-0".into(), stands_for_others: true, below, ..Device::default() };
    let page = diagnose(Facts { disks: vec![mapped], ..complete() }).to_string();
    assert!(page.contains("Disk dm-0: it hands its requests to sda: what is said of that counts."), "{page}");
}

#[test]
fn what_is_not_there_without_cgroups_is_said_at_once_with_what_is_lost_and_what_to_do() {
    let cgroup = Cgroup { controllers: None, version_1_controllers: vec!["cpu".into()] };
    let diagnosis = diagnose(Facts { cgroup, ..without_sched_ext("6.18.44") });
    assert_eq!(able(&diagnosis, Holds::No), ["domains", "memory", "background"]);
    assert_eq!(able(&diagnosis, Holds::Yes), ["recordings"]);
    let page = diagnosis.to_string();
    assert!(
        page.lines().take(6).any(|line| line == "Not to be had here: domains, memory, background."),
        "{page}"
    );
    assert!(page.contains("systemd.unified_cgroup_hierarchy=1"), "{page}");
    // A hybrid hierarchy, where the CPU is on one of version 1.
    let cgroup = Cgroup { controllers: Some(vec!["pids".into()]), version_1_controllers: vec!["cpu".into()] };
    let hybrid = diagnose(Facts { cgroup, ..complete() });
    assert_eq!(able(&hybrid, Holds::No), ["domains", "memory", "background"]);
    let without = diagnose(Facts { fuse: false, scheduling_statistics: false, btf: false, ..complete() });
    assert_eq!(able(&without, Holds::No), ["forecasts", "pools", "control files", "recordings"]);
}

#[test]
fn each_thing_that_memory_lacks_is_named_with_what_is_lost_and_what_to_do() {
    let verdict = |change: &dyn Fn(&mut Facts)| {
        let mut facts = complete();
        change(&mut facts);
        let found = diagnose(facts).abilities.into_iter().find(|ability| ability.name == "memory");
        let found = found.expect("it is judged");
        (found.works, format!("{}; {}", found.lost, found.what_to_do))
    };
    type Change<'a> = &'a dyn Fn(&mut Facts);
    let lacks: [(Change, Holds, &str); 7] = [
        (&|facts| facts.cgroup.controllers = None, Holds::No, "systemd.unified_cgroup_hierarchy=1"),
        (&|facts| facts.cgroup.controllers = Some(vec!["cpu".into()]), Holds::No, "cgroup_no_v1=memory"),
        (&|facts| facts.cgroup.controllers = Some(vec!["memory".into()]), Holds::No, "cgroup_no_v1=cpu"),
        (&|facts| facts.memory.reclaim = false, Holds::Partly, "5.19"),
        (&|facts| facts.pressure = Pressure::Off, Holds::Partly, "psi=1"),
        (&|facts| facts.pressure = Pressure::Absent, Holds::Partly, "CONFIG_PSI"),
        (&|facts| facts.memory.swap_bytes = 0, Holds::Partly, "add swap"),
    ];
    for (change, works, said) in lacks {
        let (found, sentence) = verdict(change);
        assert!(found == works && sentence.contains(said), "{found:?}: {sentence}");
    }
    let (_, sentence) = verdict(&|facts| facts.memory = Memory::default());
    for said in ["memory.reclaim", "5.19", "add swap"] {
        assert!(sentence.contains(said), "{sentence}");
    }
}

#[test]
fn page_ages_are_a_reading_and_what_is_lost_without_them_is_said() {
    let page = |obstacle, uid| {
        let mut facts = complete();
        (facts.memory.no_page_ages, facts.caller.uid) = (Some(obstacle), uid);
        let diagnosis = diagnose(facts);
        let lost = usize::from(obstacle != NoPageAges::Denied || uid == 0);
        assert_eq!(able(&diagnosis, Holds::Yes).len(), diagnosis.abilities.len() - lost);
        diagnosis.to_string()
    };
    for (obstacle, uid, row, note) in [
        (NoPageAges::NotInKernel, 0, "not in this kernel", ""),
        (NoPageAges::TurnedOff, 0, "no", "To have them, write y to /sys/kernel/mm/lru_gen/enabled."),
        (NoPageAges::NoDebugfs, 0, "no", "To have them, mount debugfs"),
        (NoPageAges::Denied, 0, "no", ""),
        (NoPageAges::Denied, 1000, "unknown", ""),
    ] {
        let page = page(obstacle, uid);
        assert!(page.lines().any(|line| line == format!("{:<20}{row}", "page ages (MGLRU)")), "{page}");
        let words = page.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(note), "{page}");
        assert_eq!(words.contains("To have them"), !note.is_empty(), "{page}");
    }
}

#[test]
fn by_what_it_is_known_what_is_used_is_told_and_what_stands_against_it() {
    let page = |used_from, slow_disk: Option<&str>| {
        let mut facts = complete();
        facts.memory.no_page_ages = Some(NoPageAges::NotInKernel);
        (facts.memory.used_from, facts.memory.slow_disk) = (used_from, slow_disk.map(str::to_owned));
        let text = diagnose(facts).to_string();
        text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    };
    let tried = page(Some(Source::RefaultsAndPressure), None);
    assert!(tried.contains("memory used, by refaults-and-pressure"), "{tried}");
    assert!(tried.contains("is given up slowly, a little at a time"), "{tried}");
    let slow = page(Some(Source::None), Some("sda"));
    for said in
        ["memory used, by none", "sda rotates", "ages = \"refaults-and-pressure\"", "is kept all the same"]
    {
        assert!(slow.contains(said), "{slow}");
    }
    assert!(page(None, None).contains("memory used, by unknown"));
}

#[test]
fn a_current_kernel_keeps_every_promise() {
    let diagnosis = diagnose(complete());
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::SchedExt));
    assert_eq!(named(&diagnosis, Holds::Yes).len(), diagnosis.promises.len());
    assert_eq!(able(&diagnosis, Holds::Yes).len(), diagnosis.abilities.len());
    insta::assert_snapshot!("kernel_7_3", diagnosis);
}

#[test]
fn debian_6_12_without_sched_ext_falls_back_to_deadlines() {
    let diagnosis = diagnose(without_sched_ext("6.12.57+deb13-amd64"));
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::Deadline));
    assert_eq!(named(&diagnosis, Holds::No), ["accounted"]);
    insta::assert_snapshot!("debian_kernel_6_12", diagnosis);
}

#[test]
fn a_host_with_version_1_cgroups_and_no_pages_ages_is_described() {
    let facts = Facts {
        cgroup: Cgroup { controllers: None, version_1_controllers: vec!["cpu".into(), "memory".into()] },
        pressure: Pressure::Off,
        page_ages: None,
        memory: Memory { no_page_ages: Some(NoPageAges::NotInKernel), ..Memory::default() },
        managers: Vec::new(),
        tick_hz: None,
        ..without_sched_ext("6.18.44")
    };
    insta::assert_snapshot!("kernel_6_18_with_cgroup_v1", diagnose(facts));
}

#[test]
fn a_kernel_with_partial_callbacks_keeps_the_rest() {
    let sched_ext =
        SchedExt { cgroup_bandwidth: false, cgroup_idle: false, server: false, ..complete().sched_ext };
    let diagnosis = diagnose(Facts { release: "6.14.3".into(), sched_ext, ..complete() });
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::SchedExt));
    assert_eq!(named(&diagnosis, Holds::Partly), ["cgroup-policy", "real-time"]);
    insta::assert_snapshot!("kernel_6_14", diagnosis);
}

#[test]
fn a_real_time_kernel_falls_back_to_deadlines() {
    let diagnosis = diagnose(Facts { realtime: true, ..complete() });
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::Deadline));
    assert!(diagnosis.mechanism_why.contains("PREEMPT_RT"));
}

#[test]
fn another_loaded_scheduler_is_named_and_not_fought() {
    let loaded = |name: &str| SchedExt {
        state: Some("enabled".into()),
        loaded: Some(name.into()),
        ..complete().sched_ext
    };
    let diagnosis = diagnose(Facts { sched_ext: loaded("lavd_1.0.19"), ..complete() });
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::Deadline));
    assert!(diagnosis.mechanism_why.contains("lavd_1.0.19"));
    assert!(diagnosis.promises[0].what_to_do.contains("stop it"));
    let own = diagnose(Facts { sched_ext: loaded("steward"), ..complete() });
    assert_eq!(own.mechanism, Some(MechanismKind::SchedExt));
}

#[test]
fn a_kernel_without_types_falls_back_to_deadlines() {
    let diagnosis = diagnose(Facts { btf: false, ..complete() });
    assert_eq!(diagnosis.mechanism, Some(MechanismKind::Deadline));
    assert!(diagnosis.promises[0].what_to_do.contains("CONFIG_DEBUG_INFO_BTF"));
}

#[test]
fn without_any_mechanism_nothing_is_promised() {
    let diagnosis = diagnose(Facts { realtime_budget_us: Some(0), ..without_sched_ext("6.6.1") });
    assert_eq!(diagnosis.mechanism, None);
    assert_eq!(named(&diagnosis, Holds::No).len(), diagnosis.promises.len());
}

#[test]
fn an_ordinary_user_is_told_what_was_not_seen() {
    let facts = Facts {
        caller: Caller { uid: 1000, may_load_scheduler: false, may_schedule: false },
        not_seen: vec!["cannot read /boot/config-7.3.4: Permission denied (os error 13)".into()],
        ..complete()
    };
    insta::assert_snapshot!("not_root", diagnose(facts));
}

#[test]
fn what_does_not_hold_always_comes_with_what_to_do() {
    let machines = [
        without_sched_ext("6.12.57"),
        Facts { realtime: true, ..complete() },
        Facts { btf: false, realtime_budget_us: Some(-1), ..complete() },
        Facts { realtime_budget_us: Some(0), ..without_sched_ext("6.6.1") },
        Facts { cgroup: Cgroup::default(), fuse: false, ..complete() },
        Facts { cgroup: Cgroup { controllers: Some(Vec::new()), ..Cgroup::default() }, ..complete() },
        Facts { scheduling_statistics: false, ..complete() },
        Facts { memory: Memory::default(), ..complete() },
        Facts { memory: Memory { swap_bytes: 0, ..complete().memory }, ..complete() },
        Facts {
            sched_ext: SchedExt { server: false, cgroup_idle: false, ..complete().sched_ext },
            ..complete()
        },
    ];
    for diagnosis in machines.into_iter().map(diagnose) {
        for promise in diagnosis.promises {
            assert_eq!(promise.what_to_do.is_empty(), promise.holds == Holds::Yes, "{promise:?}");
            assert!(!promise.why.is_empty());
        }
        for ability in diagnosis.abilities {
            let works = ability.works == Holds::Yes;
            assert_eq!(
                (ability.what_to_do.is_empty(), ability.lost.is_empty()),
                (works, works),
                "{ability:?}"
            );
        }
    }
}

#[test]
fn a_diagnosis_survives_the_way_through_json() {
    let diagnosis = diagnose(complete());
    let text = serde_json::to_string(&diagnosis).expect("it can be written");
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).expect("it can be read"), diagnosis);
}

#[test]
fn facts_are_read_from_the_files_of_a_machine() {
    let files = [
        ("proc/sys/kernel/osrelease", "6.14.3\n"),
        ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
        ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
        ("proc/self/status", "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nCapEff:\t0000000000800000\n"),
        ("proc/self/mountinfo", ""),
        ("proc/cgroups", "#subsys_name\thierarchy\nmemory\t4\t1\t1\ncpu\t0\t1\t1\n"),
        ("proc/pressure/cpu", "some avg10=0.00\n"),
        ("proc/self/schedstat", "1 2 3\n"),
        ("proc/filesystems", "nodev\tsysfs\nnodev\tfuse\n"),
        ("proc/1/stat", &stat_line(1, "systemd")),
        ("proc/77/stat", &stat_line(77, "ananicy-cpp")),
        ("proc/78/stat", &stat_line(78, "scx_rusty")),
        ("proc/79/stat", &stat_line(79, "bash")),
        ("sys/kernel/sched_ext/state", "enabled\n"),
        ("sys/kernel/sched_ext/root/ops", "rusty_1.0\n"),
        ("sys/kernel/btf/vmlinux", "\0cgroup_set_weight\0x_cgroup_set_idle\0ext_servers\0"),
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
        ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpu io\n"),
        ("sys/fs/cgroup/memory.reclaim", ""),
        ("proc/swaps", "Filename\n/dev/vdb partition 1048572 0 -2\n"),
        ("boot/config-6.14.3", "CONFIG_HZ_1000=y\nCONFIG_HZ=1000\n"),
    ];
    let (_keep, roots) = with_files(&files);
    insta::assert_json_snapshot!("facts_of_a_directory", examine(&roots).facts);
}

fn stat_line(pid: i32, name: &str) -> String {
    format!("{pid} ({name}) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0{}\n", " 0".repeat(28))
}

#[test]
fn an_empty_directory_gives_a_page_and_no_panic() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = examine(&Roots::under(directory.path())).to_string();
    assert!(page.contains("sched_ext           not in this kernel"), "{page}");
}

#[test]
fn the_machine_that_runs_the_tests_can_be_examined() {
    let diagnosis = examine(&Roots::default());
    assert!(!diagnosis.facts.release.is_empty());
    println!("{diagnosis}");
}

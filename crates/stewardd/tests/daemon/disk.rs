//! What specifications say of the disk, from the file to the tasks that have a reservation; what domains are given of
//! it.

use std::collections::BTreeSet;

use crate::common::{Machine, Running, Sleeper, row};
use libsteward::Error;
use libsteward::api::{self, ApiError, IoClass};
use steward_core::cpu::mechanism::Standing;
use steward_core::disk::calibration::Calibration;
use steward_core::disk::cost::{Model, Way};
use steward_core::disk::latency::Histogram;
use steward_core::disk::ledger::{Account, Key, Reading};
use steward_core::disk::priority::Priority;
use steward_core::resource::Resource;
use steward_kernel::disk::calibrations::Calibrations;
use stewardd::disk::knobs::Wanted;
use stewardd::disk::outcome::Outcome;
use stewardd::domains::cgroups::Cgroups;

/// Asks for the status, each time a turn of the daemon's loop, until disks are wanted as they should be.
#[track_caller]
fn until(machine: &Machine, daemon: &Running, wanted: impl Fn(&Wanted) -> bool) {
    for _ in 0..400_000 {
        daemon.status();
        if wanted(&machine.disk.wanted()) {
            return;
        }
    }
    panic!("never: {:?}", machine.disk.wanted());
}

fn io_row(path: &std::path::Path, io: &str) -> String {
    format!("[[spec]]\npath = \"{}\"\nio = \"{io}\"\n", path.display())
}

/// Whether a process is served first for its domain, which is so by its weight; and by the real-time class alone.
fn by_weight(wanted: &Wanted, pid: i32) -> bool {
    priority_of(wanted, pid) == Some(Priority::OF_DOMAIN) && !wanted.first_by_weight.is_empty()
}

fn by_class(wanted: &Wanted, pid: i32) -> bool {
    priority_of(wanted, pid) == Some(Priority::OF_DOMAIN) && wanted.first_by_weight.is_empty()
}

fn priority_of(wanted: &Wanted, pid: i32) -> Option<Priority> {
    wanted.priorities.iter().find(|(task, _)| task.tid == pid).map(|(_, priority)| *priority)
}

#[test]
fn an_interactive_programs_requests_come_first_as_long_as_its_specification_says_so() {
    let machine = Machine::new();
    let (editor, shell) = (machine.program("editor"), machine.program("shell"));
    let text = row(&editor, "5ms/30ms") + "io = \"interactive\"\n" + &row(&shell, "5ms/30ms");
    machine.write_specs("a.toml", &text);
    let (editing, other) = (Sleeper::start(&editor), Sleeper::start(&shell));
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()) == Some(Priority::RealTime(2)));
    let wanted = machine.disk.wanted();
    assert!(wanted.ordered && priority_of(&wanted, other.pid()).is_none(), "{wanted:?}");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + &row(&shell, "5ms/30ms")));
    daemon.signal_reload();
    // The disk stays ordered for a while, for whoever comes next.
    until(&machine, &daemon, |wanted| wanted.priorities.is_empty() && wanted.ordered);
    drop(other);
}

#[test]
fn a_specification_may_say_how_soon_one_is_served_among_the_first() {
    let machine = Machine::new();
    let editor = machine.program("editor");
    let row = |more: &str| row(&editor, "5ms/30ms") + "io = \"interactive\"\n" + more;
    machine.write_specs("a.toml", &row("io_priority = 6\n"));
    let editing = Sleeper::start(&editor);
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()) == Some(Priority::RealTime(6)));
    machine.write_specs("a.toml", &row(""));
    daemon.client().call(&api::Reload {}).expect("root may");
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()) == Some(Priority::RealTime(2)));
}

#[test]
fn what_is_in_the_background_is_served_last_whenever_it_comes_and_for_it_alone_no_disk_is_ordered() {
    let machine = Machine::new();
    let indexer = machine.program("indexer");
    machine.write_specs("a.toml", &io_row(&indexer, "background"));
    let there = Sleeper::start(&indexer);
    let daemon = machine.start();
    let is_last = |wanted: &Wanted, pid: i32| priority_of(wanted, pid) == Some(Priority::BestEffort(7));
    until(&machine, &daemon, |wanted| is_last(wanted, there.pid()));
    assert!(!machine.disk.wanted().ordered);
    let later = Sleeper::start(&indexer);
    until(&machine, &daemon, |wanted| is_last(wanted, later.pid()));
    for (io, count) in [("normal", 0), ("background", 2)] {
        machine.write_specs("a.toml", &io_row(&indexer, io));
        daemon.signal_reload();
        until(&machine, &daemon, |wanted| wanted.priorities.len() == count);
    }
    drop(later);
    until(&machine, &daemon, |wanted| wanted.priorities.len() == 1 && is_last(wanted, there.pid()));
}

#[test]
fn who_is_to_be_served_first_without_a_reservation_is_not() {
    let machine = Machine::new();
    let (editor, indexer) = (machine.program("editor"), machine.program("indexer"));
    machine.write_specs("a.toml", &(io_row(&editor, "interactive") + &io_row(&indexer, "background")));
    let (editing, indexing) = (Sleeper::start(&editor), Sleeper::start(&indexer));
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, indexing.pid()) == Some(Priority::BestEffort(7)));
    let wanted = machine.disk.wanted();
    assert!(priority_of(&wanted, editing.pid()).is_none() && !wanted.ordered, "{wanted:?}");
}

#[test]
fn whoever_is_started_by_an_interactive_program_does_not_keep_its_priority() {
    let machine = Machine::new();
    // The daemon looks who started whom: this process is the parent of both.
    let own = std::env::current_exe().expect("a path");
    machine.write_specs("a.toml", &(row(&own, "5ms/30ms") + "io = \"interactive\"\n"));
    let child = Sleeper::start(&machine.program("make"));
    let daemon = machine.start();
    let own_pid = std::process::id() as i32;
    until(&machine, &daemon, |wanted| priority_of(wanted, own_pid) == Some(Priority::RealTime(2)));
    machine.fake.machine().heirs.push(child.pid());
    until(&machine, &daemon, |wanted| wanted.heirs.iter().any(|task| task.tid == child.pid()));
    assert!(priority_of(&machine.disk.wanted(), child.pid()).is_none());
}

#[test]
fn what_cannot_be_done_is_said_until_it_can() {
    let machine = Machine::new();
    machine.disk.fail(&["sda: classes of disk requests count for nothing there"]);
    let editor = machine.program("editor");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + "io = \"interactive\"\n"));
    let editing = Sleeper::start(&editor);
    let daemon = machine.start();
    let said =
        || daemon.status().problems.iter().any(|problem| problem.message.contains("count for nothing there"));
    assert!((0..100_000).any(|_| said()));
    machine.disk.fail(&[]);
    drop(editing);
    daemon.signal_reload();
    assert!((0..100_000).any(|_| !said()));
}

#[test]
fn who_wants_disks_left_as_they_are_has_that() {
    let machine = Machine::new();
    std::fs::write(machine.path("steward.toml"), "[disk]\norder = \"keep\"\n").expect("written");
    let editor = machine.program("editor");
    machine.write_specs("a.toml", &(row(&editor, "5ms/30ms") + "io = \"interactive\"\n"));
    let editing = Sleeper::start(&editor);
    let daemon = machine.start();
    until(&machine, &daemon, |wanted| priority_of(wanted, editing.pid()).is_some());
    assert!(!machine.disk.wanted().ordered);
}

#[test]
fn what_is_said_of_a_disk_that_is_not_there_is_told_until_it_comes() {
    let mut machine = Machine::new();
    machine.roots.sys = machine.path("sys");
    let plug = |name: &str, number: &str| {
        let disk = machine.path("sys/block").join(name);
        std::fs::create_dir_all(&disk).expect("a directory");
        std::fs::write(disk.join("dev"), number).expect("a file");
    };
    plug("sda", "8:0\n");
    let text = "[disk.devices]\nsda = \"keep\"\nsdx = \"charge\"\n";
    std::fs::write(machine.path("steward.toml"), text).expect("written");
    let daemon = machine.start();
    let told = || {
        let problems = daemon.status().problems.into_iter().map(|problem| problem.message);
        problems.filter(|message| message.contains("[disk.devices] of")).collect::<Vec<String>>()
    };
    let first = told();
    assert!(first.len() == 1 && first[0].contains("of sdx, and no disk is called or known so"), "{first:?}");
    plug("sdx", "8:16\n");
    daemon.signal_reload();
    assert!((0..100_000).any(|_| told().is_empty()), "{:?}", told());
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> ApiError {
    match result.expect_err("it is refused") {
        Error::Api(error) => error,
        other => panic!("the daemon did not answer: {other}"),
    }
}

pub(crate) fn settings(io: Option<IoClass>, disk: Option<f64>) -> api::DomainSettings {
    api::DomainSettings { io, disk, ..api::DomainSettings::default() }
}

fn reset(setting: &str) -> api::DomainSettings {
    api::DomainSettings { reset: vec![setting.into()], ..api::DomainSettings::default() }
}

pub(crate) fn set(domain: &str, settings: api::DomainSettings) -> api::SetDomain {
    api::SetDomain { domain: domain.into(), settings, ..api::SetDomain::default() }
}

pub(crate) fn create(domain: &str, io: Option<IoClass>, disk: Option<f64>) -> api::CreateDomain {
    api::CreateDomain { domain: domain.into(), settings: settings(io, disk), ..api::CreateDomain::default() }
}

pub(crate) fn io_max(bytes: i64) -> api::DomainSettings {
    api::DomainSettings { io_max_bytes: Some(bytes), ..api::DomainSettings::default() }
}

fn weight_of(wanted: &Wanted, path: &str) -> Option<u16> {
    wanted.weights.get(path).map(|(_, weight)| *weight)
}

/// Puts a process that sleeps into a domain.
fn with_process(machine: &Machine, daemon: &Running, domain: &str) -> Sleeper {
    let process = Sleeper::start(&machine.program(&domain.replace('/', "-")));
    let moving = api::MoveProcess { pid: Some(process.pid()), domain: domain.into() };
    daemon.client().call(&moving).expect("moved");
    process
}

#[test]
fn domains_with_processes_have_their_part_of_the_disk_by_class_and_fraction_until_they_are_taken_back() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create("batch", Some(IoClass::Background), None)).expect("made");
    let made = daemon.client().call(&create("web", None, Some(0.5))).expect("made").domain;
    assert_eq!((made.io, made.disk), (None, Some(0.5)));
    daemon.status();
    // Nobody waits for a disk there.
    assert!(!machine.disk.wanted().ordered && machine.disk.wanted().weights.is_empty());
    let batch = with_process(&machine, &daemon, "batch");
    let web = with_process(&machine, &daemon, "web");
    // Half of all, and ten of eleven parts of the other half.
    until(&machine, &daemon, |wanted| weight_of(wanted, "steward.web") == Some(210));
    let wanted = machine.disk.wanted();
    assert_eq!(weight_of(&wanted, "steward.batch"), Some(10));
    assert!(wanted.ordered && !wanted.waits && wanted.priorities.is_empty(), "{wanted:?}");
    assert!(machine.cgroups.tree().hands_out("", Resource::Disk));
    // The kernel writes nothing back then by itself.
    until(&machine, &daemon, |_| machine.disk.flushes() == [true]);
    let back = set("web", reset("disk"));
    daemon.client().call(&back).expect("less");
    until(&machine, &daemon, |wanted| weight_of(wanted, "steward.web").is_none());
    drop(batch);
    drop(web);
    until(&machine, &daemon, |wanted| wanted.weights.is_empty() && !wanted.ordered);
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
    daemon.client().call(&create("other", Some(IoClass::Background), None)).expect("made");
    let web = with_process(&machine, &daemon, "other");
    until(&machine, &daemon, |_| machine.cgroups.tree().hands_out("", Resource::Disk));
    let before = machine.disk.flushes().len();
    daemon.stop();
    assert!(!machine.cgroups.tree().hands_out("", Resource::Disk));
    let flushes = machine.disk.flushes();
    assert!(
        flushes.len() >= before + 2 && flushes.ends_with(&[true, false]),
        "nobody sees to it afterwards: {flushes:?}"
    );
    // It is noted until it is so.
    let noted: Vec<usize> =
        machine.disk.applied().iter().rev().map(|wanted| wanted.handed_out.len()).collect();
    assert_eq!(noted[..2], [0, 1]);
    drop(web);
}

#[test]
fn the_disk_is_handed_out_as_long_as_anything_is_set_of_it_and_no_longer() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create("batch", Some(IoClass::Background), None)).expect("made");
    let batch = with_process(&machine, &daemon, "batch");
    until(&machine, &daemon, |_| machine.cgroups.tree().hands_out("", Resource::Disk));
    // As the weight of a domain is until the worker comes to put it back, or what somebody has given another cgroup.
    machine.cgroups.tree().disk_settings.insert("user.slice".into());
    drop(batch);
    until(&machine, &daemon, |_| machine.cgroups.tree().disk_settings_asked > 0);
    assert!(machine.cgroups.tree().hands_out("", Resource::Disk));
    machine.cgroups.tree().disk_settings.clear();
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
}

#[test]
fn the_disk_goes_on_being_handed_out_for_a_while_but_not_beside_somebody_who_is_first_in_one_line() {
    let mut machine = Machine::new();
    machine.disk_handed_out_for_ns = u64::MAX;
    // It has no disk that knows weights.
    machine.roots.sys = machine.path("sys");
    let daemon = machine.start();
    daemon.client().call(&create("batch", Some(IoClass::Background), None)).expect("made");
    let batch = with_process(&machine, &daemon, "batch");
    until(&machine, &daemon, |_| machine.cgroups.tree().hands_out("", Resource::Disk));
    drop(batch);
    until(&machine, &daemon, |wanted| wanted.weights.is_empty() && !wanted.ordered);
    assert!(machine.cgroups.tree().hands_out("", Resource::Disk));
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    let desk = with_process(&machine, &daemon, "desk");
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
    drop(desk);
}

#[test]
fn whoever_runs_in_an_interactive_domain_comes_first_and_no_longer_when_it_is_none() {
    let mut machine = Machine::new();
    // It has no disk that knows weights.
    machine.roots.sys = machine.path("sys");
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    let process = with_process(&machine, &daemon, "desk");
    until(&machine, &daemon, |wanted| priority_of(wanted, process.pid()) == Some(Priority::RealTime(4)));
    let wanted = machine.disk.wanted();
    // All stand in one line as long as nobody needs weights.
    assert!(wanted.ordered && wanted.waits && wanted.weights.is_empty(), "{wanted:?}");
    let normal = set("desk", settings(Some(IoClass::Normal), None));
    daemon.client().call(&normal).expect("less");
    until(&machine, &daemon, |wanted| wanted.priorities.is_empty());
    // What it started meanwhile was born with the priority.
    assert!(machine.disk.wanted().left.iter().any(|(task, _)| task.tid == process.pid()));
}

#[test]
fn who_was_born_in_a_domain_since_the_last_look_does_not_keep_its_priority_when_it_comes_first_no_longer() {
    let machine = with_a_disk_that_rotates();
    let daemon = machine.start();
    for (domain, back) in [("desk", settings(Some(IoClass::Normal), None)), ("shelf", reset("io"))] {
        daemon.client().call(&create(domain, Some(IoClass::Interactive), None)).expect("made");
        let process = with_process(&machine, &daemon, domain);
        until(&machine, &daemon, |wanted| priority_of(wanted, process.pid()).is_some());
        // As the kernel puts it there, and nobody tells.
        let child = Sleeper::start(&machine.program("child"));
        machine.cgroups.move_process(child.pid(), &format!("steward.{domain}")).expect("it is there");
        let normal = set(domain, back);
        daemon.client().call(&normal).expect("less");
        until(&machine, &daemon, |wanted| wanted.left.keys().any(|task| task.tid == child.pid()));
        assert!(priority_of(&machine.disk.wanted(), child.pid()).is_none());
    }
}

#[test]
fn whoever_is_in_a_cgroup_that_a_program_has_made_below_its_domain_comes_first_as_well() {
    let machine = with_a_disk_that_rotates();
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    daemon.client().call(&create("desk/batch", Some(IoClass::Background), None)).expect("made");
    for path in ["steward.desk/made", "steward.desk/made/within", "steward.desk/batch/made"] {
        machine.cgroups.tree().add(path, 0);
    }
    let (inner, last) = (Sleeper::start(&machine.program("inner")), Sleeper::start(&machine.program("last")));
    machine.cgroups.move_process(last.pid(), "steward.desk/batch/made").expect("it is there");
    machine.cgroups.move_process(inner.pid(), "steward.desk/made/within").expect("it is there");
    until(&machine, &daemon, |wanted| by_weight(wanted, inner.pid()));
    let wanted = machine.disk.wanted();
    assert!(priority_of(&wanted, last.pid()).is_none());
    // And what the kernel writes back for it is no load on it.
    let marked = [("", true), ("/.own", true), ("/made", true), ("/made/within", true)]
        .into_iter()
        .chain([("/batch", false), ("/batch/made", false)])
        .map(|(below, is_first)| (machine.cgroups.tree().id(&format!("steward.desk{below}")), is_first));
    assert_eq!(wanted.first_by_weight, marked.collect());
}

#[test]
fn whoever_runs_in_a_domain_is_told_whether_it_comes_first_there() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    for (domain, io) in [("desk", Some(IoClass::Interactive)), ("desk/shelf", None), ("batch", None)] {
        client.call(&create(domain, io, None)).expect("made");
    }
    for (domain, served_first) in [("desk", Some(true)), ("desk/shelf", Some(true)), ("batch", None)] {
        let run = api::Run { domain: Some(domain.into()), ..api::Run::default() };
        assert_eq!(client.call(&run).expect("root may").served_first, served_first, "{domain}");
    }
    let own = api::Run { io: Some(IoClass::Interactive), ..api::Run::default() };
    assert_eq!(client.call(&own).expect("root may").served_first, Some(true));
}

/// A machine with a disk that is to have the elevator that knows weights.
fn with_a_disk_that_rotates() -> Machine {
    let mut machine = Machine::new();
    machine.roots.sys = machine.path("sys");
    plug(
        &machine,
        "sda",
        &[
            ("dev", "8:0\n"),
            ("diskseq", "1\n"),
            ("mq/0/nr_tags", "1\n"),
            ("queue/rotational", "1\n"),
            ("queue/scheduler", "[none] mq-deadline bfq\n"),
        ],
    );
    machine
}

fn plug(machine: &Machine, name: &str, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = machine.roots.sys.join("block").join(name).join(file);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
}

#[test]
fn an_interactive_domain_comes_first_by_its_weight_where_every_disk_that_is_ordered_knows_weights() {
    let machine = with_a_disk_that_rotates();
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    daemon.client().call(&create("desk/batch", Some(IoClass::Background), None)).expect("made");
    let (process, _last) =
        (with_process(&machine, &daemon, "desk"), with_process(&machine, &daemon, "desk/batch"));
    let by_weight = |wanted: &Wanted| by_weight(wanted, process.pid());
    let by_class = |wanted: &Wanted| by_class(wanted, process.pid());
    until(&machine, &daemon, |wanted| weight_of(wanted, "steward.desk/batch") == Some(10));
    let wanted = machine.disk.wanted();
    assert!(by_weight(&wanted) && weight_of(&wanted, "steward.desk") == Some(1000), "{wanted:?}");
    assert!(wanted.ordered && wanted.waits && machine.cgroups.tree().hands_out("", Resource::Disk));
    // The next daemon, where this one is killed, knows by that that it was Steward.
    let ids = ["", "steward.desk"].map(|path| (path.to_owned(), machine.cgroups.tree().id(path)));
    assert_eq!(wanted.handed_out, ids.into());
    // The domain with the leaf that its processes are in, and the one below.
    let mut first: Vec<bool> = wanted.first_by_weight.values().copied().collect();
    first.sort_unstable();
    assert_eq!(first, [false, true, true]);
    // What came of it counts once it is there: somebody has chosen another elevator, nothing tells when they wait, or
    // this kernel has no weights.
    let settled = || BTreeSet::from([("sda".to_owned(), 1)]);
    for outcome in [
        Outcome { settled: settled(), ..Outcome::default() },
        Outcome { is_untold: true, ..Outcome::default() },
        Outcome { lacks_weights: true, ..Outcome::default() },
    ] {
        machine.disk.set_outcome(outcome);
        until(&machine, &daemon, by_class);
        machine.disk.set_outcome(Outcome::default());
        until(&machine, &daemon, by_weight);
    }
    // On another disk the class alone counts, and then it has to be that everywhere.
    plug(
        &machine,
        "sdb",
        &[("dev", "8:16\n"), ("mq/0/nr_tags", "1\n"), ("queue/scheduler", "none [mq-deadline] bfq\n")],
    );
    until(&machine, &daemon, by_class);
    let weight = weight_of(&machine.disk.wanted(), "steward.desk");
    assert_eq!(weight, Some(1000), "somebody is in the background still");
}

#[test]
fn as_soon_as_anybody_is_first_whom_a_weight_cannot_bring_first_all_stand_in_one_line() {
    let machine = with_a_disk_that_rotates();
    let (first, second) = (machine.program("first"), machine.program("second"));
    let rows = |one: &str, other: &str| row(&first, "5ms/30ms") + one + &row(&second, "5ms/30ms") + other;
    let is_first = "io = \"interactive\"\n";
    machine.write_specs("a.toml", &rows("", ""));
    let (within, elsewhere) = (Sleeper::start(&first), Sleeper::start(&second));
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    let process = with_process(&machine, &daemon, "desk");
    let moving = api::MoveProcess { pid: Some(within.pid()), domain: "desk".into() };
    daemon.client().call(&moving).expect("moved");
    until(&machine, &daemon, |wanted| by_weight(wanted, process.pid()));
    assert!(machine.cgroups.tree().hands_out("", Resource::Disk));
    // Its specification says so of it too, and its domain brings it first. Whoever is there later was looked at later.
    machine.write_specs("a.toml", &rows(is_first, ""));
    daemon.client().call(&api::Reload {}).expect("read again");
    daemon.client().call(&create("desk/later", None, None)).expect("made");
    let later = with_process(&machine, &daemon, "desk/later");
    until(&machine, &daemon, |wanted| by_weight(wanted, later.pid()));
    assert!(by_weight(&machine.disk.wanted(), within.pid()));
    machine.write_specs("a.toml", &rows(is_first, is_first));
    daemon.client().call(&api::Reload {}).expect("read again");
    until(&machine, &daemon, |wanted| by_class(wanted, process.pid()));
    let wanted = machine.disk.wanted();
    assert!(wanted.weights.is_empty() && wanted.first_by_weight.is_empty(), "{wanted:?}");
    assert_eq!(priority_of(&wanted, elsewhere.pid()), Some(Priority::RealTime(2)));
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
    // There is no such line while the disk is handed out for something else: a limit, and then what somebody else asks.
    let limited = api::CreateDomain { settings: io_max(1 << 20), ..create("held", None, None) };
    daemon.client().call(&limited).expect("made");
    let held = with_process(&machine, &daemon, "held");
    let is_weighed =
        |wanted: &Wanted| weight_of(wanted, "steward.desk") == Some(1000) && by_weight(wanted, process.pid());
    until(&machine, &daemon, is_weighed);
    assert!(!machine.disk.wanted().limits.is_empty());
    machine.cgroups.tree().disk_settings.insert("user.slice".into());
    drop(held);
    until(&machine, &daemon, |wanted| wanted.limits.is_empty() && is_weighed(wanted));
    machine.cgroups.tree().disk_settings.clear();
    until(&machine, &daemon, |wanted| by_class(wanted, process.pid()) && wanted.weights.is_empty());
}

#[test]
fn who_has_ended_when_domains_are_looked_at_is_first_nowhere() {
    let machine = with_a_disk_that_rotates();
    // Nobody runs it.
    machine.write_specs("a.toml", &(row(&machine.program("first"), "5ms/30ms") + "io = \"interactive\"\n"));
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    let process = with_process(&machine, &daemon, "desk");
    until(&machine, &daemon, |wanted| by_weight(wanted, process.pid()));
    let mut ended = std::process::Command::new("true").spawn().expect("it starts");
    let stat = format!("/proc/{}/stat", ended.id());
    while !std::fs::read_to_string(&stat).expect("nobody has collected it").contains(") Z ") {
        std::thread::yield_now();
    }
    // As the scheduler has it that was asked a moment before.
    {
        let mut fake = machine.fake.machine();
        let grant = fake.exec_table.iter().find_map(|(_, grant)| *grant).expect("there is a specification");
        fake.tasks.insert(ended.id() as i32, (grant, Standing::Admitted));
    }
    daemon.client().call(&create("desk/later", None, None)).expect("made");
    let later = with_process(&machine, &daemon, "desk/later");
    until(&machine, &daemon, |wanted| by_weight(wanted, later.pid()));
    ended.wait().expect("it is collected");
}

#[test]
fn where_a_cgroup_cannot_hand_the_disk_out_that_is_said_and_whoever_is_elsewhere_has_what_is_theirs() {
    let machine = with_a_disk_that_rotates();
    let refuse = |path: &str| machine.cgroups.tree().refuses_disk = BTreeSet::from([path.to_owned()]);
    refuse("steward.team");
    let daemon = machine.start();
    let said =
        || daemon.status().problems.iter().any(|problem| problem.message.contains("beside those below it"));
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    daemon.client().call(&create("team", None, None)).expect("made");
    let batch = api::CreateDomain {
        settings: api::DomainSettings { io: Some(IoClass::Background), ..io_max(1 << 20) },
        ..create("team/batch", None, None)
    };
    daemon.client().call(&batch).expect("made");
    let desk = with_process(&machine, &daemon, "desk");
    let is_weighed =
        |wanted: &Wanted| by_weight(wanted, desk.pid()) && weight_of(wanted, "steward.desk") == Some(1000);
    until(&machine, &daemon, is_weighed);
    assert!(!said());
    let batch = with_process(&machine, &daemon, "team/batch");
    assert!((0..100_000).any(|_| said()));
    // Whoever is there later was looked at later.
    daemon.client().call(&create("desk/later", None, None)).expect("made");
    let later = with_process(&machine, &daemon, "desk/later");
    until(&machine, &daemon, |wanted| by_weight(wanted, later.pid()));
    let wanted = machine.disk.wanted();
    assert!(is_weighed(&wanted) && weight_of(&wanted, "steward.team/batch").is_none(), "{wanted:?}");
    assert!(wanted.limits.is_empty(), "{wanted:?}");
    machine.cgroups.tree().refuses_disk.clear();
    until(&machine, &daemon, |wanted| {
        weight_of(wanted, "steward.team/batch") == Some(10) && !wanted.limits.is_empty()
    });
    assert!((0..100_000).any(|_| !said()));
    drop(batch);
    // The class brings who is interactive first where nobody can, and nothing is to be said of that.
    daemon.client().call(&set("desk", settings(Some(IoClass::Normal), None))).expect("less");
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
    refuse("");
    daemon.client().call(&set("desk", settings(Some(IoClass::Interactive), None))).expect("more");
    until(&machine, &daemon, |wanted| by_class(wanted, desk.pid()));
    let wanted = machine.disk.wanted();
    assert!(wanted.weights.is_empty() && wanted.first_by_weight.is_empty() && !said(), "{wanted:?}");
}

#[test]
fn fractions_that_are_more_than_there_is_are_refused_with_the_amounts_and_others_cgroups_with_advice() {
    let machine = Machine::new();
    let daemon = machine.start();
    daemon.client().call(&create("a", None, Some(0.6))).expect("there is room");
    let ApiError::Overcommitted { resource, asked, reserved, reason, .. } =
        refusal(daemon.client().call(&create("b", None, Some(0.5))))
    else {
        panic!("it is too much")
    };
    assert_eq!((resource.as_str(), asked, reserved), ("disk", 0.5, 0.6));
    assert!(reason.contains("disk time"), "{reason}");
    // Below it, all of what it has may be reserved.
    daemon.client().call(&create("a/x", None, Some(1.0))).expect("it is its own");
    let foreign = set("user.slice", settings(Some(IoClass::Background), None));
    let refused = refusal(daemon.client().call(&foreign));
    assert!(
        matches!(&refused, ApiError::InvalidParameter { parameter, reason } if parameter == "io" && reason.contains("IOWeight"))
    );
}

#[test]
fn a_limit_is_wanted_on_each_disk_of_its_own_while_somebody_is_there_and_asks_for_no_elevator() {
    let mut machine = Machine::new();
    machine.roots.sys = machine.path("sys");
    for (name, number, kind) in [("sda", "8:0", "mq"), ("dm-0", "253:0", "dm")] {
        let directory = machine.roots.sys.join("block").join(name);
        std::fs::create_dir_all(directory.join(kind)).expect("a directory");
        std::fs::write(directory.join("dev"), number).expect("a file");
    }
    let daemon = machine.start();
    let limited = |bytes, requests| api::DomainSettings {
        io_max_bytes: bytes,
        io_max_requests: requests,
        ..api::DomainSettings::default()
    };
    let made = api::CreateDomain {
        domain: "copy".into(),
        settings: limited(Some(10 << 20), Some(100)),
        ..api::CreateDomain::default()
    };
    let made = daemon.client().call(&made).expect("made").domain;
    assert_eq!((made.io_max_bytes, made.io_max_requests), (Some(10 << 20), Some(100)));
    let copier = with_process(&machine, &daemon, "copy");
    until(&machine, &daemon, |wanted| !wanted.limits.is_empty());
    let wanted = machine.disk.wanted();
    let limits: Vec<_> =
        wanted.limits.iter().map(|(key, limited)| (key.clone(), limited.max.to_string())).collect();
    assert_eq!(limits, [(("steward.copy".to_owned(), "8:0".to_owned()), "10M/s,100/s".to_owned())]);
    assert!(!wanted.ordered && wanted.weights.is_empty(), "{wanted:?}");
    // Another disk with the number of one that has gone has no limit in the kernel.
    let sequences =
        |wanted: &Wanted| -> Vec<u64> { wanted.limits.values().map(|limited| limited.sequence).collect() };
    assert_eq!(sequences(&wanted), [0]);
    std::fs::write(machine.roots.sys.join("block/sda/diskseq"), "7\n").expect("a file");
    until(&machine, &daemon, |wanted| sequences(wanted) == [7]);
    assert!(machine.cgroups.tree().hands_out("", Resource::Disk));
    let said = daemon.client().call(&api::ExplainDomain { domain: Some("copy".into()) });
    let said = said.expect("it is told").text;
    assert!(said.contains("at most 10M/s,100/s of each disk") && said.contains("journal"), "{said}");
    let set = |settings| api::SetDomain { domain: "copy".into(), settings, ..api::SetDomain::default() };
    let fault = refusal(daemon.client().call(&set(limited(Some(1), None))));
    assert!(
        matches!(&fault, ApiError::InvalidParameter { parameter, .. } if parameter == "io_max_bytes"),
        "{fault:?}"
    );
    let reset = ["io_max_bytes", "io_max_requests"].map(str::to_owned).to_vec();
    daemon.client().call(&set(api::DomainSettings { reset, ..limited(None, None) })).expect("root may");
    until(&machine, &daemon, |wanted| wanted.limits.is_empty());
    until(&machine, &daemon, |_| !machine.cgroups.tree().hands_out("", Resource::Disk));
    drop(copier);
}

#[test]
fn what_requests_take_is_counted_once_somebody_asks() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = daemon.client();
    let id = client.call(&create("batch", None, None)).expect("it is made").domain.cgroup_id;
    let mut latencies = Histogram::default();
    latencies.0[Histogram::step_of(10_000_000)] = 40;
    let key = Key { cgroup_id: id, disk: 8 << 20, ..Key::default() };
    let account = Account { device_ns: 400_000_000, latencies, max_ns: 10_000_000 };
    machine.disk.set_counted(Reading { accounts: vec![(key, account)], ..Reading::default() });
    // Whoever starts a program there does not ask.
    client.call(&api::Run { domain: Some("batch".into()), ..api::Run::default() }).expect("root may");
    (0..1000).for_each(|_| drop(daemon.status()));
    assert_eq!(machine.disk.times_begun(), 0);
    let shown = (0..100_000).find_map(|_| {
        let shown = client.call(&api::ShowDomain { domain: Some("batch".into()), pid: None });
        shown.expect("it is there").domain.disk_minute
    });
    let minute = shown.expect("it is counted");
    assert_eq!((minute.requests, minute.device_time_ns, minute.max_ns), (40, 400_000_000, 10_000_000));
    assert_eq!((minute.median_ns, minute.p99_ns), (10_000_000, 10_000_000));
    let text = client.call(&api::ExplainDomain { domain: Some("batch".into()) }).expect("it is there").text;
    assert!(text.contains("half of its 40 disk requests were done within 10ms"), "{text}");
    // Who made none is told for how long it was looked, too.
    client.call(&create("idle", None, None)).expect("it is made");
    let idle = api::ExplainDomain { domain: Some("idle".into()) };
    let mut told = || client.call(&idle).expect("it is there").text;
    let text = (0..100_000).map(|_| told()).find(|text| text.contains("it made no disk requests"));
    assert!(text.as_ref().is_some_and(|text| !text.contains("In the last 0ms")), "{text:?}");
}

#[test]
fn a_calibrated_disk_is_charged_while_a_domain_has_a_class_and_is_left_to_whoever_sets_it_meanwhile() {
    let mut machine = Machine::new();
    (machine.roots.sys, machine.roots.cgroup) = (machine.path("sys"), machine.path("cgroup"));
    let files = [
        ("sys/block/sda/mq/0/nr_tags", "4\n"),
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sda/size", "1000\n"),
        ("sys/block/sda/queue/rotational", "0\n"),
        ("cgroup/io.cost.model", ""),
        ("cgroup/io.cost.qos", ""),
    ];
    let write = |file: &str, text: &str| {
        let path = machine.path(file);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        // As with the kernel's, nobody sees half of one.
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).expect("a file");
        std::fs::rename(beside, path).expect("in place");
    };
    files.iter().for_each(|(file, text)| write(file, text));
    let way = Way { bytes_per_second: 500 << 20, sequential_per_second: 22_000, random_per_second: 20_000 };
    let model = Model { read: way, write: way };
    let daemon = machine.start();
    daemon.client().call(&create("desk", Some(IoClass::Interactive), None)).expect("made");
    let process = with_process(&machine, &daemon, "desk");
    until(&machine, &daemon, |wanted| priority_of(wanted, process.pid()).is_some());
    assert!(machine.disk.wanted().weights.is_empty() && daemon.status().disks.is_empty());

    // Calibrated meanwhile, by another process that then has the daemon read it.
    let calibrate = |model| {
        let mut kept = Calibrations::default();
        let identity = "1000 sectors".to_owned();
        kept.put(Calibration { identity, name: "sdb".into(), measured_at: 7, model });
        kept.save(&machine.path("state")).expect("kept");
        daemon.client().call(&api::Reload {}).expect("read again");
    };
    calibrate(model);
    let charged = |wanted: &Wanted| wanted.charged.get("8:0").map(|charged| charged.model);
    until(&machine, &daemon, |wanted| charged(wanted) == Some(model));
    // There no priority counts.
    assert_eq!(weight_of(&machine.disk.wanted(), "steward.desk"), Some(1000));
    let disk = daemon.status().disks.remove(0);
    assert_eq!((disk.name.as_str(), disk.identity.as_str(), disk.charged), ("sda", "1000 sectors", false));

    // As the kernel says it then; a later calibration finds its own.
    write("cgroup/io.cost.model", &model.to_kernel("8:0"));
    write("cgroup/io.cost.qos", &model.quality("8:0"));
    until(&machine, &daemon, |_| daemon.status().disks[0].charged);
    let later = Model { read: Way { random_per_second: 19_000, ..way }, ..model };
    calibrate(later);
    until(&machine, &daemon, |wanted| charged(wanted) == Some(later));
    write("cgroup/io.cost.model", &later.to_kernel("8:0"));

    // Somebody else.
    write("cgroup/io.cost.qos", "8:0 enable=1 ctrl=auto rpct=0.00\n");
    until(&machine, &daemon, |wanted| charged(wanted).is_none() && wanted.any_charged);
    let said = |text: &str| text.contains("io.cost is set by somebody else, whose it stays (8:0 enable=1");
    let is_problem = || daemon.status().problems.iter().any(|problem| said(&problem.message));
    until(&machine, &daemon, |_| is_problem() && said(&daemon.status().disks[0].text));
    // It is nobody's again.
    write("cgroup/io.cost.qos", "8:0 enable=0 ctrl=auto\n");
    until(&machine, &daemon, |wanted| charged(wanted) == Some(later));
    until(&machine, &daemon, |_| !is_problem());

    // Who wants disks left as they are, and a file that is damaged.
    write("steward.toml", "[disk]\norder = \"keep\"\n");
    daemon.client().call(&api::Reload {}).expect("read again");
    until(&machine, &daemon, |wanted| charged(wanted).is_none());
    let kept = std::fs::read_to_string(machine.path("state/disks.json")).expect("a file");
    std::fs::write(machine.path("state/disks.json"), kept + "{").expect("a file");
    daemon.client().call(&api::Reload {}).expect("read again");
    let status = daemon.status();
    assert_eq!(status.disks.len(), 1);
    let message = status.problems.into_iter().map(|problem| problem.message).collect::<String>();
    assert!(message.contains("disks.json is damaged: line 3"), "{message}");
    assert!(message.contains("it is now") && machine.path("state/disks.json.damaged").exists(), "{message}");
    drop(process);
}

//! What is done with disks, on a directory in place of the kernel.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use steward_core::disk::calibration::Calibration;
use steward_core::disk::cost::Way;
use steward_kernel::KernelError;
use steward_kernel::disk::priority;

use super::super::moments::{Mark, Watch, Watching};
use super::*;

/// A directory with these files below it, and what writes there.
fn with(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots, OwnJournal, KernelKnobs) {
    let directory = tempfile::tempdir().expect("a directory");
    let roots = Roots::under(directory.path());
    for (path, text) in files.iter().chain(&[("proc/sys/kernel/random/boot_id", "one\n")]) {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    let journal = crate::files::journal::open(directory.path(), &roots);
    let knobs = told_by(|| Err("nobody".to_owned()), &roots, &journal);
    (directory, roots, journal, knobs)
}

/// What writes there, told by this when somebody waits.
fn told_by(watcher: Watcher, roots: &Roots, journal: &OwnJournal) -> KernelKnobs {
    KernelKnobs::new(roots, journal, watcher, || Err("nobody".to_owned()))
}

#[test]
fn a_disk_takes_all_that_is_swapped_out_while_that_is_wanted_and_what_somebody_chooses_meanwhile_stays() {
    let file = "sys/block/sda/queue/wbt_lat_usec";
    let (directory, _roots, journal, knobs) = with(&[
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/sda/queue/scheduler", "[mq-deadline] bfq none\n"),
        (file, "75000\n"),
        // Nothing is held back there.
        ("sys/block/sdb/dev", "8:16\n"),
        ("sys/block/sdb/queue/rotational", "1\n"),
    ]);
    let path = directory.path().join(file);
    let says = |path: &std::path::Path| std::fs::read_to_string(path).expect("a file");
    let names = ["sda", "sdb", "gone"].map(str::to_owned);
    let wanted = Wanted { written_freely: BTreeSet::from(names), ..Wanted::default() };
    knobs.apply(&wanted).expect("it can be written");
    assert_eq!(says(&path), "0");
    knobs.apply(&Wanted { lost: 1, ..wanted.clone() }).expect("it is in force");
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 1);
    // With this elevator the kernel would not hold anything back.
    let elevator = directory.path().join("sys/block/sda/queue/scheduler");
    std::fs::write(&elevator, "mq-deadline [bfq] none\n").expect("a file");
    knobs.apply(&Wanted::default()).expect("nothing is to be done yet");
    assert_eq!(says(&path), "0");
    std::fs::write(&elevator, "[mq-deadline] bfq none\n").expect("a file");
    knobs.apply(&Wanted::default()).expect("it can be put back");
    assert_eq!(says(&path), "75000");
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 0);

    knobs.apply(&wanted).expect("it can be written");
    std::fs::write(&path, "2000\n").expect("somebody chooses");
    knobs.apply(&Wanted::default()).expect("there is nothing to be put back");
    assert_eq!(says(&path), "2000\n");
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 0);
}

/// A disk that rotates, and takes one request at a time.
fn plug(roots: &Roots, name: &str, sequence: u64) {
    let disk = roots.sys.join("block").join(name);
    for (file, text) in [
        ("dev", "8:0\n"),
        ("diskseq", &sequence.to_string()),
        ("queue/rotational", "1\n"),
        ("queue/scheduler", "[mq-deadline] none\n"),
        ("queue/nr_requests", "2\n"),
        ("mq/0/nr_tags", "1\n"),
    ] {
        std::fs::create_dir_all(disk.join(file).parent().expect("it has one")).expect("a directory");
        std::fs::write(disk.join(file), text).expect("a file");
    }
}

#[test]
fn a_disk_that_comes_while_somebody_is_served_first_is_ordered_and_one_that_has_gone_is_forgotten() {
    let (_directory, roots, journal, knobs) = with(&[]);
    let ordered = || Wanted { ordered: true, disks: devices::present(&roots), ..Wanted::default() };
    let says =
        |file: &str| std::fs::read_to_string(roots.sys.join("block/sda/queue").join(file)).expect("a file");
    let outstanding = || journal.as_ref().expect("a journal").outstanding();
    let before = ordered();
    knobs.apply(&before).expect("there are none");
    plug(&roots, "sda", 1);
    assert_ne!(ordered(), before, "it is to be looked at what there is");
    knobs.apply(&ordered()).expect("it can be written");
    assert_eq!((says("scheduler").as_str(), outstanding()), ("bfq", 1));
    // Another one of its name: it is ordered itself, and what the first one had is not put back.
    plug(&roots, "sda", 2);
    knobs.apply(&ordered()).expect("it can be written");
    assert_eq!((says("scheduler").as_str(), outstanding()), ("bfq", 1));
    std::fs::remove_dir_all(roots.sys.join("block/sda")).expect("it goes");
    knobs.apply(&ordered()).expect("there is nothing to do");
    assert_eq!(outstanding(), 0);
    plug(&roots, "sda", 3);
    knobs.apply(&Wanted::default()).expect("there is nothing to put back");
    assert_eq!(says("scheduler"), "[mq-deadline] none\n");
}

#[test]
fn a_disk_is_ordered_before_anybody_can_be_told_when_somebody_waits() {
    thread_local! {
        /// Where it is said what orders the disk, and what was said when it was begun to watch.
        static ORDER: RefCell<(PathBuf, String)> = RefCell::default();
    }
    let (_directory, roots, journal, _) = with(&[]);
    plug(&roots, "sda", 1);
    let scheduler = roots.sys.join("block/sda/queue/scheduler");
    ORDER.with_borrow_mut(|order| order.0.clone_from(&scheduler));
    let watcher: Watcher = || {
        ORDER.with_borrow_mut(|(path, said)| *said = std::fs::read_to_string(path).expect("a file"));
        Err("nobody".to_owned())
    };
    let knobs = told_by(watcher, &roots, &journal);
    let disks = devices::present(&roots);
    knobs
        .apply(&Wanted { ordered: true, waits: true, disks, ..Wanted::default() })
        .expect("it can be written");
    assert_eq!(ORDER.with_borrow(|(_, said)| said.clone()), "bfq");
}

/// A process that does nothing, until this is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process with this priority that it did not choose.
fn born_with(priority: Priority, roots: &Roots) -> (Sleeper, TaskId) {
    let process = Sleeper(Command::new("sleep").arg("600").spawn().expect("it starts"));
    let pid = i32::try_from(process.0.id()).expect("a small number");
    let task = steward_kernel::process::stat(pid, roots).expect("it runs").id;
    choose(task, priority);
    (process, task)
}

/// Has a task have what somebody chooses, who is not Steward.
fn choose(task: TaskId, chosen: Priority) {
    let options: &[&str] = match chosen {
        Priority::Unset => return,
        Priority::RealTime(level) => &["-c1", "-n", &level.to_string()],
        Priority::BestEffort(level) => &["-c2", "-n", &level.to_string()],
        Priority::Idle => &["-c3"],
    };
    let mut ionice = Command::new("ionice");
    ionice.args(options).args(["-p", &task.tid.to_string()]);
    assert!(ionice.status().expect("every machine has it").success());
    assert_eq!(priority::read(task.tid).expect("it runs"), chosen);
}

/// What is given to tasks of the kernel, of which only those are there that are to be seen: other tests have theirs.
/// Nobody is told when anybody waits.
fn on_real_tasks() -> (tempfile::TempDir, Roots, KernelKnobs) {
    let (directory, roots, ..) = with(&[]);
    let journal = crate::files::journal::open(&directory.path().join("state"), &roots);
    let knobs = told_by(|| Err("nobody".to_owned()), &roots, &journal);
    (directory, roots, knobs)
}

/// What tells when somebody waits, and never does.
fn nobody_waits() -> Result<Watching, String> {
    struct Never {
        calls: PipeReader,
        _caller: PipeWriter,
    }
    impl AsFd for Never {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.calls.as_fd()
        }
    }
    impl Watch for Never {
        fn take(&mut self) {}

        fn are_over(&mut self, _now_ns: u64) -> bool {
            true
        }
    }
    impl Mark for Never {
        fn serve_first(&mut self, _cgroups: &BTreeMap<u64, bool>) -> Result<(), String> {
            Ok(())
        }
    }
    let never = || pipe().map(|(calls, _caller)| Box::new(Never { calls, _caller })).expect("a pipe");
    Ok((never(), never()))
}

#[test]
fn who_works_for_others_is_first_before_anybody_can_be_told_and_for_as_long_as_that_is_wanted() {
    thread_local! {
        /// What is to have the priority, and what it had when it was begun to watch.
        static JOURNAL: Cell<(i32, Option<Priority>)> = const { Cell::new((0, None)) };
    }
    let (directory, mut roots, ..) = with(&[]);
    roots.proc = "/proc".into();
    let journal = crate::files::journal::open(&directory.path().join("state"), &roots);
    let (_process, task) = born_with(Priority::Unset, &roots);
    JOURNAL.set((task.tid, None));
    let knobs = told_by(
        || {
            let (tid, _) = JOURNAL.get();
            JOURNAL.set((tid, priority::read(tid).ok()));
            nobody_waits()
        },
        &roots,
        &journal,
    );
    plug(&roots, "sda", 1);
    let first = Priority::BestEffort(1);
    let has = || priority::read(task.tid).expect("it runs");
    let told = Wanted {
        ordered: true,
        waits: true,
        disks: devices::present(&roots),
        priorities: BTreeMap::from([(task, first)]),
        ..Wanted::default()
    };
    knobs.apply(&told).expect("it can be changed");
    assert_eq!(
        (JOURNAL.get().1, has()),
        (Some(first), first),
        "nobody can be told yet, and somebody may wait"
    );
    // Nobody is served first, and the elevator is there for weights.
    knobs.apply(&Wanted { waits: false, ..told }).expect("it can be changed");
    assert_eq!(has(), first);
    knobs.apply(&Wanted::default()).expect("it can be put back");
    assert_eq!(has(), Priority::Unset);
}

/// Two processes of which the second one was started when the first one had a priority.
struct Family {
    parent: Sleeper,
    child: TaskId,
}

impl Family {
    /// The first one has what `of` says of it then.
    fn start(knobs: &KernelKnobs, roots: &Roots, of: impl Fn(TaskId) -> Wanted) -> Self {
        let mut parent = Command::new("sh")
            .args(["-c", "read word; sleep 600 >/dev/null & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pipes = (parent.stdin.take(), parent.stdout.take());
        let (mut asks, tells) = (pipes.0.expect("a pipe"), pipes.1.expect("a pipe"));
        let parent = Sleeper(parent);
        let first = task_of(&parent.0, roots);
        knobs.apply(&of(first)).expect("it can be changed");
        asks.write_all(b"go on\n").expect("it reads");
        let mut said = String::new();
        BufReader::new(tells).read_line(&mut said).expect("it says whom it has started");
        let pid = said.trim().parse().expect("a number");
        see(pid, roots);
        Family { parent, child: steward_kernel::process::stat(pid, roots).expect("it runs").id }
    }

    fn has(&self) -> Priority {
        priority::read(self.child.tid).expect("it runs")
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let child = rustix::process::Pid::from_raw(self.child.tid).expect("a number");
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
}

/// Has a process be among those that there are.
fn see(pid: i32, roots: &Roots) {
    let _ = std::os::unix::fs::symlink(format!("/proc/{pid}"), roots.proc.join(pid.to_string()));
}

fn task_of(process: &Child, roots: &Roots) -> TaskId {
    let pid = i32::try_from(process.id()).expect("a small number");
    see(pid, roots);
    steward_kernel::process::stat(pid, roots).expect("it runs").id
}

fn given(task: TaskId, priority: Priority) -> Wanted {
    Wanted { priorities: BTreeMap::from([(task, priority)]), ..Wanted::default() }
}

fn of_domain(task: TaskId, priority: Priority) -> Wanted {
    Wanted { of_domains: BTreeSet::from([task]), ..given(task, priority) }
}

#[test]
fn who_was_born_with_a_priority_gets_another_one_all_the_same_when_that_is_wanted() {
    let (_directory, roots, knobs) = on_real_tasks();
    let (born, wished) = (Priority::BestEffort(3), Priority::BestEffort(1));
    let family = Family::start(&knobs, &roots, |parent| of_domain(parent, born));
    assert_eq!(family.has(), born);
    for priority in [born, wished] {
        knobs.apply(&of_domain(family.child, priority)).expect("it can be changed");
        assert_eq!(family.has(), priority);
    }
    // But what it has chosen itself stays.
    choose(family.child, Priority::Idle);
    for wanted in [of_domain(family.child, born), Wanted::default()] {
        knobs.apply(&wanted).expect("it can be changed");
        assert_eq!(family.has(), Priority::Idle);
    }
}

#[test]
fn who_is_started_by_a_program_loses_its_priority_whoever_has_ended_meanwhile_and_what_it_has_chosen_stays() {
    for is_told in [true, false] {
        let (_directory, roots, knobs) = on_real_tasks();
        let born = Priority::BestEffort(3);
        let heirs = |task| match is_told {
            true => Wanted { heirs: BTreeSet::from([task]), ..Wanted::default() },
            false => Wanted { any_heirs: true, ..Wanted::default() },
        };
        let mut family = Family::start(&knobs, &roots, |parent| given(parent, born));
        family.parent.0.kill().expect("it runs");
        family.parent.0.wait().expect("it has ended");
        assert_eq!(family.has(), born);
        knobs.apply(&heirs(family.child)).expect("it can be taken back");
        assert_eq!(family.has(), Priority::Unset);
        // As by ionice.
        choose(family.child, born);
        knobs.apply(&heirs(family.child)).expect("there is nothing to do");
        assert_eq!(family.has(), born);
    }
}

#[test]
fn what_a_task_of_a_domain_was_born_with_while_its_parent_was_set_back_is_not_its_own_choice_and_what_it_has_chosen_is()
 {
    let (_directory, roots, knobs) = on_real_tasks();
    let born = Priority::SET_BACK;
    for is_chosen in [false, true] {
        let family = Family::start(&knobs, &roots, |parent| of_domain(parent, born));
        if is_chosen {
            choose(family.child, born);
        }
        // Only root may give the real-time class; who may not has not taken the other one away either.
        let outcome = knobs.apply(&of_domain(family.child, Priority::OF_DOMAIN));
        assert_eq!(family.has() == born, is_chosen || outcome.is_err(), "{outcome:?}");
    }
}

#[test]
fn what_a_task_of_a_domain_was_born_with_is_taken_back_with_the_class_and_what_it_has_chosen_is_not() {
    let (_directory, roots, knobs) = on_real_tasks();
    let born = Priority::SET_BACK;
    for is_chosen in [false, true] {
        let family = Family::start(&knobs, &roots, |parent| of_domain(parent, born));
        if is_chosen {
            choose(family.child, born);
        }
        // By the last look it was to have this, and nobody came to give it.
        let left = BTreeMap::from([(family.child, Priority::OF_DOMAIN)]);
        knobs.apply(&Wanted { left, ..Wanted::default() }).expect("it can be taken back");
        assert_eq!(family.has() == born, is_chosen);
    }
}

#[test]
fn who_was_started_meanwhile_has_nothing_of_a_daemon_that_was_killed() {
    let (directory, roots, knobs) = on_real_tasks();
    let family = Family::start(&knobs, &roots, |parent| given(parent, Priority::BestEffort(3)));
    drop(knobs);
    let path = directory.path().join("state").join(libsteward::UNDO_JOURNAL);
    let report = steward_kernel::journal::revert(&path, &roots).expect("the journal can be used");
    assert_eq!((report.reverted.len(), family.has()), (1, Priority::Unset), "{report}");
}

#[test]
fn who_hands_the_disk_out_because_of_steward_is_noted_as_long_as_it_does_and_put_back_after_a_kill() {
    let control = "sys/fs/cgroup/cgroup.subtree_control";
    let (directory, roots, journal, knobs) = with(&[(control, "cpu io\n")]);
    let says = || std::fs::read_to_string(directory.path().join(control)).expect("a file");
    let outstanding = |journal: &OwnJournal| journal.as_ref().expect("a journal").outstanding();
    let id = std::fs::metadata(&roots.cgroup).expect("it is there").ino();
    let wanted = Wanted { handed_out: BTreeMap::from([(String::new(), id)]), ..Wanted::default() };
    for _ in 0..2 {
        knobs.apply(&wanted).expect("it can be noted");
        assert_eq!(outstanding(&journal), 1);
    }
    knobs.apply(&Wanted::default()).expect("nothing is to be done");
    assert_eq!(
        (outstanding(&journal), says().as_str()),
        (0, "cpu io\n"),
        "it is the daemon's loop that does it"
    );
    knobs.apply(&wanted).expect("it can be noted");
    // As after `kill -9`.
    drop((knobs, journal));
    let path = directory.path().join(libsteward::UNDO_JOURNAL);
    let report = steward_kernel::journal::revert(&path, &roots).expect("the journal can be used");
    assert_eq!((report.reverted.len(), says().as_str()), (1, "-io"), "{report}");
}

#[test]
fn that_the_kernels_flusher_comes_round_often_is_noted_meanwhile_and_leaves_nothing() {
    let file = "proc/sys/vm/dirty_writeback_centisecs";
    let (directory, roots, journal, knobs) = with(&[(file, "500\n")]);
    let says = || std::fs::read_to_string(directory.path().join(file)).expect("a file").trim().to_owned();
    let outstanding = || journal.as_ref().expect("a journal").outstanding();
    for (often, value, noted) in [(true, "25", 1), (true, "25", 1), (false, "500", 0), (false, "500", 0)] {
        knobs.flush_often(often).expect("it can be written");
        assert_eq!((says().as_str(), outstanding()), (value, noted));
    }
    knobs.flush();
    assert_eq!((says().as_str(), outstanding()), ("500", 0));
    // What somebody else has written meanwhile stays.
    knobs.flush_often(true).expect("it can be written");
    std::fs::write(directory.path().join(file), "77").expect("it can be written");
    knobs.flush_often(false).expect("it is left");
    assert_eq!((says().as_str(), outstanding()), ("77", 0));
    // As after `kill -9`.
    knobs.flush_often(true).expect("it can be written");
    drop(knobs);
    let path = directory.path().join(libsteward::UNDO_JOURNAL);
    drop(journal);
    let report = steward_kernel::journal::revert(&path, &roots).expect("the journal can be used");
    let after = std::fs::read_to_string(directory.path().join(file)).expect("a file");
    assert_eq!((report.reverted.len(), after.as_str()), (1, "77"), "{report}");
    let (_directory, _roots, _journal, knobs) = with(&[]);
    let why = knobs.flush_often(true).expect_err("there is no such file");
    assert!(why.contains("dirty_writeback_centisecs"), "{why}");
}

#[test]
fn it_is_told_what_came_of_it_where_nobody_is_told_who_waits_and_the_kernel_has_no_weights() {
    let (_directory, roots, _journal, knobs) = with(&[("sys/fs/cgroup/steward.a/io.stat", "")]);
    plug(&roots, "sda", 1);
    let cgroup_id = std::fs::metadata(roots.cgroup.join("steward.a")).expect("it is there").ino();
    let wanted = |with_weights: bool| Wanted {
        ordered: true,
        waits: true,
        disks: devices::present(&roots),
        weights: with_weights.then(|| ("steward.a".to_owned(), (cgroup_id, 1000))).into_iter().collect(),
        ..Wanted::default()
    };
    assert_eq!(knobs.outcome(), Outcome::default());
    knobs.apply(&wanted(false)).expect("it can be written");
    let settled = BTreeSet::from([("sda".to_owned(), 1)]);
    let without = Outcome { settled: settled.clone(), is_untold: true, ..Outcome::default() };
    assert_eq!(knobs.outcome(), without);
    knobs.apply(&wanted(true)).expect_err("there is no file for weights");
    assert_eq!(knobs.outcome(), Outcome { lacks_weights: true, ..without });
    // Both are known also while nobody needs them.
    knobs.apply(&Wanted::default()).expect("it can be put back");
    assert_eq!(knobs.outcome(), Outcome { is_untold: true, lacks_weights: true, ..Outcome::default() });
}

#[test]
fn a_disk_without_the_elevator_is_tried_again_once_that_is_loaded() {
    let (_directory, roots, _journal, knobs) = with(&[]);
    plug(&roots, "sda", 1);
    let queue = roots.sys.join("block/sda/queue");
    // Here it fails for want of the second file.
    std::fs::remove_file(queue.join("nr_requests")).expect("it is there");
    std::fs::create_dir(queue.join("nr_requests")).expect("a directory");
    let ordered = || Wanted { ordered: true, disks: devices::present(&roots), ..Wanted::default() };
    let says = || std::fs::read_to_string(queue.join("scheduler")).expect("a file");
    let faults = knobs.apply(&ordered()).expect_err("it cannot be written");
    assert!(faults[0].contains("modprobe bfq") && !knobs.outcome().may_succeed_later, "{faults:?}");
    std::fs::remove_dir(queue.join("nr_requests")).expect("it is there");
    std::fs::write(queue.join("nr_requests"), "2\n").expect("a file");
    std::fs::write(queue.join("scheduler"), "[mq-deadline] none\n").expect("a file");
    let faults = knobs.apply(&ordered()).expect_err("it is not tried again");
    assert!(faults[0].contains("modprobe bfq"), "{faults:?}");
    std::fs::write(queue.join("scheduler"), "[mq-deadline] none bfq\n").expect("a file");
    knobs.apply(&ordered()).expect("it can be written");
    assert_eq!(says(), "bfq");
}

#[test]
fn a_disk_that_has_the_elevator_and_is_only_just_coming_is_tried_again_when_it_is_time_to() {
    let (_directory, roots, journal, knobs) = with(&[]);
    plug(&roots, "sda", 1);
    let queue = roots.sys.join("block/sda/queue");
    let offered = "[mq-deadline] none bfq\n";
    std::fs::write(queue.join("scheduler"), offered).expect("a file");
    // As the kernel has it while the disk is coming, here of the second file.
    std::fs::remove_file(queue.join("nr_requests")).expect("it is there");
    let wanted =
        |again| Wanted { ordered: true, again, disks: devices::present(&roots), ..Wanted::default() };
    let first = wanted(0);
    let faults = knobs.apply(&first).expect_err("it cannot be written");
    assert!(faults[0].contains("No such file") && faults[0].contains("it is tried again"), "{faults:?}");
    assert!(!faults[0].contains("load"), "it is there: {faults:?}");
    assert!(knobs.outcome().may_succeed_later);
    // It has come: there is no sign of that but that it can be written.
    std::fs::write(queue.join("scheduler"), offered).expect("a file");
    std::fs::write(queue.join("nr_requests"), "2\n").expect("a file");
    assert_eq!(wanted(0), first);
    assert_eq!(knobs.apply(&first).expect_err("it is not time yet"), faults, "the same, and nothing to log");
    assert_eq!(std::fs::read_to_string(queue.join("scheduler")).expect("a file"), offered);
    knobs.apply(&wanted(1)).expect("it can be written");
    assert_eq!(std::fs::read_to_string(queue.join("scheduler")).expect("a file"), "bfq");
    assert!(!knobs.outcome().may_succeed_later);
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 1);
}

#[test]
fn a_disk_is_charged_with_weights_where_they_count_and_all_is_put_back() {
    let way = Way { bytes_per_second: 500, sequential_per_second: 22, random_per_second: 20 };
    let charged = Charged { sequence: 1, model: Model { read: way, write: way } };
    let (_directory, roots, journal, knobs) = with(&[
        ("sys/fs/cgroup/io.cost.model", ""),
        ("sys/fs/cgroup/io.cost.qos", ""),
        // Nobody has loaded BFQ.
        ("sys/fs/cgroup/steward.a/io.weight", "default 100\n"),
    ]);
    let cgroup = roots.cgroup.join("steward.a");
    let cgroup_id = std::fs::metadata(&cgroup).expect("it is there").ino();
    let now = |file: &str| std::fs::read_to_string(roots.cgroup.join(file)).expect("a file");
    let wanted = |charged: Option<Charged>| Wanted {
        weights: BTreeMap::from([("steward.a".to_owned(), (cgroup_id, 1000))]),
        any_charged: charged.is_some(),
        charged: charged.map(|charged| ("8:0".to_owned(), charged)).into_iter().collect(),
        ..Wanted::default()
    };
    knobs.apply(&wanted(Some(charged))).expect("it can be written");
    assert_eq!(now("io.cost.model"), charged.model.to_kernel("8:0"));
    assert_eq!(now("io.cost.qos"), charged.model.quality("8:0"));
    assert_eq!(now("steward.a/io.weight"), "default 1000");
    // Calibrated anew.
    let again =
        Charged { model: Model { read: Way { random_per_second: 21, ..way }, write: way }, ..charged };
    knobs.apply(&wanted(Some(again))).expect("it can be written");
    assert_eq!(now("io.cost.model"), again.model.to_kernel("8:0"));
    // It is no longer charged, and without BFQ weights count nowhere then.
    let faults = knobs.apply(&wanted(None)).expect_err("nothing divides a disk's time");
    assert!(faults[0].contains("no disk of this machine has the elevator BFQ"), "{faults:?}");
    knobs.apply(&Wanted::default()).expect("it can be put back");
    assert_eq!(now("io.cost.qos"), "8:0 enable=0 ctrl=auto");
    assert_eq!(now("io.cost.model"), "8:0 ctrl=auto");
    assert_eq!(now("steward.a/io.weight"), "default 100");
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 0);
}

#[test]
fn a_disk_that_is_found_not_to_rotate_loses_the_elevator_and_one_that_is_kept_never_gets_one() {
    let queue = "sys/block/vda/queue";
    let (directory, _roots, journal, knobs) = with(&[
        ("sys/block/vda/dev", "254:0\n"),
        ("sys/block/vda/serial", "one\n"),
        ("sys/block/vda/mq/0/nr_tags", "4\n"),
        ("sys/block/vda/queue/rotational", "1\n"),
        ("sys/block/vda/queue/scheduler", "[none] mq-deadline bfq\n"),
        ("sys/block/vda/queue/nr_requests", "64\n"),
    ]);
    let says = |file: &str| {
        let text = std::fs::read_to_string(directory.path().join(queue).join(file)).expect("a file");
        text.trim().to_owned()
    };
    let wanted = |known: Known| Wanted { ordered: true, known, ..Wanted::default() };
    let keep = config::Config {
        devices: BTreeMap::from([("vda".to_owned(), config::Order::Keep)]),
        ..config::Config::default()
    };
    knobs.apply(&wanted(Known { config: keep, ..Known::default() })).expect("nothing is to be done");
    assert_eq!(says("nr_requests"), "64");
    knobs.apply(&wanted(Known::default())).expect("it can be written");
    assert_eq!((says("scheduler").as_str(), says("nr_requests").as_str()), ("bfq", "128"));
    let way = Way { bytes_per_second: 500 << 20, sequential_per_second: 22_000, random_per_second: 20_000 };
    let mut known = Known::default();
    known.calibrations.put(Calibration {
        identity: "serial number one".to_owned(),
        name: "vda".to_owned(),
        measured_at: 7,
        model: Model { read: way, write: way },
    });
    knobs.apply(&wanted(known)).expect("it can be put back");
    assert_eq!(says("nr_requests"), "64");
    assert_eq!(journal.as_ref().expect("a journal").outstanding(), 0);
}

#[test]
fn where_the_kernel_has_not_the_first_elevator_the_second_is_taken_and_other_trouble_is_said() {
    let first = Order {
        elevator: elevator::BY_CLASS,
        requests: 128,
        writes: None,
        guesses_nothing: false,
        tunables: &[],
        moments: &[],
    };
    let refuses = |elevator: &str, errno| {
        JournalError::Kernel(KernelError::Write {
            path: "/sys/block/sda/queue/scheduler".into(),
            value: elevator.to_owned(),
            source: std::io::Error::from_raw_os_error(errno),
        })
    };
    let order = |lacking: &'static [&'static str], errno| {
        or_second(first, move |order| match lacking.contains(&order.elevator) {
            true => Err(refuses(order.elevator, errno)),
            false => Ok(order.elevator),
        })
    };
    let (second, done) = order(&["bfq"], libc::EINVAL).expect("the second one is there");
    assert_eq!((second, done), (first.without_by_class(), "mq-deadline"));
    assert_eq!(order(&[], libc::EINVAL).expect("the first one is there").1, "bfq");
    for (lacking, errno) in [(&["bfq", "mq-deadline"][..], libc::EINVAL), (&["bfq"], libc::EIO)] {
        let error = order(lacking, errno).expect_err("it cannot be done").to_string();
        assert!(error.contains("bfq"), "{error}");
    }
}

/// The kernel forgets a limit with its disk; another one, or the same, may have the number within a second.
#[test]
fn a_disk_that_comes_again_under_its_number_is_limited_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let roots = Roots::under(directory.path());
    let cgroup = roots.cgroup.join("steward.a");
    for (path, text) in [(cgroup.join("io.max"), ""), (roots.proc.join("sys/kernel/random/boot_id"), "one\n")]
    {
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    let cgroup_id = std::fs::metadata(&cgroup).expect("it is there").ino();
    let journal = crate::files::journal::open(directory.path(), &roots);
    let knobs = KernelKnobs::new(&roots, &journal, || Err("nobody".to_owned()), || Err("nobody".to_owned()));
    let max = Limit { bytes_per_second: Some(2 << 20), requests_per_second: None };
    let apply = |sequence| {
        let limited = Limited { cgroup_id, sequence, max };
        let limits = BTreeMap::from([(("steward.a".to_owned(), "8:0".to_owned()), limited)]);
        knobs.apply(&Wanted { limits, ..Wanted::default() }).expect("it can be written");
        std::fs::read_to_string(cgroup.join("io.max")).expect("a file")
    };
    let in_force = "8:0 rbps=2097152 wbps=2097152 riops=max wiops=max";
    assert_eq!(apply(1), in_force);
    std::fs::write(cgroup.join("io.max"), "").expect("a file");
    assert_eq!(apply(1), "", "what is in force is not written again");
    assert_eq!(apply(2), in_force);
    let outstanding = || journal.as_ref().expect("a journal").outstanding();
    assert_eq!(outstanding(), 1);
    // With the cgroup, what there was to put back has gone.
    std::fs::remove_dir_all(&cgroup).expect("it goes");
    knobs.apply(&Wanted::default()).expect("there is nothing to do");
    assert_eq!(outstanding(), 0);
}

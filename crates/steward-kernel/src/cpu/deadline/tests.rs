//! SCHED_DEADLINE for real, on children that wait for input. Skipped, with the reason, where the kernel does not let
//! the caller make reservations.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use steward_core::cpu::reservation::{IrrevocableFor, Reservation};
use steward_core::spec::TargetFacts;

use super::*;
use crate::journal::{self, Journal};
use crate::process::executable;

/// The kernel has one account of reserved bandwidth, so one test at a time draws on it, over all processes.
struct Alone(File);

impl Alone {
    fn wait() -> Self {
        let path = std::env::temp_dir().join("steward-deadline-tests.lock");
        let file = File::create(path).expect("a lock file");
        flock(&file, FlockOperation::LockExclusive).expect("a lock");
        Alone(file)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

struct Place {
    mechanism: DeadlineMechanism,
    directory: tempfile::TempDir,
    _alone: Alone,
}

impl Place {
    /// `None`, with the reason printed, where reservations can not be tried.
    fn new() -> Option<Self> {
        let alone = Alone::wait();
        let probe = Waiting::start("cat".as_ref());
        let before = scheduling::read(probe.tid()).expect("it runs");
        if let Err(error) =
            scheduling::write(probe.tid(), &Scheduling::deadline(1_000_000, 100_000_000, true))
        {
            println!("skipped: no reservation can be made here: {error}");
            return None;
        }
        let given = scheduling::read(probe.tid()).expect("it runs");
        rescheduling::leave(&Real(&Roots::default()), probe.tid(), &given, &before)
            .expect("what was given can be taken");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let journal = Journal::open(&directory.path().join("undo"), &Roots::default()).expect("a journal");
        let mechanism = DeadlineMechanism::new(Roots::default(), journal).expect("procfs");
        Some(Place { mechanism, directory, _alone: alone })
    }

    fn scan(&mut self) {
        let all = process::list_first_threads(&Roots::default()).expect("procfs");
        self.mechanism.scan(&all).expect("the scan succeeds");
    }

    /// A program that no other process runs, so that a table entry for it concerns only this test.
    fn own_program(&self) -> (PathBuf, FileIdentity) {
        self.copy_of("/bin/cat", "waiter")
    }

    fn copy_of(&self, program: &str, name: &str) -> (PathBuf, FileIdentity) {
        let path = self.directory.path().join(name);
        // By another process: a file that a fork of this one has open for writing cannot be executed (ETXTBSY).
        let copied = Command::new("cp").arg(program).arg(&path).status().expect("every machine has cp");
        assert!(copied.success());
        match executable::identify(&path, &Roots::default()).expect("it is there") {
            TargetFacts::Executable { identity } => (path, identity),
            other => panic!("not a program: {other:?}"),
        }
    }

    /// The rule that the record of a task says it was refused by, with its amount.
    fn refused_by(&mut self, tid: i32) -> Option<(Rule, f64)> {
        let tasks = self.mechanism.snapshot().expect("in force").tasks;
        let reason = tasks.iter().find(|task| task.tid == tid)?.reason?;
        Some((reason.rule, reason.amount))
    }

    fn events(&mut self, tid: i32) -> Vec<EventKind> {
        let mut kinds = Vec::new();
        let lost = self.mechanism.take_events(&mut |event| {
            if event.tid == tid {
                kinds.push(event.kind);
            }
        });
        assert_eq!(lost, 0);
        kinds
    }
}

/// A child that waits for input until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(program: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child that waits");
        // Once it has echoed a byte it runs its own program.
        use std::io::{Read, Write};
        child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it echoes");
        Waiting(child)
    }

    fn tid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }

    fn scheduling(&self) -> Scheduling {
        scheduling::read(self.tid()).expect("it runs")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn grant(budget_ms: u64, period_ms: u64) -> Grant {
    let reservation = Reservation { budget_ns: budget_ms * 1_000_000, period_ns: period_ms * 1_000_000 };
    let irrevocable_for = IrrevocableFor::Root;
    Grant {
        reservation,
        inherit: false,
        revocable: true,
        irrevocable_for,
        keep_over_exec: false,
        spec_id: 7,
        requests_at: None,
    }
}

#[test]
fn a_task_gets_its_reservation_and_is_put_back_as_it_was() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    scheduling::write(child.tid(), &child.scheduling().with_nice(3)).expect("anyone may be nicer");
    let before = child.scheduling();
    let standing = place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    assert_eq!(standing, Some(Standing::Admitted));
    assert!(child.scheduling().is_same_choice(&Scheduling::deadline(5_000_000, 30_000_000, true)));
    assert_ne!(child.scheduling().flags & scheduling::FLAG_RESET_ON_FORK, 0);

    let snapshot = place.mechanism.snapshot().expect("it is in force");
    assert_eq!(snapshot.tasks.len(), 1);
    let record = &snapshot.tasks[0];
    assert_eq!((record.tid, record.pid, record.standing), (child.tid(), child.tid(), Standing::Admitted));
    assert!(record.budget_left_ns <= 5_000_000);
    let total: f64 = snapshot.cpus.iter().map(|cpu| cpu.reserved).sum();
    assert!((total - 5.0 / 30.0).abs() < 1e-9, "{total}");

    assert_eq!(place.mechanism.assign(child.tid(), None).expect("it runs"), None);
    assert_eq!(child.scheduling(), before);
    assert_eq!(place.events(child.tid()), vec![EventKind::Admitted, EventKind::Released]);
}

#[test]
fn stopping_the_mechanism_puts_every_task_back() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let before = child.scheduling();
    place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    drop(place);
    assert_eq!(child.scheduling(), before);
}

#[test]
fn what_a_killed_daemon_left_is_put_back_from_its_journal() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let before = child.scheduling();
    place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    // The lock of the journal itself is still held, as it would not be after the daemon's death.
    let left_behind = place.directory.path().join("left-behind");
    std::fs::copy(place.directory.path().join("undo"), &left_behind).expect("a copy");
    let report = journal::revert(&left_behind, &Roots::default()).expect("the journal can be used");
    assert_eq!((report.reverted.len(), report.failed.len()), (1, 0), "{report}");
    assert_eq!(child.scheduling(), before);
}

#[test]
fn a_new_grant_takes_the_place_of_the_old_one() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let before = child.scheduling();
    place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    place.mechanism.assign(child.tid(), Some(grant(10, 100))).expect("it runs");
    assert_eq!(child.scheduling().period_ns, 100_000_000);
    place.mechanism.assign(child.tid(), None).expect("it runs");
    assert_eq!(child.scheduling(), before);
}

#[test]
fn what_the_kernel_refuses_stays_an_ordinary_task() {
    let Some(mut place) = Place::new() else { return };
    let everything = Thresholds { admit_below: 1000.0, ..Thresholds::default() };
    place.mechanism.set_thresholds(everything).expect("in force");
    let count = place.mechanism.cpu_count + 1;
    let children: Vec<Waiting> = (0..count).map(|_| Waiting::start("cat".as_ref())).collect();
    let standings: Vec<_> = children
        .iter()
        .map(|child| place.mechanism.assign(child.tid(), Some(grant(30, 30))).expect("it runs"))
        .collect();
    let Some(refused) = standings.iter().position(|standing| *standing == Some(Standing::Refused)) else {
        println!("skipped: this kernel admits more than it has (sched_rt_runtime_us is -1)");
        return;
    };
    assert_eq!(children[refused].scheduling().policy, scheduling::POLICY_NORMAL);
    // The kernel has one pot for all: another test may have made room meanwhile, and then it is taken back.
    assert_eq!(place.events(children[refused].tid()).first(), Some(&EventKind::Refused));
    assert!(matches!(place.refused_by(children[refused].tid()), Some((Rule::KernelFull, _))));
}

#[test]
fn a_refused_task_is_taken_in_once_there_is_room() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    place
        .mechanism
        .set_thresholds(Thresholds { admit_below: 0.01, ..Thresholds::default() })
        .expect("in force");
    let standing = place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    assert_eq!(standing, Some(Standing::Refused));
    assert_eq!(place.refused_by(child.tid()), Some((Rule::Load, 0.0)));
    place.scan();
    assert_eq!(child.scheduling().policy, scheduling::POLICY_NORMAL);
    place.mechanism.set_thresholds(Thresholds::default()).expect("in force");
    place.scan();
    assert_eq!(child.scheduling().policy, POLICY_DEADLINE);
    assert_eq!(place.events(child.tid()), vec![EventKind::Refused, EventKind::Reactivated]);
}

#[test]
fn a_scan_gives_a_program_its_specification_and_forgets_it_when_it_ends() {
    let Some(mut place) = Place::new() else { return };
    let (program, identity) = place.own_program();
    let child = Waiting::start(&program);
    let tid = child.tid();
    place.mechanism.set_exec_table(&[(identity, Some(grant(5, 30)))]).expect("there is room");
    place.scan();
    assert_eq!(child.scheduling().policy, POLICY_DEADLINE);
    place.scan();
    assert_eq!(place.events(tid), vec![EventKind::Admitted]);
    drop(child);
    place.scan();
    assert_eq!(place.events(tid), vec![EventKind::Released]);
    assert!(place.mechanism.snapshot().expect("in force").tasks.is_empty());
    assert!(place.mechanism.journal.outstanding() == 0);
}

#[test]
fn a_program_of_an_interactive_shell_is_given_its_specification_as_soon_as_it_starts() {
    let Some(mut place) = Place::new() else { return };
    if place.mechanism.scan_interval() < Duration::from_secs(10) {
        println!("skipped: the kernel does not tell of processes here");
        return;
    }
    let (shell, shell_identity) = place.copy_of("/bin/sh", "shell");
    let (waiter, waiter_identity) = place.own_program();
    place
        .mechanism
        .set_exec_table(&[(shell_identity, Some(grant(1, 100))), (waiter_identity, Some(grant(5, 30)))])
        .expect("there is room");
    let mut shell =
        Waiting(Command::new(shell).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell"));
    place.scan();
    assert_eq!(place.events(shell.tid()), vec![EventKind::Admitted]);
    let commands = format!("{}; exit\n", waiter.display());
    std::io::Write::write_all(shell.0.stdin.as_mut().expect("a pipe"), commands.as_bytes())
        .expect("it reads");

    // SAFETY: the mechanism keeps its descriptor open for as long as it lives.
    let descriptor = place.mechanism.event_descriptor().expect("there is one");
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    let mut admitted = None;
    while admitted.is_none() {
        let mut waiting = [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut waiting, None).expect("it becomes readable");
        place.mechanism.take_events(&mut |event| {
            if event.kind == EventKind::Admitted && event.bandwidth > 0.1 {
                admitted = Some(event.tid);
            }
        });
    }
    let child = admitted.expect("it was admitted");
    assert_ne!(child, shell.tid());
    assert_eq!(scheduling::read(child).expect("it waits for input").period_ns, 30_000_000);
}

#[test]
fn what_was_lost_is_made_up_for_by_and_by_whoever_is_looked_at_first() {
    use std::io::{BufRead, BufReader, Write};
    for child_first in [true, false] {
        let Some(mut place) = Place::new() else { return };
        // Nobody tells of anything.
        place.mechanism.follower.events = None;
        let (shell, shell_identity) = place.copy_of("/bin/sh", "shell");
        let (second, second_identity) = place.copy_of("/bin/sh", "second");
        let (waiter, waiter_identity) = place.own_program();
        let table = [
            (shell_identity, Some(grant(1, 100))),
            (second_identity, Some(grant(1, 100))),
            (waiter_identity, Some(grant(5, 30))),
        ];
        place.mechanism.set_exec_table(&table).expect("there is room");
        let inner = format!("exec 3<&0; {} <&3 & echo $!; wait", waiter.display());
        let outer = format!("read line; {} -c '{inner}'; wait", second.display());
        let mut outer = Waiting(
            Command::new(shell)
                .args(["-c", &outer])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell"),
        );
        place.scan();
        assert_eq!(place.events(outer.tid()), vec![EventKind::Admitted]);

        outer.0.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(outer.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("it says who");
        let pid = line.trim().parse().expect("a number");
        let roots = Roots::default();
        let runs_it = || {
            let found = process::find(pid, &roots).expect("procfs");
            found.is_some_and(|process| process.executable == Some(waiter_identity))
        };
        while !runs_it() {
            std::thread::yield_now();
        }
        assert_eq!(scheduling::read(pid).expect("it runs").policy, scheduling::POLICY_NORMAL);
        if child_first {
            place.mechanism.look_at(pid).expect("it can be given");
        } else {
            place.mechanism.begin_look();
            while place.mechanism.follower.look.is_some() {
                place.mechanism.look_on().expect("it can be given");
            }
        }
        assert_eq!(scheduling::read(pid).expect("it runs").policy, POLICY_DEADLINE);
        assert_eq!(place.events(pid), vec![EventKind::Admitted]);
    }
}

#[test]
fn who_has_ended_without_a_word_is_forgotten_by_and_by() {
    let Some(mut place) = Place::new() else { return };
    place.mechanism.follower.events = None;
    let (program, identity) = place.own_program();
    let child = Waiting::start(&program);
    let tid = child.tid();
    place.mechanism.set_exec_table(&[(identity, Some(grant(5, 30)))]).expect("there is room");
    place.scan();
    assert_eq!(place.events(tid), vec![EventKind::Admitted]);
    drop(child);
    place.mechanism.begin_look();
    // What is lost meanwhile is looked for once more.
    place.mechanism.begin_look();
    let mut looks = 0;
    while let Some(look) = &place.mechanism.follower.look {
        looks += i32::from(look.is_to_be_repeated());
        place.mechanism.look_on().expect("there is nothing to be put back");
    }
    assert!(looks > 0);
    assert_eq!(place.events(tid), vec![EventKind::Released]);
    assert!(!place.mechanism.lineage.processes().any(|pid| pid == tid));
}

#[test]
fn a_program_that_a_best_effort_task_starts_must_be_allowed() {
    let Some(mut place) = Place::new() else { return };
    let (program, identity) = place.own_program();
    place.scan();
    place.mechanism.set_exec_table(&[(identity, Some(grant(5, 30)))]).expect("there is room");
    let child = Waiting::start(&program);
    place.scan();
    assert_eq!(child.scheduling().policy, scheduling::POLICY_NORMAL);
    assert!(place.events(child.tid()).is_empty());
}

#[test]
fn a_task_confined_to_one_cpu_gets_a_better_nice_value_instead() {
    let Some(mut place) = Place::new() else { return };
    if place.mechanism.cpu_count < 2 {
        println!("skipped: with one CPU no task is confined");
        return;
    }
    let child = Waiting::start("cat".as_ref());
    let before = child.scheduling();
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(child.tid()), &one)
        .expect("its parent may");
    let standing = place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    assert_eq!(standing, Some(Standing::Refused));
    assert_eq!(child.scheduling(), before.with_nice(CONFINED_NICE));
    place.mechanism.assign(child.tid(), None).expect("it runs");
    assert_eq!(child.scheduling(), before);
}

#[test]
fn a_thread_of_the_kernel_is_never_asked_a_reservation_for() {
    let Some(mut place) = Place::new() else { return };
    let all = process::list_first_threads(&Roots::default()).expect("procfs");
    let ordinary = |process: &&Process| {
        process.kernel_thread
            && scheduling::read(process.id.tid)
                .is_ok_and(|now| now.policy == scheduling::POLICY_NORMAL && now.nice == 0)
    };
    let Some(thread) = all.iter().filter(ordinary).find(|process| process.name.starts_with("kthreadd"))
    else {
        println!("skipped: no thread of the kernel is to be seen here");
        return;
    };
    let before = scheduling::read(thread.id.tid).expect("it runs");
    let standing = place.mechanism.assign(thread.id.tid, Some(grant(1, 100))).expect("it runs");
    let given = scheduling::read(thread.id.tid).expect("it runs");
    assert_eq!(place.refused_by(thread.id.tid), Some((Rule::Confined, f64::from(CONFINED_NICE))));
    place.mechanism.assign(thread.id.tid, None).expect("it runs");
    assert_eq!((standing, given), (Some(Standing::Refused), before.with_nice(CONFINED_NICE)));
    assert_eq!(scheduling::read(thread.id.tid).expect("it runs"), before);
}

#[test]
fn after_ejections_there_are_nice_values_and_nothing_else() {
    let Some(Place { mechanism, directory, _alone }) = Place::new() else { return };
    drop(mechanism);
    let journal = Journal::open(&directory.path().join("undo"), &Roots::default()).expect("a journal");
    let mut mechanism = DeadlineMechanism::with_nice_values_only(Roots::default(), journal).expect("procfs");
    assert_eq!(mechanism.kind(), MechanismKind::Nice);
    let children: Vec<Waiting> = (0..3).map(|_| Waiting::start("cat".as_ref())).collect();
    let before = children[0].scheduling();
    for child in &children {
        // More than the machine has: nothing of it is taken.
        mechanism.assign(child.tid(), Some(grant(99, 100))).expect("it runs");
        assert_eq!(child.scheduling(), before.with_nice(CONFINED_NICE));
    }
    assert!(mechanism.snapshot().expect("in force").cpus.iter().all(|cpu| cpu.reserved == 0.0));
    drop(mechanism);
    assert!(children.iter().all(|child| child.scheduling() == before));
}

#[test]
fn a_period_out_of_the_kernels_range_is_an_error_that_says_so() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let error = place.mechanism.assign(child.tid(), Some(grant(1, 100_000_000))).expect_err("27 hours");
    assert!(error.to_string().contains("sched_deadline_period_max_us"), "{error}");
    assert!(place.mechanism.journal.outstanding() == 0);
}

#[test]
fn a_task_with_a_real_time_policy_of_its_own_is_left_alone() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let own = Scheduling { policy: POLICY_FIFO, priority: 5, ..Scheduling::default() };
    if let Err(error) = scheduling::write(child.tid(), &own) {
        println!("skipped: no real-time policy here: {error}");
        return;
    }
    let standing = place.mechanism.assign(child.tid(), Some(grant(5, 30))).expect("it runs");
    assert_eq!(standing, Some(Standing::Refused));
    assert_eq!(place.refused_by(child.tid()), Some((Rule::OwnPolicy, 0.0)));
    assert_eq!(child.scheduling().policy, POLICY_FIFO);
}

#[test]
fn a_task_that_has_ended_is_told_apart() {
    let Some(mut place) = Place::new() else { return };
    let child = Waiting::start("cat".as_ref());
    let tid = child.tid();
    drop(child);
    let error = place.mechanism.assign(tid, Some(grant(5, 30))).expect_err("it has ended");
    assert!(matches!(error, MechanismError::NoSuchTask { .. }), "{error}");
    assert!(matches!(place.mechanism.allow_interactive_exec(tid), Err(MechanismError::NoSuchTask { .. })));
}

/// Notes what it is told, and whether the file said so already.
#[derive(Debug, Default)]
struct Told(std::sync::Arc<std::sync::Mutex<Vec<(char, String)>>>);

impl Watchdog for Told {
    fn changing(&mut self, file: &std::path::Path, back: &str) -> std::io::Result<()> {
        assert_eq!(back, "0");
        let says = std::fs::read_to_string(file)?;
        self.0.lock().expect("no panic").push(('+', says));
        Ok(())
    }

    fn changed_back(&mut self, file: &std::path::Path) {
        let says = std::fs::read_to_string(file).unwrap_or_default();
        self.0.lock().expect("no panic").push(('-', says));
    }
}

#[test]
fn a_cgroup_is_frozen_only_after_the_journal_and_the_watchdog_know_and_thawed_before_they_forget() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let journal_path = directory.path().join("undo");
    let file = directory.path().join("cgroup.freeze");
    let other = directory.path().join("of-somebody-else");
    std::fs::write(&file, "0\n").expect("written");
    std::fs::write(&other, "1\n").expect("written");
    let journal = Journal::open(&journal_path, &Roots::default()).expect("a journal");
    let mut mechanism = DeadlineMechanism::new(Roots::default(), journal).expect("procfs");
    let error = mechanism.freeze(7, file.clone()).expect_err("nobody would thaw it").to_string();
    assert!(error.contains("cgroup.freeze"), "{error}");
    let told = Told::default();
    let seen = told.0.clone();
    mechanism.set_watchdog(Box::new(told));
    mechanism.freeze(7, file.clone()).expect("frozen");
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "1");
    assert!(std::fs::read_to_string(&journal_path).expect("readable").contains("cgroup.freeze"));
    mechanism.freeze(8, other.clone()).expect("nothing to do");
    mechanism.set_frozen(7, "", false).expect("thawed");
    drop(mechanism);
    assert_eq!(std::fs::read_to_string(&file).expect("readable").trim(), "0");
    assert_eq!(std::fs::read_to_string(&other).expect("readable").trim(), "1", "theirs to thaw");
    let seen: Vec<(char, String)> = seen.lock().expect("no panic").clone();
    let seen: Vec<(char, &str)> = seen.iter().map(|(sign, says)| (*sign, says.trim())).collect();
    assert_eq!(seen, [('+', "0"), ('+', "1"), ('-', "1"), ('-', "0")]);
}

//! The interactive class: reservations, how they come about, and what overload does.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use steward_core::cpu::event::EventKind;
use steward_core::cpu::mechanism::{Mechanism, Standing};
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_core::cpu::thresholds::Thresholds;
use steward_core::process::FileIdentity;
use steward_sched::SchedExt;

use crate::programs::{
    AT_THE_GATE, Group, Program, children, events, has_started, measure, named_pipe, own_path, record,
    shared, snapshot, wait_until,
};
use crate::{Outcome, check};

pub fn grant(budget_us: u64, period_us: u64) -> Grant {
    Grant {
        reservation: Reservation { budget_ns: budget_us * 1000, period_ns: period_us * 1000 },
        inherit: false,
        revocable: true,
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec: false,
        requests_at: None,
        spec_id: 7,
    }
}

pub fn assign(scheduler: &mut SchedExt, pid: i32, grant: Grant) -> Result<Standing, String> {
    scheduler
        .assign(pid, Some(grant))
        .map_err(|error| error.to_string())?
        .ok_or_else(|| "no standing".to_owned())
}

/// A copy of this program under another name, so that it is an executable of its own.
pub fn copy_of_self(name: &str) -> Result<(PathBuf, FileIdentity), String> {
    use std::os::unix::fs::MetadataExt;
    let path = PathBuf::from("/tmp").join(name);
    std::fs::copy(own_path(), &path).map_err(|error| format!("copying to {}: {error}", path.display()))?;
    let facts = std::fs::metadata(&path).map_err(|error| error.to_string())?;
    let device = u64::from(libc::major(facts.dev())) << 20 | u64::from(libc::minor(facts.dev()));
    Ok((path, FileIdentity { device, inode: facts.ino() }))
}

/// A quarter of a CPU against 30 loops at nice -20, where a fair share would be a fifteenth, and no deadline missed.
pub fn reservation_holds() -> Outcome {
    let mut scheduler = shared()?;
    let player = Program::start(&["spin"]);
    let loops: Vec<Program> = (0..30).map(|_| Program::start(&["spin"])).collect();
    let loops: Vec<Program> = loops.into_iter().map(|program| program.nice(-20)).collect();
    let standing = assign(&mut scheduler, player.pid(), grant(5_000, 20_000))?;
    check!(standing == Standing::Admitted, "it was {standing}");
    sleep(Duration::from_secs(1));
    let before = record(&mut scheduler, player.pid()).ok_or("no record")?;
    let share = measure(&[&player], 5.0)[0] / 5000.0;
    let after = record(&mut scheduler, player.pid()).ok_or("no record")?;
    drop((player, loops));
    drop(scheduler);
    let (periods, missed) =
        (after.periods - before.periods, after.deadlines_missed - before.deadlines_missed);
    check!(share > 0.245, "it got {share:.4} of a CPU, promised 0.25");
    check!(missed == 0, "{missed} of {periods} deadlines missed");
    check!(periods > 240, "only {periods} periods in 5 s of 20 ms");
    Ok(format!(
        "share {share:.4}, {periods} periods, {missed} missed, overrun at most {} us",
        after.overrun_max_ns / 1000
    ))
}

/// A loop goes on as best-effort work on the other CPU, which nobody else wants, once its budget is spent. When its
/// next period begins it is back on its own at once: neither it nor the one that is pinned there misses a deadline.
pub fn back_on_its_cpu() -> Outcome {
    let mut scheduler = shared()?;
    let (free, other) = (Program::start(&["spin"]), Program::start(&["spin"]));
    assign(&mut scheduler, free.pid(), grant(19_000, 50_000))?;
    let home = record(&mut scheduler, free.pid()).ok_or("no record")?.cpu;
    let pinned = other.pin(home as usize);
    let standing = assign(&mut scheduler, pinned.pid(), grant(2_000, 5_000))?;
    check!(standing == Standing::Admitted, "the one that is pinned was {standing}");
    sleep(Duration::from_secs(1));
    let mut missed = Vec::new();
    for _ in 0..2 {
        let records = [record(&mut scheduler, free.pid()), record(&mut scheduler, pinned.pid())];
        check!(records.iter().flatten().all(|task| task.cpu == home), "{records:?}");
        missed.push(records.iter().flatten().map(|task| task.deadlines_missed).sum::<u64>());
        sleep(Duration::from_secs(3));
    }
    drop((free, pinned));
    drop(scheduler);
    let missed = missed[1] - missed[0];
    check!(missed <= 2, "{missed} deadlines missed in 3 s");
    Ok(format!("{missed} deadlines missed in 3 s"))
}

/// A greedy task with 0.3 ms in every millisecond: what it takes out of its reservation never exceeds it.
pub fn fine_budgets() -> Outcome {
    let mut scheduler = shared()?;
    let loops: Vec<Program> = (0..8).map(|_| Program::start(&["spin"])).collect();
    let greedy = Program::start(&["spin"]);
    assign(&mut scheduler, greedy.pid(), grant(300, 1_000))?;
    sleep(Duration::from_secs(1));
    let (at, before) = {
        let snapshot = snapshot(&mut scheduler)?;
        (snapshot.at_ns, record(&mut scheduler, greedy.pid()).ok_or("no record")?)
    };
    sleep(Duration::from_secs(4));
    let snapshot = snapshot(&mut scheduler)?;
    let after = record(&mut scheduler, greedy.pid()).ok_or("no record")?;
    drop((greedy, loops));
    drop(scheduler);
    let share = (after.reserved_time_ns - before.reserved_time_ns) as f64 / (snapshot.at_ns - at) as f64;
    let overrun_us = after.overrun_max_ns / 1000;
    check!(share > 0.28 && share < 0.303, "reserved time is {share:.4} of the CPU, promised 0.3");
    check!(overrun_us < 1000, "a budget of 300 us was overrun by {overrun_us} us, the tick is 4,000 us");
    Ok(format!(
        "share {share:.4} of 0.3, overrun at most {overrun_us} us, {} missed",
        after.deadlines_missed - before.deadlines_missed
    ))
}

/// A program with a specification, started by a best-effort task, stays best-effort.
pub fn no_way_up() -> Outcome {
    let mut scheduler = shared()?;
    let (path, file) = copy_of_self("film-a")?;
    scheduler.set_exec_table(&[(file, Some(grant(5_000, 30_000)))]).map_err(|error| error.to_string())?;
    let program = Program::start_file(&path, &["spin"]);
    sleep(Duration::from_millis(500));
    let found = record(&mut scheduler, program.pid());
    drop(program);
    drop(scheduler);
    check!(found.is_none(), "it has a specification: {found:?}");
    Ok("no specification was taken up".to_owned())
}

/// The same program started by an interactive parent is interactive from its first instruction on.
pub fn specification_at_exec() -> Outcome {
    let mut scheduler = shared()?;
    let (path, file) = copy_of_self("film-b")?;
    scheduler.set_exec_table(&[(file, Some(grant(5_000, 30_000)))]).map_err(|error| error.to_string())?;
    // This program is the interactive parent.
    // SAFETY: plain system call.
    let me = unsafe { libc::getpid() };
    assign(&mut scheduler, me, grant(5_000, 100_000))?;
    let program = Program::start_file(&path, &["spin"]);
    let plain = Program::start(&["spin"]);
    sleep(Duration::from_millis(500));
    let found = record(&mut scheduler, program.pid());
    let other = record(&mut scheduler, plain.pid());
    let _ = scheduler.assign(me, None);
    drop((program, plain));
    drop(scheduler);
    let found = found.ok_or("it took up no specification")?;
    check!(found.standing == Standing::Admitted && found.name == "film-b", "{found:?}");
    check!(other.is_none(), "a program without a specification has one: {other:?}");
    Ok(format!("{} is {} with specification {}", found.name, found.standing, found.grant.spec_id))
}

/// Who was not seen to execute has the program's specification when it first ceases to run, or starts a child, who has
/// it too if that is inherited; who has executed nothing keeps what it was given, and who executes a program without a
/// specification loses it.
pub fn unseen_executions() -> Outcome {
    let mut scheduler = shared()?;
    let gate = "/tmp/unseen";
    named_pipe(gate)?;
    let (path, file) = copy_of_self("film-d")?;
    let (parent_path, parent_file) = copy_of_self("film-e")?;
    let plain = copy_of_self("plain")?.0;
    let inherited = Grant { inherit: true, ..grant(1_000, 30_000) };
    let table = [(file, Some(grant(5_000, 30_000))), (parent_file, Some(inherited))];
    scheduler.set_exec_table(&table).map_err(|error| error.to_string())?;
    scheduler.miss_executions();
    let own_path = own_path().to_string_lossy().into_owned();
    let (kept, lost) = (Program::start(&["spin"]), Program::start_file(&plain, &["become", gate, &own_path]));
    let is_at_gate = || std::fs::read_to_string(format!("/proc/{}/comm", lost.pid()));
    let waits = wait_until(30.0, || is_at_gate().is_ok_and(|name| name.trim() == AT_THE_GATE));
    check!(waits, "it did not begin to wait within 30 s");
    // SAFETY: plain system call.
    let me = unsafe { libc::getpid() };
    for pid in [me, kept.pid(), lost.pid()] {
        assign(&mut scheduler, pid, grant(5_000, 100_000))?;
    }
    let program = Program::start_file(&path, &["spin"]);
    let parent = Program::start_file(&parent_path, &["fork-spin", "1"]);
    drop(File::options().write(true).custom_flags(libc::O_NONBLOCK).open(gate));
    let mut of = |pid| record(&mut scheduler, pid).map(|found| (found.standing, found.name));
    let settled = wait_until(10.0, || of(program.pid()).is_some() && of(lost.pid()).is_none());
    let children_settled = wait_until(10.0, || {
        let children = children(parent.pid());
        !children.is_empty() && children.iter().chain([&parent.pid()]).all(|&pid| of(pid).is_some())
    });
    let found = [program.pid(), kept.pid(), lost.pid()].map(&mut of);
    let _ = scheduler.assign(me, None);
    for pid in children(parent.pid()) {
        // SAFETY: plain system call; its parent has not waited for it, so that nobody else has its number.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    drop((program, parent, kept, lost));
    drop(scheduler);
    let expected = [Some((Standing::Admitted, "film-d".to_owned())), found[1].clone(), None];
    check!(settled && found == expected && found[1].is_some(), "after 10 s: {found:?}");
    check!(children_settled, "the child of a program that was not seen has no specification");
    Ok(format!("{:?}", found))
}

/// How often a program of this process was not told what happened, because it was at work on the same CPU.
fn recursion_misses() -> u64 {
    let files = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let missed = |text: String| {
        let lines = text.lines().filter_map(|line| line.strip_prefix("recursion_misses:"));
        lines.filter_map(|line| line.trim().parse::<u64>().ok()).sum::<u64>()
    };
    texts.map(missed).sum()
}

/// So do many that execute at the same time, who are preempted in the middle of it.
pub fn specifications_at_once() -> Outcome {
    const COUNT: usize = 60;
    let mut scheduler = shared()?;
    let gate = "/tmp/become";
    named_pipe(gate)?;
    let (path, file) = copy_of_self("film-c")?;
    scheduler.set_exec_table(&[(file, Some(grant(200, 1_000_000)))]).map_err(|error| error.to_string())?;
    let path = path.to_string_lossy().into_owned();
    let start = |_| Command::new(own_path()).args(["become", gate, &path]).spawn();
    let programs: Result<Vec<Child>, std::io::Error> = (0..COUNT).map(start).collect();
    let programs = programs.map_err(|error| error.to_string())?;
    let is_named = |program: &Child, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{}/comm", program.id()));
        text.is_ok_and(|text| text.trim() == name)
    };
    let all_wait = wait_until(60.0, || programs.iter().all(|program| is_named(program, AT_THE_GATE)));
    sleep(Duration::from_millis(200));
    for program in &programs {
        let allowed = scheduler.allow_interactive_exec(program.id() as i32);
        allowed.map_err(|error| error.to_string())?;
    }
    // Somebody with a reservation wakes all the time, and preempts them wherever they are.
    let (end, tid) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(0)));
    let (ends, wakes_as) = (Arc::clone(&end), Arc::clone(&tid));
    let waker = std::thread::spawn(move || {
        // SAFETY: plain system calls.
        wakes_as.store(
            unsafe {
                libc::prctl(libc::PR_SET_TIMERSLACK, 1);
                libc::gettid()
            },
            Ordering::Relaxed,
        );
        while !ends.load(Ordering::Relaxed) {
            sleep(Duration::from_micros(700));
        }
    });
    let its_thread_runs = wait_until(5.0, || tid.load(Ordering::Relaxed) != 0);
    assign(&mut scheduler, tid.load(Ordering::Relaxed), grant(200, 2_000))?;
    let reader = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(gate);
    drop(reader.map_err(|error| format!("nobody reads {gate}: {error}"))?);
    let all_have = wait_until(60.0, || programs.iter().all(|program| is_named(program, "film-c")));
    let count_of = |scheduler: &mut SchedExt| {
        let tasks = snapshot(scheduler).map(|snapshot| snapshot.tasks).unwrap_or_default();
        tasks.iter().filter(|task| task.name == "film-c").count()
    };
    // Their names come first.
    wait_until(10.0, || count_of(&mut scheduler) == COUNT);
    let having = count_of(&mut scheduler);
    let missed = recursion_misses();
    end.store(true, Ordering::Relaxed);
    let _ = waker.join();
    for mut program in programs {
        let _ = program.kill();
        let _ = program.wait();
    }
    drop(scheduler);
    check!(all_wait && its_thread_runs && all_have, "not all of them executed within a minute");
    check!(having == COUNT, "of {COUNT} programs {having} have their specification: {missed} missed");
    Ok(format!("{having} programs have their specification: {missed} missed"))
}

/// A child that needs several loans until it executes gets them, one in each of its parent's periods.
pub fn slow_start() -> Outcome {
    let mut scheduler = shared()?;
    let (gate, file) = ("/tmp/launch", PathBuf::from("/tmp/launched"));
    named_pipe(gate)?;
    // In a cgroup of their own: beside the kernel's threads, loops at nice -20 keep the one waiting for seconds that
    // samples the use of memory (kdamond) while it has a lock of their file, and the fork needs that.
    let group = Group::new("launch");
    let shell = Program::start(&["launch", gate, "12", "/tmp/launched"]).within(&group);
    let loops: Vec<Program> = (0..40).map(|_| Program::start(&["spin"]).within(&group)).collect();
    let loops: Vec<Program> = loops.into_iter().map(|program| program.nice(-20)).collect();
    // The first loops keep the last ones waiting for seconds in the middle of their start, where they have locks of the
    // file, too.
    let all_compute = wait_until(30.0, || loops.iter().all(|program| has_started(program.pid())));
    check!(all_compute, "some loops have not started in 30 s");
    let standing = assign(&mut scheduler, shell.pid(), grant(5_000, 100_000))?;
    check!(standing == Standing::Admitted, "{standing:?}: {:?}", snapshot(&mut scheduler)?.cpus[0]);
    let reader = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(gate);
    drop(reader.map_err(|error| format!("nobody reads {gate}: {error}"))?);
    wait_until(20.0, || std::fs::read_to_string(&file).is_ok_and(|text| !text.is_empty()));
    let lender = snapshot(&mut scheduler)?.tasks.into_iter().find(|task| task.tid == shell.pid());
    drop((shell, loops));
    drop(scheduler);
    let text = std::fs::read_to_string(&file).map_err(|_| "it was not started within 20 s".to_owned())?;
    let passed_ms: u64 = text.parse().map_err(|_| text.clone())?;
    // At most 3.75 ms in each 100 ms come to 12 ms in the fourth period.
    check!((200..1000).contains(&passed_ms), "it took {passed_ms} ms, {lender:?}");
    Ok(format!("12 ms of work before exec, 5 ms in every 100 ms: {passed_ms} ms"))
}

/// A shell that starts four short programs in every 100 ms has in its budget what these leave of their loans: it does
/// with less than the loans come to. It uses up its budget in less than a quarter of its periods, where it was 11 of 26
/// while children kept what they left; in a machine that has just begun it is none or one of 41.
pub fn loans_come_back() -> Outcome {
    let mut scheduler = shared()?;
    let shell = Program::start(&["rounds", "4"]);
    let loops: Vec<Program> = (0..3).map(|_| Program::start(&["spin"])).collect();
    assign(&mut scheduler, shell.pid(), grant(10_000, 100_000))?;
    sleep(Duration::from_millis(500));
    let before = record(&mut scheduler, shell.pid()).ok_or("no record")?;
    sleep(Duration::from_secs(3));
    let after = record(&mut scheduler, shell.pid()).ok_or("no record")?;
    drop((shell, loops));
    drop(scheduler);
    let (exhausted, periods) =
        (after.budgets_exhausted - before.budgets_exhausted, after.periods - before.periods);
    check!(periods >= 25 && exhausted * 4 < periods, "{exhausted} of {periods} budgets were used up");
    Ok(format!("{exhausted} of {periods} budgets were used up"))
}

/// A task that may run on one CPU only waits there for its reservation when that is taken away, and a timer of its slot
/// brings it to where best-effort work waits. No other CPU is kept from what it could serve by that.
pub fn back_where_it_may_run() -> Outcome {
    let gate = "/tmp/lend";
    named_pipe(gate)?;
    let mut scheduler = shared()?;
    let groups = ["lender", "pulse", "loop"].map(Group::new);
    let lender = Program::start(&["lender", gate, "150"]).within(&groups[0]).pin(1);
    // A real-time task keeps CPU 1 for itself, for less than the second after which the kernel lets others go on.
    let hog = Program::start(&["spin"]).pin(1);
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: plain system calls on our own child.
    unsafe {
        libc::kill(hog.pid(), libc::SIGSTOP);
        libc::sched_setscheduler(hog.pid(), libc::SCHED_FIFO, &parameters);
    }
    let others = [
        Program::start(&["pulse", "5", "5"]).within(&groups[1]),
        Program::start(&["spin"]).within(&groups[2]),
    ];
    sleep(Duration::from_secs(1));
    assign(&mut scheduler, lender.pid(), grant(10_000, 400_000))?;
    let reader = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(gate);
    drop(reader.map_err(|error| format!("nobody reads {gate}: {error}"))?);
    // The child uses up what it is lent, and asks for more: the timer is set to the end of its parent's period.
    sleep(Duration::from_millis(60));
    // SAFETY: plain system call on our own child.
    unsafe { libc::kill(hog.pid(), libc::SIGCONT) };
    sleep(Duration::from_millis(190));
    let standing = assign(&mut scheduler, lender.pid(), grant(900_000, 1_000_000))?;
    let waits = record(&mut scheduler, lender.pid()).map(|task| task.cpu);
    sleep(Duration::from_millis(200));
    let times = measure(&[&others[0], &others[1], &lender], 0.4);
    let used = times[0] + times[1];
    drop((hog, lender, others));
    drop(groups);
    drop(scheduler);
    check!(standing == Standing::Refused && waits == Some(1), "it was {standing}, for CPU {waits:?}");
    check!(times[2] == 0.0, "it ran for {:.1} ms beside the real-time task", times[2]);
    check!(used > 360.0, "the other CPU's tasks had {used:.0} ms of 400");
    Ok(format!("the other CPU's tasks had {used:.0} ms of 400"))
}

/// Twenty children inherit 10 ms in 100 ms: as many are admitted as fit below the threshold, the rest refused.
pub fn inheritance() -> Outcome {
    let mut scheduler = shared()?;
    // SAFETY: plain system call.
    let me = unsafe { libc::getpid() };
    assign(&mut scheduler, me, Grant { inherit: true, ..grant(10_000, 100_000) })?;
    let bomb = Program::start(&["fork-spin", "20"]);
    wait_until(5.0, || children(bomb.pid()).len() == 20);
    let tasks = snapshot(&mut scheduler)?.tasks;
    let _ = scheduler.assign(me, None);
    let pids = children(bomb.pid());
    let count =
        |standing| tasks.iter().filter(|task| pids.contains(&task.tid) && task.standing == standing).count();
    let (admitted, refused) = (count(Standing::Admitted), count(Standing::Refused));
    let cpus = snapshot(&mut scheduler)?.cpus;
    drop(bomb);
    let gone = wait_until(3.0, || snapshot(&mut scheduler).is_ok_and(|snapshot| snapshot.tasks.is_empty()));
    drop(scheduler);
    check!(admitted + refused == 20, "{admitted} admitted and {refused} refused of 20");
    // 6 of a tenth fit below 0.8 beside this program's own; more when announcements fade before the new ones have run.
    check!((5..=9).contains(&admitted), "{admitted} were admitted, {refused} refused");
    check!(
        cpus.iter().all(|cpu| cpu.reserved < 1.0),
        "reserved {:?}",
        cpus.iter().map(|cpu| cpu.reserved).collect::<Vec<_>>()
    );
    check!(gone, "ended tasks keep their slots");
    Ok(format!("{admitted} admitted, {refused} refused"))
}

/// Tasks that sleep while they are admitted and then all work: overload is seen, the greedy are put out, and come back.
pub fn overload() -> Outcome {
    let mut scheduler = shared()?;
    let thresholds =
        Thresholds { reactivate_below: 0.3, admit_below: 0.5, revoke_above: 0.6, ..Thresholds::default() };
    scheduler.set_thresholds(thresholds).map_err(|error| error.to_string())?;
    let mut sleepers = Vec::new();
    // Each announces 0.3 of CPU 0. An announcement nobody lives up to fades, and then the next one fits.
    for _ in 0..4 {
        let program = Program::start(&["later", "14000"]).pin(0);
        let admitted = wait_until(8.0, || {
            assign(&mut scheduler, program.pid(), grant(6_000, 20_000)) == Ok(Standing::Admitted)
        });
        check!(
            admitted,
            "sleeper {} was not admitted: {:?}",
            sleepers.len(),
            snapshot(&mut scheduler)?.cpus[0]
        );
        sleepers.push(program);
    }
    events(&mut scheduler);
    let mut seen = Vec::new();
    let is_revocation = |kind| matches!(kind, EventKind::RevokedExhausted | EventKind::RevokedHungriest);
    let revoked = wait_until(30.0, || {
        seen.extend(events(&mut scheduler));
        seen.iter().any(|event| is_revocation(event.kind))
    });
    check!(revoked, "nobody was revoked: {:?}", snapshot(&mut scheduler)?.cpus[0]);
    let first = seen.iter().find(|event| is_revocation(event.kind)).map(|event| event.kind);
    check!(first == Some(EventKind::RevokedExhausted), "the first victim was {first:?}");
    std::thread::sleep(Duration::from_secs(3));
    seen.extend(events(&mut scheduler));
    let revocations = seen.iter().filter(|event| is_revocation(event.kind)).count();
    check!(revocations < 4, "all were revoked, where two of four had to go");
    // Those that stayed end; one of those that were put out comes back when the window shows room.
    let stayed: Vec<i32> = snapshot(&mut scheduler)?
        .tasks
        .iter()
        .filter(|task| task.standing == Standing::Admitted)
        .map(|task| task.tid)
        .collect();
    sleepers.retain(|program| !stayed.contains(&program.pid()));
    let mut back = Vec::new();
    let reactivated = wait_until(30.0, || {
        back.extend(events(&mut scheduler));
        back.iter().any(|event| event.kind == EventKind::Reactivated)
    });
    drop(sleepers);
    drop(scheduler);
    check!(reactivated, "nobody was reactivated: {back:?}");
    Ok(format!("{revocations} of 4 revoked, {} stayed, one reactivated", stayed.len()))
}

//! Who is taken in, put out and taken back, and what holds when admission was wrong.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::interactive::{assign, grant};
use crate::programs::{
    Program, children, events, measure, named_pipe, own_path, record, shared, snapshot, wait_until,
};
use crate::{Outcome, check};
use steward_core::cpu::event::{EventKind, Rule};
use steward_core::cpu::mechanism::{DomainRecord, Mechanism, MechanismError, Standing, TaskRecord};
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::thresholds::Thresholds;
use steward_sched::SchedExt;

fn admitted(tasks: &[TaskRecord]) -> impl Iterator<Item = &TaskRecord> {
    tasks.iter().filter(|task| task.standing == Standing::Admitted)
}

/// Tasks that were admitted asleep ask for twice the CPU: best-effort work gets its twentieth until they are put out,
/// all of them in one turn.
pub fn class_bound() -> Outcome {
    let mut scheduler = shared()?;
    // So low that half of them have to go, which are more than would have to with the default.
    let thresholds = Thresholds {
        reactivate_below: 0.3,
        admit_below: 0.5,
        revoke_above: 0.6,
        user_max: 10.0,
        ..Thresholds::default()
    };
    scheduler.set_thresholds(thresholds).map_err(|error| error.to_string())?;
    let rest = Program::start(&["spin"]);
    let mut crowd = Vec::new();
    for _ in 0..20 {
        let program = Program::start(&["when", "/tmp/begin"]);
        let taken = wait_until(10.0, || {
            assign(&mut scheduler, program.pid(), grant(10_000, 100_000)) == Ok(Standing::Admitted)
        });
        check!(taken, "one of the sleepers was not admitted");
        crowd.push(program);
    }
    events(&mut scheduler);
    fs::write("/tmp/begin", "").map_err(|error| error.to_string())?;
    sleep(Duration::from_millis(300));
    // Those of the crowd that have used up their budgets are best-effort work too, until their next period.
    let before = times(&mut scheduler)?;
    let rest_time = measure(&[&rest], 3.0)[0] / 3000.0;
    let after = times(&mut scheduler)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let time = (after.best_effort - before.best_effort).as_secs_f64() / seconds;
    let reserved = (after.reserved - before.reserved).as_secs_f64() / seconds;
    let mut put_out = Vec::new();
    wait_until(15.0, || {
        put_out.extend(
            events(&mut scheduler).into_iter().filter(|event| {
                matches!(event.kind, EventKind::RevokedExhausted | EventKind::RevokedHungriest)
            }),
        );
        !put_out.is_empty()
    });
    sleep(Duration::from_millis(1500));
    put_out
        .extend(events(&mut scheduler).into_iter().filter(|event| event.kind == EventKind::RevokedExhausted));
    let left = admitted(&snapshot(&mut scheduler)?.tasks).count();
    let _ = fs::remove_file("/tmp/begin");
    drop((crowd, rest));
    drop(scheduler);
    // And the burst that they may be ahead by.
    check!(reserved < 0.957, "reservations got {reserved:.3} of the CPU, at most 0.95 is their due");
    // What switching costs comes out of the twentieth, and each of the machine's instructions takes 8 ns.
    check!(time > 0.025, "best-effort work got {time:.3} of the CPU; reservations {reserved:.3}");
    check!(time < 0.12, "best-effort work got {time:.3}: the others were held back for nothing");
    check!(rest_time > 0.025 / 21.0, "the one without a reservation got {rest_time:.4} of the CPU");
    let turn = put_out.iter().map(|event| event.at_ns).max().unwrap_or(0)
        - put_out.iter().map(|event| event.at_ns).min().unwrap_or(0);
    check!(put_out.len() >= 9 && turn < 100_000_000, "{} were put out within {turn} ns", put_out.len());
    check!(left <= 20 - put_out.len(), "{left} of 20 are left, and {} were put out", put_out.len());
    Ok(format!(
        "reservations {reserved:.3} of the CPU, best-effort {time:.3}, {rest_time:.3} to the one without a reservation, {} of 20 put out within {} us, {left} left",
        put_out.len(),
        turn / 1000
    ))
}

/// CPU time of all domains, for ever, at a moment.
struct Times {
    at: Instant,
    best_effort: Duration,
    reserved: Duration,
}

fn times(scheduler: &mut SchedExt) -> Result<Times, String> {
    let domains = scheduler.domains().map_err(|error| error.to_string())?;
    let sum = |of: fn(&DomainRecord) -> u64| Duration::from_nanos(domains.iter().map(of).sum());
    let (best_effort, reserved) =
        (sum(|domain| domain.best_effort_time_ns), sum(|domain| domain.reserved_time_ns));
    Ok(Times { at: Instant::now(), best_effort, reserved })
}

/// Those that wait are tried one after the other: one whose memory does not fit, or that set much address space
/// aside without using it, keeps nobody out.
pub fn waiters() -> Outcome {
    let mut scheduler = shared()?;
    scheduler.set_memory_free(Some(256 << 20));
    let thresholds = |admit_below| Thresholds {
        reactivate_below: admit_below / 2.0,
        admit_below,
        ..Thresholds::default()
    };
    scheduler.set_thresholds(thresholds(0.02)).map_err(|error| error.to_string())?;
    let programs = ["write", "none", "nothing"].map(|kind| Program::start(&["aside", kind]));
    for program in &programs {
        let standing = assign(&mut scheduler, program.pid(), grant(5_000, 100_000))?;
        check!(standing == Standing::Refused, "it was {standing}");
    }
    scheduler.set_thresholds(thresholds(0.8)).map_err(|error| error.to_string())?;
    let mut standing = |program: &Program| {
        record(&mut scheduler, program.pid())
            .map(|task| (task.standing, task.reason.map(|reason| reason.rule)))
    };
    let back = wait_until(20.0, || {
        programs[1..]
            .iter()
            .all(|program| standing(program).is_some_and(|(standing, _)| standing == Standing::Admitted))
    });
    let seen: Vec<_> = programs.iter().map(standing).collect();
    drop(programs);
    drop(scheduler);
    check!(back, "not taken back: {seen:?}");
    check!(seen[0] == Some((Standing::Refused, Some(Rule::Memory))), "the first one: {seen:?}");
    Ok("the two behind the one whose memory does not fit were taken back".to_owned())
}

/// The tasks of one user, who sleep, have all that users may have together. Another user's come: as many of the first
/// one's give way as is needed for what fits into the second one's part, and none for more.
pub fn parts() -> Outcome {
    let mut scheduler = shared()?;
    let start = |user: u32| Program::start_as(user, &["later", "600000"]);
    let first = [(); 5].map(|()| start(1000));
    for program in &first {
        let standing = assign(&mut scheduler, program.pid(), grant(15_000, 100_000))?;
        check!(standing == Standing::Admitted, "one of the first user's was {standing}");
    }
    let (taken, refused) = (start(1001), start(1001));
    let wide = grant(30_000, 100_000);
    // Until what the first ones announced has faded it is refused for that.
    let fits = wait_until(20.0, || assign(&mut scheduler, taken.pid(), wide) == Ok(Standing::Admitted));
    let reason = |scheduler: &mut SchedExt, program: &Program| {
        record(scheduler, program.pid()).and_then(|task| Some((task.standing, task.reason?.rule)))
    };
    let by_sum = wait_until(20.0, || {
        let _ = assign(&mut scheduler, refused.pid(), wide);
        reason(&mut scheduler, &refused) == Some((Standing::Refused, Rule::Together))
    });
    let seen = first.iter().map(|program| reason(&mut scheduler, program));
    let gave_way = seen.filter(|seen| *seen == Some((Standing::Revoked, Rule::Part))).count();
    let sum = |task: &TaskRecord| task.grant.reservation.bandwidth();
    let together: f64 = admitted(&snapshot(&mut scheduler)?.tasks).map(sum).sum();
    drop((first, taken, refused));
    drop(scheduler);
    check!(fits, "what fits into the second user's part was not admitted");
    check!(by_sum, "what does not fit there was not refused because of the sum");
    check!(gave_way == 2, "{gave_way} of the first user's gave way, where 2 make room");
    check!(together < 0.751, "they have {together:.3} of the CPU reserved together");
    Ok(format!("2 of 5 gave way; together they have {together:.3}"))
}

/// Two users of a user namespace that root has made, as containers have, are the one as whom that one's root is here.
pub fn one_namespace() -> Outcome {
    let mut scheduler = shared()?;
    let start = |user: &str| -> Result<Program, String> {
        let program = Program::start(&["another-user", user]);
        let file = format!("/proc/{}/uid_map", program.pid());
        let mapped = wait_until(10.0, || fs::write(&file, "0 100000 65536").is_ok());
        check!(mapped, "{file} cannot be written");
        let changed = wait_until(10.0, || {
            let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap_or_default();
            status.contains(&format!("Uid:\t10000{user}"))
        });
        check!(changed, "the program does not become user {user} of its namespace");
        Ok(program)
    };
    let programs = [start("1")?, start("2")?];
    let standings =
        [0, 1].map(|which: usize| assign(&mut scheduler, programs[which].pid(), grant(38_000, 100_000)));
    let by_user = wait_until(20.0, || {
        let _ = assign(&mut scheduler, programs[1].pid(), grant(38_000, 100_000));
        record(&mut scheduler, programs[1].pid())
            .and_then(|task| task.reason)
            .is_some_and(|reason| (reason.rule, reason.uid) == (Rule::User, 100_000))
    });
    let seen = programs.iter().map(|program| record(&mut scheduler, program.pid())).collect::<Vec<_>>();
    drop(programs);
    drop(scheduler);
    check!(standings[0] == Ok(Standing::Admitted), "the first one was {:?}", standings[0]);
    check!(by_user, "the second one was not refused because of the user's sum: {seen:?}");
    Ok("users 1 and 2 of the namespace are user 100000".to_owned())
}

/// A crowd of more tasks than other checks have at once is refused one by one, each in a place of its own. Once it has
/// ended no more places are gone through with each sample than the few that are in use, and whoever comes then has one
/// of the first.
pub fn places() -> Outcome {
    const MANY: usize = 150;
    let mut scheduler = shared()?;
    let before = scheduler.task_places();
    // SAFETY: plain system call.
    let me = unsafe { libc::getpid() };
    assign(&mut scheduler, me, Grant { inherit: true, ..grant(10_000, 100_000) })?;
    let crowd = Program::start(&["fork-spin", &MANY.to_string()]);
    let all_there = wait_until(20.0, || children(crowd.pid()).len() == MANY);
    let _ = scheduler.assign(me, None);
    let during = scheduler.task_places();
    drop(crowd);
    let gone = wait_until(10.0, || snapshot(&mut scheduler).is_ok_and(|seen| seen.tasks.is_empty()));
    let program = Program::start(&["spin"]);
    assign(&mut scheduler, program.pid(), grant(10_000, 100_000))?;
    let after = scheduler.task_places();
    drop(program);
    drop(scheduler);
    check!(all_there && during > MANY, "{during} places are gone through beside a crowd of {MANY}");
    check!(gone, "ended tasks keep their places");
    check!(
        before <= 64 && after <= 64,
        "{before} places were gone through, {during} beside a crowd, {after} after it"
    );
    Ok(format!("{before} places are gone through, {during} beside a crowd of {MANY}, {after} after it"))
}

/// A program executed by another thread than the first one keeps its reservation, under its process id.
pub fn exec_by_a_thread() -> Outcome {
    let mut scheduler = shared()?;
    let gate = "/tmp/gate-of-a-thread";
    named_pipe(gate)?;
    let program = Program::start(&["exec-thread", gate]);
    let loops: Vec<Program> = (0..8).map(|_| Program::start(&["spin"])).collect();
    let thread = || -> Option<i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).ok()?;
        tasks
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
            .find(|tid| *tid != program.pid())
    };
    check!(wait_until(5.0, || thread().is_some()), "it has no second thread");
    let keep = Grant { keep_over_exec: true, ..grant(5_000, 50_000) };
    assign(&mut scheduler, thread().unwrap_or(0), keep)?;
    fs::write(gate, "go").map_err(|error| error.to_string())?;
    let executed = wait_until(5.0, || thread().is_none());
    sleep(Duration::from_millis(500));
    let before = record(&mut scheduler, program.pid());
    let time = measure(&[&program], 3.0)[0];
    let after = record(&mut scheduler, program.pid());
    let tids: Vec<i32> = snapshot(&mut scheduler)?.tasks.iter().map(|task| task.tid).collect();
    drop((program, loops));
    drop(scheduler);
    check!(executed, "it did not execute");
    let (Some(before), Some(after)) = (before, after) else {
        return Err(format!("no record under its process id; there are {tids:?}"));
    };
    let periods = after.periods - before.periods;
    // A ninth of what is left beside its tenth comes to that.
    check!(periods >= 55 && time > 390.0, "{periods} periods and {time:.0} ms in 3 s");
    Ok(format!("{periods} periods in 3 s, {time:.0} ms"))
}

/// A process that has ended and was not waited for yet is given nothing that nobody would give back.
pub fn ended_process() -> Outcome {
    let mut scheduler = shared()?;
    let mut program = Command::new(own_path()).arg("nothing").spawn().map_err(|error| error.to_string())?;
    let pid = program.id() as i32;
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    check!(wait_until(5.0, || state().contains(") Z ")), "it has not ended: {}", state());
    let answer = scheduler.assign(pid, Some(grant(5_000, 50_000))).map_err(|error| error.to_string());
    let _ = program.wait();
    let empty = wait_until(3.0, || snapshot(&mut scheduler).is_ok_and(|snapshot| snapshot.tasks.is_empty()));
    let tasks = snapshot(&mut scheduler)?.tasks;
    drop(scheduler);
    check!(empty, "it holds {tasks:?} after {answer:?}");
    Ok(format!("{answer:?}"))
}

/// The id of a thread that has ended may be that of a task of somebody else by now: who is meant as a thread of one
/// process is given nothing, and loses nothing, as a task of another.
pub fn anothers_thread() -> Outcome {
    let mut scheduler = shared()?;
    let (one, other) = (Program::start(&["later", "100000"]), Program::start(&["later", "100000"]));
    let given = scheduler.assign_thread(one.pid(), other.pid(), Some(grant(5_000, 50_000)));
    let none = record(&mut scheduler, other.pid());
    assign(&mut scheduler, other.pid(), grant(2_000, 50_000))?;
    let taken = scheduler.assign_thread(one.pid(), other.pid(), None);
    let kept = record(&mut scheduler, other.pid());
    let own = scheduler.assign_thread(one.pid(), one.pid(), Some(grant(5_000, 50_000)));
    drop((one, other));
    drop(scheduler);
    let no_such_task =
        |answer: &Result<_, MechanismError>| matches!(answer, Err(MechanismError::NoSuchTask { .. }));
    check!(no_such_task(&given) && none.is_none(), "given: {given:?}, {none:?}");
    check!(no_such_task(&taken) && kept.is_some(), "taken: {taken:?}, {kept:?}");
    check!(own.is_ok(), "a thread of its own: {own:?}");
    Ok("nothing was given to it, nothing taken from it".to_owned())
}

/// A task that may use one CPU only is admitted there, and one that may use all of them makes room for it.
pub fn make_room() -> Outcome {
    let mut scheduler = shared()?;
    // Both have executed before there is anything that could keep them from it.
    let (free, other) = (Program::start(&["spin"]), Program::start(&["spin"]));
    let loops: Vec<Program> = (0..6).map(|_| Program::start(&["spin"])).collect();
    assign(&mut scheduler, free.pid(), grant(10_000, 20_000))?;
    sleep(Duration::from_secs(3));
    let from = record(&mut scheduler, free.pid()).ok_or("no record")?.cpu;
    let pinned = other.pin(from as usize);
    let standing = assign(&mut scheduler, pinned.pid(), grant(10_000, 20_000))?;
    sleep(Duration::from_millis(200));
    let times = measure(&[&free, &pinned], 3.0);
    let records = [record(&mut scheduler, free.pid()), record(&mut scheduler, pinned.pid())];
    drop((free, pinned, loops));
    drop(scheduler);
    check!(standing == Standing::Admitted, "the one that is pinned was {standing}: {records:?}");
    let cpus: Vec<u32> = records.iter().flatten().map(|task| task.cpu).collect();
    check!(cpus == [1 - from, from], "reservations are on CPUs {cpus:?}");
    check!(times.iter().all(|time| *time > 1450.0), "they got {times:.0?} ms of 1,500");
    Ok(format!("both admitted, {times:.0?} ms of 1,500"))
}

/// CPU 1 goes and comes while an admitted program starts others: nobody is left in a queue that no CPU serves.
pub fn hotplug_under_forks() -> Outcome {
    let mut scheduler = shared()?;
    let online = "/sys/devices/system/cpu/cpu1/online";
    let shells: Vec<Program> = (0..2).map(|_| Program::start(&["starter"])).collect();
    let loops: Vec<Program> = (0..4).map(|_| Program::start(&["spin"])).collect();
    for shell in &shells {
        assign(&mut scheduler, shell.pid(), grant(10_000, 50_000))?;
    }
    let mut oldest = Vec::new();
    for _ in 0..6 {
        for state in ["0", "1"] {
            fs::write(online, state).map_err(|error| format!("{online}: {error}"))?;
            sleep(Duration::from_millis(400));
        }
    }
    fs::write(online, "0").map_err(|error| format!("{online}: {error}"))?;
    // Whoever exists now and still does in five seconds was left behind: none of them has more to do than to execute.
    let before: Vec<i32> = shells.iter().flat_map(|shell| children(shell.pid())).collect();
    sleep(Duration::from_secs(5));
    oldest
        .extend(shells.iter().flat_map(|shell| children(shell.pid())).filter(|child| before.contains(child)));
    let times = measure(&loops.iter().collect::<Vec<_>>(), 1.0);
    fs::write(online, "1").map_err(|error| format!("{online}: {error}"))?;
    let reason = scheduler.exit_reason();
    drop((shells, loops));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(oldest.is_empty(), "children {oldest:?} have not run for five seconds");
    check!(times.iter().sum::<f64>() > 300.0, "best-effort work got {times:.0?} ms");
    Ok(format!("seven times, {} children at the end", before.len()))
}

//! The machine around the scheduler: CPUs that leave, loaders that die, affinity that changes.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use steward_core::cpu::event::{EventKind, Rule};
use steward_core::cpu::mechanism::{Mechanism, Standing};
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};

use crate::programs::{
    Group, Program, events, has_started, load, measure, named_pipe, pin, record, shared, snapshot, unload,
    wait_until,
};
use crate::{Outcome, check};

const STATE: &str = "/sys/kernel/sched_ext/state";

fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_owned()
}

fn grant() -> Grant {
    Grant {
        reservation: Reservation { budget_ns: 5_000_000, period_ns: 20_000_000 },
        inherit: false,
        revocable: true,
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec: false,
        requests_at: None,
        spec_id: 0,
    }
}

/// CPU 1 goes and comes back while tasks with reservations and without run on it.
pub fn hotplug() -> Outcome {
    let mut scheduler = shared()?;
    let players: Vec<Program> = (0..2).map(|_| Program::start(&["spin"])).collect();
    for player in &players {
        scheduler.assign(player.pid(), Some(grant())).map_err(|error| error.to_string())?;
    }
    let loops: Vec<Program> = (0..6).map(|_| Program::start(&["spin"])).collect();
    sleep(Duration::from_secs(1));
    let online = "/sys/devices/system/cpu/cpu1/online";
    fs::write(online, "0").map_err(|error| format!("{online}: {error}"))?;
    let times = measure(&players.iter().chain(&loops).collect::<Vec<_>>(), 3.0);
    let reason = scheduler.exit_reason();
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    let cpus: Vec<u32> = players
        .iter()
        .filter_map(|player| record(&mut scheduler, player.pid()))
        .map(|task| task.cpu)
        .collect();
    fs::write(online, "1").map_err(|error| format!("{online}: {error}"))?;
    let after = measure(&players.iter().chain(&loops).collect::<Vec<_>>(), 2.0);
    drop((players, loops));
    let reason = scheduler.exit_reason();
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(cpus == [0, 0], "reservations are on CPUs {cpus:?}");
    check!(
        times[0] > 735.0 && times[1] > 735.0,
        "on one CPU the two got {:.0} and {:.0} ms of 750",
        times[0],
        times[1]
    );
    check!(times[2..].iter().all(|&time| time > 50.0), "best-effort work starved: {times:.0?}");
    check!(
        after.iter().sum::<f64>() > 3500.0,
        "with both CPUs back, {:.0} of 4,000 ms were used",
        after.iter().sum::<f64>()
    );
    Ok(format!("{:.0} and {:.0} ms of 750 on the CPU that was left", times[0], times[1]))
}

pub fn second_load() -> Outcome {
    let scheduler = shared()?;
    let second = load().err().unwrap_or_default();
    drop(scheduler);
    unload();
    check!(second.contains("another scheduler is loaded already: \"steward"), "it said: {second}");
    check!(state() == "disabled", "state is {}", state());
    Ok(second)
}

/// kill -9 of the process that holds the scheduler, while it has a cgroup suspended and another one held for moments:
/// back on the default scheduler, everybody goes on, and it can be loaded again.
pub fn killed_loader() -> Outcome {
    unload();
    let file = "/dev/shm/held";
    let _ = fs::remove_file(file);
    let mut holder = Program::start(&["hold", file]);
    check!(wait_until(120.0, || state() == "enabled"), "the scheduler did not come up: {}", state());
    let (still, takers) = (Group::new("still"), Group::new("takers").charged());
    let held = [&still, &takers].map(|group| Program::start(&["spin"]).within(group));
    let begun = wait_until(20.0, || held.iter().all(|program| has_started(program.pid())));
    check!(begun, "not all programs had begun to compute after 20 s");
    // Whole at once, for the holder reads it at any moment.
    let written = fs::write("/dev/shm/held.new", format!("{} {}", still.0.display(), takers.0.display()));
    written.and_then(|()| fs::rename("/dev/shm/held.new", file)).map_err(|error| error.to_string())?;
    let are_held = wait_until(20.0, || measure(&[&held[0], &held[1]], 0.3).iter().all(|&time| time < 3.0));
    check!(are_held, "they are not held: {:.1?} ms of 300", measure(&[&held[0], &held[1]], 0.3));
    let program = Program::start(&["spin"]);
    holder.kill();
    check!(wait_until(2.0, || state() == "disabled"), "after kill -9 the state is {}", state());
    let times = measure(&[&program, &held[0], &held[1]], 0.6);
    check!(times.iter().all(|&time| time > 120.0), "the programs got {times:.0?} ms of 200 each afterwards");
    drop(held);
    drop((still, takers));
    let again = shared()?;
    check!(state() == "enabled", "loaded again, the state is {}", state());
    let time = measure(&[&program], 0.5)[0];
    check!(time > 250.0, "the program got {time:.0} ms in half a second under the next one");
    drop((program, again));
    Ok("who was held goes on, and loaded again".to_owned())
}

/// A best-effort task changes, all the time, one that runs on another CPU out of a reservation. The kernel takes that
/// one out and puts it in again on the CPU of who changes it. What it uses is the load of the CPU that it runs on all
/// the same, and a task with a reservation beside who changes it misses nothing.
pub fn changed_from_elsewhere() -> Outcome {
    let mut scheduler = shared()?;
    let there = Program::start(&["spin"]).pin(0);
    let changer = Program::start(&["renice", &there.pid().to_string()]).pin(1);
    let woken = Program::start(&["pulse", "1", "9"]).pin(1);
    let grant = |budget_us: u64, period_us: u64| Grant {
        reservation: Reservation { budget_ns: budget_us * 1000, period_ns: period_us * 1000 },
        ..self::grant()
    };
    for (program, grant) in [(&there, grant(1_200, 2_000)), (&woken, grant(1_500, 10_000))] {
        scheduler.assign(program.pid(), Some(grant)).map_err(|error| error.to_string())?;
    }
    sleep(Duration::from_millis(500));
    let before = record(&mut scheduler, woken.pid()).ok_or("no record")?;
    sleep(Duration::from_secs(6));
    let loads: Vec<f64> = snapshot(&mut scheduler)?.cpus[..2].iter().map(|cpu| cpu.measured_load).collect();
    let after = record(&mut scheduler, woken.pid()).ok_or("no record")?;
    drop((woken, changer, there));
    drop(scheduler);
    let (missed, periods) =
        (after.deadlines_missed - before.deadlines_missed, after.periods - before.periods);
    check!(periods > 500 && missed == 0, "{missed} of {periods} deadlines were missed");
    check!(loads[0] > 0.5 && loads[1] < 0.2, "loads {loads:.3?}, 0.6 and 0.1 wanted");
    Ok(format!("loads {loads:.3?}, {missed} of {periods} deadlines missed"))
}

/// Two of which one wakes the other all the time, each due a third of two CPUs, beside loops on both. The one that is
/// woken comes within its moment, also when the other CPU finds its domain's queue empty while the kernel is about to
/// put it in there.
pub fn on_its_way_in() -> Outcome {
    const PIPE: &str = "/run/lab/on-its-way.pipe";
    const FILE: &str = "/run/lab/on-its-way";
    let scheduler = shared()?;
    named_pipe(PIPE)?;
    let (sends, receives) = (Group::new("sends"), Group::new("receives"));
    let loops: Vec<Program> = (0..8).map(|_| Program::start(&["spin"])).collect();
    for group in [&sends, &receives] {
        fs::write(group.0.join("cpu.weight"), "800").map_err(|error| error.to_string())?;
    }
    let receiver = Program::start(&["receive", PIPE, FILE]).within(&receives);
    let sender = Program::start(&["send", PIPE]).within(&sends);
    let figures = || -> Option<(u64, u64)> {
        let text = fs::read_to_string(FILE).ok()?;
        let (count, longest_ms) = text.split_once(' ')?;
        Some((count.parse().ok()?, longest_ms.parse().ok()?))
    };
    wait_until(60.0, || figures().is_some_and(|(count, _)| count >= 6000));
    let found = figures();
    let reason = scheduler.exit_reason();
    drop((receiver, sender, loops));
    drop((sends, receives));
    drop(scheduler);
    let _ = fs::remove_file(PIPE);
    let (count, longest_ms) = found.ok_or("nothing was received")?;
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(count >= 6000 && longest_ms < 100, "{count} were received, one of them after {longest_ms} ms");
    Ok(format!("{count} were received, none of them after more than {longest_ms} ms"))
}

/// A task whose affinity no longer allows its CPU is admitted on another.
pub fn affinity() -> Outcome {
    let mut scheduler = shared()?;
    let player = Program::start(&["spin"]);
    scheduler.assign(player.pid(), Some(grant())).map_err(|error| error.to_string())?;
    let before = record(&mut scheduler, player.pid()).ok_or("no record")?.cpu;
    let loops: Vec<Program> = (0..6).map(|_| Program::start(&["spin"])).collect();
    pin(player.pid(), &[1 - before as usize]);
    sleep(Duration::from_millis(500));
    let time = measure(&[&player], 2.0)[0];
    let after = record(&mut scheduler, player.pid()).ok_or("no record")?;
    let displaced: Vec<_> = events(&mut scheduler)
        .into_iter()
        .filter(|event| event.kind == EventKind::RevokedDisplaced && event.tid == player.pid())
        .filter_map(|event| event.reason)
        .collect();
    drop((player, loops));
    drop(scheduler);
    check!(after.cpu == 1 - before && after.standing == Standing::Admitted, "{after:?}");
    // 1: the CPU is there, and no longer allowed to it.
    check!(
        matches!(displaced[..], [reason] if reason.rule == Rule::NoCpu && reason.amount > 0.0),
        "why it was displaced: {displaced:?}"
    );
    check!(time > 490.0, "it got {time:.0} ms of the 500 promised");
    Ok(format!("from CPU {before} to {}, {time:.0} ms of 500", after.cpu))
}

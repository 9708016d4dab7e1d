//! Domains: reservations, priorities, the orders among them, and what they pay for.

use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use steward_core::cpu::best_effort::{BestEffortOrder, BestEffortSettings};
use steward_core::cpu::mechanism::{DomainRecord, Mechanism};
use steward_core::cpu::policy::DomainPolicy;
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_sched::SchedExt;

use crate::programs::{Group, Program, children, has_started, measure, shared, wait_until, when_they_ran};
use crate::{Outcome, check};

const SECONDS: f64 = 3.0;

fn cgroup_id(group: &Group) -> u64 {
    std::fs::metadata(&group.0).map_or(0, |metadata| metadata.ino())
}

pub fn give(scheduler: &mut SchedExt, group: &Group, policy: DomainPolicy) -> Result<(), String> {
    scheduler.set_domain(cgroup_id(group), Some(policy)).map_err(|error| error.to_string())
}

fn reserved(fraction: f64) -> DomainPolicy {
    DomainPolicy { reserved: fraction, ..DomainPolicy::default() }
}

fn record(scheduler: &mut SchedExt, group: &Group) -> Result<DomainRecord, String> {
    let id = cgroup_id(group);
    let records = scheduler.domains().map_err(|error| error.to_string())?;
    records
        .into_iter()
        .find(|record| record.cgroup_id == id)
        .ok_or("the domain is not in the table".to_owned())
}

/// The share of the first group in what programs of several groups got together.
fn share_of_first(groups: &[Vec<Program>], seconds: f64) -> f64 {
    let times = measure(&groups.iter().flatten().collect::<Vec<_>>(), seconds);
    times[..groups[0].len()].iter().sum::<f64>() / times.iter().sum::<f64>()
}

/// Half of the CPU for one domain beside eight others: it has that, and its part of the rest, under every order.
pub fn reservations() -> Outcome {
    let mut scheduler = shared()?;
    let groups: Vec<Group> = (0..9).map(|number| Group::new(&format!("d{number}"))).collect();
    give(&mut scheduler, &groups[0], reserved(0.5))?;
    let programs: Vec<Vec<Program>> =
        groups.iter().map(|group| vec![Program::start(&["spin"]).within(group)]).collect();
    let mut shares = Vec::new();
    for order in [BestEffortOrder::VirtualTime, BestEffortOrder::MtrLs, BestEffortOrder::Wrr] {
        let settings = BestEffortSettings { order, ..BestEffortSettings::default() };
        scheduler.set_best_effort(settings).map_err(|error| error.to_string())?;
        sleep(Duration::from_secs(1));
        shares.push(share_of_first(&programs, SECONDS));
    }
    let seen = record(&mut scheduler, &groups[0])?;
    drop(programs);
    drop(groups);
    drop(scheduler);
    let wanted = 0.5 + 0.5 / 9.0;
    // Round-robin forgets what goes beyond a cycle.
    for (share, tolerance) in shares.iter().zip([0.02, 0.06, 0.02]) {
        check!((share - wanted).abs() <= tolerance, "shares {shares:.3?}, wanted {wanted:.3}");
    }
    check!((seen.share - wanted).abs() < 0.01, "the table says {:.3}, wanted {wanted:.3}", seen.share);
    Ok(format!("virtual-time, mtr-ls, wrr: {shares:.3?} of {wanted:.3}"))
}

/// A domain of a higher priority gets all, one of a lower priority its reservation.
pub fn priorities() -> Outcome {
    let mut scheduler = shared()?;
    let (high, low) = (Group::new("high"), Group::new("low"));
    // Both have executed before one is in the other's way: below a loop that never rests it would take a minute.
    let programs =
        vec![vec![Program::start(&["spin"]).within(&high)], vec![Program::start(&["spin"]).within(&low)]];
    give(&mut scheduler, &high, DomainPolicy { priority: 5, ..DomainPolicy::default() })?;
    sleep(Duration::from_secs(1));
    let alone = share_of_first(&programs, SECONDS);
    give(&mut scheduler, &low, reserved(0.25))?;
    sleep(Duration::from_secs(1));
    let beside = share_of_first(&programs, SECONDS);
    drop(programs);
    drop((high, low));
    drop(scheduler);
    check!(alone > 0.97, "the higher one got {alone:.3} beside one without a reservation");
    check!((beside - 0.75).abs() < 0.03, "the higher one got {beside:.3} beside a reservation of 0.25");
    Ok(format!("{alone:.3} beside none, {beside:.3} beside a reservation of 0.25"))
}

/// Weights of 100 and 300 below a domain of a higher priority that uses the CPU 3 ms of every 13.
pub fn below_a_priority() -> Outcome {
    let mut scheduler = shared()?;
    let (high, low) = (Group::new("high"), Group::new("low"));
    let heavy = Group::new("heavy").set("cpu.weight", "300");
    give(&mut scheduler, &high, DomainPolicy { priority: 6, ..DomainPolicy::default() })?;
    let above = Program::start(&["pulse", "3", "10"]).within(&high);
    let below =
        vec![vec![Program::start(&["spin"]).within(&low)], vec![Program::start(&["spin"]).within(&heavy)]];
    sleep(Duration::from_secs(1));
    let before_ms = above.time_ms();
    let share = share_of_first(&below, SECONDS);
    let above_share = (above.time_ms() - before_ms) / (SECONDS * 1000.0);
    drop((above, below));
    drop((high, low, heavy));
    drop(scheduler);
    check!((share - 0.25).abs() < 0.03, "the light one got {share:.3} of what was left, wanted 0.25");
    check!(above_share > 0.2, "the one above got {above_share:.3} of the CPU, wanted 0.23");
    Ok(format!("{share:.3} of 0.25 of what was left, and {above_share:.3} above"))
}

/// A parent's children are paid out of the parent's own, however many they are.
pub fn hierarchy() -> Outcome {
    let mut scheduler = shared()?;
    let parent = Group::new("house");
    let children: Vec<Group> = (0..3).map(|number| Group::new(&format!("house/room{number}"))).collect();
    let other = Group::new("street");
    give(&mut scheduler, &parent, reserved(0.5))?;
    give(&mut scheduler, &children[0], reserved(0.6))?;
    let mut programs: Vec<Vec<Program>> =
        children.iter().map(|group| vec![Program::start(&["spin"]).within(group)]).collect();
    programs.push((0..4).map(|_| Program::start(&["spin"]).within(&other)).collect());
    sleep(Duration::from_secs(1));
    let share = share_of_first(&programs, SECONDS);
    drop(programs);
    drop(children);
    drop((parent, other));
    drop(scheduler);
    // 0.5 + half of the other half; of that 0.6 + a third of the other 0.4.
    let wanted = 0.75 * (0.6 + 0.4 / 3.0);
    check!((share - wanted).abs() < 0.03, "the child got {share:.3}, wanted {wanted:.3}");
    Ok(format!("{share:.3} of {wanted:.3}"))
}

/// A changed reservation is in force within 10 ms.
pub fn change_takes_effect() -> Outcome {
    let mut scheduler = shared()?;
    let groups: Vec<Group> = (0..2).map(|number| Group::new(&format!("c{number}"))).collect();
    let programs: Vec<Vec<Program>> =
        groups.iter().map(|group| vec![Program::start(&["spin"]).within(group)]).collect();
    sleep(Duration::from_secs(2));
    let begin = Instant::now();
    give(&mut scheduler, &groups[0], reserved(0.8))?;
    let took_ms = begin.elapsed().as_secs_f64() * 1e3;
    sleep(Duration::from_millis(10).saturating_sub(begin.elapsed()));
    let share = share_of_first(&programs, 0.6);
    drop(programs);
    drop(groups);
    drop(scheduler);
    check!(took_ms < 10.0, "the request took {took_ms:.1} ms");
    // A little more than a cycle, so that one piece more or less shows in the third figure only.
    check!((share - 0.9).abs() < 0.05, "the domain got {share:.3} of 0.9 in the 0.6 s after the change");
    Ok(format!("asked in {took_ms:.2} ms, {share:.3} of 0.9 in the 0.6 s that follow"))
}

/// What a task takes out of its reservation is paid by its domain: the domain's other task gets the rest of its half.
pub fn reservations_are_paid() -> Outcome {
    let mut scheduler = shared()?;
    let (mixed, other) = (Group::new("mixed"), Group::new("other"));
    let film = Program::start(&["spin"]).within(&mixed);
    let grant = Grant {
        reservation: Reservation { budget_ns: 6_000_000, period_ns: 20_000_000 },
        inherit: false,
        revocable: false,
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec: false,
        requests_at: None,
        spec_id: 0,
    };
    scheduler.assign(film.pid(), Some(grant)).map_err(|error| error.to_string())?;
    let programs = vec![
        vec![film, Program::start(&["spin"]).within(&mixed)],
        vec![Program::start(&["spin"]).within(&other), Program::start(&["spin"]).within(&other)],
    ];
    sleep(Duration::from_secs(1));
    let share = share_of_first(&programs, SECONDS);
    let seen = record(&mut scheduler, &mixed)?;
    drop(programs);
    drop((mixed, other));
    drop(scheduler);
    check!((share - 0.5).abs() < 0.03, "the domain with a reservation of 0.3 in it got {share:.3} of 0.5");
    check!(
        seen.reserved_time_ns > 800_000_000,
        "only {} ns of it are said to be reserved",
        seen.reserved_time_ns
    );
    Ok(format!("{share:.3} of 0.5, with 0.3 reserved for a task of it"))
}

/// A suspended domain gets nothing, with all below it and a task that is pinned to a CPU; it goes on when it may, and
/// what was killed, or frozen, meanwhile ends, or is, soon.
pub fn suspension() -> Outcome {
    let mut scheduler = shared()?;
    let (parent, other) = (Group::new("still"), Group::new("busy"));
    let below = Group::new("still/below");
    let quiet: Vec<Program> =
        vec![Program::start(&["spin"]).within(&below), Program::start(&["spin"]).within(&below).pin(0)];
    let mut doomed = Program::start(&["spin"]).within(&below);
    let beside = Program::start(&["spin"]).within(&other);
    let spinning: Vec<i32> = quiet.iter().chain([&doomed, &beside]).map(|program| program.pid()).collect();
    let all_compute = wait_until(30.0, || spinning.iter().all(|&pid| has_started(pid)));
    check!(all_compute, "not all programs had begun to compute after 30 s");
    suspend(&mut scheduler, &parent, true)?;
    // What runs ends at its tick, which can be late by seconds when the host of an emulated CPU is busy.
    let suspended: Vec<&Program> = quiet.iter().chain([&doomed]).collect();
    let mut looks = 0..50;
    while looks.next().is_some() && measure(&suspended, 0.1).iter().sum::<f64>() > 0.0 {}
    let watched: Vec<&Program> = quiet.iter().chain([&beside]).collect();
    let before: Vec<f64> = watched.iter().map(|program| program.time_ms()).collect();
    let ran = when_they_ran(&watched[..2], 3.0);
    let held: Vec<f64> =
        watched.iter().zip(before).map(|(program, before)| program.time_ms() - before).collect();
    let begin = Instant::now();
    doomed.kill();
    let killed_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let below = below.set("cgroup.freeze", "1");
    let events = below.0.join("cgroup.events");
    wait_until(30.0, || std::fs::read_to_string(&events).is_ok_and(|events| events.contains("frozen 1")));
    let frozen_s = begin.elapsed().as_secs_f64();
    let below = below.set("cgroup.freeze", "0");
    suspend(&mut scheduler, &parent, false)?;
    sleep(Duration::from_millis(20));
    let free = measure(&watched, 1.0);
    let reason = scheduler.exit_reason();
    drop((quiet, doomed, beside));
    drop(below);
    drop((parent, other));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(held[0] + held[1] < 1.0, "while suspended they got {held:.2?} ms, by second and place {ran:.2?}");
    check!(held[2] > 2900.0, "beside a suspended domain the other got {:.0} of 3,000 ms", held[2]);
    check!(killed_s < 10.0, "a suspended program that was killed ended after {killed_s:.1} s");
    check!(frozen_s < 6.0, "a suspended cgroup was frozen after {frozen_s:.1} s");
    check!(free[0] > 50.0 && free[1] > 50.0, "after it, they got {free:.0?} ms in a second");
    Ok(format!(
        "{held:.2?} ms while suspended, {free:.0?} ms after, killed within {killed_s:.2} s, frozen {frozen_s:.2}"
    ))
}

/// Who waits because of its weight alone is rescued after 12 s, whatever is changed about it meanwhile: the kernel,
/// which takes a scheduler out after 30 s, counts on. Its affinity, its nice value and its cgroup are its user's to
/// change.
pub fn changed_while_waiting() -> Outcome {
    const CHANGES: i32 = 15;
    let scheduler = shared()?;
    let light = Group::new("light").set("cpu.weight", "1");
    let (lightest, heavy) = (Group::new("light/lightest"), Group::new("light/heavy"));
    let (lightest, heavy) = (lightest.set("cpu.weight", "1"), heavy.set("cpu.weight", "10000"));
    let below = [Group::new("light/lightest/a"), Group::new("light/lightest/b")];
    let other = Group::new("busy").set("cpu.weight", "10000");
    // They begin where they have the CPU time for it.
    let spinning: Vec<Program> = (0..3).map(|_| Program::start(&["spin"])).collect();
    let all_compute = wait_until(30.0, || spinning.iter().all(|program| has_started(program.pid())));
    check!(all_compute, "not all programs had begun to compute after 30 s");
    let places = [&heavy, &other, &below[0]];
    let mut beside: Vec<Program> =
        spinning.into_iter().zip(places).map(|(program, place)| program.within(place)).collect();
    let mut waiting = beside.pop().expect("the third");
    // What it is due because it has just come.
    sleep(Duration::from_secs(1));
    let begun_ms = waiting.time_ms();
    for change in 0..CHANGES {
        sleep(Duration::from_secs(1));
        waiting = match change % 3 {
            0 => waiting.pin(0),
            1 => waiting.nice(change),
            _ => waiting.within(&below[change as usize % 2]),
        };
    }
    let had_ms = waiting.time_ms() - begun_ms;
    drop((waiting, beside));
    drop(below);
    drop((lightest, heavy));
    drop((light, other));
    drop(scheduler);
    check!(had_ms > 0.0, "it came to nothing in {CHANGES} s");
    check!(had_ms < 20.0, "it had {had_ms:.1} ms in {CHANGES} s: its weight alone is worth nearly nothing");
    Ok(format!("{had_ms:.2} ms in {CHANGES} s, changed once a second"))
}

pub fn suspend(scheduler: &mut SchedExt, group: &Group, suspended: bool) -> Result<(), String> {
    scheduler.suspend_domain(cgroup_id(group), "", suspended).map_err(|error| error.to_string())
}

/// Two tasks that wake each other are switched without asking the order of domains as long as nobody else waits; a
/// reservation and another domain's share hold beside them all the same.
pub fn beside_a_ring() -> Outcome {
    let mut scheduler = shared()?;
    let (ring, busy) = (Group::new("ring"), Group::new("busy"));
    let player = Program::start(&["spin"]);
    let grant = Grant {
        reservation: Reservation { budget_ns: 5_000_000, period_ns: 20_000_000 },
        inherit: false,
        revocable: true,
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec: false,
        requests_at: None,
        spec_id: 0,
    };
    scheduler.assign(player.pid(), Some(grant)).map_err(|error| error.to_string())?;
    let ringing = Program::start(&["ring"]).within(&ring);
    for child in children(ringing.pid()) {
        std::fs::write(ring.0.join("cgroup.procs"), child.to_string()).map_err(|error| error.to_string())?;
    }
    sleep(Duration::from_secs(1));
    let of_task = |scheduler: &mut SchedExt| {
        crate::programs::record(scheduler, player.pid()).ok_or_else(|| "no record".to_owned())
    };
    let before = of_task(&mut scheduler)?;
    sleep(Duration::from_secs(3));
    let after = of_task(&mut scheduler)?;
    drop(player);
    let spinning = Program::start(&["spin"]).within(&busy);
    sleep(Duration::from_secs(1));
    let (ring_then, busy_then) = (record(&mut scheduler, &ring)?, record(&mut scheduler, &busy)?);
    sleep(Duration::from_secs(3));
    let (ring_now, busy_now) = (record(&mut scheduler, &ring)?, record(&mut scheduler, &busy)?);
    drop((ringing, spinning));
    drop((ring, busy));
    drop(scheduler);
    let (periods, missed) =
        (after.periods - before.periods, after.deadlines_missed - before.deadlines_missed);
    check!(periods > 144 && missed == 0, "{missed} of {periods} deadlines missed");
    let used =
        |now: &DomainRecord, then: &DomainRecord| (now.best_effort_time_ns - then.best_effort_time_ns) as f64;
    let (of_ring, of_busy) = (used(&ring_now, &ring_then), used(&busy_now, &busy_then));
    let share = of_busy / (of_ring + of_busy);
    check!((share - 0.5).abs() < 0.03, "the busy domain got {share:.3}, wanted 0.5");
    Ok(format!("{periods} periods, {missed} missed; beside it a busy domain got {share:.3} of 0.5"))
}

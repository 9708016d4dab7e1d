//! Requests that a thread announces through a number in its own memory.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use steward_core::cpu::mechanism::{Standing, TaskRecord};
use steward_core::cpu::reservation::Grant;
use steward_sched::SchedExt;

use crate::interactive::{assign, grant};
use crate::programs::{Program, record, shared, snapshot, thread_time, wait_until};
use crate::{Outcome, check};

static REQUEST: AtomicU32 = AtomicU32::new(0);

/// Writes where its number stands into the file, then uses the CPU for ever and announces a request after so many
/// microseconds of it; 0: at each turn of the loop.
pub fn announce(file: &str, every_us: u64) -> ! {
    let address = REQUEST.as_ptr() as usize;
    std::fs::write(file, format!("{address}\n")).expect("the file can be written");
    loop {
        let begin = thread_time();
        while every_us > 0 && thread_time() - begin < Duration::from_micros(every_us) {}
        REQUEST.store(REQUEST.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// A program that announces, and where.
fn announcer(name: &str, every_us: u64) -> Result<(Program, u64), String> {
    let file = format!("/tmp/{name}");
    let program = Program::start(&["announce", &file, &every_us.to_string()]);
    let read = || std::fs::read_to_string(&file).ok()?.strip_suffix('\n')?.parse().ok();
    check!(wait_until(10.0, || read().is_some()), "{name} did not say where its number stands");
    Ok((program, read().ok_or("no address")?))
}

/// What somebody got out of the reservation meanwhile, as a part of a CPU, how many periods were fresh because a
/// request was announced, and how many deadlines were missed.
fn observe(scheduler: &mut SchedExt, pids: &[i32], seconds: u64) -> Result<Vec<(f64, u32, u64)>, String> {
    let (begin, before) = (snapshot(scheduler)?.at_ns, records(scheduler, pids)?);
    sleep(Duration::from_secs(seconds));
    let (end, after) = (snapshot(scheduler)?.at_ns, records(scheduler, pids)?);
    Ok(before
        .iter()
        .zip(&after)
        .map(|(before, after)| {
            let reserved_ns = after.reserved_time_ns - before.reserved_time_ns;
            let fresh = after.periods_announced.wrapping_sub(before.periods_announced);
            (
                reserved_ns as f64 / (end - begin) as f64,
                fresh,
                after.deadlines_missed - before.deadlines_missed,
            )
        })
        .collect())
}

fn records(scheduler: &mut SchedExt, pids: &[i32]) -> Result<Vec<TaskRecord>, String> {
    pids.iter().map(|pid| record(scheduler, *pid).ok_or_else(|| format!("no record of {pid}"))).collect()
}

/// Nanoseconds of one announcement.
fn cost_ns() -> f64 {
    const COUNT: u32 = 1_000_000;
    let begin = Instant::now();
    for _ in 0..COUNT {
        let request = black_box(&REQUEST);
        request.store(request.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
    begin.elapsed().as_nanos() as f64 / f64::from(COUNT)
}

/// A worker with 20 ms in 200 that is behind its rate whenever another one with 75 ms in 150 has been served first:
/// what it announces then has a fresh period. It gets no more than it is promised, and others get no less, whether it
/// announces after each millisecond or at each instruction.
pub fn fresh_periods() -> Outcome {
    let cost_ns = cost_ns();
    check!(cost_ns < 1000.0, "an announcement takes {cost_ns:.1} ns");
    let mut scheduler = shared()?;
    let other = Program::start(&["spin"]);
    let loops: Vec<Program> = (0..4).map(|_| Program::start(&["spin"])).collect();
    assign(&mut scheduler, other.pid(), grant(75_000, 150_000))?;
    let mut seen = Vec::new();
    for (name, every_us) in [("honest", 1_000), ("hostile", 0)] {
        let (worker, address) = announcer(name, every_us)?;
        let mut run = |requests_at: Option<u64>| {
            let standing =
                assign(&mut scheduler, worker.pid(), Grant { requests_at, ..grant(20_000, 200_000) })?;
            check!(standing == Standing::Admitted, "it was {standing}");
            sleep(Duration::from_millis(500));
            observe(&mut scheduler, &[worker.pid(), other.pid()], 4)
        };
        let (without, with) = (run(None)?, run(Some(address))?);
        // What a period still owes when a fresh one takes its place is lost.
        for ((share, fresh, missed), least) in [(without[0], 0.094), (with[0], 0.07)] {
            let is_held = share > least && share < 0.106;
            check!(is_held, "{name} got {share:.4} of a CPU, promised 0.1 ({fresh} fresh periods)");
            check!(missed == 0, "{name} missed {missed} deadlines");
        }
        check!(without[0].1 == 0, "{} periods were fresh without an address", without[0].1);
        check!(with[0].1 >= 5, "{name} has announced without end, and {} periods were fresh", with[0].1);
        check!(with[1].2 == 0 && with[1].0 > 0.49, "beside {name} the other one got {:.4} of 0.5", with[1].0);
        seen.push(format!("{name}: {} fresh periods, share {:.4} of 0.1", with[0].1, with[0].0));
    }
    drop((other, loops));
    drop(scheduler);
    Ok(format!("{cost_ns:.1} ns each; {}", seen.join("; ")))
}

/// Addresses at which there is nothing that could be read, of threads that end at any moment: nothing is announced, who
/// gives them has its reservation and no more, and nothing of it is left.
pub fn wrong_addresses() -> Outcome {
    let mut scheduler = shared()?;
    let addresses =
        [4, 1 << 40, 0x7fff_ffff_f000, 0x8000_0000_0000_0000, 0xffff_8880_0000_0000, u64::MAX - 3];
    let spinners: Vec<Program> = addresses.iter().map(|_| Program::start(&["spin"])).collect();
    let pids: Vec<i32> = spinners.iter().map(Program::pid).collect();
    for (pid, address) in pids.iter().zip(addresses) {
        assign(&mut scheduler, *pid, Grant { requests_at: Some(address), ..grant(5_000, 50_000) })?;
    }
    sleep(Duration::from_millis(500));
    let seen = observe(&mut scheduler, &pids, 3)?;
    for ((share, fresh, missed), address) in seen.iter().zip(addresses) {
        check!(*fresh == 0 && *missed == 0, "at {address:#x}: {fresh} fresh periods, {missed} missed");
        check!(*share > 0.09 && *share < 0.106, "at {address:#x}: {share:.4} of a CPU, promised 0.1");
    }
    // One that announces without end, and ends.
    let (announcer, address) = announcer("ending", 0)?;
    let keep = Grant { requests_at: Some(address), keep_over_exec: true, ..grant(5_000, 100_000) };
    assign(&mut scheduler, announcer.pid(), keep)?;
    drop(announcer);
    drop(spinners);
    let is_free = |scheduler: &mut SchedExt| {
        snapshot(scheduler).is_ok_and(|seen| seen.tasks.iter().all(|task| task.grant.requests_at.is_none()))
    };
    check!(wait_until(10.0, || is_free(&mut scheduler)), "tasks that have ended have slots still");
    drop(scheduler);
    Ok(format!("{} addresses read nothing", addresses.len()))
}

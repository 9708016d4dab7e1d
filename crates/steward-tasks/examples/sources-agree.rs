//! Reads this process's own threads, 1,500 that sleep and one that computes, through each source by turns, and fails
//! where they do not tell the same. `tests/kernel.rs` runs it in the lab's machine; it takes root.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use steward_core::cpu::forecast::TaskSample;
use steward_core::cpu::nice;
use steward_kernel::Roots;
use steward_tasks::{Bpf, Procfs, Source};

/// More than the reader in the kernel has room for at first.
const SLEEPERS: usize = 1500;
const STACK_BYTES: usize = 64 * 1024;
const ROUNDS: u64 = 3;

static DONE: AtomicBool = AtomicBool::new(false);

fn main() -> Result<()> {
    // Loaded before there is a crowd, so that their room has to grow.
    let sources: [Box<dyn Source>; 3] =
        [Box::new(Bpf::load()?), Box::new(Bpf::load_iterator()?), Box::new(Procfs::new(Roots::default()))];
    let mut threads = Vec::new();
    for _ in 0..SLEEPERS {
        let thread = thread::Builder::new().stack_size(STACK_BYTES).name("sleeper".into());
        threads.push(thread.spawn(|| {
            while !DONE.load(Ordering::Relaxed) {
                thread::park()
            }
        })?);
    }
    let busy = thread::Builder::new().name("busy".into());
    let busy = busy.spawn(|| {
        while !DONE.load(Ordering::Relaxed) {
            std::hint::spin_loop()
        }
    })?;
    thread::sleep(Duration::from_secs(1));
    let compared = compare(sources);
    DONE.store(true, Ordering::Relaxed);
    threads.iter().for_each(|sleeper| sleeper.thread().unpark());
    threads
        .into_iter()
        .chain([busy])
        .try_for_each(|thread| thread.join().ok())
        .context("a thread panicked")?;
    compared
}

fn compare(mut sources: [Box<dyn Source>; 3]) -> Result<()> {
    let mut ran_ns = 0;
    for round in 1..=ROUNDS {
        let mut told = Vec::new();
        for source in &mut sources {
            let own = own_threads(source.as_mut(), round)?;
            let busy =
                own.values().find(|sample| sample.name.starts_with(b"busy\0")).context("no busy thread")?;
            // Counters only grow, from one source to the next too; procfs counts up to the last tick.
            ensure!(
                busy.run_ns + 20_000_000 > ran_ns,
                "the busy thread ran {} ns after {ran_ns}",
                busy.run_ns
            );
            ran_ns = ran_ns.max(busy.run_ns);
            told.push(own);
        }
        // One that sleeps is given another nice value each time: a source that looks only at what ran would not see it.
        let sleeper =
            told[0].values().find(|sample| sample.name.starts_with(b"sleeper\0")).context("no sleeper")?;
        ensure!(sleeper.weight == nice::weight(round as i32 - 1), "round {round}: {sleeper:?}");
        // SAFETY: a plain system call on a thread of this process.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, sleeper.tid as libc::id_t, round as i32) };
        let [filled, iterated, listed] = &told[..] else { unreachable!("three sources") };
        ensure!(filled.len() == SLEEPERS + 2, "{} threads of {}", filled.len(), SLEEPERS + 2);
        for other in [iterated, listed] {
            ensure!(filled.keys().eq(other.keys()), "other threads than {} others", other.len());
            for (one, other) in filled.values().zip(other.values()) {
                let facts =
                    |sample: &TaskSample| (sample.pid, sample.uid, sample.name, sample.class, sample.weight);
                ensure!(facts(one) == facts(other), "{one:?} is not {other:?}");
                ensure!(one.cgroup_id == other.cgroup_id, "{one:?} is in another cgroup than {other:?}");
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
    ensure!(ran_ns > 100_000_000, "the busy thread ran only {ran_ns} ns");
    println!("{SLEEPERS} sleepers and a busy thread: all sources agree");
    Ok(())
}

/// The threads of this process, by their number. Fails where a thread comes twice or out of order.
fn own_threads(source: &mut dyn Source, round: u64) -> Result<BTreeMap<i32, TaskSample>> {
    let samples = source.read(round * 1_000_000_000)?.tasks.to_vec();
    ensure!(samples.windows(2).all(|pair| pair[0].tid < pair[1].tid), "{}: not in order", source.name());
    let own = std::process::id() as i32;
    Ok(samples.into_iter().filter(|sample| sample.pid == own).map(|sample| (sample.tid, sample)).collect())
}

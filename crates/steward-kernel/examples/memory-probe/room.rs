//! What is read, aged, taken and set of the memory of a cgroup with one process in it. Memory is taken from a file
//! where a directory for it is named, else from anonymous memory where there is swap; where there is neither, nothing
//! must be had.

use std::error::Error;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use steward_kernel::cgroup::directory::CgroupDirectory;
use steward_kernel::cgroup::place::Place;
use steward_kernel::cgroup::reading::{Bound, CgroupReader};
use steward_kernel::cgroup::tree::{Cgroup, CgroupTree};
use steward_kernel::journal::{self, Journal, SharedJournal};
use steward_kernel::memory::ages::{self, AgeingTarget, PageAges};
use steward_kernel::memory::bounds::{self, BoundFile};
use steward_kernel::memory::reclaim::{End, PoolOptions, ReclaimJob, ReclaimOutcome, ReclaimPool};
use steward_kernel::memory::{machine, swap};
use steward_kernel::{Roots, doctor};

use crate::program::Program;
use crate::{Check, MIB, Outcome, mib, must};

const CGROUP: &str = "memory-probe";
/// What the process has of anonymous memory.
const ANON_BYTES: u64 = 100 * MIB;
/// What it uses between two ageings.
const USED_BYTES: u64 = 25 * MIB;
const FILE_BYTES: u64 = 32 * MIB;
const TAKEN_BYTES: u64 = 8 * MIB;

/// The checks, in the order in which they are made.
pub const CHECKS: [Check<Probe>; 9] = [
    ("the-machine-has-figures", Probe::machine),
    ("doctor-judges-memory", Probe::doctor),
    ("touched-memory-is-found", Probe::reading),
    ("pages-have-ages", Probe::ages),
    ("ageing-tells-what-is-used", Probe::ageing),
    ("memory-is-taken", Probe::reclaim),
    ("a-reclaim-can-be-cancelled", Probe::cancel),
    ("a-bound-is-set-and-undone", Probe::bounds),
    ("a-cgroup-that-has-gone-is-told", Probe::gone),
];

/// Whether two sizes differ by at most so many hundredths of the second.
fn is_within(percent: u64, bytes: u64, wanted_bytes: u64) -> bool {
    bytes.abs_diff(wanted_bytes) * 100 <= wanted_bytes * percent
}

pub struct Probe {
    roots: Roots,
    tree: CgroupTree,
    cgroup: Cgroup,
    program: Program,
    directory: Option<PathBuf>,
}

impl Probe {
    pub fn start(directory: Option<PathBuf>) -> Result<Self, Box<dyn Error>> {
        let roots = Roots::default();
        let tree = CgroupTree::open(&roots)?;
        let cgroup = tree.create(CGROUP)?;
        let mut program = Program::start(&std::env::current_exe()?, &roots)?;
        tree.move_process(program.task.tid, CGROUP)?;
        program.ask(&format!("use 0 {ANON_BYTES}"))?;
        Ok(Probe { roots, tree, cgroup, program, directory })
    }

    fn machine(&mut self) -> Outcome {
        let (usage, zones) = (machine::usage(&self.roots)?, machine::zones(&self.roots)?);
        let (counters, areas) = (machine::counters(&self.roots)?, swap::areas(&self.roots)?);
        println!("{usage:?}\n{zones:?}\n{counters:?}\n{areas:?}");
        must(usage.total_bytes > ANON_BYTES && usage.available_bytes < usage.total_bytes, "no sizes")?;
        must(
            zones.min_pages < zones.low_pages && zones.low_pages < zones.high_pages,
            "watermarks are in no order",
        )?;
        let swap_bytes: u64 = areas.iter().map(|area| area.size_bytes).sum();
        must(swap_bytes == usage.swap_total_bytes, "swap has two sizes")?;
        let (high, lists) = (zones.high_pages * 4096, zones.per_cpu_pages * 4096);
        Ok(format!(
            "{} in all, high watermark {}, lists of CPUs {}",
            mib(usage.total_bytes),
            mib(high),
            mib(lists)
        ))
    }

    fn doctor(&mut self) -> Outcome {
        let diagnosis = doctor::examine(&self.roots);
        let ability = diagnosis.abilities.into_iter().find(|ability| ability.name == "memory");
        let ability = ability.ok_or("it is silent")?;
        let has_swap = diagnosis.facts.memory.swap_bytes > 0;
        must((ability.works == doctor::Holds::Yes) == has_swap, format!("{ability:?}"))?;
        Ok(format!("{} {}", ability.works, ability.lost))
    }

    fn reading(&mut self) -> Outcome {
        let reading = CgroupReader::open(CGROUP, &self.roots)?.read()?;
        println!("{reading:?}");
        must(reading.id == self.cgroup.id, "another id")?;
        let memory = reading.memory.ok_or("no memory")?;
        must(reading.io.is_some() && reading.pressure.memory.is_some(), "no disks, or no pressure")?;
        must(memory.events_local.is_some() && memory.swap_bytes.is_some(), "a file of memory is missing")?;
        must(is_within(1, memory.stat.anon_bytes, ANON_BYTES), mib(memory.stat.anon_bytes))?;
        must(memory.current_bytes >= memory.stat.anon_bytes, mib(memory.current_bytes))?;
        Ok(format!("{} of {}", mib(memory.stat.anon_bytes), mib(ANON_BYTES)))
    }

    fn page_ages(&self) -> Result<PageAges, Box<dyn Error>> {
        Ok(ages::of(&self.cgroup, &self.roots)?.ok_or("the kernel lists no such cgroup")?)
    }

    fn ages(&mut self) -> Outcome {
        must(ages::obstacle(&self.roots).is_none(), format!("{:?}", ages::obstacle(&self.roots)))?;
        let found = self.page_ages()?;
        println!("{found:?}");
        let bytes = anon_bytes(&found, 0);
        must(is_within(1, bytes, ANON_BYTES), mib(bytes))?;
        let names = if found.cgroup_id == Some(self.cgroup.id) { "is" } else { "is not" };
        Ok(format!("{} of {}; the number in lru_gen {names} the cgroup's id", mib(bytes), mib(ANON_BYTES)))
    }

    /// Ages all nodes; the first generation that is new, and the CPU time for it in nanoseconds.
    fn age(&self, force_scan: bool) -> Result<(u64, u64), Box<dyn Error>> {
        let found = self.page_ages()?;
        let (mut first_new, mut cpu_ns) = (0, 0);
        for node in &found.nodes {
            let sequence = node.generations.last().ok_or("no generations")?.sequence;
            let target = AgeingTarget {
                memcg_id: found.memcg_id,
                node: node.node,
                sequence,
                with_anon: true,
                force_scan,
            };
            let ageing = ages::age(&target, &self.roots)?;
            must(ageing.done, "somebody else aged it")?;
            (first_new, cpu_ns) = (sequence + 1, cpu_ns + ageing.cpu_ns);
        }
        Ok((first_new, cpu_ns))
    }

    fn ageing(&mut self) -> Outcome {
        let mut figures = Vec::new();
        for (force_scan, name) in [(true, "all tables"), (false, "tables that the kernel thinks worth it")] {
            let (first_new, first_ns) = self.age(force_scan)?;
            self.program.ask(&format!("use {} {USED_BYTES}", 10 * MIB))?;
            let (_, second_ns) = self.age(force_scan)?;
            let found = self.page_ages()?;
            println!("{found:?}");
            let used = anon_bytes(&found, first_new);
            must(is_within(1, used, USED_BYTES), format!("{name}: {} of {}", mib(used), mib(USED_BYTES)))?;
            let pages = ANON_BYTES / 4096;
            let (first_ns, second_ns) = (first_ns / pages, second_ns / pages);
            figures.push(format!(
                "{} of {} used, {first_ns} and {second_ns} ns a page ({name})",
                mib(used),
                mib(USED_BYTES)
            ));
        }
        Ok(figures.join("; "))
    }

    fn pool(&self) -> Result<ReclaimPool, Box<dyn Error>> {
        Ok(ReclaimPool::start(PoolOptions { threads: 2, waiting_max: 4, nice: Some(-5) }, &self.roots)?)
    }

    fn job(&self, bytes: u64) -> ReclaimJob {
        ReclaimJob { cgroup: CGROUP.into(), id: self.cgroup.id, bytes, swappiness: None, idle_ns: None }
    }

    fn current_bytes(&self) -> Result<u64, Box<dyn Error>> {
        Ok(CgroupReader::open(CGROUP, &self.roots)?.memory_current_bytes()?.ok_or("no memory")?)
    }

    fn reclaim(&mut self) -> Outcome {
        let pool = self.pool()?;
        let mut job = self.job(TAKEN_BYTES);
        if let Some(directory) = &self.directory {
            let file = directory.join("memory-probe.file");
            self.program.ask(&format!("file {FILE_BYTES} {}", file.display()))?;
            job.swappiness = Some(0);
        }
        let can_be_had = self.directory.is_some() || machine::usage(&self.roots)?.swap_total_bytes > 0;
        let before_bytes = self.current_bytes()?;
        let number = pool.give(job).map_err(|_| "no room in an empty queue")?;
        let outcome = wait(&pool)?;
        let after_bytes = self.current_bytes()?;
        must(outcome.number == number && !pool.nice_failed(), format!("{outcome:?}"))?;
        if !can_be_had {
            must(matches!(outcome.end, End::NothingToBeHad), format!("{outcome:?}"))?;
            return Ok(format!("nothing to be had, told after {:?}", outcome.duration));
        }
        must(matches!(outcome.end, End::Done) && outcome.pieces == 8, format!("{outcome:?}"))?;
        let fallen_bytes = before_bytes.saturating_sub(after_bytes);
        must(
            (7 * MIB..=10 * MIB).contains(&fallen_bytes),
            format!("memory.current fell by {}", mib(fallen_bytes)),
        )?;
        let ms = outcome.duration.as_secs_f64() * 1e3 / (TAKEN_BYTES / MIB) as f64;
        Ok(format!("{} fewer after {} were asked for, {ms:.2} ms a MiB", mib(fallen_bytes), mib(TAKEN_BYTES)))
    }

    fn cancel(&mut self) -> Outcome {
        let pool = self.pool()?;
        let number = pool.give(self.job(ANON_BYTES)).map_err(|_| "no room in an empty queue")?;
        pool.cancel(number);
        let outcome = wait(&pool)?;
        // Where nothing can be had the job may have ended before.
        must(matches!(outcome.end, End::Cancelled | End::NothingToBeHad), format!("{outcome:?}"))?;
        must(outcome.taken_bytes < ANON_BYTES / 2, mib(outcome.taken_bytes))?;
        Ok(format!("after {} pieces", outcome.pieces))
    }

    fn bounds(&mut self) -> Outcome {
        let file = Path::new("/run/memory-probe.undo");
        let value = || CgroupDirectory::open(CGROUP, &self.roots)?.read("memory.min");
        let before = value()?;
        let journal = SharedJournal::from(Journal::open(file, &self.roots)?);
        let place = Place { path: CGROUP.into(), cgroup_id: self.cgroup.id };
        // Not whole pages, so that the kernel shows another value than the one that was written.
        for bytes in [50 * MIB + 1, 60 * MIB + 1] {
            bounds::set(&journal, &place, BoundFile::Min, Bound::Bytes(bytes), &self.roots)?;
        }
        let shown = value()?;
        must(shown == (60 * MIB).to_string() && journal.outstanding() == 1, &*shown)?;
        drop(journal);
        let report = journal::revert(file, &self.roots)?;
        must(report.reverted.len() == 1 && value()? == before, report.to_string())?;
        Ok(format!("{before} became {shown} and is {} again", value()?))
    }

    fn gone(&mut self) -> Outcome {
        let reader = CgroupReader::open(CGROUP, &self.roots)?;
        let found = self.page_ages()?;
        self.program.end()?;
        while self.tree.is_populated(CGROUP)? {
            std::thread::yield_now();
        }
        self.tree.remove(CGROUP)?;
        must(reader.read().is_err_and(|error| error.is_absent()), "it can still be read")?;
        let pool = self.pool()?;
        pool.give(self.job(MIB)).map_err(|_| "no room in an empty queue")?;
        let outcome = wait(&pool)?;
        must(matches!(outcome.end, End::Gone), format!("{outcome:?}"))?;
        // It may be listed as long as anything is charged to it, and is no other cgroup's then.
        let listed =
            if ages::of(&self.cgroup, &self.roots)?.is_some() { "listed still" } else { "not listed" };
        let node = found.nodes.first().ok_or("no nodes")?;
        let sequence = node.generations.last().ok_or("no generations")?.sequence;
        let target = AgeingTarget {
            memcg_id: found.memcg_id,
            node: node.node,
            sequence,
            with_anon: true,
            force_scan: true,
        };
        let error = ages::age(&target, &self.roots).err().ok_or("its pages are aged still")?;
        Ok(format!("{listed}; ageing it: {error}"))
    }
}

/// The anonymous memory in generations from `first` on, in bytes.
fn anon_bytes(ages: &PageAges, first: u64) -> u64 {
    let generations = ages.nodes.iter().flat_map(|node| &node.generations);
    generations
        .filter(|generation| generation.sequence >= first)
        .map(|generation| generation.anon_pages * 4096)
        .sum()
}

/// The one outcome that is to come.
fn wait(pool: &ReclaimPool) -> Result<ReclaimOutcome, Box<dyn Error>> {
    poll(&mut [PollFd::new(pool, PollFlags::IN)], None)?;
    Ok(pool.take_outcomes().pop().ok_or("the bell rang for nothing")?)
}

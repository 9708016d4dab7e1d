//! The judgement over one reading after another.

use std::collections::BTreeMap;

use super::tally::Tally;
use crate::cpu::mechanism::DomainRecord;

/// `q`: the longest that a task runs at a time beside others, in nanoseconds. A slice of 3 ms ends at the tick after
/// it, and ticks are 4 ms apart (docs/scheduler.md, section 3).
pub const QUANTUM_NS: u64 = 7_000_000;
/// Readings further apart, in nanoseconds, say how much was received, but not how evenly it was wanted: the integral of
/// the square may have wrapped, with more than 24,000 runnable tasks in a domain. Not less: a daemon that hardly runs
/// has to say so afterwards.
const EVIDENCE_MAX_NS: u64 = 30_000_000_000;
const SECOND_NS: f64 = 1e9;

/// A domain whose reservation is to be audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its path from the root of the cgroup tree.
    pub path: String,
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// The user that it belongs to.
    pub user: u32,
}

/// What the scheduler has counted up to one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Another number when the counters have begun anew: the scheduler was loaded again.
    pub generation: u64,
    /// How many CPUs are online.
    pub cpus: u32,
    /// How long reading took, in nanoseconds: what was read first and what was read last are so much apart.
    pub took_ns: u64,
    /// `T`: the service cycle, in nanoseconds.
    pub service_cycle_ns: u64,
    /// All domains.
    pub records: &'a [DomainRecord],
}

/// What was found about one domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Audited {
    /// Its place in the promises.
    pub promise: usize,
    /// Since the last reading.
    pub tally: Tally,
}

/// Holds each reading against the one before.
#[derive(Clone, Debug, Default)]
pub struct Auditor {
    last: Option<Last>,
    /// What is missing over the worst stretch of time that ends now, by cgroup.
    missing: BTreeMap<u64, Missing>,
}

#[derive(Clone, Debug)]
struct Last {
    at_ns: u64,
    took_ns: u64,
    generation: u64,
    waiting_domains: usize,
    counters: BTreeMap<u64, Counters>,
    /// What was reserved of the machine.
    fractions: BTreeMap<u64, f64>,
}

impl Last {
    /// What was promised to a domain all the time since: the less of then and now. One that was not there is as it was
    /// made.
    fn promised_since(&self, cgroup_id: u64, now: f64) -> f64 {
        let is_new = !self.counters.contains_key(&cgroup_id);
        if is_new { now } else { self.fractions.get(&cgroup_id).map_or(0.0, |then| then.min(now)) }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    received_ns: u64,
    waited_ns: u64,
    runnable_ns: u64,
    runnable_squared_ns: u64,
    /// By a quota that is used up, or because it is suspended.
    held: bool,
}

impl Counters {
    fn of(record: &DomainRecord) -> Self {
        Counters {
            received_ns: record.best_effort_time_ns.saturating_add(record.reserved_time_ns),
            waited_ns: record.waiting_time_ns,
            runnable_ns: record.runnable_time_ns,
            runnable_squared_ns: record.runnable_squared_ns,
            held: record.throttled || record.suspended,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    /// The fraction of the machine for which this was summed.
    fraction: f64,
    ns: f64,
    /// How long the reading took with which the stretch began, in nanoseconds.
    begun_took_ns: f64,
}

/// What one domain and those below it did between two readings.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    received_ns: u64,
    waited_ns: u64,
    runnable_ns: f64,
    /// The root of an upper bound of the integral of the square.
    runnable_squared_root: f64,
    /// It was held back by choice.
    held: bool,
    /// A counter went back: nothing can be said.
    reset: bool,
}

impl Change {
    fn between(before: Option<&Counters>, now: &Counters) -> Self {
        // One that was not there has been made since, and its counters began at 0.
        let before = before.copied().unwrap_or_default();
        let received = now.received_ns.checked_sub(before.received_ns);
        let waited = now.waited_ns.checked_sub(before.waited_ns);
        // Read while it is written, a sum can be a little ahead, and is behind the next time.
        let grown = |now: u64, before: u64| (now.wrapping_sub(before) as i64).max(0) as f64;
        let squared = now.runnable_squared_ns.wrapping_sub(before.runnable_squared_ns) as f64;
        Change {
            received_ns: received.unwrap_or(0),
            waited_ns: waited.unwrap_or(0),
            runnable_ns: grown(now.runnable_ns, before.runnable_ns),
            runnable_squared_root: squared.sqrt(),
            held: now.held || before.held,
            reset: received.is_none() || waited.is_none(),
        }
    }

    fn add(&mut self, other: &Change) {
        self.received_ns = self.received_ns.saturating_add(other.received_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.runnable_ns += other.runnable_ns;
        self.runnable_squared_root += other.runnable_squared_root;
        self.held |= other.held;
        self.reset |= other.reset;
    }
}

impl Auditor {
    /// Nothing has been read yet.
    pub fn new() -> Self {
        Auditor::default()
    }

    /// Forgets the last reading: what happens until the next one is not judged.
    pub fn forget(&mut self) {
        *self = Auditor::default();
    }

    /// Judges what happened since the last reading. Nothing can be said of a first reading, of one that is not later
    /// than the last, of one after the counters began anew, and of domains with nothing reserved.
    pub fn observe(&mut self, reading: &Reading<'_>, promises: &[Promise]) -> Vec<Audited> {
        let tree = Family::of(reading.records);
        let fraction_of = |promise: &Promise| tree.reserved_of_machine(promise.cgroup_id);
        let Reading { at_ns, generation, .. } = *reading;
        let now = Last {
            at_ns,
            took_ns: reading.took_ns,
            generation,
            waiting_domains: reading.records.iter().filter(|record| record.runnable > 0).count(),
            counters: reading.records.iter().map(|record| (record.cgroup_id, Counters::of(record))).collect(),
            fractions: promises.iter().map(|promise| (promise.cgroup_id, fraction_of(promise))).collect(),
        };
        let waiting_domains = now.waiting_domains;
        let last = self.last.replace(now);
        let last = last.filter(|last| last.generation == generation && last.at_ns < at_ns);
        let Some(last) = last else {
            self.missing.clear();
            return Vec::new();
        };
        let here: BTreeMap<u64, f64> = promises
            .iter()
            .map(|promise| (promise.cgroup_id, last.promised_since(promise.cgroup_id, fraction_of(promise))))
            .filter(|(_, fraction)| *fraction > 0.0)
            .collect();
        self.missing.retain(|cgroup_id, missing| here.get(cgroup_id) == Some(&missing.fraction));
        let beside = Beside {
            cpus: f64::from(reading.cpus.max(1)),
            cycle_ns: reading.service_cycle_ns.max(1) as f64,
            waiting_domains: last.waiting_domains.max(waiting_domains) as f64,
            took_ns: reading.took_ns as f64,
            last_took_ns: last.took_ns as f64,
            elapsed_ns: at_ns - last.at_ns,
        };
        let mut audited = Vec::new();
        for (place, promise) in promises.iter().enumerate() {
            let Some(fraction) = here.get(&promise.cgroup_id).copied() else { continue };
            let held = tree.is_held(promise.cgroup_id, beside.cpus, &last.counters);
            let mut change = Change { held, ..Change::default() };
            for record in tree.at_or_below(promise.cgroup_id) {
                change.add(&Change::between(last.counters.get(&record.cgroup_id), &Counters::of(record)));
            }
            if change.reset {
                self.missing.remove(&promise.cgroup_id);
                continue;
            }
            let missing = self.missing.entry(promise.cgroup_id).or_insert(Missing {
                fraction,
                ns: 0.0,
                begun_took_ns: beside.last_took_ns,
            });
            audited.push(Audited { promise: place, tally: judge(missing, &change, &beside) });
        }
        audited
    }
}

/// What counts for all domains alike.
struct Beside {
    cpus: f64,
    cycle_ns: f64,
    waiting_domains: f64,
    took_ns: f64,
    last_took_ns: f64,
    elapsed_ns: u64,
}

/// One domain between two readings.
fn judge(missing: &mut Missing, change: &Change, beside: &Beside) -> Tally {
    let elapsed_ns = beside.elapsed_ns as f64;
    let promised_cpus = missing.fraction * beside.cpus;
    let promised_ns = promised_cpus * elapsed_ns;
    let received_ns = change.received_ns as f64;
    let has_evidence = !change.held && beside.elapsed_ns <= EVIDENCE_MAX_NS;
    let squared_ns = change.runnable_squared_root * change.runnable_squared_root;
    let proven_ns = match has_evidence {
        true => wanted_at_least_ns(promised_cpus, change.runnable_ns, squared_ns, elapsed_ns),
        false => 0.0,
    };
    let crowding = (beside.waiting_domains / beside.cpus + 1.0) * QUANTUM_NS as f64 / beside.cycle_ns;
    let due_ns = proven_ns / (1.0 + crowding);
    missing.ns = if has_evidence { (missing.ns + due_ns - received_ns).max(0.0) } else { 0.0 };
    let reading_ns = missing.begun_took_ns + beside.took_ns;
    let tolerance =
        tolerance_ns(missing.fraction, beside.cpus, beside.cycle_ns, beside.waiting_domains, reading_ns);
    if missing.ns <= 0.0 {
        missing.begun_took_ns = beside.took_ns;
    }
    let lost_ns = (missing.ns - tolerance).max(0.0);
    missing.ns = missing.ns.min(tolerance);

    let wanted_ns = proven_ns.max(received_ns.min(promised_ns));
    let whole_seconds = (elapsed_ns / SECOND_NS).round().max(1.0);
    let seconds = if wanted_ns >= 1.0 { whole_seconds } else { 0.0 };
    // After a pause of several seconds, no more of them than it takes to lose so much.
    let broken = if lost_ns >= 1.0 {
        (lost_ns / (promised_cpus * SECOND_NS)).ceil().clamp(1.0, seconds.max(1.0))
    } else {
        0.0
    };
    Tally {
        seen_ns: beside.elapsed_ns,
        promised_ns: promised_ns as u64,
        wanted_ns: wanted_ns as u64,
        received_ns: change.received_ns,
        waited_ns: change.waited_ns,
        seconds: seconds as u64,
        broken: broken as u64,
        worst_missing_ns: if broken > 0.0 { (lost_ns / broken) as u64 } else { 0 },
    }
}

/// What a domain wanted at least of `promised_cpus` CPUs within `elapsed_ns`, in nanoseconds of CPU time, given the
/// integrals of the number r of its runnable tasks and of that number's square.
///
/// The least mean of `min(r, c)` among all r that are never negative and have this mean and variance (Scarf 1958, "A
/// min-max solution of an inventory problem").
pub fn wanted_at_least_ns(
    promised_cpus: f64,
    runnable_ns: f64,
    runnable_squared_ns: f64,
    elapsed_ns: f64,
) -> f64 {
    let (mean, square) = (runnable_ns / elapsed_ns, runnable_squared_ns / elapsed_ns);
    // A mean of squares below the square of the mean is no evidence but a mistake.
    if !(mean > 0.0 && promised_cpus > 0.0 && square >= mean * mean * 0.999) {
        return 0.0;
    }
    let least = if 2.0 * promised_cpus * mean <= square {
        promised_cpus * mean * mean / square
    } else {
        let variance = (square - mean * mean).max(0.0);
        (mean + promised_cpus - variance.sqrt().hypot(promised_cpus - mean)) / 2.0
    };
    least.clamp(0.0, promised_cpus) * elapsed_ns
}

/// By how much a domain may be behind at any moment and the promise is still kept, in nanoseconds of CPU time.
/// `fraction` is what it is promised of the machine, and `reading_ns` how long the readings at either end took.
pub fn tolerance_ns(fraction: f64, cpus: f64, cycle_ns: f64, waiting_domains: f64, reading_ns: f64) -> f64 {
    let quantum_ns = QUANTUM_NS as f64;
    let delay_ns =
        (1.0 - fraction) * 9.0 / 8.0 * cycle_ns + (waiting_domains / cpus + 4.0) * quantum_ns + reading_ns;
    fraction * cpus * delay_ns + cpus * quantum_ns
}

/// Domains by id and by parent.
pub struct Family<'a> {
    by_id: BTreeMap<u64, &'a DomainRecord>,
    children: BTreeMap<u64, Vec<u64>>,
}

impl<'a> Family<'a> {
    /// All that the scheduler knows.
    pub fn of(records: &'a [DomainRecord]) -> Self {
        let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for record in records {
            children.entry(record.parent_id).or_default().push(record.cgroup_id);
        }
        Family { by_id: records.iter().map(|record| (record.cgroup_id, record)).collect(), children }
    }

    /// A domain and those above it, without the root.
    fn up_from(&self, cgroup_id: u64) -> impl Iterator<Item = &'a DomainRecord> {
        let mut next = self.by_id.get(&cgroup_id).copied();
        // As many steps as there are domains: what is read while it changes could lead in a circle.
        (0..self.by_id.len()).map_while(move |_| {
            let record = next.filter(|record| record.parent_id != 0)?;
            next = self.by_id.get(&record.parent_id).copied();
            Some(record)
        })
    }

    /// The fraction of the machine that is reserved for a domain: the product of the reservations in force up to the
    /// root; 0 when one of them is missing.
    pub fn reserved_of_machine(&self, cgroup_id: u64) -> f64 {
        let mut fractions = self.up_from(cgroup_id).map(|record| record.policy.reserved).peekable();
        if fractions.peek().is_none() { 0.0 } else { fractions.product::<f64>().clamp(0.0, 1.0) }
    }

    /// Whether a domain is or was held back by choice: it or one above it is suspended or has used up a quota, has a
    /// quota that is less than its promise, or there is any quota below it.
    fn is_held(&self, cgroup_id: u64, cpus: f64, before: &BTreeMap<u64, Counters>) -> bool {
        let was_held = |id| before.get(&id).is_some_and(|counters| counters.held);
        let mut above = self.up_from(cgroup_id);
        let from_above = above.any(|record| {
            let promised_cpus = self.reserved_of_machine(record.cgroup_id) * cpus;
            Counters::of(record).held || was_held(record.cgroup_id) || record.limit_cpus < promised_cpus
        });
        let mut below = self.at_or_below(cgroup_id).into_iter().skip(1);
        from_above || below.any(|record| record.limit_cpus.is_finite())
    }

    /// A domain, if it is there, and all below it.
    pub fn at_or_below(&self, cgroup_id: u64) -> Vec<&'a DomainRecord> {
        let mut found: Vec<&DomainRecord> = self.by_id.get(&cgroup_id).copied().into_iter().collect();
        let mut place = 0;
        while place < found.len() && found.len() <= self.by_id.len() {
            let children = self.children.get(&found[place].cgroup_id).into_iter().flatten();
            found.extend(children.filter_map(|child| self.by_id.get(child).copied()));
            place += 1;
        }
        found
    }
}

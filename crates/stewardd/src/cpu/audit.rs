//! The record of promises: what the scheduler counted for domains with a reservation, judged about once a second by
//! `steward_core::cpu::audit`, and kept on the disk.
//!
//! While nothing is reserved for any domain this does nothing at all. The disk is written once a minute at most, by the
//! worker: the loop waits for no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use steward_core::cpu::audit::{Audited, Auditor, Promise, Reading, Tally};
use steward_core::record::{Counted, Record, Records, Timeline, file};
use steward_kernel::files;

use crate::health::Topic;
use crate::turn::worker::{Job, Worker};

mod judging;

/// From one reading to the next, in nanoseconds.
const EVERY_NS: u64 = 1_000_000_000;
/// The disk is not written more often than this, in nanoseconds.
const SAVE_EVERY_NS: u64 = 60_000_000_000;

/// The record and what keeps it.
pub(crate) struct Audit {
    auditor: Auditor,
    pub(crate) records: Records<Tally>,
    timeline: Timeline,
    /// Since the daemon started, by path: what only grows, for the metrics.
    pub(crate) totals: BTreeMap<String, Tally>,
    path: PathBuf,
    due_at_ns: u64,
    save_at_ns: Option<u64>,
    /// Whether something is promised to any domain.
    busy: bool,
    /// The cgroups that were suspended since the last reading, for however short a time.
    suspended: BTreeSet<u64>,
}

/// Seconds since boot, sleep included.
pub(crate) fn since_boot_s() -> u64 {
    clock_gettime(ClockId::Boottime).tv_sec as u64
}

fn wall_s() -> u64 {
    clock_gettime(ClockId::Realtime).tv_sec.max(0) as u64
}

impl Audit {
    /// What an earlier daemon has left, and what was wrong with it. `boot_id` is the kernel's name of this boot.
    pub(crate) fn load(state_directory: &Path, boot_id: &str) -> (Self, Option<String>) {
        let path = state_directory.join("audit/promises");
        let (records, kept, message) = read(&path);
        let newest_s = records.newest_s();
        let timeline = Timeline::continued(&kept, newest_s, boot_id.trim(), wall_s(), since_boot_s());
        let audit = Audit {
            auditor: Auditor::new(),
            records,
            timeline,
            totals: BTreeMap::new(),
            path,
            due_at_ns: 0,
            save_at_ns: None,
            busy: false,
            suspended: BTreeSet::new(),
        };
        (audit, message)
    }

    /// When it has something to do that nothing else announces.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let due = self.busy.then_some(self.due_at_ns);
        [due, self.save_at_ns].into_iter().flatten().min()
    }

    /// The second that it is on the record's line of time.
    pub(crate) fn now_s(&self, since_boot_s: u64) -> u64 {
        self.timeline.at_s(since_boot_s)
    }

    /// What is kept of a domain of this user.
    pub(crate) fn record(&self, path: &str, user: u32) -> Option<&Record<Tally>> {
        self.records.get(path, user)
    }

    /// A domain is suspended: from now to the next reading it wants nothing.
    pub(crate) fn note_suspended(&mut self, cgroup_id: u64) {
        if self.busy {
            self.suspended.insert(cgroup_id);
        }
    }

    /// Takes in a reading.
    fn observe(&mut self, reading: &Reading<'_>, promises: &[Promise], at_s: u64) {
        for Audited { promise, tally } in self.auditor.observe(reading, promises) {
            let Some(Promise { path, user, .. }) = promises.get(promise) else { continue };
            self.records.add(path, *user, at_s, &tally);
            self.totals.entry(path.clone()).or_default().add(&tally);
            self.save_at_ns.get_or_insert(reading.at_ns.saturating_add(SAVE_EVERY_NS));
            if tally.broken > 0 {
                tracing::debug!(
                    decision = "promise-broken",
                    domain = path,
                    missing_ns = tally.worst_missing_ns
                );
            }
        }
        let promised: BTreeSet<&str> = promises.iter().map(|promise| promise.path.as_str()).collect();
        self.totals.retain(|path, _| promised.contains(path.as_str()));
    }

    /// Has the record written. One that has not begun to be written is overtaken.
    fn save(&mut self, at_s: u64, worker: &mut Worker) {
        self.records.expire(at_s);
        let text = file::encode(&self.records, &self.timeline);
        let otherwise = "after a restart, the record of promises will be old";
        worker.give(Job::replace(Topic::Audit, self.path.clone(), text, true, otherwise));
    }

    /// Has written what is not written yet.
    pub(crate) fn finish(&mut self, worker: &mut Worker) {
        if self.save_at_ns.take().is_some() {
            self.save(self.now_s(since_boot_s()), worker);
        }
    }
}

/// Reads the file. What is wrong with it is set aside, and said in a sentence.
fn read(path: &Path) -> (Records<Tally>, Timeline, Option<String>) {
    let nothing = |message| (Records::default(), Timeline::default(), message);
    let (records, timeline, problems) = match files::read_bytes(path, files::KEPT_BYTES_MAX) {
        Ok(bytes) => file::decode(&String::from_utf8_lossy(&bytes)),
        Err(error) if error.is_absent() => return nothing(None),
        Err(error) => (Records::default(), Timeline::default(), vec![format!("it {}", error.what())]),
    };
    let Some(first) = problems.first() else { return (records, timeline, None) };
    let aside = path.with_extension("damaged");
    let outcome = match std::fs::rename(path, &aside) {
        Ok(()) => format!("it is now {}", aside.display()),
        Err(error) => format!("renaming it to {} failed: {error}", aside.display()),
    };
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message = format!(
        "the record of promises {} is damaged: {first}{more}; the rest was read; {outcome}",
        path.display()
    );
    (records, timeline, Some(message))
}

#[cfg(test)]
mod tests;

//! The record of promises: what the scheduler counted for domains with a reservation, judged about once a second by
//! `steward_core::cpu::audit`, and kept on the disk.
//!
//! While nothing is reserved for any domain this does nothing at all. The disk is written once a minute at most, by the
//! worker: the loop waits for no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use steward_core::cpu::audit::{Audited, Auditor, Promise, Reading, Tally};
use steward_core::record::{Counted, Record};

use crate::files::record::RecordFile;
use crate::health::Topic;
use crate::turn::worker::Worker;

mod judging;

/// From one reading to the next, in nanoseconds.
const EVERY_NS: u64 = 1_000_000_000;

/// The record and what keeps it.
pub(crate) struct Audit {
    auditor: Auditor,
    pub(crate) kept: RecordFile<Tally>,
    /// Since the daemon started, by path: what only grows, for the metrics.
    pub(crate) totals: BTreeMap<String, Tally>,
    due_at_ns: u64,
    /// Whether something is promised to any domain.
    busy: bool,
    /// The cgroups that were suspended since the last reading, for however short a time.
    suspended: BTreeSet<u64>,
}

impl Audit {
    /// What an earlier daemon has left, and what was wrong with it. `boot_id` is the kernel's name of this boot.
    pub(crate) fn load(state_directory: &Path, boot_id: &str) -> (Self, Option<String>) {
        let path = state_directory.join("audit/promises");
        let otherwise = "after a restart, the record of promises will be old";
        let (kept, message) = RecordFile::load(path, Topic::Audit, otherwise, boot_id);
        let audit = Audit {
            auditor: Auditor::new(),
            kept,
            totals: BTreeMap::new(),
            due_at_ns: 0,
            busy: false,
            suspended: BTreeSet::new(),
        };
        (audit, message)
    }

    /// When it has something to do that nothing else announces.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let due = self.busy.then_some(self.due_at_ns);
        [due, self.kept.save_at_ns].into_iter().flatten().min()
    }

    /// The second that it is on the record's line of time.
    pub(crate) fn now_s(&self, since_boot_s: u64) -> u64 {
        self.kept.now_s(since_boot_s)
    }

    /// What is kept of a domain of this user.
    pub(crate) fn record(&self, path: &str, user: u32) -> Option<&Record<Tally>> {
        self.kept.get(path, user)
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
            self.kept.add(path, *user, at_s, reading.at_ns, &tally);
            self.totals.entry(path.clone()).or_default().add(&tally);
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

    /// Has written what is not written yet.
    pub(crate) fn finish(&mut self, worker: &mut Worker) {
        self.kept.finish(worker);
    }
}

#[cfg(test)]
mod tests;

//! The record of promises: what the scheduler counted for domains with a reservation, judged about once a second by
//! `steward_core::audit`, and kept on the disk.
//!
//! While nothing is reserved for any domain this does nothing at all. The disk is written once a minute at most, by a
//! thread of its own: the loop waits for no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use steward_core::audit::{Audited, Auditor, Promise, Reading, Record, Records, Tally, Timeline, file};
use steward_core::mechanism::DomainRecord;
use steward_kernel::{cpus, files};

use crate::daemon::Daemon;
use crate::event_loop;
use crate::troubles::Topic;

/// From one reading to the next, in nanoseconds.
const EVERY_NS: u64 = 1_000_000_000;
/// The disk is not written more often than this, in nanoseconds.
const SAVE_EVERY_NS: u64 = 60_000_000_000;

/// The record and what keeps it.
pub(crate) struct Audit {
    auditor: Auditor,
    pub(crate) records: Records,
    timeline: Timeline,
    /// Since the daemon started, by path: what only grows, for the metrics.
    pub(crate) totals: BTreeMap<String, Tally>,
    path: PathBuf,
    writer: Option<Writer>,
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
            writer: None,
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
    pub(crate) fn record(&self, path: &str, user: u32) -> Option<&Record> {
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

    /// Has the record written. One that is still being written is not overtaken: this one waits for the next minute.
    fn save(&mut self, at_s: u64) {
        self.records.expire(at_s);
        let text = file::encode(&self.records, &self.timeline);
        self.writer.get_or_insert_with(|| Writer::start(&self.path)).write(text);
    }

    /// What became of writing since the last call: `None` when nothing was written.
    fn written(&mut self) -> Option<Result<(), String>> {
        self.writer.as_ref()?.outcomes.try_iter().last()
    }

    /// Writes what is not written yet, and waits for it.
    pub(crate) fn finish(&mut self) {
        if self.save_at_ns.take().is_some() {
            self.save(self.now_s(since_boot_s()));
        }
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }
}

impl Daemon {
    /// To be called at least once a second.
    pub(crate) fn audit_if_due(&mut self, now_ns: u64) {
        if self.audit.due_at_ns <= now_ns {
            // At the same moments of each second, and none twice.
            let next_ns = self.audit.due_at_ns.saturating_add(EVERY_NS);
            self.audit.due_at_ns = if next_ns > now_ns { next_ns } else { now_ns.saturating_add(EVERY_NS) };
            self.audit_now(&event_loop::now_ns, since_boot_s());
        }
        if self.audit.save_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.audit.save_at_ns = None;
            let at_s = self.audit.now_s(since_boot_s());
            self.audit.save(at_s);
        }
        if let Some(outcome) = self.audit.written() {
            self.troubles.set(Topic::Audit, outcome.err().into_iter().collect());
        }
    }

    /// Reads what the scheduler has counted, and judges it. The clock is read when the counters are: what the loop did before
    /// may have taken long, and so may reading where the daemon loses the CPU meanwhile.
    pub(crate) fn audit_now(&mut self, clock: &dyn Fn() -> u64, since_boot_s: u64) {
        let promises = self.domains.promises();
        self.audit.busy = !promises.is_empty();
        let begun_ns = clock();
        let records = match self.mechanism.as_mut() {
            Some(mechanism) if self.audit.busy => mechanism.domains().ok(),
            _ => None,
        };
        let at_ns = clock();
        let Some(mut records) = records else { return self.audit.auditor.forget() };
        let suspended = std::mem::take(&mut self.audit.suspended);
        for record in &mut records {
            record.suspended |= suspended.contains(&record.cgroup_id);
        }
        let reading = Reading { took_ns: at_ns.saturating_sub(begun_ns), ..self.reading(at_ns, &records) };
        let at_s = self.audit.now_s(since_boot_s);
        self.audit.observe(&reading, &promises, at_s);
    }

    fn reading<'records>(&self, at_ns: u64, records: &'records [DomainRecord]) -> Reading<'records> {
        Reading {
            at_ns,
            generation: self.health.restarts,
            cpus: self.online_cpu_count(),
            took_ns: 0,
            service_cycle_ns: self.best_effort().service_cycle_ns,
            records,
        }
    }

    /// How many CPUs are online; where that cannot be read, one.
    pub(crate) fn online_cpu_count(&self) -> u32 {
        cpus::online(&self.options.roots).map_or(1, |online| online.len().max(1) as u32)
    }
}

/// Reads the file. What is wrong with it is set aside, and said in a sentence.
fn read(path: &Path) -> (Records, Timeline, Option<String>) {
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

/// The thread that writes.
struct Writer {
    texts: SyncSender<String>,
    outcomes: Receiver<Result<(), String>>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(path: &Path) -> Self {
        let path = path.to_owned();
        let (texts, to_write) = sync_channel::<String>(1);
        let (report, outcomes) = sync_channel(4);
        let thread = std::thread::spawn(move || {
            for text in to_write {
                let outcome = replace(&path, &text);
                let sentence = |error: anyhow::Error| {
                    format!("after a restart, the record of promises will be old: {error:#}")
                };
                // Nobody has taken the last four outcomes: this one says no more than they do.
                let _ = report.try_send(outcome.map_err(sentence));
            }
        });
        Writer { texts, outcomes, thread }
    }

    fn write(&self, text: String) {
        if self.texts.try_send(text).is_err() {
            tracing::debug!(
                "the disk is slower than the record of promises: this minute is written with the next"
            );
        }
    }

    fn finish(self) {
        drop(self.texts);
        let _ = self.thread.join();
    }
}

/// Replaces the file whole: after a crash there is the old one or the new one.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", beside.display()))?;
    std::fs::rename(&beside, path)
        .with_context(|| format!("cannot rename {} to {}", beside.display(), path.display()))
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

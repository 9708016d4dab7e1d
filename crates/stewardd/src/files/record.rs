//! A record that outlives the daemon: what is kept of each domain for the last minute, hour and day
//! ([`steward_core::record`]), in a file that the worker writes about once a minute.

use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use steward_core::record::{Counted, Record, Records, Timeline, file};
use steward_kernel::files;

use crate::health::Topic;
use crate::turn::worker::{Job, Worker};

/// The disk is not written more often than this, in nanoseconds.
pub(crate) const SAVE_EVERY_NS: u64 = 60_000_000_000;

/// Seconds since boot, sleep included.
pub(crate) fn since_boot_s() -> u64 {
    clock_gettime(ClockId::Boottime).tv_sec as u64
}

fn wall_s() -> u64 {
    clock_gettime(ClockId::Realtime).tv_sec.max(0) as u64
}

/// A record, its line of time, and its file.
pub(crate) struct RecordFile<T> {
    pub(crate) records: Records<T>,
    timeline: Timeline,
    path: PathBuf,
    /// What becomes of writing is said on this.
    topic: Topic,
    /// What it means that it could not be written.
    otherwise: &'static str,
    pub(crate) save_at_ns: Option<u64>,
}

impl<T: Counted> RecordFile<T> {
    /// What an earlier daemon has left at this path, and what was wrong with it. `boot_id` is the kernel's name of this
    /// boot.
    pub(crate) fn load(
        path: PathBuf,
        topic: Topic,
        otherwise: &'static str,
        boot_id: &str,
    ) -> (Self, Option<String>) {
        let (records, kept, message) = read(&path);
        let newest_s = records.newest_s();
        let timeline = Timeline::continued(&kept, newest_s, boot_id.trim(), wall_s(), since_boot_s());
        (RecordFile { records, timeline, path, topic, otherwise, save_at_ns: None }, message)
    }

    /// The second that it is on the record's line of time.
    pub(crate) fn now_s(&self, since_boot_s: u64) -> u64 {
        self.timeline.at_s(since_boot_s)
    }

    /// What is kept of a domain of this user.
    pub(crate) fn get(&self, path: &str, user: u32) -> Option<&Record<T>> {
        self.records.get(path, user)
    }

    /// Takes in what was found about a domain in the second `at_s`, which is `now_ns` of `CLOCK_MONOTONIC`.
    pub(crate) fn add(&mut self, path: &str, user: u32, at_s: u64, now_ns: u64, counted: &T) {
        self.records.add(path, user, at_s, counted);
        self.save_at_ns.get_or_insert(now_ns.saturating_add(SAVE_EVERY_NS));
    }

    /// Has it written if that is due.
    pub(crate) fn save_if_due(&mut self, now_ns: u64, worker: &mut Worker) {
        if self.save_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            self.save(self.now_s(since_boot_s()), worker);
        }
    }

    /// Has it written. What has not begun to be written is overtaken.
    pub(crate) fn save(&mut self, at_s: u64, worker: &mut Worker) {
        self.records.expire(at_s);
        let text = file::encode(&self.records, &self.timeline);
        worker.give(Job::replace(self.topic, self.path.clone(), text, true, self.otherwise));
    }

    /// Has written what is not written yet.
    pub(crate) fn finish(&mut self, worker: &mut Worker) {
        if self.save_at_ns.take().is_some() {
            self.save(self.now_s(since_boot_s()), worker);
        }
    }
}

/// Reads the file. What is wrong with it is set aside, and said in a sentence.
fn read<T: Counted>(path: &Path) -> (Records<T>, Timeline, Option<String>) {
    let nothing = |message| (Records::default(), Timeline::default(), message);
    let (records, timeline, problems) = match files::read_bytes(path, files::KEPT_BYTES_MAX) {
        Ok(bytes) => file::decode(&String::from_utf8_lossy(&bytes)),
        Err(error) if error.is_absent() => return nothing(None),
        Err(error) => (Records::default(), Timeline::default(), vec![format!("it {}", error.what())]),
    };
    let Some(first) = problems.first() else { return (records, timeline, None) };
    let outcome = files::set_aside(path, &path.with_extension("damaged"));
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let message =
        format!("the {} {} is damaged: {first}{more}; the rest was read; {outcome}", T::NAME, path.display());
    (records, timeline, Some(message))
}

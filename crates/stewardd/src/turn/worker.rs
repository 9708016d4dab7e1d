//! The thread for what may take long: whatever writes to a disk, or takes memory away. The loop gives it jobs and takes
//! what became of them; it waits for none before it stops.
//!
//! A job that has not begun is replaced by a later one about the same thing, so that there are never more than things.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steward_kernel::files;

use super::descriptors::{Source, Wait};
use super::front::Bell;
use super::part::Part;
use crate::health::Topic;

/// What a job is about. One that has not begun gives way to a later one about the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// Something that is kept in a file; what becomes of it is said on this topic.
    File(Topic),
    /// What the cgroup at this path may use of the memory.
    Memory(String),
    /// Whose disk requests are served first.
    Disk,
    /// How often the kernel brings to disks what was changed.
    Writeback,
}

/// What is to be done.
pub struct Job {
    /// What it is about.
    pub about: About,
    /// Does it, or a part of it; the error says in a sentence why it could not be done.
    pub work: Box<dyn FnOnce() -> Result<Progress, String> + Send>,
}

/// How far a job got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It has done what it could without making others wait for long: whoever gave it gives the rest as another job.
    GoesOn,
}

impl Job {
    /// Replaces a file whole. `synced`: it has to be on the disk, and not only in the kernel's memory, when this is
    /// done. `otherwise` says what a failure means, to stand before its reason.
    pub fn replace(topic: Topic, path: PathBuf, text: String, synced: bool, otherwise: &'static str) -> Self {
        let work = move || {
            let replaced = files::replace(&path, &text, synced);
            replaced.map(|()| Progress::Done).map_err(|error| format!("{otherwise}: {error}"))
        };
        Job { about: About::File(topic), work: Box::new(work) }
    }

    fn carry_out(self) -> Outcome {
        let outcome = (self.work)();
        Outcome { about: self.about, goes_on: outcome == Ok(Progress::GoesOn), failure: outcome.err() }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Job").field("about", &self.about).finish_non_exhaustive()
    }
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it was about.
    pub about: About,
    /// Whether there is a rest of it to be done.
    pub goes_on: bool,
    /// Why it failed, in a sentence; `None` when it was done.
    pub failure: Option<String>,
}

/// What both ends see.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// There is another outcome.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    jobs: VecDeque<Job>,
    /// Those that nobody has taken yet.
    outcomes: Vec<Outcome>,
    /// Nothing more will come.
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics with the lock, and if somebody did: the queue would still be one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, as soon as there is one; `None` once there will be none.
    fn next(&self) -> Option<Job> {
        let state = self.changed.wait_while(self.lock(), |state| state.jobs.is_empty() && !state.ends);
        state.unwrap_or_else(PoisonError::into_inner).jobs.pop_front()
    }
}

/// The worker, as the loop sees it. Its thread starts with the first job; dropping it waits for all jobs.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    bell: Bell,
    /// The thread's end, until it has started.
    idle: Option<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// A worker without a thread.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub fn new() -> anyhow::Result<Self> {
        let (bell, idle) = Bell::pair()?;
        Ok(Worker { shared: Arc::default(), bell, idle: Some(idle), thread: None })
    }

    /// Has a job done, after those that were given before. One about the same thing that has not begun yet is given up
    /// for it.
    pub fn give(&mut self, job: Job) {
        let mut state = self.shared.lock();
        match state.jobs.iter_mut().find(|waiting| waiting.about == job.about) {
            Some(waiting) => *waiting = job,
            None => state.jobs.push_back(job),
        }
        drop(state);
        self.shared.changed.notify_one();
        self.start();
    }

    fn start(&mut self) {
        let Some(bell) = self.idle.take() else { return };
        let shared = Arc::clone(&self.shared);
        let work = move || {
            while let Some(job) = shared.next() {
                let outcome = job.carry_out();
                let mut state = shared.lock();
                state.outcomes.push(outcome);
                // With the lock: it has rung as long as there are outcomes, and not when there are none.
                bell.ring();
                drop(state);
                shared.done.notify_all();
            }
        };
        match std::thread::Builder::new().name("worker".into()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            // Without a thread the loop does it itself, when it is finished with.
            Err(error) => tracing::error!(%error, "no thread for what may take long: it is done at the end"),
        }
    }

    /// What has become of jobs since the last call, oldest first.
    pub fn take_outcomes(&self) -> Vec<Outcome> {
        let mut state = self.shared.lock();
        if !state.outcomes.is_empty() {
            self.bell.has_rung();
        }
        std::mem::take(&mut state.outcomes)
    }

    /// Waits until there is an outcome, or for that long at most: for what is usually done at once.
    pub fn await_outcome(&self, at_most: Duration) {
        let state = self.shared.lock();
        // Whether one came is seen when it is taken.
        let _ = self.shared.done.wait_timeout_while(state, at_most, |state| state.outcomes.is_empty());
    }

    /// Waits until all jobs are done. What became of them can be taken still.
    pub fn finish(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was said by the thread itself.
            let _ = thread.join();
        }
        while let Some(job) = self.shared.next() {
            let outcome = job.carry_out();
            self.shared.lock().outcomes.push(outcome);
        }
    }
}

impl Part for Worker {
    /// Readable when there are outcomes.
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        vec![Wait::readable(Source::Worker, self.bell.as_fd())]
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn job(topic: Topic, path: &Path, text: &str) -> Job {
        Job::replace(topic, path.to_owned(), text.to_owned(), false, "it will be old")
    }

    #[test]
    fn a_job_is_done_while_nobody_waits_and_its_outcome_wakes_the_loop() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("made/file");
        let mut worker = Worker::new().expect("a worker");
        worker.give(job(Topic::Save, &path, "one"));
        poll(&mut [PollFd::new(&worker.bell, PollFlags::IN)], None).expect("woken");
        assert_eq!(
            worker.take_outcomes(),
            [Outcome { about: About::File(Topic::Save), goes_on: false, failure: None }]
        );
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "one");
        assert!(worker.take_outcomes().is_empty());
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&worker.bell, PollFlags::IN)], Some(&at_once)).expect("asked");
        assert_eq!(ready, 0, "nothing wakes the loop for what it has taken");
    }

    #[test]
    fn finishing_waits_for_all_jobs_and_a_failure_says_what_it_means() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let mut worker = Worker::new().expect("a worker");
        for text in ["one", "two", "three"] {
            worker.give(job(Topic::Save, &path, text));
        }
        worker.give(job(Topic::SaveDomains, &path.join("below-a-file"), ""));
        worker.finish();
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "three", "the last one counts");
        let outcomes = worker.take_outcomes();
        let failures: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.failure.is_some()).collect();
        let [Outcome { about: About::File(Topic::SaveDomains), failure: Some(sentence), .. }] = failures[..]
        else {
            panic!("{outcomes:?}")
        };
        assert!(sentence.starts_with("it will be old: ") && sentence.contains("file"), "{sentence}");
    }

    #[test]
    fn what_has_not_begun_is_replaced_by_what_comes_later_and_keeps_its_place() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        // As long as there is no thread, nothing begins.
        let mut worker = worker_without_thread();
        worker.give(job(Topic::Save, &path("a"), "old"));
        worker.give(job(Topic::SaveSpecs, &path("b"), "b"));
        worker.give(job(Topic::Save, &path("a"), "new"));
        worker.finish();
        let about: Vec<About> = worker.take_outcomes().into_iter().map(|outcome| outcome.about).collect();
        assert_eq!(about, [About::File(Topic::Save), About::File(Topic::SaveSpecs)]);
        assert_eq!(std::fs::read_to_string(path("a")).expect("it is there"), "new");
    }

    fn worker_without_thread() -> Worker {
        let mut worker = Worker::new().expect("a worker");
        worker.idle = None;
        worker
    }
}

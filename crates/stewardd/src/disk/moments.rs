//! What is otherwise in the moments in which somebody who is served first waits for the disk: then the disk stays idle
//! for their next request. The rest of the time nobody is kept from the disk for somebody who might come.
//!
//! When one begins and is over is `steward_core::disk::moments`' to say. A save takes 30 ms, so that a thread does it
//! which waits for nothing else; each change is one write into the kernel, and nothing of it waits for a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use steward_core::disk::elevator::Moment;
use steward_core::disk::moments;
use steward_kernel::disk::devices;
use steward_kernel::{KernelError, Roots};

use super::spent::Spent;
use crate::turn::clock::now_ns;

/// What tells when somebody waits beside others who want the disk; readable when that begins.
pub trait Watch: AsFd + Send {
    /// Takes the announcement.
    fn take(&mut self);

    /// Whether the moment is over at `now_ns` (`CLOCK_MONOTONIC`); the next one is announced again then.
    fn are_over(&mut self, now_ns: u64) -> bool;
}

/// What is told of whom to watch, beside those who have the real-time class.
pub trait Mark: Send {
    /// Has the tasks of these cgroups be served first, by id, and not those of which it is said that they are not; what
    /// was said before does not hold any more. Of a cgroup of which nothing is said that of the one above it holds.
    ///
    /// # Errors
    /// In a sentence, of which it could not be said.
    fn serve_first(&mut self, cgroups: &BTreeMap<u64, bool>) -> Result<(), String>;
}

/// What tells when somebody waits, and what is told of whom to watch.
pub type Watching = (Box<dyn Watch>, Box<dyn Mark>);

/// Begins to watch, or says in a sentence why nobody can be told.
pub type Watcher = fn() -> Result<Watching, String>;

/// The kernel's, where this program has what it takes.
///
/// # Errors
/// In a sentence, what is missing.
#[cfg(feature = "sched_ext")]
pub fn watch_kernel() -> Result<Watching, String> {
    struct Kernel(steward_waits::Waits);
    impl AsFd for Kernel {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    impl Watch for Kernel {
        fn take(&mut self) {
            self.0.take();
        }

        fn are_over(&mut self, now_ns: u64) -> bool {
            self.0.are_over(now_ns)
        }
    }
    struct Marked(steward_waits::Marks);
    impl Mark for Marked {
        fn serve_first(&mut self, cgroups: &BTreeMap<u64, bool>) -> Result<(), String> {
            self.0.set(cgroups).map_err(|error| error.to_string())
        }
    }
    let watch = steward_waits::Waits::watch().map_err(|error| error.to_string())?;
    let marks = watch.marks();
    Ok((Box::new(Kernel(watch)), Box::new(Marked(marks))))
}

/// The kernel's, where this program has what it takes.
///
/// # Errors
/// Always: it does not.
#[cfg(not(feature = "sched_ext"))]
pub fn watch_kernel() -> Result<Watching, String> {
    Err("this stewardd is built without BPF".to_owned())
}

/// Settings of a disk's elevator that differ in such moments. They are as for somebody who waits when they are
/// [added](Moments::add), and their other state is in the undo journal too.
#[derive(Debug)]
struct Attended {
    device: String,
    moments: &'static [Moment],
    /// What they were when they were left.
    left: Vec<String>,
}

impl Attended {
    fn new(device: &str, moments: &'static [Moment], roots: &Roots) -> Result<Self, KernelError> {
        let names: Vec<&str> = moments.iter().map(|moment| moment.name).collect();
        let left = devices::settings(device, &names, roots)?;
        Ok(Attended { device: device.to_owned(), moments, left })
    }

    /// Brings them from one state into the other, and says whether they were in that one: if not, they have been
    /// changed by somebody else, or the disk has gone.
    fn switch(&mut self, waits: bool, roots: &Roots) -> bool {
        let value = |moment: &Moment| if waits { moment.waiting } else { moment.otherwise };
        let values: Vec<(&str, &str)> =
            self.moments.iter().map(|moment| (moment.name, value(moment))).collect();
        match devices::switch(&self.device, &values, &self.left, roots) {
            Ok(left) => {
                let is_switched = left.is_some();
                self.left = left.unwrap_or_default();
                is_switched
            }
            Err(error) => {
                tracing::warn!(
                    decision = "disk-moment",
                    "it makes no difference any more whether somebody waits: {error}"
                );
                false
            }
        }
    }
}

/// All that differs, and whether this is such a moment.
struct Targets {
    roots: Roots,
    waits: bool,
    all: Vec<Attended>,
}

impl Targets {
    fn set(&mut self, waits: bool) {
        if self.waits != waits {
            self.waits = waits;
            self.all.retain_mut(|attended| attended.switch(waits, &self.roots));
        }
    }
}

/// Who was said to be served first beside those who have the real-time class, and to whom.
struct Marks {
    mark: Box<dyn Mark>,
    /// `None` where that failed.
    said: Option<BTreeMap<u64, bool>>,
}

/// The thread with what it changes. Dropped, all is as for somebody who waits.
pub(super) struct Moments {
    targets: Arc<Mutex<Targets>>,
    marks: Mutex<Marks>,
    /// Closed, it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Moments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Moments").field("targets", &lock(&self.targets).all).finish_non_exhaustive()
    }
}

impl Moments {
    /// Begins to attend to them, as in such a moment: nobody tells of who waits already.
    ///
    /// # Errors
    /// In a sentence, why nobody is told when somebody waits.
    pub(super) fn start(watcher: Watcher, roots: &Roots, spent: &Spent) -> Result<Self, String> {
        let (watch, mark) = watcher()?;
        let (ended, stop) = pipe().map_err(|error| format!("making a pipe: {error}"))?;
        let targets = Arc::new(Mutex::new(Targets { roots: roots.clone(), waits: true, all: Vec::new() }));
        let (attended, spent) = (Arc::clone(&targets), spent.clone());
        let builder = std::thread::Builder::new().name("disk-moments".into());
        let thread = builder
            .spawn(move || attend(moments::Moments::begun(now_ns()), watch, &ended, &attended, &spent))
            .map_err(|error| format!("starting a thread: {error}"))?;
        let marks = Mutex::new(Marks { mark, said: Some(BTreeMap::new()) });
        Ok(Moments { targets, marks, stop: Some(stop), thread: Some(thread) })
    }

    /// Has the tasks of these cgroups count as served first: see [`Mark::serve_first`].
    pub(super) fn serve_first(&self, cgroups: &BTreeMap<u64, bool>) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.said.as_ref() == Some(cgroups) {
            return;
        }
        match marks.mark.serve_first(cgroups) {
            Ok(()) => marks.said = Some(cgroups.clone()),
            Err(why) => {
                // What was said before does not hold any more either.
                marks.said = None;
                tracing::warn!(
                    decision = "disk-moment",
                    "not of all domains it is told when they wait: {why}"
                );
            }
        }
    }

    /// Has these settings of a disk's elevator differ from now on, if they do not yet. They are as for somebody who
    /// waits at this moment.
    pub(super) fn add(&self, device: &str, moments: &'static [Moment]) {
        let mut targets = lock(&self.targets);
        if targets.all.iter().any(|attended| attended.device == device) {
            return;
        }
        // What cannot even be read is gone.
        let Ok(mut attended) = Attended::new(device, moments, &targets.roots) else { return };
        if targets.waits || attended.switch(false, &targets.roots) {
            targets.all.push(attended);
        }
    }

    /// Has the same settings of a disk's elevator be otherwise in another way from now on, if they differ at all.
    pub(super) fn change(&self, device: &str, moments: &'static [Moment]) {
        let Targets { roots, waits, all } = &mut *lock(&self.targets);
        all.retain_mut(|attended| {
            if attended.device != device {
                return true;
            }
            attended.moments = moments;
            attended.switch(*waits, roots)
        });
    }

    /// Has nothing of a device be a matter of moments any more, in whichever state it is.
    pub(super) fn remove_device(&self, name: &str) {
        lock(&self.targets).all.retain(|attended| attended.device != name);
    }
}

impl Drop for Moments {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was said by the thread itself.
            let _ = thread.join();
        }
        lock(&self.targets).set(true);
    }
}

/// What is shared with the thread is whole whoever panicked with it.
fn lock(targets: &Mutex<Targets>) -> MutexGuard<'_, Targets> {
    targets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes on until the other end of `ended` is closed.
fn attend(
    mut rule: moments::Moments,
    mut watch: Box<dyn Watch>,
    ended: &PipeReader,
    targets: &Mutex<Targets>,
    spent: &Spent,
) {
    let mut meter = spent.by_this_thread();
    loop {
        while let Some(ask_at_ns) = rule.poll_timeout() {
            match is_ready(&[ended.as_fd()], Some(ask_at_ns.saturating_sub(now_ns()))) {
                Ok(ready) if ready[0] => return,
                Ok(_) | Err(_) => {}
            }
            let asked_at_ns = now_ns();
            if rule.handle_answer(asked_at_ns, watch.are_over(asked_at_ns)) {
                lock(targets).set(false);
            }
            meter.note();
        }
        match is_ready(&[watch.as_fd(), ended.as_fd()], None) {
            Ok(ready) if ready[1] => return,
            Ok(_) => {}
            Err(error) => {
                // As it would be if nobody could be told: the disk waits for who might come.
                lock(targets).set(true);
                tracing::warn!(
                    decision = "disk-moment",
                    "nobody tells any more who waits for the disk: {error}"
                );
                return;
            }
        }
        watch.take();
        if rule.handle_announcement(now_ns()) {
            lock(targets).set(true);
        }
    }
}

/// Which of these can be read, or is closed at the other end, once one is, or after so long.
fn is_ready(descriptors: &[BorrowedFd<'_>], within_ns: Option<u64>) -> Result<Vec<bool>, Errno> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
    let within = within_ns.map(Duration::from_nanos);
    let timeout = within.map(|within| Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    });
    loop {
        match poll(&mut polled, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            outcome => {
                return outcome.map(|_| polled.iter().map(|entry| !entry.revents().is_empty()).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const IDLING: &[Moment] = &[Moment { name: "slice_idle_us", waiting: "2000", otherwise: "0" }];

    /// What the thread did, and what the elevator's file said then.
    #[derive(Debug, PartialEq)]
    enum Step {
        /// It took an announcement.
        Took(String),
        /// It asked whether it is over, and was told that.
        Asked(String, bool),
    }

    /// A watch that a test speaks for: one is told by a byte, and it is over when the test says so.
    struct Told {
        calls: PipeReader,
        over: Arc<AtomicBool>,
        file: PathBuf,
        steps: Sender<Step>,
    }

    impl AsFd for Told {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.calls.as_fd()
        }
    }

    impl Watch for Told {
        fn take(&mut self) {
            self.calls.read_exact(&mut [0]).expect("somebody called");
            let _ = self.steps.send(Step::Took(content(&self.file)));
        }

        fn are_over(&mut self, _now_ns: u64) -> bool {
            let are_over = self.over.load(Ordering::SeqCst);
            let _ = self.steps.send(Step::Asked(content(&self.file), are_over));
            are_over
        }
    }

    /// It has nobody to tell.
    struct Nobody;

    impl Mark for Nobody {
        fn serve_first(&mut self, _cgroups: &BTreeMap<u64, bool>) -> Result<(), String> {
            Ok(())
        }
    }

    fn content(file: &PathBuf) -> String {
        std::fs::read_to_string(file).expect("a file").trim().to_owned()
    }

    struct Stand {
        _directory: tempfile::TempDir,
        file: PathBuf,
        moments: Moments,
        caller: PipeWriter,
        over: Arc<AtomicBool>,
        steps: Receiver<Step>,
    }

    impl Stand {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let roots = Roots { proc: "/proc".into(), ..Roots::under(directory.path()) };
            let file = roots.sys.join("block/sda/queue/iosched/slice_idle_us");
            std::fs::create_dir_all(file.parent().expect("it has one")).expect("a directory");
            std::fs::write(&file, "2000\n").expect("a file");
            let (calls, caller) = pipe().expect("a pipe");
            let over = Arc::new(AtomicBool::new(false));
            let (ended, stop) = pipe().expect("a pipe");
            let (sender, steps) = channel();
            let targets = Arc::new(Mutex::new(Targets { roots, waits: false, all: Vec::new() }));
            let watch = Box::new(Told { calls, over: Arc::clone(&over), file: file.clone(), steps: sender });
            let attended = Arc::clone(&targets);
            let rule = moments::Moments::default();
            let thread =
                std::thread::spawn(move || attend(rule, watch, &ended, &attended, &Spent::default()));
            let marks = Mutex::new(Marks { mark: Box::new(Nobody), said: Some(BTreeMap::new()) });
            let moments = Moments { targets, marks, stop: Some(stop), thread: Some(thread) };
            Stand { _directory: directory, file, moments, caller, over, steps }
        }

        fn add(&self) {
            self.moments.add("sda", IDLING);
        }

        fn says(&self) -> String {
            content(&self.file)
        }

        /// Somebody begins to wait; returns what the thread does next: it takes that, and then asks whether it is over.
        fn call(&mut self) -> [Step; 2] {
            self.caller.write_all(&[0]).expect("it listens");
            [(); 2].map(|()| self.steps.recv().expect("it goes on"))
        }

        /// Nobody waits any more, and the thread has heard that and done what it does then.
        fn end(&mut self) {
            self.over.store(true, Ordering::SeqCst);
            while !matches!(self.steps.recv(), Ok(Step::Asked(_, true))) {}
            while lock(&self.moments.targets).waits {
                std::thread::yield_now();
            }
            self.over.store(false, Ordering::SeqCst);
        }
    }

    fn steps(took: &str, asked: &str) -> [Step; 2] {
        [Step::Took(took.to_owned()), Step::Asked(asked.to_owned(), false)]
    }

    #[test]
    fn a_disk_is_kept_idle_from_when_somebody_waits_until_nobody_does() {
        let mut stand = Stand::new();
        stand.add();
        for _ in 0..3 {
            assert_eq!(stand.call(), steps("0", "2000"));
            stand.end();
        }
    }

    #[test]
    fn what_is_added_while_somebody_waits_is_left_so_until_nobody_does() {
        let mut stand = Stand::new();
        stand.call();
        stand.add();
        assert_eq!(stand.says(), "2000");
        stand.end();
        assert_eq!(stand.call(), steps("0", "2000"));
    }

    #[test]
    fn what_is_otherwise_is_so_at_once_where_nobody_waits_and_else_once_nobody_does() {
        const ALWAYS: &[Moment] = &[Moment { name: "slice_idle_us", waiting: "2000", otherwise: "1000" }];
        let mut stand = Stand::new();
        stand.moments.change("sda", ALWAYS);
        assert_eq!(stand.says(), "2000", "nothing of it is a matter of moments yet");
        stand.add();
        assert_eq!(stand.says(), "0");
        stand.moments.change("sda", ALWAYS);
        assert_eq!(stand.says(), "1000");
        stand.moments.change("sdb", IDLING);
        assert_eq!(stand.call(), steps("1000", "2000"));
        stand.moments.change("sda", IDLING);
        assert_eq!(stand.says(), "2000");
        stand.end();
        assert_eq!(stand.call(), steps("0", "2000"));
        stand.end();
        std::fs::write(&stand.file, "700\n").expect("a file");
        stand.moments.change("sda", ALWAYS);
        assert_eq!(stand.says(), "700", "somebody else has chosen");
        assert!(lock(&stand.moments.targets).all.is_empty());
    }

    #[test]
    fn what_somebody_else_chose_stays() {
        let mut stand = Stand::new();
        stand.add();
        std::fs::write(&stand.file, "700\n").expect("a file");
        assert_eq!(stand.call(), steps("700", "700"));
        assert!(lock(&stand.moments.targets).all.is_empty(), "it is no matter of moments any more");
        let Stand { _directory, file, moments, .. } = stand;
        drop(moments);
        assert_eq!(content(&file), "700");
    }

    #[test]
    fn in_the_end_all_is_as_for_somebody_who_waits_and_what_was_removed_as_it_is() {
        let stand = Stand::new();
        stand.add();
        assert_eq!(stand.says(), "0");
        let Stand { _directory, file, moments, .. } = stand;
        drop(moments);
        assert_eq!(content(&file), "2000");
        let stand = Stand::new();
        stand.add();
        stand.moments.remove_device("sda");
        let Stand { _directory, file, moments, .. } = stand;
        drop(moments);
        assert_eq!(content(&file), "0");
    }
}

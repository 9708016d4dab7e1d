//! The priority of a task's requests, given through the undo journal.

use steward_core::disk::priority::Priority;
use steward_core::process::TaskId;

use super::ioprio::write;
pub use super::ioprio::{disinherit, read, switch};
use crate::error::KernelError;
use crate::journal::{Change, JournalError, SharedJournal};
use crate::process;
use crate::roots::Roots;

/// Has exactly this task's requests have a priority; returns the change's number, or `None` when they have it. One that
/// it or somebody else has chosen for it stays, and nothing is changed: see [`Given::Chosen`].
///
/// # Errors
/// [`JournalError`]; [`KernelError::is_absent`] when it has ended.
pub fn give(
    journal: &SharedJournal,
    task: TaskId,
    priority: Priority,
    roots: &Roots,
) -> Result<Given, JournalError> {
    let old = read(task.tid)?;
    let stat = process::stat(task.tid, roots)?;
    if stat.id != task || stat.has_ended() {
        return Err(KernelError::Task {
            tid: task.tid,
            action: "changing the disk priority",
            source: std::io::Error::from_raw_os_error(libc::ESRCH),
        }
        .into());
    }
    if old == priority {
        return Ok(Given::Had);
    }
    // What the kernel gives its own threads, as ext4 its journal's (`journal_ioprio`), is nobody's choice.
    if old != Priority::Unset && !stat.is_kernel_thread() {
        return Ok(Given::Chosen(old));
    }
    let number = journal.record(Change::DiskPriority { task, old, new: priority })?;
    if let Err(error) = write(task.tid, priority) {
        let _ = journal.close(number);
        return Err(error.into());
    }
    Ok(Given::Changed { number, old })
}

/// What became of [`give`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// It has the priority now.
    Changed {
        /// The change's number in the undo journal.
        number: u64,
        /// What it had before.
        old: Priority,
    },
    /// It had it before.
    Had,
    /// It has this one, which somebody has chosen for it.
    Chosen(Priority),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ioprio::undo;
    use crate::journal::{Journal, Undone};

    /// A thread of this process with nothing to do, and what it is told apart by.
    fn with_thread(check: impl FnOnce(TaskId, &SharedJournal, &Roots)) {
        let roots = Roots::default();
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(&directory.path().join("journal"), &roots).expect("a journal").into();
        let (told, tids) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("somebody listens");
            let _ = ends.recv();
        });
        let tid = tids.recv().expect("it has begun");
        let task = process::stat(tid, &roots).expect("it runs").id;
        check(task, &journal, &roots);
        drop(end);
        thread.join().expect("it ends");
    }

    #[test]
    fn a_priority_is_given_recorded_and_put_back() {
        with_thread(|task, journal, roots| {
            let wanted = Priority::BestEffort(7);
            let Given::Changed { number, old } =
                give(journal, task, wanted, roots).expect("one may lower one's own")
            else {
                panic!("it had none");
            };
            assert_eq!((old, read(task.tid).expect("it runs")), (Priority::Unset, wanted));
            assert_eq!(give(journal, task, wanted, roots).expect("no error"), Given::Had);
            assert_eq!(journal.outstanding(), 1);
            journal.undo(number, roots).expect("it can be put back");
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }

    #[test]
    fn what_somebody_chose_stays_before_and_after() {
        with_thread(|task, journal, roots| {
            write(task.tid, Priority::Idle).expect("one may lower one's own");
            let given = give(journal, task, Priority::BestEffort(7), roots).expect("no error");
            assert_eq!(given, Given::Chosen(Priority::Idle));
            assert_eq!(journal.outstanding(), 0);
            let undone = undo(task, Priority::Unset, Priority::BestEffort(7), roots).expect("no error");
            assert!(matches!(undone, Undone::Left(why) if why.contains("idle")));
            disinherit(task, Priority::BestEffort(7), roots).expect("no error");
            assert_eq!(read(task.tid).expect("it runs"), Priority::Idle);
            disinherit(task, Priority::Idle, roots).expect("no error");
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }

    #[test]
    fn a_priority_is_switched_only_from_the_one_that_it_is_known_to_have() {
        with_thread(|task, _, roots| {
            let (low, lower) = (Priority::BestEffort(6), Priority::BestEffort(7));
            assert!(!switch(task, low, lower, roots).expect("no error"), "it has another");
            assert!(switch(task, Priority::Unset, low, roots).expect("no error"));
            assert!(switch(task, low, lower, roots).expect("no error"));
            assert_eq!(read(task.tid).expect("it runs"), lower);
            let earlier = TaskId { started_ticks: task.started_ticks - 1, ..task };
            assert!(!switch(earlier, lower, low, roots).expect("no error"), "it is another task");
        });
    }

    #[test]
    fn another_task_with_the_same_number_gets_nothing() {
        with_thread(|task, journal, roots| {
            let earlier = TaskId { started_ticks: task.started_ticks - 1, ..task };
            let error = give(journal, earlier, Priority::BestEffort(7), roots).expect_err("it has ended");
            assert!(matches!(error, JournalError::Kernel(error) if error.is_absent()));
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }
}

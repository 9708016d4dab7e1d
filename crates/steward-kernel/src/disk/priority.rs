//! The priority of a task's requests, given through the undo journal.

use steward_core::disk::priority::{Mark, Priority};
use steward_core::process::TaskId;

pub use super::ioprio::{disinherit, held, knows_marks, read, take_from_all, take_from_threads};
use super::ioprio::{write, write_marked};
use crate::error::KernelError;
use crate::journal::{Change, JournalError, SharedJournal};
use crate::process;
use crate::roots::Roots;

/// Has exactly this task's requests have a priority, with a mark. One that it or somebody else has chosen for it stays,
/// and nothing is changed: see [`Given::Chosen`]. What it has from whoever started it, who was given it, is none of
/// that.
///
/// # Errors
/// [`JournalError`]; [`KernelError::is_absent`] when it has ended.
pub fn give(
    journal: &SharedJournal,
    task: TaskId,
    priority: Priority,
    mark: Mark,
    roots: &Roots,
) -> Result<Given, JournalError> {
    let held = held(task.tid)?;
    let stat = process::stat(task.tid, roots)?;
    if stat.id != task || stat.has_ended() {
        return Err(KernelError::Task {
            tid: task.tid,
            action: "changing the disk priority",
            source: std::io::Error::from_raw_os_error(libc::ESRCH),
        }
        .into());
    }
    let has_it = held.priority == priority;
    // What the kernel gives its own threads, as ext4 its journal's (`journal_ioprio`), is nobody's choice; and they
    // hand it on to nobody.
    let is_kernel_thread = stat.is_kernel_thread();
    if has_it && (held.mark == Some(mark) || is_kernel_thread || !knows_marks()) {
        return Ok(Given::Had);
    }
    if held.priority != Priority::Unset && held.mark.is_none() && !is_kernel_thread {
        return Ok(Given::Chosen(held.priority));
    }
    let old = if held.mark.is_some() { Priority::Unset } else { held.priority };
    let number = journal.record(Change::DiskPriority { task, old, new: priority })?;
    let written = match is_kernel_thread {
        true => write(task.tid, priority),
        false => write_marked(task.tid, priority, mark),
    };
    if let Err(error) = written {
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
    /// It had it before, from Steward.
    Had,
    /// It has this one, which somebody has chosen for it.
    Chosen(Priority),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::ioprio::undo;
    use crate::journal::{Journal, Undone};

    const MARK: Mark = Mark::WithChildren;

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
                give(journal, task, wanted, MARK, roots).expect("one may lower one's own")
            else {
                panic!("it had none");
            };
            assert_eq!((old, read(task.tid).expect("it runs")), (Priority::Unset, wanted));
            assert_eq!(give(journal, task, wanted, MARK, roots).expect("no error"), Given::Had);
            assert_eq!(journal.outstanding(), 1);
            journal.undo(number, roots).expect("it can be put back");
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }

    #[test]
    fn what_somebody_chose_stays_before_and_after() {
        with_thread(|task, journal, roots| {
            write(task.tid, Priority::Idle).expect("one may lower one's own");
            let given = give(journal, task, Priority::BestEffort(7), MARK, roots).expect("no error");
            assert_eq!(given, Given::Chosen(Priority::Idle));
            assert_eq!(journal.outstanding(), 0);
            let undone = undo(task, Priority::Unset, Priority::BestEffort(7), roots).expect("no error");
            assert!(matches!(undone, Undone::Left(why) if why.contains("idle")));
            for inherited in [Priority::BestEffort(7), Priority::Idle] {
                disinherit(task, inherited, roots).expect("no error");
                assert_eq!(read(task.tid).expect("it runs"), Priority::Idle);
            }
            // Also where it is just what Steward gives.
            write(task.tid, Priority::BestEffort(7)).expect("one may lower one's own");
            let given = give(journal, task, Priority::BestEffort(7), MARK, roots).expect("no error");
            assert_eq!(given, Given::Chosen(Priority::BestEffort(7)));
            take_from_all(&|_, other| other != task, &only(roots, task).1).expect("no error");
            assert_eq!(read(task.tid).expect("it runs"), Priority::BestEffort(7));
        });
    }

    /// In whose procfs there is no process but this one, known by its thread.
    fn only(roots: &Roots, task: TaskId) -> (tempfile::TempDir, Roots) {
        let directory = tempfile::tempdir().expect("a directory");
        let thread = task.tid.to_string();
        std::os::unix::fs::symlink(roots.proc.join(&thread), directory.path().join(&thread)).expect("a link");
        let roots = Roots { proc: directory.path().into(), ..roots.clone() };
        (directory, roots)
    }

    #[test]
    fn who_is_started_has_a_priority_from_steward_and_loses_it_whoever_has_ended() {
        with_thread(|task, journal, roots| {
            let given = give(journal, task, Priority::BestEffort(6), Mark::Alone, roots).expect("no error");
            assert!(matches!(given, Given::Changed { old: Priority::Unset, .. }));
            // As a child is born.
            let held = held(task.tid).expect("it runs");
            assert_eq!(held.mark, Some(Mark::Alone));
            // Another one is to have another: it was not its choice, and is not what it had of its own.
            let given = give(journal, task, Priority::BestEffort(7), MARK, roots).expect("no error");
            assert!(matches!(given, Given::Changed { old: Priority::Unset, .. }), "{given:?}");
            let (_directory, only) = only(roots, task);
            // Other tests have threads of their own.
            take_from_all(&|_, _| true, &only).expect("no error");
            assert_eq!(read(task.tid).expect("it runs"), Priority::BestEffort(7));
            take_from_all(&|_, other| other != task, &only).expect("no error");
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }

    #[test]
    fn another_task_with_the_same_number_gets_nothing() {
        with_thread(|task, journal, roots| {
            let earlier = TaskId { started_ticks: task.started_ticks - 1, ..task };
            let error =
                give(journal, earlier, Priority::BestEffort(7), MARK, roots).expect_err("it has ended");
            assert!(matches!(error, JournalError::Kernel(error) if error.is_absent()));
            assert_eq!(read(task.tid).expect("it runs"), Priority::Unset);
        });
    }
}

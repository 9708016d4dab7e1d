//! The priority of a task's requests (`ioprio_set(2)`): read, changed from a known one, and taken back.

use std::sync::atomic::{AtomicBool, Ordering};

use steward_core::disk::priority::{Mark, Priority};
use steward_core::process::TaskId;

use crate::error::KernelError;
use crate::journal::change::Undone;
use crate::process;
use crate::roots::Roots;

/// `IOPRIO_WHO_PROCESS`: one task.
const WHO_TASK: libc::c_int = 1;
/// How many times a process is looked at whose threads begin others meanwhile.
const PASSES_MAX: usize = 4;

/// This kernel was found to take no marks (before Linux 6.5): what is from Steward is told by the priority alone then.
static LACKS_MARKS: AtomicBool = AtomicBool::new(false);

/// A priority, and whether it is from Steward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What the task has.
    pub priority: Priority,
    /// That it, or whoever started it, was given this by Steward, where the kernel can say so.
    pub mark: Option<Mark>,
}

impl Held {
    /// Whether it may be from Steward, which gives `given` there.
    fn may_be_given(self, given: Priority) -> bool {
        self.mark.is_some() || !knows_marks() && self.priority == given
    }
}

/// Whether the kernel keeps what tells Steward's priorities from others, as far as is known.
pub fn knows_marks() -> bool {
    !LACKS_MARKS.load(Ordering::Relaxed)
}

/// The priority of a task's requests.
///
/// # Errors
/// [`KernelError::Task`]; [`KernelError::is_absent`] when it has ended.
pub fn read(tid: i32) -> Result<Priority, KernelError> {
    held(tid).map(|held| held.priority)
}

/// The same, and whether it is from Steward.
///
/// # Errors
/// As for [`read`].
pub fn held(tid: i32) -> Result<Held, KernelError> {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_TASK, tid) };
    let failed = || failed(tid, "reading the disk priority (ioprio_get)");
    let number = u32::try_from(result).map_err(|_| failed())?;
    let priority = Priority::from_kernel(number).unwrap_or_default();
    Ok(Held { priority, mark: Mark::from_kernel(number) })
}

pub(super) fn write(tid: i32, priority: Priority) -> Result<(), KernelError> {
    write_number(tid, priority.to_kernel())
}

/// Writes it with a mark, as far as the kernel takes one.
pub(super) fn write_marked(tid: i32, priority: Priority, mark: Mark) -> Result<(), KernelError> {
    if knows_marks() {
        match write_number(tid, priority.to_kernel_marked(mark)) {
            Err(error) if error.errno() == Some(libc::EINVAL) => LACKS_MARKS.store(true, Ordering::Relaxed),
            outcome => return outcome,
        }
    }
    write(tid, priority)
}

fn write_number(tid: i32, number: u32) -> Result<(), KernelError> {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_TASK, tid, number) };
    if result == 0 { Ok(()) } else { Err(failed(tid, "changing the disk priority (ioprio_set)")) }
}

fn failed(tid: i32, action: &'static str) -> KernelError {
    KernelError::Task { tid, action, source: std::io::Error::last_os_error() }
}

/// Takes back what a child has from its parent, which was given it by Steward: `inherited`, or whatever the kernel says
/// is from Steward. What somebody has chosen, and what has ended, is left alone. Nothing is recorded: there is nothing
/// that anybody would want back.
///
/// # Errors
/// [`KernelError::Task`].
pub fn disinherit(task: TaskId, inherited: Priority, roots: &Roots) -> Result<(), KernelError> {
    let outcome = match held(task.tid) {
        Ok(held) if held.may_be_given(inherited) && process::is_alive(task, roots) => {
            write(task.tid, Priority::Unset)
        }
        other => other.map(|_| ()),
    };
    outcome.or_else(|error| if error.is_absent() { Ok(()) } else { Err(error) })
}

/// Takes Steward's priority from all threads of a process but those of which `keeps` says that they are to have theirs.
/// One that begins another meanwhile hands it on: it is looked until there are none.
///
/// # Errors
/// [`KernelError::Task`], the last one; the other threads have been looked at.
pub fn take_from_threads(pid: i32, keeps: &dyn Fn(TaskId) -> bool, roots: &Roots) -> Result<(), KernelError> {
    let mut outcome = Ok(());
    for _ in 0..PASSES_MAX {
        let has_it = |tid: i32| held(tid).is_ok_and(|held| held.mark.is_some());
        let threads = process::threads_of(pid, roots).into_iter().map(|thread| thread.id);
        let left: Vec<TaskId> = threads.filter(|task| has_it(task.tid) && !keeps(*task)).collect();
        if left.is_empty() {
            break;
        }
        for task in left {
            outcome = disinherit(task, Priority::Unset, roots).and(outcome);
        }
    }
    outcome
}

/// Takes Steward's priority from all tasks but those of which `keeps` says, by process, that they are to have theirs:
/// for when it may have been handed on to anybody, and nobody told.
///
/// # Errors
/// [`KernelError`], the last one; the others have been looked at.
pub fn take_from_all(keeps: &dyn Fn(i32, TaskId) -> bool, roots: &Roots) -> Result<(), KernelError> {
    let take = |outcome, pid| take_from_threads(pid, &|task| keeps(pid, task), roots).and(outcome);
    process::numbers(roots)?.into_iter().fold(Ok(()), take)
}

/// Undoes a change of [`DiskPriority`](crate::journal::Change::DiskPriority).
pub(crate) fn undo(task: TaskId, old: Priority, new: Priority, roots: &Roots) -> Result<Undone, KernelError> {
    let current = match read(task.tid) {
        Err(error) if error.is_absent() => return Ok(Undone::Left("it has ended".into())),
        other => other?,
    };
    if !process::is_alive(task, roots) {
        return Ok(Undone::Left("it has ended".into()));
    }
    if current == old {
        return Ok(Undone::Left("it is as it was".into()));
    }
    if current != new {
        return Ok(Undone::Left(format!("someone else has made it {current} since")));
    }
    match write(task.tid, old) {
        Err(error) if error.is_absent() => Ok(Undone::Left("it has ended".into())),
        outcome => outcome.map(|()| Undone::PutBack),
    }
}

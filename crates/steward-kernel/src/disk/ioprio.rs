//! The priority of a task's requests (`ioprio_set(2)`): read, changed from a known one, and taken back.

use steward_core::disk::priority::Priority;
use steward_core::process::TaskId;

use crate::error::KernelError;
use crate::journal::change::Undone;
use crate::process;
use crate::roots::Roots;

/// `IOPRIO_WHO_PROCESS`: one task.
const WHO_TASK: libc::c_int = 1;

/// The priority of a task's requests.
///
/// # Errors
/// [`KernelError::Task`]; [`KernelError::is_absent`] when it has ended.
pub fn read(tid: i32) -> Result<Priority, KernelError> {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_TASK, tid) };
    let failed = || failed(tid, "reading the disk priority (ioprio_get)");
    let number = u32::try_from(result).map_err(|_| failed())?;
    Ok(Priority::from_kernel(number).unwrap_or_default())
}

pub(super) fn write(tid: i32, priority: Priority) -> Result<(), KernelError> {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_TASK, tid, priority.to_kernel()) };
    if result == 0 { Ok(()) } else { Err(failed(tid, "changing the disk priority (ioprio_set)")) }
}

fn failed(tid: i32, action: &'static str) -> KernelError {
    KernelError::Task { tid, action, source: std::io::Error::last_os_error() }
}

/// Takes back what a child has from its parent, which was given it by Steward: `inherited`. What has another priority,
/// or has ended, is left alone. Nothing is recorded: there is nothing that anybody would want back.
///
/// # Errors
/// [`KernelError::Task`].
pub fn disinherit(task: TaskId, inherited: Priority, roots: &Roots) -> Result<(), KernelError> {
    switch(task, inherited, Priority::Unset, roots).map(|_| ())
}

/// Gives a task another priority than the one it has from Steward, and says whether it had that one still: what has
/// another by now, or has ended, is left alone. Nothing is recorded: both are to be known to the undo journal.
///
/// # Errors
/// [`KernelError::Task`].
pub fn switch(task: TaskId, from: Priority, to: Priority, roots: &Roots) -> Result<bool, KernelError> {
    match read(task.tid) {
        Ok(priority) if priority == from && process::is_alive(task, roots) => {
            write(task.tid, to).map(|()| true)
        }
        Err(error) if !error.is_absent() => Err(error),
        Ok(_) | Err(_) => Ok(false),
    }
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

//! Changing how exactly one task is scheduled, and changing it back without leaving anything behind.
//!
//! The kernel's calls take a thread id, and an id is given out again after its task has ended. So the start time is
//! looked at before and after each call; where the id changed hands in between, the newcomer gets back what it had.
//!
//! A task that leaves SCHED_DEADLINE before it has run with its reservation leaves the bandwidth behind: the kernel
//! (seen with 7.3) goes on counting it, for nobody, until the next boot. A change to a smaller reservation, though, is
//! counted at once. So a task leaves by way of the smallest that there is.

use steward_core::process::TaskId;

use crate::cpu::scheduling::{self, POLICY_DEADLINE, Scheduling};
use crate::error::KernelError;
use crate::process;
use crate::roots::Roots;

/// Hardly more than the 1,024 ns that the kernel takes at least, in nanoseconds.
const LEAST_BUDGET_NS: u64 = 1_100;
/// With the least budget about a millionth of a CPU, in nanoseconds.
const LEAST_PERIOD_NS: u64 = 1_000_000_000;

/// The kernel as far as it is needed here; a test stands in for it.
pub(crate) trait Tasks {
    fn read(&self, tid: i32) -> Result<Scheduling, KernelError>;
    fn write(&self, tid: i32, scheduling: &Scheduling) -> Result<(), KernelError>;
    /// The nice value, which a task keeps beside a real-time policy; `None` when it has ended.
    fn nice(&self, tid: i32) -> Option<i32>;
    fn is_alive(&self, task: TaskId) -> bool;
}

/// The kernel that this runs on.
pub(crate) struct Real<'a>(pub(crate) &'a Roots);

impl Tasks for Real<'_> {
    fn read(&self, tid: i32) -> Result<Scheduling, KernelError> {
        scheduling::read(tid)
    }

    fn write(&self, tid: i32, scheduling: &Scheduling) -> Result<(), KernelError> {
        scheduling::write(tid, scheduling)
    }

    fn nice(&self, tid: i32) -> Option<i32> {
        rustix::process::getpriority_process(rustix::process::Pid::from_raw(tid)).ok()
    }

    fn is_alive(&self, task: TaskId) -> bool {
        process::is_alive(task, self.0)
    }
}

/// Changes how exactly this task is scheduled.
///
/// # Errors
/// As [`scheduling::write`]; [`KernelError::is_absent`] also when its id belongs to another task by now, which then is
/// as it was.
pub(crate) fn change(kernel: &impl Tasks, task: TaskId, new: &Scheduling) -> Result<(), KernelError> {
    if !kernel.is_alive(task) {
        return Err(has_ended(task));
    }
    let nice = kernel.nice(task.tid);
    kernel.write(task.tid, new)?;
    if kernel.is_alive(task) {
        return Ok(());
    }
    // A program that was started meanwhile is an ordinary one, with the nice value of those that start programs.
    if let Ok(now) = kernel.read(task.tid)
        && now.is_same_choice(new)
    {
        let kept = if new.policy == POLICY_DEADLINE { kernel.nice(task.tid) } else { nice };
        let _ = leave(kernel, task.tid, &now, &Scheduling::default().with_nice(kept.unwrap_or(0)));
    }
    Err(has_ended(task))
}

/// Changes a task from `current` to `old`; a reservation goes with all of its bandwidth.
///
/// # Errors
/// As [`scheduling::write`].
pub(crate) fn leave(
    kernel: &impl Tasks,
    tid: i32,
    current: &Scheduling,
    old: &Scheduling,
) -> Result<(), KernelError> {
    if current.policy == POLICY_DEADLINE && old.policy != POLICY_DEADLINE {
        // The administrator may have set sched_deadline_period_max_us below the first; a CPU that is offline takes
        // neither. Leaving matters more than what is left behind.
        let least = |period_ns| kernel.write(tid, &Scheduling::deadline(LEAST_BUDGET_NS, period_ns, false));
        let _ = least(LEAST_PERIOD_NS).or_else(|_| least(current.period_ns));
    }
    kernel.write(tid, old)
}

fn has_ended(task: TaskId) -> KernelError {
    let source = std::io::Error::from_raw_os_error(libc::ESRCH);
    KernelError::Task { tid: task.tid, action: "changing the scheduling", source }
}

#[cfg(test)]
mod tests;

//! Requests about a process. Such a request holds on to that process while it acts, so that a pid which is given to
//! another process meanwhile, or a process that becomes another user's by executing a set-user-ID program, is noticed
//! and the change taken back.

use libsteward::ApiError;
use steward_core::authority::{Action, Request, Target};
use steward_core::process::TaskId;
use steward_core::resource::Resource;
use steward_kernel::KernelError;
use steward_kernel::process::{self, Pidfd};

use super::peer::Caller;
use crate::daemon::Daemon;

impl Daemon {
    pub(crate) fn take_hold(&self, pid: i32) -> Result<Pidfd, ApiError> {
        Pidfd::open(pid, &self.options.roots).map_err(|error| kernel_error(pid, &error))
    }

    /// As [`Daemon::take_hold`], by the number of the process or of one of its threads: with the task that is meant.
    pub(crate) fn take_hold_of_task(&self, number: i32) -> Result<(Pidfd, TaskId), ApiError> {
        let no_process = match self.take_hold(number) {
            Ok(held) => {
                let task = held.id();
                return Ok((held, task));
            }
            Err(error) => error,
        };
        let roots = &self.options.roots;
        let pid = process::process_of(number, roots).ok().filter(|pid| *pid != number);
        let held = self.take_hold(pid.ok_or(no_process)?)?;
        let threads = process::threads_of(held.id().tid, roots);
        let thread = threads.iter().find(|thread| thread.id.tid == number).map(|thread| thread.id);
        Ok((held, thread.ok_or(ApiError::NoSuchTask { pid: number })?))
    }

    /// Whether the process that was decided about is still that user's, after acting on it.
    pub(crate) fn still_of(&self, held: &Pidfd, user: Option<u32>) -> Result<(), ApiError> {
        let pid = held.id().tid;
        match held.user(&self.options.roots) {
            Ok(now) if now == user => Ok(()),
            // A set-user-ID program: to the caller it is another process.
            Ok(_) => Err(became_anothers(pid)),
            Err(error) => Err(kernel_error(pid, &error)),
        }
    }

    /// Whether the thread that was decided about is still the one with its number, after acting on it.
    pub(crate) fn still_runs(&self, thread: TaskId) -> Result<(), ApiError> {
        let runs = process::is_alive(thread, &self.options.roots);
        if runs { Ok(()) } else { Err(ApiError::NoSuchTask { pid: thread.tid }) }
    }
}

pub(crate) fn became_anothers(pid: i32) -> ApiError {
    let reason = format!("process {pid} became another user's meanwhile; nothing was changed");
    ApiError::PermissionDenied { reason }
}

/// A request for CPU time about a process that belongs to `user` (see [`Pidfd::user`]).
pub(crate) fn for_process(action: Action, caller: &Caller, pid: i32, user: Option<u32>) -> Request {
    let target = Target::of_process(caller.uid, user);
    let whose = match user {
        Some(uid) => format!("process {pid} of user {uid}"),
        None => format!("process {pid}, which has the rights of several users"),
    };
    Request::new(action, Resource::Cpu, target, whose)
}

pub(crate) fn kernel_error(pid: i32, error: &KernelError) -> ApiError {
    if error.is_denied() {
        ApiError::MechanismFailed { reason: error.to_string() }
    } else {
        ApiError::NoSuchTask { pid }
    }
}

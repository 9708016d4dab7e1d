//! One change is taken back, if it is still as Steward left it.

use std::path::Path;

use steward_core::process::TaskId;

use super::change::{Change, Undone};
use crate::cpu::rescheduling::{self, Real, Tasks};
use crate::cpu::scheduling::Scheduling;
use crate::disk::{elevators, handed_out, identity, ioprio};
use crate::error::KernelError;
use crate::roots::{Roots, read_if_present, write};

/// Why something of a disk is left as it is whose name was another one's when it was changed.
const ANOTHER_DISK: &str = "the disk has gone, and another one has its name";

/// Undoes one change if it is still as Steward left it.
///
/// # Errors
/// [`KernelError`] with the path or the task.
pub fn undo(change: &Change, roots: &Roots) -> Result<Undone, KernelError> {
    match change {
        Change::File { path, disk, .. } if identity::is_of_another(path, disk.as_deref()) => {
            Ok(Undone::Left(ANOTHER_DISK.into()))
        }
        Change::DiskOrder { queue, disk, .. } if identity::is_of_another(queue, disk.as_deref()) => {
            Ok(Undone::Left(ANOTHER_DISK.into()))
        }
        Change::File { path, old, new, .. } => undo_file(path, old, new),
        Change::Task { task, old, new } => undo_task(*task, old, new, &Real(roots)),
        Change::DiskOrder { queue, old, old_requests, new, new_requests, .. } => {
            elevators::undo(queue, (old, *old_requests), (new, *new_requests))
        }
        Change::DiskPriority { task, old, new } => ioprio::undo(*task, *old, *new, roots),
        Change::Knob(knob) => match knob.put_back(roots) {
            Ok(()) => Ok(Undone::PutBack),
            Err(left) => left.map(Undone::Left),
        },
        Change::DiskHandedOut { cgroup, id } => handed_out::undo(cgroup, *id, roots),
    }
}

fn undo_file(path: &Path, old: &str, new: &str) -> Result<Undone, KernelError> {
    let Some(current) = read_if_present(path)? else { return Ok(Undone::Left("it is gone".into())) };
    if current == old {
        return Ok(Undone::Left("it is as it was".into()));
    }
    if current != new {
        return Ok(Undone::Left(format!("someone else has written {current:?} since")));
    }
    write(path, old)?;
    Ok(Undone::PutBack)
}

pub(crate) fn undo_task(
    task: TaskId,
    old: &Scheduling,
    new: &Scheduling,
    kernel: &impl Tasks,
) -> Result<Undone, KernelError> {
    if !kernel.is_alive(task) {
        return Ok(Undone::Left("it has ended".into()));
    }
    let current = match kernel.read(task.tid) {
        Err(error) if error.is_absent() => return Ok(Undone::Left("it has ended".into())),
        other => other?,
    };
    if current == *old {
        return Ok(Undone::Left("it is as it was".into()));
    }
    if !current.is_same_choice(new) {
        return Ok(Undone::Left("someone else has changed it since".into()));
    }
    // Read before, so that it is the task's own even if its id changed hands since the first look.
    if !kernel.is_alive(task) {
        return Ok(Undone::Left("it has ended".into()));
    }
    match rescheduling::leave(kernel, task.tid, &current, old) {
        Err(error) if error.is_absent() => Ok(Undone::Left("it has ended".into())),
        outcome => outcome.map(|()| Undone::PutBack),
    }
}

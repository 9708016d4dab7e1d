//! The elevator of a disk's queue: which one is in force, and the one before put back.

use std::path::Path;

use crate::error::KernelError;
use crate::journal::change::Undone;
use crate::roots::{read_if_present, write};

/// The elevator in force: `queue/scheduler` shows all that can be chosen, with brackets around that one.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Undoes a change of [`DiskOrder`](crate::journal::Change::DiskOrder).
pub(crate) fn undo(queue: &Path, old: &str, old_requests: u64, new: &str) -> Result<Undone, KernelError> {
    let Some(text) = read_if_present(&queue.join("scheduler"))? else {
        return Ok(Undone::Left("it is gone".into()));
    };
    let current = chosen(&text).unwrap_or("none");
    if current != new && current != old {
        return Ok(Undone::Left(format!("someone else has chosen {current} since")));
    }
    if current != old {
        write(&queue.join("scheduler"), old)?;
    }
    let requests = queue.join("nr_requests");
    if read_if_present(&requests)?.is_some_and(|text| text != old_requests.to_string()) {
        write(&requests, &old_requests.to_string())?;
    }
    Ok(Undone::PutBack)
}

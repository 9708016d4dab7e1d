//! The kernel's flusher threads, which bring to disks what was changed in memory (`mm/page-writeback.c`,
//! `fs/fs-writeback.c`).
//!
//! When a cgroup begins or ceases to hand out memory or the disk, each file that is being changed below it belongs to
//! another account of the kernel's from then on. What was changed before stays with the old one, of which nobody who
//! changes more asks that it be written, and the flusher comes round to it only each `vm.dirty_writeback_centisecs`:
//! for that long all who change files wait, since they may not have more that is not written. So it comes round often
//! for a while. To wake it once would do for many files and not for all: who changes a file adds to the old account
//! until the kernel has written it once.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::KernelError;
use crate::roots::{Roots, read};

/// How often it comes round, in hundredths of a second, 0 for never; below [`Roots::proc`]. A write that changes it
/// wakes all flushers as well.
const FILE: &str = "sys/vm/dirty_writeback_centisecs";

/// How often it is to come round for a while, in hundredths of a second.
const OFTEN: u32 = 25;

/// For how long at the least, after a cgroup has ceased to hand something out.
pub const SETTLES_WITHIN: Duration = Duration::from_secs(1);

/// What is to be written, and where, for the flusher to come round often; `None` where it does.
///
/// # Errors
/// [`KernelError::Read`] with the path, as in a container.
pub fn often(roots: &Roots) -> Result<Option<(PathBuf, String)>, KernelError> {
    let file = roots.proc.join(FILE);
    let is_often =
        matches!(read(&file)?.trim().parse::<u32>(), Ok(hundredths) if (1..=OFTEN).contains(&hundredths));
    Ok((!is_often).then(|| (file, OFTEN.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn who_has_it_come_round_as_often_already_is_left_alone() {
        for (value, is_written) in
            [("500\n", true), ("0\n", true), ("26\n", true), ("25\n", false), ("1\n", false)]
        {
            let (_directory, roots) = with_files(&[("proc/sys/vm/dirty_writeback_centisecs", value)]);
            let written = often(&roots).expect("readable");
            assert_eq!(written.map(|(_, value)| value), is_written.then(|| "25".to_owned()), "{value}");
        }
    }

    #[test]
    fn where_there_is_no_such_file_it_is_named() {
        let (_directory, roots) = with_files(&[("proc/stat", "")]);
        let error = often(&roots).expect_err("nothing is there").to_string();
        assert!(error.contains("proc/sys/vm/dirty_writeback_centisecs"), "{error}");
    }
}

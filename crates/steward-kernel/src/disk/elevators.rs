//! The elevator of a disk's queue: which one is in force, the one before put back, and whether one can be had at all.

use std::path::Path;

use crate::error::KernelError;
use crate::journal::change::Undone;
use crate::roots::{Roots, read_if_present, write};

/// The elevator in force: `queue/scheduler` shows all that can be chosen, with brackets around that one.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Whether the kernel has an elevator, loaded or as a module that it loads when asked; `listed` are those that
/// `queue/scheduler` of disks shows. `None` where the lists of its modules cannot be read.
pub fn can_be_had<'a>(name: &str, mut listed: impl Iterator<Item = &'a str>, roots: &Roots) -> Option<bool> {
    if listed.any(|elevator| elevator == name) {
        return Some(true);
    }
    let release = read_if_present(&roots.proc.join("sys/kernel/osrelease")).ok().flatten()?;
    let root = roots.proc.parent().unwrap_or(Path::new("/"));
    let modules = root.join("lib/modules").join(release);
    let lists = ["modules.dep", "modules.builtin"].map(|list| std::fs::read_to_string(modules.join(list)));
    // The module that a line is about comes first in it, by its path.
    let is_it =
        |path: &str| path.rsplit('/').next().is_some_and(|file| file.starts_with(&format!("{name}.ko")));
    let is_listed = |list: &str| list.lines().any(|line| line.split(':').next().is_some_and(is_it));
    let known: Vec<bool> = lists.iter().flatten().map(|list| is_listed(list)).collect();
    (!known.is_empty()).then(|| known.contains(&true))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn an_elevator_can_be_had_that_is_loaded_or_a_module_and_nobody_knows_without_a_list() {
        let module = "kernel/block/bfq.ko.xz:\nkernel/block/mq-deadline.ko.xz:\n";
        let listed = ["none", "mq-deadline"];
        for (modules, listed, can) in [
            (Some(module), listed, Some(true)),
            (Some("bfq.ko:\n"), listed, Some(true)),
            (Some("kernel/block/mq-deadline.ko.xz:\nkernel/block/no-bfq.ko:\n"), listed, Some(false)),
            (None, listed, None),
            (None, ["none", "bfq"], Some(true)),
        ] {
            let mut files = vec![("proc/sys/kernel/osrelease", "7.3.4\n")];
            files.extend(modules.map(|modules| ("lib/modules/7.3.4/modules.dep", modules)));
            let (_directory, roots) = with_files(&files);
            assert_eq!(can_be_had("bfq", listed.into_iter(), &roots), can, "{modules:?}");
        }
    }
}

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

/// Undoes a change of [`DiskOrder`](crate::journal::Change::DiskOrder), each of the two an elevator and for how many
/// requests it has room.
pub(crate) fn undo(
    queue: &Path,
    (old, old_requests): (&str, u64),
    (new, new_requests): (&str, Option<u64>),
) -> Result<Undone, KernelError> {
    let Some(text) = read_if_present(&queue.join("scheduler"))? else {
        return Ok(Undone::Left("it is gone".into()));
    };
    // A disk for which there is only one shows no brackets.
    let only = Some(text.trim()).filter(|name| !name.contains(char::is_whitespace));
    let current = chosen(&text).or(only).unwrap_or("none");
    if current != new && current != old {
        return Ok(Undone::Left(format!("someone else has chosen {current} since")));
    }
    if current == old && old != new {
        // With the elevator the kernel has chosen for how many requests there is room, or somebody has since.
        return Ok(Undone::Left("it is as it was".into()));
    }
    if current != old {
        write(&queue.join("scheduler"), old)?;
    }
    let requests = queue.join("nr_requests");
    let Some(now) = read_if_present(&requests)?.filter(|now| *now != old_requests.to_string()) else {
        return Ok(Undone::PutBack);
    };
    // With another elevator the kernel has chosen it anew.
    if old == new && new_requests.is_some_and(|requests| now != requests.to_string()) {
        return Ok(Undone::Left(format!("someone else has made room for {now} requests since")));
    }
    write(&requests, &old_requests.to_string())?;
    Ok(Undone::PutBack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn the_room_in_an_elevator_that_was_there_before_is_put_back_unless_somebody_else_chose_since() {
        for (elevator, noted, now, after) in [
            ("bfq", Some(1024), "1024", "64"),
            ("bfq", Some(1024), "300", "300"),
            ("bfq", None, "300", "64"),
            ("none", Some(1024), "300", "64"),
        ] {
            let (_directory, roots) = with_files(&[
                ("sys/block/sda/queue/scheduler", "none [bfq]\n"),
                ("sys/block/sda/queue/nr_requests", now),
            ]);
            let queue = roots.sys.join("block/sda/queue");
            undo(&queue, (elevator, 64), ("bfq", noted)).expect("it can be written");
            let requests = std::fs::read_to_string(queue.join("nr_requests")).expect("a file");
            assert_eq!(requests, after, "{elevator} {noted:?}");
        }
    }

    #[test]
    fn where_somebody_has_put_the_old_elevator_back_the_room_that_they_chose_stays() {
        for (now, after, left) in [("[none] bfq", "300", true), ("none [bfq]", "64", false)] {
            let (_directory, roots) = with_files(&[
                ("sys/block/sda/queue/scheduler", now),
                ("sys/block/sda/queue/nr_requests", "300"),
            ]);
            let queue = roots.sys.join("block/sda/queue");
            let undone = undo(&queue, ("none", 64), ("bfq", Some(300))).expect("it can be written");
            let requests = std::fs::read_to_string(queue.join("nr_requests")).expect("a file");
            assert_eq!((requests.as_str(), undone != Undone::PutBack), (after, left), "{now}");
        }
    }

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

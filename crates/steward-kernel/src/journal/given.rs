//! Which elevators disks have from Steward, as the journal says.

use std::collections::BTreeMap;
use std::path::Path;

use super::change::Change;
use super::file::boot_identity;
use super::lines::Past;
use crate::roots::Roots;

/// The elevators that disks were given and that are not put back yet, by the disk's name, by the journal at `path`.
/// Nothing is locked or changed. Where it cannot be read, none.
pub fn given_elevators_of(path: &Path, roots: &Roots) -> BTreeMap<String, String> {
    let past = boot_identity(roots).map(|boot| Past::read(path, &boot).unwrap_or_default());
    past.map(|past| given_elevators(past.outstanding.values())).unwrap_or_default()
}

/// The same by changes that are in force.
pub(super) fn given_elevators<'a>(changes: impl Iterator<Item = &'a Change>) -> BTreeMap<String, String> {
    let of = |change: &Change| match change {
        // The queue is a directory in that of the disk.
        Change::DiskOrder { queue, new, .. } => {
            let name = queue.parent()?.file_name()?.to_str()?;
            Some((name.to_owned(), new.clone()))
        }
        _ => None,
    };
    changes.filter_map(of).collect()
}

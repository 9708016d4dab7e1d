//! Whether it takes long to have back what was taken, and to take it.
//!
//! Disks are told with what is known of them beside what they say themselves (their calibration, and what the machine's
//! owner says): many say that they rotate and do not.

use std::collections::BTreeSet;

use steward_core::disk::device::Device;

use super::swap::{self, SwapArea};
use crate::disk::below::{DeviceOfFile, device_of_file, disks_below, name_of};
use crate::error::KernelError;
use crate::roots::Roots;

/// A disk that rotates, by name, from which what was taken of somebody's memory may have to come back: from its swap or
/// its files. `None` where there is none. Optical drives and floppies are none: nobody's memory is there.
pub fn disk(disks: &[Device]) -> Option<&str> {
    let is_slow = |name: &str| !["sr", "fd"].iter().any(|prefix| name.starts_with(prefix));
    let mut slow = disks.iter().filter(|disk| disk.rotates() && disk.is_own());
    slow.find(|disk| is_slow(&disk.name)).map(|disk| disk.name.as_str())
}

/// Those of these disks that rotate and to which what is swapped out now goes, by name.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming what cannot be read.
pub fn swap_disks(disks: &[Device], roots: &Roots) -> Result<BTreeSet<String>, KernelError> {
    Ok(rotating(disks, &swap::areas(roots)?, roots, device_of_file))
}

/// Of the areas with room those that are filled first decide.
fn rotating(
    disks: &[Device],
    areas: &[SwapArea],
    roots: &Roots,
    device_of_file: DeviceOfFile,
) -> BTreeSet<String> {
    let with_room = || areas.iter().filter(|area| area.used_bytes < area.size_bytes);
    let first = with_room().map(|area| area.priority).max();
    let filled_now = with_room().filter(|area| Some(area.priority) == first);
    let device = |area: &SwapArea| match area.kind.as_str() {
        "file" => {
            device_of_file(&area.path).and_then(|(major, minor)| name_of(&format!("{major}:{minor}"), roots))
        }
        _ => Some(area.path.file_name()?.to_str()?.to_owned()),
    };
    let below: Vec<String> =
        filled_now.filter_map(device).flat_map(|name| disks_below(&name, roots, device_of_file)).collect();
    let is_such = |disk: &&Device| disk.rotates() && below.contains(&disk.name);
    disks.iter().filter(is_such).map(|disk| disk.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use steward_core::disk::config::Order;

    use super::*;
    use crate::disk::devices;
    use crate::roots::with_files;

    #[test]
    fn swap_rotates_where_the_area_with_room_that_is_filled_first_is_on_such_a_disk() {
        let (_keep, roots) = with_files(&[
            ("sys/block/sda/dev", "8:0\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/sda2/dev", "8:2\n"),
            ("sys/block/sda/sda2/partition", "2\n"),
            ("sys/block/nvme0n1/dev", "259:0\n"),
            ("sys/block/nvme0n1/queue/rotational", "0\n"),
            ("sys/block/nvme0n1/nvme0n1p1/dev", "259:1\n"),
            ("sys/block/nvme0n1/nvme0n1p1/partition", "1\n"),
            // The kernel says so of it, and it is memory.
            ("sys/block/zram0/dev", "252:0\n"),
            ("sys/block/zram0/queue/rotational", "1\n"),
        ]);
        let on_the_disk: DeviceOfFile = |path: &Path| (path == Path::new("/swap")).then_some((8, 2));
        let area = |path: &str, kind: &str, used_bytes, priority| SwapArea {
            path: path.into(),
            kind: kind.to_owned(),
            size_bytes: 100,
            used_bytes,
            priority,
        };
        let disk = |used_bytes, priority| area("/dev/sda2", "partition", used_bytes, priority);
        let flash = |used_bytes, priority| area("/dev/nvme0n1p1", "partition", used_bytes, priority);
        for (areas, expected) in [
            (vec![], false),
            (vec![disk(0, -2)], true),
            (vec![disk(0, -2), flash(0, 5)], false),
            (vec![disk(0, -2), flash(100, 5)], true),
            (vec![disk(0, 5), flash(0, 5)], true),
            (vec![disk(100, -2)], false),
            (vec![area("/dev/zram0", "partition", 0, 100)], false),
            (vec![area("/swap", "file", 0, -2)], true),
            (vec![area("/elsewhere", "file", 0, -2)], false),
        ] {
            let listed = devices::list(&roots).expect("readable");
            let disks = rotating(&listed, &areas, &roots, on_the_disk);
            let expected: Vec<&str> = expected.then_some("sda").into_iter().collect();
            assert!(disks.iter().eq(&expected), "{areas:?}: {disks:?}");
        }
        // What their owner says counts more than what they say.
        let said = |name: &str, order| {
            let mut listed = devices::list(&roots).expect("readable");
            listed.iter_mut().filter(|disk| disk.name == name).for_each(|disk| disk.order = order);
            rotating(&listed, &[disk(0, 5), flash(0, 5)], &roots, on_the_disk).into_iter().collect::<Vec<_>>()
        };
        assert!(said("sda", Order::Charge).is_empty());
        assert_eq!(said("nvme0n1", Order::Elevator), ["nvme0n1", "sda"]);
    }

    #[test]
    fn a_disk_that_rotates_is_slow_and_what_stands_for_another_or_holds_a_medium_is_not_looked_at() {
        let disks = |rotates: &str| {
            let disk = |name: &str, rotational: &str| {
                let of = |file: &str| format!("sys/block/{name}/{file}");
                [(of("dev"), "8:0\n".to_owned()), (of("queue/rotational"), format!("{rotational}\n"))]
            };
            let all = [disk("sr0", "1"), disk("zram0", "1"), disk("nvme0n1", "0"), disk("sda", rotates)];
            all.into_iter().flatten().collect::<Vec<(String, String)>>()
        };
        for (rotates, found) in [("1", Some("sda".to_owned())), ("0", None)] {
            let files = disks(rotates);
            let files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let (_keep, roots) = with_files(&files);
            let mut disks = devices::list(&roots).expect("readable");
            assert_eq!(disk(&disks), found.as_deref());
            disks.iter_mut().filter(|disk| disk.name == "sda").for_each(|disk| disk.order = Order::Charge);
            assert_eq!(disk(&disks), None, "its owner says otherwise");
        }
        assert_eq!(disk(&[]), None, "no disks at all");
    }
}

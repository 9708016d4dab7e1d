//! Whether it takes long to have back what was taken.

use crate::disk::devices;
use crate::error::KernelError;
use crate::roots::Roots;

/// A disk that rotates, by name, from which what was taken of somebody's memory may have to come back: from its swap or
/// its files. `None` where there is none. Optical drives and floppies are none: nobody's memory is there.
///
/// # Errors
/// [`KernelError::Read`] when the directory of disks cannot be read.
pub fn disk(roots: &Roots) -> Result<Option<String>, KernelError> {
    let disks = devices::list(roots)?;
    let is_slow = |name: &str| !["sr", "fd"].iter().any(|prefix| name.starts_with(prefix));
    let mut slow = disks.into_iter().filter(|disk| disk.rotational && !disk.stands_for_others);
    Ok(slow.find(|disk| is_slow(&disk.name)).map(|disk| disk.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

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
            assert_eq!(disk(&roots).expect("readable"), found);
        }
        let (_keep, roots) = with_files(&[("proc/meminfo", "")]);
        assert_eq!(disk(&roots).expect("no disks at all"), None);
    }
}

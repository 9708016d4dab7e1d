//! Terminals and input devices, and when a program reads what somebody did there.
//!
//! The kernel tells who watches a file (inotify) that it was read, and of a terminal or an input device that is when a
//! program takes in what was typed. Nothing of what was typed is seen here, and no device is opened. The time of the
//! last read that `stat` has of a terminal is no finer than 8 seconds, on purpose (drivers/tty/tty_io.c,
//! `tty_update_time`).

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::roots::{Roots, read_if_present};

/// Where device files are.
const DEVICES: &str = "/dev";
/// The devices of pseudo terminals (Documentation/admin-guide/devices.txt): as many majors, 256 each.
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
/// `EV_KEY` of include/uapi/linux/input-event-codes.h: it has keys or buttons.
const HAS_KEYS: u64 = 1 << 1;

/// The device file of a terminal, by its number as in [`super::TaskStat::terminal`]; `None` where it has none. A
/// container may have pseudo terminals of its own with the same numbers: those have no file here.
pub fn device_of(terminal: u32, roots: &Roots) -> Option<PathBuf> {
    // include/linux/kdev_t.h, new_encode_dev.
    let (major, minor) = (terminal >> 8 & 0xfff, terminal & 0xff | terminal >> 12 & 0xf_ff00);
    if PSEUDO_TERMINALS.contains(&major) {
        let number = minor + (major - PSEUDO_TERMINALS.start()) * 256;
        return Some(Path::new(DEVICES).join(format!("pts/{number}")));
    }
    let facts = read_if_present(&roots.sys.join(format!("dev/char/{major}:{minor}/uevent"))).ok()??;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new(DEVICES).join(name))
}

/// The keyboards, mice and whatever else has keys or buttons; none where there is no such device.
pub fn input_devices(roots: &Roots) -> Vec<PathBuf> {
    let class = roots.sys.join("class/input");
    let entries = std::fs::read_dir(&class).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let has_keys = |name: &String| {
        let kinds = read_if_present(&class.join(name).join("device/capabilities/ev")).ok().flatten();
        kinds
            .and_then(|kinds| u64::from_str_radix(&kinds, 16).ok())
            .is_some_and(|kinds| kinds & HAS_KEYS != 0)
    };
    let events = names.filter(|name| name.starts_with("event")).filter(has_keys);
    events.map(|name| Path::new(DEVICES).join("input").join(name)).collect()
}

/// Tells once that a device was read, and is asked anew then: who reads a million times costs as much as who reads
/// once.
#[derive(Debug)]
pub struct Reads {
    watches: OwnedFd,
    waiting: BTreeMap<i32, PathBuf>,
}

impl Reads {
    /// Waits for nothing yet.
    ///
    /// # Errors
    /// When the kernel gives no inotify instance (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<Self> {
        let watches = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Reads { watches, waiting: BTreeMap::new() })
    }

    /// Waits for the next read of these, and of none else. One that is not there is left out.
    ///
    /// # Errors
    /// When one cannot be watched: mostly that there are too many watches (`fs.inotify.max_user_watches`), or that the
    /// devices may not be read.
    pub fn await_read(&mut self, devices: &[&Path]) -> io::Result<()> {
        self.waiting.retain(|watch, device| {
            let stays = devices.contains(&device.as_path());
            if !stays {
                // One that has gone has taken its watch along.
                let _ = inotify::remove_watch(&self.watches, *watch);
            }
            stays
        });
        for device in devices {
            if self.waiting.values().any(|waiting| waiting == device) {
                continue;
            }
            match inotify::add_watch(&self.watches, *device, WatchFlags::ACCESS | WatchFlags::ONESHOT) {
                Ok(watch) => _ = self.waiting.insert(watch, device.to_path_buf()),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Those that were read since they were waited for.
    pub fn take(&mut self) -> Vec<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.watches, &mut buffer);
        let mut read = Vec::new();
        while let Ok(event) = reader.next() {
            // With its one event a watch ends; so does that of a terminal which has gone.
            let device = self.waiting.remove(&event.wd());
            if event.events().contains(ReadFlags::ACCESS) {
                read.extend(device);
            }
        }
        read
    }
}

impl AsFd for Reads {
    /// Readable when [`Reads::take`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watches.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn a_terminal_is_found_by_its_number() {
        let (_keep, roots) = with_files(&[
            ("sys/dev/char/4:1/uevent", "MAJOR=4\nMINOR=1\nDEVNAME=tty1\n"),
            ("sys/dev/char/4:64/uevent", "MAJOR=4\nMINOR=64\nDEVNAME=ttyS0\n"),
        ]);
        let of = |major: u32, minor: u32| {
            device_of(major << 8 | minor & 0xff | (minor & !0xff) << 12, &roots)
                .map(|device| device.to_string_lossy().into_owned())
        };
        let expected =
            ["/dev/pts/0", "/dev/pts/7", "/dev/pts/300", "/dev/pts/1000", "/dev/tty1", "/dev/ttyS0"];
        let found = [of(136, 0), of(136, 7), of(137, 44), of(136, 1000), of(4, 1), of(4, 64)];
        assert_eq!(found.map(Option::unwrap_or_default), expected);
        assert_eq!(of(204, 64), None, "there is no such device");
    }

    #[test]
    fn what_has_keys_or_buttons_is_an_input_device() {
        let (_keep, roots) = with_files(&[
            ("sys/class/input/event0/device/capabilities/ev", "120013\n"),
            ("sys/class/input/event1/device/capabilities/ev", "17\n"),
            ("sys/class/input/event2/device/capabilities/ev", "21\n"),
            ("sys/class/input/mouse0/device/capabilities/ev", "17\n"),
        ]);
        let mut found = input_devices(&roots);
        found.sort_unstable();
        assert_eq!(found, [Path::new("/dev/input/event0"), Path::new("/dev/input/event1")]);
        assert!(input_devices(&with_files(&[]).1).is_empty());
    }

    #[test]
    fn a_read_is_told_once_until_it_is_waited_for_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [one, other, missing] = ["one", "other", "missing"].map(|name| directory.path().join(name));
        for file in [&one, &other] {
            std::fs::write(file, "x").expect("a file");
        }
        let mut reads = Reads::new().expect("an instance");
        let all = [one.as_path(), other.as_path(), missing.as_path()];
        reads.await_read(&all).expect("watched");
        assert_eq!(reads.take(), Vec::<PathBuf>::new());
        let read = |file: &Path| assert_eq!(std::fs::read(file).expect("readable"), b"x");
        for _ in 0..3 {
            read(&one);
        }
        assert_eq!(reads.take(), std::slice::from_ref(&one));
        read(&one);
        assert_eq!(reads.take(), Vec::<PathBuf>::new(), "nobody waits for that");
        reads.await_read(&all).expect("watched");
        read(&other);
        read(&one);
        assert_eq!(reads.take(), [other.clone(), one.clone()]);
        reads.await_read(&all).expect("watched");
        reads.await_read(&[&other]).expect("watched");
        read(&one);
        std::fs::remove_file(&other).expect("removed");
        assert_eq!(reads.take(), Vec::<PathBuf>::new(), "one is given up, the other has gone");
        std::fs::write(&other, "x").expect("a file");
        reads.await_read(&[&other]).expect("watched");
        read(&other);
        assert_eq!(reads.take(), [other]);
    }
}

//! The disks of the machine and what orders their requests (Documentation/block/queue-sysfs.rst).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use steward_core::disk::config;
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{BY_CLASS, Order};

use super::below::{device_of_file, disks_below, orders_for, takes_requests};
use super::cost::{self, AllLines};
use super::elevators::chosen;
use super::identity::{identity, which};
use crate::error::KernelError;
use crate::journal::{Change, JournalError, SharedJournal};
use crate::roots::{Roots, read_if_present, write};

/// The file that says, and chooses, what orders a queue's requests.
const SCHEDULER: &str = "scheduler";
/// Whether BFQ guesses who is interactive.
const LOW_LATENCY: &str = "iosched/low_latency";

/// All disks, without partitions, by name. What goes away while they are read is left out.
///
/// # Errors
/// When the directory of disks cannot be read.
pub fn list(roots: &Roots) -> Result<Vec<Device>, KernelError> {
    let path = roots.sys.join("block");
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(KernelError::Read { path, source }),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let lines = cost::lines(roots)?;
    let mut devices: Vec<Device> = names.filter_map(|name| look_at(&name, lines.as_ref(), roots)).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(devices)
}

/// What is known of one disk; `None` where it is gone.
fn look_at(name: &str, lines: Option<&AllLines>, roots: &Roots) -> Option<Device> {
    let directory = directory(name, roots);
    let text = |file: &str| read_if_present(&directory.join(file)).ok().flatten();
    let number = |file: &str| text(file).and_then(|text| text.parse::<u64>().ok());
    let elevators = text("queue/scheduler").unwrap_or_default();
    let chosen = chosen(&elevators).unwrap_or("none").to_owned();
    let stands_for_others = is_for_others(name, &directory);
    let device_number = text("dev")?;
    Some(Device {
        cost: lines.map(|lines| lines.of(&device_number)),
        model: None,
        order: config::Order::Auto,
        lacks_by_class: false,
        identity: identity(&text),
        name: name.to_owned(),
        number: device_number,
        sequence: number("diskseq").unwrap_or(0),
        rotational: number("queue/rotational") == Some(1),
        stands_for_others,
        below: match stands_for_others {
            true => disks_below(name, roots, device_of_file),
            false => Vec::new(),
        },
        path_of: orders_for(&directory, roots),
        queues: directory.join("mq").is_dir(),
        hardware_queues: hardware_queues(&directory),
        elevators: offered(&elevators),
        elevator: chosen,
        requests: number("queue/nr_requests").unwrap_or(0),
        limits_writes: number("queue/async_depth").is_some(),
        depth: number("device/queue_depth").or_else(|| number("mq/0/nr_tags")),
    })
}

/// The disks whose requests are their own, by name and with their number among all that the kernel has had (0 where it
/// does not say), and what can order their requests: what a disk that has come, or an elevator that was loaded,
/// changes. It is less to read than [`list`]. Where nothing can be read, none.
pub fn present(roots: &Roots) -> BTreeMap<(String, u64), Vec<String>> {
    let entries = std::fs::read_dir(roots.sys.join("block")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let disk = |name: String| {
        let directory = directory(&name, roots);
        let text = |file: &str| read_if_present(&directory.join(file)).ok().flatten();
        let orders = !is_for_others(&name, &directory) && orders_for(&directory, roots).is_none();
        let queues = directory.join("mq").is_dir() && orders;
        let sequence = text("diskseq").and_then(|number| number.parse().ok()).unwrap_or(0);
        queues.then(|| ((name, sequence), offered(&text("queue/scheduler").unwrap_or_default())))
    };
    names.filter_map(disk).collect()
}

/// The same of devices that have been looked at already.
pub fn present_among(devices: &[Device]) -> BTreeMap<(String, u64), Vec<String>> {
    let own = devices.iter().filter(|device| device.queues && device.is_own());
    own.map(|device| ((device.name.clone(), device.sequence), device.elevators.clone())).collect()
}

/// How many hardware queues a disk has: a directory for each; 0 where that cannot be read.
fn hardware_queues(directory: &Path) -> u64 {
    std::fs::read_dir(directory.join("mq")).map_or(0, |queues| queues.count() as u64)
}

/// All elevators that `queue/scheduler` says can be chosen.
fn offered(text: &str) -> Vec<String> {
    text.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect()
}

/// Whether a disk stands for others, or for memory.
fn is_for_others(name: &str, directory: &Path) -> bool {
    stands_for_others_at(directory)
        // One that is set up for nothing has nothing to tell it by but its name.
        || ["loop", "zram", "ram"].iter().any(|kind| name.starts_with(kind))
}

/// Whether the device of these numbers stands for others, which count what it hands on to them.
pub fn stands_for_others((major, minor): (u32, u32), roots: &Roots) -> bool {
    let directory = roots.sys.join(format!("dev/block/{major}:{minor}"));
    stands_for_others_at(&directory)
}

fn stands_for_others_at(directory: &Path) -> bool {
    let is_of_such = || ["dm", "md", "loop"].iter().any(|kind| directory.join(kind).is_dir());
    !takes_requests(directory) && (is_of_such() || has_slaves(directory))
}

fn has_slaves(directory: &Path) -> bool {
    std::fs::read_dir(directory.join("slaves")).is_ok_and(|mut slaves| slaves.next().is_some())
}

/// Has a disk's requests ordered so, through the undo journal: what was there before is there again when all of it is
/// put back. Waits until those that are under way are served.
///
/// # Errors
/// [`JournalError`] with the file; what was changed before the failure is then back.
pub fn order(
    journal: &SharedJournal,
    device: &Device,
    order: &Order,
    roots: &Roots,
) -> Result<Ordered, JournalError> {
    let queue = directory(&device.name, roots).join("queue");
    let mut ordered = Ordered { by_class: order.elevator == BY_CLASS, ..Ordered::default() };
    let outcome = change_elevator(journal, device, order, &queue, &mut ordered)
        .and_then(|()| limit_writes(journal, order, &queue, &mut ordered))
        .and_then(|()| guess_nothing(journal, &queue, &mut ordered))
        .and_then(|()| tune(journal, order, &queue, &mut ordered));
    if outcome.is_err() {
        let _ = restore(journal, &ordered, roots);
    }
    outcome.map(|()| ordered)
}

fn change_elevator(
    journal: &SharedJournal,
    device: &Device,
    order: &Order,
    queue: &Path,
    ordered: &mut Ordered,
) -> Result<(), JournalError> {
    if device.elevator == order.elevator && device.requests == order.requests {
        return Ok(());
    }
    ordered.changes.push(journal.record(Change::DiskOrder {
        queue: queue.into(),
        old: device.elevator.clone(),
        old_requests: device.requests,
        new: order.elevator.to_owned(),
        new_requests: Some(order.requests),
        disk: disk_of(queue),
    })?);
    if device.elevator != order.elevator {
        write(&queue.join(SCHEDULER), order.elevator)?;
        // From its first request on it would take for interactive whoever is there, and count them thirty times for ten
        // seconds. What is set of it goes with it, so that this is not noted.
        if order.guesses_nothing {
            let _ = write(&queue.join(LOW_LATENCY), "0");
        }
    }
    // With each elevator the kernel chooses it anew.
    write(&queue.join("nr_requests"), &order.requests.to_string())?;
    // The two do not go together: the kernel itself lets go of the one with the other, unless somebody has ever written
    // what that waits for, as write_freely() does.
    if order.elevator == BY_CLASS {
        ordered.changes.extend(hold_nothing_back(journal, queue)?);
    }
    Ok(())
}

/// Whether a failure of [`order`] says that the kernel has no such elevator: it is about the file that chooses one, and
/// not about what is set of it.
pub fn is_about_elevator(error: &KernelError) -> bool {
    let is_about = |path: &Path| path.file_name().is_some_and(|file| file == SCHEDULER);
    error.errno() == Some(libc::EINVAL) && matches!(error, KernelError::Write { path, .. } if is_about(path))
}

/// Of the places in the elevator, which the kernel has just chosen it anew for.
fn limit_writes(
    journal: &SharedJournal,
    order: &Order,
    queue: &Path,
    ordered: &mut Ordered,
) -> Result<(), JournalError> {
    let Some(writes) = order.writes else { return Ok(()) };
    ordered.changes.extend(write_if_taken(journal, queue, "async_depth", &writes.to_string())?);
    Ok(())
}

/// Who is served first is what programs were given, and not what the elevator guesses from how they behave.
fn guess_nothing(journal: &SharedJournal, queue: &Path, ordered: &mut Ordered) -> Result<(), JournalError> {
    ordered.changes.extend(write_if_there(journal, queue, LOW_LATENCY, "0")?);
    Ok(())
}

/// Through the undo journal; what this kernel has not, or a disk that has gone meanwhile, is left out.
fn write_if_there(
    journal: &SharedJournal,
    queue: &Path,
    file: &str,
    value: &str,
) -> Result<Option<u64>, JournalError> {
    match journal.write_file_of(disk_of(queue), &queue.join(file), value) {
        Err(JournalError::Kernel(error)) if error.is_absent() => Ok(None),
        outcome => outcome,
    }
}

/// The same where the kernel may have the file and take nothing there: on such a device nothing is held back, or there
/// is no elevator any more, which somebody has taken away meanwhile.
fn write_if_taken(
    journal: &SharedJournal,
    queue: &Path,
    file: &str,
    value: &str,
) -> Result<Option<u64>, JournalError> {
    match write_if_there(journal, queue, file, value) {
        Err(JournalError::Kernel(error)) if error.errno() == Some(libc::EINVAL) => Ok(None),
        outcome => outcome,
    }
}

/// Has a disk take all that is written to it in the background, also while it is slow: the kernel lets a few requests
/// at a time through then (`wbt_lat_usec`; block/blk-wbt.c), so that those that lie side by side never meet. Returns
/// the number of the change in the undo journal, or `None` where the kernel does nothing of the kind. Waits until the
/// requests that are under way are served.
///
/// # Errors
/// [`JournalError`] with the file, which is then as it was.
pub fn write_freely(
    journal: &SharedJournal,
    device_name: &str,
    roots: &Roots,
) -> Result<Option<u64>, JournalError> {
    hold_nothing_back(journal, &directory(device_name, roots).join("queue"))
}

fn hold_nothing_back(journal: &SharedJournal, queue: &Path) -> Result<Option<u64>, JournalError> {
    write_if_taken(journal, queue, "wbt_lat_usec", "0")
}

/// Has a disk that was [`order`]ed be tuned otherwise, with the elevator that it has. Nothing waits for that.
///
/// # Errors
/// [`JournalError`] with the file; some of it may then be in force, and all of it is in the journal.
pub fn retune(
    journal: &SharedJournal,
    device: &Device,
    ordered: &Ordered,
    order: &Order,
    roots: &Roots,
) -> Result<Ordered, JournalError> {
    let queue = directory(&device.name, roots).join("queue");
    put_back(journal, &ordered.tuned, roots)?;
    let mut retuned = Ordered { tuned: Vec::new(), ..ordered.clone() };
    tune(journal, order, &queue, &mut retuned)?;
    Ok(retuned)
}

/// What these settings of a disk's elevator are; without those that it has not.
///
/// # Errors
/// [`KernelError`] with the file.
pub fn settings(device_name: &str, names: &[&str], roots: &Roots) -> Result<Vec<String>, KernelError> {
    let directory = directory(device_name, roots).join("queue/iosched");
    let read = |name: &&str| read_if_present(&directory.join(name)).transpose();
    names.iter().filter_map(read).collect()
}

/// Changes settings of a disk's elevator, one after the other, to values that the undo journal knows for Steward's, and
/// returns what all of them are then: one may change another. `None` where they are not what they were `left` at: what
/// somebody else has chosen since stays.
///
/// # Errors
/// [`KernelError`] with the file.
pub fn switch(
    device_name: &str,
    values: &[(&str, &str)],
    left: &[String],
    roots: &Roots,
) -> Result<Option<Vec<String>>, KernelError> {
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    if settings(device_name, &names, roots)? != left {
        return Ok(None);
    }
    for (name, value) in values {
        match write(&directory(device_name, roots).join("queue/iosched").join(name), value) {
            Err(error) if !error.is_absent() => return Err(error),
            _ => {}
        }
    }
    settings(device_name, &names, roots).map(Some)
}

/// What the elevator of this kernel has not is left out.
fn tune(
    journal: &SharedJournal,
    order: &Order,
    queue: &Path,
    ordered: &mut Ordered,
) -> Result<(), JournalError> {
    for (name, value) in order.tunables {
        ordered.tuned.extend(write_if_there(journal, queue, &format!("iosched/{name}"), value)?);
    }
    Ok(())
}

/// What [`order`] changed: numbers in the undo journal, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// The elevator and its room.
    changes: Vec<u64>,
    /// What was set of the elevator itself.
    tuned: Vec<u64>,
    /// Whether it is the elevator of the first choice.
    by_class: bool,
}

impl Ordered {
    /// Whether it has the elevator that knows weights as well.
    pub fn knows_weights(&self) -> bool {
        self.by_class
    }
}

/// Has a disk's requests ordered as before. What somebody else has chosen since stays.
///
/// # Errors
/// [`KernelError`] with the file; the record then stays in the journal.
pub fn restore(journal: &SharedJournal, ordered: &Ordered, roots: &Roots) -> Result<(), KernelError> {
    put_back(journal, &ordered.tuned, roots)?;
    put_back(journal, &ordered.changes, roots)
}

/// Puts changes back, the last one first.
fn put_back(journal: &SharedJournal, changes: &[u64], roots: &Roots) -> Result<(), KernelError> {
    for number in changes.iter().rev() {
        journal.undo(*number, roots)?;
        // A record that stays open does no harm.
        let _ = journal.close(*number);
    }
    Ok(())
}

/// Which disk's queue it is.
fn disk_of(queue: &Path) -> Option<String> {
    which(queue.parent()?)
}

fn directory(name: &str, roots: &Roots) -> PathBuf {
    roots.sys.join("block").join(name)
}

#[cfg(test)]
mod tests {
    use super::super::identity::is_of_any_such;
    use super::*;
    use crate::journal::Journal;
    use crate::roots::with_files;

    const BY_CLASS: Order = Order {
        elevator: "bfq",
        requests: 128,
        writes: None,
        guesses_nothing: false,
        tunables: &[("slice_idle_us", "0"), ("of_another_kernel", "1")],
        moments: &[],
    };

    const FILES: [(&str, &str); 17] = [
        ("proc/sys/kernel/random/boot_id", "one\n"),
        ("sys/block/sda/dev", "8:0\n"),
        ("sys/block/sda/diskseq", "9\n"),
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/sda/queue/scheduler", "[none] mq-deadline bfq\n"),
        ("sys/block/sda/queue/nr_requests", "2\n"),
        ("sys/block/sda/device/queue_depth", "1\n"),
        ("sys/block/sda/mq/0/nr_tags", "31\n"),
        ("sys/block/sda/queue/iosched/low_latency", "1\n"),
        ("sys/block/sda/queue/iosched/slice_idle_us", "8000\n"),
        ("sys/block/loop0/dev", "7:0\n"),
        ("sys/block/dm-0/dev", "253:0\n"),
        ("sys/block/dm-0/dm/name", "root\n"),
        ("sys/block/dm-0/slaves/sda/dev", "8:0\n"),
        ("sys/block/zram0/dev", "252:0\n"),
        ("sys/block/zram0/queue/scheduler", "none\n"),
        ("sys/block/going/size", "0\n"),
    ];

    fn sda() -> (tempfile::TempDir, Roots, SharedJournal, Device) {
        let (directory, roots) = with_files(&FILES);
        let journal = Journal::open(&directory.path().join("journal"), &roots).expect("a journal");
        let device = list(&roots).expect("disks").remove(2);
        (directory, roots, journal.into(), device)
    }

    #[test]
    fn each_disk_is_told_with_what_orders_it_and_what_stands_for_others_is_told_apart() {
        let (_directory, roots) = with_files(&FILES);
        let devices = list(&roots).expect("a directory of disks");
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["dm-0", "loop0", "sda", "zram0"]);
        let sda = &devices[2];
        assert_eq!((sda.elevator.as_str(), sda.requests, sda.depth, sda.sequence), ("none", 2, Some(1), 9));
        assert_eq!(sda.elevators, ["none", "mq-deadline", "bfq"]);
        assert!(sda.rotational && sda.queues && !sda.stands_for_others);
        assert!([0, 1, 3].iter().all(|place| devices[*place].stands_for_others) && !devices[3].queues);
        assert_eq!(devices[0].below, ["sda"]);
        assert!(devices[1].below.is_empty() && devices[3].below.is_empty());
    }

    #[test]
    fn a_device_of_device_mapper_that_queues_requests_is_a_disk_and_its_paths_are_left_alone() {
        let (directory, roots) = with_files(&FILES);
        for (path, text) in [
            ("dm-1/dev", "253:1\n"),
            ("dm-1/dm/name", "mpatha\n"),
            ("dm-1/mq/0/nr_tags", "128\n"),
            ("dm-1/slaves/sdb/dev", "8:16\n"),
            ("sdb/dev", "8:16\n"),
            ("sdb/mq/0/nr_tags", "32\n"),
            ("sdb/holders/dm-1/dev", "253:1\n"),
        ] {
            let path = directory.path().join("sys/block").join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        let devices = list(&roots).expect("disks");
        let of = |name: &str| devices.iter().find(|device| device.name == name).expect("it is there");
        let multipath = of("dm-1");
        assert!(!multipath.stands_for_others && multipath.queues && multipath.path_of.is_none());
        assert_eq!(of("sdb").path_of.as_deref(), Some("dm-1"));
        assert_eq!((of("dm-0").path_of.as_ref(), of("sda").path_of.as_ref()), (None, None));
        let present = present(&roots).into_keys().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(present, ["dm-1", "sda"]);
    }

    #[test]
    fn only_of_the_file_that_chooses_an_elevator_it_is_said_that_there_is_none() {
        for (file, errno, is_about) in [
            ("scheduler", libc::EINVAL, true),
            ("scheduler", libc::EIO, false),
            ("nr_requests", libc::EINVAL, false),
        ] {
            let error = KernelError::Write {
                path: Path::new("/sys/block/sda/queue").join(file),
                value: String::new(),
                source: std::io::Error::from_raw_os_error(errno),
            };
            assert_eq!(is_about_elevator(&error), is_about, "{file}");
        }
    }

    #[test]
    fn a_disk_is_known_again_by_what_its_maker_has_given_it_or_else_by_its_size() {
        for (files, known_by) in [
            (
                &[("wwid", "eui.0025\n"), ("device/model", "Fast \n"), ("device/serial", "S1\n")][..],
                "wwid eui.0025",
            ),
            (&[("device/wwid", "t10.ATA   QEMU\n")], "wwid t10.ATA QEMU"),
            (
                &[("device/model", "Fast  one\n"), ("device/serial", "S1\n"), ("size", "8\n")],
                "Fast one, serial number S1",
            ),
            (&[("serial", "root\n"), ("size", "8\n")], "serial number root"),
            (&[("serial", "\n"), ("device/model", "Fast\n"), ("size", "8\n")], "Fast, 8 sectors"),
            (&[("size", "8\n")], "8 sectors"),
            (&[], ""),
        ] {
            let (_directory, roots) = with_files(&[("sys/block/sda/dev", "8:0\n")]);
            for (file, text) in files {
                let path = roots.sys.join("block/sda").join(file);
                std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
                std::fs::write(path, text).expect("a file");
            }
            let devices = list(&roots).expect("disks");
            assert_eq!(devices[0].identity, known_by);
            assert_eq!(is_of_any_such(known_by), known_by.ends_with("8 sectors"));
        }
    }

    #[test]
    fn what_the_kernel_says_of_io_cost_is_told_of_each_disk() {
        let cost = |roots: &Roots| list(roots).expect("disks")[0].cost.clone();
        let (_directory, roots) = with_files(&FILES[..4]);
        assert_eq!(cost(&roots), None, "this kernel has no io.cost");
        for (file, text) in [
            ("io.cost.qos", "8:16 enable=1 ctrl=auto\n8:0 enable=0 ctrl=auto\n"),
            ("io.cost.model", "8:16 ctrl=auto model=linear\n"),
        ] {
            std::fs::create_dir_all(&roots.cgroup).expect("a directory");
            std::fs::write(roots.cgroup.join(file), text).expect("a file");
        }
        let cost = cost(&roots).expect("it has");
        assert_eq!((cost.quality.as_str(), cost.model.as_str()), ("8:0 enable=0 ctrl=auto", ""));
    }

    #[test]
    fn beside_this_elevator_nothing_that_is_written_is_held_back_and_later_it_is_again() {
        let (_directory, roots, journal, device) = sda();
        assert_eq!(write_freely(&journal, "sda", &roots).expect("it has no such file"), None);
        let file = roots.sys.join("block/sda/queue/wbt_lat_usec");
        std::fs::write(&file, "75000\n").expect("a file");
        let ordered = order(&journal, &device, &BY_CLASS, &roots).expect("it can be written");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "0");
        restore(&journal, &ordered, &roots).expect("it can be put back");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "75000");
        assert_eq!(journal.outstanding(), 0);
    }

    #[test]
    fn how_many_may_be_writes_is_changed_with_a_record_where_the_kernel_can_be_told() {
        let (_directory, roots, journal, device) = sda();
        assert!(!device.limits_writes);
        let file = roots.sys.join("block/sda/queue/async_depth");
        std::fs::write(&file, "64\n").expect("a file");
        assert!(list(&roots).expect("disks").remove(2).limits_writes);
        let limiting = Order { writes: Some(96), ..BY_CLASS };
        let ordered = order(&journal, &device, &limiting, &roots).expect("it can be written");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "96");
        restore(&journal, &ordered, &roots).expect("it can be put back");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "64");
        assert_eq!(journal.outstanding(), 0);
    }

    #[test]
    fn where_somebody_is_served_first_nothing_is_guessed_from_the_beginning() {
        let (_directory, roots, journal, device) = sda();
        let file = roots.sys.join("block/sda/queue/iosched/low_latency");
        // There is nothing to be put back of an elevator that was not there.
        for (elevator, left) in [("none", "0"), ("bfq", "1")] {
            std::fs::write(&file, "1\n").expect("a file");
            let device = Device { elevator: elevator.to_owned(), ..device.clone() };
            let order_first = Order { guesses_nothing: true, ..BY_CLASS };
            let ordered = order(&journal, &device, &order_first, &roots).expect("it can be written");
            assert_eq!(std::fs::read_to_string(&file).expect("a file").trim(), "0");
            restore(&journal, &ordered, &roots).expect("it can be put back");
            assert_eq!(
                (std::fs::read_to_string(&file).expect("a file").trim(), journal.outstanding()),
                (left, 0)
            );
        }
    }

    #[test]
    fn a_machine_without_disks_has_none() {
        let (_directory, roots) = with_files(&FILES[..1]);
        assert_eq!(list(&roots).expect("no error"), Vec::new());
    }

    #[test]
    fn the_order_of_a_disk_is_changed_with_a_record_and_comes_back_unless_somebody_else_chose_since() {
        let (_directory, roots, journal, device) = sda();
        let ordered = order(&journal, &device, &BY_CLASS, &roots).expect("it can be written");
        let now = |file: &str| {
            std::fs::read_to_string(roots.sys.join("block/sda/queue").join(file)).expect("a file")
        };
        assert_eq!((now("scheduler").as_str(), now("nr_requests").as_str()), ("bfq", "128"));
        let guess_and_idle = || (now("iosched/low_latency"), now("iosched/slice_idle_us"));
        let are = |guess: &str, idle: &str| (guess.to_owned(), idle.to_owned());
        assert_eq!((guess_and_idle(), journal.outstanding()), (are("0", "0"), 3));
        std::fs::write(roots.sys.join("block/sda/queue/scheduler"), "none mq-deadline [bfq]\n")
            .expect("a file");
        let untuned = retune(&journal, &device, &ordered, &Order { tunables: &[], ..BY_CLASS }, &roots);
        assert_eq!(
            (guess_and_idle(), journal.outstanding()),
            (are("0", "8000"), 2),
            "it guesses nothing still"
        );
        let ordered = retune(&journal, &device, &untuned.expect("it can be written"), &BY_CLASS, &roots);
        let ordered = ordered.expect("it can be written");
        assert_eq!((guess_and_idle(), journal.outstanding()), (are("0", "0"), 3));
        restore(&journal, &ordered, &roots).expect("it can be put back");
        assert_eq!(
            (now("scheduler").as_str(), now("nr_requests").as_str(), journal.outstanding()),
            ("none", "2", 0)
        );
        assert_eq!(guess_and_idle(), are("1", "8000"));
        let ordered = order(&journal, &device, &BY_CLASS, &roots).expect("it can be written");
        std::fs::write(roots.sys.join("block/sda/queue/scheduler"), "none [mq-deadline] bfq\n")
            .expect("a file");
        restore(&journal, &ordered, &roots).expect("there is nothing to put back");
        assert_eq!(now("scheduler"), "none [mq-deadline] bfq\n");
    }

    #[test]
    fn what_was_changed_of_a_disk_that_has_gone_is_not_put_back_to_another_one_of_its_name() {
        // With the kernel's own number of each disk, and by what it is known by where there is none.
        for (file, another) in [("diskseq", "10\n"), ("size", "16\n")] {
            let (_directory, roots, journal, device) = sda();
            let sda = roots.sys.join("block/sda");
            if file == "size" {
                std::fs::remove_file(sda.join("diskseq")).expect("it is there");
                std::fs::write(sda.join("size"), "8\n").expect("a file");
            }
            std::fs::write(sda.join("queue/wbt_lat_usec"), "75000\n").expect("a file");
            let ordered = order(&journal, &device, &BY_CLASS, &roots).expect("it can be written");
            std::fs::write(sda.join(file), another).expect("a file");
            restore(&journal, &ordered, &roots).expect("there is nothing to put back");
            let now = |file: &str| std::fs::read_to_string(sda.join("queue").join(file)).expect("a file");
            assert_eq!((now("scheduler").as_str(), now("nr_requests").as_str()), ("bfq", "128"), "{file}");
            assert_eq!((now("iosched/low_latency").as_str(), now("wbt_lat_usec").as_str()), ("0", "0"));
            assert_eq!(journal.outstanding(), 0);
        }
    }

    #[test]
    fn disks_that_can_be_ordered_are_told_with_their_number_and_what_can_order_them() {
        let (_directory, roots) = with_files(&FILES);
        let elevators = ["none", "mq-deadline", "bfq"].map(str::to_owned).to_vec();
        assert_eq!(present(&roots), BTreeMap::from([(("sda".to_owned(), 9), elevators)]));
    }

    #[test]
    fn which_elevators_are_stewards_is_known_from_the_journal_while_they_are() {
        let (directory, roots, journal, device) = sda();
        let ordered = order(&journal, &device, &BY_CLASS, &roots).expect("it can be written");
        let given = std::collections::BTreeMap::from([("sda".to_owned(), "bfq".to_owned())]);
        assert_eq!(journal.given_elevators(), given);
        // Also for who only reads it.
        let path = directory.path().join("journal");
        assert_eq!(crate::journal::given_elevators_of(&path, &roots), given);
        std::fs::write(roots.sys.join("block/sda/queue/scheduler"), "none [bfq]\n").expect("a file");
        restore(&journal, &ordered, &roots).expect("it can be put back");
        assert!(journal.given_elevators().is_empty());
        assert!(crate::journal::given_elevators_of(&path, &roots).is_empty());
    }

    #[test]
    fn what_is_changed_for_moments_is_put_back_whichever_of_its_values_it_has() {
        for (at_the_end, after) in [("0", "8000"), ("2000", "8000"), ("700", "700")] {
            let (_directory, roots, journal, device) = sda();
            let tunables = &[("slice_idle_us", "0"), ("slice_idle_us", "2000")];
            let ordered = order(&journal, &device, &Order { tunables, ..BY_CLASS }, &roots);
            let switched = |to, left: &str| {
                let values = [("slice_idle_us", to), ("of_another_kernel", "1")];
                switch("sda", &values, &[left.to_owned()], &roots).expect("it is there")
            };
            assert_eq!(switched("0", "2000"), Some(vec!["0".to_owned()]));
            assert_eq!(switched("2000", "0"), Some(vec!["2000".to_owned()]));
            assert_eq!(switched("2000", "0"), None);
            let file = roots.sys.join("block/sda/queue/iosched/slice_idle_us");
            std::fs::write(&file, at_the_end).expect("a file");
            restore(&journal, &ordered.expect("it can be written"), &roots).expect("it can be put back");
            assert_eq!(std::fs::read_to_string(&file).expect("a file"), after);
        }
    }
}

//! The holder on this machine's kernel: processes that map a file, and touch what they are told to.
//!
//! It takes the right to open the files that other processes map, as root has it. Without it these tests say so, and
//! test nothing.

mod child;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, major, memfd_create, minor};

use super::files::WINDOW_PAGES;
use super::*;
use crate::mounts::encode_device;
use child::{Child, Sharing};

const PLENTY: Capacity = Capacity { bytes_max: 1 << 32, areas_max: 10_000 };
const HOUR: Duration = Duration::from_secs(3600);

/// A file in memory with so many pages, all of them there.
fn file(pages: u64) -> File {
    let file = File::from(memfd_create("held", MemfdFlags::CLOEXEC).expect("a file in memory"));
    fill(&file, 0..pages);
    file
}

fn fill(file: &File, pages: Range<u64>) {
    for page in pages {
        file.write_all_at(&[7; 4096], page * window::page_bytes()).expect("room");
    }
}

fn key(file: &File) -> FileKey {
    let facts = file.metadata().expect("metadata");
    FileKey { device: encode_device(major(facts.dev()), minor(facts.dev())), inode: facts.ino() }
}

/// One of these tests at a time: their processes are copies of this one, with what other tests map at that moment, and
/// would have it held.
static ALONE: Mutex<()> = Mutex::new(());

/// Waits for the other tests. `None` where the files that this process maps cannot be opened through the kernel's links
/// to them.
fn alone() -> Option<MutexGuard<'static, ()>> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let links = std::fs::read_dir("/proc/self/map_files");
    let first = links.ok().and_then(|mut links| links.next()?.ok());
    if first.is_some_and(|link| File::open(link.path()).is_ok()) {
        return Some(alone);
    }
    eprintln!("nothing is tested: this takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE");
    None
}

fn holder(capacity: Capacity) -> Holder {
    Holder::new(capacity, Box::new(|_| false), &Roots::default()).expect("pagemap")
}

/// A refresh that comes to its end, with nothing that failed.
fn refresh(holder: &mut Holder, processes: &[TaskId]) -> Refreshed {
    let refreshed = holder.refresh(processes, HOUR).expect("mountinfo");
    assert!(refreshed.complete && refreshed.failure.is_none(), "{refreshed:?}");
    refreshed
}

/// The pages of the file's first window that are held.
fn held(holder: &Holder, file: &File) -> PageRanges {
    holder.files.held((key(file), 0)).cloned().unwrap_or_default()
}

fn has(pages: &PageRanges, page: u64) -> bool {
    pages.iter().any(|range| range.contains(&page))
}

/// How many mappings of the file this process has.
fn own_mappings(file: &File) -> usize {
    let mut lines = maps::Lines::new(File::open("/proc/self/maps").expect("maps"));
    let mut found = 0;
    loop {
        match lines.next().expect("a line") {
            maps::Line::End => return found,
            maps::Line::Other => {}
            maps::Line::File(mapping) => {
                found += usize::from((mapping.device, mapping.inode) == (key(file).device, key(file).inode));
            }
        }
    }
}

fn assert_that_what_is_mapped_is_held(file: &File, sharing: Sharing) {
    let mut child = Child::start(file, 0..256, sharing);
    for page in [3, 100, 190] {
        child.read(page);
    }
    child.write(200);
    let mut holder = holder(PLENTY);
    let refreshed = refresh(&mut holder, &[child.task]);
    let mapped = child.pages();
    let held = held(&holder, file);
    assert!([3, 100, 190].iter().all(|page| has(&mapped, *page)), "{mapped:?}");
    assert_eq!(has(&mapped, 200), sharing == Sharing::Shared, "a copy is the process's own: {mapped:?}");
    assert!(mapped.minus(&held).is_empty(), "{mapped:?} is mapped, {held:?} held");
    assert_eq!(held.pages(), 256, "all that is in memory of so small a mapping: {held:?}");
    assert_eq!(holder.files()[&key(file)], held.pages() * 4096);
    let of_child = holder.processes()[0];
    assert_eq!((of_child.process, of_child.unfitting_bytes), (child.task, 0));
    assert!(of_child.held_bytes >= mapped.pages() * 4096 && of_child.held_bytes <= refreshed.held_bytes);
    drop(holder);
    assert_eq!(own_mappings(file), 0);
}

#[test]
fn the_pages_that_a_process_maps_are_held_and_of_a_program_all_that_is_in_memory() {
    let Some(_alone) = alone() else { return };
    assert_that_what_is_mapped_is_held(&file(256), Sharing::Private);
    assert_that_what_is_mapped_is_held(&file(256), Sharing::Shared);
    // A file on a disk that was removed, where this directory is on a file system that may be opened.
    let on_disk = tempfile::tempfile().expect("a temporary file");
    let systems = LocalFileSystems::of_caller(&Roots::default()).expect("mountinfo");
    if systems.numbering(key(&on_disk).device).is_some() {
        fill(&on_disk, 0..256);
        assert_that_what_is_mapped_is_held(&on_disk, Sharing::Private);
    }
}

#[test]
fn both_ways_of_asking_the_kernel_give_the_same_pages() {
    let file = file(256);
    let mut child = Child::start(&file, 0..256, Sharing::Private);
    [3, 100, 190].into_iter().for_each(|page| child.read(page));
    child.write(200);
    let path = format!("/proc/{}/pagemap", child.task.tid);
    let Ok(tables) = File::open(path) else { return };
    let mut by_scan = PageTables::new(tables.try_clone().expect("a descriptor"), window::page_bytes());
    let mut by_reading = PageTables::by_reading(tables, window::page_bytes());
    let (scanned, scanned_to) = by_scan.of_files(child.addresses()).expect("pagemap");
    let (read, read_to) = by_reading.of_files(child.addresses()).expect("pagemap");
    assert_eq!((&scanned, scanned_to), (&read, read_to));
    assert!(!scanned.is_empty());
}

#[test]
fn what_two_processes_map_is_held_until_both_have_let_it_go() {
    let Some(_alone) = alone() else { return };
    let file = file(64);
    let (mut one, mut other) =
        (Child::start(&file, 0..32, Sharing::Shared), Child::start(&file, 0..64, Sharing::Private));
    one.read(10);
    other.read(10);
    other.read(50);
    let mut holder = holder(PLENTY);
    let both = [one.task, other.task];
    refresh(&mut holder, &both);
    assert!(has(&held(&holder, &file), 10) && has(&held(&holder, &file), 50));
    let sum: u64 = both.iter().map(|task| holder.bytes_of(&[*task])).sum();
    assert!(holder.bytes_of(&both) < sum, "what both map counts once");

    other.unmap();
    refresh(&mut holder, &both);
    assert_eq!((has(&held(&holder, &file), 10), has(&held(&holder, &file), 50)), (true, false));
    // Nobody has to say that it has ended.
    let task = one.task;
    drop(one);
    refresh(&mut holder, &both);
    assert!(held(&holder, &file).is_empty());
    assert_eq!((own_mappings(&file), holder.bytes_of(&[task])), (0, 0));
    // And one that is not to be protected any more is let go while it lives.
    assert!(holder.bytes_of(&both) > 0, "it maps its libraries still");
    let refreshed = refresh(&mut holder, &[]);
    assert_eq!((refreshed.held_bytes, refreshed.areas, refreshed.processes), (0, 0, 0));
}

#[test]
fn no_more_is_held_than_the_capacity_and_what_did_not_fit_is_told() {
    let Some(_alone) = alone() else { return };
    let file = file(256);
    let mut child = Child::start(&file, 0..256, Sharing::Shared);
    (0..256).for_each(|page| child.read(page));
    for capacity in [Capacity { bytes_max: 10 * 4096, ..PLENTY }, Capacity { areas_max: 3, ..PLENTY }] {
        let mut holder = holder(capacity);
        for _ in 0..3 {
            let refreshed = refresh(&mut holder, &[child.task]);
            assert!(refreshed.held_bytes <= capacity.bytes_max && refreshed.areas <= capacity.areas_max);
            assert!(refreshed.held_bytes > 0, "{refreshed:?}");
        }
        let of_child = holder.processes()[0];
        assert!(of_child.unfitting_bytes > 0, "{of_child:?}");
        assert!(of_child.held_bytes <= capacity.bytes_max);
        holder.set_capacity(PLENTY);
        refresh(&mut holder, &[child.task]);
        assert!(held(&holder, &file).has_all(&PageRanges::of(0..256)));
        assert_eq!(holder.processes()[0].unfitting_bytes, 0);
        holder.set_capacity(capacity);
        assert!(holder.processes()[0].held_bytes <= capacity.bytes_max);
        let refreshed = refresh(&mut holder, &[child.task]);
        assert!(refreshed.held_bytes <= capacity.bytes_max && refreshed.areas <= capacity.areas_max);
        assert!(refreshed.held_bytes > 0, "{refreshed:?}");
    }
}

#[test]
fn what_somebody_is_charged_for_whose_memory_is_limited_is_not_held_and_let_go_once_it_is() {
    let Some(_alone) = alone() else { return };
    if std::fs::read("/proc/kpagecgroup").is_err() {
        eprintln!("nothing is tested: this kernel does not say who is charged");
        return;
    }
    let file = file(64);
    let mut child = Child::start(&file, 0..64, Sharing::Shared);
    (0..64).for_each(|page| child.read(page));
    let limited = Arc::new(Mutex::new((true, BTreeSet::new())));
    let asked = Arc::clone(&limited);
    let is_limited = move |owner| {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.1.insert(owner);
        asked.0
    };
    let mut holder = Holder::new(PLENTY, Box::new(is_limited), &Roots::default()).expect("pagemap");
    refresh(&mut holder, &[child.task]);
    let owners = limited.lock().expect("no panic").1.clone();
    if owners.is_empty() {
        eprintln!("nothing is tested: nobody is charged for the file");
        return;
    }
    assert!(held(&holder, &file).is_empty(), "of {owners:?}");
    assert_eq!(own_mappings(&file), 1, "who is charged is remembered");
    limited.lock().expect("no panic").0 = false;
    let mut refreshes = 0;
    while !held(&holder, &file).has_all(&PageRanges::of(0..64)) {
        refresh(&mut holder, &[child.task]);
        refreshes += 1;
        assert!(refreshes < 40, "it is never held");
    }
    limited.lock().expect("no panic").0 = true;
    let refreshed = refresh(&mut holder, &[child.task]);
    assert!(held(&holder, &file).is_empty(), "{refreshed:?}");
    // What is refused is forgotten with the process.
    refresh(&mut holder, &[]);
    assert_eq!(own_mappings(&file), 0);
}

/// What the kernel says that this process has locked, in bytes.
fn locked_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a figure");
    line.trim().strip_suffix(" kB").and_then(|figure| figure.parse::<u64>().ok()).expect("kB") * 1024
}

/// Pages that two cgroups are charged for by turns, of which one is limited then: what is left would take more areas
/// than there may be, and is let go with them.
#[test]
fn whoever_is_charged_no_more_areas_are_taken_than_there_may_be_and_nothing_stays_locked_unseen() {
    let Some(_alone) = alone() else { return };
    let file = file(1024);
    let mut child = Child::start(&file, 0..1024, Sharing::Shared);
    (0..1024).for_each(|page| child.read(page));
    let limited = Arc::new(AtomicI32::new(0));
    let asked = Arc::clone(&limited);
    let capacity = Capacity { areas_max: 60, ..PLENTY };
    let mut holder = holder(capacity);
    let is_limited = move |owner| owner == asked.load(Ordering::Relaxed) as u64;
    holder.files.charge(charges::Charges::told(|frame| 1 + frame % 2, Box::new(is_limited)));
    let before = locked_bytes();
    refresh(&mut holder, &[child.task]);
    assert!(held(&holder, &file).has_all(&PageRanges::of(0..1024)));
    for owner in [1, 1, 0, 2] {
        limited.store(owner, Ordering::Relaxed);
        let refreshed = refresh(&mut holder, &[child.task]);
        assert!(refreshed.areas <= capacity.areas_max, "{refreshed:?}");
        let locked = locked_bytes() - before;
        assert_eq!(locked, holder.files.locked_bytes(), "as the kernel counts");
    }
    assert!(held(&holder, &file).is_empty());
    // Lifted, all is held again, however often something is refused meanwhile.
    limited.store(0, Ordering::Relaxed);
    (0..40).for_each(|_| drop(refresh(&mut holder, &[child.task])));
    assert!(held(&holder, &file).has_all(&PageRanges::of(0..1024)));
}

#[test]
fn a_part_of_a_file_that_very_many_are_charged_for_is_not_held() {
    let Some(_alone) = alone() else { return };
    let (many, few) = (file(1024), file(64));
    let children =
        [Child::start(&many, 0..1024, Sharing::Shared), Child::start(&few, 0..64, Sharing::Shared)];
    let mut holder = holder(PLENTY);
    holder.files.charge(charges::Charges::told(|frame| 1 + frame % 500, Box::new(|_| false)));
    refresh(&mut holder, &[children[0].task]);
    assert!(held(&holder, &many).is_empty());
    holder.files.charge(charges::Charges::told(|frame| 1 + frame % 7, Box::new(|_| false)));
    refresh(&mut holder, &[children[1].task]);
    assert!(held(&holder, &few).has_all(&PageRanges::of(0..64)));
}

/// A file of which little is in memory takes no more room than that.
#[test]
fn an_empty_mapping_takes_no_room() {
    let Some(_alone) = alone() else { return };
    let (empty, other) = (file(0), file(64));
    empty.set_len(WINDOW_PAGES / 2 * 4096).expect("a file without blocks");
    let first = Child::start(&empty, 0..WINDOW_PAGES / 2, Sharing::Shared);
    let mut child = Child::start(&other, 0..64, Sharing::Shared);
    child.read(10);
    let mut holder = holder(PLENTY);
    let all = [first.task, child.task];
    let refreshed = refresh(&mut holder, &all);
    assert!(held(&holder, &other).has_all(&PageRanges::of(0..64)) && held(&holder, &empty).is_empty());
    // With so much and not more to be had, all of it is held again.
    holder.set_capacity(Capacity { bytes_max: 0, ..PLENTY });
    holder.set_capacity(Capacity { bytes_max: refreshed.held_bytes + 64 * 4096, ..PLENTY });
    let again = refresh(&mut holder, &all);
    assert!(again.held_bytes + 16 * 4096 >= refreshed.held_bytes, "{again:?} after {refreshed:?}");
}

#[test]
fn without_time_each_refresh_does_a_step_and_they_come_to_the_end_together() {
    let Some(_alone) = alone() else { return };
    let file = file(64);
    let (mut child, other) =
        (Child::start(&file, 0..64, Sharing::Shared), Child::start(&self::file(64), 0..64, Sharing::Shared));
    child.read(10);
    let both = [child.task, other.task];
    let mut holder = holder(PLENTY);
    let mut refreshes = 0;
    while !holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete {
        refreshes += 1;
        assert!(refreshes < 100_000, "it comes to no end");
    }
    // Each line of maps is a step at least.
    assert!(refreshes > 10, "{refreshes}");
    assert!(has(&held(&holder, &file), 10));
    // A way through that is not at its end lets nothing go that the last one found.
    child.unmap();
    assert!(!holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete);
    assert!(has(&held(&holder, &file), 10));
    while !holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete {}
    assert!(!has(&held(&holder, &file), 10));
    // Nor does one that is not at its end keep anything that is to be let go.
    assert!(!holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete);
    while holder.refresh(&[], Duration::ZERO).expect("mountinfo").held_bytes > 0 {}
    assert!(held(&holder, &file).is_empty());
}

/// The other one has more to look at, so that a second way through this one could begin meanwhile, and be anywhere.
#[test]
fn what_is_let_go_before_a_way_begins_is_not_held_when_it_is_at_its_end() {
    let Some(_alone) = alone() else { return };
    for more in (0..80).step_by(5) {
        let file = file(64);
        let mut child = Child::start(&file, 0..64, Sharing::Shared);
        child.read(10);
        let more: Vec<File> = (0..more).map(|_| self::file(1)).collect();
        let other = child::mapping(&more, || Child::start(&self::file(64), 0..64, Sharing::Shared));
        let both = [child.task, other.task];
        let mut holder = holder(PLENTY);
        while !holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete {}
        assert!(has(&held(&holder, &file), 10));
        child.unmap();
        while !holder.refresh(&both, Duration::ZERO).expect("mountinfo").complete {}
        assert!(!has(&held(&holder, &file), 10), "with {} more", more.len());
    }
}

#[test]
fn a_file_that_is_cut_is_held_no_more_and_one_that_grows_is_held_to_its_end() {
    let Some(_alone) = alone() else { return };
    let file = file(32);
    let mut child = Child::start(&file, 0..512, Sharing::Shared);
    child.read(5);
    let mut holder = holder(PLENTY);
    refresh(&mut holder, &[child.task]);
    assert!(has(&held(&holder, &file), 5));
    fill(&file, 32..512);
    child.read(500);
    refresh(&mut holder, &[child.task]);
    assert!(has(&held(&holder, &file), 5) && has(&held(&holder, &file), 500), "{:?}", held(&holder, &file));
    file.set_len(4096).expect("cut");
    refresh(&mut holder, &[child.task]);
    assert!(held(&holder, &file).minus(&PageRanges::of(0..1)).is_empty());
    // Cut between looking and locking: nothing of it can be mapped.
    let mut window = window::Window::map(&file, 0..512, 4096).expect("a mapping");
    let all = PageRanges::of(0..512);
    assert_eq!(window.resident(&all).expect("nothing is wrong"), PageRanges::of(0..1));
    let mut own = PageTables::new(File::open("/proc/self/pagemap").expect("pagemap"), 4096);
    window.populate(&all, &mut own).expect("nothing is wrong");
    window.lock(&all).expect("the right to lock");
    assert_eq!(window.held(), &PageRanges::of(0..1));
    window.let_go(&all);
    assert!(window.held().is_empty() && window.locked().is_empty());
}

#[test]
fn a_huge_file_with_little_in_it_takes_little() {
    let Some(_alone) = alone() else { return };
    let pages = 1 << 28;
    let file = file(1);
    file.set_len(pages * 4096).expect("a file without blocks");
    fill(&file, pages - 1..pages);
    let mut child = Child::start(&file, 0..pages, Sharing::Shared);
    child.read(0);
    child.read(pages - 1);
    let mut holder = holder(PLENTY);
    refresh(&mut holder, &[child.task]);
    let last = holder.files.held((key(&file), pages / WINDOW_PAGES - 1)).expect("its window");
    assert!(has(last, pages - 1) && has(&held(&holder, &file), 0));
    assert!(holder.files()[&key(&file)] <= 32 * 4096);
}

#[test]
fn another_process_with_the_same_pid_and_the_caller_itself_are_left_alone() {
    let Some(_alone) = alone() else { return };
    let file = file(8);
    let mut child = Child::start(&file, 0..8, Sharing::Shared);
    child.read(0);
    let own = i32::try_from(std::process::id()).expect("a pid");
    let own = crate::process::stat(own, &Roots::default()).expect("it runs").id;
    let earlier = TaskId { started_ticks: child.task.started_ticks - 1, ..child.task };
    let mut holder = holder(PLENTY);
    let refreshed = refresh(&mut holder, &[earlier, own]);
    assert_eq!((refreshed.held_bytes, refreshed.processes), (0, 0));
    refresh(&mut holder, &[earlier, own, child.task]);
    assert!(has(&held(&holder, &file), 0));
    assert_eq!(holder.processes().len(), 1);
}

#[test]
fn files_on_file_systems_that_are_not_known_are_counted_and_not_opened() {
    let file = file(8);
    let mut child = Child::start(&file, 0..8, Sharing::Shared);
    child.read(0);
    // All of procfs as it is, but that this process sees no mounts.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(directory.path());
    std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
    let link = |name: &str| {
        std::os::unix::fs::symlink(format!("/proc/{name}"), roots.proc.join(name)).expect("a link");
    };
    link(&child.task.tid.to_string());
    link("self/pagemap");
    std::fs::write(roots.proc.join("self/mountinfo"), "").expect("a file");
    let mut holder = Holder::new(PLENTY, Box::new(|_| false), &roots).expect("pagemap");
    let refreshed = holder.refresh(&[child.task], HOUR).expect("mountinfo");
    let Some(of_child) = holder.processes().first().copied() else { panic!("{refreshed:?}") };
    assert!(of_child.foreign_mappings > 0, "the program itself is on a disk: {of_child:?}");
    assert!(holder.files().keys().all(|held| held.device == key(&file).device), "{:?}", holder.files());
}

#[test]
fn another_thread_can_learn_which_process_keeps_a_refresh_waiting() {
    // Opening a FIFO waits for its other end, as opening what shows a process's memory may wait for the process.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(directory.path());
    let own = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let process = roots.proc.join("42");
    std::fs::create_dir_all(&process).expect("a directory");
    std::fs::create_dir_all(roots.proc.join("self")).expect("a directory");
    let empty = ["self/pagemap", "self/mountinfo", "42/pagemap"];
    empty.iter().for_each(|name| std::fs::write(roots.proc.join(name), "").expect("a file"));
    std::fs::write(process.join("stat"), own).expect("a file");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, process.join("maps"), mode).expect("a FIFO");
    let task = crate::process::stat(42, &roots).expect("it is there").id;

    let mut holder = Holder::new(PLENTY, Box::new(|_| false), &roots).expect("pagemap");
    let looking_at = holder.looking_at();
    let refresh = std::thread::spawn(move || holder.refresh(&[task], HOUR).expect("mountinfo"));
    while looking_at.load(Ordering::Relaxed) != 42 {
        assert!(!refresh.is_finished(), "nothing waits");
        std::thread::yield_now();
    }
    drop(File::options().write(true).open(process.join("maps")).expect("its other end"));
    assert!(refresh.join().expect("it ends").complete);
    assert_eq!(looking_at.load(Ordering::Relaxed), 0);
}

//! The undo journal on a disk that takes no more, tried with a limit to the size of files: a write that passes it is
//! taken in part, and then fails. It has a process of its own, because the limit is one of processes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use steward_kernel::Roots;
use steward_kernel::cgroup::place::Place;
use steward_kernel::journal::{self, Change, Journal};

/// Runs `act` where no file may grow beyond so many bytes.
fn with_room<T>(bytes: Option<u64>, act: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes, ..before }).expect("a lower limit");
    let outcome = act();
    setrlimit(Resource::Fsize, before).expect("the limit of before");
    outcome
}

fn change(path: &Path, number: usize) -> Change {
    Change::File { path: path.into(), old: format!("old {number}"), new: "new".into(), disk: None }
}

#[test]
fn a_disk_that_takes_half_a_line_leaves_a_journal_that_is_whole() {
    // SAFETY: a plain system call; without it the first write beyond the limit would end the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(directory.path());
    std::fs::create_dir_all(roots.proc.join("sys/kernel/random")).expect("a directory");
    std::fs::write(roots.proc.join("sys/kernel/random/boot_id"), "boot\n").expect("a file");
    let path = directory.path().join("undo");
    let knob = directory.path().join("knob");
    std::fs::write(&knob, "old 0").expect("a file");

    let mut journal = Journal::open(&path, &roots).expect("a journal");
    journal.write_file(&knob, "new").expect("there is room");
    let whole = std::fs::read(&path).expect("a journal");
    let line_bytes = whole.len() as u64 / 2;
    for missing in [1, 2, line_bytes / 2, line_bytes - 1, line_bytes] {
        let room = whole.len() as u64 + line_bytes - missing;
        let outcome = with_room(Some(room), || journal.record(change(&knob, 1)));
        let error = outcome.expect_err("no room").to_string();
        assert!(error.contains("undo") && error.contains("nothing was changed"), "{error}");
        assert_eq!(std::fs::read(&path).expect("a journal"), whole, "{missing} bytes are missing");
    }
    // With room again it goes on where it was.
    let number = journal.record(change(&knob, 2)).expect("there is room");
    journal.close(number).expect("there is room");
    drop(journal);

    // A full disk keeps nobody from putting back, nor from starting. The 8 bytes are for the file that stands for one
    // of the kernel.
    let report = with_room(Some(8), || journal::revert(&path, &roots)).expect("the journal can be used");
    assert_eq!((report.reverted.len(), report.set_aside), (1, None));
    assert_eq!(std::fs::read_to_string(&knob).expect("a file"), "old 0");
    let mut journal = with_room(Some(8), || Journal::open(&path, &roots)).expect("it opens");
    with_room(Some(8), || journal.write_file(&knob, "new")).expect_err("what cannot be recorded is not done");
    assert_eq!(std::fs::read_to_string(&knob).expect("a file"), "old 0");
    journal.write_file(&knob, "new").expect("there is room again");
    drop(journal);
    journal::revert(&path, &roots).expect("the journal can be used");
    assert_eq!(std::fs::read_to_string(&knob).expect("a file"), "old 0");
    a_file_of_a_cgroup_keeps_what_could_be_recorded_of_it(&path, &roots);
}

fn a_file_of_a_cgroup_keeps_what_could_be_recorded_of_it(path: &Path, roots: &Roots) {
    let directory = roots.cgroup.join("a");
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("memory.min"), "0").expect("a file");
    let says = || std::fs::read_to_string(directory.join("memory.min")).expect("a file");
    let cgroup_id = std::fs::metadata(&directory).expect("it is there").ino();
    let place = Place { path: "a".into(), cgroup_id };
    let mut journal = Journal::open(path, roots).expect("it opens");
    let full = |journal: &mut Journal, value| {
        let refused = with_room(Some(8), || journal.write_knob(&place, "memory.min", value, roots));
        assert!(refused.expect_err("no room").to_string().contains("nothing was changed"));
    };
    full(&mut journal, "4096");
    assert_eq!((says().as_str(), journal.outstanding().len()), ("0", 0));
    journal.write_knob(&place, "memory.min", "4096", roots).expect("there is room");
    full(&mut journal, "8192");
    assert_eq!((says().as_str(), journal.outstanding().len()), ("4096", 1));
    drop(journal);
    with_room(Some(8), || journal::revert(path, roots)).expect("the journal can be used");
    assert_eq!(says(), "0");
}

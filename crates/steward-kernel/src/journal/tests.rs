//! What the undo journal promises, tried on files in a directory and on a child process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use steward_core::process::TaskId;

use super::file::{SPARE_LINES_MAX, beside};
use super::lines::{Line, SCHEMA_WITHOUT_KNOBS, encode};
use super::*;
use crate::cgroup::directory::CgroupDirectory;
use crate::cgroup::place;
use crate::cpu::scheduling;
use crate::process;
use crate::roots::Roots;

struct Place {
    directory: tempfile::TempDir,
    roots: Roots,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let place = Place { directory, roots };
        place.boot("first");
        place
    }

    fn boot(&self, name: &str) {
        let file = self.roots.proc.join("sys/kernel/random/boot_id");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        std::fs::write(file, name).expect("a file");
    }

    fn knob(&self, name: &str, value: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, value).expect("a file");
        path
    }

    fn journal_path(&self) -> PathBuf {
        self.directory.path().join("undo")
    }

    fn open(&self) -> Journal {
        Journal::open(&self.journal_path(), &self.roots).expect("the journal opens")
    }

    fn revert(&self) -> Report {
        revert(&self.journal_path(), &self.roots).expect("the journal can be used")
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}

#[test]
fn changes_are_put_back_in_reverse_order_and_only_once() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    let mut journal = place.open();
    journal.write_file(&knob, "200").expect("written");
    journal.write_file(&knob, "300").expect("written");
    assert_eq!(journal.write_file(&knob, "300").expect("nothing to do"), None);
    drop(journal);
    assert_eq!(place.revert().reverted.len(), 2);
    assert_eq!(text(&knob), "100");
    assert_eq!(place.revert(), Report::default());
}

#[test]
fn what_someone_else_has_written_since_is_left_alone() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    place.open().write_file(&knob, "200").expect("written");
    std::fs::write(&knob, "50\n").expect("someone else writes");
    let report = place.revert();
    assert_eq!(text(&knob), "50\n");
    assert!(report.left[0].contains("someone else") && report.left[0].contains("50"), "{report}");
}

#[test]
fn a_record_whose_change_was_never_made_changes_nothing() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    let change = Change::File { path: knob.clone(), old: "100".into(), new: "200".into(), disk: None };
    place.open().record(change).expect("recorded");
    assert!(place.revert().left[0].contains("as it was"));
    assert_eq!(text(&knob), "100\n");
}

#[test]
fn a_last_line_torn_anywhere_is_dropped_and_the_rest_is_put_back() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    let other = place.knob("cpu.idle", "0\n");
    let mut journal = place.open();
    journal.write_file(&knob, "200").expect("written");
    let whole = text(&place.journal_path()).len();
    let change = Change::File { path: other.clone(), old: "0".into(), new: "1".into(), disk: None };
    journal.record(change).expect("recorded");
    drop(journal);
    let content = text(&place.journal_path());
    for length in whole..content.len() - 1 {
        std::fs::write(&knob, "200").expect("a file");
        std::fs::write(place.journal_path(), &content[..length]).expect("a file");
        let report = place.revert();
        assert_eq!((report.reverted.len(), report.left.len()), (1, 0), "torn at {length}");
        assert_eq!(text(&knob), "100");
    }
}

/// A journal with five changes, the third of which was undone and closed; and the files, which say "new" or "old".
fn five_changes(place: &Place) -> (Vec<PathBuf>, Vec<u8>) {
    let mut journal = place.open();
    let knobs: Vec<PathBuf> = (0..5).map(|number| place.knob(&format!("knob-{number}"), "old\n")).collect();
    let numbers: Vec<u64> = knobs
        .iter()
        .map(|knob| journal.write_file(knob, "new").expect("written").expect("changed"))
        .collect();
    std::fs::write(&knobs[2], "old").expect("a file");
    journal.close(numbers[2]).expect("closed");
    drop(journal);
    (knobs, std::fs::read(place.journal_path()).expect("a journal"))
}

/// Puts a damaged journal in place and holds what became of it against which lines (from 0) are as they were.
fn hold_to_promise(
    place: &Place,
    knobs: &[PathBuf],
    content: &[u8],
    is_intact: impl Fn(usize) -> bool,
    is_damaged: bool,
) {
    std::fs::write(place.journal_path(), content).expect("a file");
    let report = place.revert();
    for (number, knob) in knobs.iter().enumerate() {
        // The first line is the start, and the third change was undone before.
        let wanted = if number == 2 || is_intact(number + 1) { "old" } else { "new" };
        assert_eq!(text(knob).trim(), wanted, "change {number}: {report}");
    }
    let aside = beside(&place.journal_path(), ".damaged");
    assert_eq!((report.set_aside.is_some(), aside.exists()), (is_damaged, is_damaged), "{report}");
    if is_damaged {
        assert_eq!(std::fs::read(&aside).expect("it is kept"), content);
        let sentence = report.set_aside.expect("it is said");
        assert!(sentence.contains("undo.damaged") && sentence.contains("damaged: line"), "{sentence}");
    }
    // Nothing is left to do, and the next daemon starts with a journal that is whole.
    assert_eq!(place.revert(), Report::default());
    assert!(place.open().outstanding().is_empty());
}

/// The place of each line in the content, its end included.
fn line_spans(content: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    let spans = content.split_inclusive(|byte| *byte == b'\n').map(|line| {
        start += line.len();
        start - line.len()..start
    });
    spans.collect()
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    #[test]
    fn a_changed_byte_costs_its_line_and_no_other(
        where_to in proptest::prelude::any::<proptest::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let place = Place::new();
        let (knobs, mut content) = five_changes(&place);
        let spans = line_spans(&content);
        let at = where_to.index(content.len());
        let is_end = content[at] == b'\n';
        content[at] ^= flip;
        // Without the end between them two lines are one.
        let hit = |line: usize| {
            spans[line].contains(&at) || (is_end && line > 0 && spans[line - 1].contains(&at))
        };
        hold_to_promise(&place, &knobs, &content, |line| !hit(line), true);
    }

    #[test]
    fn a_journal_that_ends_anywhere_is_put_back_as_far_as_it_goes(
        where_to in proptest::prelude::any::<proptest::sample::Index>(),
    ) {
        let place = Place::new();
        let (knobs, content) = five_changes(&place);
        let spans = line_spans(&content);
        let length = where_to.index(content.len() + 1);
        // A line that lacks only its end is whole.
        let is_intact = |line: usize| spans[line].end <= length + 1;
        let is_damaged = length > 0 && spans.iter().all(|span| span.end != length && span.end != length + 1);
        hold_to_promise(&place, &knobs, &content[..length], is_intact, is_damaged);
    }
}

#[test]
fn what_is_no_file_is_set_aside_and_nobody_waits_for_it() {
    let place = Place::new();
    let path = place.journal_path();
    let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, owner_only).expect("a FIFO");
    let report = place.revert();
    assert!(report.set_aside.as_deref().is_some_and(|sentence| sentence.contains("FIFO")), "{report}");
    let knob = place.knob("cpu.weight", "100\n");
    place.open().write_file(&knob, "200").expect("written");
    assert_eq!(place.revert().reverted.len(), 1);
}

#[test]
fn a_journal_of_the_format_without_sums_is_still_put_back() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "200\n");
    let other = place.knob("cpu.idle", "1\n");
    let made = |number: u64, path: &Path, old: &str, new: &str| {
        let change = Change::File { path: path.into(), old: old.into(), new: new.into(), disk: None };
        serde_json::to_string(&Line::Made { number, change }).expect("a line")
    };
    let lines = [
        "{\"start\":{\"schema\":1,\"boot\":\"first\"}}".to_owned(),
        made(1, &knob, "100", "200"),
        "{\"made\":".to_owned(),
        made(2, &other, "0", "1"),
    ];
    std::fs::write(place.journal_path(), lines.join("\n") + "\n").expect("a file");
    let report = place.revert();
    assert_eq!((text(&knob).as_str(), text(&other).as_str()), ("100", "0"), "{report}");
    assert!(report.set_aside.is_some_and(|sentence| sentence.contains("line 3")));
}

#[test]
fn after_a_reboot_there_is_nothing_to_put_back() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    place.open().write_file(&knob, "200").expect("written");
    place.boot("second");
    assert_eq!(place.revert(), Report::default());
    assert_eq!(text(&knob), "200");
}

#[test]
fn a_journal_in_use_can_not_be_reverted() {
    let place = Place::new();
    let _running = place.open();
    let error = revert(&place.journal_path(), &place.roots).expect_err("in use");
    assert!(matches!(error, JournalError::InUse { .. }));
}

#[test]
fn a_journal_opened_again_knows_what_is_outstanding() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "100\n");
    let mut journal = place.open();
    let first = journal.write_file(&knob, "200").expect("written").expect("changed");
    let second = journal.write_file(&knob, "300").expect("written").expect("changed");
    journal.close(second).expect("closed");
    drop(journal);
    let again = place.open();
    assert_eq!(again.outstanding().keys().copied().collect::<Vec<_>>(), vec![first]);
}

#[test]
fn a_long_history_does_not_make_a_long_file() {
    let place = Place::new();
    let mut journal = place.open();
    for _ in 0..SPARE_LINES_MAX {
        let change = Change::File { path: "/knob".into(), old: "0".into(), new: "1".into(), disk: None };
        let number = journal.record(change).expect("recorded");
        journal.close(number).expect("closed");
    }
    assert!(text(&place.journal_path()).lines().count() <= SPARE_LINES_MAX + 1);
}

#[test]
fn a_newer_format_is_refused_with_what_to_do() {
    let place = Place::new();
    let start = encode(&Line::Start { schema: 9, boot: "first".into() }, "first");
    std::fs::write(place.journal_path(), start).expect("a file");
    let error = revert(&place.journal_path(), &place.roots).expect_err("newer").to_string();
    assert!(error.contains("format 9") && error.contains("revert with the version"), "{error}");
}

/// A child that waits until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn start() -> Self {
        Waiting(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a child"))
    }

    fn id(&self) -> TaskId {
        let tid = i32::try_from(self.0.id()).expect("a pid");
        process::stat(tid, &Roots::default()).expect("it runs").id
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_scheduling_of_a_task_is_put_back_unless_it_is_another_task() {
    let child = Waiting::start();
    let roots = Roots::default();
    let place = Place::new();
    let path = place.journal_path();
    let old = scheduling::read(child.id().tid).expect("it runs");
    let new = old.with_nice(old.nice.max(0) + 4);
    let task = child.id();
    let stranger = TaskId { started_ticks: task.started_ticks - 1, ..task };
    let mut journal = Journal::open(&path, &roots).expect("the journal opens");
    journal.record(Change::Task { task, old, new }).expect("recorded");
    journal.record(Change::Task { task: stranger, old: old.with_nice(19), new }).expect("recorded");
    scheduling::write(task.tid, &new).expect("anyone may be nicer");
    drop(journal);
    let report = revert(&path, &roots).expect("the journal can be used");
    assert!(report.left[0].contains("has ended"), "{report}");
    if !report.failed.is_empty() {
        println!("skipped: putting a nice value back needs CAP_SYS_NICE");
        return;
    }
    assert_eq!(scheduling::read(task.tid).expect("it runs"), old);
}

impl Place {
    /// A cgroup with its `memory.min`.
    fn cgroup(&self, path: &str, value: &str) -> place::Place {
        std::fs::create_dir_all(self.roots.cgroup.join(path)).expect("a directory");
        std::fs::write(self.min(path), value).expect("a file");
        let cgroup_id = CgroupDirectory::open(path, &self.roots).expect("it is there").id();
        place::Place { path: path.into(), cgroup_id }
    }

    fn min(&self, path: &str) -> PathBuf {
        self.roots.cgroup.join(path).join("memory.min")
    }

    fn set(&self, journal: &mut Journal, cgroup: &place::Place, value: &str) -> Option<u64> {
        journal.write_knob(cgroup, "memory.min", value, &self.roots).expect("written")
    }
}

#[test]
fn a_knob_written_twice_has_one_record_which_keeps_what_was_there_first() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "7\n");
    let mut journal = place.open();
    let first = place.set(&mut journal, &cgroup, "100").expect("written");
    assert_eq!(place.set(&mut journal, &cgroup, "200"), Some(first));
    assert_eq!(place.set(&mut journal, &cgroup, "200"), None);
    assert_eq!(journal.outstanding().len(), 1);
    drop(journal);
    // What the first write left is nobody's any more.
    let Some(Change::Knob(knob)) = place.open().outstanding().get(&1).cloned() else { panic!("no knob") };
    assert!(knob.is_ours("200") && !knob.is_ours("100"), "{knob:?}");
    let report = place.revert();
    assert_eq!((text(&place.min("a")).as_str(), report.reverted.len()), ("7", 1), "{report}");
    assert_eq!(place.revert(), Report::default());
}

#[test]
fn a_knob_is_undone_while_the_daemon_runs_and_only_what_was_written_is() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "0\n");
    let mut journal = place.open();
    assert_eq!(journal.undo_knob(&cgroup, "memory.min", &place.roots).expect("nothing to do"), None);
    place.set(&mut journal, &cgroup, "100");
    let undone = journal.undo_knob(&cgroup, "memory.min", &place.roots).expect("undone");
    assert_eq!((undone, text(&place.min("a")).as_str()), (Some(Undone::PutBack), "0"));
    assert!(journal.outstanding().is_empty());
}

#[test]
fn a_knob_that_someone_else_has_written_since_is_left_and_is_the_old_value_of_the_next_write() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "7\n");
    place.set(&mut place.open(), &cgroup, "100");
    std::fs::write(place.min("a"), "50\n").expect("someone else writes");
    let mut journal = place.open();
    place.set(&mut journal, &cgroup, "200");
    assert_eq!(journal.outstanding().len(), 1);
    drop(journal);
    place.revert();
    assert_eq!(text(&place.min("a")), "50");
    place.set(&mut place.open(), &cgroup, "300");
    std::fs::write(place.min("a"), "60\n").expect("someone else writes");
    let report = place.revert();
    assert!(report.left[0].contains("someone else") && report.left[0].contains("60"), "{report}");
    assert_eq!(text(&place.min("a")), "60\n");
}

#[test]
fn a_knob_of_a_cgroup_that_has_gone_or_was_made_anew_is_left() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "0\n");
    let other = place.cgroup("b", "0\n");
    let mut journal = place.open();
    place.set(&mut journal, &cgroup, "100");
    place.set(&mut journal, &other, "100");
    std::fs::rename(place.roots.cgroup.join("a"), place.directory.path().join("aside")).expect("moved");
    std::fs::remove_dir_all(place.roots.cgroup.join("b")).expect("removed");
    place.cgroup("a", "100\n");
    let error = journal.write_knob(&cgroup, "memory.min", "5", &place.roots).expect_err("another one");
    assert!(matches!(&error, JournalError::Kernel(error) if error.is_absent()), "{error}");
    drop(journal);
    let report = place.revert();
    assert!(report.left[0].contains("it is gone"), "{report}");
    assert!(report.left[1].contains("another cgroup has its name"), "{report}");
    assert_eq!(text(&place.min("a")), "100\n", "it is not ours, though it says the same");
}

#[test]
fn a_crash_between_the_record_and_the_write_of_a_knob_loses_nothing() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "0\n");
    let mut journal = place.open();
    let number = place.set(&mut journal, &cgroup, "100").expect("written");
    journal.note(Line::Again { number, value: "200".into() }).expect("recorded");
    drop(journal);
    // The kernel says what the first write left, and still it is ours.
    let report = place.revert();
    assert_eq!((text(&place.min("a")).as_str(), report.reverted.len()), ("0", 1), "{report}");
    // The first write that was never made.
    let (file, old, new) = ("memory.min".into(), "0".into(), "100".into());
    let knob = Knob { cgroup: "a".into(), id: cgroup.cgroup_id, file, old, new, before: None };
    place.open().record(Change::Knob(knob)).expect("recorded");
    assert!(place.revert().left[0].contains("as it was"));
}

#[test]
fn of_a_cgroup_that_has_gone_nothing_is_left_to_put_back() {
    let place = Place::new();
    let (gone, other) = (place.cgroup("a", "0\n"), place.cgroup("b", "0\n"));
    let mut journal = place.open();
    place.set(&mut journal, &gone, "100");
    let kept = place.set(&mut journal, &other, "100").expect("written");
    journal.forget_knobs(gone.cgroup_id);
    drop(journal);
    assert_eq!(place.open().outstanding().keys().copied().collect::<Vec<_>>(), vec![kept]);
}

#[test]
fn a_damaged_line_of_a_knob_costs_that_knob_and_no_other() {
    for damaged in [1, 2] {
        let place = Place::new();
        let (cgroup, other) = (place.cgroup("a", "0\n"), place.cgroup("b", "0\n"));
        let mut journal = place.open();
        place.set(&mut journal, &cgroup, "100");
        place.set(&mut journal, &cgroup, "200");
        place.set(&mut journal, &other, "300");
        drop(journal);
        let content = text(&place.journal_path());
        let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
        lines[damaged] = lines[damaged].replace("00", "11");
        std::fs::write(place.journal_path(), lines.join("\n") + "\n").expect("a file");
        let report = place.revert();
        assert_eq!(text(&place.min("b")), "0", "{report}");
        assert!(report.set_aside.is_some_and(|sentence| sentence.contains(&format!("line {}", damaged + 1))));
        // Without its first line nobody knows it. Without the second, the next one says what the kernel shows.
        assert_eq!(text(&place.min("a")), if damaged == 1 { "200" } else { "0" });
    }
}

#[test]
fn a_knob_that_the_kernel_refuses_leaves_no_record_and_the_value_of_before() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "0\n");
    let mut journal = place.open();
    let missing = journal.write_knob(&cgroup, "memory.none", "1", &place.roots);
    assert!(missing.expect_err("no such file").to_string().contains("a/memory.none"));
    assert!(journal.outstanding().is_empty());
}

#[test]
fn a_knob_written_for_a_long_time_does_not_make_a_long_file() {
    let place = Place::new();
    let cgroup = place.cgroup("a", "0\n");
    let mut journal = place.open();
    (0..SPARE_LINES_MAX).for_each(|value| _ = place.set(&mut journal, &cgroup, &(value + 1).to_string()));
    assert!(text(&place.journal_path()).lines().count() <= SPARE_LINES_MAX + 2);
    drop(journal);
    assert_eq!(place.revert().reverted.len(), 1);
    assert_eq!(text(&place.min("a")), "0");
}

#[test]
fn a_journal_of_the_format_without_knobs_is_still_put_back() {
    let place = Place::new();
    let knob = place.knob("cpu.weight", "200\n");
    let change = Change::File { path: knob.clone(), old: "100".into(), new: "200".into(), disk: None };
    let start = Line::Start { schema: SCHEMA_WITHOUT_KNOBS, boot: "first".into() };
    let lines = encode(&start, "first") + &encode(&Line::Made { number: 1, change }, "first");
    std::fs::write(place.journal_path(), lines).expect("a file");
    let report = place.revert();
    assert_eq!((text(&knob).as_str(), report.set_aside), ("100", None));
}

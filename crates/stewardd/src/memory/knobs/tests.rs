//! Minima and maxima, written into a directory that stands in for the kernel's tree.

use std::os::unix::fs::MetadataExt;

use steward_kernel::journal;

use super::*;

struct Machine {
    directory: tempfile::TempDir,
    roots: Roots,
    place: Place,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let cgroup = roots.cgroup.join("steward.a");
        std::fs::create_dir_all(&cgroup).expect("a cgroup");
        std::fs::create_dir_all(roots.proc.join("sys/kernel/random")).expect("a directory");
        std::fs::write(roots.proc.join("sys/kernel/random/boot_id"), "boot").expect("a file");
        for (file, value) in [("memory.min", "0\n"), ("memory.max", "max\n"), ("memory.current", "1000\n")] {
            std::fs::write(cgroup.join(file), value).expect("a file");
        }
        let cgroup_id = std::fs::metadata(&cgroup).expect("it is there").ino();
        Machine { directory, roots, place: Place { path: "steward.a".into(), cgroup_id } }
    }

    fn knobs(&self) -> KernelKnobs {
        KernelKnobs::new(&self.roots, &crate::files::journal::open(self.directory.path(), &self.roots))
    }

    fn says(&self, file: &str) -> String {
        let path = self.roots.cgroup.join("steward.a").join(file);
        std::fs::read_to_string(path).expect("it is there").trim().to_owned()
    }
}

fn wanted(min_bytes: Option<u64>, max_bytes: Option<u64>) -> Told {
    Told { min_bytes, max_bytes, ..Told::default() }
}

#[test]
fn what_is_asked_for_is_written_and_what_is_no_more_asked_for_is_as_it_was() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    knobs.set(&machine.place, wanted(Some(500), Some(2000))).expect("it is there");
    assert_eq!((machine.says("memory.min"), machine.says("memory.max")), ("500".into(), "2000".into()));
    knobs.set(&machine.place, wanted(Some(700), None)).expect("it is there");
    assert_eq!((machine.says("memory.min"), machine.says("memory.max")), ("700".into(), "max".into()));
    knobs.set(&machine.place, wanted(None, None)).expect("it is there");
    assert_eq!((machine.says("memory.min"), machine.says("memory.max")), ("0".into(), "max".into()));
}

#[test]
fn after_a_kill_the_journal_puts_back_what_was_there_before_the_first_change() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    for min_bytes in [500, 700] {
        knobs.set(&machine.place, wanted(Some(min_bytes), Some(2000))).expect("it is there");
    }
    drop(knobs);
    let path = machine.directory.path().join(libsteward::UNDO_JOURNAL);
    journal::revert(&path, &machine.roots).expect("it can be read");
    assert_eq!((machine.says("memory.min"), machine.says("memory.max")), ("0".into(), "max".into()));
}

#[test]
fn who_fetches_back_what_is_taken_is_held_until_the_maximum_is_in_force() {
    let machine = Machine::new();
    let cgroup = machine.roots.cgroup.join("steward.a");
    let write = |file: &str, text: &str| std::fs::write(cgroup.join(file), text).expect("a file");
    write("memory.low", "0\n");
    write("memory.high", "5000\n");
    // What is taken is there again at once.
    write("memory.reclaim", "");
    let (knobs, told) = (machine.knobs(), wanted(None, Some(900)));
    assert_eq!(knobs.set(&machine.place, told), Ok(Progress::GoesOn));
    assert_eq!((machine.says("memory.high"), machine.says("memory.max")), ("900".into(), "max".into()));
    write("memory.current", "890\n");
    assert_eq!(knobs.set(&machine.place, told), Ok(Progress::Done));
    assert_eq!((machine.says("memory.high"), machine.says("memory.max")), ("5000".into(), "900".into()));
    // Who is held already is not held less; and what is wanted no longer holds nobody.
    write("memory.current", "1000\n");
    write("memory.high", "700\n");
    assert_eq!(knobs.set(&machine.place, wanted(None, Some(800))), Ok(Progress::GoesOn));
    assert_eq!(machine.says("memory.high"), "700");
    write("memory.high", "max\n");
    assert_eq!(knobs.set(&machine.place, wanted(None, Some(800))), Ok(Progress::GoesOn));
    assert_eq!(machine.says("memory.high"), "800");
    assert_eq!(knobs.set(&machine.place, wanted(None, None)), Ok(Progress::Done));
    assert_eq!((machine.says("memory.high"), machine.says("memory.max")), ("max".into(), "max".into()));
}

#[test]
fn who_allocates_near_a_maximum_is_slowed_and_what_is_used_more_is_taken_in_pieces() {
    const MIB: u64 = 1 << 20;
    let machine = Machine::new();
    let cgroup = machine.roots.cgroup.join("steward.a");
    let write = |file: &str, text: &str| std::fs::write(cgroup.join(file), text).expect("a file");
    let mib = |file: &str| {
        machine.says(file).parse::<u64>().map_or(machine.says(file), |bytes| (bytes / MIB).to_string())
    };
    let uses = |mib: u64| write("memory.current", &format!("{}\n", mib * MIB));
    write("memory.low", "0\n");
    write("memory.high", "max\n");
    write("memory.reclaim", "");
    uses(50);
    let told = |high_mib: u64| Told { high_bytes: Some(high_mib * MIB), ..wanted(None, Some(200 * MIB)) };
    let knobs = machine.knobs();
    assert_eq!(knobs.set(&machine.place, told(180)), Ok(Progress::Done));
    assert_eq!((mib("memory.high"), mib("memory.max")), ("180".into(), "200".into()));
    // There may be more, and it may be less again: meanwhile there is no more than is used.
    assert_eq!(knobs.set(&machine.place, told(190)), Ok(Progress::Done));
    assert_eq!(mib("memory.high"), "190");
    uses(185);
    assert_eq!(knobs.set(&machine.place, told(170)), Ok(Progress::GoesOn));
    assert_eq!(mib("memory.high"), "185");
    uses(165);
    assert_eq!(knobs.set(&machine.place, told(170)), Ok(Progress::Done));
    assert_eq!(mib("memory.high"), "170");
    // What is slowed there already is not taken from again.
    uses(172);
    assert_eq!(knobs.set(&machine.place, told(170)), Ok(Progress::Done));
    // What somebody else has set stays where it is lower, also what is written after this.
    write("memory.high", &format!("{}\n", 160 * MIB));
    uses(150);
    assert_eq!(knobs.set(&machine.place, told(175)), Ok(Progress::Done));
    assert_eq!(mib("memory.high"), "160");
    assert_eq!(knobs.set(&machine.place, wanted(None, None)), Ok(Progress::Done));
    assert_eq!((mib("memory.high"), mib("memory.max")), ("160".into(), "max".into()));
}

#[test]
fn a_maximum_below_what_is_used_and_cannot_be_taken_is_not_written() {
    let machine = Machine::new();
    // Nothing takes what is written here, so that the use stays what it is, until the tries are over.
    let reclaim = machine.roots.cgroup.join("steward.a/memory.reclaim");
    let refused = machine.knobs().set(&machine.place, wanted(None, Some(900))).expect_err("no such file");
    assert!(refused.contains("memory.reclaim"), "{refused}");
    assert_eq!(machine.says("memory.max"), "max");
    assert!(!reclaim.exists());
}

#[test]
fn another_cgroup_under_the_same_name_is_left_alone() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    let place = Place { cgroup_id: machine.place.cgroup_id + 1, ..machine.place.clone() };
    let refused = knobs.set(&place, wanted(Some(500), None)).expect_err("it is another one");
    assert!(refused.contains("is gone"), "{refused}");
    assert_eq!(machine.says("memory.min"), "0");
}

#[test]
fn of_a_cgroup_that_is_gone_nothing_stays_in_the_journal() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    let recorded = || knobs.journal.as_ref().expect("it opened").outstanding();
    knobs.set(&machine.place, wanted(Some(500), Some(2000))).expect("it is there");
    assert_eq!(recorded(), 2);
    // Another one is there by now, so that the number of the first is not given out again.
    std::fs::rename(machine.roots.cgroup.join("steward.a"), machine.directory.path().join("gone"))
        .expect("moved");
    std::fs::create_dir(machine.roots.cgroup.join("steward.a")).expect("made anew");
    let refused = knobs.set(&machine.place, Told::default()).expect_err("it is another one");
    assert!(refused.contains("is gone") && refused.contains("steward.a"), "{refused}");
    assert_eq!(recorded(), 0);
}

#[test]
fn what_cannot_be_put_back_stays_in_the_journal_until_it_can() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    knobs.set(&machine.place, wanted(Some(500), Some(2000))).expect("it is there");
    let min = machine.roots.cgroup.join("steward.a/memory.min");
    std::fs::rename(&min, machine.directory.path().join("aside")).expect("moved");
    std::fs::create_dir(&min).expect("what cannot be read");
    let refused = knobs.set(&machine.place, Told::default()).expect_err("it cannot be read");
    assert!(refused.contains("memory.min"), "{refused}");
    drop(knobs);
    std::fs::remove_dir(&min).expect("removed");
    std::fs::rename(machine.directory.path().join("aside"), &min).expect("back");
    let path = machine.directory.path().join(libsteward::UNDO_JOURNAL);
    journal::revert(&path, &machine.roots).expect("it can be read");
    assert_eq!((machine.says("memory.min"), machine.says("memory.max")), ("0".into(), "max".into()));
}

#[test]
fn what_someone_else_has_written_is_what_is_put_back() {
    let machine = Machine::new();
    let knobs = machine.knobs();
    knobs.set(&machine.place, wanted(Some(500), None)).expect("it is there");
    std::fs::write(machine.roots.cgroup.join("steward.a/memory.min"), "600\n").expect("someone else writes");
    knobs.set(&machine.place, wanted(Some(700), None)).expect("it is there");
    knobs.set(&machine.place, Told::default()).expect("it is there");
    assert_eq!(machine.says("memory.min"), "600");
}

#[test]
fn without_a_journal_nothing_is_written() {
    let machine = Machine::new();
    let knobs = KernelKnobs::new(&machine.roots, &Err("there is no journal".into()));
    let refused = knobs.set(&machine.place, wanted(Some(500), None)).expect_err("it could not be put back");
    assert_eq!((refused.as_str(), machine.says("memory.min").as_str()), ("there is no journal", "0"));
}

#[test]
fn what_is_passed_on_through_somebody_elses_cgroup_never_lowers_what_that_has_itself() {
    let machine = Machine::new();
    let passed_on = |bytes| Told { is_passed_on: true, ..wanted(Some(bytes), None) };
    let cgroup = machine.roots.cgroup.join("steward.a");
    for (file, value) in [("memory.min", "600"), ("memory.low", "0"), ("memory.high", "max")] {
        std::fs::write(cgroup.join(file), value).expect("a file");
    }
    let knobs = machine.knobs();
    for (needed, has) in [(500, "600"), (700, "700"), (650, "650"), (400, "600"), (900, "900")] {
        knobs.set(&machine.place, passed_on(needed)).expect("it is there");
        assert_eq!(machine.says("memory.min"), has, "{needed}");
    }
    // Its manager writes its own again: what is needed is written again, too.
    std::fs::write(cgroup.join("memory.min"), "600").expect("a file");
    knobs.set(&machine.place, passed_on(900)).expect("it is there");
    assert_eq!(machine.says("memory.min"), "900");
    knobs.set(&machine.place, Told::default()).expect("it is there");
    assert_eq!(machine.says("memory.min"), "600");
}

//! The pool on a directory that stands in for the hierarchy. A FIFO in place of `memory.reclaim` holds a thread up as
//! the kernel does, until its other end is opened.

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

struct Place {
    keep: tempfile::TempDir,
    roots: Roots,
    pool: ReclaimPool,
}

fn place(waiting_max: usize) -> Place {
    let keep = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(keep.path());
    std::fs::create_dir_all(roots.cgroup.join("a")).expect("a directory");
    let options = PoolOptions { threads: 1, waiting_max, nice: Some(0) };
    let pool = ReclaimPool::start(options, &roots).expect("threads");
    Place { keep, roots, pool }
}

impl Place {
    fn job(&self, bytes: u64) -> ReclaimJob {
        let id = CgroupDirectory::open("a", &self.roots).expect("it is there").id();
        ReclaimJob { cgroup: "a".into(), id, bytes, swappiness: None, idle_ns: None }
    }

    fn file(&self) -> std::path::PathBuf {
        self.keep.path().join("sys/fs/cgroup/a/memory.reclaim")
    }

    /// The outcome of the one job, once the pool has rung.
    fn outcome(&self) -> ReclaimOutcome {
        poll(&mut [PollFd::new(&self.pool, PollFlags::IN)], None).expect("woken");
        let mut outcomes = self.pool.take_outcomes();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0)
    }
}

#[test]
fn memory_is_taken_in_pieces_of_at_most_a_mebibyte() {
    let place = place(4);
    std::fs::write(place.file(), "").expect("a file");
    let job = ReclaimJob { swappiness: Some(60), ..place.job((5 << 20) / 2) };
    let number = place.pool.give(job.clone()).expect("there is room");
    let outcome = place.outcome();
    assert!(matches!(outcome.end, End::Done), "{outcome:?}");
    let (taken, pieces) = ((outcome.number, outcome.taken_bytes), outcome.pieces);
    assert_eq!((taken, pieces), ((number, job.bytes), 3));
    let written = std::fs::read_to_string(place.file()).expect("a file");
    assert_eq!(written, "1048576 swappiness=601048576 swappiness=60524288 swappiness=60");
    assert_eq!(place.pool.unfinished(), 0);
}

#[test]
fn a_cgroup_that_has_gone_or_has_another_in_its_place_gives_nothing() {
    let place = place(4);
    std::fs::write(place.file(), "").expect("a file");
    let job = place.job(1);
    place.pool.give(ReclaimJob { id: job.id + 1, ..job.clone() }).expect("there is room");
    assert!(matches!(place.outcome().end, End::Gone));
    place.pool.give(ReclaimJob { cgroup: "b".into(), ..job }).expect("there is room");
    assert!(matches!(place.outcome().end, End::Gone));
    assert_eq!(std::fs::read_to_string(place.file()).expect("a file"), "");
}

#[test]
fn a_kernel_without_the_file_is_an_error_with_the_path_and_the_version() {
    let place = place(4);
    place.pool.give(place.job(1)).expect("there is room");
    let End::Failed(error) = place.outcome().end else { panic!("no failure") };
    let sentence = error.to_string();
    assert!(sentence.contains("a/memory.reclaim") && sentence.contains("5.19"), "{sentence}");
}

#[test]
fn what_waits_is_cancelled_at_once_what_is_in_hand_after_its_piece_and_the_queue_is_bounded() {
    let place = place(1);
    let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, place.file(), owner_only).expect("a FIFO");
    let in_hand = place.pool.give(place.job(8 << 20)).expect("there is room");
    // The thread has taken it when there is room for another.
    let waiting = loop {
        match place.pool.give(place.job(1)) {
            Ok(number) => break number,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert!(place.pool.give(place.job(2)).is_err(), "one may wait");
    place.pool.cancel(waiting);
    let outcome = place.outcome();
    assert!(outcome.number == waiting && matches!(outcome.end, End::Cancelled), "{outcome:?}");
    place.pool.cancel(in_hand);
    place.pool.cancel(99);
    let _reader = File::open(place.file()).expect("the thread goes on");
    let outcome = place.outcome();
    assert!(outcome.number == in_hand && matches!(outcome.end, End::Cancelled), "{outcome:?}");
    assert_eq!(outcome.pieces, 0);
}

#[test]
fn dropping_the_pool_gives_up_what_waits() {
    let place = place(4);
    std::fs::write(place.file(), "").expect("a file");
    (0..4).for_each(|_| _ = place.pool.give(place.job(u64::MAX)));
    drop(place.pool);
    let _ = std::fs::read(place.keep.path().join("sys/fs/cgroup/a/memory.reclaim")).expect("a file");
}

/// A hierarchy in which the cgroup `a` has so many MiB and page ages of three generations, of which the oldest of 1 MiB
/// was idle for an hour.
fn with_ages(place: &Place) -> std::path::PathBuf {
    std::fs::write(place.keep.path().join("sys/fs/cgroup/a/memory.current"), "8388608\n").expect("a file");
    std::fs::create_dir_all(place.roots.proc.join("")).expect("a directory");
    for name in ["meminfo", "vmstat"] {
        let text = std::fs::read(std::path::Path::new("/proc").join(name)).expect("every Linux has it");
        std::fs::write(place.roots.proc.join(name), text).expect("a file");
    }
    let ages = place.roots.sys.join("kernel/debug/lru_gen");
    std::fs::create_dir_all(ages.parent().expect("a parent")).expect("a directory");
    let id = place.job(1).id;
    let listed = format!(
        "memcg 1 /\n node 0\nmemcg {id} /a\n node 0\n 5 9000000 128 128\n 6 4000000 9 9\n 7 10 5 5\n"
    );
    std::fs::write(&ages, listed).expect("a file");
    ages
}

#[test]
fn what_is_to_be_idle_is_taken_by_its_generations_and_never_with_memory_reclaim() {
    let place = place(4);
    std::fs::write(place.file(), "").expect("a file");
    let ages = with_ages(&place);
    let job = ReclaimJob { idle_ns: Some(3_600_000_000_000), ..place.job(4 << 20) };
    place.pool.give(ReclaimJob { idle_ns: Some(u64::MAX), ..job.clone() }).expect("there is room");
    assert!(matches!(place.outcome().end, End::NothingToBeHad), "nothing is that old");
    place.pool.give(job.clone()).expect("there is room");
    // Nothing is charged less afterwards in this directory, so all of it was in use after all.
    assert!(matches!(place.outcome().end, End::NothingToBeHad));
    let written = std::fs::read_to_string(&ages).expect("a file");
    assert!(written.starts_with(&format!("- {} 0 5 ", job.id)), "{written}");
    assert!(written.contains(" 256"), "no more than there is: {written}");
    assert_eq!(std::fs::read_to_string(place.file()).expect("a file"), "");
}

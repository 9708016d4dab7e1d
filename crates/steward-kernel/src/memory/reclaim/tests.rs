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
        ReclaimJob { cgroup: "a".into(), id, bytes, swappiness: None }
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

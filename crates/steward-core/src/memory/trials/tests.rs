//! What is offered of a domain, and when.

use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const PERIOD_NS: u64 = 60 * SECOND;

/// A domain that is looked at four times a second.
struct Domain {
    trials: Trials,
    now_ns: u64,
    signs: Signs,
}

impl Domain {
    fn of(mib: u64) -> Self {
        let signs = Signs { period_ns: PERIOD_NS, charged_bytes: mib * MIB, ..Signs::default() };
        let mut domain = Domain { trials: Trials::default(), now_ns: 0, signs };
        domain.look();
        domain
    }

    fn look(&mut self) -> u64 {
        self.trials.see(self.now_ns, 7, self.signs)
    }

    /// What is offered when something is, and when that was: within so many periods.
    fn next_offer(&mut self, periods: u64) -> Option<(u64, u64)> {
        let until_ns = self.now_ns + periods * PERIOD_NS;
        while self.now_ns < until_ns {
            self.now_ns += SECOND / 4;
            let bytes = self.look();
            if bytes > 0 {
                return Some((self.now_ns, bytes));
            }
        }
        None
    }

    /// All that is offered is taken.
    fn take(&mut self) -> u64 {
        let bytes = self.look();
        self.trials.ask(self.now_ns, 7, bytes);
        self.signs.charged_bytes -= bytes;
        assert_eq!(self.look(), 0, "it was taken");
        bytes
    }

    /// So much comes back, at this cost.
    fn fetch(&mut self, bytes: u64, page_ns: u64) {
        self.signs.refaulted_bytes += bytes;
        self.signs.charged_bytes += bytes;
        self.signs.disk_ns += bytes / PAGE_BYTES * page_ns;
        self.look();
    }
}

#[test]
fn nothing_is_offered_before_a_period_without_refaults_has_passed() {
    let mut domain = Domain::of(400);
    domain.now_ns = 30 * SECOND;
    domain.fetch(MIB, 100_000);
    let (at_ns, bytes) = domain.next_offer(2).expect("a period after that");
    assert_eq!(at_ns, 30 * SECOND + PERIOD_NS);
    // What people notice, at what a page cost: first 200 us, and half of that at least.
    assert_eq!(bytes, 50_000 * 1000 / 100_000 * PAGE_BYTES / PIECE_MIN_BYTES * PIECE_MIN_BYTES);
}

#[test]
fn who_has_files_read_back_cheaply_is_not_offered_more_of_for_that() {
    let mut domain = Domain::of(4000);
    // Others were charged for them, and have had them taken from themselves: 32 pages are read at a time.
    for second in 1..20 {
        domain.now_ns = second * SECOND;
        domain.signs.refaulted_file_bytes += MIB;
        domain.fetch(MIB, 3_000);
    }
    let (_, bytes) = domain.next_offer(3).expect("a period after that");
    assert_eq!(bytes, 3 * PIECE_MIN_BYTES, "as at 200 us, which nothing of its own has disproved");
    // That a file costs more is believed.
    domain.take();
    domain.signs.refaulted_file_bytes += MIB;
    domain.fetch(MIB, 10 * MS);
    assert_eq!(domain.next_offer(500), None);
}

#[test]
fn what_was_taken_is_watched_for_a_whole_period_before_more_is_offered() {
    let mut domain = Domain::of(400);
    domain.next_offer(2).expect("after a period");
    let mut lost_bytes = 0;
    for _ in 0..10 {
        lost_bytes += domain.take();
        let taken_ns = domain.now_ns;
        let (at_ns, _) = domain.next_offer(2).expect("nothing came back");
        assert!(at_ns - taken_ns >= PERIOD_NS, "{}", at_ns - taken_ns);
    }
    assert!(lost_bytes >= 7 * MIB, "it shrinks: {lost_bytes}");
}

#[test]
fn what_comes_back_ends_the_offer_and_each_time_the_next_one_is_twice_as_far() {
    let mut domain = Domain::of(400);
    let mut waits = Vec::new();
    domain.next_offer(2).expect("after a period");
    for _ in 0..7 {
        let bytes = domain.take();
        domain.fetch(bytes, 100_000);
        assert_eq!(domain.look(), 0);
        let begun_ns = domain.now_ns;
        waits.push((domain.next_offer(40).expect("in the end").0 - begun_ns) / PERIOD_NS);
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 32, 32]);
    assert_eq!(domain.signs.charged_bytes, 400 * MIB, "all of it is back");
}

#[test]
fn who_stands_still_for_want_of_memory_is_offered_nothing() {
    let mut domain = Domain::of(400);
    domain.next_offer(2).expect("after a period");
    domain.signs.stalled_ns += 11 * MS;
    assert_eq!(domain.look(), 0);
    assert!(domain.next_offer(2).is_none_or(|(at_ns, _)| at_ns >= 3 * PERIOD_NS));
}

#[test]
fn on_a_disk_that_turns_out_to_be_slow_nothing_is_tried_again() {
    let mut domain = Domain::of(400);
    domain.next_offer(2).expect("after a period");
    let bytes = domain.take();
    domain.fetch(bytes, 10 * MS);
    assert_eq!(domain.next_offer(500), None);
}

#[test]
fn a_small_domain_and_one_that_grows_meanwhile_lose_no_more_than_was_offered() {
    assert_eq!(Domain::of(3).next_offer(10), None, "a sixteenth is less than can be taken");
    let mut domain = Domain::of(64);
    let (_, bytes) = domain.next_offer(2).expect("after a period");
    domain.signs.charged_bytes += 30 * MIB;
    assert_eq!(domain.look(), bytes, "what it grows by is used");
    domain.trials.ask(domain.now_ns, 7, bytes / 3);
    assert_eq!(domain.trials.offered_bytes(7), bytes - bytes / 3, "also before the next look");
    assert_eq!(domain.look(), bytes - bytes / 3);
    domain.trials.ask(domain.now_ns, 7, bytes);
    assert_eq!(domain.look(), 0);
    domain.trials.ask(domain.now_ns, 8, bytes);
}

#[test]
fn of_one_that_has_become_small_less_is_offered() {
    let mut domain = Domain::of(400);
    assert!(domain.next_offer(2).is_some());
    domain.signs.charged_bytes = 5 * MIB;
    assert_eq!(domain.look(), PIECE_MIN_BYTES);
    domain.signs.charged_bytes = MIB;
    assert_eq!(domain.look(), 0);
}

#[test]
fn who_has_gone_is_forgotten_and_who_comes_under_its_id_begins_anew() {
    let mut domain = Domain::of(400);
    domain.next_offer(2).expect("after a period");
    domain.trials.retain(|id| id != 7);
    assert_eq!(domain.look(), 0);
    let begun_ns = domain.now_ns;
    assert_eq!(domain.next_offer(2).expect("after a period").0, begun_ns + PERIOD_NS);
}

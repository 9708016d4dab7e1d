//! Holding back, case by case and as properties over simulated domains that take memory.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MS;

fn reserve(free_mib: u64) -> Reserve {
    Reserve::above(free_mib * MIB, 64 * MIB, 16 * MIB)
}

fn taker(id: u64, charged_bytes: u64) -> Taker {
    Taker { id, charged_bytes, taken_bytes: 0, being_taken_bytes: 0, dirty_bytes: None, may_be_held: true }
}

/// With 40 MB/s measured.
fn measured() -> Bumps {
    let mut bumps = Bumps::default();
    bumps.took(40 * MIB, SECOND_NS);
    bumps
}

#[test]
fn whoever_grew_most_is_held_as_soon_as_half_of_the_reserve_is_gone_and_goes_on_when_it_is_whole() {
    let mut bumps = measured();
    bumps.see(0, &[taker(1, 0), taker(2, 5 * MIB)]);
    let grown = [taker(1, 50 * MIB), taker(2, 5 * MIB)];
    assert!(!bumps.is_due(MS, &reserve(72)) && bumps.is_due(MS, &reserve(71)));
    let held = Bump { id: 1, for_ns: HOLD_MAX_NS, bytes: 50 * MIB, why: Why::Takes };
    assert_eq!(bumps.decide(MS, &reserve(71), &grown), [held]);
    assert_eq!(bumps.decide(2 * MS, &reserve(60), &grown), [], "it is held");
    assert_eq!(bumps.decide(3 * MS, &reserve(79), &grown), [], "the reserve is not whole");
    assert!(bumps.is_due(4 * MS, &reserve(80)));
    let let_go = Bump { id: 1, for_ns: 0, bytes: 0, why: Why::Takes };
    assert_eq!(bumps.decide(4 * MS, &reserve(80), &grown), [let_go]);
    assert!(!bumps.is_due(5 * MS, &reserve(80)));
    // What it took is paid.
    let more = [taker(1, 51 * MIB), taker(2, 5 * MIB)];
    assert_eq!(bumps.decide(6 * MS, &reserve(71), &more), []);
}

#[test]
fn who_moves_on_to_a_new_cgroup_took_all_that_the_new_one_has() {
    let mut bumps = measured();
    bumps.see(0, &[taker(5, 200 * MIB)]);
    let bumped = bumps.decide(MS, &reserve(71), &[taker(5, 200 * MIB), taker(6, 8 * MIB)]);
    assert_eq!(bumped.iter().map(|bump| (bump.id, bump.bytes)).collect::<Vec<_>>(), [(6, 8 * MIB)]);
    // An older one that was only not looked at before has taken nothing meanwhile.
    let all = [taker(4, 90 * MIB), taker(5, 200 * MIB), taker(6, 8 * MIB)];
    assert_eq!(bumps.decide(2 * MS, &reserve(71), &all), []);
}

#[test]
fn a_budget_is_256_pages_and_its_time_is_5_ms_a_page_until_something_was_measured() {
    let mut bumps = Bumps::default();
    assert_eq!(bumps.rate_bytes_per_s(), 256 * 4096 * 1000 / (256 * 5));
    bumps.see(0, &[taker(1, 0)]);
    assert_eq!(bumps.decide(MS, &reserve(71), &[taker(1, BUDGET_BYTES)]), []);
    let bumped = bumps.decide(2 * MS, &reserve(71), &[taker(1, 2 * BUDGET_BYTES)]);
    assert_eq!(bumped.iter().map(|bump| bump.for_ns).collect::<Vec<_>>(), [HOLD_MAX_NS]);
    // At 40 MB/s a budget is full again after 25 ms.
    let mut bumps = measured();
    bumps.see(0, &[taker(1, 0)]);
    let bumped = bumps.decide(0, &reserve(71), &[taker(1, BUDGET_BYTES + 1)]);
    assert_eq!(bumped.iter().map(|bump| bump.for_ns / MS).collect::<Vec<_>>(), [25]);
}

#[test]
fn those_who_take_share_the_rate() {
    let mut bumps = measured();
    let none: Vec<Taker> = (1..=4).map(|id| taker(id, 0)).collect();
    bumps.see(0, &none);
    let all: Vec<Taker> = (1..=4).map(|id| taker(id, BUDGET_BYTES / 2 + 1)).collect();
    let held = |free_mib, bumps: &mut Bumps| {
        bumps.decide(0, &reserve(free_mib), &all).iter().map(|bump| bump.for_ns / MS).collect::<Vec<_>>()
    };
    assert_eq!(held(71, &mut bumps.clone()), [0; 0]);
    assert_eq!(
        held(67, &mut bumps),
        [100; 4],
        "with hardly anything left, a quarter of the budget at half the rate"
    );
}

#[test]
fn what_was_taken_from_one_that_stays_as_large_counts_as_taken_by_it() {
    let mut bumps = measured();
    bumps.see(0, &[taker(1, 100 * MIB)]);
    let thrashes = Taker { taken_bytes: 3 * MIB, ..taker(1, 100 * MIB) };
    assert_eq!(bumps.decide(MS, &reserve(70), &[thrashes])[0].bytes, 3 * MIB);
}

#[test]
fn one_that_stands_still_while_memory_is_taken_from_it_in_pieces_is_not_held() {
    let mut bumps = measured();
    bumps.see(0, &[taker(1, 100 * MIB)]);
    let mut now_ns = 0;
    // Looks fall into the middle of pieces: what has gone is counted as taken only when the piece is done.
    for piece in 0..20 {
        for quarter in 0..4 {
            now_ns += 5 * MS;
            let gone_bytes = piece * MIB + quarter * MIB / 4;
            let in_the_middle = Taker {
                taken_bytes: piece * MIB,
                being_taken_bytes: MIB,
                ..taker(1, 100 * MIB - gone_bytes)
            };
            assert_eq!(bumps.decide(now_ns, &reserve(60), &[in_the_middle]), [], "{piece} {quarter}");
        }
    }
    let growing = Taker { taken_bytes: 20 * MIB, ..taker(1, 83 * MIB) };
    assert_eq!(bumps.decide(now_ns + MS, &reserve(60), &[growing])[0].bytes, 3 * MIB, "and what it took is");
}

#[test]
fn who_changes_files_faster_than_they_are_written_back_is_held_while_hardly_anything_is_left() {
    let mut bumps = measured();
    let writer = |dirty_mib| [Taker { dirty_bytes: Some(dirty_mib * MIB), ..taker(1, 100 * MIB) }];
    let mut decide = |at_ms, free_mib, takers: &[Taker]| {
        bumps.decide(at_ms * MS, &reserve(free_mib), takers).iter().map(|bump| bump.why).collect::<Vec<_>>()
    };
    assert_eq!(decide(0, 60, &writer(30)), [], "it is seen for the first time");
    assert_eq!(decide(100, 70, &writer(30)), [], "there is enough still");
    assert_eq!(decide(200, 60, &writer(29)), [], "it becomes less");
    assert_eq!(decide(300, 60, &[taker(1, 100 * MIB)]), [], "nobody looked");
    assert_eq!(decide(400, 60, &writer(29)), [Why::Dirties]);
    assert_eq!(decide(450, 60, &writer(29)), [], "it is held");
    assert_eq!(decide(600, 60, &writer(1)), []);
    assert_eq!(decide(700, 60, &writer(1)), [], "so little is in nobody's way");
}

#[test]
fn one_whose_changed_pages_nobody_writes_back_goes_on_all_the_same() {
    let mut bumps = measured();
    let stays = [Taker { dirty_bytes: Some(3 * MIB), ..taker(1, 100 * MIB) }];
    let held_ns: u64 = (0..300)
        .flat_map(|look| bumps.decide(look * 100 * MS, &reserve(60), &stays))
        .map(|bump| bump.for_ns)
        .sum();
    assert!((10_000 * MS..=23_000 * MS).contains(&held_ns), "held {} ms of 30 s", held_ns / MS);
}

#[test]
fn what_is_free_is_looked_at_the_sooner_the_faster_it_goes() {
    let mut bumps = Bumps::default();
    let mut check_ms = |at_ms, free_mib| bumps.check_ns(at_ms * MS, &reserve(free_mib)) / MS;
    assert_eq!(check_ms(0, 1000), 20, "nothing is known yet");
    assert_eq!(check_ms(20, 900), 20);
    assert_eq!(check_ms(40, 122), 1, "it goes within 1.3 ms at this speed");
    assert_eq!(check_ms(50, 112), 20);
    assert_eq!(check_ms(60, 92), 5);
    assert_eq!(check_ms(61, 92), 20);
    assert_eq!(check_ms(81, 79), 5);
    assert_eq!(check_ms(82, 76), 1, "also while some of the reserve is gone");
    assert_eq!(check_ms(83, 60), 5, "it is low");
}

/// A machine whose memory is taken back at a rate, and domains that take it at a speed each while they run.
struct Machine {
    bumps: Bumps,
    rate_bytes_per_s: u64,
    free_bytes: u64,
    /// By domain: what it has, how fast it takes, until when it is held, what it has taken while it had to share.
    domains: Vec<(Taker, u64, u64, u64)>,
    now_ns: u64,
}

const STEP_NS: u64 = 5 * MS;

impl Machine {
    /// The rate is what was measured, in MiB/s.
    fn new(rate_mib: u64, speeds: &[(u64, bool)]) -> Self {
        let domain = |(id, (speed, may_be_held)): (usize, &(u64, bool))| {
            (Taker { may_be_held: *may_be_held, ..taker(id as u64, 0) }, *speed, 0, 0)
        };
        let domains = speeds.iter().enumerate().map(domain).collect();
        let mut bumps = Bumps::default();
        bumps.took(rate_mib * MIB, SECOND_NS);
        Machine { bumps, rate_bytes_per_s: rate_mib * MIB, free_bytes: 71 * MIB, domains, now_ns: 0 }
    }

    /// One look; then everybody who is not held takes for a while.
    fn step(&mut self) -> Vec<Bump> {
        let takers: Vec<Taker> = self.domains.iter().map(|domain| domain.0).collect();
        let seen = Reserve { free_bytes: self.free_bytes, ..reserve(0) };
        let bumps = self.bumps.decide(self.now_ns, &seen, &takers);
        for bump in &bumps {
            self.domains[bump.id as usize].2 = self.now_ns + bump.for_ns;
        }
        for (taker, speed, held_until_ns, took_bytes) in &mut self.domains {
            let runs_ns = STEP_NS - held_until_ns.saturating_sub(self.now_ns).min(STEP_NS);
            let bytes = bytes_in(runs_ns, *speed).min(self.free_bytes);
            taker.charged_bytes += bytes;
            *took_bytes += bytes;
            self.free_bytes -= bytes;
        }
        self.now_ns += STEP_NS;
        self.free_bytes = (self.free_bytes + bytes_in(STEP_NS, self.rate_bytes_per_s)).min(80 * MIB);
        bumps
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn only_who_may_be_and_took_something_is_held_and_never_for_longer_than_the_bound_without_running_in_between(
        free_mib in vec_of(40_u64..90),
        growth in prop::collection::vec(prop::collection::vec((0_u64..3 * MIB, 0_u64..2 * MIB, prop::option::of(0..9 * MIB)), 5), 60),
        may_be_held in prop::collection::vec(any::<bool>(), 5),
        steps_ns in vec_of(1_u64..60 * MS),
    ) {
        let mut bumps = measured();
        let mut takers: Vec<Taker> =
            may_be_held.iter().zip(0..).map(|(may, id)| Taker { may_be_held: *may, ..taker(id, 0) }).collect();
        let (mut now_ns, mut held_until_ns) = (0, [0_u64; 5]);
        bumps.see(0, &takers);
        for ((free_mib, step_ns), growth) in free_mib.iter().zip(&steps_ns).zip(&growth) {
            now_ns += step_ns;
            for (taker, (grows, given_back, dirty)) in takers.iter_mut().zip(growth) {
                taker.charged_bytes = (taker.charged_bytes + grows).saturating_sub(*given_back);
                taker.dirty_bytes = *dirty;
            }
            let before: Vec<Account> = takers.iter().map(|taker| bumps.accounts[&taker.id]).collect();
            for bump in bumps.decide(now_ns, &reserve(*free_mib), &takers) {
                let (place, taker) = (bump.id as usize, &takers[bump.id as usize]);
                if bump.for_ns == 0 {
                    prop_assert!(held_until_ns[place] > now_ns && *free_mib >= 80);
                    held_until_ns[place] = now_ns;
                    continue;
                }
                prop_assert!(taker.may_be_held);
                prop_assert!(*free_mib < 72);
                prop_assert!((HOLD_MIN_NS..=HOLD_MAX_NS).contains(&bump.for_ns));
                prop_assert!(held_until_ns[place] <= now_ns, "it was not held already");
                match bump.why {
                    Why::Takes => prop_assert!(taker.charged_bytes > before[place].had_bytes),
                    Why::Dirties => {
                        prop_assert!(before[place].dirty_bytes.is_some() && taker.dirty_bytes >= before[place].dirty_bytes);
                        prop_assert!(*free_mib < 68);
                    }
                }
                held_until_ns[place] = now_ns + bump.for_ns;
            }
        }
    }

    #[test]
    fn together_they_take_no_more_than_there_can_be_and_each_goes_on(
        speeds_mib in prop::collection::vec(1_u64..400, 1..5),
        rate_mib in 30_u64..80,
    ) {
        // What all take between two looks can be taken while somebody is held for as long as may be.
        let most = rate_mib * HOLD_MAX_NS / STEP_NS / speeds_mib.len() as u64;
        let speeds_mib: Vec<u64> = speeds_mib.iter().map(|speed| (*speed).min(most)).collect();
        let speeds: Vec<(u64, bool)> = speeds_mib.iter().map(|speed| (speed * MIB, true)).collect();
        let mut machine = Machine::new(rate_mib, &speeds);
        for _ in 0..2000 {
            machine.step();
            // Below the watermark the kernel has as much again before anybody has to take memory from others.
            prop_assert!(machine.free_bytes >= 52 * MIB, "{} left", machine.free_bytes / MIB);
        }
        let least = machine.domains.iter().map(|domain| domain.3).min().unwrap_or(0);
        let wanted = speeds_mib.iter().min().unwrap_or(&0) * MIB * 10;
        let fair = rate_mib * MIB * 10 / speeds.len() as u64;
        prop_assert!(least >= wanted.min(fair) / 4, "the slowest took {} MiB", least / MIB);
    }

    #[test]
    fn nothing_of_what_can_be_taken_is_left_over_while_everybody_wants_more(rate_mib in 30_u64..80) {
        let mut machine = Machine::new(rate_mib, &[(400 * MIB, true), (300 * MIB, true), (200 * MIB, true)]);
        for _ in 0..2000 {
            machine.step();
        }
        let took: u64 = machine.domains.iter().map(|domain| domain.3).sum();
        prop_assert!(took >= rate_mib * MIB * 9, "{} MiB of {}", took / MIB, rate_mib * 10);
    }

    #[test]
    fn who_may_not_be_held_takes_what_it_wants(speed_mib in 1_u64..30) {
        let mut machine = Machine::new(40, &[(speed_mib * MIB, false), (400 * MIB, true)]);
        for _ in 0..1000 {
            let bumps = machine.step();
            prop_assert!(bumps.iter().all(|bump| bump.id == 1));
        }
        prop_assert_eq!(machine.domains[0].3, 1000 * bytes_in(STEP_NS, speed_mib * MIB));
    }
}

fn vec_of(range: std::ops::Range<u64>) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(range, 60)
}

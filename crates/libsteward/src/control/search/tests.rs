//! The search, held to what the paper's section 5.1 says of it.

use super::*;

const TURN_NS: u64 = 100_000_000;

/// A machine on which everything up to `best` is too low, and everything above it too high.
struct Machine {
    search: Search,
    best: f64,
    now_ns: u64,
    tried: Vec<i64>,
}

impl Machine {
    fn new(highest: i64, start: i64, best: f64) -> Self {
        let settings = Settings { lowest: 0, highest, ..Settings::default() };
        Machine { search: Search::new(settings, start), best, now_ns: 0, tried: vec![start] }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now_ns += TURN_NS;
            let setting = self.search.setting() as f64;
            let verdict = if setting < self.best { Verdict::TooLow } else { Verdict::TooHigh };
            let seen = Seen { verdict, cost: (setting - self.best).abs() };
            self.tried.extend(self.search.observe(self.now_ns, seen));
        }
    }
}

#[test]
fn the_step_doubles_in_one_direction_and_halves_at_turns_until_neighbours_remain() {
    let mut machine = Machine::new(1000, 0, 20.4);
    machine.turns(12);
    assert_eq!(machine.tried[..11], [0, 1, 3, 7, 15, 31, 23, 19, 21, 20, 21]);
    assert_eq!((machine.search.held(), machine.search.phase()), (20, Phase::Settled));
}

#[test]
fn downwards_it_searches_as_upwards() {
    let mut machine = Machine::new(1000, 100, 79.7);
    machine.turns(12);
    assert_eq!(machine.tried[..7], [100, 99, 97, 93, 85, 69, 77]);
    assert_eq!(machine.search.held(), 80);
}

#[test]
fn it_goes_where_the_right_setting_should_be_and_finds_it_though_that_was_a_mistake() {
    let settings = Settings { lowest: 0, highest: 1000, ..Settings::default() };
    let way = |start: i64, toward: i64| {
        let mut search = Search::new(settings, start);
        let mut tried = vec![start];
        for turn in 1..=12 {
            let verdict = if search.setting() <= 20 { Verdict::TooLow } else { Verdict::TooHigh };
            tried.extend(search.observe_toward(turn * TURN_NS, Seen { verdict, cost: 1.0 }, toward));
        }
        tried
    };
    assert_eq!(way(0, 21)[..4], [0, 21, 10, 15]);
    assert_eq!(way(100, 25)[..4], [100, 25, 23, 19]);
    // Beyond the bounds, behind, or too little: the search does not depend on it.
    assert_eq!(way(0, 5_000)[..3], [0, 1000, 500]);
    assert_eq!(way(0, -5)[..6], [0, 1, 3, 7, 15, 31]);
    assert_eq!(way(3, 3)[..6], [3, 4, 6, 10, 18, 34]);
}

#[test]
fn of_two_neighbours_the_better_one_is_kept_and_the_other_looked_at_ever_more_rarely() {
    let mut machine = Machine::new(9, 4, 4.2);
    machine.turns(60);
    assert_eq!(machine.search.held(), 4);
    let looks = machine.tried.iter().filter(|setting| **setting == 5).count();
    // Settled within 2 turns; then after 1, 2, 4, 8, 10, 10, ... turns, each look taking one.
    assert!((6..=9).contains(&looks), "{looks} looks: {:?}", machine.tried);
}

#[test]
fn the_time_between_two_looks_is_bounded_for_each_candidate_by_itself() {
    let settings =
        Settings { recheck_lower_ns: 40 * TURN_NS, recheck_higher_ns: 2 * TURN_NS, ..Settings::default() };
    for (high_is_better, expected) in [(true, 4..=7), (false, 30..=40)] {
        let mut search = Search::new(settings, 1);
        let mut looks = 0;
        for turn in 1..=100 {
            let (verdict, cost) = match search.setting() {
                0 => (Verdict::TooLow, 1.0),
                _ => (Verdict::TooHigh, if high_is_better { 0.5 } else { 2.0 }),
            };
            looks += usize::from(
                search.observe(turn * TURN_NS, Seen { verdict, cost }).is_some()
                    && search.phase() == Phase::Rechecking,
            );
        }
        assert!(expected.contains(&looks), "{high_is_better}: {looks}");
    }
}

#[test]
fn it_finds_the_new_place_when_the_work_has_changed() {
    let mut machine = Machine::new(1000, 0, 20.4);
    machine.turns(40);
    for best in [700.6, 3.3, 4.3, 0.2, 999.9] {
        machine.best = best;
        machine.turns(40);
        assert!((machine.search.held() as f64 - best).abs() < 1.0, "{best}: {}", machine.search.held());
    }
}

#[test]
fn at_a_bound_it_stays_and_turns_back_when_it_may() {
    let mut machine = Machine::new(8, 3, 100.0);
    machine.turns(20);
    assert_eq!((machine.search.setting(), machine.search.phase()), (8, Phase::Settled));
    machine.best = -5.0;
    machine.turns(20);
    assert_eq!((machine.search.setting(), machine.search.phase()), (0, Phase::Settled));
}

#[test]
fn what_is_seen_too_soon_after_a_change_does_not_count() {
    let settings = Settings { highest: 9, patience_ns: 3 * TURN_NS, ..Settings::default() };
    let mut search = Search::new(settings, 0);
    let seen = Seen { verdict: Verdict::TooLow, cost: 1.0 };
    assert_eq!(search.observe(TURN_NS, seen), Some(1));
    assert_eq!(search.observe(2 * TURN_NS, seen), None);
    assert!(!search.counts(3 * TURN_NS) && search.counts(4 * TURN_NS));
    assert_eq!(search.observe(4 * TURN_NS, seen), Some(3));
}

#[test]
fn a_right_setting_is_kept_without_looking_at_any_other() {
    let mut search = Search::new(Settings { highest: 9, ..Settings::default() }, 5);
    for turn in 1..50 {
        assert_eq!(search.observe(turn * TURN_NS, Seen { verdict: Verdict::Right, cost: 0.0 }), None);
    }
    assert_eq!(search.phase(), Phase::Settled);
    let seen = Seen { verdict: Verdict::TooHigh, cost: 1.0 };
    assert_eq!(search.observe(50 * TURN_NS, seen), Some(4));
}

#[test]
fn a_setting_that_is_refused_becomes_the_bound() {
    let mut search = Search::new(Settings { highest: 100, ..Settings::default() }, 10);
    let seen = Seen { verdict: Verdict::TooLow, cost: 1.0 };
    assert_eq!(search.observe(TURN_NS, seen), Some(11));
    search.refused(10);
    assert_eq!(search.setting(), 10);
    assert_eq!(search.observe(2 * TURN_NS, seen), None);
    assert_eq!(search.phase(), Phase::Settled);
}

#[test]
fn a_cost_that_is_no_number_is_the_worst() {
    let mut search = Search::new(Settings::default(), 0);
    search.observe(TURN_NS, Seen { verdict: Verdict::TooLow, cost: 5.0 });
    search.observe(2 * TURN_NS, Seen { verdict: Verdict::TooHigh, cost: f64::NAN });
    assert_eq!((search.held(), search.phase()), (0, Phase::Settled));
}

#[test]
fn whatever_is_seen_every_setting_lies_within_the_bounds_and_the_search_ends() {
    // Every pattern of ten verdicts, from every start among eight settings.
    for pattern in 0..3_u32.pow(10) {
        let start = i64::from(pattern % 8);
        let mut search = Search::new(Settings { highest: 7, ..Settings::default() }, start);
        let mut rest = pattern;
        for turn in 1..=10 {
            let verdict = [Verdict::TooLow, Verdict::TooHigh, Verdict::Right][(rest % 3) as usize];
            rest /= 3;
            search.observe(turn * TURN_NS, Seen { verdict, cost: f64::from(rest % 5) });
            assert!((0..=7).contains(&search.setting()) && (0..=7).contains(&search.held()));
        }
        // From then on the machine is one on which 3 is too low and 4 too high.
        for turn in 11..=40 {
            let verdict = if search.setting() <= 3 { Verdict::TooLow } else { Verdict::TooHigh };
            search.observe(turn * TURN_NS, Seen { verdict, cost: 1.0 });
        }
        assert!((3..=4).contains(&search.held()), "{pattern}: {search:?}");
    }
}

//! Empathy on a machine whose figures are, as the daemon's, of the last second.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::api::Slowed;

const TURN_NS: u64 = 100_000_000;

/// What happens in a tenth of a second: what others want of the machine and how much slower they are without the work
/// and with it.
#[derive(Clone, Copy)]
struct Others {
    used: f64,
    without: f64,
    with: f64,
}

/// One of the others that is looked at alone: how many times slower it is without the work and with it.
#[derive(Clone, Copy, Debug)]
struct One {
    whom: Whom,
    without: f64,
    with: f64,
}

struct Machine {
    empathy: Empathy,
    now_ns: u64,
    /// The last ten tenths: wanted and got by others, got by the work.
    past: VecDeque<(f64, f64, f64)>,
    /// Some of the others, with what they got in the last ten tenths of what they wanted.
    each: Vec<(One, VecDeque<f64>)>,
    /// What the work uses of a CPU that it has to itself.
    appetite: f64,
    suspended: bool,
    /// What was idle for the work, and what it took of it.
    left: f64,
    taken: f64,
    suspensions: usize,
}

impl Machine {
    fn new() -> Self {
        Machine {
            empathy: Empathy::new(Settings::default()),
            now_ns: 0,
            past: VecDeque::new(),
            each: Vec::new(),
            appetite: 1.0,
            suspended: false,
            left: 0.0,
            taken: 0.0,
            suspensions: 0,
        }
    }

    fn turn(&mut self, others: Others) {
        self.now_ns += TURN_NS;
        let own = if self.suspended { 0.0 } else { (1.0 - others.used) * self.appetite };
        let slower = if self.suspended || own == 0.0 { others.without } else { others.with };
        self.past.push_back((others.used * slower, others.used, own));
        if self.past.len() > 10 {
            self.past.pop_front();
        }
        self.left += 1.0 - others.used;
        self.taken += own;
        let sum = |part: fn(&(f64, f64, f64)) -> f64| self.past.iter().map(part).sum::<f64>();
        let (wanted, got, own) = (sum(|it| it.0), sum(|it| it.1), sum(|it| it.2));
        let mut slowdowns = BTreeMap::new();
        if wanted > got {
            slowdowns.insert(Whom::ALL, wanted / got);
        }
        for (one, past) in &mut self.each {
            past.push_back(1.0 / if self.suspended { one.without } else { one.with });
            if past.len() > 10 {
                past.pop_front();
            }
            let slowdown = past.len() as f64 / past.iter().sum::<f64>();
            if slowdown > 1.01 {
                slowdowns.insert(one.whom, slowdown);
            }
        }
        let look = Look {
            slowdowns,
            others_used: got / self.past.len() as f64,
            own_used: own / self.past.len() as f64,
            yields_the_cpu: false,
        };
        match self.empathy.observe(self.now_ns, &look) {
            Some(Action::Suspend) => {
                self.suspended = true;
                self.suspensions += 1;
            }
            Some(Action::Resume) => self.suspended = false,
            None => {}
        }
        assert_eq!(self.suspended, self.empathy.is_suspended());
    }

    fn turns(&mut self, count: usize, others: Others) {
        (0..count).for_each(|_| self.turn(others));
    }

    fn beside(each: &[One]) -> Self {
        Machine { each: each.iter().map(|one| (*one, VecDeque::new())).collect(), ..Machine::new() }
    }

    fn part_taken(&self) -> f64 {
        self.taken / self.left / self.appetite
    }
}

const NOBODY: Others = Others { used: 0.0, without: 1.0, with: 1.0 };
const LIGHT: Others = Others { used: 0.4, without: 1.0, with: 1.0 };
const HEAVY: Others = Others { used: 1.0, without: 3.0, with: 3.0 };

#[test]
fn alone_on_the_machine_the_work_is_never_suspended() {
    let mut machine = Machine::new();
    machine.turns(600, NOBODY);
    machine.turns(600, LIGHT);
    assert_eq!((machine.suspensions, machine.part_taken()), (0, 1.0));
}

#[test]
fn it_looks_seldom_where_it_yields_the_cpu_and_nobody_is_slow_and_often_otherwise() {
    const SECOND_NS: u64 = 10 * TURN_NS;
    let whom = Whom { by: Lack::Disk, id: 7 };
    let look = |slowdown: f64, yields_the_cpu| Look {
        slowdowns: BTreeMap::from([(whom, slowdown)]),
        own_used: 0.5,
        yields_the_cpu,
        ..Look::default()
    };
    let mut empathy = Empathy::new(Settings::default());
    let looks = |empathy: &mut Empathy, from: u64, to: u64, look: &Look| {
        (from..to).for_each(|turn| assert_eq!(empathy.observe(turn * TURN_NS, look), None));
        empathy.looks_again_in_ns((to - 1) * TURN_NS)
    };
    assert_eq!(looks(&mut empathy, 0, 20, &look(1.04, true)), TURN_NS, "two seconds are not over");
    assert_eq!(looks(&mut empathy, 20, 21, &look(1.04, true)), SECOND_NS);
    let now_ns = 21 * TURN_NS;
    let outcomes = (0..2).map(|turn| empathy.observe(now_ns + turn * TURN_NS, &look(2.0, true)));
    assert!(outcomes.flatten().any(|action| action == Action::Suspend), "as soon as when it looks often");
    assert_eq!(empathy.looks_again_in_ns(now_ns + SECOND_NS), TURN_NS, "it is suspended");
    let mut elsewhere = Empathy::new(Settings::default());
    assert_eq!(looks(&mut elsewhere, 0, 100, &look(1.0, false)), TURN_NS, "who waits for a CPU counts there");
}

#[test]
fn it_is_suspended_within_two_looks_of_disturbing_somebody() {
    let mut machine = Machine::new();
    machine.turns(50, LIGHT);
    machine.turns(2, Others { with: 1.6, ..LIGHT });
    assert!(machine.suspended);
}

#[test]
fn work_that_disturbs_is_tried_again_ever_more_rarely_and_goes_on_when_it_no_longer_does() {
    let mut machine = Machine::new();
    let disturbed = Others { with: 2.0, ..LIGHT };
    machine.turns(600, disturbed);
    assert!(machine.part_taken() < 0.15, "it took {}", machine.part_taken());
    assert!(machine.suspensions > 20, "it was tried {} times", machine.suspensions);
    machine.turns(30, LIGHT);
    assert!(!machine.suspended);
    machine.suspensions = 0;
    machine.turns(300, LIGHT);
    assert_eq!(machine.suspensions, 0);
}

#[test]
fn others_that_slow_each_other_are_no_reason_to_leave_idle_time_unused() {
    let mut machine = Machine::new();
    machine.turns(1200, Others { used: 0.3, without: 1.5, with: 1.5 });
    assert!(machine.part_taken() > 0.85, "it took {}", machine.part_taken());
}

#[test]
fn nor_are_others_whose_slowdown_swings_around_the_threshold() {
    let mut machine = Machine::new();
    // A fixed sequence of bursts, from none to twice as slow.
    let mut state = 1_u32;
    for _ in 0..3000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let without = 1.0 + f64::from(state >> 24) / 255.0 * f64::from((state >> 20) & 1);
        machine.turn(Others { used: 0.3, without, with: without });
    }
    assert!(machine.part_taken() > 0.8, "it took {}", machine.part_taken());
}

#[test]
fn where_nothing_is_idle_it_is_not_tried_and_it_is_back_at_once_when_something_is() {
    let mut machine = Machine::new();
    machine.turns(50, LIGHT);
    machine.turns(30, HEAVY);
    let before = machine.suspensions;
    machine.turns(300, HEAVY);
    assert!(machine.suspensions == before && machine.suspended);
    machine.turns(3, LIGHT);
    assert!(!machine.suspended);
    (machine.left, machine.taken) = (0.0, 0.0);
    machine.turns(200, LIGHT);
    assert!(machine.part_taken() > 0.9, "it took {}", machine.part_taken());
}

#[test]
fn an_acquittal_does_not_cover_what_is_much_worse() {
    let mut machine = Machine::new();
    let crowded = Others { used: 0.3, without: 1.3, with: 1.3 };
    machine.turns(30, crowded);
    assert!(!machine.suspended);
    machine.turns(8, Others { with: 3.0, ..crowded });
    assert!(machine.suspended);
}

fn one(id: u64, without: f64, with: f64) -> One {
    One { whom: Whom { by: Lack::Cpu, id }, without, with }
}

#[test]
fn one_that_wants_little_is_seen_beside_others_that_want_much() {
    // 20 ms of a second, of which it gets 2; the sum of all is 1.8 % slower.
    let mut machine = Machine::beside(&[one(1, 1.0, 10.0)]);
    let beside_much = Others { used: 0.5, without: 1.0, with: 1.018 };
    machine.turns(50, beside_much);
    (machine.left, machine.taken) = (0.0, 0.0);
    machine.turns(600, beside_much);
    assert!(machine.part_taken() < 0.15, "it took {}", machine.part_taken());
}

#[test]
fn one_that_is_always_slow_does_not_hide_another_and_is_no_reason_itself() {
    let always = one(1, 50.0, 50.0);
    let mut machine = Machine::beside(&[always, one(2, 1.0, 3.0)]);
    machine.turns(600, LIGHT);
    assert!(machine.part_taken() < 0.2, "it took {}", machine.part_taken());
    let mut machine = Machine::beside(&[always]);
    machine.turns(1200, LIGHT);
    assert!(machine.part_taken() > 0.85, "it took {}", machine.part_taken());
}

#[test]
fn who_waits_for_the_disk_because_of_work_that_hardly_computes_is_seen() {
    let whom = Whom { by: Lack::Disk, id: 7 };
    let mut machine = Machine::beside(&[One { whom, without: 1.0, with: 2.0 }]);
    machine.appetite = 0.001;
    machine.turns(600, LIGHT);
    assert!(machine.part_taken() < 0.15, "it took {}", machine.part_taken());
    let mut machine = Machine::beside(&[one(7, 1.0, 2.0)]);
    machine.appetite = 0.001;
    machine.turns(600, LIGHT);
    assert_eq!(machine.suspensions, 0, "nobody waits for a CPU that it hardly uses");
}

fn forecasts_with(model: &str, slowed: &[(Lack, u64, f64)]) -> Forecasts {
    let mut forecasts = Forecasts { cpus: 2, model: model.into(), ..Forecasts::default() };
    forecasts.others.desired_ms_per_s = 300.0;
    forecasts.others.actual_ms_per_s = 200.0;
    forecasts.machine.actual_ms_per_s = 1200.0;
    let slowed =
        slowed.iter().map(|(by, id, slowdown)| Slowed { by: *by, id: *id, slowdown: *slowdown, name: None });
    forecasts.slowed = slowed.collect();
    forecasts
}

#[test]
fn under_stewards_own_scheduler_waits_for_a_cpu_are_nobodys_harm() {
    let slowed = [(Lack::Cpu, 3, 9.0), (Lack::Disk, 4, 2.0), (Lack::Memory, 4, 3.0)];
    let counted = |model: &str| Look::of(&forecasts_with(model, &slowed)).slowdowns;
    let (disk, memory) = (Whom { by: Lack::Disk, id: 4 }, Whom { by: Lack::Memory, id: 4 });
    assert_eq!(counted("steward"), BTreeMap::from([(disk, 2.0), (memory, 3.0)]));
    let cpu = Whom { by: Lack::Cpu, id: 3 };
    let elsewhere = counted("proportional-share");
    assert_eq!(elsewhere, BTreeMap::from([(cpu, 9.0), (Whom::ALL, 1.5), (disk, 2.0), (memory, 3.0)]));
}

#[test]
fn of_a_long_list_only_the_slowest_are_told_and_the_rest_was_no_slower() {
    let told = |ids: std::ops::Range<u64>| {
        let slowed: Vec<(Lack, u64, f64)> = ids.map(|id| (Lack::Cpu, id, 4.0)).collect();
        Look::of(&forecasts_with("proportional-share", &slowed))
    };
    let mut empathy = Empathy::new(Settings::default());
    empathy.without = [told(0..SLOWED_MAX as u64), Look::default()];
    assert_eq!(empathy.hurt_most(&told(100..101)), None, "it was slow as well, for all that is known");
    empathy.without = [told(0..5), Look::default()];
    let (whom, factor) = empathy.hurt_most(&told(100..101)).expect("somebody");
    // As all together were.
    assert_eq!((whom.id, factor), (100, 4.0 / 1.5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whoever_else_is_slow_by_himself_the_one_that_is_hurt_is_found(
        slow in proptest::collection::vec(1.0_f64..100.0, 0..20),
        hurt in 1.5_f64..50.0,
        used in 0.05_f64..0.9,
    ) {
        let mut each: Vec<One> =
            slow.iter().enumerate().map(|(id, slow)| one(id as u64, *slow, *slow)).collect();
        each.push(one(99, 1.0, hurt));
        let mut machine = Machine::beside(&each);
        let others = Others { used, without: 1.0, with: 1.0 };
        machine.turns(100, others);
        (machine.left, machine.taken) = (0.0, 0.0);
        machine.turns(600, others);
        prop_assert!(machine.part_taken() < 0.25, "it took {}", machine.part_taken());
    }

    #[test]
    fn others_that_are_as_slow_without_it_cost_it_little(
        slow in proptest::collection::vec(1.0_f64..100.0, 0..20),
        used in 0.05_f64..0.9,
    ) {
        let each: Vec<One> = slow.iter().enumerate().map(|(id, slow)| one(id as u64, *slow, *slow)).collect();
        let mut machine = Machine::beside(&each);
        machine.turns(1200, Others { used, without: 1.0, with: 1.0 });
        prop_assert!(machine.part_taken() > 0.85, "it took {}", machine.part_taken());
    }
}

#[test]
fn figures_that_are_none_count_as_nobody_wanting_anything() {
    assert_eq!(Look::of(&Forecasts { cpus: 2, ..Forecasts::default() }), Look::default());
    let look = Look::of(&forecasts_with("proportional-share", &[(Lack::Disk, 1, f64::NAN)]));
    assert_eq!(look.slowdowns, BTreeMap::from([(Whom::ALL, 1.5)]));
    assert_eq!((look.others_used, look.own_used), (0.1, 0.5));
}

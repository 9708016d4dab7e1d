//! Empathy on a machine whose figures are, as the daemon's, of the last second.

use std::collections::VecDeque;

use super::*;

const TURN_NS: u64 = 100_000_000;

/// What happens in a tenth of a second: what others want of the machine and how much slower they are without the work
/// and with it.
#[derive(Clone, Copy)]
struct Others {
    used: f64,
    without: f64,
    with: f64,
}

struct Machine {
    empathy: Empathy,
    now_ns: u64,
    /// The last ten tenths: wanted and got by others, got by the work.
    past: VecDeque<(f64, f64, f64)>,
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
            suspended: false,
            left: 0.0,
            taken: 0.0,
            suspensions: 0,
        }
    }

    fn turn(&mut self, others: Others) {
        self.now_ns += TURN_NS;
        let own = if self.suspended { 0.0 } else { 1.0 - others.used };
        let slower = if self.suspended || own == 0.0 { others.without } else { others.with };
        self.past.push_back((others.used * slower, others.used, own));
        if self.past.len() > 10 {
            self.past.pop_front();
        }
        self.left += 1.0 - others.used;
        self.taken += own;
        let sum = |part: fn(&(f64, f64, f64)) -> f64| self.past.iter().map(part).sum::<f64>();
        let (wanted, got, own) = (sum(|it| it.0), sum(|it| it.1), sum(|it| it.2));
        let look = Look {
            others_slowdown: (got > 0.0).then(|| wanted / got),
            others_used: got / self.past.len() as f64,
            own_used: own / self.past.len() as f64,
        };
        match self.empathy.observe(self.now_ns, look) {
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

    fn part_taken(&self) -> f64 {
        self.taken / self.left
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

#[test]
fn figures_that_are_none_count_as_nobody_wanting_anything() {
    let mut forecasts = Forecasts { cpus: 2, ..Forecasts::default() };
    assert_eq!(Look::of(&forecasts), Look::default());
    forecasts.others.desired_ms_per_s = 300.0;
    forecasts.others.actual_ms_per_s = 200.0;
    forecasts.machine.actual_ms_per_s = 1200.0;
    let look = Look::of(&forecasts);
    assert_eq!((look.others_slowdown, look.others_used, look.own_used), (Some(1.5), 0.1, 0.5));
}

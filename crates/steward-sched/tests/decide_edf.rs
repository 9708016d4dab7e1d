//! Properties of the EDF rules (`src/bpf/decide/edf.h`; Yang 2009, section 8.2.1).

mod one_cpu;

use one_cpu::{Behaviour, ModelTask, OneCpu, Rules, TaskSpec, Turn};
use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::{EdfOutcome, EdfTask, LOAD_ONE, edf_bandwidth, edf_timer_next, edf_timer_serves};

const MS: u64 = 1_000_000;
/// All times of the generated task sets are multiples of this, so that sums of bandwidths can be exact.
const UNIT_NS: u64 = 16_000;
/// Bandwidths are drawn in this many parts of a CPU.
const PARTS: u64 = 64;

/// Periods of 1 to 65 ms; C is `parts` of [`PARTS`] of it, exactly.
fn period() -> impl Strategy<Value = u64> {
    (1u64..=64).prop_map(|k| k * PARTS * UNIT_NS)
}

fn turn(voluntary: bool) -> impl Strategy<Value = Turn> {
    (1u64..=2000, 1u64..=4000, any::<bool>()).prop_map(move |(run, sleep, coin)| Turn {
        run_ns: run * UNIT_NS,
        sleep_ns: sleep * UNIT_NS,
        voluntary: voluntary || coin,
    })
}

fn behaviour(voluntary: bool) -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        Just(Behaviour::Greedy),
        vec(turn(voluntary), 1..6).prop_map(|turns| Behaviour::Sleeper { turns }),
    ]
}

/// Up to six tasks whose bandwidths sum to between 0.8 and exactly 1.
fn task_set(voluntary: bool) -> impl Strategy<Value = Vec<TaskSpec>> {
    let task = (1u64..=20, period(), 0u64..=2000, behaviour(voluntary));
    (vec(task, 1..=6), prop_oneof![Just(PARTS), 52u64..=PARTS]).prop_map(|(tasks, total)| {
        let mut left = total;
        let count = tasks.len();
        let mut specs = vec![];
        for (index, (wish, period_ns, phase, behaviour)) in tasks.into_iter().enumerate() {
            let others = (count - index - 1) as u64;
            let parts = if others == 0 { left } else { wish.min(left - others) };
            left -= parts;
            specs.push(TaskSpec {
                budget_ns: parts * (period_ns / PARTS),
                period_ns,
                phase_ns: phase * UNIT_NS,
                behaviour,
                announces_every_ns: None,
            });
        }
        specs
    })
}

/// The same, and some of them announce requests: at every instruction, or now and then.
fn announcing(voluntary: bool) -> impl Strategy<Value = Vec<TaskSpec>> {
    let every = prop_oneof![Just(None), Just(Some(1)), (1u64..=100).prop_map(|ms| Some(ms * MS + 7))];
    (task_set(voluntary), vec(every, 6)).prop_map(|(mut specs, every)| {
        specs.iter_mut().zip(every).for_each(|(spec, every)| spec.announces_every_ns = every);
        specs
    })
}

fn is_greedy(task: &ModelTask) -> bool {
    matches!(task.spec.behaviour, Behaviour::Greedy)
}

/// Periods of a greedy task that were over by `end_ns` without its having got C in them.
fn short_periods(task: &ModelTask, end_ns: u64) -> usize {
    let over = task.periods.iter().filter(|(_, deadline_ns)| *deadline_ns <= end_ns);
    over.filter(|(start_ns, deadline_ns)| task.service_between(*start_ns, *deadline_ns) < task.spec.budget_ns)
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whoever_always_asks_gets_its_budget_in_each_period_whatever_the_others_wait_for(specs in task_set(false)) {
        let mut cpu = OneCpu::new(specs, Rules::Steward, vec![0]);
        cpu.run_until(500 * MS, |_| {});
        for task in cpu.tasks.iter().filter(|task| is_greedy(task)) {
            prop_assert!(task.periods.len() >= 7, "{} periods in half a second", task.periods.len());
            prop_assert_eq!(short_periods(task, cpu.now_ns), 0);
            prop_assert_eq!(task.edf.missed, 0);
        }
    }

    #[test]
    fn reserved_service_never_exceeds_the_promise_by_more_than_one_overrun(
        specs in task_set(false),
        lateness_ns in vec(0u64..=2 * MS, 1..8),
    ) {
        let grain_ns = *lateness_ns.iter().max().unwrap();
        let mut cpu = OneCpu::new(specs, Rules::Steward, lateness_ns);
        let mut carried_over = false;
        let mut above = false;
        cpu.run_until(500 * MS, |task| {
            carried_over |= task.edf.left_ns > task.edf.budget_ns as i64;
            above |= task.served_ns > task.edf.periods * task.edf.budget_ns + grain_ns;
        });
        prop_assert!(!carried_over, "a budget above C");
        prop_assert!(!above, "k periods gave more than kC and one overrun");
        for task in &cpu.tasks {
            let (c, t) = (task.spec.budget_ns as u128, task.spec.period_ns as u128);
            prop_assert!(task.edf.overrun_max_ns <= grain_ns);
            for (start_ns, _) in &task.periods {
                for (_, end_ns, _) in task.served.iter().filter(|(_, end_ns, _)| end_ns > start_ns) {
                    let served_ns = task.service_between(*start_ns, *end_ns) as u128;
                    // served <= C + C/T * length + grain
                    let length = (end_ns - start_ns) as u128;
                    prop_assert!(served_ns * t <= c * t + c * length + grain_ns as u128 * t);
                }
            }
        }
    }

    #[test]
    fn a_greedy_task_gets_at_most_k_budgets_and_one_overrun_in_k_periods(
        specs in task_set(true),
        lateness_ns in vec(0u64..=MS / 2, 1..8),
    ) {
        let grain_ns = *lateness_ns.iter().max().unwrap();
        let mut cpu = OneCpu::new(specs, Rules::Steward, lateness_ns);
        cpu.run_until(300 * MS, |_| {});
        for task in cpu.tasks.iter().filter(|task| is_greedy(task)) {
            for (start_ns, _) in &task.periods {
                let mut end_ns = start_ns + task.spec.period_ns;
                let mut allowed_ns = task.spec.budget_ns + grain_ns;
                while end_ns <= cpu.now_ns {
                    prop_assert!(task.service_between(*start_ns, end_ns) <= allowed_ns);
                    end_ns += task.spec.period_ns;
                    allowed_ns += task.spec.budget_ns;
                }
            }
        }
    }

    /// Whoever announces without end, or at random, gets C/T and at most one C more over what begins with a period of
    /// its own, and two over anything; and nobody else gets less for it.
    #[test]
    fn announcements_without_end_bring_nothing_beyond_the_reservation(specs in announcing(false)) {
        let mut cpu = OneCpu::new(specs, Rules::Steward, vec![0]);
        cpu.run_until(300 * MS, |_| {});
        for task in &cpu.tasks {
            let (c, t) = (task.spec.budget_ns as u128, task.spec.period_ns as u128);
            let begins = task.periods.iter().map(|(start_ns, _)| (*start_ns, 1));
            let anywhere = task.served.iter().map(|(from_ns, ..)| (*from_ns, 2));
            for (from_ns, budgets) in begins.chain(anywhere) {
                for (_, end_ns, _) in task.served.iter().filter(|(_, end_ns, _)| *end_ns > from_ns) {
                    let served_ns = task.service_between(from_ns, *end_ns) as u128;
                    prop_assert!(served_ns * t <= budgets * c * t + c * (end_ns - from_ns) as u128);
                }
            }
            if is_greedy(task) && task.spec.announces_every_ns.is_none() {
                prop_assert_eq!((short_periods(task, cpu.now_ns), task.edf.missed), (0, 0));
            }
        }
    }

    /// An announced request for which a fresh period begins has all of C by that period's end, unless it is followed by
    /// another one before; one for which none begins has at least C/T of the time since the period began behind it, and
    /// goes on.
    #[test]
    fn a_request_that_is_announced_has_its_budget_within_the_period(specs in announcing(false)) {
        let mut cpu = OneCpu::new(specs, Rules::Steward, vec![0]);
        cpu.run_until(300 * MS, |_| {});
        for task in cpu.tasks.iter().filter(|task| is_greedy(task)) {
            for pair in task.periods.windows(2) {
                let ((start_ns, deadline_ns), (next_ns, _)) = (pair[0], pair[1]);
                let served_ns = task.service_between(start_ns, next_ns.min(deadline_ns));
                let (c, t) = (task.spec.budget_ns as u128, task.spec.period_ns as u128);
                if next_ns >= deadline_ns {
                    prop_assert_eq!(served_ns, task.spec.budget_ns);
                } else {
                    prop_assert!(served_ns as u128 * t < c * (next_ns - start_ns) as u128);
                }
            }
        }
    }

    #[test]
    fn an_overrun_is_paid_back_and_nothing_is_carried_over(
        budget_ns in 1..100 * MS,
        idle_ns in 0..1000 * MS,
        left_ns in -(1000 * MS as i64)..=100 * MS as i64,
    ) {
        let period_ns = budget_ns * 2;
        let mut task = EdfTask::begin(budget_ns, period_ns, 0);
        task.left_ns = left_ns.min(budget_ns as i64);
        let deadline_ns = task.deadline_ns;
        task.next_period(deadline_ns + idle_ns);
        prop_assert!(task.left_ns > 0 && task.left_ns <= budget_ns as i64);
        if left_ns <= 0 {
            // Each period waited for pays C of what is owed.
            let waited = (task.start_ns - deadline_ns - idle_ns) / period_ns;
            let paid = (waited + 1) as i64 * budget_ns as i64;
            prop_assert_eq!(task.left_ns, left_ns + paid);
            prop_assert!(waited == 0 || left_ns + waited as i64 * budget_ns as i64 <= 0, "one period too many");
        }
    }

    #[test]
    fn bandwidth_is_never_understated(budget_ns in 1..10_000 * MS, period_ns in 1..10_000 * MS) {
        let bandwidth = edf_bandwidth(budget_ns, period_ns);
        if budget_ns <= period_ns {
            prop_assert!(bandwidth as u128 * period_ns as u128 >= budget_ns as u128 * LOAD_ONE as u128);
            prop_assert!((bandwidth as u128 - 1) * (period_ns as u128) < budget_ns as u128 * LOAD_ONE as u128);
        } else {
            prop_assert_eq!(bandwidth, LOAD_ONE);
        }
    }

    /// The rule of Abeni and Buttazzo (1998): a period is kept only if left / rest <= C / T.
    #[test]
    fn a_task_that_wakes_keeps_its_period_only_if_the_rest_fits_at_the_promised_rate(
        budget_ns in 1..10_000 * MS,
        slack_ns in 0..10_000 * MS,
        left in 0.0..=1.0f64,
        rest in 0.0..1.5f64,
        voluntary: bool,
    ) {
        let period_ns = (budget_ns + slack_ns).min(10_000 * MS);
        let budget_ns = budget_ns.min(period_ns);
        let mut task = EdfTask::begin(budget_ns, period_ns, 0);
        let left_ns = ((budget_ns as f64 * left) as u64).max(1);
        task.charge(budget_ns - left_ns);
        task.sleep(voluntary);
        let now_ns = (period_ns as f64 * rest) as u64;
        let outcome = task.wake(now_ns);
        let (demand, promised) =
            (left_ns as u128 * period_ns as u128, period_ns.saturating_sub(now_ns) as u128 * budget_ns as u128);
        if demand > promised {
            prop_assert_eq!(outcome, EdfOutcome::NewPeriod);
        }
        if outcome == EdfOutcome::NewPeriod {
            prop_assert_eq!((task.start_ns, task.deadline_ns), (now_ns, now_ns + period_ns));
            prop_assert_eq!(task.left_ns, budget_ns as i64);
        }
    }
}

/// A needs half of each 5 ms. B, with 5 in 10 ms, sleeps through the first half of its period, takes all of its budget
/// in the second half, and all of the next one right after.
fn late_sleeper(voluntary: bool) -> Vec<TaskSpec> {
    let turns = vec![
        Turn { run_ns: UNIT_NS, sleep_ns: 5 * MS - UNIT_NS, voluntary },
        Turn { run_ns: 100 * MS, sleep_ns: MS, voluntary },
    ];
    vec![
        TaskSpec {
            budget_ns: 2_500_000,
            period_ns: 5 * MS,
            phase_ns: 512_000,
            behaviour: Behaviour::Greedy,
            announces_every_ns: None,
        },
        TaskSpec {
            budget_ns: 5 * MS,
            period_ns: 10 * MS,
            phase_ns: 0,
            behaviour: Behaviour::Sleeper { turns },
            announces_every_ns: None,
        },
    ]
}

#[test]
fn without_the_wake_up_rule_a_sleeper_makes_an_honest_task_miss_its_deadline() {
    // Whether it sleeps of its own will or waits for a disk.
    for voluntary in [true, false] {
        let mut paper = OneCpu::new(late_sleeper(voluntary), Rules::PaperWake, vec![0]);
        paper.run_until(50 * MS, |_| {});
        assert!(short_periods(&paper.tasks[0], paper.now_ns) > 0);

        let mut steward = OneCpu::new(late_sleeper(voluntary), Rules::Steward, vec![0]);
        steward.run_until(50 * MS, |_| {});
        assert_eq!(short_periods(&steward.tasks[0], steward.now_ns), 0);
        assert_eq!(steward.tasks[0].edf.missed, 0);
    }
}

/// Line 16 of listing 2 as printed: max(budget + C, C).
#[test]
fn the_printed_refill_would_let_unused_budgets_pile_up_and_forgive_every_overrun() {
    let printed = |left_ns: i64, budget_ns: i64| (left_ns + budget_ns).max(budget_ns);
    assert_eq!(printed(printed(5, 5), 5), 15, "two unused periods give a third budget of three");
    assert_eq!(printed(-4, 5), 5, "an overrun of 4 is forgotten");

    let mut task = EdfTask::begin(5, 10, 0);
    task.next_period(10);
    task.next_period(20);
    assert_eq!(task.left_ns, 5);
    task.charge(9);
    task.update(29);
    assert_eq!((task.start_ns, task.left_ns), (30, 1));
}

#[test]
fn an_overrun_larger_than_the_budget_skips_periods() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    assert!(task.charge(17 * MS));
    assert_eq!(task.update(17 * MS), EdfOutcome::NewPeriod);
    // 12 ms too many: the next two periods go for it whole, and 2 ms of the third.
    assert_eq!((task.start_ns, task.left_ns), (60 * MS, 3 * MS as i64));
    assert!(!task.eligible(59 * MS) && task.eligible(60 * MS));
}

#[test]
fn a_period_that_ends_with_budget_owed_is_counted_once_and_goes_on() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(MS);
    assert_eq!(task.update(19 * MS), EdfOutcome::Continues);
    assert_eq!(task.update(20 * MS), EdfOutcome::Missed);
    assert_eq!(task.update(25 * MS), EdfOutcome::Continues);
    assert_eq!((task.missed, task.left_ns), (1, 4 * MS as i64));
    task.charge(4 * MS);
    assert_eq!(task.update(30 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.start_ns, task.deadline_ns), (30 * MS, 50 * MS));
}

#[test]
fn a_budget_that_is_used_up_only_after_the_deadline_is_a_miss_though_nobody_looked_in_between() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(MS);
    assert_eq!(task.update(19 * MS), EdfOutcome::Continues);
    task.charge(4 * MS);
    assert_eq!(task.update(23 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.missed, task.start_ns), (1, 23 * MS));

    // What was late is the timer, and not the budget.
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(6 * MS);
    task.update(20 * MS + MS / 2);
    assert_eq!((task.missed, task.left_ns), (0, 4 * MS as i64));
}

#[test]
fn a_period_in_which_the_task_slept_of_its_own_will_is_served_not_missed() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(MS);
    task.sleep(true);
    assert_eq!(task.wake(33 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.start_ns, task.left_ns, task.missed), (33 * MS, 5 * MS as i64, 0));
}

#[test]
fn a_sleep_that_ends_before_the_period_begins_does_not_excuse_a_miss_in_it() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(5 * MS);
    task.update(5 * MS);
    task.sleep(true);
    assert_eq!(task.wake(10 * MS), EdfOutcome::Continues);
    assert_eq!((task.start_ns, task.deadline_ns, task.left_ns), (20 * MS, 40 * MS, 5 * MS as i64));
    assert_eq!(task.update(40 * MS), EdfOutcome::Missed);
}

#[test]
fn what_waited_for_a_disk_beyond_its_deadline_begins_a_new_period_and_is_not_a_miss() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    task.charge(MS);
    task.sleep(false);
    assert_eq!(task.wake(33 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.deadline_ns, task.left_ns, task.missed), (53 * MS, 5 * MS as i64, 0));
    assert!(task.eligible(33 * MS));
}

#[test]
fn a_task_that_slept_when_it_was_admitted_and_long_after_has_missed_nothing() {
    let mut task = EdfTask::begin(5 * MS, 20 * MS, 0);
    assert_eq!(task.wake(1000 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.start_ns, task.deadline_ns, task.missed), (1000 * MS, 1020 * MS, 0));
}

#[test]
fn all_the_children_of_a_period_together_start_on_less_than_the_parents_budget() {
    let mut parent = EdfTask::begin(10 * MS, 100 * MS, 0);
    let lent: u64 = (0..2000).map(|_| parent.lend(MS)).sum();
    assert!((9 * MS..10 * MS).contains(&lent), "{lent}");
    assert_eq!(lent as i64 + parent.left_ns, 10 * MS as i64);
    assert!(parent.left_ns > 0 && parent.lend(MS) == 0);
}

#[test]
fn a_parent_that_rests_lends_anew_in_each_period_and_never_more_than_its_budget() {
    let mut parent = EdfTask::begin(5 * MS, 100 * MS, 0);
    parent.charge(4 * MS);
    parent.sleep(false);
    assert!(parent.lend(MS) < MS);
    // Asked every millisecond for a second, or a little too early: once in each period, and three quarters of it.
    let (mut lent_in_ns, mut loans) = (parent.deadline_ns, Vec::new());
    for at in 1..=1000 {
        for now_ns in [at * MS - 1000, at * MS] {
            let lent_ns = parent.lend_again(true, lent_in_ns, now_ns);
            if lent_ns > 0 {
                loans.push(lent_ns);
                lent_in_ns = parent.deadline_ns;
            }
        }
    }
    assert!(loans.len() == 10 && loans.iter().all(|lent_ns| *lent_ns == 5 * MS / 4 * 3), "{loans:?}");
    // Another child has of what is left.
    assert_eq!(parent.lend_again(true, 0, 1000 * MS), 5 * MS / 16 * 3);
    // One that wants the CPU itself keeps its period, and what is owed to it.
    let mut parent = EdfTask::begin(5 * MS, 100 * MS, 0);
    parent.lend_again(false, 0, 150 * MS);
    assert_eq!((parent.deadline_ns, parent.periods), (100 * MS, 1));
}

/// Children use a part of what they are lent until they execute a program, or end: what is left of it is the parent's
/// again, in that period and in no other.
#[test]
fn what_children_leave_of_their_loans_is_the_parents_again_in_that_period_only() {
    let mut parent = EdfTask::begin(10 * MS, 100 * MS, 0);
    let mut used_ns = 0;
    for _ in 0..5 {
        let (lent_ns, deadline_ns) = (parent.lend(MS), parent.deadline_ns);
        assert!(lent_ns >= MS / 2, "{lent_ns}");
        used_ns += MS / 2;
        parent.take_back(lent_ns - MS / 2, deadline_ns);
        assert_eq!(parent.left_ns as u64 + used_ns, 10 * MS);
    }
    let (lent_ns, deadline_ns) = (parent.lend(MS), parent.deadline_ns);
    parent.sleep(true);
    parent.wake(150 * MS);
    assert_eq!(parent.left_ns, 10 * MS as i64);
    parent.take_back(lent_ns, deadline_ns);
    assert_eq!(parent.left_ns, 10 * MS as i64);
}

#[test]
fn a_parent_that_waits_for_its_next_period_lends_nothing() {
    let mut parent = EdfTask::begin(5 * MS, 100 * MS, 0);
    parent.charge(5 * MS);
    parent.update(5 * MS);
    assert_eq!(parent.lend(6 * MS), 0);
    assert!(parent.lend(100 * MS) > 0);
}

#[test]
fn a_request_that_is_announced_has_a_fresh_period_where_the_one_before_took_less_than_its_rate() {
    let mut task = EdfTask::begin(50 * MS, 200 * MS, 0);
    task.charge(10 * MS);
    // 10 of 50 ms in 40 ms of 200: just the rate, and nothing is to be had.
    assert_eq!(task.announce(40 * MS), EdfOutcome::Continues);
    assert_eq!(task.announce(41 * MS), EdfOutcome::NewPeriod);
    assert_eq!((task.start_ns, task.deadline_ns, task.left_ns), (41 * MS, 241 * MS, 50 * MS as i64));
    assert_eq!((task.periods, task.renewed), (2, 1));
    // At once again, after an instruction, and with the budget used up: the next period is the one that comes anyway.
    assert_eq!(task.announce(41 * MS), EdfOutcome::Continues);
    task.charge(1);
    assert_eq!(task.announce(41 * MS + 1), EdfOutcome::Continues);
    task.charge(50 * MS - 1);
    task.update(91 * MS);
    assert_eq!(task.announce(91 * MS), EdfOutcome::Continues);
    assert_eq!((task.start_ns, task.left_ns, task.renewed), (241 * MS, 50 * MS as i64, 1));
}

#[test]
fn announcements_gain_nothing_by_rounding() {
    // Budgets and periods that are no multiples of the unit that is compared in, at every instruction.
    for (budget_ns, period_ns) in [(100_001, 100_033), (999_999, 1_000_031), (100_001, 9_999_999_999)] {
        let mut task = EdfTask::begin(budget_ns, period_ns, 0);
        for now_ns in 1..=90_000 {
            task.charge(1);
            assert_eq!(task.announce(now_ns), EdfOutcome::Continues);
        }
    }
}

proptest! {
    /// Tasks begin and cease to run on a CPU whose timer is left alone where it fires early enough. Whoever runs until
    /// its budget ends is stopped then, and no earlier than its timer may be early.
    #[test]
    fn each_budget_that_is_used_up_ends_in_time_though_the_timer_is_set_for_few(
        turns in vec((1u64..=2_000_000, prop_oneof![1u64..=300_000, 1u64..=3_000_000], 0u64..=500_000), 1..200),
    ) {
        let (mut now_ns, mut timer_ns, mut set) = (1_000_000u64, 0u64, 0usize);
        for (budget_ns, wants_ns, idle_ns) in turns {
            let (began_ns, end_ns) = (now_ns, now_ns + budget_ns);
            if !edf_timer_serves(timer_ns, now_ns, end_ns) {
                timer_ns = end_ns;
                set += 1;
            }
            let stops_ns = began_ns + wants_ns;
            let mut is_stopped = false;
            while timer_ns > 0 && timer_ns <= stops_ns && !is_stopped {
                now_ns = timer_ns;
                timer_ns = edf_timer_next(now_ns, end_ns).unwrap_or(0);
                is_stopped = timer_ns == 0;
            }
            if wants_ns >= budget_ns {
                prop_assert!(is_stopped && now_ns <= end_ns && now_ns + 20_000 >= end_ns);
            } else {
                prop_assert!(!is_stopped || now_ns + 20_000 >= end_ns);
                now_ns = if is_stopped { now_ns } else { stops_ns };
            }
            // Nothing is watched for a while.
            let until_ns = now_ns + idle_ns;
            if timer_ns > 0 && timer_ns <= until_ns {
                timer_ns = edf_timer_next(timer_ns, 0).unwrap_or(0);
                prop_assert_eq!(timer_ns, 0);
            }
            now_ns = until_ns;
        }
        prop_assert!(set > 0);
    }
}

#[test]
fn the_timer_is_left_alone_where_it_fires_before_the_budget_ends_and_set_anew_when_it_has() {
    assert!(!edf_timer_serves(0, 10 * MS, 20 * MS), "none is set");
    assert!(!edf_timer_serves(9 * MS, 10 * MS, 20 * MS), "it should have fired");
    assert!(!edf_timer_serves(21 * MS, 10 * MS, 20 * MS), "too late");
    assert!(edf_timer_serves(11 * MS, 10 * MS, 20 * MS) && edf_timer_serves(20 * MS, 10 * MS, 20 * MS));
    assert_eq!(edf_timer_next(11 * MS, 20 * MS), Some(20 * MS));
    assert_eq!(edf_timer_next(20 * MS - 20_000, 20 * MS), None);
    assert_eq!(edf_timer_next(11 * MS, 0), None);
}

//! Properties of the order among domains (`src/bpf/decide/order.h`): the heap, and what each of the three orders
//! promises. The bounds are those of docs/scheduler.md, with the machine's quantum in place of the tick.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A table with domains of these weights below the root, at `ROOT_DOMAIN + 1` and after.
fn table(order: Order, cpus: u32, weights: &[u32]) -> Box<DomainTable> {
    let mut table = DomainTable::new();
    table.cpus = cpus;
    for (place, weight) in weights.iter().enumerate() {
        let index = ROOT_DOMAIN + 1 + place as u16;
        let domain = table.at_mut(index);
        (domain.parent, domain.depth, domain.weight) = (ROOT_DOMAIN, 1, *weight);
        (domain.cgroup_weight, domain.priority, domain.own_priority) =
            (*weight, PRIORITY_DEFAULT, PRIORITY_DEFAULT);
    }
    table.set_order(order, 500 * MS);
    table
}

/// What a task does: for ever CPU time, then time elsewhere (0: never leaves the CPU).
#[derive(Debug, Clone, Copy)]
struct Habit {
    run_ns: u64,
    away_ns: u64,
}

const BUSY: Habit = Habit { run_ns: u64::MAX, away_ns: 0 };

#[derive(Debug, Clone)]
struct Task {
    habit: Habit,
    /// What is left of this turn on the CPU.
    left_ns: u64,
    /// When it is back, if it is away.
    back_ns: Option<u64>,
    /// Since when it wants the CPU without having it.
    waits_since_ns: u64,
    on_cpu: bool,
    used_ns: u64,
    /// Time with the CPU, and waiting for it.
    present_ns: u64,
    longest_wait_ns: u64,
}

/// A machine whose CPUs choose anew each quantum, with one task in each domain.
struct Machine {
    table: Box<DomainTable>,
    tasks: Vec<Task>,
    quantum_ns: u64,
    now_ns: u64,
    /// Called after each quantum.
    record: Vec<Vec<u64>>,
}

impl Machine {
    fn new(table: Box<DomainTable>, habits: &[Habit], quantum_ns: u64) -> Self {
        let tasks = habits
            .iter()
            .map(|habit| Task {
                habit: *habit,
                left_ns: habit.run_ns,
                back_ns: Some(0),
                waits_since_ns: 0,
                on_cpu: false,
                used_ns: 0,
                present_ns: 0,
                longest_wait_ns: 0,
            })
            .collect();
        Machine { table, tasks, quantum_ns, now_ns: 0, record: Vec::new() }
    }

    fn index(task: usize) -> u16 {
        ROOT_DOMAIN + 1 + task as u16
    }

    fn set_runnable(&mut self, task: usize, runnable: bool) {
        let domain = self.table.at_mut(Self::index(task));
        (domain.runnable, domain.runnable_weight) = (runnable.into(), if runnable { 1000 } else { 0 });
        self.table.settle(Self::index(task));
    }

    fn queue(&mut self, task: usize) {
        let standing = self.table.standing(Self::index(task));
        self.table.enqueue(Self::index(task), standing, self.now_ns);
    }

    /// One quantum: who is back queues, the first domains are served, and they pay.
    fn step(&mut self) {
        for task in 0..self.tasks.len() {
            if self.tasks[task].back_ns.is_some_and(|back_ns| back_ns <= self.now_ns) {
                (self.tasks[task].back_ns, self.tasks[task].waits_since_ns) = (None, self.now_ns);
                self.set_runnable(task, true);
                self.queue(task);
            }
        }
        let mut served = Vec::new();
        while served.len() < self.table.cpus as usize {
            let Some(first) = self.table.first() else { break };
            self.table.serve(first);
            self.table.dequeue(first);
            served.push((first - ROOT_DOMAIN - 1) as usize);
        }
        for (place, task) in self.tasks.iter_mut().enumerate() {
            let serving = served.contains(&place);
            if serving && !task.on_cpu {
                task.longest_wait_ns = task.longest_wait_ns.max(self.now_ns - task.waits_since_ns);
            } else if task.on_cpu && !serving {
                task.waits_since_ns = self.now_ns;
            }
            task.on_cpu = serving;
            if task.back_ns.is_none() {
                task.present_ns += self.quantum_ns;
            }
        }
        self.now_ns += self.quantum_ns;
        for task in served {
            let used_ns = self.quantum_ns.min(self.tasks[task].left_ns);
            let standing = self.table.standing(Self::index(task));
            self.table.charge(Self::index(task), used_ns, standing, self.now_ns);
            let state = &mut self.tasks[task];
            state.used_ns += used_ns;
            if state.habit.away_ns > 0 {
                state.left_ns -= used_ns;
            }
            if state.left_ns == 0 {
                (state.left_ns, state.back_ns, state.on_cpu) =
                    (state.habit.run_ns, Some(self.now_ns + state.habit.away_ns), false);
                self.set_runnable(task, false);
            } else {
                self.queue(task);
            }
        }
        self.record.push(self.tasks.iter().map(|task| task.used_ns).collect());
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            self.step();
        }
    }

    /// What a task was served in each window of this length, from every quantum on.
    fn windows(&self, task: usize, length_ns: u64) -> impl Iterator<Item = u64> {
        let steps = (length_ns / self.quantum_ns) as usize;
        self.record
            .iter()
            .zip(&self.record[steps.min(self.record.len())..])
            .map(move |(a, b)| b[task] - a[task])
    }
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    vec(prop_oneof![Just(1000u32), 200..=5000u32], 2..10)
}

/// A step of the test of the heap.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(u16),
    Dequeue(u16),
    Charge(u16, u64),
    Stand(u16, bool),
    Serve(u64),
    Postpone,
}

fn step(domains: u16) -> impl Strategy<Value = Step> {
    let index = move || 2..=domains + 1;
    let used = prop_oneof![1..10 * MS, 1..2 * SECOND];
    prop_oneof![
        3 => index().prop_map(Step::Enqueue),
        2 => index().prop_map(Step::Dequeue),
        2 => (index(), used.clone()).prop_map(|(index, used)| Step::Charge(index, used)),
        2 => (index(), any::<bool>()).prop_map(|(index, behind)| Step::Stand(index, behind)),
        2 => used.prop_map(Step::Serve),
        1 => Just(Step::Postpone),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::MtrLs), Just(Order::Wrr), Just(Order::Vtime)]
}

/// Those that do not have to stand behind, and those that do.
fn heaps(table: &DomainTable) -> [&[HeapEntry]; 2] {
    let (ahead, behind) = table.heap.split_at(DOMAINS_MAX);
    [&ahead[..table.heap_counts[0] as usize], &behind[..table.heap_counts[1] as usize]]
}

/// How many entries of the heaps changed, beyond those that came or went.
fn moves(before: &[Vec<HeapEntry>], after: [&[HeapEntry]; 2]) -> usize {
    let pairs = before.iter().zip(after).flat_map(|(before, after)| before.iter().zip(after));
    pairs.filter(|(a, b)| a.index != b.index).count()
}

/// `expected` says of those that wait whether they have to stand behind.
fn check_heaps(table: &DomainTable, expected: &BTreeMap<u16, bool>) -> Result<(), TestCaseError> {
    prop_assert_eq!(table.waiting() as usize, expected.len());
    for (heap, behind) in heaps(table).into_iter().zip([false, true]) {
        for (position, entry) in heap.iter().enumerate() {
            let index = entry.index as u16;
            prop_assert_eq!(table.position[index as usize] as usize, position);
            prop_assert_eq!(expected.get(&index), Some(&behind));
            prop_assert!(table.at(index).queued == 1 && (table.at(index).behind == 1) == behind);
            prop_assert_eq!(entry.key, table.at(index).key);
            // Keys wrap around: only distances can be compared.
            prop_assert!(entry.key.wrapping_sub(heap[0].key) as i64 >= 0);
        }
    }
    let first = table.first();
    prop_assert_eq!(first.is_some(), !expected.is_empty());
    prop_assert!(first.is_none_or(|first| !expected[&first] || expected.values().all(|behind| *behind)));
    // One that runs may go on if a search finds none before it, whether it stands in a heap itself or not.
    for running in [2, 3, 101] {
        let domain = table.at(running);
        let both = [false, true].into_iter();
        for behind in both.filter(|behind| domain.queued == 0 || (domain.behind == 1) == *behind) {
            let found = expected.iter().any(|(index, waits_behind)| {
                let is_earlier = (table.at(*index).key.wrapping_sub(domain.key) as i64) < 0;
                *index != running && (!waits_behind && behind || *waits_behind == behind && is_earlier)
            });
            prop_assert_eq!(table.nobody_before(running, behind), !found);
        }
    }
    Ok(())
}

/// The tokens of a domain: as many as it says, in order, and they sum to what it says.
fn check_tokens(domain: &Domain) -> Result<(), TestCaseError> {
    let places = (0..domain.token_count).map(|place| (domain.first_token + place) as usize % TOKENS_MAX);
    let tokens: Vec<Token> = places.map(|place| domain.tokens[place]).collect();
    prop_assert!(tokens.len() <= TOKENS_MAX);
    prop_assert!(
        tokens.windows(2).all(|pair| pair[1].stamp.wrapping_sub(pair[0].stamp) as i64 >= 0),
        "{tokens:?}"
    );
    prop_assert_eq!(tokens.iter().map(|token| token.left_ns).sum::<u64>(), domain.tokens_ns);
    Ok(())
}

/// How far the services of two busy domains, divided by their weights, move apart within so many seconds, beside `others` that
/// come and go together: in cycles of what the two of them hold.
fn distance_in_cycles(weights: [u32; 2], others: usize, habit: Habit, seconds: u64) -> f64 {
    let all: Vec<u32> = weights.into_iter().chain(vec![1000; others]).collect();
    let mut habits = vec![BUSY; 2];
    habits.resize(all.len(), habit);
    let mut machine = Machine::new(table(Order::MtrLs, 1, &all), &habits, MS);
    machine.run(seconds * SECOND);
    let ahead =
        |step: &Vec<u64>| step[0] as f64 / f64::from(weights[0]) - step[1] as f64 / f64::from(weights[1]);
    let (least, most) = machine
        .record
        .iter()
        .map(ahead)
        .fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
    (most - least) * f64::from(weights[0] + weights[1]) / (500 * MS) as f64
}

/// Where the shares of two busy domains change several times a cycle: one that is small, and the widest distance that
/// was seen. docs/scheduler.md says why it grows there.
#[test]
fn two_busy_domains_stay_close_where_shares_change_within_a_cycle() {
    let seldom = Habit { run_ns: 55 * MS, away_ns: 271 * MS };
    let distance = distance_in_cycles([2069, 369], 8, seldom, 40);
    assert!(distance < 1.5, "{distance} cycles");
    let in_step = Habit { run_ns: 15 * MS, away_ns: 10 * MS };
    let distance = distance_in_cycles([1444, 414], 1, in_step, 10);
    assert!(distance < 4.0, "{distance} cycles");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_first_domain_always_has_the_least_key_and_a_change_moves_few(
        order in order(),
        steps in vec(step(200), 1..400),
        start in prop_oneof![Just(SECOND), Just(u64::MAX - 10 * SECOND)],
    ) {
        let mut table = table(order, 1, &[1000; 200]);
        if order != Order::Wrr {
            (table.clock, table.served_ns) = (start, start);
            (2..=201).for_each(|index| table.reset(index));
        }
        // Whether each has to stand behind, and the same of those that wait.
        let mut behind = vec![false; 202];
        let mut waiting = BTreeMap::new();
        for (now_ms, step) in steps.into_iter().enumerate() {
            let now_ns = now_ms as u64 * 7 * MS;
            let before = heaps(&table).map(<[HeapEntry]>::to_vec);
            let share = Standing::of_share(SHARE_ONE / 200);
            let standing = |index: u16| if behind[usize::from(index)] { share.behind() } else { share };
            match step {
                Step::Enqueue(index) => {
                    table.enqueue(index, standing(index), now_ns);
                    waiting.entry(index).or_insert(behind[usize::from(index)]);
                }
                Step::Dequeue(index) => {
                    table.dequeue(index);
                    waiting.remove(&index);
                }
                Step::Charge(index, used_ns) => {
                    // The caller's duty under virtual time: one that was away long is put near the clock first.
                    let ahead = table.at(index).key.wrapping_sub(table.clock.wrapping_sub(SLICE_NS)) as i64;
                    if order != Order::Vtime || ahead >= 0 {
                        table.charge(index, used_ns, standing(index), now_ns);
                    }
                }
                Step::Stand(index, is_behind) => {
                    behind[usize::from(index)] = is_behind;
                }
                Step::Serve(used_ns) => {
                    if let Some(first) = table.first() {
                        table.serve(first);
                        table.charge(first, used_ns, standing(first), now_ns);
                    }
                }
                Step::Postpone => {
                    if let Some(first) = table.first() {
                        table.step_back(first);
                    }
                }
            }
            check_heaps(&table, &waiting)?;
            // 200 domains stand in 5 levels; one that changes heaps moves some in both.
            prop_assert!(moves(&before, heaps(&table)) <= 10);
        }
    }

    #[test]
    fn tokens_stay_in_order_and_sum_to_what_the_domain_is_due_whatever_its_share_does(
        steps in vec((1..6 * MS, 1..=SHARE_ONE, 0..50 * MS), 1..300),
    ) {
        let mut table = table(Order::MtrLs, 4, &[1000]);
        for (used_ns, share, others_ns) in steps {
            table.served_ns += others_ns;
            let before_ns = table.at(2).tokens_ns;
            table.charge(2, used_ns, Standing::of_share(share), 0);
            check_tokens(table.at(2))?;
            let (held_ns, due_ns) = (table.at(2).tokens_ns as f64, table.due(share) as f64);
            // The factor is kept in 2^-20ths.
            let rounding_ns = before_ns as f64 / 1048576.0 + 100.0;
            prop_assert!((held_ns - due_ns).abs() <= due_ns / 200.0 + rounding_ns, "{held_ns} held of {due_ns}");
        }
    }

    #[test]
    fn what_busy_domains_use_follows_their_shares_under_every_order(
        // The other orders have no such bound on several CPUs.
        ((order, cpus), weights) in (prop_oneof![(order(), Just(1)), (Just(Order::MtrLs), 2u32..=3)], weights())
            .prop_filter("one task cannot use more than one CPU, nor quite one beside others", |((_, cpus), weights)| {
                let sum: u32 = weights.iter().sum();
                *cpus == 1 || weights.iter().all(|weight| weight * cpus <= sum * 9 / 10)
            }),
        quantum_ns in MS..=4 * MS,
    ) {
        let sum: u32 = weights.iter().sum();
        let mut machine = Machine::new(table(order, cpus, &weights), &vec![BUSY; weights.len()], quantum_ns);
        machine.run(20 * SECOND);
        for (task, weight) in weights.iter().enumerate() {
            let share = *weight as f64 / sum as f64;
            let ideal_ns = share * cpus as f64 * machine.now_ns as f64;
            let window_ns = 500.0 * MS as f64 * cpus as f64;
            // A cycle's share at each end, and a quantum for each domain. Under WRR what
            // goes beyond a cycle is forgotten.
            let forgotten_ns = if order == Order::Wrr { ideal_ns * 0.8 } else { ideal_ns / 200.0 };
            let bound_ns = 2.0 * share * window_ns + (weights.len() + 1) as f64 * quantum_ns as f64 + forgotten_ns;
            let error_ns = (machine.tasks[task].used_ns as f64 - ideal_ns).abs();
            prop_assert!(error_ns <= bound_ns, "{error_ns} above {bound_ns} of {ideal_ns} for a share of {share}");
        }
    }

    #[test]
    fn under_mtr_ls_nobody_loses_a_fiftieth_of_its_share_and_a_small_one_gains_little_whatever_the_quantum(
        weights in weights(), quantum_ns in MS / 2..=6 * MS,
    ) {
        let sum: u32 = weights.iter().sum();
        let mut machine = Machine::new(table(Order::MtrLs, 1, &weights), &vec![BUSY; weights.len()], quantum_ns);
        machine.run(60 * SECOND);
        for (task, weight) in weights.iter().enumerate() {
            let ideal_ns = machine.now_ns as f64 * f64::from(*weight) / f64::from(sum);
            // What the clamps and a cycle's ends leave is constant: less than a quarter of a cycle, and a quantum.
            let constant_ns = 125.0 * MS as f64 * f64::from(*weight) / f64::from(sum) + quantum_ns as f64;
            let used_ns = machine.tasks[task].used_ns as f64;
            // The clamps favour a small domain beside a very large one: it gains a twentieth of its own share at most.
            prop_assert!(used_ns >= ideal_ns * 0.98 - constant_ns && used_ns <= ideal_ns * 1.06 + constant_ns,
                "{used_ns} of {ideal_ns}, give or take {constant_ns}, weight {weight} of {weights:?}");
        }
    }

    #[test]
    fn under_mtr_ls_a_busy_domain_gets_its_fraction_in_every_cycle_and_a_quantum_of_each_other(
        weights in weights(), quantum_ns in MS..=4 * MS,
    ) {
        let sum: u32 = weights.iter().sum();
        let mut machine = Machine::new(table(Order::MtrLs, 1, &weights), &vec![BUSY; weights.len()], quantum_ns);
        machine.run(8 * SECOND);
        // T, a token's width at either end, and for each domain a quantum by which it may go beyond a token.
        let cycle_ns = 500 * MS * 9 / 8 + weights.len() as u64 * quantum_ns;
        for (task, weight) in weights.iter().enumerate() {
            let due_ns = 500 * MS * u64::from(*weight) / u64::from(sum);
            // From the second second on: the tokens of all began at one moment, and spread out in the first cycles.
            let begun = (SECOND / quantum_ns) as usize;
            let least_ns = machine.windows(task, cycle_ns).skip(begun).min().unwrap();
            prop_assert!(least_ns as f64 >= 0.94 * due_ns as f64 - quantum_ns as f64,
                "{least_ns} of {due_ns} in some cycle, weight {weight} of {weights:?}");
        }
    }

    /// Eclipse 1998, definition 1. The domain is one that takes some CPU time, goes elsewhere and comes back, against
    /// others that never leave; its time with and waiting for the CPU stays within what its fraction alone would take, and
    /// a constant.
    #[test]
    fn mtr_ls_guarantees_cumulative_service(
        others in 1usize..40, share in 0.1..0.6f64, run_ms in 1u64..40, away_ms in 1u64..60,
    ) {
        let quantum_ns = MS;
        let own = (share / (1.0 - share) * 1000.0 * others as f64) as u32;
        let mut weights = vec![1000; others];
        weights.push(own);
        let mut habits = vec![BUSY; others];
        habits.push(Habit { run_ns: run_ms * MS, away_ns: away_ms * MS });
        let mut machine = Machine::new(table(Order::MtrLs, 1, &weights), &habits, quantum_ns);
        let mut worst_ns = 0.0f64;
        while machine.now_ns < 12 * SECOND {
            machine.step();
            let task = machine.tasks.last().unwrap();
            // What the paper's admission leaves free pays for the quanta: a cycle takes T and one of each other.
            let stretch = 1.0 + others as f64 * quantum_ns as f64 / (500 * MS) as f64;
            worst_ns = worst_ns.max(task.present_ns as f64 - task.used_ns as f64 / share * stretch);
        }
        let constant_ns = (1.0 - share) * 500.0 * MS as f64 * 1.125 + (others as u64 + 2) as f64 * quantum_ns as f64;
        prop_assert!(worst_ns <= constant_ns, "{worst_ns} beyond {constant_ns}");
    }

    /// The delay bound, and that those who use little of their share wait for nobody (Eclipse 1998, section 7).
    #[test]
    fn under_mtr_ls_a_domain_that_uses_half_its_share_waits_at_most_a_quantum(
        others in 1usize..64, run_ms in 1u64..5, quantum_ms in 1u64..=4, seed in 1u64..1000,
    ) {
        let mut weights = vec![1000; others];
        weights.push(1000);
        // Its turns take at most half of its share, and come back at uneven times.
        let away_ns = run_ms * MS * 2 * (others as u64 + 1) + seed * 1000;
        let onoff = Habit { run_ns: 11 * MS, away_ns: 5 * MS };
        let mut habits: Vec<Habit> = (0..others).map(|place| if place % 2 == 0 { BUSY } else { onoff }).collect();
        habits.push(Habit { run_ns: run_ms * MS, away_ns });
        let mut machine = Machine::new(table(Order::MtrLs, 1, &weights), &habits, quantum_ms * MS);
        machine.run(8 * SECOND);
        // The first cycle begins for all alike.
        machine.tasks.last_mut().unwrap().longest_wait_ns = 0;
        machine.run(20 * SECOND);
        let wait_ns = machine.tasks.last().unwrap().longest_wait_ns;
        prop_assert!(wait_ns <= 2 * quantum_ms * MS, "{wait_ns} ns");
    }

    /// Eclipse 1998, definition 3: for domains that both want the CPU all the time, whatever the others do.
    #[test]
    fn mtr_ls_is_fair(others in 0usize..10, weights in vec(300u32..3000, 2), run_ms in 1u64..300, away_ms in 1u64..300) {
        let habit = Habit { run_ns: run_ms * MS, away_ns: away_ms * MS };
        let distance = distance_in_cycles([weights[0], weights[1]], others, habit, 10);
        // Each is ahead or behind by at most a cycle and a half; 1.5 % for the rounding of tokens over 10 s. A few sets in which the
        // others come and go in step with one of the two are beyond it: see the test of the widest distance.
        let seconds_in_cycles = 10.0 * SECOND as f64 / (500 * MS) as f64;
        let smallest = f64::from(*weights.iter().min().unwrap()) / f64::from(weights[0] + weights[1]);
        let quanta = 4.0 * MS as f64 / smallest / (500 * MS) as f64;
        let bound = 3.0 + 0.015 * seconds_in_cycles + quanta;
        prop_assert!(distance <= bound, "{distance} cycles, above {bound}");
    }

    #[test]
    fn under_virtual_time_a_domain_never_falls_further_behind_the_clock_than_the_bound(
        charges in vec((1..SECOND, 1..=SHARE_ONE), 1..100),
    ) {
        let mut table = table(Order::Vtime, 1, &[1000]);
        table.clock = 5 * SECOND;
        table.reset(2);
        for (used_ns, share) in charges {
            table.charge(2, used_ns, Standing::of_share(share), 0);
            prop_assert!(table.at(2).key <= table.clock + DOMAIN_LAG_MAX_NS);
        }
    }

    #[test]
    fn a_larger_reservation_holds_at_once(share in SHARE_ONE / 100..SHARE_ONE / 4, factor in 2u64..4) {
        let mut table = table(Order::MtrLs, 1, &[1000]);
        table.charge(2, MS, Standing::of_share(share), 0);
        let held_ns = table.at(2).tokens_ns;
        table.refresh(2, Standing::of_share(share * factor));
        let ratio = table.at(2).tokens_ns as f64 / held_ns as f64;
        prop_assert!((ratio / factor as f64 - 1.0).abs() < 0.02, "{ratio} instead of {factor}");
        check_tokens(table.at(2))?;
    }
}

/// Two domains that came one after the other, so that the first used its whole share in one go.
#[test]
fn under_mtr_ls_service_in_one_go_is_spread_evenly_after_some_cycles() {
    let mut machine = Machine::new(table(Order::MtrLs, 1, &[1000, 1000]), &[BUSY, BUSY], MS);
    machine.tasks[1].back_ns = Some(10 * SECOND);
    machine.run(12 * SECOND);
    machine.tasks.iter_mut().for_each(|task| task.longest_wait_ns = 0);
    machine.run(14 * SECOND);
    for task in &machine.tasks {
        assert!(task.longest_wait_ns <= 70 * MS, "{} ms", task.longest_wait_ns / MS);
    }
}

/// The experiment of Eclipse 1998, figure 11, on the decision code alone: a sleeper against programs that use 11 ms and
/// sleep 5 ms.
#[test]
fn the_delay_of_a_sleeper_is_bounded_under_mtr_ls_and_grows_under_wrr() {
    let delay = |order, others: usize| {
        let mut habits = vec![Habit { run_ns: 11 * MS, away_ns: 5 * MS }; others];
        habits.push(Habit { run_ns: MS, away_ns: 99 * MS });
        let mut machine = Machine::new(table(order, 1, &vec![1000; others + 1]), &habits, MS);
        machine.run(4 * SECOND);
        machine.tasks[others].longest_wait_ns = 0;
        machine.run(20 * SECOND);
        machine.tasks[others].longest_wait_ns
    };
    assert!(delay(Order::MtrLs, 4) <= MS && delay(Order::MtrLs, 32) <= MS);
    assert!(delay(Order::Wrr, 32) >= 16 * MS, "{}", delay(Order::Wrr, 32));
}

//! Properties of the order of domains (`src/bpf/decide/heap.h`, `order.h`): the heaps, and what each order promises.
//! The bounds are those of docs/scheduler.md, with the machine's quantum in place of the tick.

mod order_machine;

use std::collections::BTreeMap;

use order_machine::{BUSY, Branch, CYCLE, Habit, MS, Machine, SECOND, branch, index_of, table};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use steward_sched::decide::*;

fn weights() -> impl Strategy<Value = Vec<u32>> {
    vec(prop_oneof![Just(1000u32), 200..=5000u32], 2..10)
}

fn branches(weights: &[u32]) -> Vec<Branch> {
    weights.iter().map(|weight| branch(*weight)).collect()
}

/// The nodes of a heap, with what is to hold of each: it comes after the one above, knows it, and its rank is right.
fn walk(
    table: &DomainTable,
    node: u16,
    up: u16,
    heap: usize,
    found: &mut Vec<u16>,
) -> Result<u8, TestCaseError> {
    if node == 0 {
        return Ok(0);
    }
    let entry = table.nodes[node as usize];
    prop_assert_eq!((entry.up, entry.heap as usize), (up, heap + 1));
    if up != 0 {
        let after = table.keys[node as usize].wrapping_sub(table.keys[up as usize]) as i64;
        prop_assert!(after >= 0, "node {node} comes before the one above it");
    }
    let left = walk(table, entry.left, node, heap, found)?;
    let right = walk(table, entry.right, node, heap, found)?;
    prop_assert!(left >= right, "node {node} has the nearer way out to the left");
    prop_assert_eq!(entry.rank, right + 1);
    found.push(node);
    Ok(entry.rank)
}

/// Checks the heaps of all levels against those domains that are known to wait.
fn check_heaps(table: &DomainTable, waiting: &BTreeMap<u16, ()>) -> Result<(), TestCaseError> {
    // Who contends at each level: own tasks that wait, and domains that are not held and in or below which somebody
    // waits.
    let mut wanted: BTreeMap<(u16, u16), bool> = BTreeMap::new();
    for index in waiting.keys() {
        let (mut node, mut level) = (NODE_OWN as u16 + index, *index);
        loop {
            wanted.insert((level, node), false);
            let d = table.at(level);
            if d.parent == 0 || d.parked == 1 {
                break;
            }
            (node, level) = (level, d.parent);
        }
    }
    for level in 1..table.high_water as u16 {
        let d = table.at(level);
        for (heap, first) in d.first.iter().enumerate() {
            let mut found = Vec::new();
            walk(table, *first, 0, heap, &mut found)?;
            for node in found {
                if heap < PRIORITIES {
                    let seen = wanted.get_mut(&(level, node));
                    prop_assert!(seen.is_some(), "node {node} stands at level {level}");
                    *seen.unwrap() = true;
                }
            }
            if heap < PRIORITIES {
                prop_assert_eq!(*first != 0, d.waiting_priorities >> heap & 1 == 1);
            }
        }
    }
    prop_assert!(wanted.values().all(|seen| *seen), "{wanted:?}");
    prop_assert_eq!(table.waiting as usize, waiting.len());
    Ok(())
}

/// The domain that a search of the whole tree finds to be first.
fn search(table: &DomainTable, waiting: &BTreeMap<u16, ()>) -> Option<u16> {
    let held = |index: &u16| {
        let mut above = *index;
        while above != 0 {
            if table.at(above).parked == 1 {
                return true;
            }
            above = table.at(above).parent;
        }
        false
    };
    let candidates: Vec<u16> = waiting.keys().filter(|index| !held(index)).copied().collect();
    candidates.iter().find(|a| candidates.iter().all(|b| !table.precedes(*b, **a))).copied()
}

/// A step of the test of the heaps.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(u16),
    Dequeue(u16),
    Charge(u16, u64),
    Serve(u64),
    Hold(u16),
    Policy(u16, u8, u32),
}

fn step(domains: u16) -> impl Strategy<Value = Step> {
    let index = move || 2..=domains + 1;
    let used = prop_oneof![1..10 * MS, 1..2 * SECOND];
    prop_oneof![
        6 => index().prop_map(Step::Enqueue),
        3 => index().prop_map(Step::Dequeue),
        2 => (index(), used.clone()).prop_map(|(index, used)| Step::Charge(index, used)),
        4 => used.prop_map(Step::Serve),
        1 => index().prop_map(Step::Hold),
        1 => (index(), 3u8..6, 0..SHARE_ONE as u32 / 128).prop_map(|(index, p, r)| Step::Policy(index, p, r)),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::VirtualTime), Just(Order::MtrLs), Just(Order::Wrr)]
}

/// A random tree of `count` domains: each has a parent among those before it, three levels deep at most.
fn tree(count: usize) -> impl Strategy<Value = Vec<Branch>> {
    let one = (prop_oneof![Just(1000u32), 100..=10_000u32], any::<prop::sample::Index>(), any::<bool>());
    vec(one, count).prop_map(|all| {
        let mut branches: Vec<Branch> = Vec::new();
        for (weight, above, top) in all {
            let parent = if top || branches.is_empty() { None } else { Some(above.index(branches.len())) };
            let depth = |mut place: Option<usize>| {
                let mut depth = 0;
                while let Some(above) = place {
                    (place, depth) = (branches[above].parent, depth + 1);
                }
                depth
            };
            let parent = parent.filter(|_| depth(parent) < 3);
            branches.push(Branch { parent, ..branch(weight) });
        }
        branches
    })
}

/// The part of all CPU time that a busy task of each domain is due, by the recursive definition: every domain is busy.
fn ideal(branches: &[Branch]) -> Vec<f64> {
    let own = |place: usize| {
        let below = branches.iter().filter(|other| other.parent == Some(place));
        let weight: f64 = below.map(|other| f64::from(other.weight)).sum();
        1000.0 / (1000.0 + weight)
    };
    let mut whole = vec![0.0; branches.len()];
    for (place, branch) in branches.iter().enumerate() {
        let beside: f64 = branches
            .iter()
            .filter(|other| other.parent == branch.parent)
            .map(|other| f64::from(other.weight))
            .sum();
        // The own task of the parent stands beside its children; the root has none of its own here.
        let (above, own) = branch.parent.map_or((1.0, 0.0), |parent| (whole[parent], 1000.0));
        whole[place] = above * f64::from(branch.weight) / (beside + own);
    }
    (0..branches.len()).map(|place| whole[place] * own(place)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_heaps_hold_who_waits_in_order_and_the_first_is_what_a_search_finds(
        order in order(),
        tree in tree(40),
        steps in vec(step(40), 1..300),
        start in prop_oneof![Just(SECOND), Just(u64::MAX - 10 * SECOND)],
    ) {
        let mut table = table(order, 1, &tree);
        if order != Order::Wrr {
            for level in 1..=41 {
                (table.at_mut(level).clocks, table.at_mut(level).served_ns) = ([start; PRIORITIES], start);
            }
            (2..=41).for_each(|index| table.reset(index));
        }
        let mut cpu = CpuOrder::new();
        let mut waiting = BTreeMap::new();
        for (now_ms, step) in steps.into_iter().enumerate() {
            let now_ns = now_ms as u64 * 7 * MS;
            match step {
                Step::Enqueue(index) => {
                    table.enqueue(index, now_ns);
                    waiting.insert(index, ());
                }
                Step::Dequeue(index) => {
                    table.dequeue(index);
                    waiting.remove(&index);
                }
                Step::Charge(index, used_ns) => table.charge(index, used_ns, now_ns),
                Step::Serve(used_ns) => {
                    if let Some(first) = table.first() {
                        table.serve(&mut cpu, first);
                        table.charge(first, used_ns, now_ns);
                    }
                }
                Step::Hold(index) if table.at(index).parked == 1 => table.unpark(index, now_ns),
                Step::Hold(index) => table.park(index),
                Step::Policy(index, priority, reserved) => {
                    table.set_policy(index, &Policy::new(priority, 0, reserved, PRIORITY_DEFAULT, 0));
                }
            }
            check_heaps(&table, &waiting)?;
            let first = table.first();
            prop_assert_eq!(first.is_some(), search(&table, &waiting).is_some());
            // Among equals any may be the first.
            if let Some(first) = first {
                prop_assert!(waiting.keys().all(|other| !table.precedes(*other, first) || search(&table, &waiting) == Some(first)
                    || is_below_parked(&table, *other)), "{first}");
            }
        }
    }

    #[test]
    fn what_busy_domains_use_follows_the_recursive_definition_to_the_slice(
        tree in tree(12), quantum_ns in MS..=4 * MS,
    ) {
        let mut machine = Machine::new(table(Order::VirtualTime, 1, &tree), &vec![BUSY; tree.len()], quantum_ns);
        machine.run(20 * SECOND);
        for (place, share) in ideal(&tree).into_iter().enumerate() {
            let error_ns = machine.tasks[place].used_ns as f64 - share * machine.now_ns as f64;
            // At each of four levels a slice, and its own.
            prop_assert!(error_ns.abs() <= 5.0 * quantum_ns as f64, "{place}: {error_ns} of a share of {share}");
        }
    }

    #[test]
    fn what_busy_domains_use_follows_their_weights_under_every_order_and_on_several_cpus(
        ((order, cpus), weights) in (prop_oneof![
            (Just(Order::VirtualTime), 1u32..=4), (Just(Order::MtrLs), 1u32..=3), (Just(Order::Wrr), Just(1)),
        ], weights())
            .prop_filter("one task cannot use more than one CPU, nor quite one beside others", |((_, cpus), weights)| {
                let sum: u32 = weights.iter().sum();
                *cpus == 1 || weights.iter().all(|weight| weight * cpus <= sum * 9 / 10)
            }),
        quantum_ns in MS..=4 * MS,
    ) {
        let sum: u32 = weights.iter().sum();
        let mut machine =
            Machine::new(table(order, cpus, &branches(&weights)), &vec![BUSY; weights.len()], quantum_ns);
        machine.run(20 * SECOND);
        for (task, weight) in weights.iter().enumerate() {
            let share = f64::from(*weight) / f64::from(sum);
            let ideal_ns = share * f64::from(cpus) * machine.now_ns as f64;
            let quanta_ns = (weights.len() + 1) as f64 * quantum_ns as f64;
            let bound_ns = match order {
                // A slice, and those that the others are in the middle of.
                Order::VirtualTime => f64::from(cpus + 1) * quantum_ns as f64 + 2.0 * quantum_ns as f64,
                // A cycle's share at each end, a quantum for each domain and at each end; and what is paid coarsely
                // where a part is near a quantum.
                Order::MtrLs => {
                    let ends_ns = 2.0 * (share * (CYCLE * u64::from(cpus)) as f64 + quantum_ns as f64);
                    ends_ns + quanta_ns + ideal_ns / 8.0
                }
                // What goes beyond a cycle is forgotten.
                Order::Wrr => 2.0 * share * CYCLE as f64 + quanta_ns + ideal_ns * 0.8,
            };
            let error_ns = (machine.tasks[task].used_ns as f64 - ideal_ns).abs();
            prop_assert!(error_ns <= bound_ns, "{error_ns} above {bound_ns} of {ideal_ns} for a share of {share}, {weights:?}");
        }
    }

    /// Eclipse 1998, definition 3, without an exception: over a minute, whatever comes and goes beside them, on any
    /// number of CPUs.
    #[test]
    fn two_busy_domains_stay_within_some_slices_of_each_other_whatever_the_others_do(
        others in 0usize..10, own in vec(300u32..3000, 2), run_ms in 1u64..300, away_ms in 1u64..300, cpus in 1u32..=4,
        quantum_ns in MS..=4 * MS,
    ) {
        let habit = Habit { run_ns: run_ms * MS, away_ns: away_ms * MS };
        let all: Vec<u32> = own.iter().copied().chain(vec![1000; others]).collect();
        let mut tasks: Vec<(u16, Habit, u64)> = Vec::new();
        // As many tasks as there are CPUs, so that each can use what it is due.
        for place in 0..2 {
            tasks.extend(vec![(index_of(place), BUSY, u64::MAX); cpus as usize]);
        }
        tasks.extend((2..all.len()).map(|place| (index_of(place), habit, u64::MAX)));
        let mut machine = Machine::with_tasks(table(Order::VirtualTime, cpus, &branches(&all)), &tasks, quantum_ns);
        machine.run(60 * SECOND);
        let m = cpus as usize;
        let (first, second): (Vec<usize>, Vec<usize>) = ((0..m).collect(), (m..2 * m).collect());
        let smallest = f64::from(own[0].min(own[1]));
        let groups = [(&first[..], f64::from(own[0])), (&second[..], f64::from(own[1]))];
        let distance = machine.distance(groups, 0) * smallest;
        // What each is in the middle of on every CPU, before and after.
        let bound = 2.0 * f64::from(cpus + 1) * quantum_ns as f64;
        prop_assert!(distance <= bound, "{distance} ns of the smaller one's service, above {bound}");
    }

    /// The same for two that are confined to some of the CPUs, where more is wanted than these have.
    #[test]
    fn two_busy_domains_that_are_confined_to_the_same_cpu_stay_close_beside_those_that_are_not(
        own in vec(300u32..3000, 2), free in 0u32..4, free_weight in 100u32..5000, confined in 1u64..=3,
    ) {
        let mut all = branches(&own);
        all.push(branch(free_weight));
        let mut tasks = Vec::new();
        for place in 0..2 {
            tasks.extend(vec![(index_of(place), BUSY, confined); 2]);
        }
        tasks.extend(vec![(index_of(2), BUSY, u64::MAX); free as usize]);
        let quantum_ns = 2 * MS;
        let mut machine = Machine::with_tasks(table(Order::VirtualTime, 4, &all), &tasks, quantum_ns);
        machine.run(30 * SECOND);
        let groups = [(&[0, 1][..], f64::from(own[0])), (&[2, 3][..], f64::from(own[1]))];
        let sum = f64::from(own[0] + own[1]);
        // Two tasks cannot use more than the CPUs that they are confined to.
        let cpus = if confined == 3 { 2.0 } else { 1.0 };
        prop_assume!(own.iter().all(|weight| f64::from(*weight) / sum * cpus < 2.0));
        let distance = machine.distance(groups, SECOND) * f64::from(own[0].min(own[1]));
        prop_assert!(distance <= 12.0 * quantum_ns as f64, "{distance} ns");
    }

    /// No CPU is idle while somebody waits who may run there, whatever is confined to what.
    #[test]
    fn no_cpu_is_idle_beside_work_that_may_run_there(
        cpus in 2u32..=6,
        tasks in vec((0usize..12, 1u64..64, prop_oneof![Just(BUSY), (1u64..50, 1u64..50).prop_map(|(run, away)|
            Habit { run_ns: run * MS, away_ns: away * MS })]), 1..40),
        weights in vec(100u32..5000, 12),
    ) {
        let all = (1u64 << cpus) - 1;
        let tasks: Vec<(u16, Habit, u64)> = tasks
            .into_iter()
            .map(|(place, mask, habit)| (index_of(place), habit, if mask & all == 0 { all } else { mask & all }))
            .collect();
        let mut machine =
            Machine::with_tasks(table(Order::VirtualTime, cpus, &branches(&weights)), &tasks, 2 * MS);
        for _ in 0..500 {
            machine.step();
            // What waits now is looked at again before the next choice: a CPU that chooses nothing must find nothing.
            let mut idle = Vec::new();
            for cpu in 0..cpus as usize {
                if machine.choose(cpu).is_none() {
                    idle.push(cpu);
                }
            }
            for cpu in idle {
                let waits = (0..12).any(|place| [false, true].into_iter()
                    .any(|restricted| machine.waiting(index_of(place), cpu, restricted).is_some()));
                prop_assert!(!waits, "CPU {cpu} is idle");
            }
        }
    }

    #[test]
    fn a_busy_domain_gets_its_fraction_in_every_cycle_and_a_quantum_of_each_other(
        order in prop_oneof![Just(Order::VirtualTime), Just(Order::MtrLs)],
        weights in weights(), quantum_ns in MS..=4 * MS,
    ) {
        let sum: u32 = weights.iter().sum();
        let mut machine = Machine::new(table(order, 1, &branches(&weights)), &vec![BUSY; weights.len()], quantum_ns);
        machine.run(8 * SECOND);
        // T, for tokens a width at either end, and for each domain a quantum by which it may go beyond.
        let cycle_ns = CYCLE * 9 / 8 + weights.len() as u64 * quantum_ns;
        for (task, weight) in weights.iter().enumerate() {
            let due_ns = CYCLE * u64::from(*weight) / u64::from(sum);
            let begun = (SECOND / quantum_ns) as usize;
            let least_ns = machine.windows(task, cycle_ns).skip(begun).min().unwrap();
            prop_assert!(least_ns as f64 >= 0.94 * due_ns as f64 - quantum_ns as f64,
                "{least_ns} of {due_ns} in some cycle, weight {weight} of {weights:?}");
        }
    }

    /// A reservation is its fraction of everything, and its weight's part of the rest, on one CPU and on several,
    /// whatever the priorities of others are.
    #[test]
    fn a_reservation_gets_its_fraction_and_its_weights_part_of_the_rest(
        reserved in vec(0.0..0.3f64, 3), weights in vec(300u32..3000, 4), above in any::<bool>(), cpus in 1u32..=4,
    ) {
        let mut all = branches(&weights);
        for (branch, reserved) in all.iter_mut().zip(&reserved) {
            branch.reserved = if *reserved < 0.03 { 0.0 } else { *reserved };
        }
        all[3].priority = if above { PRIORITY_DEFAULT + 1 } else { PRIORITY_DEFAULT };
        let tasks: Vec<(u16, Habit, u64)> =
            (0..4).flat_map(|place| vec![(index_of(place), BUSY, u64::MAX); cpus as usize]).collect();
        let mut machine = Machine::with_tasks(table(Order::VirtualTime, cpus, &all), &tasks, 2 * MS);
        machine.run(20 * SECOND);
        let rest = 1.0 - all.iter().map(|branch| branch.reserved).sum::<f64>();
        let sum: u32 = all.iter().filter(|branch| branch.priority == all[3].priority).map(|branch| branch.weight).sum();
        for (place, branch) in all.iter().enumerate() {
            let part = if branch.priority < all[3].priority { 0.0 } else { f64::from(branch.weight) / f64::from(sum) };
            let due_ns = (branch.reserved + rest * part) * f64::from(cpus) * machine.now_ns as f64;
            let m = cpus as usize;
            let used_ns: u64 = machine.tasks[place * m..(place + 1) * m].iter().map(|task| task.used_ns).sum();
            let error_ns = (used_ns as f64 - due_ns).abs();
            let bound_ns = (6 * cpus) as f64 * 2.0 * MS as f64 + f64::from(cpus) * RESERVED_DEBT_NS as f64;
            prop_assert!(error_ns <= bound_ns, "{place}: {error_ns} of {due_ns}, {all:?}");
        }
    }

    /// Eclipse 1998, definition 1. The domain is one that takes some CPU time, goes elsewhere and comes back, against
    /// others that never leave; its time with and waiting for the CPU stays within what its fraction alone would take,
    /// and a constant. The fraction is a weight's part or a reservation.
    #[test]
    fn cumulative_service_is_guaranteed(
        order in prop_oneof![Just(Order::VirtualTime), Just(Order::MtrLs)], is_reserved in any::<bool>(),
        others in 1usize..40, share in 0.1..0.6f64, run_ms in 1u64..40, away_ms in 1u64..60,
    ) {
        let quantum_ns = MS;
        let mut all = branches(&vec![1000; others]);
        let own = (share / (1.0 - share) * 1000.0 * others as f64) as u32;
        all.push(if is_reserved { Branch { reserved: share, ..branch(10) } } else { branch(own) });
        let mut habits = vec![BUSY; others];
        habits.push(Habit { run_ns: run_ms * MS, away_ns: away_ms * MS });
        let mut machine = Machine::new(table(order, 1, &all), &habits, quantum_ns);
        let mut worst_ns = 0.0f64;
        while machine.now_ns < 12 * SECOND {
            machine.step();
            let task = machine.tasks.last().unwrap();
            // What the paper's admission leaves free pays for the quanta: a cycle takes T and one of each other.
            let stretch = 1.0 + others as f64 * quantum_ns as f64 / CYCLE as f64;
            worst_ns = worst_ns.max(task.present_ns as f64 - task.used_ns as f64 / share * stretch);
        }
        let constant_ns = (1.0 - share) * CYCLE as f64 * 1.125 + (others as u64 + 2) as f64 * quantum_ns as f64;
        prop_assert!(worst_ns <= constant_ns, "{worst_ns} beyond {constant_ns}");
    }

    /// The delay bound, and that those who use little of their share wait for nobody (Eclipse 1998, section 7).
    #[test]
    fn a_domain_that_uses_half_its_share_waits_at_most_a_quantum(
        order in prop_oneof![Just(Order::VirtualTime), Just(Order::MtrLs)],
        others in 1usize..64, run_ms in 1u64..5, quantum_ms in 1u64..=4, seed in 1u64..1000,
    ) {
        // Its turns take at most half of its share, and come back at uneven times.
        let away_ns = run_ms * MS * 2 * (others as u64 + 1) + seed * 1000;
        let onoff = Habit { run_ns: 11 * MS, away_ns: 5 * MS };
        let mut habits: Vec<Habit> = (0..others).map(|place| if place % 2 == 0 { BUSY } else { onoff }).collect();
        habits.push(Habit { run_ns: run_ms * MS, away_ns });
        let mut machine = Machine::new(table(order, 1, &branches(&vec![1000; others + 1])), &habits, quantum_ms * MS);
        machine.run(8 * SECOND);
        // The first cycle begins for all alike.
        machine.tasks.last_mut().unwrap().longest_wait_ns = 0;
        machine.run(20 * SECOND);
        let wait_ns = machine.tasks.last().unwrap().longest_wait_ns;
        prop_assert!(wait_ns <= 2 * quantum_ms * MS, "{wait_ns} ns");
    }

    /// What a domain did not use is worth a cycle of its share to it when it comes back, and no more: it is through
    /// with it, and the others have their shares again, after a cycle.
    #[test]
    fn who_comes_back_takes_at_most_a_cycles_share_ahead_of_the_others(
        others in 1usize..20, weight in 200u32..5000, away_ms in 1u64..4000, cpus in 1u32..=2,
    ) {
        let mut all = branches(&vec![1000; others + 1]);
        all[others].weight = weight;
        let tasks: Vec<(u16, Habit, u64)> =
            (0..=others).flat_map(|place| vec![(index_of(place), BUSY, u64::MAX); cpus as usize]).collect();
        let mut machine = Machine::with_tasks(table(Order::VirtualTime, cpus, &all), &tasks, MS);
        let m = cpus as usize;
        for task in &mut machine.tasks[others * m..] {
            task.back_ns = Some(away_ms * MS);
        }
        machine.run(away_ms * MS + 10 * CYCLE);
        let sum = weight + 1000 * others as u32;
        let share = f64::from(weight) / f64::from(sum);
        let used_ns: u64 = machine.tasks[others * m..].iter().map(|task| task.used_ns).sum();
        let most_ns = share * (11 * CYCLE * u64::from(cpus)) as f64 + 2.0 * f64::from(cpus + 1) * MS as f64;
        prop_assert!(used_ns as f64 <= most_ns, "{used_ns} above {most_ns}");
        prop_assert!(used_ns as f64 >= share * (10 * CYCLE * u64::from(cpus)) as f64 - 4.0 * f64::from(cpus) * MS as f64);
    }

    /// Who uses little goes first with it, but gets no more than it is due, which may be less than a slice in a cycle.
    #[test]
    fn who_uses_little_gets_no_more_than_its_due(
        weight in 1u32..4, run_us in 100u64..300, away_ms in 60u64..200,
    ) {
        let mut machine = Machine::new(
            table(Order::VirtualTime, 1, &branches(&[1000, 1000, weight])),
            &[BUSY, BUSY, Habit { run_ns: run_us * 1000, away_ns: away_ms * MS }],
            MS,
        );
        // It begins with all of its credit.
        machine.tasks[2].back_ns = Some(2 * SECOND);
        machine.run(60 * SECOND);
        let due_ns = machine.now_ns as f64 * f64::from(weight) / f64::from(2000 + weight);
        // A slice with its credit, and its last turn.
        let most_ns = due_ns + (2 * SLICE_NS) as f64 + run_us as f64 * 1e3;
        let used_ns = machine.tasks[2].used_ns;
        prop_assert!(used_ns as f64 <= most_ns, "{used_ns} above {most_ns}");
    }

    /// An index that is given out again is served as one that was never used is, under every order, to the quantum.
    #[test]
    fn an_index_that_is_used_again_gets_what_a_new_one_gets(
        order in order(), weights in vec(300u32..3000, 2), quanta in 1u64..2000,
    ) {
        let begun = |again: bool| {
            let mut machine = Machine::new(table(order, 1, &branches(&weights)), &[BUSY, BUSY], 4 * MS);
            for _ in 0..quanta {
                machine.step();
            }
            let old = index_of(1);
            machine.set_runnable(1, false);
            machine.table.dequeue(old);
            machine.table.end(old);
            let index = if again { old } else { index_of(2) };
            machine.table.begin(index, ROOT_DOMAIN, weights[1]);
            let task = &mut machine.tasks[1];
            (task.domain, task.used_ns, task.longest_wait_ns, task.waits_since_ns) = (index, 0, 0, machine.now_ns);
            machine.set_runnable(1, true);
            machine.queue(1, 0);
            machine
        };
        let (mut again, mut new) = (begun(true), begun(false));
        for machine in [&again, &new] {
            let tokens = &machine.table.tokens[machine.tasks[1].domain as usize];
            let left_ns: u64 = tokens.ring.iter().map(|token| token.left_ns).sum();
            prop_assert_eq!(left_ns, tokens.held_ns, "what its tokens stand for, and what it holds");
        }
        for _ in 0..500 {
            again.step();
            new.step();
            let used = [&again, &new].map(|machine| machine.tasks[1].used_ns);
            prop_assert!(used[0].abs_diff(used[1]) <= 4 * MS, "{used:?} after {} quanta", again.record.len());
        }
        let longest = [&again, &new].map(|machine| machine.tasks[1].longest_wait_ns);
        prop_assert!(longest[0].abs_diff(longest[1]) <= 4 * MS, "waits of {longest:?}");
    }

    /// What is gone through is as long as there are domains in use, whichever of them have ended.
    #[test]
    fn the_last_places_that_are_not_in_use_are_not_gone_through(
        ended in vec(any::<bool>(), 1..300),
    ) {
        let mut table = DomainTable::new();
        table.begin(ROOT_DOMAIN, 0, 1000);
        for place in 0..ended.len() {
            table.begin(index_of(place), ROOT_DOMAIN, 1000);
        }
        for place in (0..ended.len()).filter(|place| ended[*place]) {
            table.end(index_of(place));
        }
        let mut rounds = 0;
        while table.lower() {
            rounds += 1;
        }
        let last = ended.iter().rposition(|ended| !ended).map_or(ROOT_DOMAIN, index_of);
        prop_assert_eq!(table.high_water, u32::from(last) + 1);
        prop_assert!(rounds <= ended.len() / 64 + 1);
        // And it grows again with the next one.
        table.begin(index_of(ended.len() - 1), ROOT_DOMAIN, 1000);
        prop_assert_eq!(table.high_water, u32::from(index_of(ended.len() - 1)) + 1);
    }

    #[test]
    fn nobody_falls_further_behind_its_levels_clock_than_the_bound(
        charges in vec(1..SECOND, 1..100), weight in 1u32..100_000, clock in any::<u64>(),
    ) {
        let mut table = table(Order::VirtualTime, 1, &[branch(weight)]);
        table.at_mut(ROOT_DOMAIN).clocks = [clock; PRIORITIES];
        table.reset(2);
        for used_ns in charges {
            table.charge(2, used_ns, 0);
            let behind = table.keys[2].wrapping_sub(clock);
            prop_assert!(behind <= DOMAIN_LAG_MAX_NS * VIRTUAL_TIME_UNIT / u64::from(weight), "{behind}");
        }
    }

    /// Nobody who may make cgroups somewhere can use up the domains that others need.
    #[test]
    fn cgroups_below_one_domain_leave_domains_for_others(path in 1u16..10) {
        let mut table = DomainTable::new();
        table.begin(ROOT_DOMAIN, 0, 1000);
        let mut parent = ROOT_DOMAIN;
        let mut next = ROOT_DOMAIN + 1;
        for _ in 0..path {
            table.begin(next, parent, 1000);
            (parent, next) = (next, next + 1);
        }
        while table.has_room(parent) && usize::from(next) < DOMAINS_MAX {
            table.begin(next, parent, 1000);
            next += 1;
        }
        prop_assert!(!table.has_room(parent));
        let taken = usize::from(next);
        prop_assert!(taken <= DOMAINS_MAX / 4 * 3 + 16, "{taken}");
        prop_assert!(table.has_room(ROOT_DOMAIN));
        // They come back as they end.
        table.end(next - 1);
        prop_assert!(table.has_room(parent));
    }
}

fn is_below_parked(table: &DomainTable, index: u16) -> bool {
    let mut above = index;
    while above != 0 {
        if table.at(above).parked == 1 {
            return true;
        }
        above = table.at(above).parent;
    }
    false
}

/// The case in which the order used to drift most: others of a small share come and go in step with one of two.
#[test]
fn two_busy_domains_stay_close_beside_others_that_come_and_go_in_step() {
    let habits = [BUSY, BUSY, Habit { run_ns: 15 * MS, away_ns: 10 * MS }];
    let mut machine = Machine::new(table(Order::VirtualTime, 1, &branches(&[1444, 414, 1000])), &habits, MS);
    machine.run(60 * SECOND);
    let cycles = machine.distance([(&[0], 1444.0), (&[1], 414.0)], 0) * (1444.0 + 414.0) / CYCLE as f64;
    assert!(cycles < 0.05, "{cycles} cycles");
}

/// The same for sets of weights and of others that come and go, as many as `PROPTEST_CASES` says, none of which is an
/// exception.
#[test]
fn two_busy_domains_stay_close_beside_any_others() {
    let weight = 100..3000_u32;
    let habit = (1..60_u64, 1..60_u64).prop_map(|(run, away)| Habit { run_ns: run * MS, away_ns: away * MS });
    let sets = (weight.clone(), weight.clone(), vec((weight, habit), 1..9));
    let mut runner = proptest::test_runner::TestRunner::default();
    let cases = runner.config().cases as usize;
    let mut apart: Vec<(f64, String)> = Vec::new();
    for _ in 0..cases {
        let (one, other, others) = sets.new_tree(&mut runner).expect("nothing is refused").current();
        let weights: Vec<u32> = [one, other].into_iter().chain(others.iter().map(|of| of.0)).collect();
        let habits: Vec<Habit> = [BUSY, BUSY].into_iter().chain(others.iter().map(|of| of.1)).collect();
        let mut machine = Machine::new(table(Order::VirtualTime, 1, &branches(&weights)), &habits, MS);
        machine.run(60 * SECOND);
        let apart_ns = machine.distance([(&[0], f64::from(one)), (&[1], f64::from(other))], 0);
        let cycles = apart_ns * f64::from(one + other) / CYCLE as f64;
        apart.push((cycles, format!("{weights:?} {habits:?}")));
    }
    apart.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |part: f64| apart[(part * (cases - 1) as f64) as usize].0;
    println!("cycles apart: median {:.3}, p99 {:.3}, most {:.3}", at(0.5), at(0.99), at(1.0));
    assert!(at(1.0) < 0.1, "{} cycles with {}", at(1.0), apart[cases - 1].1);
}

/// The experiment of Eclipse 1998, figure 11, on the decision code alone: a sleeper against programs that use 11 ms and
/// sleep 5 ms.
#[test]
fn the_delay_of_a_sleeper_is_bounded_and_grows_under_wrr() {
    let delay = |order, others: usize| {
        let mut habits = vec![Habit { run_ns: 11 * MS, away_ns: 5 * MS }; others];
        habits.push(Habit { run_ns: MS, away_ns: 99 * MS });
        let mut machine = Machine::new(table(order, 1, &branches(&vec![1000; others + 1])), &habits, MS);
        machine.run(4 * SECOND);
        machine.tasks[others].longest_wait_ns = 0;
        machine.run(20 * SECOND);
        machine.tasks[others].longest_wait_ns
    };
    for order in [Order::VirtualTime, Order::MtrLs] {
        assert!(delay(order, 4) <= MS && delay(order, 32) <= MS, "{order:?}");
    }
    assert!(delay(Order::Wrr, 32) >= 16 * MS, "{}", delay(Order::Wrr, 32));
}

#[test]
fn who_was_away_while_half_of_all_virtual_time_passed_is_served_as_anybody_else() {
    let mut table = table(Order::VirtualTime, 16, &branches(&[domain_weight(100, true), 1000]));
    let (idle, away) = (index_of(0), index_of(1));
    let mut cpu = CpuOrder::new();
    let mut now_ns = 0;
    // Background work of the least weight has the machine to itself for 40 days.
    table.enqueue(idle, now_ns);
    for _ in 0..40 * 24 * 360 {
        table.serve(&mut cpu, idle);
        table.charge(idle, 16 * 10 * SECOND, now_ns);
        now_ns += 10 * SECOND;
        if now_ns % (2 * 86_400 * SECOND) == 0 {
            table.enqueue(away, now_ns);
            assert_eq!(table.first(), Some(away), "after {} days", now_ns / SECOND / 86_400);
            table.serve(&mut cpu, away);
            table.charge(away, 4 * MS, now_ns);
            table.dequeue(away);
        }
    }
}

#[test]
fn own_tasks_pay_at_their_weight_for_what_they_used_before_they_slept() {
    // Beside three busy children of the root, its own task of nice -20 wants 30 % of the CPU, in bursts of 0.3 ms.
    let mut table = table(Order::VirtualTime, 1, &branches(&[1000, 1000, 1000]));
    let mut cpu = CpuOrder::new();
    let (mut now_ns, mut got_ns, mut back_ns) = (0, 0, 0);
    let mut awake = false;
    for child in 0..3 {
        table.at_mut(index_of(child)).runnable = 1;
        table.settle(index_of(child));
        table.enqueue(index_of(child), 0);
    }
    while now_ns < 10 * SECOND {
        if !awake && now_ns >= back_ns {
            awake = true;
            let root = table.at_mut(ROOT_DOMAIN);
            root.runnable = 1;
            root.weight_changes(true, 88_760);
            table.enqueue(ROOT_DOMAIN, now_ns);
        }
        let first = table.first().unwrap();
        table.serve(&mut cpu, first);
        let used_ns = if first == ROOT_DOMAIN { 3 * MS / 10 } else { MS / 10 };
        now_ns += used_ns;
        if first == ROOT_DOMAIN {
            // It sleeps, and pays afterwards.
            table.dequeue(ROOT_DOMAIN);
            let root = table.at_mut(ROOT_DOMAIN);
            root.runnable = 0;
            root.weight_changes(false, 88_760);
            (awake, back_ns, got_ns) = (false, now_ns + 7 * MS / 10, got_ns + used_ns);
        }
        table.charge(first, used_ns, now_ns);
    }
    let share = got_ns as f64 / now_ns as f64;
    assert!(share > 0.28, "it got {share:.3} of the 0.3 that it wanted");
}

#[test]
fn what_a_task_of_the_least_weight_used_does_not_keep_the_others_of_its_domain_behind() {
    for wakes_into_a_queue in [false, true] {
        let mut table = table(Order::VirtualTime, 4, &branches(&[1000]));
        let (child, mut cpu) = (index_of(0), CpuOrder::new());
        let mut now_ns = 0;
        table.at_mut(child).runnable = 1;
        table.settle(child);
        table.enqueue(child, now_ns);
        table.serve(&mut cpu, child);
        table.charge(child, MS, now_ns);
        // A task of nice 19 of the root's own has a long slice on each of four CPUs.
        let root = table.at_mut(ROOT_DOMAIN);
        root.runnable = 1;
        root.weight_changes(true, 15);
        table.enqueue(ROOT_DOMAIN, now_ns);
        table.charge(ROOT_DOMAIN, 4 * 20 * MS, now_ns);
        if !wakes_into_a_queue {
            table.dequeue(ROOT_DOMAIN);
        }
        // One of nice 0 comes beside it.
        table.at_mut(ROOT_DOMAIN).weight_changes(true, 1000);
        table.enqueue(ROOT_DOMAIN, now_ns);
        let began_ns = now_ns;
        while table.first() != Some(ROOT_DOMAIN) {
            table.serve(&mut cpu, child);
            table.charge(child, 4 * MS, now_ns);
            now_ns += MS;
        }
        // What they owe together, 80 ms, is served to the child first, by four CPUs; it would be 1.3 s for the one
        // alone.
        assert!(now_ns - began_ns <= 24 * MS, "after {} ms", (now_ns - began_ns) / MS);
    }
}

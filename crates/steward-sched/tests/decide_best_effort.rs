//! Properties of the order of best-effort work (`src/bpf/decide/best_effort.h`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A domain of a random tree.
#[derive(Debug, Clone)]
struct Branch {
    parent: u16,
    weight: u32,
    priority: u8,
    /// Of what the parent has; at most a 64th, so that no level of up to 60 is overcommitted.
    reserved: u32,
    own_priority: u8,
    own_weight: u32,
}

/// A random tree of up to `count` domains: each has a parent among those before it. Half of them have nothing but a
/// weight.
fn tree(count: usize) -> impl Strategy<Value = Vec<Branch>> {
    let weight = prop_oneof![
        Just(domain_weight(100, false)),
        (1u32..=10_000).prop_map(|weight| domain_weight(weight, false)),
        Just(domain_weight(100, true)),
    ];
    let priority = || prop_oneof![4 => Just(PRIORITY_DEFAULT), 1 => 0u8..8];
    let reserved = prop_oneof![Just(0), 0..=(SHARE_ONE / 64) as u32];
    let own_weight = prop_oneof![2 => Just(0), 1 => 10u32..=100_000];
    let branch =
        (any::<prop::sample::Index>(), weight, priority(), reserved, priority(), own_weight, any::<bool>());
    vec(branch, 1..count).prop_map(|branches| {
        let numbered = branches.into_iter().enumerate();
        numbered
            .map(|(place, (above, weight, priority, reserved, own_priority, own_weight, plain))| {
                let parent = ROOT_DOMAIN + above.index(place + 1) as u16;
                if plain {
                    return Branch::plain(parent, weight);
                }
                Branch { parent, weight, priority, reserved, own_priority, own_weight }
            })
            .collect()
    })
}

impl Branch {
    /// A domain with a weight and no policy.
    fn plain(parent: u16, weight: u32) -> Self {
        let (priority, own_priority) = (PRIORITY_DEFAULT, PRIORITY_DEFAULT);
        Branch { parent, weight, priority, reserved: 0, own_priority, own_weight: 0 }
    }
}

/// The table of a tree, with the root at [`ROOT_DOMAIN`] and the others after it. Too deep ones hang on the root.
fn table(tree: &[Branch]) -> Box<DomainTable> {
    let mut table = DomainTable::new();
    table.begin(ROOT_DOMAIN, 0, domain_weight(100, false));
    for (place, branch) in tree.iter().enumerate() {
        let index = ROOT_DOMAIN + 1 + place as u16;
        let deep = table.at(branch.parent).depth as usize + 1 >= DEPTH_MAX;
        let parent = if deep { ROOT_DOMAIN } else { branch.parent };
        table.begin(index, parent, branch.weight);
        let Branch { priority, reserved, own_priority, own_weight, .. } = *branch;
        table.set_policy(index, &Policy::new(priority, 0, reserved, own_priority, own_weight));
    }
    table
}

fn indices(tree: &[Branch]) -> std::ops::Range<u16> {
    ROOT_DOMAIN..ROOT_DOMAIN + 1 + tree.len() as u16
}

/// Gives a domain runnable tasks of this scaled weight in all (0: none), as steward.bpf.c's domain_counts() does.
fn set_runnable(table: &mut DomainTable, index: u16, weight: u32) {
    let domain = table.at_mut(index);
    domain.runnable_weight = weight;
    domain.runnable = (weight > 0).into();
    table.settle(index);
}

/// A contender at one level: an active child, or the domain's own tasks.
struct Contender {
    weight: f64,
    priority: u8,
    reserved: f64,
}

fn child(table: &DomainTable, index: u16) -> Contender {
    let domain = table.at(index);
    let reserved = f64::from(domain.reserved) / SHARE_ONE as f64;
    Contender { weight: domain.weight.into(), priority: domain.priority, reserved }
}

fn own_tasks(table: &DomainTable, index: u16) -> Contender {
    let domain = table.at(index);
    let weight = if domain.own_weight > 0 { domain.own_weight } else { domain.runnable_weight };
    Contender { weight: weight.into(), priority: domain.own_priority, reserved: 0.0 }
}

/// What a contender gets of what the domain has: its reservation, and by weight of what the reservations of all leave
/// if nobody of a higher priority is there.
fn level(table: &DomainTable, all: &[u16], index: u16, contender: &Contender) -> f64 {
    let mut contenders: Vec<Contender> = all
        .iter()
        .filter(|child| table.at(**child).parent == index && is_active(table, all, **child))
        .map(|index| child(table, *index))
        .collect();
    if table.at(index).runnable > 0 {
        contenders.push(own_tasks(table, index));
    }
    let highest = contenders.iter().map(|other| other.priority).max().unwrap();
    let rest = 1.0 - contenders.iter().map(|other| other.reserved).sum::<f64>();
    let beside: f64 =
        contenders.iter().filter(|other| other.priority == highest).map(|other| other.weight).sum();
    let part = if contender.priority == highest { contender.weight / beside } else { 0.0 };
    contender.reserved + rest * part
}

/// The recursive definition: what a domain gets of the whole, and what its own tasks get of that.
fn ideal_share(table: &DomainTable, all: &[u16], index: u16) -> f64 {
    whole_share(table, all, index) * level(table, all, index, &own_tasks(table, index))
}

fn whole_share(table: &DomainTable, all: &[u16], index: u16) -> f64 {
    let parent = table.at(index).parent;
    if parent == 0 {
        return 1.0;
    }
    whole_share(table, all, parent) * level(table, all, parent, &child(table, index))
}

/// The sums that a domain keeps of its active children: weights by priority, reservations, how many there are.
fn sums_of_children(table: &DomainTable, all: &[u16], index: u16) -> ([u32; PRIORITIES], u32, u32) {
    let (mut weights, mut reserved, mut count) = ([0; PRIORITIES], 0, 0);
    for child in all.iter().filter(|child| table.at(**child).parent == index) {
        if is_active(table, all, *child) {
            let domain = table.at(*child);
            weights[domain.priority as usize] += domain.weight;
            reserved += domain.reserved;
            count += 1;
        }
    }
    (weights, reserved, count)
}

fn is_active(table: &DomainTable, all: &[u16], index: u16) -> bool {
    table.at(index).runnable > 0 || sums_of_children(table, all, index).2 > 0
}

/// How far before the clock a task may join: a slice, and less than an eighth of one.
const AHEAD_MAX_NS: i64 = (SLICE_NS / 8 * 9) as i64;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_shares_of_runnable_domains_sum_to_one_and_follow_the_recursive_definition(
        tree in tree(60),
        runnable in vec(prop_oneof![Just(0u32), 1u32..=100_000], 61),
    ) {
        let mut table = table(&tree);
        let all: Vec<u16> = indices(&tree).collect();
        for (index, weight) in all.iter().zip(&runnable) {
            set_runnable(&mut table, *index, *weight);
        }
        let mut sum = 0.0;
        for index in all.iter().filter(|index| table.at(**index).runnable > 0) {
            let share = table.share(*index) as f64;
            let ideal = ideal_share(&table, &all, *index) * SHARE_ONE as f64;
            // Rounded down at each level, by less than 1 in all, but never to nothing.
            prop_assert!(share <= ideal.max(1.0) + 0.001 && share >= ideal - 1.5, "{share} instead of {ideal}");
            sum += share;
        }
        let count = all.iter().filter(|index| table.at(**index).runnable > 0).count() as f64;
        if count > 0.0 {
            prop_assert!(sum <= SHARE_ONE as f64 + count);
            prop_assert!(sum >= SHARE_ONE as f64 - count * 1.5);
        }
    }

    #[test]
    fn the_sums_of_active_children_equal_a_recomputation_after_any_changes(
        tree in tree(40),
        changes in vec((any::<prop::sample::Index>(), 0u32..=100_000, 0..3), 1..200),
    ) {
        let mut table = table(&tree);
        let all: Vec<u16> = indices(&tree).collect();
        for (place, weight, kind) in changes {
            let index = all[place.index(all.len())];
            match kind {
                0 => set_runnable(&mut table, index, weight % 3 * weight),
                1 => table.set_weight(index, weight),
                _ => {
                    let policy = Policy::new((weight % 8) as u8, weight % 3 * weight, weight, PRIORITY_DEFAULT, 0);
                    table.set_policy(index, &policy);
                }
            }
            for index in &all {
                let domain = table.at(*index);
                let sums = (domain.child_weight, domain.child_reserved, domain.active_children);
                prop_assert_eq!(sums, sums_of_children(&table, &all, *index));
                prop_assert_eq!(domain.active == 1, is_active(&table, &all, *index));
            }
        }
    }

    #[test]
    fn a_task_joins_within_a_slice_before_and_the_lag_behind_the_clock(vtime: u64, clock: u64) {
        let joined = task_join(vtime, clock, 0);
        let distance = joined.wrapping_sub(clock) as i64;
        prop_assert!(distance >= -AHEAD_MAX_NS && distance <= TASK_LAG_MAX_NS as i64);
        let wished = vtime.wrapping_sub(clock) as i64;
        if wished >= -(SLICE_NS as i64) && wished <= TASK_LAG_MAX_NS as i64 {
            prop_assert_eq!(joined, vtime);
        }
    }

    /// Who has used less stands before who has used more, also where both have used so little that it is forgotten
    /// but for that.
    #[test]
    fn who_has_used_less_joins_before_who_has_used_more(
        clock: u64, away_ns in 0..=100 * MS, more_ns in MS / 20..=10 * MS, spread_ns in 0..=SLICE_NS,
    ) {
        let less = clock.wrapping_sub(away_ns);
        let more = less.wrapping_add(more_ns);
        let distance = |vtime| task_join(vtime, clock, spread_ns).wrapping_sub(clock) as i64;
        prop_assert!(distance(less) < distance(more), "{} {}", distance(less), distance(more));
    }

    #[test]
    fn rescues_cost_a_twentieth_of_a_cpu_however_long_each_is(lengths in vec(1u64..=4 * MS, 1..200)) {
        let (mut now_ns, mut last_ns, mut used_ns, begin_ns) = (10 * SECOND, 10 * SECOND, 0, 10 * SECOND);
        for length_ns in &lengths {
            while !rescue_allowed(last_ns, RESCUE_INTERVAL_NS, now_ns) {
                now_ns += MS / 10;
            }
            last_ns = rescue_paid(rescue_begins(last_ns, RESCUE_INTERVAL_NS, now_ns), *length_ns, RESCUE_INTERVAL_NS);
            used_ns += length_ns;
            now_ns += length_ns;
        }
        let longest_ns = *lengths.iter().max().expect("some");
        let part = RESCUE_INTERVAL_NS / RESCUE_SLICE_NS;
        prop_assert!((used_ns - longest_ns.min(used_ns)) * part <= (now_ns - begin_ns) + part * longest_ns, "{used_ns}");
    }

    #[test]
    fn who_has_a_slice_to_their_credit_preempts_and_each_turn_lasts_a_millisecond(
        vtime in 0u64..1 << 40, behind_ns in 0u64..20 * MS, ran_ns in 0u64..20 * MS, turn_ns in 0u64..20 * MS, weight in 1u32..10_000,
    ) {
        let vtime = vtime + 20 * MS;
        let preempts = task_preempts(vtime - behind_ns, vtime, ran_ns, turn_ns, weight);
        prop_assert_eq!(preempts, turn_ns >= MS && behind_ns + ran_ns * 100 / u64::from(weight) > SLICE_NS);
    }

    /// And as soon as it does, if that is within a millisecond.
    #[test]
    fn who_is_to_preempt_soon_does_at_that_moment_and_not_before(
        behind_ns in -2_000_000i64..6_000_000, ran_ns in 0u64..8 * MS, turn_ns in 0u64..3 * MS, weight in 1u32..10_000,
    ) {
        let vtime = SECOND;
        let waking = vtime.wrapping_sub_signed(behind_ns);
        let at = |in_ns: u64| task_preempts(waking, vtime, ran_ns + in_ns, turn_ns + in_ns, weight);
        match task_preempts_in(waking, vtime, ran_ns, turn_ns, weight) {
            Some(in_ns) => {
                prop_assert!(in_ns <= TASK_PREEMPTS_NS && at(in_ns));
                // Virtual time is rounded down, by the time in which it grows by one.
                let grain_ns = 1 + u64::from(weight).div_ceil(100);
                prop_assert!(in_ns <= grain_ns || !at(in_ns - grain_ns));
            }
            None => prop_assert!(!at(MS - 200)),
        }
    }

    /// Light tasks that begin or wake up stand within what they pay for a slice, however many they are, and those of
    /// the usual weight where they always stood. A light one that is the only one stands there, too.
    #[test]
    fn light_tasks_are_spread_over_what_they_pay_and_others_not_at_all(
        light in 1u32..50_000, usual in 0u32..50_000, weight in 1u32..10_000, random: u32, vtime: u64, clock: u64,
    ) {
        let mut table = table(&[]);
        let domain = table.at_mut(ROOT_DOMAIN);
        domain.runnable = light + usual;
        domain.runnable_weight = (light + 100 * usual) * WEIGHT_SCALE;
        let spread_ns = task_spread(domain, weight, random);
        let most_ns = task_cost(SLICE_NS, weight).saturating_sub(SLICE_NS).min(u64::from(light) * SLICE_NS / 4);
        prop_assert!(spread_ns <= most_ns, "{spread_ns}");
        prop_assert!(light > 1 || spread_ns == 0);
        let distance = task_join(vtime, clock, spread_ns).wrapping_sub(clock) as i64;
        prop_assert!(distance >= spread_ns as i64 - AHEAD_MAX_NS && distance <= TASK_LAG_MAX_NS as i64);
        // Nobody escapes what they owe, or loses what they have, by going to another cgroup.
        let moved = task_moves(vtime, clock, clock.wrapping_add(u64::from(random)));
        prop_assert_eq!(moved.wrapping_sub(vtime), u64::from(random));
    }

    #[test]
    fn a_quota_gives_at_most_its_sum_a_burst_and_one_charge_in_any_whole_periods(
        quota_ns in MS..=100 * MS,
        period_ns in MS..=100 * MS,
        burst in 0.0..=1.0f64,
        charges in vec((1..=4 * MS, 0..=20 * MS), 1..400),
    ) {
        let burst_ns = (quota_ns as f64 * burst) as u64;
        let mut table = table(&[]);
        table.set_quota(ROOT_DOMAIN, period_ns, quota_ns, burst_ns, 0);
        let domain = table.at_mut(ROOT_DOMAIN);
        // CPU time used in each period, which the refill's clock counts from 0.
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        let mut now_ns = 0;
        for (run_ns, pause_ns) in charges {
            domain.quota_refill(now_ns);
            if domain.throttled == 0 {
                // Charged at once, so that all of it falls into one period.
                domain.quota_charge(run_ns);
                *used.entry(now_ns / period_ns).or_default() += run_ns;
            }
            now_ns += pause_ns;
            prop_assert!(domain.quota_left_ns <= (quota_ns + burst_ns) as i64);
            prop_assert_eq!(domain.throttled == 1, domain.quota_left_ns <= 0);
        }
        let used: Vec<(u64, u64)> = used.into_iter().collect();
        for (place, (first, _)) in used.iter().enumerate() {
            let mut sum = 0;
            for (last, used_ns) in &used[place..] {
                sum += used_ns;
                prop_assert!(sum <= (last - first + 1) * quota_ns + burst_ns + 4 * MS);
            }
        }
    }

    #[test]
    fn a_domain_is_held_when_it_or_any_above_it_is_throttled_or_suspended(
        tree in tree(40),
        throttled in vec(prop::bool::weighted(0.1), 41),
        suspended in vec(prop::bool::weighted(0.1), 41),
    ) {
        let mut table = table(&tree);
        let all: Vec<u16> = indices(&tree).collect();
        for ((index, throttled), suspended) in all.iter().zip(&throttled).zip(&suspended) {
            table.at_mut(*index).throttled = (*throttled).into();
            prop_assert_eq!(table.suspend(*index, *suspended), *suspended);
        }
        prop_assert_eq!(table.quotas as usize, suspended[..all.len()].iter().filter(|is| **is).count());
        for index in &all {
            let mut above = Some(*index);
            let mut expected = false;
            while let Some(domain) = above.map(|index| table.at(index)) {
                expected |= domain.throttled == 1 || domain.suspended == 1;
                above = Some(domain.parent).filter(|parent| *parent != 0);
            }
            prop_assert_eq!(table.held(*index), expected);
        }
    }

    #[test]
    fn a_suspended_domain_counts_for_the_others_like_one_that_sleeps_and_comes_back_as_it_was(
        tree in tree(20),
        weights in vec(0..=4000u32, 21),
        changes in vec((0..21u16, any::<bool>(), 0..=4000u32), 0..20),
    ) {
        let (mut table, mut asleep) = (table(&tree), table(&tree));
        let all: Vec<u16> = indices(&tree).collect();
        let mut weights = weights[..all.len()].to_vec();
        for (index, weight) in all.iter().zip(&weights) {
            set_runnable(&mut table, *index, *weight);
        }
        for (place, suspended, weight) in changes {
            let place = place as usize % all.len();
            table.suspend(all[place], suspended);
            // Its tasks may wake and sleep while it is suspended.
            set_runnable(&mut table, all[place], weight);
            weights[place] = weight;
        }
        for (index, weight) in all.iter().zip(&weights) {
            set_runnable(&mut asleep, *index, if table.held(*index) { 0 } else { *weight });
        }
        for index in all.iter().filter(|index| !table.held(**index)) {
            prop_assert_eq!(table.share(*index), asleep.share(*index), "domain {}", index);
        }
        for index in &all {
            table.suspend(*index, false);
        }
        for (index, weight) in all.iter().zip(&weights) {
            set_runnable(&mut asleep, *index, *weight);
        }
        prop_assert_eq!(table.quotas, 0);
        for index in &all {
            prop_assert_eq!(table.share(*index), asleep.share(*index), "domain {}, after all", index);
        }
    }
}

/// One domain whose tasks never sleep, served by several CPUs as steward.bpf.c does: by virtual time, with a look each
/// second for tasks that have waited too long. Returns the longest that any task waited in 100 s, and the part of all
/// CPU time that went to rescued tasks.
fn longest_wait(weights: &[u32], cpu_count: u64, slice_ns: u64, rescue_ns: u64) -> (u64, f64) {
    struct Task {
        vtime: u64,
        since_ns: u64,
    }
    struct Cpu {
        free_ns: u64,
        /// The task that it runs till then, and for how long.
        ran: Option<(usize, u64)>,
        last_rescue_ns: u64,
    }
    let mut clock = 0;
    let mut tasks: Vec<Task> = weights.iter().map(|_| Task { vtime: 0, since_ns: 0 }).collect();
    let mut queue: BTreeSet<(u64, usize)> = (0..tasks.len()).map(|task| (0, task)).collect();
    let mut overdue: VecDeque<usize> = VecDeque::new();
    let mut cpus: Vec<Cpu> = (0..cpu_count)
        .map(|cpu| Cpu { free_ns: cpu * slice_ns / cpu_count, ran: None, last_rescue_ns: 0 })
        .collect();
    let (mut longest_ns, mut rescued_ns, mut next_look_ns, mut looks) = (0, 0, RESCUE_LOOK_NS, 0);
    loop {
        let Cpu { free_ns: now_ns, ran, last_rescue_ns } =
            cpus.iter_mut().min_by_key(|cpu| cpu.free_ns).unwrap();
        if *now_ns > 100 * SECOND {
            return (longest_ns, rescued_ns as f64 / (cpu_count * 100 * SECOND) as f64);
        }
        if let Some((task, used_ns)) = ran.take() {
            let vtime = task_join(tasks[task].vtime + task_cost(used_ns, weights[task]), clock, 0);
            tasks[task] = Task { vtime, since_ns: *now_ns };
            queue.insert((vtime, task));
        }
        if *now_ns >= next_look_ns {
            next_look_ns += RESCUE_LOOK_NS;
            let room = rescue_room(overdue.len() as u32, cpu_count as u32) as usize;
            let seen: Box<dyn Iterator<Item = &(u64, usize)>> =
                if looks_from_end(looks) { Box::new(queue.iter().rev()) } else { Box::new(queue.iter()) };
            let due: Vec<_> = seen
                .take(QUEUE_SCAN_MAX)
                .filter(|(_, task)| rescue_due(tasks[*task].since_ns, false, *now_ns))
                .take(room)
                .copied()
                .collect();
            looks += 1;
            for entry in due {
                queue.remove(&entry);
                overdue.push_back(entry.1);
            }
        }
        let presses = overdue.front().is_some_and(|task| rescue_presses(tasks[*task].since_ns, *now_ns));
        let interval_ns = rescue_interval_ns(overdue.len() as u32, cpu_count as u32, presses);
        let rescued =
            if rescue_allowed(*last_rescue_ns, interval_ns, *now_ns) { overdue.pop_front() } else { None };
        let (task, used_ns) = match rescued {
            Some(task) => {
                let begun_ns = rescue_begins(*last_rescue_ns, interval_ns, *now_ns);
                *last_rescue_ns = rescue_paid(begun_ns, rescue_ns, interval_ns);
                rescued_ns += rescue_ns;
                (task, rescue_ns)
            }
            None => match queue.pop_first() {
                Some((vtime, task)) => {
                    clock = clock.max(vtime);
                    (task, slice_ns)
                }
                None => {
                    // Everybody is overdue: wait for the next moment at which one may be rescued.
                    *now_ns += RESCUE_INTERVAL_NS;
                    continue;
                }
            },
        };
        longest_ns = longest_ns.max(*now_ns - tasks[task].since_ns);
        *ran = Some((task, used_ns));
        *now_ns += used_ns;
    }
}

/// The kernel's watchdog ejects a scheduler that lets a runnable task wait for 30 s.
#[test]
fn no_task_among_2000_on_two_cpus_waits_nearly_as_long_as_the_watchdog_whatever_its_nice() {
    // Weights of nice 19, 0 and -20.
    for others in [1, 100, 8876] {
        for own in [1, 100, 8876] {
            let mut weights = vec![others; 2000];
            weights.push(own);
            let (wait_ns, rescued) = longest_wait(&weights, 2, 4 * MS, RESCUE_SLICE_NS);
            assert!(wait_ns < 25 * SECOND, "{own} beside {others}: {} ms", wait_ns / MS);
            assert!(
                rescued <= 0.05,
                "{own} beside {others}: {rescued} of the CPU time went to rescued tasks"
            );
        }
    }
}

#[test]
fn a_thousand_tasks_of_nice_19_beside_a_hundred_of_nice_minus_20_all_run_before_the_watchdog_looks() {
    let mut weights = vec![1; 1000];
    weights.extend([8876; 100]);
    let (wait_ns, rescued) = longest_wait(&weights, 2, 4 * MS, RESCUE_SLICE_NS);
    assert!(wait_ns < 25 * SECOND, "{} ms", wait_ns / MS);
    assert!(rescued <= 0.05, "{rescued} of the CPU time went to rescued tasks");
}

/// One that waits beside more than a look goes through, who stand before it, or behind it, and come and go all the
/// time. It is found at the second look after it is due.
#[test]
fn nobody_is_hidden_from_the_looks_by_however_many_that_come_and_go() {
    for (before, after) in
        [(0, 1), (1, 0)].map(|(before, after)| (before * QUEUE_SCAN_MAX, after * QUEUE_SCAN_MAX))
    {
        let found = (0u32..).find(|&look| {
            let now_ns = u64::from(look) * RESCUE_LOOK_NS;
            // Since when each waits, from the head of the queue to its end: all others have just come.
            let since_ns = |place: usize| if place == before { 0 } else { now_ns };
            let places = 0..=before + after;
            let mut seen: Box<dyn Iterator<Item = usize>> =
                if looks_from_end(look) { Box::new(places.rev()) } else { Box::new(places) };
            assert!(now_ns < 30 * SECOND, "hidden behind {before} and before {after} others");
            seen.by_ref().take(QUEUE_SCAN_MAX).any(|place| rescue_due(since_ns(place), false, now_ns))
        });
        let found_ns = u64::from(found.unwrap()) * RESCUE_LOOK_NS;
        assert!(found_ns <= RESCUE_AFTER_NS + 2 * RESCUE_LOOK_NS, "found after {} ms", found_ns / MS);
    }
}

proptest! {
    /// Whoever kills a task, or tells it to stop, waits for it to notice: within a second it goes on, beside few that
    /// do so for the same reason. A crowd that is killed takes neither the turns of those that are rescued, nor those
    /// of tasks that leave with what others wait for.
    #[test]
    fn who_is_called_while_it_waits_goes_on_within_a_second_and_a_crowd_takes_nobodys_turn(
        reader: bool,
        leaving in 0..2 * CALLED_LEAVING_MAX,
        standing in 0..2 * RESCUE_CROWD,
        waited_ns in 0..30 * SECOND,
    ) {
        let (since_ns, now_ns) = (SECOND, SECOND + waited_ns);
        let look = |called| rescue_look(since_ns, reader, called, (leaving, standing), now_ns);
        let is_due = rescue_due(since_ns, reader, now_ns);
        prop_assert_eq!(look(false) == LookFinds::Rescued, is_due);
        prop_assert!(look(false) != LookFinds::Leaves);
        let wanted = match () {
            () if is_due => LookFinds::Rescued,
            // It may be due right after a look.
            () if waited_ns <= SECOND - RESCUE_LOOK_NS - 400 * MS => LookFinds::Waits,
            () if leaving < CALLED_LEAVING_MAX => LookFinds::Leaves,
            () if standing < RESCUE_CROWD => LookFinds::Rescued,
            () => LookFinds::Waits,
        };
        prop_assert_eq!(look(true), wanted);
        prop_assert_eq!(rescue_interval_ns(RESCUE_CROWD, 1, false), rescue_interval_ns(0, 1, false));
    }
}

/// More than one a tick, and more than one every [`RESCUE_INTERVAL_NS`]: a user may have that many threads; and more
/// than a look goes through from one end. Also where each rescue takes longer than it should, because timers are late,
/// or because the machine is so slow that a switch takes most of a millisecond.
#[test]
fn of_forty_thousand_beside_ten_that_take_all_none_waits_nearly_as_long_as_the_watchdog() {
    const LATE_NS: u64 = MS / 8;
    const { assert!(40_000 > QUEUE_SCAN_MAX) };
    let crowds = [
        (1, 10_000, RESCUE_SLICE_NS),
        (2, 10_000, RESCUE_SLICE_NS),
        (1, 40_000, RESCUE_SLICE_NS),
        (1, 4_097, RESCUE_SLICE_NS + LATE_NS),
        (1, 10_000, RESCUE_SLICE_NS + LATE_NS),
        (1, 7_000, MS * 3 / 2),
    ];
    for (cpu_count, many, rescue_ns) in crowds {
        let mut weights = vec![1; many];
        weights.extend([8876; 10]);
        let (wait_ns, rescued) = longest_wait(&weights, cpu_count, 4 * MS, rescue_ns);
        assert!(wait_ns < 25 * SECOND, "{many} on {cpu_count} CPUs: {} ms", wait_ns / MS);
        // That much for each of them in every 12 s and a little more.
        let at_most = 0.02 + (many as u64 * rescue_ns) as f64 / 12e9 / cpu_count as f64;
        assert!(
            rescued <= at_most,
            "{many} on {cpu_count} CPUs: {rescued} of the CPU time went to rescued tasks"
        );
    }
}

#[test]
fn two_tasks_share_a_cpu_by_their_weights() {
    let mut table = table(&[]);
    let domain = table.at_mut(ROOT_DOMAIN);
    // nice 0 beside nice 5, each in slices of a tick.
    let weights = [100, 33];
    let (mut vtimes, mut used_ns) = ([0; 2], [0; 2]);
    for _ in 0..10_000 {
        let task = usize::from(vtimes[1] < vtimes[0]);
        domain.task_clock = domain.task_clock.max(vtimes[task]);
        used_ns[task] += 4 * MS;
        vtimes[task] = task_join(vtimes[task] + task_cost(4 * MS, weights[task]), domain.task_clock, 0);
    }
    let ratio = used_ns[0] as f64 / used_ns[1] as f64;
    assert!((ratio - 100.0 / 33.0).abs() < 0.05, "{ratio}");
}

#[test]
fn an_idle_domain_is_worth_a_three_hundredth_of_a_usual_one() {
    assert_eq!(domain_weight(100, false), 1000);
    assert_eq!(domain_weight(0, false), 1000);
    assert_eq!(domain_weight(10_000, true), 3);
}

#[test]
fn a_quota_after_a_long_idle_time_is_one_quota_and_a_burst() {
    let mut table = table(&[]);
    table.set_quota(ROOT_DOMAIN, 100 * MS, 20 * MS, 5 * MS, 0);
    let domain = table.at_mut(ROOT_DOMAIN);
    domain.quota_charge(30 * MS);
    assert_eq!((domain.throttled, domain.quota_left_ns), (1, -10 * MS as i64));
    assert!(!domain.quota_refill(99 * MS));
    assert!(domain.quota_refill(100 * MS));
    assert_eq!(domain.quota_left_ns, 10 * MS as i64);
    domain.quota_refill(3600 * SECOND + 1);
    assert_eq!(domain.quota_left_ns, 25 * MS as i64);
    assert_eq!(domain.refill_at_ns, 3600 * SECOND + 100 * MS);
}

#[test]
fn the_share_of_a_domain_that_sleeps_is_what_it_would_get_if_it_woke() {
    let mut table = table(&[Branch::plain(ROOT_DOMAIN, 1000), Branch::plain(ROOT_DOMAIN, 3000)]);
    set_runnable(&mut table, ROOT_DOMAIN + 1, 1000);
    assert_eq!(table.share(ROOT_DOMAIN + 1), SHARE_ONE);
    assert_eq!(table.share(ROOT_DOMAIN + 2), SHARE_ONE * 3 / 4);
}

#[test]
fn the_largest_quota_that_the_kernel_accepts_never_throttles() {
    let largest_ns = ((1 << 44) - 1) * 1000;
    let mut table = table(&[]);
    table.set_quota(ROOT_DOMAIN, MS, largest_ns, largest_ns, 0);
    let domain = table.at_mut(ROOT_DOMAIN);
    for hour in 1..100 {
        domain.quota_charge(3600 * SECOND);
        domain.quota_refill(hour * 3600 * SECOND);
        assert_eq!(domain.throttled, 0);
    }
}

#[test]
fn a_deep_debt_of_quota_is_paid_before_the_domain_goes_on() {
    let mut table = table(&[]);
    table.set_quota(ROOT_DOMAIN, 100 * MS, 10 * MS, 0, 0);
    let domain = table.at_mut(ROOT_DOMAIN);
    domain.quota_charge(35 * MS);
    assert!(!domain.quota_refill(100 * MS) && !domain.quota_refill(200 * MS));
    assert!(domain.quota_refill(300 * MS));
    assert_eq!(domain.quota_left_ns, 5 * MS as i64);
}

/// Two that the same event wakes, again and again, beside loops; the one that is always told first uses more. The other
/// one is before it from the second time on, as long as the event comes some times a second.
#[test]
fn of_two_that_wake_together_the_one_that_uses_less_is_served_first() {
    for passed_ns in [MS / 2, 4 * MS, 100 * MS, 300 * MS] {
        let (mut clock, mut heavy, mut light) = (10 * SECOND, 10 * SECOND, 10 * SECOND);
        for round in 0..100 {
            clock += passed_ns;
            (heavy, light) = (task_join(heavy, clock, 0), task_join(light, clock, 0));
            assert!(round == 0 || light < heavy, "round {round} after {passed_ns} ns each");
            heavy += 4 * MS / 10;
            light += MS / 30;
        }
    }
}

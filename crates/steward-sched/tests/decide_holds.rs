//! Properties of holding tasks back (`src/bpf/decide/holds.h`).

use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn anywhere() -> impl Strategy<Value = Whereabouts> {
    prop::sample::select(Whereabouts::ALL.to_vec())
}

proptest! {
    /// Whoever is held at once has none of the kernel's locks, as far as the kernel says.
    #[test]
    fn only_who_has_left_the_kernel_is_held(behind: bool, whereabouts in anywhere()) {
        let inside = matches!(whereabouts, Whereabouts::Asleep | Whereabouts::Blocked | Whereabouts::Preempted);
        prop_assert_eq!(hold_leaves(true, behind, whereabouts), inside);
    }

    /// A lower priority waits as usual, except with what others may wait for.
    #[test]
    fn who_stands_behind_leaves_only_with_what_others_may_wait_for(whereabouts in anywhere()) {
        let inside = matches!(whereabouts, Whereabouts::Blocked | Whereabouts::Preempted);
        prop_assert_eq!(hold_leaves(false, true, whereabouts), inside);
    }

    /// Nobody leaves whose domain is neither held nor behind, however long it has waited.
    #[test]
    fn nobody_else_leaves(whereabouts in anywhere(), waited_ns: u64) {
        prop_assert!(!hold_leaves(false, false, whereabouts));
        prop_assert!(!hold_overstays(false, false, whereabouts, waited_ns));
    }

    /// Who is held inside the kernel is let go at the first look, one of whom nothing is known after a tenth of a
    /// second, one at a gate after two seconds; who is at the boundary stays.
    #[test]
    fn a_look_finds_who_must_not_be_held_longer(whereabouts in anywhere(), waited_ns in 0..10 * SECOND) {
        let due = match whereabouts {
            Whereabouts::AtBoundary => false,
            Whereabouts::Asleep | Whereabouts::Blocked | Whereabouts::Preempted => true,
            Whereabouts::Unknown => waited_ns >= 100 * MS,
            Whereabouts::AtGate => waited_ns >= 2 * SECOND,
        };
        prop_assert_eq!(hold_overstays(true, false, whereabouts, waited_ns), due);
    }

    /// However many wait, looks for those that are held inside the kernel take no more than their part of a CPU.
    #[test]
    fn looks_take_a_bounded_share(looks in vec((0..200 * MS, 0..40 * MS), 1..50), first_ns in 0..100 * SECOND) {
        let (mut now_ns, mut due_ns, mut used_ns) = (first_ns, 0, 0);
        for (took_ns, late_ns) in looks {
            now_ns = now_ns.max(due_ns) + late_ns + took_ns;
            used_ns += took_ns;
            due_ns = hold_look_due(took_ns, now_ns);
            prop_assert!(used_ns * HOLD_LOOK_FRACTION <= due_ns - first_ns, "{used_ns} ns of {}", due_ns - first_ns);
        }
    }

    /// CPUs read their clocks a little apart: whoever was queued by one and is looked at by another, whose clock is
    /// behind, has not waited for ever. At a gate it would be let go, and its domain's sum of waits would go back.
    #[test]
    fn who_was_queued_after_the_clock_was_read_has_not_waited(now_ns: u64, ahead_ns in 0..SECOND) {
        let since_ns = now_ns.wrapping_add(ahead_ns);
        prop_assert_eq!(passed_since(since_ns, now_ns), 0);
        prop_assert_eq!(passed_since(now_ns, since_ns), ahead_ns);
        prop_assert!(!hold_overstays(true, false, Whereabouts::AtGate, passed_since(since_ns, now_ns)));
    }

    /// Beside other work, those that leave get an eighth of a CPU in any stretch of time, and no more beyond it than
    /// what they had saved up and the slice that was begun last, whatever they use of their slices.
    #[test]
    fn those_that_leave_get_a_bounded_share(
        slices in vec((1..=4 * MS, 0..40 * MS), 10..200),
        first_ns in 0..100 * SECOND,
    ) {
        let (mut now_ns, mut due_ns) = (first_ns, 0);
        let mut served: Vec<(u64, u64)> = Vec::new();
        for (used_ns, other_ns) in slices {
            if leaving_due(due_ns, now_ns) {
                now_ns += used_ns;
                due_ns = leaving_charge(due_ns, used_ns, now_ns);
                served.push((now_ns, used_ns));
            } else {
                // Something else runs until its tick.
                now_ns += 4 * MS;
            }
            now_ns += other_ns;
        }
        for (first, &(from_ns, from_used_ns)) in served.iter().enumerate() {
            let mut used_ns = 0;
            for &(until_ns, more_ns) in &served[first..] {
                used_ns += more_ns;
                let passed_ns = until_ns - (from_ns - from_used_ns);
                let most_ns = passed_ns / LEAVING_FRACTION + LEAVING_CREDIT_NS / LEAVING_FRACTION + 4 * MS;
                prop_assert!(used_ns <= most_ns, "{used_ns} ns of {passed_ns} ns");
            }
        }
    }

    /// Who is deferred waits a moment for those that it is deferred to, and nobody else does.
    #[test]
    fn only_who_is_deferred_has_patience(waited_ns in 0..3 * LEAVING_PATIENCE_NS) {
        prop_assert!(leaving_presses(false, waited_ns));
        prop_assert_eq!(leaving_presses(true, waited_ns), waited_ns >= LEAVING_PATIENCE_NS);
    }

    /// However many tasks are in endless system calls, one that begins to leave is the next to be served.
    #[test]
    fn long_calls_keep_no_newcomer_waiting(long_calls in 1usize..200, slices_before in 0usize..2000) {
        let mut clock_ns = SECOND;
        let mut places: Vec<u64> = Vec::new();
        for _ in 0..long_calls {
            places.push(leaving_place(clock_ns));
        }
        for _ in 0..slices_before {
            let first = (0..long_calls).min_by_key(|&task| places[task]).expect("there are some");
            clock_ns = leaving_clock(clock_ns, places[first], LEAVING_SLICE_NS, long_calls as u32);
            places[first] = leaving_again(clock_ns, places[first], LEAVING_SLICE_NS);
        }
        // Those that have not run yet began at the same moment as everybody.
        let ran = slices_before >= long_calls;
        let before = places.iter().filter(|&&place| place < leaving_place(clock_ns)).count();
        prop_assert!(!ran || before == 0, "{before} of {long_calls} stand before it");
    }

    /// Nor do newcomers, however many and without an end, keep one that needs long from its turn: it has one after they
    /// have used no more than four slices for each that stands there.
    #[test]
    fn newcomers_without_an_end_keep_no_long_call_waiting(each_ns in 1_000..LEAVING_SLICE_NS, turns in 1u64..20, standing in 2u32..50) {
        let mut clock_ns = SECOND;
        let mut place_ns = leaving_place(clock_ns);
        for _ in 0..turns {
            clock_ns = leaving_clock(clock_ns, place_ns, LEAVING_SLICE_NS, standing);
            place_ns = leaving_again(clock_ns, place_ns, LEAVING_SLICE_NS);
            let mut used_ns = 0;
            while leaving_place(clock_ns) <= place_ns {
                clock_ns = leaving_clock(clock_ns, leaving_place(clock_ns), each_ns, standing);
                used_ns += each_ns;
                prop_assert!(used_ns <= 4 * u64::from(standing) * LEAVING_SLICE_NS, "it waits still after {used_ns} ns");
            }
        }
    }
}

/// A tree of domains: of each, below which earlier one it is, its priority, that of its own tasks, and whether any is
/// runnable.
fn trees() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8, bool)>> {
    vec((any::<prop::sample::Index>(), 0u8..8, 0u8..8, any::<bool>()), 1..12)
}

proptest! {
    /// A domain's tasks are deferred to what can run with a higher priority where the ways up the tree meet, and to
    /// nothing else.
    #[test]
    fn who_stands_behind_is_told_by_the_tree(tree in trees()) {
        let mut table = DomainTable::new();
        table.begin(1, 0, 1000);
        let mut parents = vec![0, 0];
        for (place, (above, ..)) in tree.iter().enumerate() {
            let parent = 1 + above.index(place + 1);
            table.begin(place as u16 + 2, parent as u16, 1000);
            parents.push(parent);
        }
        for (place, (_, priority, own_priority, runs)) in tree.iter().enumerate() {
            let index = place as u16 + 2;
            let policy = Policy::new(*priority, 0, 0, *own_priority, 0);
            table.set_policy(index, &policy);
            if *runs {
                table.at_mut(index).runnable_changes(true, 0);
                table.settle(index);
            }
        }
        // What each is at a level above it: the priority with which it contends there.
        let way = |index: usize| {
            let mut way = vec![(index, tree[index - 2].2)];
            let mut here = index;
            while parents[here] != 0 {
                way.push((parents[here], tree[here - 2].1));
                here = parents[here];
            }
            way
        };
        for index in 2..tree.len() + 2 {
            let behind = (2..tree.len() + 2).any(|other| {
                other != index && tree[other - 2].3 && way(index).iter().any(|(level, priority)| {
                    let theirs = way(other).into_iter().find(|(meeting, _)| meeting == level);
                    theirs.is_some_and(|(_, theirs)| theirs > *priority)
                })
            });
            prop_assert_eq!(table.behind(index as u16), behind, "domain {}", index);
        }
    }
}

//! The scheduler's decision rules, callable on the host.
//!
//! The rules are the C headers in `src/bpf/decide`, the very text that is compiled into the BPF program; nothing is
//! written twice. Here are only the layouts of their structures and safe functions around them, for the tests and for
//! the simulator. docs/scheduler.md explains the rules.
//!
//! Times are nanoseconds on a clock of the caller's choice; the rules read no clock themselves.

mod admission;
mod best_effort;
mod class;
mod domain;
mod edf;
mod holds;
mod load;
mod order;
mod places;
mod standing;

pub use admission::*;
pub use best_effort::*;
pub use class::*;
pub use domain::*;
pub use edf::*;
pub use holds::*;
pub use load::*;
pub use order::*;
pub use places::*;
pub use standing::*;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    unsafe extern "C" {
        static decide_layout: [u64; 0];
        static decide_layout_count: u64;
        static decide_constants: [u64; 0];
        static decide_constants_count: u64;
    }

    /// The table of `count` numbers that starts at `first` in host_layout.c.
    fn table(first: *const [u64; 0], count: u64) -> Vec<u64> {
        // SAFETY: host_layout.c defines each table with as many elements as the count beside it says, and neither
        // changes.
        unsafe { std::slice::from_raw_parts(first.cast(), count as usize) }.to_vec()
    }

    macro_rules! layout {
        ($($structure:ident { $($member:ident),* $(,)? })*) => {
            vec![$(
                (stringify!($structure).to_owned(), size_of::<$structure>() as u64),
                $((
                    concat!(stringify!($structure), ".", stringify!($member)).to_owned(),
                    offset_of!($structure, $member) as u64,
                ),)*
            )*]
        };
    }

    #[test]
    fn the_rust_structures_are_laid_out_as_the_c_structures() {
        let rust = layout! {
                    EdfTask {
                        budget_ns, period_ns, start_ns, deadline_ns, left_ns, periods, missed, exhausted, overrun_max_ns,
                        slept, blocked, late, renewed,
                    }
                    Load { measured, projected, window, samples, last_activation }
                    LoadThresholds { reactivate_below, admit_below, revoke_above, irrevocable_max, user_max }
                    LoadCut { rank, rest }
                    UserSum { uid, reserved }
                    Declared { irrevocable, limited, users }
                    Claim { bandwidth, uid, limited, irrevocable }
                    Verdict { rule, uid, amount, limit }
                    Waiter { since_ns, index, uid, failures }
                    Waiters { first }
                    ClassUse { level_ns, at_ns }
        Token { stamp, left_ns }
        Tokens { ring, held_ns, last_stamp, cycle, cycle_left_ns, covered_ns, first, count }
        Account { paid, since_back_ns, since_served_ns, ahead, total, little }
        RestrictedPlace { paid, total, served_ns, weight, begun }
        Node { left, right, up, rank, heap }
        Domain { cgroup_id, task_clock, quota_ns, quota_period_ns, burst_ns, refill_at_ns, quota_left_ns, used_ns, reserved_used_ns, reserved_paid_ns, waited_ns, counted_ns, runnable_ns, runnable_squared_ns, served_ns, clocks, cycle, cycle_ends_ns, sequence, first, waiting_priorities, weight, cgroup_weight, reserved, own_weight, child_weight, child_reserved, all_weight, all_reserved, children, below, runnable_weight, last_weight, paid_weight, own_paid_weight, runnable, active_children, waiting, waiting_restricted, tasks, begun, parent, depth, priority, own_priority, has_weight, in_use, active, restricted_held, parked, dying, left, own_left, throttled, suspended }
        Policy { weight, reserved, own_weight, priority, own_priority }
        DomainTable { service_cycle_ns, order, cpus, high_water, quotas, priorities, waiting, walk, keys, nodes, tokens, accounts, domains }
        CpuOrder { clocks, places, restricted, any_restricted }
            };
        // SAFETY: constants of host_layout.c.
        let c = unsafe { table(&raw const decide_layout, decide_layout_count) };
        assert_eq!(rust.len(), c.len(), "a member was added on one side only");
        for ((name, rust), c) in rust.iter().zip(c) {
            assert_eq!(*rust, c, "{name}");
        }
    }

    #[test]
    fn the_rust_constants_are_those_of_the_headers() {
        let rust = [
            EdfOutcome::Continues as u64,
            EdfOutcome::NewPeriod as u64,
            EdfOutcome::Missed as u64,
            LOAD_ONE.into(),
            LOAD_WINDOW as u64,
            LOAD_SAMPLE_NS,
            LOAD_DECAY_MIN.into(),
            LOAD_DECAY_MAX.into(),
            LOAD_VICTIM_STEPS.into(),
            LOAD_VICTIM_RANKS as u64,
            LOAD_NO_VICTIM.into(),
            Rule::Fits as u64,
            Rule::Irrevocable as u64,
            Rule::NotNamed as u64,
            Rule::Use as u64,
            Rule::User as u64,
            Rule::Users as u64,
            Rule::NoCpu as u64,
            Rule::Memory as u64,
            Rule::Together as u64,
            Rule::Part as u64,
            Fit::Not as u64,
            Fit::InItsPart as u64,
            Fit::Now as u64,
            ADMISSION_USERS_MAX as u64,
            ADMISSION_ANYBODY.into(),
            WAITERS_MAX as u64,
            WAITER_RETRY_MAX.into(),
            CLASS_PARTS,
            CLASS_RATE_PARTS,
            CLASS_BURST_NS,
            CLASS_GAP_NS,
            DOMAINS_MAX as u64,
            DEPTH_MAX as u64,
            DEPTH_MOST.into(),
            ROOT_DOMAIN.into(),
            SHARE_ONE,
            WEIGHT_DEFAULT.into(),
            WEIGHT_SCALE.into(),
            WEIGHT_IDLE.into(),
            PRIORITIES as u64,
            PRIORITY_DEFAULT.into(),
            HEAPS as u64,
            NODES as u64,
            NODE_OWN as u64,
            NODE_RESERVED as u64,
            VIRTUAL_TIME_UNIT,
            TOKENS_MAX as u64,
            SERVICE_CYCLE_DEFAULT_NS,
            SLICE_NS,
            RESERVED_DEBT_NS,
            SLICE_ALONE_NS,
            TASK_LAG_MAX_NS,
            TASK_PREEMPTS_NS,
            DOMAIN_LAG_MAX_NS,
            CHARGE_BATCH_NS,
            CHARGE_ALONE_NS,
            RESCUE_AFTER_NS,
            RESCUE_SLICE_NS,
            RESCUE_READER_AFTER_NS,
            RESCUE_READER_SLICE_NS,
            RESCUE_CALLED_AFTER_NS,
            CALLED_LEAVING_MAX.into(),
            RESCUE_CROWD.into(),
            RESCUE_LOOK_NS,
            QUEUE_SCAN_MAX as u64,
            RESCUE_INTERVAL_NS,
            PLACES_MAX.into(),
            STANDING_NONE.into(),
            STANDING_ADMITTED.into(),
            STANDING_REFUSED.into(),
            STANDING_REVOKED.into(),
            STANDING_CHANGING.into(),
            Whereabouts::AtBoundary as u64,
            Whereabouts::Asleep as u64,
            Whereabouts::Blocked as u64,
            Whereabouts::Preempted as u64,
            Whereabouts::Unknown as u64,
            Whereabouts::AtGate as u64,
            HOLD_LOOK_FRACTION,
            LEAVING_FRACTION,
            LEAVING_SLICE_NS,
            LEAVING_CREDIT_NS,
            UNKNOWN_AFTER_NS,
            GATE_MAX_NS,
            QUOTA_NONE,
        ];
        // SAFETY: constants of host_layout.c.
        let c = unsafe { table(&raw const decide_constants, decide_constants_count) };
        assert_eq!(rust.to_vec(), c);
    }
}

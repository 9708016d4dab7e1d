//! Best-effort work: how a domain's tasks share what it gets, and what keeps all of them going
//! (`src/bpf/decide/best_effort.h`).

use super::domain::Domain;

/// No task joins a queue further behind its clock than this, in virtual time.
pub const TASK_LAG_MAX_NS: u64 = 2_000_000_000;
/// The slice of a task beside which nothing waits.
pub const SLICE_ALONE_NS: u64 = 20_000_000;
/// By so much virtual time a task that wakes must be behind another one of its domain to preempt it.
pub const TASK_PREEMPTS_NS: u64 = 1_000_000;
/// A CPU puts what its tasks use together up to this much before their domain pays it.
pub const CHARGE_BATCH_NS: u64 = 500_000;
/// The same for a task that goes on while nothing else waits.
pub const CHARGE_ALONE_NS: u64 = 4_000_000;
/// A best-effort task that has waited this long is rescued: served for a moment whatever its weight and quota.
pub const RESCUE_AFTER_NS: u64 = 12_000_000_000;
/// How long a rescued task runs.
pub const RESCUE_SLICE_NS: u64 = 100_000;
/// The first of the two for a task that was preempted while it reads what RCU protects.
pub const RESCUE_READER_AFTER_NS: u64 = 500_000_000;
/// The second for such a task.
pub const RESCUE_READER_SLICE_NS: u64 = 500_000;
/// After so long something is done about a task that was killed or told to stop, in nanoseconds.
pub const RESCUE_CALLED_AFTER_NS: u64 = 100_000_000;
/// So many of them at most leave the kernel at a time.
pub const CALLED_LEAVING_MAX: u32 = 64;
/// So many stand to be rescued for each CPU before the pace of rescues changes.
pub const RESCUE_CROWD: u32 = 250;
/// How often the queues are looked through for tasks that are to be rescued, in nanoseconds.
pub const RESCUE_LOOK_NS: u64 = 500_000_000;
/// How many tasks of a queue a look goes through.
pub const QUEUE_SCAN_MAX: usize = 32_768;
/// A CPU rescues one task in this time, as long as few wait for it.
pub const RESCUE_INTERVAL_NS: u64 = 2_000_000;

unsafe extern "C" {
    fn decide_task_cost(used_ns: u64, weight: u32) -> u64;
    fn decide_passed_since(since_ns: u64, now_ns: u64) -> u64;
    fn decide_rescue_due(waiting_since_ns: u64, reader: bool, now_ns: u64) -> bool;
    fn decide_rescue_look(
        waiting_since_ns: u64,
        reader: bool,
        called: bool,
        leaving: u32,
        standing: u32,
        now_ns: u64,
    ) -> u32;
    fn decide_looks_from_end(looks: u32) -> bool;
    fn decide_rescue_presses(waiting_since_ns: u64, now_ns: u64) -> bool;
    fn decide_rescue_interval_ns(standing: u32, cpus: u32, presses: bool) -> u64;
    fn decide_rescue_allowed(last_ns: u64, interval_ns: u64, now_ns: u64) -> bool;
    fn decide_rescue_begins(last_ns: u64, interval_ns: u64, now_ns: u64) -> u64;
    fn decide_rescue_paid(began_ns: u64, used_ns: u64, interval_ns: u64) -> u64;
    fn decide_rescue_room(standing: u32, cpus: u32) -> u32;
    fn decide_task_spread(domain: *const Domain, weight: u32, random: u32) -> u64;
    fn decide_task_join(vtime: u64, clock: u64, spread_ns: u64) -> u64;
    fn decide_task_moves(vtime: u64, clock_before_ns: u64, clock_ns: u64) -> u64;
    fn decide_task_preempts(waking: u64, vtime: u64, ran_ns: u64, turn_ns: u64, weight: u32) -> bool;
    fn decide_task_preempts_in(waking: u64, vtime: u64, ran_ns: u64, turn_ns: u64, weight: u32) -> u64;
}

/// Virtual time that a task of this weight (100: nice 0) pays for `used_ns`.
pub fn task_cost(used_ns: u64, weight: u32) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_cost(used_ns, weight) }
}

/// How long it has been. A moment that another CPU noted may come after what this one's clock said last: no time.
pub fn passed_since(since_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_passed_since(since_ns, now_ns) }
}

/// Whether a task that has waited since `waiting_since_ns` is to be rescued. A `reader` was preempted while it reads
/// what RCU protects.
pub fn rescue_due(waiting_since_ns: u64, reader: bool, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_due(waiting_since_ns, reader, now_ns) }
}

/// What is done about a task that waits when the queues are looked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookFinds {
    /// It waits on.
    Waits,
    /// It is rescued.
    Rescued,
    /// It becomes one of those that leave the kernel.
    Leaves,
}

/// As [`rescue_due`], and for one that was `called`: it is to end or to stop, and has to run once to notice. `leaving`
/// and `standing` say how many leave the kernel and stand to be rescued at that moment.
pub fn rescue_look(
    waiting_since_ns: u64,
    reader: bool,
    called: bool,
    (leaving, standing): (u32, u32),
    now_ns: u64,
) -> LookFinds {
    // SAFETY: takes and returns numbers.
    match unsafe { decide_rescue_look(waiting_since_ns, reader, called, leaving, standing, now_ns) } {
        0 => LookFinds::Waits,
        1 => LookFinds::Rescued,
        _ => LookFinds::Leaves,
    }
}

/// Whether the look after `looks` others goes through the queues from their ends.
pub fn looks_from_end(looks: u32) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_looks_from_end(looks) }
}

/// Whether those that stand to be rescued press, when the first of them has waited since `waiting_since_ns`.
pub fn rescue_presses(waiting_since_ns: u64, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_presses(waiting_since_ns, now_ns) }
}

/// In what time each of the `cpus` that are online may rescue a task when `standing` wait for it:
/// [`RESCUE_INTERVAL_NS`], shorter for a crowd, and shortest when they press.
pub fn rescue_interval_ns(standing: u32, cpus: u32, presses: bool) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_interval_ns(standing, cpus, presses) }
}

/// Whether a CPU that last rescued a task at `last_ns` may rescue another.
pub fn rescue_allowed(last_ns: u64, interval_ns: u64, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_allowed(last_ns, interval_ns, now_ns) }
}

/// What counts as the last rescue when one begins: up to 8 ms before, if the CPU was allowed one then and was not
/// asked.
pub fn rescue_begins(last_ns: u64, interval_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_begins(last_ns, interval_ns, now_ns) }
}

/// What counts as the last rescue after one that counts from `began_ns` and took `used_ns`: one that took longer than
/// [`RESCUE_SLICE_NS`] costs no more of a CPU than that in every [`RESCUE_INTERVAL_NS`].
pub fn rescue_paid(began_ns: u64, used_ns: u64, interval_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_paid(began_ns, used_ns, interval_ns) }
}

/// How many tasks may be taken out of their queues to be rescued, when `standing` were taken before and still wait: in
/// all as many as can be rescued in a second.
pub fn rescue_room(standing: u32, cpus: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_room(standing, cpus) }
}

/// How far behind a slice before the clock a task of this weight stands at least that begins or wakes up in the domain:
/// 0 for one of nice 0 and below.
pub fn task_spread(domain: &Domain, weight: u32, random: u32) -> u64 {
    // SAFETY: the domain is only read.
    unsafe { decide_task_spread(domain, weight, random) }
}

/// Where a task joins its queue: at most [`SLICE_NS`](super::SLICE_NS) ahead of the clock, less `spread_ns`, and at
/// most [`TASK_LAG_MAX_NS`] behind. `spread_ns` is [`task_spread()`] of one that begins or wakes up, else 0.
pub fn task_join(vtime: u64, clock: u64, spread_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_join(vtime, clock, spread_ns) }
}

/// Where a task stands that moves from a domain with the one clock to one with the other.
pub fn task_moves(vtime: u64, clock_before_ns: u64, clock_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_moves(vtime, clock_before_ns, clock_ns) }
}

/// Whether a task that wakes with virtual time `waking` is to preempt another one of its domain, which had `vtime` and
/// has run for `ran_ns` since, in this turn for `turn_ns`.
pub fn task_preempts(waking: u64, vtime: u64, ran_ns: u64, turn_ns: u64, weight: u32) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_preempts(waking, vtime, ran_ns, turn_ns, weight) }
}

/// In how many nanoseconds it is to do so, if that is within [`TASK_PREEMPTS_NS`]: 0 for now. The next tick looks after
/// the others.
pub fn task_preempts_in(waking: u64, vtime: u64, ran_ns: u64, turn_ns: u64, weight: u32) -> Option<u64> {
    // SAFETY: takes and returns numbers.
    let in_ns = unsafe { decide_task_preempts_in(waking, vtime, ran_ns, turn_ns, weight) };
    (in_ns <= TASK_PREEMPTS_NS).then_some(in_ns)
}

//! The order of best-effort work: weighted virtual time over a tree of domains (`src/bpf/decide/best_effort.h`).

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

pub use crate::DOMAINS_MAX;

/// How many levels of the tree are looked at.
pub const DEPTH_MAX: usize = 16;
/// The index of the root domain; 0 means none.
pub const ROOT_DOMAIN: u16 = 1;
/// The position of a domain that does not stand in the heap.
pub const NO_POSITION: u16 = 0xffff;
/// A share of 1: all that reservations leave.
pub const SHARE_ONE: u64 = 1 << 20;
/// The weight of a task of nice 0, and of a cgroup unless it says otherwise.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Domains keep weights in this many parts of one.
pub const WEIGHT_SCALE: u32 = 10;
/// The scaled weight of a domain with `cpu.idle`.
pub const WEIGHT_IDLE: u32 = 3;
/// A slice of best-effort work. The kernel ends it at the tick after it.
pub const SLICE_NS: u64 = 3_000_000;
/// No task joins a queue further behind its clock than this, in virtual time.
pub const TASK_LAG_MAX_NS: u64 = 2_000_000_000;
/// No domain lies further behind the clock than this, in virtual time.
pub const DOMAIN_LAG_MAX_NS: u64 = 8_000_000_000;
/// A best-effort task that has waited this long is rescued: served for a moment whatever its weight and quota.
pub const RESCUE_AFTER_NS: u64 = 8_000_000_000;
/// How long a rescued task runs.
pub const RESCUE_SLICE_NS: u64 = 100_000;
/// A CPU rescues at most one task in this time.
pub const RESCUE_INTERVAL_NS: u64 = 2_000_000;
/// The quota of a domain without `cpu.max`.
pub const QUOTA_NONE: u64 = u64::MAX;

/// A domain: a cgroup as the best-effort layer sees it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The cgroup's inode number.
    pub cgroup_id: u64,
    /// Its position among domains, in virtual ns.
    pub vtime: u64,
    /// The virtual time of its tasks.
    pub task_clock: u64,
    /// `cpu.max`; [`QUOTA_NONE`] without a limit.
    pub quota_ns: u64,
    /// The period of `cpu.max`.
    pub quota_period_ns: u64,
    /// `cpu.max.burst`.
    pub burst_ns: u64,
    /// When the quota is refilled next.
    pub refill_at_ns: u64,
    /// What is left of the quota; negative after an overrun.
    pub quota_left_ns: i64,
    /// Best-effort CPU time, for ever.
    pub used_ns: u64,
    /// Weight beside its siblings, in [`WEIGHT_SCALE`]-ths.
    pub weight: u32,
    /// Sum of the weights of its active children.
    pub child_weight: u32,
    /// Sum of the weights of its own runnable tasks, in [`WEIGHT_SCALE`]-ths.
    pub runnable_weight: u32,
    /// Its own runnable tasks.
    pub runnable: u32,
    /// Children in or below which something is runnable.
    pub active_children: u32,
    /// Its own tasks that stand in its queue.
    pub waiting: u32,
    /// Its own tasks, asleep or not.
    pub tasks: u32,
    /// Index of its parent; 0 for the root.
    pub parent: u16,
    /// Levels below the root.
    pub depth: u16,
    /// 1: the entry is taken.
    pub in_use: u8,
    /// 1: something is runnable in it or below it.
    pub active: u8,
    /// 1: it stands in the heap.
    pub queued: u8,
    /// 1: it has used up its quota.
    pub throttled: u8,
    /// 1: it is kept out of the heap because it or an ancestor is throttled.
    pub parked: u8,
    /// 1: the cgroup is gone; tasks of it may still run.
    pub dying: u8,
    unused: [u8; 2],
}

/// All domains, and the heap of those that have waiting tasks.
///
/// Every index is taken modulo [`DOMAINS_MAX`], so no argument can reach outside of the table.
#[repr(C)]
pub struct DomainTable {
    /// Virtual time of the domain served last.
    pub clock: u64,
    /// How many domains stand in the heap.
    pub heap_count: u32,
    /// No index at or above it was ever used.
    pub high_water: u32,
    /// How many domains have a quota.
    pub quotas: u32,
    pub(super) cursor: u32,
    /// Indices of domains, a binary heap by [`Domain::vtime`].
    pub heap: [u16; DOMAINS_MAX],
    /// Where in the heap each domain stands.
    pub position: [u16; DOMAINS_MAX],
    /// The domains by index.
    pub domains: [Domain; DOMAINS_MAX],
}

unsafe extern "C" {
    fn decide_domain_enqueue(table: *mut DomainTable, index: u16);
    fn decide_domain_dequeue(table: *mut DomainTable, index: u16);
    fn decide_domain_first(table: *const DomainTable) -> u16;
    fn decide_domain_reposition(table: *mut DomainTable, index: u16);
    fn decide_domain_weight(cgroup_weight: u32, idle: bool) -> u32;
    fn decide_domain_share(table: *const DomainTable, index: u16) -> u64;
    fn decide_domain_cost(used_ns: u64, share: u64) -> u64;
    fn decide_domain_advance(vtime: u64, clock: u64, cost: u64) -> u64;
    fn decide_domain_settle(table: *mut DomainTable, index: u16);
    fn decide_domain_set_weight(table: *mut DomainTable, index: u16, weight: u32);
    fn decide_domain_held(table: *const DomainTable, index: u16) -> bool;
    fn decide_domain_set_quota(
        table: *mut DomainTable,
        index: u16,
        period_ns: u64,
        quota_ns: u64,
        burst_ns: u64,
        now_ns: u64,
    );
    fn decide_quota_charge(domain: *mut Domain, used_ns: u64);
    fn decide_quota_refill(domain: *mut Domain, now_ns: u64) -> bool;
    fn decide_task_cost(used_ns: u64, weight: u32) -> u64;
    fn decide_rescue_due(waiting_since_ns: u64, now_ns: u64) -> bool;
    fn decide_rescue_allowed(last_ns: u64, now_ns: u64) -> bool;
    fn decide_task_join(vtime: u64, clock: u64) -> u64;
    fn decide_bound_fraction(bound_shares: u64, cpus: u32) -> u64;
}

/// Weight of a domain in [`WEIGHT_SCALE`]-ths, from `cpu.weight` (1 to 10,000; 0: the default) and `cpu.idle`.
pub fn domain_weight(cgroup_weight: u32, idle: bool) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_domain_weight(cgroup_weight, idle) }
}

/// Virtual time that `used_ns` costs a domain with this share.
///
/// # Panics
/// If `share` is 0, which [`DomainTable::share`] never returns.
pub fn domain_cost(used_ns: u64, share: u64) -> u64 {
    assert!(share > 0, "a domain has a share");
    // SAFETY: takes and returns numbers; the divisor is not 0.
    unsafe { decide_domain_cost(used_ns, share) }
}

/// A domain's virtual time after paying `cost`, at most [`DOMAIN_LAG_MAX_NS`] behind the clock.
pub fn domain_advance(vtime: u64, clock: u64, cost: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_domain_advance(vtime, clock, cost) }
}

/// Virtual time that a task of this weight (100: nice 0) pays for `used_ns`.
pub fn task_cost(used_ns: u64, weight: u32) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_cost(used_ns, weight) }
}

/// Whether a task that has waited since `waiting_since_ns` is to be rescued.
pub fn rescue_due(waiting_since_ns: u64, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_due(waiting_since_ns, now_ns) }
}

/// Whether a CPU that last rescued a task at `last_ns` may rescue another.
pub fn rescue_allowed(last_ns: u64, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_rescue_allowed(last_ns, now_ns) }
}

/// Where a task joins its queue: at most [`SLICE_NS`] ahead of the clock, at most [`TASK_LAG_MAX_NS`] behind.
pub fn task_join(vtime: u64, clock: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_task_join(vtime, clock) }
}

/// The part of a CPU, in [`SHARE_ONE`]-ths, that is due to work bound to it.
pub fn bound_fraction(bound_shares: u64, cpus: u32) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_bound_fraction(bound_shares, cpus) }
}

impl Domain {
    /// Takes `used_ns` out of this domain's quota; its ancestors' are the caller's to walk.
    pub fn quota_charge(&mut self, used_ns: u64) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; so below.
        unsafe { decide_quota_charge(self, used_ns) }
    }

    /// Refills the quota when its period is over. True when that lets a throttled domain go on.
    pub fn quota_refill(&mut self, now_ns: u64) -> bool {
        // SAFETY: as in quota_charge().
        unsafe { decide_quota_refill(self, now_ns) }
    }
}

impl DomainTable {
    /// An empty table. It takes half a megabyte, hence the box.
    pub fn new() -> Box<Self> {
        let layout = Layout::new::<Self>();
        // SAFETY: the layout is not empty, and all zeroes are a value of every member; a box frees by the same layout.
        unsafe {
            let table = alloc_zeroed(layout).cast::<Self>();
            if table.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(table)
        }
    }

    /// The domain at `index`.
    pub fn at(&self, index: u16) -> &Domain {
        &self.domains[index as usize % DOMAINS_MAX]
    }

    /// The domain at `index`.
    pub fn at_mut(&mut self, index: u16) -> &mut Domain {
        &mut self.domains[index as usize % DOMAINS_MAX]
    }

    /// Puts a domain that has waiting tasks into the heap, no further ahead of the clock than one slice. O(log n) in the
    /// domains that stand there.
    pub fn enqueue(&mut self, index: u16) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; the function masks every
        // index; so below.
        unsafe { decide_domain_enqueue(self, index) }
    }

    /// Takes a domain out of the heap. O(log n).
    pub fn dequeue(&mut self, index: u16) {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_dequeue(self, index) }
    }

    /// The domain to serve next; `None` when none waits. O(1).
    pub fn first(&self) -> Option<u16> {
        // SAFETY: as in enqueue().
        Some(unsafe { decide_domain_first(self) }).filter(|index| *index != 0)
    }

    /// Puts a domain whose virtual time has grown where it now belongs. O(log n).
    pub fn reposition(&mut self, index: u16) {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_reposition(self, index) }
    }

    /// The share of a domain's own tasks in all best-effort time, in [`SHARE_ONE`]-ths, at least 1. O(depth).
    pub fn share(&self, index: u16) -> u64 {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_share(self, index) }
    }

    /// Brings the sums of a domain's ancestors in line with whether anything in it is runnable. O(depth).
    pub fn settle(&mut self, index: u16) {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_settle(self, index) }
    }

    /// Changes a domain's weight, in [`WEIGHT_SCALE`]-ths.
    pub fn set_weight(&mut self, index: u16, weight: u32) {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_set_weight(self, index, weight) }
    }

    /// Whether the domain or one above it has used up its quota. O(depth).
    pub fn held(&self, index: u16) -> bool {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_held(self, index) }
    }

    /// Sets `cpu.max` and `cpu.max.burst`; `quota_ns` is [`QUOTA_NONE`] for "max".
    pub fn set_quota(&mut self, index: u16, period_ns: u64, quota_ns: u64, burst_ns: u64, now_ns: u64) {
        // SAFETY: as in enqueue().
        unsafe { decide_domain_set_quota(self, index, period_ns, quota_ns, burst_ns, now_ns) }
    }
}

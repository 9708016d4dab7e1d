//! The tree of domains: who is due what, and who is held back (`src/bpf/decide/domain.h`).

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

pub use crate::DOMAINS_MAX;

/// How many levels of the tree are looked at.
pub const DEPTH_MAX: usize = 16;
/// The index of the root domain; 0 means none.
pub const ROOT_DOMAIN: u16 = 1;
/// The position of a domain that does not stand in the heap.
pub const NO_POSITION: u16 = 0xffff;
/// A share of 1: the whole of the CPU time.
pub const SHARE_ONE: u64 = 1 << 20;
/// In a [`Standing`]: it has to stand behind.
pub const STANDS_BEHIND: u64 = 1 << 63;
/// The weight of a task of nice 0, and of a cgroup unless it says otherwise.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Domains keep weights in this many parts of one.
pub const WEIGHT_SCALE: u32 = 10;
/// The scaled weight of a domain with `cpu.idle`.
pub const WEIGHT_IDLE: u32 = 3;
/// How many priorities there are: 0 to 7.
pub const PRIORITIES: usize = 8;
/// The priority of a domain that nobody gave one.
pub const PRIORITY_DEFAULT: u8 = 4;
/// How many tokens of MTR-LS a domain holds at most.
pub const TOKENS_MAX: usize = 32;
/// The quota of a domain without `cpu.max`.
pub const QUOTA_NONE: u64 = u64::MAX;

/// A token of MTR-LS (Eclipse 1998, section 5.1).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its place in the order, on the clock of served time.
    pub stamp: u64,
    /// The CPU time that it still stands for, in nanoseconds.
    pub left_ns: u64,
}

/// A domain: a cgroup as the best-effort layer sees it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The cgroup's inode number.
    pub cgroup_id: u64,
    /// Its place in the order of domains; the smallest is served first.
    pub key: u64,
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
    /// CPU time of its own tasks, reserved or not, for ever.
    pub used_ns: u64,
    /// CPU time out of its tasks' reservations, for ever.
    pub reserved_used_ns: u64,
    /// Time that its tasks have waited as best-effort, summed over tasks, for ever.
    pub waited_ns: u64,
    /// Up to when the next two are counted.
    pub counted_ns: u64,
    /// The integral over time of the number of its own runnable tasks, in nanoseconds, for ever.
    pub runnable_ns: u64,
    /// The same of that number's square; wraps.
    pub runnable_squared_ns: u64,
    /// MTR-LS: what its tokens hold together.
    pub tokens_ns: u64,
    /// MTR-LS: the stamp that it was given when it last paid.
    pub last_stamp: u64,
    /// WRR: what is left of its part of the cycle.
    pub cycle_left_ns: i64,
    /// WRR: the cycle that `cycle_left_ns` belongs to.
    pub cycle: u64,
    /// A ring; stamps grow from the first to the last.
    pub tokens: [Token; TOKENS_MAX],
    /// Place of the first token.
    pub first_token: u32,
    /// How many there are.
    pub token_count: u32,
    /// Weight beside its siblings, in [`WEIGHT_SCALE`]-ths.
    pub weight: u32,
    /// What `cpu.weight` and `cpu.idle` say, in [`WEIGHT_SCALE`]-ths.
    pub cgroup_weight: u32,
    /// Reserved for it of what its parent has, in [`SHARE_ONE`]-ths.
    pub reserved: u32,
    /// Weight of its own tasks together, in [`WEIGHT_SCALE`]-ths; 0: the sum of theirs.
    pub own_weight: u32,
    /// Weights of its active children, by priority.
    pub child_weight: [u32; PRIORITIES],
    /// Active children, by priority.
    pub child_count: [u32; PRIORITIES],
    /// Reserved for its active children.
    pub child_reserved: u32,
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
    /// Order among siblings, 0 to 7.
    pub priority: u8,
    /// Priority of its own tasks beside its children.
    pub own_priority: u8,
    /// Bit n: a child of priority n is active.
    pub child_priorities: u8,
    /// 1: a policy says its weight, whatever `cpu.weight` is.
    pub has_weight: u8,
    /// 1: the entry is taken.
    pub in_use: u8,
    /// 1: something is runnable in it or below it.
    pub active: u8,
    /// 1: it stands in the heap.
    pub queued: u8,
    /// 1: it is kept out of the heap because it or an ancestor is held.
    pub parked: u8,
    /// 1: it has used up its quota.
    pub throttled: u8,
    /// 1: it is suspended.
    pub suspended: u8,
    /// 1: the cgroup is gone; tasks of it may still run.
    pub dying: u8,
    /// Which of the two heaps it stands in, or stood in last: whether it had to stand behind then
    /// ([`Standing::stands_behind`]).
    pub behind: u8,
}

/// Where a domain's own tasks stand beside those of others.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    /// A share of all CPU time, in [`SHARE_ONE`]-ths.
    ///
    /// # Panics
    /// If it is 0.
    pub fn of_share(share: u64) -> Self {
        assert!((1..=SHARE_ONE).contains(&share), "a domain has a share");
        Standing(share)
    }

    /// The same share of what is left to those who have to stand behind.
    pub fn behind(self) -> Self {
        Standing(self.0 | STANDS_BEHIND)
    }

    /// In [`SHARE_ONE`]-ths, at least 1: of all CPU time, or of what is left to those who stand behind.
    pub fn share(self) -> u64 {
        // SAFETY: takes and returns numbers.
        unsafe { decide_standing_share(self.0) }
    }

    /// Its share of all CPU time at the moment, in [`SHARE_ONE`]-ths, at least 1: nothing for one that has to stand behind.
    pub fn share_at_the_moment(self) -> u64 {
        // SAFETY: takes and returns numbers.
        unsafe { decide_share_at_the_moment(self.0) }
    }

    /// Whether it is served only when nobody else waits: a higher priority is active beside it or above, and it has
    /// nothing reserved there.
    pub fn stands_behind(self) -> bool {
        self.0 & STANDS_BEHIND != 0
    }
}

/// What the owner decided for a domain (Walfield, sections 3.2 and 4.1; Eclipse 1998, section 3).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Weight beside its siblings, in [`WEIGHT_SCALE`]-ths; 0: what the cgroup says.
    pub weight: u32,
    /// Reserved for it of what its parent has, in [`SHARE_ONE`]-ths.
    pub reserved: u32,
    /// Weight of its own tasks together, in [`WEIGHT_SCALE`]-ths; 0: the sum of theirs.
    pub own_weight: u32,
    /// Order among siblings, 0 to 7.
    pub priority: u8,
    /// Priority of its own tasks beside its children, 0 to 7.
    pub own_priority: u8,
    unused: [u8; 2],
}

impl Policy {
    /// A policy; see the members for the units.
    pub fn new(priority: u8, weight: u32, reserved: u32, own_priority: u8, own_weight: u32) -> Self {
        Policy { weight, reserved, own_weight, priority, own_priority, unused: [0; 2] }
    }
}

impl Default for Policy {
    /// Nothing reserved, everything as the cgroup says.
    fn default() -> Self {
        Policy::new(PRIORITY_DEFAULT, 0, 0, PRIORITY_DEFAULT, 0)
    }
}

/// A domain that stands in a heap.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapEntry {
    /// The domain's [`Domain::key`].
    pub key: u64,
    /// The domain's index.
    pub index: u32,
    unused: u32,
}

/// All domains, and the heaps of those that have waiting tasks.
///
/// Every index is taken modulo [`DOMAINS_MAX`], so no argument can reach outside of the table.
#[repr(C)]
pub struct DomainTable {
    /// CPU time that all domains got together, for ever: the clock of MTR-LS.
    pub served_ns: u64,
    /// Virtual time: of the domain served last.
    pub clock: u64,
    /// `T`: the service cycle.
    pub service_cycle_ns: u64,
    /// WRR: the number of the cycle.
    pub cycle: u64,
    /// WRR: when the cycle ends.
    pub cycle_ends_ns: u64,
    /// WRR: counts arrivals.
    pub sequence: u64,
    /// The order in force, an [`Order`](super::Order) as a number.
    pub order: u32,
    /// How many CPUs are online.
    pub cpus: u32,
    /// How many domains stand in the heap of those that do not have to stand behind, and of those that do.
    pub heap_counts: [u32; 2],
    /// No index at or above it was ever used.
    pub high_water: u32,
    /// How many domains have a quota or are suspended.
    pub quotas: u32,
    pub(super) cursor: u32,
    /// Not 0: a domain has had another priority than [`PRIORITY_DEFAULT`].
    pub priorities: u32,
    pub(super) revised: u32,
    unused: u32,
    /// Two heaps by [`HeapEntry::key`], of four children each: from the first place on those that do not have to stand behind,
    /// and from the middle on those that do.
    pub heap: [HeapEntry; 2 * DOMAINS_MAX],
    /// Where in its heap each domain stands.
    pub position: [u16; DOMAINS_MAX],
    /// The domains by index.
    pub domains: [Domain; DOMAINS_MAX],
}

unsafe extern "C" {
    fn decide_domain_weight(cgroup_weight: u32, idle: bool) -> u32;
    fn decide_domain_standing(table: *const DomainTable, index: u16) -> Standing;
    fn decide_standing_share(standing: u64) -> u64;
    fn decide_share_at_the_moment(standing: u64) -> u64;
    fn decide_domain_runnable_changes(domain: *mut Domain, more: bool, now_ns: u64) -> bool;
    fn decide_domain_settle(table: *mut DomainTable, index: u16);
    fn decide_domain_set_weight(table: *mut DomainTable, index: u16, weight: u32);
    fn decide_domain_set_policy(table: *mut DomainTable, index: u16, policy: *const Policy);
    fn decide_domain_suspend(table: *mut DomainTable, index: u16, suspended: bool) -> bool;
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
}

/// Weight of a domain in [`WEIGHT_SCALE`]-ths, from `cpu.weight` (1 to 10,000; 0: the default) and `cpu.idle`.
pub fn domain_weight(cgroup_weight: u32, idle: bool) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_domain_weight(cgroup_weight, idle) }
}

impl Domain {
    /// One of its own tasks begins (`more`) or ceases to be runnable. True when it is the first or was the last, and the
    /// table is to be settled.
    pub fn runnable_changes(&mut self, more: bool, now_ns: u64) -> bool {
        // SAFETY: a structure of the layout that the function expects, which a test checks; so below.
        unsafe { decide_domain_runnable_changes(self, more, now_ns) }
    }

    /// The two integrals of its own runnable tasks up to a moment ([`Domain::runnable_ns`], [`Domain::runnable_squared_ns`]).
    pub fn runnable_until(&self, now_ns: u64) -> (u64, u64) {
        let tasks = u64::from(self.runnable);
        let passed_ns = now_ns.saturating_sub(self.counted_ns).wrapping_mul(tasks);
        (
            self.runnable_ns.wrapping_add(passed_ns),
            self.runnable_squared_ns.wrapping_add(passed_ns.wrapping_mul(tasks)),
        )
    }

    /// Takes `used_ns` out of this domain's quota; its ancestors' are the caller's to walk.
    pub fn quota_charge(&mut self, used_ns: u64) {
        // SAFETY: as in runnable_changes().
        unsafe { decide_quota_charge(self, used_ns) }
    }

    /// Refills the quota when its period is over. True when that lets a throttled domain go on.
    pub fn quota_refill(&mut self, now_ns: u64) -> bool {
        // SAFETY: as in runnable_changes().
        unsafe { decide_quota_refill(self, now_ns) }
    }
}

impl DomainTable {
    /// An empty table for one CPU, with MTR-LS and its default cycle. It takes some megabytes, hence the box.
    pub fn new() -> Box<Self> {
        let layout = Layout::new::<Self>();
        // SAFETY: the layout is not empty, and all zeroes are a value of every member; a box frees by the same layout.
        let mut table = unsafe {
            let table = alloc_zeroed(layout).cast::<Self>();
            if table.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(table)
        };
        (table.cpus, table.service_cycle_ns) = (1, super::SERVICE_CYCLE_DEFAULT_NS);
        table
    }

    /// The domain at `index`.
    pub fn at(&self, index: u16) -> &Domain {
        &self.domains[index as usize % DOMAINS_MAX]
    }

    /// The domain at `index`.
    pub fn at_mut(&mut self, index: u16) -> &mut Domain {
        &mut self.domains[index as usize % DOMAINS_MAX]
    }

    /// Where a domain's own tasks stand. O(depth).
    pub fn standing(&self, index: u16) -> Standing {
        // SAFETY: a structure of the layout that the function expects, which a test checks; the function masks every
        // index; so below.
        unsafe { decide_domain_standing(self, index) }
    }

    /// The share of a domain's own tasks in all CPU time at the moment, in [`SHARE_ONE`]-ths, at least 1. O(depth).
    pub fn share(&self, index: u16) -> u64 {
        self.standing(index).share_at_the_moment()
    }

    /// Brings the sums of a domain's ancestors in line with whether anything in it is runnable. O(depth).
    pub fn settle(&mut self, index: u16) {
        // SAFETY: as in standing().
        unsafe { decide_domain_settle(self, index) }
    }

    /// Changes what `cpu.weight` says, in [`WEIGHT_SCALE`]-ths; a weight given by a policy stands.
    pub fn set_weight(&mut self, index: u16, weight: u32) {
        // SAFETY: as in standing().
        unsafe { decide_domain_set_weight(self, index, weight) }
    }

    /// Gives a domain a policy in place of what it has.
    pub fn set_policy(&mut self, index: u16, policy: &Policy) {
        // SAFETY: as in standing(); the policy is only read.
        unsafe { decide_domain_set_policy(self, index, policy) }
    }

    /// Suspends a domain with all below it, or lets it go on; true when that changes anything. O(depth).
    pub fn suspend(&mut self, index: u16, suspended: bool) -> bool {
        // SAFETY: as in standing().
        unsafe { decide_domain_suspend(self, index, suspended) }
    }

    /// Whether the domain or one above it has used up its quota or is suspended. O(depth).
    pub fn held(&self, index: u16) -> bool {
        // SAFETY: as in standing().
        unsafe { decide_domain_held(self, index) }
    }

    /// Sets `cpu.max` and `cpu.max.burst`; `quota_ns` is [`QUOTA_NONE`] for "max".
    pub fn set_quota(&mut self, index: u16, period_ns: u64, quota_ns: u64, burst_ns: u64, now_ns: u64) {
        // SAFETY: as in standing().
        unsafe { decide_domain_set_quota(self, index, period_ns, quota_ns, burst_ns, now_ns) }
    }
}

//! The tree of domains: who is due what, and who is held back (`src/bpf/decide/domain.h`).

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

pub use crate::DOMAINS_MAX;

/// The service cycle unless settings say otherwise (Eclipse 1998, section 6.2).
pub const SERVICE_CYCLE_DEFAULT_NS: u64 = 500_000_000;
/// How many levels of the tree are looked at.
pub const DEPTH_MAX: usize = 16;
/// The index of the root domain; 0 means none.
pub const ROOT_DOMAIN: u16 = 1;
/// The deepest level that has domains of its own: cgroups below are part of it.
pub const DEPTH_MOST: u16 = 15;
/// A share of 1: the whole of the CPU time.
pub const SHARE_ONE: u64 = 1 << 20;
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
/// How many heaps a level of the tree has: one for each priority, and one of those who have something reserved.
pub const HEAPS: usize = PRIORITIES + 1;
/// How many nodes there are.
pub const NODES: usize = 4 * DOMAINS_MAX;
/// Added to a domain's index: the node of its own tasks beside its children.
pub const NODE_OWN: usize = DOMAINS_MAX;
/// Added to a domain's index: its node among the siblings that have something reserved.
pub const NODE_RESERVED: usize = 2 * DOMAINS_MAX;
/// How many tokens of MTR-LS a contender holds at most.
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

/// What virtual time keeps of a contender beside its key, which is its place.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The virtual time that it has paid for.
    pub paid: u64,
    /// What it used since it came back with all of its credit, in nanoseconds: 0 while it has not run, and a slice if
    /// that or more.
    pub since_back_ns: u64,
    /// What its level had been served when that was counted from, in nanoseconds.
    pub since_served_ns: u64,
    /// Virtual time that it has paid for time out of its tasks' reservations, beyond what leaves it all of its credit.
    pub ahead: u64,
    /// All virtual time that it has ever paid by its weight.
    pub total: u64,
    /// 1 if it has left of its own will since then, having used less than a slice.
    pub little: u8,
}

/// Where a contender stands on one CPU among what may run on some CPUs only, by what it was served there.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestrictedPlace {
    /// Virtual time.
    pub paid: u64,
    /// What it had paid anywhere, when this was counted last.
    pub total: u64,
    /// What the level had been served then, in nanoseconds.
    pub served_ns: u64,
    /// By which its debt counts.
    pub weight: u32,
    /// [`Domain::begun`] of the domain that it is of; another number: it never wanted anything of this kind here.
    pub begun: u32,
}

/// What the paper's orders keep of a contender.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Tokens {
    /// MTR-LS: stamps grow from the first to the last.
    pub ring: [Token; TOKENS_MAX],
    /// MTR-LS: what they hold together, in nanoseconds.
    pub held_ns: u64,
    /// MTR-LS: the stamp that it was given when it last paid.
    pub last_stamp: u64,
    /// WRR: the cycle that `cycle_left_ns` belongs to.
    pub cycle: u64,
    /// WRR: what is left of its part of the cycle.
    pub cycle_left_ns: i64,
    /// MTR-LS: how much of a payment they covered so far.
    pub covered_ns: u64,
    /// Place of the first token.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

/// A contender in a heap.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// A node that comes after it, or 0.
    pub left: u16,
    /// Another one; the way out is no longer there than to the left.
    pub right: u16,
    /// The node above it, or 0.
    pub up: u16,
    /// How many nodes to the nearest place without one.
    pub rank: u8,
    /// 0: it does not wait; else 1 and the heap in which it stands.
    pub heap: u8,
}

/// A domain: a cgroup as the best-effort layer sees it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The cgroup's inode number.
    pub cgroup_id: u64,
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
    /// How much of that it has paid for among its siblings.
    pub reserved_paid_ns: u64,
    /// Time that its tasks have waited as best-effort, summed over tasks, for ever.
    pub waited_ns: u64,
    /// Up to when the next two are counted.
    pub counted_ns: u64,
    /// The integral over time of the number of its own runnable tasks, in nanoseconds, for ever.
    pub runnable_ns: u64,
    /// The same of that number's square; wraps.
    pub runnable_squared_ns: u64,
    /// CPU time that it and all below it got: the clock of its children's reservations.
    pub served_ns: u64,
    /// Virtual time of its level, by priority: of whoever was served last there.
    pub clocks: [u64; PRIORITIES],
    /// WRR: the number of its level's cycle.
    pub cycle: u64,
    /// WRR: when the cycle ends.
    pub cycle_ends_ns: u64,
    /// WRR: counts arrivals.
    pub sequence: u64,
    /// The first node of each of its level's heaps.
    pub first: [u16; HEAPS],
    /// Bit n: somebody of priority n waits at its level.
    pub waiting_priorities: u16,
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
    /// Reserved for its active children.
    pub child_reserved: u32,
    /// Weights of all its children.
    pub all_weight: u32,
    /// Reserved for all its children.
    pub all_reserved: u32,
    /// Children, active or not.
    pub children: u32,
    /// Domains below it, at any depth.
    pub below: u32,
    /// Sum of the weights of its own runnable tasks, in [`WEIGHT_SCALE`]-ths.
    pub runnable_weight: u32,
    /// The weight of the last of them, when there are none.
    pub last_weight: u32,
    /// The weight by which its debt among its siblings counts.
    pub paid_weight: u32,
    /// The weight by which its own tasks' debt beside its children counts.
    pub own_paid_weight: u32,
    /// Its own runnable tasks.
    pub runnable: u32,
    /// Children in or below which something is runnable.
    pub active_children: u32,
    /// Its own tasks that stand in its queue.
    pub waiting: u32,
    /// Those that stand in its queue of tasks which may not run everywhere, or are on their way into it.
    pub waiting_restricted: u32,
    /// Its own tasks, asleep or not.
    pub tasks: u32,
    /// How often domains of this index have begun.
    pub begun: u32,
    /// Index of its parent; 0 for the root.
    pub parent: u16,
    /// Levels below the root.
    pub depth: u16,
    /// 1: it has used up its quota.
    pub throttled: u8,
    /// 1: it is suspended.
    pub suspended: u8,
    /// Order among siblings, 0 to 7.
    pub priority: u8,
    /// Priority of its own tasks beside its children.
    pub own_priority: u8,
    /// 1: a policy says its weight, whatever `cpu.weight` is.
    pub has_weight: u8,
    /// 1: the entry is taken.
    pub in_use: u8,
    /// 1: something is runnable in it or below it.
    pub active: u8,
    /// 1: a CPU found tasks of it that may not run everywhere, and held.
    pub restricted_held: u8,
    /// 1: it is kept out of its parent's heaps because it is held.
    pub parked: u8,
    /// 1: the cgroup is gone; tasks of it may still run.
    pub dying: u8,
    /// 1 if nothing was runnable in it and below it since it last began to wait among its siblings.
    pub left: u8,
    /// 1 if none of its own tasks was runnable since they last began to wait beside its children.
    pub own_left: u8,
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

/// All domains, and the heaps of those that have waiting tasks.
///
/// Every index is taken modulo [`DOMAINS_MAX`], so no argument can reach outside of the table.
#[repr(C)]
pub struct DomainTable {
    /// `T`: the service cycle.
    pub service_cycle_ns: u64,
    /// The order in force, an [`Order`](super::Order) as a number.
    pub order: u32,
    /// How many CPUs are online.
    pub cpus: u32,
    /// No index at or above it was ever used.
    pub high_water: u32,
    /// How many domains have a quota or are suspended.
    pub quotas: u32,
    /// How many domains have a priority that is not the default.
    pub priorities: u32,
    /// How many domains have their own tasks in the heaps.
    pub waiting: u32,
    /// Where a walk through heaps and levels is.
    pub(super) walk: [u64; 18],
    /// Of each node: virtual time, a stamp, or a place in line.
    pub keys: [u64; NODES],
    /// The nodes.
    pub nodes: [Node; NODES],
    /// Of each domain, and from the middle on of its own tasks.
    pub tokens: [Tokens; 2 * DOMAINS_MAX],
    /// The same.
    pub accounts: [Account; 2 * DOMAINS_MAX],
    /// The domains by index.
    pub domains: [Domain; DOMAINS_MAX],
}

/// What one CPU keeps of the order.
#[repr(C)]
pub struct CpuOrder {
    /// The virtual time of each level among what may run on some CPUs only: of whoever of them was served here last.
    pub clocks: [u64; DOMAINS_MAX],
    /// Where each domain stands among these, and from the middle on its own tasks.
    pub places: [RestrictedPlace; 2 * DOMAINS_MAX],
    /// Bit n of word m: domain 64 m + n has tasks waiting that may run on some CPUs only, among them this one.
    pub restricted: [u64; DOMAINS_MAX / 64],
    /// Bit n: word n of these is not 0.
    pub any_restricted: u64,
}

unsafe extern "C" {
    fn decide_domain_weight(cgroup_weight: u32, idle: bool) -> u32;
    fn decide_domain_begin(table: *mut DomainTable, index: u16, parent: u16, weight: u32);
    fn decide_domain_behind(table: *mut DomainTable, index: u16) -> bool;
    fn decide_domain_end(table: *mut DomainTable, index: u16);
    fn decide_domains_lower(table: *mut DomainTable) -> bool;
    fn decide_domain_has_room(table: *const DomainTable, parent: u16) -> bool;
    fn decide_domain_weight_changes(domain: *mut Domain, more: bool, weight: u32);
    fn decide_domain_runnable_changes(domain: *mut Domain, more: bool, now_ns: u64) -> bool;
    fn decide_domain_settle(table: *mut DomainTable, index: u16);
    fn decide_domain_set_weight(table: *mut DomainTable, index: u16, weight: u32);
    fn decide_order_set_policy(table: *mut DomainTable, index: u16, policy: *const Policy);
    fn decide_domain_suspend(table: *mut DomainTable, index: u16, suspended: bool) -> bool;
    fn decide_domain_held_by(table: *const DomainTable, index: u16) -> u16;
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

/// Who contends at a level.
struct Contender {
    priority: u8,
    weight: u32,
    reserved: u32,
    counted: bool,
}

impl Domain {
    /// What its own tasks weigh together beside its children; when none is runnable, as the last one that was, or as
    /// one of nice 0.
    fn own_tasks_weight(&self) -> u32 {
        [self.own_weight, self.runnable_weight, self.last_weight]
            .into_iter()
            .find(|weight| *weight > 0)
            .unwrap_or(WEIGHT_DEFAULT * WEIGHT_SCALE)
    }

    /// One of its own tasks begins (`more`) or ceases to be runnable. True when it is the first or was the last, and
    /// the table is to be settled.
    pub fn runnable_changes(&mut self, more: bool, now_ns: u64) -> bool {
        // SAFETY: a structure of the layout that the function expects, which a test checks; so below.
        unsafe { decide_domain_runnable_changes(self, more, now_ns) }
    }

    /// A task of this weight, in [`WEIGHT_SCALE`]-ths, begins (`more`) or ceases to count among its own runnable ones.
    pub fn weight_changes(&mut self, more: bool, weight: u32) {
        // SAFETY: as in runnable_changes().
        unsafe { decide_domain_weight_changes(self, more, weight) }
    }

    /// The two integrals of its own runnable tasks up to a moment ([`Domain::runnable_ns`],
    /// [`Domain::runnable_squared_ns`]).
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
    /// An empty table for one CPU, with virtual time and the default cycle. It takes some megabytes, hence the box.
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
        (table.cpus, table.service_cycle_ns) = (1, SERVICE_CYCLE_DEFAULT_NS);
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

    /// A cgroup is made: its domain begins below `parent` (0: it is the root). `weight` as [`domain_weight`] gives it.
    pub fn begin(&mut self, index: u16, parent: u16, weight: u32) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; the function masks every
        // index; so below.
        unsafe { decide_domain_begin(self, index, parent, weight) }
    }

    /// A domain without tasks and children ends.
    pub fn end(&mut self, index: u16) {
        // SAFETY: as in begin().
        unsafe { decide_domain_end(self, index) }
    }

    /// After domains have ended: the last ones are not gone through any more, some of them. Returns whether there may
    /// be more.
    pub fn lower(&mut self) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_domains_lower(self) }
    }

    /// Whether the domain's own tasks are deferred to something that can run: at its level, or at one above it.
    /// O(depth).
    pub fn behind(&mut self, index: u16) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_domain_behind(self, index) }
    }

    /// Whether a cgroup below this domain may have a domain of its own; else it is part of this one. O(depth).
    pub fn has_room(&self, parent: u16) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_domain_has_room(self, parent) }
    }

    /// What a contender at a level gets of what the level has, 0 to 1: its reservation, and its weight's part of the
    /// rest if nobody of a higher priority is active there. `counted`: it is among the active ones already; else it
    /// counts as if it were.
    fn fraction(&self, level: u16, contender: &Contender) -> f64 {
        let Contender { priority, weight, reserved, counted } = *contender;
        let d = self.at(level);
        let own = if d.runnable > 0 { Some((d.own_priority, d.own_tasks_weight())) } else { None };
        let highest = (0..PRIORITIES as u8)
            .rev()
            .find(|p| d.child_weight[usize::from(*p)] > 0 || own.is_some_and(|(own, _)| own == *p))
            .unwrap_or(0);
        let taken = u64::from(d.child_reserved) + if counted { 0 } else { u64::from(reserved) };
        let mut beside = u64::from(d.child_weight[usize::from(priority)]);
        beside += own.filter(|(own, _)| *own == priority).map_or(0, |(_, weight)| u64::from(weight));
        beside += if counted { 0 } else { u64::from(weight) };
        let part =
            if priority < highest { 0.0 } else { f64::from(weight) / beside.max(u64::from(weight)) as f64 };
        let rest = SHARE_ONE.saturating_sub(taken) as f64 / SHARE_ONE as f64;
        f64::from(reserved) / SHARE_ONE as f64 + rest * part
    }

    /// The share of a domain's own tasks in all CPU time at the moment, in [`SHARE_ONE`]-ths, at least 1: what the
    /// order comes to for one that has enough to run. One that is not active counts as if it were. O(depth).
    pub fn share(&self, index: u16) -> u64 {
        let d = self.at(index);
        let weight = d.own_tasks_weight();
        let own = Contender { priority: d.own_priority, weight, reserved: 0, counted: d.runnable > 0 };
        let (mut share, mut index) = (self.fraction(index, &own), index);
        for _ in 0..DEPTH_MAX {
            let d = self.at(index);
            if d.parent == 0 {
                break;
            }
            let Domain { priority, weight, reserved, active, .. } = *d;
            share *= self.fraction(d.parent, &Contender { priority, weight, reserved, counted: active == 1 });
            index = d.parent;
        }
        ((share * SHARE_ONE as f64) as u64).max(1)
    }

    /// Brings the sums of a domain's ancestors in line with whether anything in it is runnable. O(depth).
    pub fn settle(&mut self, index: u16) {
        // SAFETY: as in begin().
        unsafe { decide_domain_settle(self, index) }
    }

    /// Changes what `cpu.weight` says, in [`WEIGHT_SCALE`]-ths; a weight given by a policy stands.
    pub fn set_weight(&mut self, index: u16, weight: u32) {
        // SAFETY: as in begin().
        unsafe { decide_domain_set_weight(self, index, weight) }
    }

    /// Gives a domain a policy in place of what it has.
    pub fn set_policy(&mut self, index: u16, policy: &Policy) {
        // SAFETY: as in begin(); the policy is only read.
        unsafe { decide_order_set_policy(self, index, policy) }
    }

    /// Suspends a domain with all below it, or resumes it; true when that changes anything. O(depth).
    pub fn suspend(&mut self, index: u16, suspended: bool) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_domain_suspend(self, index, suspended) }
    }

    /// Whether the domain or one above it has used up its quota or is suspended. O(depth).
    pub fn held(&self, index: u16) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_domain_held_by(self, index) != 0 }
    }

    /// The domain or the nearest one above it that has used up its quota or is suspended. O(depth).
    pub fn held_by(&self, index: u16) -> Option<u16> {
        // SAFETY: as in begin().
        Some(unsafe { decide_domain_held_by(self, index) }).filter(|index| *index != 0)
    }

    /// Sets `cpu.max` and `cpu.max.burst`; `quota_ns` is [`QUOTA_NONE`] for "max".
    pub fn set_quota(&mut self, index: u16, period_ns: u64, quota_ns: u64, burst_ns: u64, now_ns: u64) {
        // SAFETY: as in begin().
        unsafe { decide_domain_set_quota(self, index, period_ns, quota_ns, burst_ns, now_ns) }
    }
}

impl CpuOrder {
    /// Of a CPU that has served nothing yet. It takes some hundred kilobytes, hence the box.
    pub fn new() -> Box<Self> {
        Box::new(CpuOrder {
            clocks: [0; DOMAINS_MAX],
            places: [RestrictedPlace::default(); 2 * DOMAINS_MAX],
            restricted: [0; DOMAINS_MAX / 64],
            any_restricted: 0,
        })
    }
}

//! The order of domains: who is served next (`src/bpf/decide/order.h`).

use steward_core::cpu::best_effort::BestEffortOrder;

use super::domain::{CpuOrder, DomainTable};

/// A slice of best-effort work. The kernel ends it at the tick after it.
pub const SLICE_NS: u64 = 3_000_000;
/// Virtual time that a nanosecond costs is this, divided by the weight in [`WEIGHT_SCALE`](super::WEIGHT_SCALE)-ths.
pub const VIRTUAL_TIME_UNIT: u64 = 16_000;
/// How far a reservation may be overdrawn, for each CPU.
pub const RESERVED_DEBT_NS: u64 = 6_000_000;
/// Nobody lies further behind its level's clock than this service of the level, for each CPU.
pub const DOMAIN_LAG_MAX_NS: u64 = 8_000_000_000;

/// How domains are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Virtual time, level by level, with credit of a cycle.
    VirtualTime = 0,
    /// Move-To-Rear List Scheduling (Eclipse 1998, section 5).
    MtrLs = 1,
    /// Weighted round-robin (Eclipse 1998, section 6.2).
    Wrr = 2,
}

impl From<BestEffortOrder> for Order {
    fn from(order: BestEffortOrder) -> Self {
        match order {
            BestEffortOrder::VirtualTime => Order::VirtualTime,
            BestEffortOrder::MtrLs => Order::MtrLs,
            BestEffortOrder::Wrr => Order::Wrr,
        }
    }
}

/// Where a task may run; the more of what its domain was served counts in its place, the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Restriction {
    /// Everywhere.
    #[default]
    None = 0,
    /// On one CPU, and nowhere else.
    OneCpu = 1,
    /// On some CPUs, and not on all.
    SomeCpus = 2,
}

unsafe extern "C" {
    fn decide_order_enqueue(table: *mut DomainTable, index: u16, now_ns: u64);
    fn decide_order_dequeue(table: *mut DomainTable, index: u16);
    fn decide_order_is_queued(table: *const DomainTable, index: u16) -> bool;
    fn decide_order_park(table: *mut DomainTable, index: u16);
    fn decide_order_park_if_held(table: *mut DomainTable, index: u16);
    fn decide_order_unpark(table: *mut DomainTable, index: u16, now_ns: u64);
    fn decide_order_first(table: *const DomainTable) -> u16;
    fn decide_order_serve(table: *mut DomainTable, cpu: *mut CpuOrder, index: u16);
    fn decide_order_serve_restricted(table: *mut DomainTable, cpu: *mut CpuOrder, index: u16);
    fn decide_order_charge(
        table: *mut DomainTable,
        cpu: *mut CpuOrder,
        restriction: u32,
        index: u16,
        used_ns: u64,
        now_ns: u64,
    );
    fn decide_order_precedes(
        table: *const DomainTable,
        few: *const CpuOrder,
        a: u16,
        b: u16,
        b_runs: bool,
    ) -> bool;
    fn decide_order_join(
        table: *mut DomainTable,
        cpu: *mut CpuOrder,
        restriction: u32,
        index: u16,
        now_ns: u64,
    );
    fn decide_restricted_waits(cpu: *mut CpuOrder, index: u16);
    fn decide_restricted_forget(cpu: *mut CpuOrder, index: u16);
    fn decide_restricted_first(table: *const DomainTable, cpu: *mut CpuOrder, free: u16, own: bool) -> u16;
    fn decide_order_reset(table: *mut DomainTable, index: u16);
}

fn some(index: u16) -> Option<u16> {
    Some(index).filter(|index| *index != 0)
}

impl DomainTable {
    /// Chooses the order; every domain begins anew. To be called before any domain stands in it.
    pub fn set_order(&mut self, order: Order, service_cycle_ns: u64) {
        (self.order, self.service_cycle_ns) = (order as u32, service_cycle_ns);
        (0..self.domains.len() as u16).for_each(|index| self.reset(index));
    }

    /// Makes a domain begin anew in the order that is in force. It must not stand in it.
    pub fn reset(&mut self, index: u16) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; the function masks every
        // index; so below.
        unsafe { decide_order_reset(self, index) }
    }

    /// Puts a domain that has waiting tasks into the order. O(depth log n) for n contenders at a level.
    pub fn enqueue(&mut self, index: u16, now_ns: u64) {
        // SAFETY: as in reset().
        unsafe { decide_order_enqueue(self, index, now_ns) }
    }

    /// Takes a domain whose tasks do not wait any more out of the order. O(depth log n).
    pub fn dequeue(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_dequeue(self, index) }
    }

    /// Whether it stands in the order.
    pub fn is_queued(&self, index: u16) -> bool {
        // SAFETY: as in reset().
        unsafe { decide_order_is_queued(self, index) }
    }

    /// A domain is held: it leaves the order with all below it. O(depth log n).
    pub fn park(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_park(self, index) }
    }

    /// As [`DomainTable::park`], unless it has been let go since it was found held. O(depth log n).
    pub fn park_if_held(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_park_if_held(self, index) }
    }

    /// It is held no longer. O(depth log n).
    pub fn unpark(&mut self, index: u16, now_ns: u64) {
        // SAFETY: as in reset().
        unsafe { decide_order_unpark(self, index, now_ns) }
    }

    /// The domain to serve next; `None` when none waits. O(depth).
    pub fn first(&self) -> Option<u16> {
        // SAFETY: as in reset().
        some(unsafe { decide_order_first(self) })
    }

    /// A CPU serves the domain, with a task that may run everywhere. O(depth).
    pub fn serve(&mut self, cpu: &mut CpuOrder, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_serve(self, cpu, index) }
    }

    /// A CPU serves the domain, with a task that may run on some CPUs only. O(depth).
    pub fn serve_restricted(&mut self, cpu: &mut CpuOrder, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_serve_restricted(self, cpu, index) }
    }

    /// The domain was served `used_ns` of CPU time, with tasks that may run everywhere. O(depth log n).
    pub fn charge(&mut self, index: u16, used_ns: u64, now_ns: u64) {
        // SAFETY: as in reset(); without a CPU's order it takes one of its own, in which nothing waits.
        unsafe { decide_order_charge(self, std::ptr::null_mut(), 0, index, used_ns, now_ns) }
    }

    /// The domain was served `used_ns` of CPU time by the CPU of this order, with tasks of this kind. O(depth log n).
    pub fn charge_on(
        &mut self,
        cpu: &mut CpuOrder,
        restriction: Restriction,
        index: u16,
        used_ns: u64,
        now_ns: u64,
    ) {
        // SAFETY: as in reset().
        unsafe { decide_order_charge(self, cpu, restriction as u32, index, used_ns, now_ns) }
    }

    /// Whether tasks of domain `a` come before tasks of domain `b`; both wait. O(depth).
    pub fn precedes(&self, a: u16, b: u16) -> bool {
        // SAFETY: as in reset().
        unsafe { decide_order_precedes(self, std::ptr::null(), a, b, false) }
    }

    /// Whether tasks of domain `waiting` come before a task of domain `running`, which runs: among those that have
    /// all of their credit, who runs goes on. `few` is the order of tasks that may run on some CPUs only, of the CPU
    /// where it runs, where both are such. O(depth).
    pub fn precedes_running(&self, few: Option<&CpuOrder>, waiting: u16, running: u16) -> bool {
        let few = few.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as in reset().
        unsafe { decide_order_precedes(self, few, waiting, running, true) }
    }

    /// Tasks of the domain, of this kind, want to run, and `cpu` is that of the CPU that they are on: credit of more
    /// than a cycle is forgotten. O(depth log n).
    pub fn join(&mut self, cpu: &mut CpuOrder, restriction: Restriction, index: u16, now_ns: u64) {
        // SAFETY: as in reset().
        unsafe { decide_order_join(self, cpu, restriction as u32, index, now_ns) }
    }

    /// Of the domains that wait for this CPU with tasks that may run on some CPUs only, the one that comes first, of
    /// those that come before the domain `free`, if there is one, or with `own` are that domain. O(k depth) for k such
    /// domains.
    pub fn restricted_first(&self, cpu: &mut CpuOrder, free: Option<u16>, own: bool) -> Option<u16> {
        // SAFETY: as in reset().
        some(unsafe { decide_restricted_first(self, cpu, free.unwrap_or(0), own) })
    }
}

impl CpuOrder {
    /// Notes that tasks of the domain wait that may run on this CPU and not on all.
    pub fn restricted_waits(&mut self, index: u16) {
        // SAFETY: a structure of the layout that the function expects; it masks the index.
        unsafe { decide_restricted_waits(self, index) }
    }

    /// Forgets it.
    pub fn restricted_forget(&mut self, index: u16) {
        // SAFETY: as in restricted_waits().
        unsafe { decide_restricted_forget(self, index) }
    }
}

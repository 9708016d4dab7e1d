//! The order of domains: who is served next (`src/bpf/decide/order.h`).

use steward_core::mechanism::BestEffortOrder;

use super::{DomainTable, Standing};

/// The service cycle unless settings say otherwise (Eclipse 1998, section 6.2).
pub const SERVICE_CYCLE_DEFAULT_NS: u64 = 500_000_000;
/// A token of MTR-LS holds what was served within this part of a cycle.
pub const TOKENS_PER_CYCLE: u64 = 16;
/// A slice of best-effort work. The kernel ends it at the tick after it.
pub const SLICE_NS: u64 = 3_000_000;
/// No domain lies further behind the others than this, on the clock of the order, once per CPU.
pub const DOMAIN_LAG_MAX_NS: u64 = 8_000_000_000;

/// How domains are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Move-To-Rear List Scheduling (Eclipse 1998, section 5).
    MtrLs = 0,
    /// Weighted round-robin (Eclipse 1998, section 6.2).
    Wrr = 1,
    /// Weighted virtual time.
    Vtime = 2,
}

impl From<BestEffortOrder> for Order {
    fn from(order: BestEffortOrder) -> Self {
        match order {
            BestEffortOrder::MtrLs => Order::MtrLs,
            BestEffortOrder::Wrr => Order::Wrr,
            BestEffortOrder::Vtime => Order::Vtime,
        }
    }
}

unsafe extern "C" {
    fn decide_order_enqueue(table: *mut DomainTable, index: u16, standing: Standing, now_ns: u64);
    fn decide_order_dequeue(table: *mut DomainTable, index: u16);
    fn decide_order_first(table: *const DomainTable) -> u16;
    fn decide_order_serve(table: *mut DomainTable, index: u16);
    fn decide_order_charge(table: *mut DomainTable, index: u16, used_ns: u64, share: u64, now_ns: u64);
    fn decide_order_step_back(table: *mut DomainTable, index: u16);
    fn decide_order_reset(table: *mut DomainTable, index: u16);
    fn decide_order_refresh(table: *mut DomainTable, index: u16, share: u64);
    fn decide_order_first_behind(table: *const DomainTable) -> u16;
    fn decide_order_next_behind(table: *mut DomainTable) -> u16;
    fn decide_order_nobody_before(table: *const DomainTable, running: u16, behind: bool) -> bool;
    fn decide_order_preempts(table: *const DomainTable, a: u16, b: u16, b_behind: bool) -> bool;
    fn decide_order_due(table: *const DomainTable, share: u64) -> u64;
}

impl DomainTable {
    /// Chooses the order; every domain begins anew. To be called before any domain stands in the heap.
    pub fn set_order(&mut self, order: Order, service_cycle_ns: u64) {
        (self.order, self.service_cycle_ns) = (order as u32, service_cycle_ns);
        (0..self.domains.len() as u16).for_each(|index| self.reset(index));
    }

    /// Makes a domain begin anew in the order that is in force.
    pub fn reset(&mut self, index: u16) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; the function masks every
        // index; so below.
        unsafe { decide_order_reset(self, index) }
    }

    /// Puts a domain that has waiting tasks into the heap. `standing` is its [`DomainTable::standing`]. O(log n) in the domains
    /// that stand there.
    pub fn enqueue(&mut self, index: u16, standing: Standing, now_ns: u64) {
        // SAFETY: as in reset(); no divisor is 0, as no share is; so below.
        unsafe { decide_order_enqueue(self, index, standing, now_ns) }
    }

    /// Takes a domain out of the heap. O(log n).
    pub fn dequeue(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_dequeue(self, index) }
    }

    /// The domain to serve next; `None` when none waits. O(1).
    pub fn first(&self) -> Option<u16> {
        // SAFETY: as in reset().
        Some(unsafe { decide_order_first(self) }).filter(|index| *index != 0)
    }

    /// The first domain is being served.
    pub fn serve(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_serve(self, index) }
    }

    /// The domain was served `used_ns` of CPU time. O(log n).
    pub fn charge(&mut self, index: u16, used_ns: u64, standing: Standing, now_ns: u64) {
        // SAFETY: as in enqueue().
        unsafe { decide_order_charge(self, index, used_ns, standing.share(), now_ns) }
    }

    /// The domain stands first but cannot be served: those behind it go before it for once. O(log n).
    pub fn step_back(&mut self, index: u16) {
        // SAFETY: as in reset().
        unsafe { decide_order_step_back(self, index) }
    }

    /// The domain's standing has changed by somebody's decision: what it holds follows at once. O(log n).
    pub fn refresh(&mut self, index: u16, standing: Standing) {
        // SAFETY: as in enqueue().
        unsafe { decide_order_refresh(self, index, standing.share()) }
    }

    /// The first of those that stand behind, if it would come before all others if it did not.
    pub fn first_behind(&self) -> Option<u16> {
        // SAFETY: as in reset().
        Some(unsafe { decide_order_first_behind(self) }).filter(|index| *index != 0)
    }

    /// One after the other of those that stand behind; `None` when there are none.
    pub fn next_behind(&mut self) -> Option<u16> {
        // SAFETY: as in reset().
        Some(unsafe { decide_order_next_behind(self) }).filter(|index| *index != 0)
    }

    /// How many domains wait. O(1).
    pub fn waiting(&self) -> u32 {
        self.heap_counts.iter().sum()
    }

    /// Whether nothing that waits in other domains comes before domain `running`, which could go on. `behind`: whether
    /// `running` has to stand behind now. O(1).
    pub fn nobody_before(&self, running: u16, behind: bool) -> bool {
        // SAFETY: as in reset().
        unsafe { decide_order_nobody_before(self, running, behind) }
    }

    /// Whether a task of domain `a`, which begins to wait, is to preempt one of domain `b`, which runs. `b_behind`: whether
    /// `b` has to stand behind now.
    pub fn preempts(&self, a: u16, b: u16, b_behind: bool) -> bool {
        // SAFETY: as in reset().
        unsafe { decide_order_preempts(self, a, b, b_behind) }
    }

    /// What a domain with this share is due in one service cycle, in nanoseconds.
    pub fn due(&self, share: u64) -> u64 {
        // SAFETY: as in reset().
        unsafe { decide_order_due(self, share) }
    }
}

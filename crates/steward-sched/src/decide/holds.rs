//! Holding tasks back without holding what they hold: who is let run on until it has left the kernel, and at what rate
//! (`src/bpf/decide/holds.h`).

/// Looks for those that are held inside the kernel take one part in so many of a CPU at most.
pub const HOLD_LOOK_FRACTION: u64 = 8;
/// While other work waits, those that leave get one part in so many of a CPU.
pub const LEAVING_FRACTION: u64 = 8;
/// For so long one that is deferred waits before it leaves while others want its CPU.
pub const LEAVING_PATIENCE_NS: u64 = 20_000_000;
/// A slice of one that leaves.
pub const LEAVING_SLICE_NS: u64 = 3_000_000;
/// What a CPU did not need for those that leave counts for them later, up to this much of its time.
pub const LEAVING_CREDIT_NS: u64 = 24_000_000;
/// Where the kernel does not say whether a task was inside of it, each that has waited so long runs for a slice.
pub const UNKNOWN_AFTER_NS: u64 = 100_000_000;
/// A task that was stopped on its way to user space goes on to the next such place after this time.
pub const GATE_MAX_NS: u64 = 2_000_000_000;

/// Where a task was when it last ceased to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Whereabouts {
    /// On its way to user space, or it has not run yet: it has no lock of the kernel.
    AtBoundary = 0,
    /// It slept inside the kernel until something happens outside.
    Asleep = 1,
    /// It waited inside the kernel for a lock, a page or a disk.
    Blocked = 2,
    /// It was preempted inside the kernel.
    Preempted = 3,
    /// It was preempted, and the kernel does not say where.
    Unknown = 4,
    /// It was stopped in the last thing that it does before it enters user space.
    AtGate = 5,
}

impl Whereabouts {
    /// All of them.
    pub const ALL: [Whereabouts; 6] = [
        Whereabouts::AtBoundary,
        Whereabouts::Asleep,
        Whereabouts::Blocked,
        Whereabouts::Preempted,
        Whereabouts::Unknown,
        Whereabouts::AtGate,
    ];
}

unsafe extern "C" {
    fn decide_hold_leaves(held: bool, behind: bool, whereabouts: u32) -> bool;
    fn decide_hold_overstays(held: bool, behind: bool, whereabouts: u32, waited_ns: u64) -> bool;
    fn decide_hold_look_due(took_ns: u64, now_ns: u64) -> u64;
    fn decide_leaving_place(clock_ns: u64) -> u64;
    fn decide_leaving_again(clock_ns: u64, place_ns: u64, used_ns: u64) -> u64;
    fn decide_leaving_clock(clock_ns: u64, place_ns: u64, used_ns: u64, standing: u32) -> u64;
    fn decide_leaving_due(due_ns: u64, now_ns: u64) -> bool;
    fn decide_leaving_presses(behind: bool, waited_ns: u64) -> bool;
    fn decide_leaving_charge(due_ns: u64, used_ns: u64, now_ns: u64) -> u64;
}

/// Whether a task that could run is let run on until it has left the kernel: its domain is `held`, or has to stand
/// `behind`.
pub fn hold_leaves(held: bool, behind: bool, whereabouts: Whereabouts) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_hold_leaves(held, behind, whereabouts as u32) }
}

/// The same of one that has waited in its domain's queue for `waited_ns`.
pub fn hold_overstays(held: bool, behind: bool, whereabouts: Whereabouts, waited_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_hold_overstays(held, behind, whereabouts as u32, waited_ns) }
}

/// When a look for those that are held inside the kernel may begin after one that ended now and took `took_ns`.
pub fn hold_look_due(took_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_hold_look_due(took_ns, now_ns) }
}

/// Where a task that begins to leave stands on the clock of those that leave; the least is served first.
pub fn leaving_place(clock_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_place(clock_ns) }
}

/// Where it stands after it has used `used_ns`: behind those that begin to leave.
pub fn leaving_again(clock_ns: u64, place_ns: u64, used_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_again(clock_ns, place_ns, used_ns) }
}

/// The clock after a task that stood at `place_ns` has used `used_ns`, when `standing` tasks leave, itself included.
pub fn leaving_clock(clock_ns: u64, place_ns: u64, used_ns: u64, standing: u32) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_clock(clock_ns, place_ns, used_ns, standing) }
}

/// Whether a CPU may serve one that leaves although other work waits. `due_ns` is what [`leaving_charge`] returned
/// last, at first 0.
pub fn leaving_due(due_ns: u64, now_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_due(due_ns, now_ns) }
}

/// Whether the next of those that leave, which has waited for `waited_ns`, may come before other work; its domain may
/// be deferred to something that can run (`behind`).
pub fn leaving_presses(behind: bool, waited_ns: u64) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_presses(behind, waited_ns) }
}

/// When the CPU may serve one that leaves again, after one has used `used_ns`.
pub fn leaving_charge(due_ns: u64, used_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_leaving_charge(due_ns, used_ns, now_ns) }
}

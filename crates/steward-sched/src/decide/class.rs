//! What bounds the interactive class of one CPU while it runs (`src/bpf/decide/class.h`).

use std::sync::atomic::AtomicU32;

/// Into how many parts time is divided for [`CLASS_RATE_PARTS`].
pub const CLASS_PARTS: u64 = 20;
/// How many of them reservations may have beside best-effort work that waits.
pub const CLASS_RATE_PARTS: u64 = 19;
/// By how much they may be ahead of that, in nanoseconds.
pub const CLASS_BURST_NS: u64 = 10_000_000;
/// How long best-effort work runs when it goes first, in nanoseconds.
pub const CLASS_GAP_NS: u64 = 500_000;

/// By how much the interactive class of a CPU is ahead of what it may have.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassUse {
    /// By how much, at `at_ns`, in nanoseconds.
    pub level_ns: u64,
    /// When that was so.
    pub at_ns: u64,
}

unsafe extern "C" {
    fn decide_class_used(class: *mut ClassUse, used_ns: u64, now_ns: u64);
    fn decide_class_held(class: *const ClassUse, running_ns: u64, now_ns: u64) -> bool;
    fn decide_interactive_expect(expected: *mut u32);
    fn decide_interactive_in_vain(expected: *mut u32, seen: u32);
}

/// A task is about to be put into a CPU's interactive queue: the CPU looks there while `expected` is not 0.
pub fn interactive_expect(expected: &AtomicU32) {
    // SAFETY: the function writes the number with one store.
    unsafe { decide_interactive_expect(expected.as_ptr()) }
}

/// The CPU's interactive queue was found empty, `seen` having been read before.
pub fn interactive_in_vain(expected: &AtomicU32, seen: u32) {
    // SAFETY: the function changes the number atomically.
    unsafe { decide_interactive_in_vain(expected.as_ptr(), seen) }
}

impl ClassUse {
    /// A task of the class ran for `used_ns` up to `now_ns`.
    pub fn used(&mut self, used_ns: u64, now_ns: u64) {
        // SAFETY: a structure of the layout that the function expects, which a test checks.
        unsafe { decide_class_used(self, used_ns, now_ns) }
    }

    /// Whether best-effort work goes first, if there is any. `running_ns`: for how long a task of the class has run
    /// since.
    pub fn held(&self, running_ns: u64, now_ns: u64) -> bool {
        // SAFETY: as in used().
        unsafe { decide_class_held(self, running_ns, now_ns) }
    }
}

//! How the standing of a task's slot changes while several CPUs want to change it at once
//! (`src/bpf/decide/standing.h`).

use std::sync::atomic::AtomicU32;

/// Nobody has the slot.
pub const STANDING_NONE: u32 = 0;
/// The task has its reservation.
pub const STANDING_ADMITTED: u32 = 1;
/// It was not admitted.
pub const STANDING_REFUSED: u32 = 2;
/// Its reservation was taken away.
pub const STANDING_REVOKED: u32 = 3;
/// Somebody is changing it.
pub const STANDING_CHANGING: u32 = 4;

unsafe extern "C" {
    fn decide_standing_take(standing: *mut u32, from: u32) -> bool;
    fn decide_standing_settle(standing: *mut u32, to: u32) -> bool;
    fn decide_standing_end(standing: *mut u32) -> u32;
}

/// The standing of a slot, shared by those who change it.
#[derive(Debug, Default)]
pub struct SlotStanding(AtomicU32);

impl SlotStanding {
    /// What it is at the moment.
    pub fn get(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// A new task has the slot, and nobody else knows of it yet.
    pub fn begin(&self) {
        self.0.store(STANDING_CHANGING, std::sync::atomic::Ordering::SeqCst);
    }

    /// Takes it for a change. False when it is another one than `from` meanwhile.
    pub fn take(&self, from: u32) -> bool {
        // SAFETY: the function changes the number atomically, as all others here do.
        unsafe { decide_standing_take(self.0.as_ptr(), from) }
    }

    /// Ends a change. False when the task gave the slot up meanwhile: the caller gives back the reservation if there is
    /// one, and frees the slot.
    pub fn settle(&self, to: u32) -> bool {
        // SAFETY: as in take().
        unsafe { decide_standing_settle(self.0.as_ptr(), to) }
    }

    /// The task gives the slot up. Returns what the standing was: the caller gives back the reservation of
    /// [`STANDING_ADMITTED`], and frees the slot unless it is [`STANDING_CHANGING`].
    pub fn end(&self) -> u32 {
        // SAFETY: as in take().
        unsafe { decide_standing_end(self.0.as_ptr()) }
    }
}

//! Which places of a table are taken (`src/bpf/decide/places.h`).

use std::sync::atomic::AtomicU64;

/// How many places there are.
pub const PLACES_MAX: u32 = 4096;

unsafe extern "C" {
    fn decide_places_take(taken: *mut u64) -> u32;
    fn decide_places_give(taken: *mut u64, place: u32);
    fn decide_places_end(taken: *const u64) -> u32;
}

/// The places of a table, shared by those who take them and give them back.
#[derive(Debug)]
pub struct Places([AtomicU64; PLACES_MAX as usize / 64]);

impl Default for Places {
    /// All of them free.
    fn default() -> Self {
        Places([const { AtomicU64::new(0) }; PLACES_MAX as usize / 64])
    }
}

impl Places {
    /// Takes the first place that is free; `None` when there is none.
    pub fn take(&self) -> Option<u32> {
        // SAFETY: the function changes the words atomically, and they are as many as it goes through.
        let place = unsafe { decide_places_take(self.0[0].as_ptr()) };
        (place < PLACES_MAX).then_some(place)
    }

    /// Gives one back.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn give(&self, place: u32) {
        assert!(place < PLACES_MAX, "there is no place {place}");
        // SAFETY: as in take().
        unsafe { decide_places_give(self.0[0].as_ptr(), place) }
    }

    /// No place from here on is taken.
    pub fn end(&self) -> u32 {
        // SAFETY: as in take().
        unsafe { decide_places_end(self.0[0].as_ptr()) }
    }
}

/// The same of words that were read elsewhere.
pub fn places_end(taken: &[u64; PLACES_MAX as usize / 64]) -> u32 {
    // SAFETY: the function reads as many words.
    unsafe { decide_places_end(taken.as_ptr()) }
}

//! What a thread of the memory's room and whoever started it both see.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A state, and what tells the thread that it has changed; a thread that waits for descriptors too has a
/// [`Bell`](crate::turn::front::Bell) for that.
#[derive(Default)]
pub(super) struct Shared<State> {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl<State> Shared<State> {
    /// The state, for as long as it is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics with the lock, and if somebody did: each of its fields would still be one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

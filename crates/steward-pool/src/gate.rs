//! A semaphore whose size can change while it is in use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many may pass at once, and how many wait.
#[derive(Debug)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    /// Those who wait; they count themselves.
    waiting: AtomicU64,
    sizing: Mutex<Sizing>,
}

#[derive(Debug)]
struct Sizing {
    workers: usize,
    /// Permits that are to vanish, but are in use: each vanishes when it comes back.
    debt: usize,
}

impl Gate {
    pub(crate) fn new(workers: usize) -> Self {
        Gate {
            permits: Arc::new(Semaphore::new(workers)),
            waiting: AtomicU64::new(0),
            sizing: Mutex::new(Sizing { workers, debt: 0 }),
        }
    }

    pub(crate) fn permits(&self) -> Arc<Semaphore> {
        self.permits.clone()
    }

    pub(crate) fn size(&self) -> usize {
        self.sizing().workers
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets so many pass at once from now on. Who is through already stays.
    pub(crate) fn resize(&self, workers: usize) {
        let mut sizing = self.sizing();
        if workers >= sizing.workers {
            let more = workers - sizing.workers;
            let kept = more.min(sizing.debt);
            sizing.debt -= kept;
            self.permits.add_permits(more - kept);
        } else {
            let fewer = sizing.workers - workers;
            sizing.debt += fewer - self.permits.forget_permits(fewer);
        }
        sizing.workers = workers;
    }

    fn sizing(&self) -> MutexGuard<'_, Sizing> {
        // Plain numbers, changed together: a panic elsewhere cannot leave them half changed.
        self.sizing.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A place of one who is through.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    pub(crate) fn new(gate: Arc<Gate>, permit: OwnedSemaphorePermit) -> Self {
        Place { gate, permit: Some(permit) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sizing = self.gate.sizing();
        if let Some(permit) = self.permit.take()
            && sizing.debt > 0
        {
            sizing.debt -= 1;
            permit.forget();
        }
    }
}

/// Counts one who waits, for as long as it exists.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Gate>);

impl Waiting {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        gate.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(gate)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever happens in whichever order: once those who are through are no more than the size, exactly the size
        /// can pass.
        #[test]
        fn as_many_pass_as_the_last_size_says(steps in prop::collection::vec((0usize..12, any::<bool>()), 1..60)) {
            let gate = Arc::new(Gate::new(4));
            let mut places: Vec<Place> = Vec::new();
            for (number, resizes) in steps {
                if resizes {
                    gate.resize(number);
                } else if number % 2 == 0 {
                    if let Ok(permit) = gate.permits().try_acquire_owned() {
                        places.push(Place::new(gate.clone(), permit));
                        prop_assert!(places.len() <= gate.size());
                    } else {
                        prop_assert!(places.len() >= gate.size());
                    }
                } else {
                    places.pop();
                }
            }
            places.clear();
            prop_assert_eq!(gate.permits().available_permits(), gate.size());
        }
    }
}

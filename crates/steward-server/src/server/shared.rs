//! What all threads of a server share: the state under its lock, and what wakes those who look after it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::announce::{Announcements, Task};
#[cfg(feature = "tower")]
use super::entry::Afterwards;
use super::entry::{Came, Entry, Outcome};
use super::settings::Settings;
use super::state::{Class, State, Told};
use crate::clock::{self, ThreadDelay};
use crate::controller::End;
use crate::snapshot::Snapshot;

pub(super) struct Shared {
    state: Mutex<State>,
    /// Somebody waits for his turn, or has just begun: the keeper may have to wake sooner.
    keeper: Condvar,
    /// There is something to reserve.
    reserver: Condvar,
    /// A worker has ended.
    ended: Condvar,
    pub(super) settings: Settings,
    /// Of the requests of workers that have a reservation.
    pub(super) announcements: Announcements,
}

impl Shared {
    pub(super) fn new(state: State, settings: Settings) -> Arc<Self> {
        Arc::new(Shared {
            state: Mutex::new(state),
            keeper: Condvar::new(),
            reserver: Condvar::new(),
            ended: Condvar::new(),
            settings,
            announcements: Announcements::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Requests run outside of the lock, and what is done under it does not panic half-way.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What there is to see.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let (reserved, best_effort) = state.workers();
        Snapshot {
            reserved_workers: reserved as u64,
            best_effort_workers: best_effort as u64,
            unreserved: state.unreserved.clone(),
            ..state.controller.snapshot()
        }
    }

    /// Does something to the state, and wakes those who look after what came of it.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        self.wake(&mut state);
        result
    }

    /// Wakes those who look after the server, if they have something to do: once, for it is a system call, and while
    /// requests are served it may take them long to come.
    fn wake(&self, state: &mut State) {
        if state.is_changed && !std::mem::replace(&mut state.is_reserver_awake, true) {
            self.reserver.notify_all();
        }
        let is_early = state.keeper_is_early() || state.missing() > 0;
        if state.is_closing || is_early && !std::mem::replace(&mut state.is_keeper_awake, true) {
            self.keeper.notify_all();
        }
    }

    /// Waits until there may be something for the keeper, at most for so long; `None` is for as long as it takes.
    pub(super) fn keeper_waits(&self, timeout: Option<Duration>) {
        let mut state = self.state();
        state.is_keeper_awake = false;
        if state.keeper_is_early() || state.missing() > 0 {
            return;
        }
        match timeout {
            Some(timeout) => drop(self.keeper.wait_timeout(state, timeout)),
            None => drop(self.keeper.wait(state)),
        }
    }

    /// Waits until there may be something to reserve, at most for so long.
    pub(super) fn reserver_waits(&self, timeout: Duration) {
        let mut state = self.state();
        state.is_reserver_awake = false;
        if !state.is_changed && !state.is_closing {
            drop(self.reserver.wait_timeout(state, timeout));
        }
    }

    /// Waits until all workers have ended but those that were given up, at most for so long. Whether they have.
    pub(super) fn wait_for_end(&self, timeout: Duration) -> bool {
        let waited = self.ended.wait_timeout_while(self.state(), timeout, |state| !state.is_over());
        waited.is_ok_and(|(_, timeout)| !timeout.timed_out())
    }

    /// Starts a thread that becomes a worker, unless `reserve`, which is told what task it is and says what it has
    /// reserved, says that it is not to be one. Whether it is.
    ///
    /// # Errors
    /// The kernel's, when it gives no thread.
    pub(super) fn start(
        self: &Arc<Self>,
        class: Class,
        reserve: impl FnOnce(&Task) -> Option<Option<(u64, u64)>>,
    ) -> std::io::Result<bool> {
        let shared = self.clone();
        let (tell_task, task) = channel();
        let (tell_number, number) = channel();
        let name = match class {
            Class::Reserved(_) => "steward-serve",
            Class::BestEffort => "steward-rest",
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let task = Task::own();
            let is_done = task.is_done.clone();
            let _ = tell_task.send(task);
            if let Ok(number) = number.recv() {
                shared.work(number, class, &is_done);
            }
        })?;
        let task = task.recv().map_err(std::io::Error::other)?;
        let Some(reserved) = reserve(&task) else { return Ok(false) };
        let number = self.with(|state| state.add(class, reserved, task, thread.thread().clone()));
        let _ = tell_number.send(number);
        Ok(true)
    }

    /// The life of a worker.
    fn work(self: &Arc<Self>, number: u64, class: Class, is_done: &AtomicBool) {
        // Those without a reservation are few, and each has a descriptor for it.
        let delay = (class == Class::BestEffort).then(ThreadDelay::open).flatten();
        let mut told = self.with(|state| state.ask(number));
        loop {
            told = match told {
                Told::Serve(entry) => {
                    if class != Class::BestEffort {
                        self.announcements.begins();
                    }
                    is_done.store(false, Ordering::Relaxed);
                    self.serve(number, entry, is_done, delay.as_ref())
                }
                Told::Rest(until_ns) => {
                    self.announcements.sleeps();
                    let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(clock::now_ns()));
                    match left_ns {
                        Some(left_ns) => std::thread::park_timeout(Duration::from_nanos(left_ns)),
                        None => std::thread::park(),
                    }
                    self.with(|state| state.ask(number))
                }
                Told::End => {
                    self.ended.notify_all();
                    self.keeper.notify_all();
                    return;
                }
            };
        }
    }

    /// Serves a request; returns what the worker is to do then.
    fn serve(
        self: &Arc<Self>,
        number: u64,
        entry: Entry,
        is_done: &AtomicBool,
        delay: Option<&ThreadDelay>,
    ) -> Told {
        let ticket = entry.ticket.expect("who is served was let in");
        // Whether requests wait is known well enough from some of them.
        let is_watched = is_watched(ticket.number());
        let opened = if is_watched && delay.is_none() { ThreadDelay::open() } else { None };
        let delay = delay.or(opened.as_ref()).filter(|_| is_watched);
        let watched = delay.and_then(Watched::begin);
        let before_ns = clock::thread_cpu_ns();
        let outcome = catch_unwind(AssertUnwindSafe(entry.job));
        let cpu_ns = clock::thread_cpu_ns().saturating_sub(before_ns);
        is_done.store(true, Ordering::Relaxed);
        let (end, cost_ns) = match outcome {
            Ok(Came::Ended(Outcome::Done)) => (End::Answered, Some(cpu_ns)),
            // What was cut short was CPU time all the same; what never began leaves its specification unused.
            Ok(Came::Ended(Outcome::Abandoned { has_begun })) => {
                (End::Abandoned, has_begun.then_some(cpu_ns))
            }
            Ok(Came::Ended(Outcome::Failed)) | Err(_) => (End::Panicked, Some(cpu_ns)),
            #[cfg(feature = "tower")]
            Ok(Came::GoesOn(go_on)) => {
                self.with(|state| state.leaves(number, &ticket, cpu_ns));
                let shared = self.clone();
                go_on(Afterwards::new(move |end| {
                    shared.with(|state| state.end(ticket, end, None, clock::now_ns()));
                }));
                return self.with(|state| state.ask(number));
            }
        };
        let slept_ns = watched.and_then(|watched| watched.slept_ns(cpu_ns));
        self.with(|state| {
            if let Some(slept_ns) = slept_ns {
                state.slept(&ticket, slept_ns, cpu_ns);
            }
            state.finish(number, ticket, end, cost_ns);
            state.ask(number)
        })
    }
}

/// The first requests are watched for whether they wait, and then one of so many: to read twice how long a thread has
/// waited for a CPU takes as long as all else that is done for a request.
const WATCHED_FIRST: u64 = 50;
const WATCHED_EVERY: u64 = 4;

/// Whether a request of that number is watched: in no order, or of routes that take turns some would never be.
fn is_watched(number: u64) -> bool {
    // The high bits of a product with the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
    number < WATCHED_FIRST || (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(WATCHED_EVERY)
}

/// When the calling thread began with something, and how long it had waited for a CPU before.
struct Watched<'delay> {
    delay: &'delay ThreadDelay,
    began_ns: u64,
    delay_ns: u64,
}

impl<'delay> Watched<'delay> {
    fn begin(delay: &'delay ThreadDelay) -> Option<Self> {
        Some(Watched { delay, delay_ns: delay.read_ns()?, began_ns: clock::now_ns() })
    }

    /// For how long it neither had a CPU nor waited for one since, in nanoseconds.
    fn slept_ns(&self, cpu_ns: u64) -> Option<u64> {
        let took_ns = clock::now_ns().saturating_sub(self.began_ns);
        let delayed_ns = self.delay.read_ns()?.saturating_sub(self.delay_ns);
        Some(took_ns.saturating_sub(cpu_ns).saturating_sub(delayed_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_requests_are_watched_and_then_as_many_of_each_of_routes_that_take_turns() {
        assert!((0..WATCHED_FIRST).all(is_watched));
        for routes in 1..=8 {
            for route in 0..routes {
                let numbers = (1_000..9_000).filter(|number| number % routes == route);
                let (all, watched) =
                    (numbers.clone().count(), numbers.filter(|number| is_watched(*number)).count());
                let part = watched as f64 / all as f64 * WATCHED_EVERY as f64;
                assert!((0.9..1.1).contains(&part), "route {route} of {routes}: {watched} of {all}");
            }
        }
    }
}

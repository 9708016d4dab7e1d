//! A server's dispatcher: takes requests, has them served by its workers, and says what became of them.

mod announce;
mod entry;
mod keeper;
mod publish;
mod reserver;
mod rest;
mod settings;
mod shared;
mod state;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::clock;
use crate::controller::{Controller, Decision, End, RouteId, Ticket};
use crate::goal::{Goal, GoalError, nanoseconds};
use crate::snapshot::Snapshot;
#[cfg(feature = "tower")]
pub(crate) use entry::Came;
use entry::Entry;
pub(crate) use entry::Job;
pub use entry::Outcome;
pub use publish::PUBLISHED_NAME;
pub use settings::{Settings, StartError};
use shared::Shared;
#[cfg(feature = "simulation")]
pub use state::simulation::{Load, Sums, random_load, stream, sums};
use state::{Class, Reservation, State};

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When it may be accepted: what `Retry-After` is to say.
    pub retry_after: Duration,
    /// Why.
    pub why: Why,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// As many requests as can be answered in time were accepted, and the route refuses others.
    Full,
    /// So many wait already that one more is not to.
    TooManyWait,
    /// The server is closed.
    Closed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.why {
            Why::Full => "as many requests as can be answered in time were accepted",
            Why::TooManyWait => "too many requests wait",
            Why::Closed => return write!(formatter, "the server is closed"),
        };
        write!(formatter, "{why}: try again in {:?}", self.retry_after)
    }
}

impl std::error::Error for Refused {}

/// Why [`Server::run`] has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The request was refused.
    Refused(Refused),
    /// Its code panicked.
    Panicked,
}

impl std::fmt::Display for RunError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Refused(refused) => refused.fmt(formatter),
            RunError::Panicked => write!(formatter, "the code that served the request panicked"),
        }
    }
}

impl std::error::Error for RunError {}

/// Serves requests so that those that it accepts are answered in time.
///
/// Clones are the same server. When the last one is dropped, what was let in is still served.
///
/// ```
/// use std::time::Duration;
/// use steward_server::{Goal, Server, Settings};
///
/// let settings = Settings::default().route("/search", Goal::new(Duration::from_millis(100), 0.5));
/// let server = Server::start(settings).expect("goals that can be held");
/// let search = server.route("/search").expect("it has a goal");
/// assert_eq!(server.run(search, || 6 * 7), Ok(42));
/// ```
#[derive(Clone)]
pub struct Server {
    handle: Arc<Handle>,
}

/// Closes the server when the last one who has it goes.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.with(State::close);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("snapshot", &self.snapshot()).finish()
    }
}

impl Server {
    /// Starts its workers, which have no reservation yet, and a thread that has some reserved if the daemon runs.
    ///
    /// # Errors
    /// What is wrong with the settings, or that the kernel gives no threads.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        if settings.routes.is_empty() {
            return Err(StartError::NoRoutes);
        }
        let counts = [settings.best_effort_workers, settings.plain_workers, settings.reserved_workers_max];
        if counts.contains(&0) {
            return Err(StartError::NoWorkers);
        }
        let settings = Settings { cpus: settings.cpus.max(1), ..settings };
        let mut controller = Controller::new(settings.cpus);
        for (route, goal) in &settings.routes {
            let added = controller.add(route, *goal, clock::now_ns());
            added.map_err(|error| StartError::Goal { route: route.clone(), error })?;
        }
        let mut state = State::new(controller, settings.cpus, settings.strays_max);
        state.best_effort_wanted = settings.plain_workers;
        let (plain, has_socket) = (settings.plain_workers, settings.socket.is_some());
        if !has_socket {
            state.unreserved = Some("the settings name no daemon".into());
        }
        let handle = Handle { shared: Shared::new(state, settings) };
        for _ in 0..plain {
            handle.shared.start(Class::BestEffort, |_| Some(None)).map_err(StartError::Thread)?;
        }
        let begin = |name: &str, keep: fn(&Arc<Shared>)| {
            let shared = handle.shared.clone();
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || keep(&shared))
                .map_err(StartError::Thread)
        };
        begin("steward-keeper", keeper::keep)?;
        begin("steward-publish", publish::keep)?;
        if has_socket {
            begin("steward-reserve", reserver::keep)?;
        }
        Ok(Server { handle: Arc::new(handle) })
    }

    /// The route of that name.
    pub fn route(&self, name: &str) -> Option<RouteId> {
        self.shared().state().controller.find(name)
    }

    /// All routes by name, in the order in which they were given.
    pub fn routes(&self) -> Vec<(RouteId, String)> {
        let state = self.shared().state();
        state.controller.routes().map(|(route, name)| (route, name.to_owned())).collect()
    }

    /// Changes the goal of a route. Requests that were let in keep what they were promised.
    ///
    /// # Errors
    /// What is wrong with the goal; it is then the one that it was.
    pub fn set_goal(&self, route: RouteId, goal: Goal) -> Result<(), GoalError> {
        self.shared().with(|state| {
            state.is_changed = true;
            state.controller.set_goal(route, goal, clock::now_ns())
        })
    }

    /// A request has arrived: says whether it is served. Its response time begins now.
    ///
    /// # Errors
    /// That it is refused, and when it is to try again.
    pub fn arrive(&self, route: RouteId) -> Result<Place, Refused> {
        let now_ns = clock::now_ns();
        let refused =
            |retry_after_ns, why| Refused { retry_after: Duration::from_nanos(retry_after_ns), why };
        let waiting_max = self.shared().settings.waiting_max;
        let ticket = self.shared().with(|state| {
            if state.is_closing {
                return Err(refused(0, Why::Closed));
            }
            state.look(route, now_ns);
            let decision = state.controller.arrive(route, now_ns);
            // One that was accepted has a worker, or soon: what is bounded is the others.
            let is_full = state.waiting() >= waiting_max;
            let admitted = match decision {
                Decision::Accepted(ticket) => Ok(Some(ticket)),
                Decision::BestEffort(ticket) if is_full => {
                    Err(refused(state.controller.refuse(ticket, now_ns), Why::TooManyWait))
                }
                Decision::BestEffort(ticket) => Ok(Some(ticket)),
                Decision::Waits if is_full => {
                    Err(refused(state.controller.refuse_waiting(route, now_ns), Why::TooManyWait))
                }
                Decision::Waits => Ok(None),
                Decision::Refused { retry_after_ns } => Err(refused(retry_after_ns, Why::Full)),
            }?;
            state.place_begins();
            Ok(admitted)
        })?;
        let admitted = Some(Admitted { ticket, arrived_ns: now_ns });
        Ok(Place { shared: self.shared().clone(), route, admitted })
    }

    /// Has a worker do what a request wants, and waits for the result.
    ///
    /// # Errors
    /// That the request is refused, or that its code panicked.
    pub fn run<T: Send + 'static>(
        &self,
        route: RouteId,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RunError> {
        let place = self.arrive(route).map_err(RunError::Refused)?;
        let (sender, result) = channel();
        place.serve(move || drop(sender.send(job())));
        // The job is always begun; if it did not send, it panicked.
        result.recv().map_err(|_| RunError::Panicked)
    }

    /// Has so much CPU time reserved for the calling thread in every period, because it takes requests in: if it had to
    /// wait while accepted requests are served, others would arrive unnoticed. Where nothing can be reserved, nothing
    /// happens. What it gets is not part of any route's.
    pub fn reserve_for_this_thread(&self, budget: Duration, period: Duration) {
        let pair = (nanoseconds(budget), nanoseconds(period));
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.shared().with(|state| {
            state.threads.insert(tid, Reservation { pair, is_given: false });
            state.is_changed = true;
        });
    }

    /// What there is to see.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().snapshot()
    }

    /// Lets no request in any more, and waits until those that were let in have been served, at most for so long.
    /// Returns how many have not been.
    pub fn close(&self, timeout: Duration) -> usize {
        self.shared().with(State::close);
        if self.shared().wait_for_end(timeout) {
            return 0;
        }
        let state = self.shared().state();
        state.waiting() + state.at_work()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

/// How a request was let in.
struct Admitted {
    /// `None` for one that waits for its turn.
    ticket: Option<Ticket>,
    arrived_ns: u64,
}

/// A request that is served, once it says what is to be done. Dropped without, it counts as abandoned.
#[must_use = "the request is served by Place::serve"]
pub struct Place {
    shared: Arc<Shared>,
    route: RouteId,
    admitted: Option<Admitted>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Place").field("route", &self.route).finish_non_exhaustive()
    }
}

impl Place {
    /// Whether an answer in time is promised.
    pub fn is_accepted(&self) -> bool {
        self.ticket().is_some_and(Ticket::is_accepted)
    }

    /// Has a worker do the request's work, which includes sending the answer. A panic ends the job, and not the worker.
    pub fn serve(self, job: impl FnOnce() + Send + 'static) {
        self.serve_job(Box::new(move || {
            job();
            Outcome::Done.into()
        }));
    }

    /// The same, for a job that says how it ended.
    pub fn serve_until(self, job: impl FnOnce() -> Outcome + Send + 'static) {
        self.serve_job(Box::new(|| job().into()));
    }

    pub(crate) fn serve_job(mut self, job: Job) {
        let Admitted { ticket, arrived_ns } = self.admitted.take().expect("it is taken here only");
        self.shared.with(|state| {
            state.put(self.route, Entry { ticket, arrived_ns, job });
            state.place_ends();
        });
    }

    /// For how long its route's requests may be at work and wait before they leave their worker.
    #[cfg(feature = "tower")]
    pub(crate) fn patience(&self) -> Duration {
        self.shared.state().controller.goal(self.route).response_time
    }

    /// It is served where it is, and has used so much CPU time so far, in nanoseconds; for one that has a ticket.
    #[cfg(feature = "tower")]
    pub(crate) fn hold(mut self, cpu_ns: u64) -> Option<InHand> {
        let ticket = self.admitted.take().and_then(|admitted| admitted.ticket);
        Some(InHand { shared: self.shared.clone(), ticket: Some(ticket?), cpu_ns })
    }

    fn ticket(&self) -> Option<&Ticket> {
        self.admitted.as_ref().and_then(|admitted| admitted.ticket.as_ref())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(Admitted { ticket, .. }) = self.admitted.take() else { return };
        self.shared.with(|state| {
            match ticket {
                Some(ticket) => state.end(ticket, End::Abandoned, None, clock::now_ns()),
                None => state.controller.leave(self.route),
            }
            state.place_ends();
        });
    }
}

/// A request that is served by no worker. It ends when this is dropped, at the latest.
#[cfg(feature = "tower")]
pub struct InHand {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
    cpu_ns: u64,
}

#[cfg(feature = "tower")]
impl std::fmt::Debug for InHand {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InHand").field("ticket", &self.ticket).field("cpu_ns", &self.cpu_ns).finish()
    }
}

#[cfg(feature = "tower")]
impl InHand {
    /// Does a part of the request's work; the calling thread's CPU time in it is the request's.
    pub(crate) fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before_ns = clock::thread_cpu_ns();
        let result = work();
        self.cpu_ns += clock::thread_cpu_ns().saturating_sub(before_ns);
        result
    }

    pub(crate) fn end(mut self, end: End) {
        self.finish(end);
    }

    fn finish(&mut self, end: End) {
        if let Some(ticket) = self.ticket.take() {
            let cpu_ns = Some(self.cpu_ns);
            self.shared.with(|state| {
                state.end(ticket, end, cpu_ns, clock::now_ns());
                state.place_ends();
            });
        }
    }
}

#[cfg(feature = "tower")]
impl Drop for InHand {
    fn drop(&mut self) {
        self.finish(if std::thread::panicking() { End::Panicked } else { End::Abandoned });
    }
}

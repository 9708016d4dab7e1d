//! The thread that has CPU time reserved for workers, through the daemon's ordinary call for a running task.
//!
//! A worker's reservation is C in every RT: enough for one request of 95 in 100, or for several where there are more
//! specifications than workers, as where some requests are dear. It stays with the thread, so that no request waits for
//! a call: the scheduler begins a fresh period itself when a worker wakes up, and workers are woken in the order of
//! their last use, which is that in which specifications become eligible. A worker that takes its next request without
//! having slept announces it (`announce.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use libsteward::{ApiError, Client, Error, api};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::shared::Shared;
use super::state::Class;
use crate::controller::RouteId;
use crate::goal::nanoseconds;

/// Between two looks at whether the daemon is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two attempts to reach a daemon, or to have more reserved where there was no room.
const RETRY_EVERY: Duration = Duration::from_secs(10);
/// The same while the daemon is starting: it answers soon.
const RETRY_SOON: Duration = Duration::from_millis(500);
/// The shortest budget and the longest period that can be reserved.
const BUDGET_MIN_NS: u64 = 100_000;
const PERIOD_MAX_NS: u64 = 10_000_000_000;

/// CPU time in every period, in nanoseconds.
type Pair = (u64, u64);

/// Keeps the reservations what they should be until the server is closed.
pub(super) fn keep(shared: &Arc<Shared>) {
    let Some(path) = shared.settings.socket.clone() else { return };
    let mut reserver = Reserver { shared, said: None, knows_requests: true };
    while !shared.state().is_closing {
        shared.with(|state| state.is_changed = false);
        let ended = match Client::connect_within(&path, Duration::ZERO) {
            Ok(daemon) => reserver.hold(daemon).map(|reason| (reason, RETRY_EVERY)),
            Err(error) => Some((error.to_string(), again_in(&error))),
        };
        if let Some((reason, again_in)) = ended {
            reserver.nothing(reason);
            shared.reserver_waits(again_in);
        }
    }
}

struct Reserver<'a> {
    shared: &'a Arc<Shared>,
    /// What was said last of nothing being reserved.
    said: Option<String>,
    /// The daemon takes where a thread announces its requests.
    knows_requests: bool,
}

/// What became of asking for a reservation.
enum Asked {
    Given,
    /// There is no room for more, for this reason.
    Full(String),
    /// The thread is gone.
    Gone,
}

impl Reserver<'_> {
    /// Holds reservations for as long as the daemon is there. Returns why that ended; `None` when the server closes.
    fn hold(&mut self, mut daemon: Client) -> Option<String> {
        self.knows_requests = true;
        if let Err(reason) = self.meet(&mut daemon) {
            return Some(reason);
        }
        let mut tried = None::<Instant>;
        loop {
            if self.shared.state().is_closing {
                return None;
            }
            if has_gone(&daemon) {
                return Some("the daemon has ended".into());
            }
            let is_changed = self.shared.with(|state| std::mem::take(&mut state.is_changed));
            // Where there was no room, there may be some now.
            let is_time = self.said.is_some() && tried.is_some_and(|tried| tried.elapsed() >= RETRY_EVERY);
            if is_changed || is_time || tried.is_none() {
                tried = Some(Instant::now());
                if let Err(reason) = self.bring_in_line(&mut daemon) {
                    return Some(reason);
                }
            }
            self.shared.reserver_waits(LOOK_EVERY);
        }
    }

    /// Learns how much can be reserved.
    fn meet(&self, daemon: &mut Client) -> Result<(), String> {
        let status = daemon.call(&api::Status {}).map_err(|error| error.to_string())?;
        match status.cpu.mechanism.kind {
            Some(api::MechanismKind::SchedExt | api::MechanismKind::Deadline) => {}
            Some(api::MechanismKind::Nice) | None => {
                return Err("the daemon reserves nothing now: steward status says why".into());
            }
        }
        let reservable = status.cpu.thresholds.admit_below;
        self.shared.with(|state| state.controller.set_reservable(reservable)).or_else(|error| {
            tracing::warn!("steward-server: {error}; less than that is promised");
            Ok(())
        })
    }

    /// Gives every worker what it is to have, and each route as many as it is to have.
    fn bring_in_line(&mut self, daemon: &mut Client) -> Result<(), String> {
        for tid in self.shared.with(super::state::State::reserved_strays) {
            let _ = daemon.call(&api::Release { pid: tid });
        }
        let mut refusal = self.bring_threads_in_line(daemon)?;
        let routes: Vec<RouteId> = self.shared.state().controller.routes().map(|(route, _)| route).collect();
        for route in routes {
            refusal = self.bring_route_in_line(daemon, route)?.or(refusal);
        }
        let has_reserved = self.shared.state().workers().0 > 0;
        match refusal {
            Some(reason) if !has_reserved => Err(reason),
            refusal => {
                self.partly(refusal);
                Ok(())
            }
        }
    }

    /// Gives the service's own threads what it asked for. Returns why one got nothing, if one did.
    fn bring_threads_in_line(&mut self, daemon: &mut Client) -> Result<Option<String>, String> {
        let threads = self.shared.state().threads.clone();
        let mut refusal = None;
        for (tid, thread) in threads.into_iter().filter(|(_, thread)| !thread.is_given) {
            let asked = self.ask(daemon, tid, None, thread.pair)?;
            self.shared.with(|state| match asked {
                Asked::Given => {
                    state.threads.entry(tid).and_modify(|thread| thread.is_given = true);
                }
                Asked::Full(reason) => refusal = Some(reason),
                Asked::Gone => drop(state.threads.remove(&tid)),
            });
        }
        Ok(refusal)
    }

    /// The same for one route. Returns why no more could be reserved, if that is less than it wants.
    fn bring_route_in_line(&mut self, daemon: &mut Client, route: RouteId) -> Result<Option<String>, String> {
        let (wanted, (budget_ns, period_ns)) = self.wish(route);
        self.shared.with(|state| state.want_reserved(route, wanted));
        let mut refusal = None;
        let workers = self.shared.state().reserved(route);
        // Those that there are too many of have theirs until they end, which is told: more for others has to wait.
        let are_too_many = workers.len() > wanted;
        for worker in workers {
            let is_right = worker.has.is_some_and(|has| {
                is_about(has, (budget_ns, period_ns))
                    || are_too_many && part(has) <= part((budget_ns, period_ns))
            });
            if is_right {
                continue;
            }
            match self.ask(daemon, worker.task.tid, Some(worker.task.requests_at), (budget_ns, period_ns))? {
                Asked::Given => {
                    self.shared.with(|state| state.set_reserved(worker.worker, (budget_ns, period_ns)))
                }
                Asked::Full(reason) => refusal = Some(reason),
                Asked::Gone => {}
            }
        }
        while refusal.is_none() && self.shared.state().reserved(route).len() < wanted {
            let mut asked = Ok(Asked::Gone);
            let started = self.shared.start(Class::Reserved(route), |task| {
                asked = self.ask(daemon, task.tid, Some(task.requests_at), (budget_ns, period_ns));
                matches!(asked, Ok(Asked::Given)).then_some(Some((budget_ns, period_ns)))
            });
            match (started, asked?) {
                (Err(error), _) => refusal = Some(format!("the kernel gives no thread: {error}")),
                (_, Asked::Full(reason)) => refusal = Some(reason),
                (_, Asked::Gone) => refusal = Some("a thread ended before it was a worker".into()),
                (_, Asked::Given) => {}
            }
        }
        let has = self.shared.state().reserved(route);
        let has: f64 = has.iter().filter_map(|worker| worker.has).map(part).sum();
        let granted = refusal.is_some().then_some(has / f64::from(self.shared.settings.cpus));
        self.shared.with(|state| {
            state.controller.set_granted(
                route,
                granted.filter(|granted| *granted > 0.0),
                crate::clock::now_ns(),
            );
        });
        Ok(refusal)
    }

    /// How many workers of a route are to have which reservation.
    fn wish(&self, route: RouteId) -> (usize, Pair) {
        let state = self.shared.state();
        let goal = state.controller.goal(route);
        let response_time_ns = nanoseconds(goal.response_time);
        let cpus = f64::from(self.shared.settings.cpus);
        // No reservation may be smaller than the smallest.
        let fit = (response_time_ns as f64 * cpus * goal.cpu / BUDGET_MIN_NS as f64) as usize;
        let workers = state.controller.workers_wished(route);
        let wanted = workers.min(self.shared.settings.reserved_workers_max).min(fit).max(1);
        // Before costs are known, whatever were reserved would be a guess: others serve the first requests.
        let wanted = state.controller.costs(route).map_or(0, |_| wanted);
        // Of a response time that is longer than the longest period, as large a part.
        let period_ns = response_time_ns.min(PERIOD_MAX_NS);
        let part = period_ns as f64 / response_time_ns as f64;
        let budget_ns = (state.controller.budget_ns(route, wanted) as f64 * part) as u64;
        let on_one_cpu_ns = (period_ns as f64 * goal.cpu * 0.99) as u64;
        (wanted, (budget_ns.min(on_one_cpu_ns).max(BUDGET_MIN_NS), period_ns))
    }

    /// Asks for a reservation, and where the thread announces its requests to have that read there.
    fn ask(
        &mut self,
        daemon: &mut Client,
        tid: i32,
        requests_at: Option<u64>,
        (budget_ns, period_ns): Pair,
    ) -> Result<Asked, String> {
        let cpu = api::Reservation { budget_ns, period_ns };
        let requests_at = requests_at.filter(|_| self.knows_requests);
        let (inherit, revocable, keep_if_refused) = (None, None, None);
        let set = api::Set { pid: tid, cpu, inherit, revocable, keep_if_refused, requests_at };
        match daemon.call(&set) {
            Ok(given) => {
                if requests_at.is_some() {
                    self.shared.announcements.set_read(given.reads_requests == Some(true));
                }
                Ok(Asked::Given)
            }
            // An older daemon, which knows nothing of requests.
            Err(Error::Api(ApiError::InvalidParameter { .. })) if requests_at.is_some() => {
                self.knows_requests = false;
                self.shared.announcements.set_read(false);
                self.ask(daemon, tid, None, (budget_ns, period_ns))
            }
            Err(Error::Api(ApiError::NoSuchTask { .. })) => Ok(Asked::Gone),
            Err(Error::Api(error)) => Ok(Asked::Full(error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Nothing is reserved, for this reason: the server is a plain pool, and says so once.
    fn nothing(&mut self, reason: String) {
        let plain = self.shared.settings.plain_workers;
        self.shared.with(|state| {
            let routes: Vec<RouteId> = state.controller.routes().map(|(route, _)| route).collect();
            for route in routes {
                state.want_reserved(route, 0);
                state.controller.set_granted(route, None, crate::clock::now_ns());
            }
            state.threads.values_mut().for_each(|thread| thread.is_given = false);
            state.want_best_effort(plain);
            state.unreserved = Some(reason.clone());
        });
        if self.said.is_none() {
            tracing::warn!(
                "steward-server: no reservations ({reason}); {plain} plain workers serve all requests"
            );
        }
        self.said = Some(reason);
    }

    /// Something is reserved, but less than what is wanted, where there is a reason.
    fn partly(&mut self, refusal: Option<String>) {
        let count = self.shared.settings.best_effort_workers;
        let reserved = self.shared.with(|state| {
            state.want_best_effort(count);
            state.unreserved.clone_from(&refusal);
            state.workers().0
        });
        if self.said != refusal {
            match &refusal {
                Some(reason) => {
                    tracing::warn!(
                        "steward-server: {reserved} workers have reservations, and no more: {reason}"
                    );
                }
                None => tracing::info!("steward-server: {reserved} workers have reservations"),
            }
        }
        self.said = refusal;
    }
}

/// When to ask a daemon again that could not be reached.
fn again_in(error: &Error) -> Duration {
    if matches!(error, Error::Starting { .. }) { RETRY_SOON } else { RETRY_EVERY }
}

/// Whether a reservation is near enough to what it should be: a call for every small change would cost more than it
/// brings.
fn is_about((has_ns, period_ns): Pair, (wanted_ns, wanted_period_ns): Pair) -> bool {
    period_ns == wanted_period_ns
        && has_ns <= wanted_ns.saturating_mul(2)
        && wanted_ns <= has_ns + has_ns / 10
}

/// The part of a CPU that a reservation is.
fn part((budget_ns, period_ns): Pair) -> f64 {
    budget_ns as f64 / period_ns as f64
}

/// Whether the daemon has closed the connection: it sends nothing that was not asked for.
fn has_gone(daemon: &Client) -> bool {
    let mut descriptors = [PollFd::new(daemon, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use super::super::settings::Settings;
    use super::super::state::State;
    use super::*;
    use crate::controller::Controller;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn that_there_is_no_daemon_is_said_once_however_often_it_is_looked_for() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let shared = Shared::new(State::new(Controller::new(1), 1, 1), Settings::default());
        tracing::subscriber::with_default(subscriber, || {
            let mut reserver = Reserver { shared: &shared, said: None, knows_requests: true };
            (0..5).for_each(|_| reserver.nothing("cannot reach stewardd".into()));
        });
        let said = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
        assert_eq!(said.matches("no reservations (cannot reach stewardd)").count(), 1, "{said}");
        assert_eq!(shared.state().unreserved.as_deref(), Some("cannot reach stewardd"));
    }

    /// Service and daemon start together when a machine does: nobody is to wait ten seconds for that.
    #[test]
    fn a_daemon_that_is_starting_is_asked_again_sooner_than_one_that_is_not_there() {
        let path = tempfile::tempdir().expect("a directory").path().join("daemon");
        let there_is_none = Client::connect_within(&path, Duration::ZERO).expect_err("nobody listens");
        let starting = Error::Starting { path, waited: Duration::ZERO };
        assert!(again_in(&starting) * 10 < again_in(&there_is_none), "{:?}", again_in(&starting));
    }
}

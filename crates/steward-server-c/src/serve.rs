//! Servers, and the requests that they serve.

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Duration;

use steward_server::{GoalError, Outcome, RouteId, Server, StartError, Why};

use crate::error::{
    Failure, STEWARD_SERVER_ERROR_CLOSED, STEWARD_SERVER_ERROR_FULL, STEWARD_SERVER_ERROR_GOAL,
    STEWARD_SERVER_ERROR_RESOURCES, STEWARD_SERVER_ERROR_TOO_MANY_WAIT, STEWARD_SERVER_OK, guarded, read,
    text,
};
use crate::settings::{StewardServerGoal, StewardServerSettings};

/// The request was served, and its answer sent.
pub const STEWARD_SERVER_DONE: c_int = 0;
/// Nobody wanted the answer any more when the request was to begin: it used up nothing.
pub const STEWARD_SERVER_NOT_BEGUN: c_int = 1;
/// Nobody wanted the answer any more while the request was served.
pub const STEWARD_SERVER_ABANDONED: c_int = 2;
/// The code that served the request failed in a way that it should not.
pub const STEWARD_SERVER_FAILED: c_int = 3;

/// Serves a request, on a thread that serves no other one meanwhile, and returns STEWARD_SERVER_DONE or another of
/// those codes; one that is none of them counts as STEWARD_SERVER_FAILED. It may take as long as it needs; it may not
/// unwind (throw, longjmp) out of itself.
pub type StewardServerJob = Option<unsafe extern "C" fn(data: *mut c_void) -> c_int>;

/// A server.
pub struct StewardServer {
    server: Server,
    routes: Vec<RouteId>,
}

impl StewardServer {
    fn route(&self, route: usize) -> Result<RouteId, Failure> {
        let count = self.routes.len();
        let unknown = || Failure::argument(format!("there is no route {route}: there are {count}, from 0"));
        self.routes.get(route).copied().ok_or_else(unknown)
    }
}

/// Data of C's that goes to another thread with its job.
struct Data(*mut c_void);

// SAFETY: steward_server_serve() asks for data that another thread may use.
unsafe impl Send for Data {}

impl Data {
    /// # Safety
    /// `job` may be called with it, once.
    unsafe fn give_to(self, job: unsafe extern "C" fn(*mut c_void) -> c_int) -> Outcome {
        // SAFETY: as the caller promises.
        match unsafe { job(self.0) } {
            STEWARD_SERVER_DONE => Outcome::Done,
            STEWARD_SERVER_NOT_BEGUN => Outcome::Abandoned { has_begun: false },
            STEWARD_SERVER_ABANDONED => Outcome::Abandoned { has_begun: true },
            _ => Outcome::Failed,
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match error {
            StartError::Thread(_) => STEWARD_SERVER_ERROR_RESOURCES,
            _ => STEWARD_SERVER_ERROR_GOAL,
        };
        Failure { code, sentence: error.to_string() }
    }
}

impl From<GoalError> for Failure {
    fn from(error: GoalError) -> Self {
        Failure { code: STEWARD_SERVER_ERROR_GOAL, sentence: error.to_string() }
    }
}

/// The server that C gave.
///
/// # Safety
/// `server` is null or was given by `steward_server_start` and not freed.
unsafe fn handle<'server>(server: *const StewardServer) -> Result<&'server StewardServer, Failure> {
    // SAFETY: as the caller promises.
    unsafe { server.as_ref() }.ok_or_else(|| Failure::argument("the server is null"))
}

/// Starts a server with `count` routes, which are known by their places in `goals` from then on. With settings null all
/// is as the library takes it by itself. Its workers begin without reservations, and have some as soon as the daemon
/// gives them; without a daemon they are a plain pool.
///
/// # Safety
/// `goals` points to `count` goals, and `settings` to settings or is null, with what is said of their members; `server`
/// can be written. What is there is to be freed with `steward_server_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_start(
    goals: *const StewardServerGoal,
    count: usize,
    settings: *const StewardServerSettings,
    server: *mut *mut StewardServer,
) -> i32 {
    guarded(|| {
        if server.is_null() || (goals.is_null() && count > 0) {
            return Err(Failure::argument("the goals, or the place for the server, is null"));
        }
        // SAFETY: as the caller promises; of none nothing is read.
        let goals = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(goals, count) } };
        // SAFETY: as the caller promises.
        let mut settings = match unsafe { settings.as_ref() } {
            // SAFETY: as the caller promises.
            Some(settings) => unsafe { settings.settings() }?,
            None => steward_server::Settings::default(),
        };
        for goal in goals {
            // SAFETY: as the caller promises.
            settings = settings.route(unsafe { goal.name() }?, goal.goal()?);
        }
        let started = Server::start(settings)?;
        let routes = started.routes().into_iter().map(|(route, _)| route).collect();
        let handle = Box::new(StewardServer { server: started, routes });
        // SAFETY: as the caller promises.
        unsafe { server.write(Box::into_raw(handle)) };
        Ok(STEWARD_SERVER_OK)
    })
}

/// Changes the goal of a route; requests that were let in keep what they were promised. A goal that cannot be held
/// changes nothing.
///
/// # Safety
/// `server` is a server, and `goal` a goal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_set_goal(
    server: *const StewardServer,
    route: usize,
    goal: *const StewardServerGoal,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (server, goal) = (unsafe { handle(server) }?, unsafe { goal.as_ref() });
        let goal = goal.ok_or_else(|| Failure::argument("the goal is null"))?;
        server.server.set_goal(server.route(route)?, goal.goal()?)?;
        Ok(STEWARD_SERVER_OK)
    })
}

/// The place of the route of that name, or STEWARD_SERVER_ERROR_ARGUMENT if there is none.
///
/// # Safety
/// `server` is a server, and `name` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_route(server: *const StewardServer, name: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (server, name) = (unsafe { handle(server) }?, unsafe { read(name) }?);
        let name = name.ok_or_else(|| Failure::argument("the name of the route is null"))?;
        let unknown = || Failure::argument(format!("there is no route {name}: give it a goal first"));
        let route = server.server.route(name).ok_or_else(unknown)?;
        let place = server.routes.iter().position(|other| *other == route).ok_or_else(unknown)?;
        i32::try_from(place).map_err(|_| unknown())
    })
}

/// A request for a route has arrived, and `job` serves it: a worker calls it with `data`, once, when this has returned
/// STEWARD_SERVER_OK, and possibly before it returns. Otherwise it is never called; where the request is refused,
/// `retry_after_ns`, unless it is null, is in how many nanoseconds one may be accepted.
///
/// # Safety
/// `server` is a server; `job` can be called with `data` on another thread; `retry_after_ns` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_serve(
    server: *const StewardServer,
    route: usize,
    job: StewardServerJob,
    data: *mut c_void,
    retry_after_ns: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let server = unsafe { handle(server) }?;
        let job = job.ok_or_else(|| Failure::argument("there is no job"))?;
        let place = server.server.arrive(server.route(route)?).map_err(|refused| {
            // SAFETY: as the caller promises.
            if let Some(place) = unsafe { retry_after_ns.as_mut() } {
                *place = u64::try_from(refused.retry_after.as_nanos()).unwrap_or(u64::MAX);
            }
            let code = match refused.why {
                Why::Full => STEWARD_SERVER_ERROR_FULL,
                Why::TooManyWait => STEWARD_SERVER_ERROR_TOO_MANY_WAIT,
                Why::Closed => STEWARD_SERVER_ERROR_CLOSED,
            };
            Failure { code, sentence: refused.to_string() }
        })?;
        let data = Data(data);
        // SAFETY: as the caller promises.
        place.serve_until(move || unsafe { data.give_to(job) });
        Ok(STEWARD_SERVER_OK)
    })
}

/// Has `budget_ns` of CPU time reserved for the calling thread in every `period_ns`, because it takes requests in.
/// Where nothing can be reserved, nothing happens.
///
/// # Safety
/// `server` is a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_reserve_for_this_thread(
    server: *const StewardServer,
    budget_ns: u64,
    period_ns: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let server = unsafe { handle(server) }?;
        if budget_ns == 0 || budget_ns > period_ns {
            return Err(Failure::argument("a budget is above 0, and no more than its period"));
        }
        let (budget, period) = (Duration::from_nanos(budget_ns), Duration::from_nanos(period_ns));
        server.server.reserve_for_this_thread(budget, period);
        Ok(STEWARD_SERVER_OK)
    })
}

/// What there is to see, as a table for people, or as JSON.
///
/// # Safety
/// `server` is a server; `page` can be written. What is there is to be freed with `steward_server_free_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_page(
    server: *const StewardServer,
    json: bool,
    page: *mut *mut c_char,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let server = unsafe { handle(server) }?;
        if page.is_null() {
            return Err(Failure::argument("the place for the page is null"));
        }
        let snapshot = server.server.snapshot();
        let shown = if json { snapshot.to_json() } else { snapshot.to_string() };
        // SAFETY: as the caller promises.
        unsafe { page.write(text(&shown).into_raw()) };
        Ok(STEWARD_SERVER_OK)
    })
}

/// Frees a text that a function of this library gave. Null is nothing to free.
///
/// # Safety
/// `text` is null or was given by this library, and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises, it is from CString::into_raw.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Lets no request in any more, and waits until those that were let in have been served, at most for `timeout_ns`.
/// Returns how many have not been, or a negative code.
///
/// # Safety
/// `server` is a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_close(server: *const StewardServer, timeout_ns: u64) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises.
        let server = unsafe { handle(server) }?;
        Ok(i32::try_from(server.server.close(Duration::from_nanos(timeout_ns))).unwrap_or(i32::MAX))
    })
}

/// Frees a server, and closes it if that was not done. Requests that were let in are still served, by threads of their
/// own: their data must stay until then. Null is nothing to free.
///
/// # Safety
/// `server` is null or a server, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_server_free(server: *mut StewardServer) {
    if !server.is_null() {
        // A panic stays here.
        guarded(|| {
            // SAFETY: as the caller promises, it is from Box::into_raw.
            drop(unsafe { Box::from_raw(server) });
            Ok(STEWARD_SERVER_OK)
        });
    }
}

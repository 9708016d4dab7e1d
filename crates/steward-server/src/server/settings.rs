//! How a server is set up.

use std::path::PathBuf;

use crate::goal::{Goal, GoalError};

/// Why a server cannot be started.
#[derive(Debug)]
pub enum StartError {
    /// A goal that cannot be held.
    Goal {
        /// The route.
        route: String,
        /// What is wrong with it.
        error: GoalError,
    },
    /// No route has a goal.
    NoRoutes,
    /// A pool without workers serves nobody.
    NoWorkers,
    /// The kernel gives no thread.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Goal { route, error } => write!(formatter, "{route}: {error}"),
            StartError::NoRoutes => write!(formatter, "no route has a goal: give it at least one"),
            StartError::NoWorkers => write!(formatter, "a pool needs at least one worker of each kind"),
            StartError::Thread(error) => {
                write!(formatter, "the kernel gives no thread ({error}): raise the limit of threads")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// How a server is set up. All but the routes has a default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each route with its goal.
    pub routes: Vec<(String, Goal)>,
    /// How many CPUs the server may use: those of the machine unless said.
    pub cpus: u32,
    /// How many workers serve requests that are not accepted, while accepted ones have workers with reservations; as
    /// many as there are CPUs unless said, and 4 at least. The dissertation has 10 (Yang 2009, 12.2.1); where requests
    /// hardly wait for others, fewer finish more of them in time, and where they mostly wait, more do.
    pub best_effort_workers: usize,
    /// How many workers serve everything where nothing can be reserved; twice as many as there are CPUs unless said,
    /// and 10 at least. Requests that mostly wait for others want more.
    pub plain_workers: usize,
    /// How many workers of a route have a reservation at most; 128 unless said. Where it has more specifications, each
    /// worker serves several requests in a response time.
    pub reserved_workers_max: usize,
    /// How many requests may wait for a worker or for their turn, those of all routes together; 4,096 unless said. More
    /// are refused.
    pub waiting_max: usize,
    /// How many workers are replaced whose request does not end; 32 unless said. Beyond, they are missing.
    pub strays_max: usize,
    /// Where the daemon listens; `None` has nothing reserved.
    pub socket: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
        Settings {
            routes: Vec::new(),
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            best_effort_workers: cpus.max(4),
            plain_workers: (2 * cpus).max(10),
            reserved_workers_max: 128,
            waiting_max: 4_096,
            strays_max: 32,
            socket: Some(libsteward::SOCKET_PATH.into()),
        }
    }
}

impl Settings {
    /// Adds a route with its goal.
    #[must_use]
    pub fn route(mut self, name: &str, goal: Goal) -> Self {
        self.routes.push((name.to_owned(), goal));
        self
    }
}

//! How a server is set up, in C's words.

use std::ffi::c_char;
use std::time::Duration;

use steward_server::{Goal, Otherwise, Settings};

use crate::error::{Failure, read};

/// Beyond what is accepted, a request is served when there is nothing better to do.
pub const STEWARD_SERVER_BEST_EFFORT: u32 = 0;
/// Beyond what can be answered in time, a request is refused, and told when to come back.
pub const STEWARD_SERVER_REFUSE: u32 = 1;
/// Beyond what is accepted, a request waits for its turn; its response time counts from its arrival.
pub const STEWARD_SERVER_QUEUE: u32 = 2;

/// What is wanted of a route.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StewardServerGoal {
    /// The route's name, such as "/search". It is copied. steward_server_set_goal() does not look at it.
    pub route: *const c_char,
    /// Within which time a request is to be answered, from its arrival, in nanoseconds: from 1 ms to an hour.
    pub response_time_ns: u64,
    /// The part of the machine's CPU time that requests of this route may be promised, above 0 and below 1.
    pub cpu: f64,
    /// What a request costs as far as known, in nanoseconds of CPU time; 0 if it is not known: it is measured.
    pub cost_ns: u64,
    /// STEWARD_SERVER_BEST_EFFORT, _REFUSE or _QUEUE.
    pub otherwise: u32,
}

/// How a server is set up. Where a number is 0, it is what the library takes by itself.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StewardServerSettings {
    /// Where the daemon listens; null for where it does unless set up otherwise. "" has nothing reserved.
    pub socket_path: *const c_char,
    /// How many CPUs the server may use; otherwise all.
    pub cpus: u32,
    /// How many workers serve requests that are not accepted, beside those that have reservations; otherwise as many as
    /// there are CPUs, and 4 at least.
    pub best_effort_workers: u32,
    /// How many workers serve everything where nothing can be reserved; otherwise twice as many as there are CPUs, and
    /// 10 at least.
    pub plain_workers: u32,
    /// How many workers of a route have a reservation at most; otherwise 128.
    pub reserved_workers_max: u32,
    /// How many requests may wait; otherwise 4096.
    pub waiting_max: u32,
    /// How many workers are replaced whose request does not end; otherwise 32.
    pub strays_max: u32,
}

impl StewardServerGoal {
    /// # Safety
    /// `self.route` is null or a text.
    pub(crate) unsafe fn name(&self) -> Result<&str, Failure> {
        // SAFETY: as the caller promises.
        unsafe { read(self.route) }?.ok_or_else(|| Failure::argument("a route has no name"))
    }

    pub(crate) fn goal(&self) -> Result<Goal, Failure> {
        let otherwise = match self.otherwise {
            STEWARD_SERVER_BEST_EFFORT => Otherwise::BestEffort,
            STEWARD_SERVER_REFUSE => Otherwise::Refuse,
            STEWARD_SERVER_QUEUE => Otherwise::Queue,
            other => {
                return Err(Failure::argument(format!(
                    "otherwise is {other}: write STEWARD_SERVER_BEST_EFFORT, _REFUSE or _QUEUE"
                )));
            }
        };
        let cost = (self.cost_ns > 0).then(|| Duration::from_nanos(self.cost_ns));
        let goal = Goal::new(Duration::from_nanos(self.response_time_ns), self.cpu).otherwise(otherwise);
        Ok(Goal { cost, ..goal })
    }
}

impl StewardServerSettings {
    /// # Safety
    /// `self.socket_path` is null or a text.
    pub(crate) unsafe fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        // SAFETY: as the caller promises.
        match unsafe { read(self.socket_path) }? {
            None => {}
            Some("") => settings.socket = None,
            Some(path) => settings.socket = Some(path.into()),
        }
        if self.cpus > 0 {
            settings.cpus = self.cpus;
        }
        let set = |place: &mut usize, count: u32| {
            if count > 0 {
                *place = count as usize;
            }
        };
        set(&mut settings.best_effort_workers, self.best_effort_workers);
        set(&mut settings.plain_workers, self.plain_workers);
        set(&mut settings.reserved_workers_max, self.reserved_workers_max);
        set(&mut settings.waiting_max, self.waiting_max);
        set(&mut settings.strays_max, self.strays_max);
        Ok(settings)
    }
}

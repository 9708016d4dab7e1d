//! Where news of processes comes from, and the timer between two measurements.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use steward_core::cpu::mechanism::MechanismError;

use crate::mounts::MountTable;
use crate::process::events::ProcessEvents;

/// Where news of processes comes from, and when to measure next.
#[derive(Debug)]
pub(super) struct Follower {
    /// Where the kernel tells of processes.
    pub(super) events: Option<ProcessEvents>,
    pub(super) mounts: MountTable,
    pub(super) measure_at_ns: u64,
    /// Readable once a second while there is something to measure.
    timer: Option<OwnedFd>,
    timer_runs: bool,
    /// Readable when the timer or the events are.
    waiter: Option<OwnedFd>,
    pub(super) failure: Option<MechanismError>,
}

impl Follower {
    pub(super) fn new() -> Self {
        let events = ProcessEvents::open().ok();
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok();
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        if let Some(waiter) = &waiter {
            let readable = epoll::EventFlags::IN;
            if let Some(timer) = &timer {
                let _ = epoll::add(waiter, timer, epoll::EventData::new_u64(0), readable);
            }
            if let Some(events) = &events {
                let _ = epoll::add(waiter, events, epoll::EventData::new_u64(1), readable);
            }
        }
        Follower {
            // Without something to wait on, events would never be read.
            events: events.filter(|_| waiter.is_some()),
            mounts: MountTable::default(),
            measure_at_ns: 0,
            timer,
            timer_runs: false,
            waiter,
            failure: None,
        }
    }

    pub(super) fn is_told_of_processes(&self) -> bool {
        self.events.is_some()
    }

    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.waiter.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Keeps a failure that nobody could be told of, for the next scan.
    pub(super) fn note_failure(&mut self, result: Result<(), MechanismError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Runs the timer while there are tasks to measure, so that a machine without them is left at rest.
    pub(super) fn set_timer(&mut self, is_needed: bool) {
        let Some(timer) = &self.timer else { return };
        // Reading it makes it unreadable until it expires again.
        let _ = rustix::io::read(timer, &mut [0; 8]);
        if self.timer_runs != is_needed {
            let second = Timespec { tv_sec: i64::from(is_needed), tv_nsec: 0 };
            let every_second = Itimerspec { it_interval: second, it_value: second };
            let set = timerfd_settime(timer, TimerfdTimerFlags::empty(), &every_second);
            self.timer_runs = is_needed && set.is_ok();
        }
    }
}

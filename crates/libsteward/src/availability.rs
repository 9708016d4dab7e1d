//! How much memory a program may use, kept up to date while the daemon comes and goes.
//!
//! For whoever can trade memory for speed: a cache, a collector of garbage, a buffer pool. A [`Watcher`] is told by the
//! daemon ([`WatchAvailability`]) and never waits for it: without a daemon it knows nothing, and says so. It can be
//! asked now and then ([`Watcher::poll`]), waited for in a loop of the program's own (by its descriptor, [`AsFd`]) or
//! without one ([`Watcher::wait`]), or have a thread of its own that calls back ([`Watcher::spawn`]).
//!
//! ```no_run
//! use libsteward::availability::Watcher;
//!
//! let mut watcher = Watcher::of_own_domain(libsteward::SOCKET_PATH)?;
//! while let Some(told) = watcher.wait(None)? {
//!     println!("{} may use {} bytes, and uses {}", told.domain, told.available, told.used);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::api::{Availability, WatchAvailability};
use crate::{Client, Error, Events, connect};

/// From losing the daemon to the first attempt to reach it again; later ones come when it has been gone twice as long.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The longest time between two attempts.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// What was told is believed for so long after the daemon has gone: longer than it takes to start again.
const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// What is known of how much memory a domain may use.
///
/// After a fork the child's copy connects anew, with another descriptor.
#[derive(Debug)]
pub struct Watcher {
    socket: PathBuf,
    request: WatchAvailability,
    waits: Waits,
    daemon: Connection,
    latest: Option<Availability>,
    /// Whether the latest was not given to anybody yet.
    is_new: bool,
}

/// What there is to wait for, behind one descriptor that stays the same while connections come and go.
#[derive(Debug)]
struct Waits {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The process that made it.
    pid: u32,
}

#[derive(Debug)]
enum Connection {
    /// `lost_since` until something has come.
    Open {
        events: Box<Events<Availability>>,
        lost_since: Option<Instant>,
    },
    Lost {
        since: Instant,
        retry_at: Instant,
        why: Option<Error>,
    },
}

impl Watcher {
    /// Watches the domain that this process is in, wherever it is moved. Succeeds without a daemon at `socket`
    /// ([`crate::SOCKET_PATH`] unless it was told otherwise), too: whenever there is one, it is asked.
    ///
    /// # Errors
    /// When the process can have no more descriptors.
    pub fn of_own_domain(socket: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(socket.as_ref().to_owned(), WatchAvailability::default())
    }

    /// The same for a domain of that name. A process may ask about its own and those below it, and otherwise as the
    /// rules say.
    ///
    /// # Errors
    /// As [`Watcher::of_own_domain`].
    pub fn of_domain(socket: impl AsRef<Path>, domain: &str) -> io::Result<Self> {
        Self::new(socket.as_ref().to_owned(), WatchAvailability { domain: Some(domain.to_owned()) })
    }

    fn new(socket: PathBuf, request: WatchAvailability) -> io::Result<Self> {
        let waits = Waits::new()?;
        let now = Instant::now();
        let daemon = Connection::Lost { since: now, retry_at: now, why: None };
        let mut watcher = Watcher { socket, request, waits, daemon, latest: None, is_new: false };
        watcher.follow()?;
        Ok(watcher)
    }

    /// What was told last; `None` before the first time, and when the daemon has been gone for ten seconds. Never
    /// waits.
    ///
    /// # Errors
    /// After a fork, when the process can have no more descriptors.
    pub fn poll(&mut self) -> io::Result<Option<&Availability>> {
        self.follow()?;
        self.is_new = false;
        Ok(self.latest.as_ref())
    }

    /// Waits until something is told that was not given yet, at most for `timeout`; `None` when that is over.
    ///
    /// # Errors
    /// As [`Watcher::poll`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<&Availability>> {
        self.wait_or(None, timeout)?;
        Ok(self.latest.as_ref().filter(|_| std::mem::take(&mut self.is_new)))
    }

    /// Why nothing is told, where the daemon cannot be reached or has refused.
    pub fn problem(&self) -> Option<&Error> {
        match &self.daemon {
            Connection::Open { .. } => None,
            Connection::Lost { why, .. } => why.as_ref(),
        }
    }

    /// Has a thread call `told` with what is told, first at once, until what this returns is dropped.
    ///
    /// # Errors
    /// When there can be no thread or no descriptor for it.
    pub fn spawn(mut self, mut told: impl FnMut(&Availability) + Send + 'static) -> io::Result<Watching> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("steward".into()).spawn(move || {
            // It ends too when this process can have no more descriptors, which none but the first attempt needs.
            while let Ok(false) = self.wait_or(Some(stopped.as_fd()), None) {
                self.is_new = false;
                if let Some(latest) = &self.latest {
                    told(latest);
                }
            }
        })?;
        Ok(Watching { stop, thread: Some(thread) })
    }

    /// Waits until there is something new, `timeout` is over, or `stop` is readable, which it then says.
    fn wait_or(&mut self, stop: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            self.follow()?;
            let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            if self.is_new || left == Some(Duration::ZERO) {
                return Ok(false);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut waits = vec![PollFd::new(&self.waits.epoll, PollFlags::IN)];
            waits.extend(stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN)));
            match poll(&mut waits, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if waits.get(1).is_some_and(|stop| !stop.revents().is_empty()) {
                return Ok(true);
            }
        }
    }

    /// Takes in what has come, and looks for the daemon when it is time to.
    fn follow(&mut self) -> io::Result<()> {
        if self.waits.pid != std::process::id() {
            // What the parent has is the parent's: read here, it would be lost there.
            *self = Watcher::new(self.socket.clone(), self.request.clone())?;
            return Ok(());
        }
        loop {
            match &mut self.daemon {
                Connection::Open { events, lost_since } => match events.next_ready() {
                    Ok(Some(told)) => {
                        *lost_since = None;
                        (self.latest, self.is_new) = (Some(told), true);
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        let now = Instant::now();
                        let since = lost_since.unwrap_or(now);
                        self.lose(since, now, error)?;
                    }
                },
                Connection::Lost { since, retry_at, .. } => {
                    let (since, now) = (*since, Instant::now());
                    if now.saturating_duration_since(since) >= BELIEVED_FOR {
                        self.latest = None;
                    }
                    if now < *retry_at {
                        return Ok(());
                    }
                    match self.connect() {
                        Ok(events) => {
                            self.waits.settle(None)?;
                            let events = Box::new(events);
                            self.daemon = Connection::Open { events, lost_since: Some(since) };
                        }
                        Err(error) => self.lose(since, now, error)?,
                    }
                }
            }
        }
    }

    /// Asks the daemon. It takes what is asked at once: the socket is empty.
    fn connect(&self) -> Result<Events<Availability>, Error> {
        let events =
            Client::from_stream(connect::at_once(&self.socket)?).watch_availability(&self.request)?;
        self.waits.add(events.as_fd())?;
        Ok(events)
    }

    fn lose(&mut self, since: Instant, now: Instant, why: Error) -> io::Result<()> {
        // As long again as it has been gone: short after a restart, and rarely where there is none.
        let retry_after = now.saturating_duration_since(since).clamp(RETRY_AFTER, RETRY_AFTER_MAX);
        self.waits.settle(Some(retry_after))?;
        self.daemon = Connection::Lost { since, retry_at: now + retry_after, why: Some(why) };
        Ok(())
    }
}

impl AsFd for Watcher {
    /// Readable when [`Watcher::poll`] has something to do: it is to be called then, whether or not it has news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waits.epoll.as_fd()
    }
}

impl Waits {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let waits = Waits { epoll, timer, pid: std::process::id() };
        waits.add(waits.timer.as_fd())?;
        Ok(waits)
    }

    /// Until it is closed.
    fn add(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Has the descriptor be readable in a while, and not before on account of time.
    fn settle(&self, after: Option<Duration>) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = after.and_then(|after| Timespec::try_from(after).ok()).unwrap_or(zero);
        let timer = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer)?;
        Ok(())
    }
}

/// A thread that calls back with what is told. Dropping this ends it; a call that is in progress is waited for, unless
/// it is that call which drops it.
#[derive(Debug)]
pub struct Watching {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Its counter has room for one.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            // Whoever is called back may have panicked; that has been said then.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;

//! How much memory a program may use.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libsteward::SOCKET_PATH;
use libsteward::api::Availability;
use libsteward::availability::{Watcher, Watching};

use crate::error::{Failure, STEWARD_OK, guarded};
use crate::text::{optional, store};

/// How much memory a domain may use.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct StewardAvailability {
    /// When it was read, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What it used then with all below it, in bytes.
    pub used_bytes: u64,
    /// How much it may use, in bytes: what it uses, what nobody uses, and what it can take back from those who use more
    /// than their part. Less than it uses where others lack what it has more than its part.
    pub available_bytes: u64,
    /// What of that it can have at once, in bytes: what it uses, what is free, and clean pages of files of those who
    /// would pay.
    pub available_at_once_bytes: u64,
    /// How long it takes at most until it can have the rest, in nanoseconds.
    pub time_to_free_ns: u64,
}

impl StewardAvailability {
    fn of(told: &Availability) -> Self {
        StewardAvailability {
            at_ns: told.at_ns,
            used_bytes: told.used,
            available_bytes: told.available,
            available_at_once_bytes: told.available_at_once,
            time_to_free_ns: told.time_to_free_ns,
        }
    }
}

/// What is known of how much memory a domain may use. It finds the daemon again by itself when that starts again. Any
/// number of threads may use one; calls on the same handle wait for each other, and none waits for the daemon. After
/// fork() the child's copy connects anew, with another descriptor. Only steward_availability_close() must be the last
/// use.
pub struct StewardAvailabilityWatcher {
    watcher: Mutex<Watcher>,
}

/// A thread that calls back with how much memory a domain may use.
pub struct StewardAvailabilityWatch {
    _watching: Watching,
}

/// What is called with how much memory a domain may use, on a thread of the library's, and the `user_data` that was
/// given with it.
pub type StewardAvailabilityCallback =
    Option<unsafe extern "C" fn(latest: *const StewardAvailability, user_data: *mut c_void)>;

/// `user_data`, which goes to the thread that calls back: C answers for that.
struct UserData(*mut c_void);

// SAFETY: nothing here looks at what it points to; steward_availability_watch() says that another thread does.
unsafe impl Send for UserData {}

impl UserData {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Begins to watch how much memory `domain` may use, or with null the domain that the calling process is in, wherever
/// it is moved; `socket_path` null is the usual socket. Succeeds when there is no daemon, too: whenever there is one,
/// it is asked. Stores a handle in `watcher`; free it with steward_availability_close().
///
/// # Safety
/// `socket_path` and `domain` are null or texts; `watcher` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_open(
    socket_path: *const c_char,
    domain: *const c_char,
    watcher: *mut *mut StewardAvailabilityWatcher,
) -> i32 {
    guarded(|| {
        if watcher.is_null() {
            return Err(Failure::argument("the place for the watcher is null"));
        }
        // SAFETY: as the caller promises.
        let opened = Mutex::new(unsafe { opened(socket_path, domain) }?);
        let boxed = Box::new(StewardAvailabilityWatcher { watcher: opened });
        // SAFETY: as the caller promises; it was checked not to be null.
        unsafe { watcher.write(Box::into_raw(boxed)) };
        Ok(STEWARD_OK)
    })
}

/// What was told last, without waiting: returns 1 and stores it in `latest`, unless that is null; returns 0 when
/// nothing is known, because nothing was told yet or the daemon has been gone for ten seconds.
///
/// # Safety
/// `watcher` is a handle; `latest` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_poll(
    watcher: *const StewardAvailabilityWatcher,
    latest: *mut StewardAvailability,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let mut watcher = unsafe { locked(watcher) }?;
        let Some(told) = watcher.poll()?.map(StewardAvailability::of) else { return Ok(0) };
        unsafe { store(told, latest, drop) };
        Ok(1)
    })
}

/// The descriptor to wait for with poll() until it is readable, then call steward_availability_poll(), whether or not
/// it has something new. It stays the same when the daemon starts again, and belongs to the watcher: do not read from
/// it and do not close it.
///
/// # Safety
/// `watcher` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_fd(watcher: *const StewardAvailabilityWatcher) -> c_int {
    // SAFETY: as the caller promises.
    guarded(|| Ok(unsafe { locked(watcher) }?.as_fd().as_raw_fd()))
}

/// Ends a watcher. Null is nothing to end.
///
/// # Safety
/// `watcher` is null or was given by steward_availability_open(), was not closed before, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_close(watcher: *mut StewardAvailabilityWatcher) {
    if !watcher.is_null() {
        // SAFETY: as the caller promises, it is from Box::into_raw.
        drop(unsafe { Box::from_raw(watcher) });
    }
}

/// Has a thread call `callback` with how much memory `domain` may use: once the daemon has said so, and then whenever
/// it has changed by 5 % or more of what was told last. `socket_path` and `domain` are as for
/// steward_availability_open(). The thread has the signal mask of the caller. Stores a handle in `watch`; end the
/// thread with steward_availability_stop(). A child has no such thread after fork().
///
/// # Safety
/// `socket_path` and `domain` are null or texts; `callback` may be called on another thread with `user_data`, until
/// steward_availability_stop() has returned; `watch` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_watch(
    socket_path: *const c_char,
    domain: *const c_char,
    callback: StewardAvailabilityCallback,
    user_data: *mut c_void,
    watch: *mut *mut StewardAvailabilityWatch,
) -> i32 {
    guarded(|| {
        if watch.is_null() {
            return Err(Failure::argument("the place for the watch is null"));
        }
        let callback = callback.ok_or_else(|| Failure::argument("the callback is null"))?;
        let user_data = UserData(user_data);
        // SAFETY: as the caller promises, here and below.
        let watcher = unsafe { opened(socket_path, domain) }?;
        let watching = watcher.spawn(move |told| {
            let latest = StewardAvailability::of(told);
            unsafe { callback(&latest, user_data.get()) };
        })?;
        let boxed = Box::new(StewardAvailabilityWatch { _watching: watching });
        unsafe { watch.write(Box::into_raw(boxed)) };
        Ok(STEWARD_OK)
    })
}

/// Ends a thread that calls back, and waits for a call that is in progress. Null is nothing to end.
///
/// # Safety
/// `watch` is null or was given by steward_availability_watch(), and was not stopped before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_availability_stop(watch: *mut StewardAvailabilityWatch) {
    if !watch.is_null() {
        // SAFETY: as the caller promises, it is from Box::into_raw.
        drop(unsafe { Box::from_raw(watch) });
    }
}

/// # Safety
/// `socket_path` and `domain` are null or texts.
unsafe fn opened(socket_path: *const c_char, domain: *const c_char) -> Result<Watcher, Failure> {
    // SAFETY: as the caller promises, here and below.
    let socket = unsafe { optional(socket_path) }?.unwrap_or(SOCKET_PATH);
    Ok(match unsafe { optional(domain) }? {
        None => Watcher::of_own_domain(socket)?,
        Some(domain) => Watcher::of_domain(socket, domain)?,
    })
}

/// # Safety
/// `watcher` is null or a handle.
unsafe fn locked<'watcher>(
    watcher: *const StewardAvailabilityWatcher,
) -> Result<MutexGuard<'watcher, Watcher>, Failure> {
    // SAFETY: as the caller promises.
    let watcher = unsafe { watcher.as_ref() }.ok_or_else(|| Failure::argument("the watcher is null"))?;
    Ok(watcher.watcher.lock().unwrap_or_else(PoisonError::into_inner))
}

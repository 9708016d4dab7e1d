//! Streams of decisions and of changes among domains.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};

use libsteward::Events;
use libsteward::api::{Method, Monitor, WatchDomains};
use serde_json::{Map, Value, json};

use crate::client::connected;
use crate::error::{Failure, STEWARD_OK, guarded};
use crate::text::hand_over;

/// A stream, on a connection of its own. Any number of threads may use one; calls on the same handle wait for each
/// other. Only steward_events_close() must be the last use.
pub struct StewardEvents {
    events: Mutex<Events<Map<String, Value>>>,
}

/// Opens a stream of decisions at `socket_path`, or with null at the usual socket: each event is what
/// io.steward.Monitor returns. With `history`, first those that the daemon remembers. Free it with
/// steward_events_close().
///
/// # Safety
/// `socket_path` is null or a text; `events` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_monitor(
    socket_path: *const c_char,
    history: bool,
    events: *mut *mut StewardEvents,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { open(socket_path, Monitor::NAME, json!({ "history": history }), events) }
}

/// Opens a stream of changes among domains: each event is what io.steward.WatchDomains returns. With `present`, first
/// all that there are. Otherwise as steward_monitor().
///
/// # Safety
/// As steward_monitor().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_watch_domains(
    socket_path: *const c_char,
    present: bool,
    events: *mut *mut StewardEvents,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { open(socket_path, WatchDomains::NAME, json!({ "present": present }), events) }
}

/// # Safety
/// As [`steward_monitor`].
unsafe fn open(
    socket_path: *const c_char,
    method: &str,
    parameters: Value,
    events: *mut *mut StewardEvents,
) -> i32 {
    guarded(|| {
        if events.is_null() {
            return Err(Failure::argument("the place for the events is null"));
        }
        let Value::Object(parameters) = parameters else { unreachable!("parameters are written as objects") };
        // SAFETY: as the caller promises.
        let client = unsafe { connected(socket_path) }?;
        let stream = client.stream_by_name(method, parameters)?;
        let boxed = Box::new(StewardEvents { events: Mutex::new(stream) });
        // SAFETY: as the caller promises; it was checked not to be null.
        unsafe { events.write(Box::into_raw(boxed)) };
        Ok(STEWARD_OK)
    })
}

/// The descriptor to wait for with poll() until it is readable, then call steward_events_next() until that returns 0.
/// It belongs to the stream: do not read from it and do not close it.
///
/// # Safety
/// `events` is a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_events_fd(events: *const StewardEvents) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        let events = unsafe { stream(events) }?;
        let events = events.events.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(events.as_fd().as_raw_fd())
    })
}

/// The next event if it is here already, without waiting: returns 1 and stores it in `json` (free it with
/// steward_free_text()), 0 when there is none yet, or a negative code when the stream has ended.
///
/// # Safety
/// `events` is a stream; `json` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_events_next(events: *const StewardEvents, json: *mut *mut c_char) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let events = unsafe { stream(events) }?;
        let next = events.events.lock().unwrap_or_else(PoisonError::into_inner).next_ready()?;
        let Some(event) = next else { return Ok(0) };
        unsafe { hand_over(Value::Object(event).to_string(), json) };
        Ok(1)
    })
}

/// Ends a stream. Null is nothing to end.
///
/// # Safety
/// `events` is null or a stream that was not closed before and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_events_close(events: *mut StewardEvents) {
    if !events.is_null() {
        // SAFETY: as the caller promises, it is from Box::into_raw.
        drop(unsafe { Box::from_raw(events) });
    }
}

/// # Safety
/// `events` is null or a stream.
unsafe fn stream<'events>(events: *const StewardEvents) -> Result<&'events StewardEvents, Failure> {
    // SAFETY: as the caller promises.
    unsafe { events.as_ref() }.ok_or_else(|| Failure::argument("the stream is null"))
}

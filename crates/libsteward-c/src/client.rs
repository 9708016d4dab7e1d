//! Connecting, and calls about processes.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libsteward::api::{self, Method, Standing};
use libsteward::{Client, SOCKET_PATH};
use serde_json::Value;

use crate::error::{Failure, STEWARD_OK, guarded};
use crate::text::{hand_over, optional, required, store};

/// Children get the reservation too; for `steward_set`, all threads of the process as well.
pub const STEWARD_INHERIT: u32 = 1;
/// The reservation may not be revoked under overload.
pub const STEWARD_NOT_REVOCABLE: u32 = 2;
/// Without room, be best-effort until there is some, instead of STEWARD_ERROR_ADMISSION_REFUSED.
pub const STEWARD_KEEP_IF_REFUSED: u32 = 4;

/// The reservation is decided on later, by the next program that is executed.
pub const STEWARD_STANDING_UNDECIDED: i32 = 0;
/// The reservation is in force.
pub const STEWARD_STANDING_ADMITTED: i32 = 1;
/// There was no room; best-effort until there is some.
pub const STEWARD_STANDING_REFUSED: i32 = 2;
/// It was put out under overload; best-effort until there is room.
pub const STEWARD_STANDING_REVOKED: i32 = 3;

/// A connection to the daemon. Any number of threads may use one at a time or at once: calls on the same handle wait
/// for each other. The daemon knows the process that connected; after fork() a child connects anew. Only
/// steward_close() must be the last use.
pub struct StewardClient {
    client: Mutex<Client>,
}

/// CPU time: `budget_ns` in every `period_ns`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StewardReservation {
    /// CPU time per period, in nanoseconds, from 0.1 ms to the whole period.
    pub budget_ns: u64,
    /// Length of a period, in nanoseconds, from 1 ms to 10 s.
    pub period_ns: u64,
}

impl StewardReservation {
    fn to_api(self) -> api::Reservation {
        api::Reservation { budget_ns: self.budget_ns, period_ns: self.period_ns }
    }
}

impl StewardClient {
    fn lock(&self) -> MutexGuard<'_, Client> {
        // A panic in between leaves at worst a connection that answers with an error.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn call<M: Method>(&self, method: &M) -> Result<M::Reply, Failure> {
        Ok(self.lock().call(method)?)
    }
}

/// The handle that C gave.
///
/// # Safety
/// `client` is null or was given by `steward_connect` and not closed.
pub(crate) unsafe fn handle<'client>(
    client: *const StewardClient,
) -> Result<&'client StewardClient, Failure> {
    // SAFETY: as the caller promises.
    unsafe { client.as_ref() }.ok_or_else(|| Failure::argument("the client is null"))
}

/// Connects as C asks: to `socket_path`, or with null to the usual socket.
///
/// # Safety
/// `socket_path` is null or a text.
pub(crate) unsafe fn connected(socket_path: *const c_char) -> Result<Client, Failure> {
    // SAFETY: as the caller promises.
    let path = unsafe { optional(socket_path) }?.unwrap_or(SOCKET_PATH);
    Ok(Client::connect(path)?)
}

/// Connects to the daemon at `socket_path`, or with null at the usual socket, and stores a handle in `client`. Waits
/// for a daemon that is starting, 30 seconds at most. Free it with steward_close().
///
/// # Safety
/// `socket_path` is null or a text, `client` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_connect(socket_path: *const c_char, client: *mut *mut StewardClient) -> i32 {
    guarded(|| {
        if client.is_null() {
            return Err(Failure::argument("the place for the client is null"));
        }
        // SAFETY: as the caller promises.
        let connected = unsafe { connected(socket_path) }?;
        let boxed = Box::new(StewardClient { client: Mutex::new(connected) });
        // SAFETY: as the caller promises; it was checked not to be null.
        unsafe { client.write(Box::into_raw(boxed)) };
        Ok(STEWARD_OK)
    })
}

/// Closes a connection. Null is nothing to close. What was reserved stays.
///
/// # Safety
/// `client` is null or was given by steward_connect(), was not closed before, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_close(client: *mut StewardClient) {
    if !client.is_null() {
        // SAFETY: as the caller promises, it is from Box::into_raw.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// For the calling process: with `cpu`, reserves it for the process (its main thread) and keeps it over exec. With
/// null, lets the process take up the specification of the next program that it executes. `flags` are of
/// STEWARD_INHERIT, STEWARD_NOT_REVOCABLE, STEWARD_KEEP_IF_REFUSED. Stores in `standing`, unless it is null, one of
/// STEWARD_STANDING_*.
///
/// # Safety
/// `client` is a handle; `cpu` is null or points to a reservation; `standing` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_run(
    client: *const StewardClient,
    cpu: *const StewardReservation,
    flags: u32,
    standing: *mut i32,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let cpu = unsafe { cpu.as_ref() };
        let Flags { inherit, revocable, keep_if_refused } = Flags::read(flags)?;
        let cpu = cpu.map(|cpu| cpu.to_api());
        let request = api::Run { cpu, inherit, revocable, keep_if_refused, ..api::Run::default() };
        let reply = unsafe { handle(client) }?.call(&request)?;
        unsafe { store(number_of(reply.standing), standing, drop) };
        Ok(STEWARD_OK)
    })
}

/// Reserves `cpu` for a running process; `flags` and `standing` as in steward_run().
///
/// # Safety
/// `client` is a handle; `cpu` points to a reservation; `standing` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_set(
    client: *const StewardClient,
    pid: i32,
    cpu: *const StewardReservation,
    flags: u32,
    standing: *mut i32,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let cpu = unsafe { cpu.as_ref() }.ok_or_else(|| Failure::argument("the reservation is null"))?;
        let Flags { inherit, revocable, keep_if_refused } = Flags::read(flags)?;
        let request =
            api::Set { pid, cpu: cpu.to_api(), inherit, revocable, keep_if_refused, requests_at: None };
        let reply = unsafe { handle(client) }?.call(&request)?;
        unsafe { store(number_of(reply.standing), standing, drop) };
        Ok(STEWARD_OK)
    })
}

/// Makes a running process best-effort. Stores in `released`, unless it is null, how many of its threads had a
/// reservation.
///
/// # Safety
/// `client` is a handle; `released` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_release(client: *const StewardClient, pid: i32, released: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let reply = unsafe { handle(client) }?.call(&api::Release { pid })?;
        unsafe { store(reply.released, released, drop) };
        Ok(STEWARD_OK)
    })
}

/// Says that the calling process was too late `missed` times, 1 to 1000000, since it last said so: frames, deadlines,
/// requests. `steward tune` goes by it. Stores in `complaints`, unless it is null, the sum so far.
///
/// # Safety
/// `client` is a handle; `complaints` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_complain(
    client: *const StewardClient,
    missed: u64,
    complaints: *mut u64,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let reply = unsafe { handle(client) }?.call(&api::Complain { missed, of: None })?;
        unsafe { store(reply.complaints, complaints, drop) };
        Ok(STEWARD_OK)
    })
}

/// Everything at one moment: stores in `json` what io.steward.Status returns. Free it with steward_free_text().
///
/// # Safety
/// `client` is a handle; `json` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_status(client: *const StewardClient, json: *mut *mut c_char) -> i32 {
    // SAFETY: as the caller promises; the name is a text.
    unsafe { steward_call(client, c"io.steward.Status".as_ptr(), std::ptr::null(), json) }
}

/// Calls any method that has one reply by its full name (io.steward.Explain). `parameters` is a JSON object, or null
/// for none. Stores in `json`, unless it is null, the reply as a JSON object; free it with steward_free_text().
///
/// # Safety
/// `client` is a handle; `method` is a text; `parameters` is null or a text; `json` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_call(
    client: *const StewardClient,
    method: *const c_char,
    parameters: *const c_char,
    json: *mut *mut c_char,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let client = unsafe { handle(client) }?;
        let method = unsafe { required(method, "the method") }?;
        let parameters = unsafe { optional(parameters) }?.unwrap_or("{}");
        let parameters = match serde_json::from_str(parameters) {
            Ok(Value::Object(parameters)) => parameters,
            Ok(_) => return Err(Failure::argument("the parameters are no JSON object")),
            Err(error) => return Err(Failure::argument(format!("the parameters are no JSON: {error}"))),
        };
        let reply = client.lock().call_by_name(method, parameters)?;
        unsafe { hand_over(Value::Object(reply).to_string(), json) };
        Ok(STEWARD_OK)
    })
}

/// What the flags of a reservation mean.
struct Flags {
    inherit: Option<bool>,
    revocable: Option<bool>,
    keep_if_refused: Option<bool>,
}

impl Flags {
    fn read(flags: u32) -> Result<Self, Failure> {
        let known = STEWARD_INHERIT | STEWARD_NOT_REVOCABLE | STEWARD_KEEP_IF_REFUSED;
        if flags & !known != 0 {
            return Err(Failure::argument(format!("the flags {:#x} are not known", flags & !known)));
        }
        let has = |flag: u32| flags & flag != 0;
        Ok(Flags {
            inherit: has(STEWARD_INHERIT).then_some(true),
            revocable: has(STEWARD_NOT_REVOCABLE).then_some(false),
            keep_if_refused: has(STEWARD_KEEP_IF_REFUSED).then_some(true),
        })
    }
}

fn number_of(standing: Option<Standing>) -> i32 {
    match standing {
        None => STEWARD_STANDING_UNDECIDED,
        Some(Standing::Admitted) => STEWARD_STANDING_ADMITTED,
        Some(Standing::Refused) => STEWARD_STANDING_REFUSED,
        Some(Standing::Revoked) => STEWARD_STANDING_REVOKED,
    }
}

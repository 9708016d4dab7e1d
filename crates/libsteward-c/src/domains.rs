//! Calls about domains.

use std::ffi::c_char;

use libsteward::api::{self, DomainSettings, IoClass};
use serde_json::json;

use crate::client::{StewardClient, handle, steward_call};
use crate::error::{Failure, STEWARD_OK, guarded};
use crate::text::{hand_over, optional, required};

/// The domain stays when its last process has gone.
pub const STEWARD_KEEP: u32 = 1;
/// The processes of a removed domain are ended instead of moved to its parent.
pub const STEWARD_KILL: u32 = 1;

/// `priority` counts.
pub const STEWARD_PRIORITY: u32 = 1;
/// `weight` counts.
pub const STEWARD_WEIGHT: u32 = 2;
/// `own_priority` counts.
pub const STEWARD_OWN_PRIORITY: u32 = 4;
/// `own_weight` counts.
pub const STEWARD_OWN_WEIGHT: u32 = 8;
/// `cpu` counts.
pub const STEWARD_CPU: u32 = 16;
/// `cpu_reservable` counts.
pub const STEWARD_CPU_RESERVABLE: u32 = 32;
/// `memory_min_bytes` counts.
pub const STEWARD_MEMORY_MIN: u32 = 64;
/// `memory_max_bytes` counts.
pub const STEWARD_MEMORY_MAX: u32 = 128;
/// `disk` counts.
pub const STEWARD_DISK: u32 = 256;
/// `protect_ns` counts.
pub const STEWARD_PROTECT: u32 = 512;

/// `io` counts.
pub const STEWARD_IO: u32 = 1024;
/// `io_max_bytes` counts.
pub const STEWARD_IO_MAX_BYTES: u32 = 2048;
/// `io_max_requests` counts.
pub const STEWARD_IO_MAX_REQUESTS: u32 = 4096;

/// Disk requests are served before all others.
pub const STEWARD_IO_INTERACTIVE: i32 = 0;
/// Disk requests are served as the kernel does by default.
pub const STEWARD_IO_NORMAL: i32 = 1;
/// Disk requests are served when nobody else wants the disk.
pub const STEWARD_IO_BACKGROUND: i32 = 2;

/// What to change in a domain. Fill it with zeros, then say in `set` which values count (STEWARD_PRIORITY and so on),
/// and in `reset` which settings are to have their default again; all others stay as they are.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct StewardDomainSettings {
    /// Which values count.
    pub set: u32,
    /// Which settings get their default again.
    pub reset: u32,
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    pub priority: i32,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10000.
    pub weight: i32,
    /// Priority of the domain's own tasks beside its children, 0 to 7.
    pub own_priority: i32,
    /// Weight of the domain's own tasks beside its children, 1 to 10000.
    pub own_weight: i32,
    /// CPU reserved, as a fraction of the parent's, above 0 and at most 1.
    pub cpu: f64,
    /// The most that the children may reserve together, as a fraction of the domain's own.
    pub cpu_reservable: f64,
    /// Memory promised, in bytes.
    pub memory_min_bytes: i64,
    /// The most memory that it may use, in bytes.
    pub memory_max_bytes: i64,
    /// Disk time reserved, as a fraction of the parent's.
    pub disk: f64,
    /// Protected: for how long one of its pages may go unused before it may be taken, in nanoseconds, 1 s to 24 h.
    pub protect_ns: i64,
    /// How soon its disk requests are served: STEWARD_IO_INTERACTIVE and so on.
    pub io: i32,
    /// The most that it may read, and write, of each disk, in bytes a second.
    pub io_max_bytes: i64,
    /// The same in requests a second.
    pub io_max_requests: i64,
}

/// The settings by the names that the API has for them.
const NAMES: [(u32, &str); 13] = [
    (STEWARD_PRIORITY, "priority"),
    (STEWARD_WEIGHT, "weight"),
    (STEWARD_OWN_PRIORITY, "own_priority"),
    (STEWARD_OWN_WEIGHT, "own_weight"),
    (STEWARD_CPU, "cpu"),
    (STEWARD_CPU_RESERVABLE, "cpu_reservable"),
    (STEWARD_MEMORY_MIN, "memory_min"),
    (STEWARD_MEMORY_MAX, "memory_max"),
    (STEWARD_DISK, "disk"),
    (STEWARD_PROTECT, "protect"),
    (STEWARD_IO, "io"),
    (STEWARD_IO_MAX_BYTES, "io_max_bytes"),
    (STEWARD_IO_MAX_REQUESTS, "io_max_requests"),
];

impl StewardDomainSettings {
    fn to_api(self) -> Result<DomainSettings, Failure> {
        let known = NAMES.iter().fold(0, |known, (bit, _)| known | bit);
        if (self.set | self.reset) & !known != 0 {
            return Err(Failure::argument("set or reset name settings that are not known"));
        }
        let has = |bit: u32| self.set & bit != 0;
        Ok(DomainSettings {
            priority: has(STEWARD_PRIORITY).then(|| self.priority.into()),
            weight: has(STEWARD_WEIGHT).then(|| self.weight.into()),
            own_priority: has(STEWARD_OWN_PRIORITY).then(|| self.own_priority.into()),
            own_weight: has(STEWARD_OWN_WEIGHT).then(|| self.own_weight.into()),
            cpu: has(STEWARD_CPU).then_some(self.cpu),
            cpu_reservable: has(STEWARD_CPU_RESERVABLE).then_some(self.cpu_reservable),
            memory_min: has(STEWARD_MEMORY_MIN).then_some(self.memory_min_bytes),
            memory_max: has(STEWARD_MEMORY_MAX).then_some(self.memory_max_bytes),
            protect: has(STEWARD_PROTECT).then_some(self.protect_ns),
            io: has(STEWARD_IO).then(|| io_class(self.io)).transpose()?,
            disk: has(STEWARD_DISK).then_some(self.disk),
            io_max_bytes: has(STEWARD_IO_MAX_BYTES).then_some(self.io_max_bytes),
            io_max_requests: has(STEWARD_IO_MAX_REQUESTS).then_some(self.io_max_requests),
            reset: NAMES
                .iter()
                .filter(|(bit, _)| self.reset & bit != 0)
                .map(|(_, name)| (*name).to_owned())
                .collect(),
        })
    }
}

/// The class that C names.
fn io_class(number: i32) -> Result<IoClass, Failure> {
    match number {
        STEWARD_IO_INTERACTIVE => Ok(IoClass::Interactive),
        STEWARD_IO_NORMAL => Ok(IoClass::Normal),
        STEWARD_IO_BACKGROUND => Ok(IoClass::Background),
        _ => Err(Failure::argument(
            "io is none of STEWARD_IO_INTERACTIVE, STEWARD_IO_NORMAL and STEWARD_IO_BACKGROUND",
        )),
    }
}

/// The settings that C gave; null changes nothing.
///
/// # Safety
/// `settings` is null or points to settings.
unsafe fn settings_of(settings: *const StewardDomainSettings) -> Result<DomainSettings, Failure> {
    // SAFETY: as the caller promises.
    unsafe { settings.as_ref() }.map_or_else(|| Ok(DomainSettings::default()), |settings| settings.to_api())
}

/// One flag, or none.
fn flag(flags: u32, known: u32) -> Result<Option<bool>, Failure> {
    if flags & !known != 0 {
        return Err(Failure::argument(format!("the flags {:#x} are not known", flags & !known)));
    }
    Ok((flags & known != 0).then_some(true))
}

/// Makes a domain `name` (batch, or web/front below a domain web) with these settings, or with null with none. `flags`
/// is STEWARD_KEEP or 0: without it the domain goes away with its last process, or when none came within a minute.
///
/// # Safety
/// `client` is a handle; `name` is a text; `settings` is null or points to settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_create(
    client: *const StewardClient,
    name: *const c_char,
    settings: *const StewardDomainSettings,
    flags: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let domain = unsafe { required(name, "the name") }?.to_owned();
        let settings = unsafe { settings_of(settings) }?;
        let keep = flag(flags, STEWARD_KEEP)?;
        unsafe { handle(client) }?.call(&api::CreateDomain { domain, settings, user: None, keep })?;
        Ok(STEWARD_OK)
    })
}

/// Changes what a domain has, at once. Nothing is changed when any part of it is refused.
///
/// # Safety
/// `client` is a handle; `name` is a text; `settings` points to settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_set(
    client: *const StewardClient,
    name: *const c_char,
    settings: *const StewardDomainSettings,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let domain = unsafe { required(name, "the name") }?.to_owned();
        let settings = unsafe { settings_of(settings) }?;
        unsafe { handle(client) }?.call(&api::SetDomain { domain, settings, user: None, keep: None })?;
        Ok(STEWARD_OK)
    })
}

/// Removes a domain that Steward made, with all below it; its processes move to its parent, or end with STEWARD_KILL in
/// `flags`. From any other domain, takes back what was set.
///
/// # Safety
/// `client` is a handle; `name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_remove(
    client: *const StewardClient,
    name: *const c_char,
    flags: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let domain = unsafe { required(name, "the name") }?.to_owned();
        let kill = flag(flags, STEWARD_KILL)?;
        unsafe { handle(client) }?.call(&api::RemoveDomain { domain, kill })?;
        Ok(STEWARD_OK)
    })
}

/// Moves a process with all its threads to a domain that Steward made; `pid` 0 is the calling process.
///
/// # Safety
/// `client` is a handle; `name` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_move(
    client: *const StewardClient,
    pid: i32,
    name: *const c_char,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let domain = unsafe { required(name, "the name") }?.to_owned();
        let pid = (pid != 0).then_some(pid);
        unsafe { handle(client) }?.call(&api::MoveProcess { pid, domain })?;
        Ok(STEWARD_OK)
    })
}

/// All domains: stores in `json` what io.steward.ListDomains returns. Free it with steward_free_text().
///
/// # Safety
/// `client` is a handle; `json` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_list(client: *const StewardClient, json: *mut *mut c_char) -> i32 {
    // SAFETY: as the caller promises; the name is a text.
    unsafe { steward_call(client, c"io.steward.ListDomains".as_ptr(), std::ptr::null(), json) }
}

/// One domain, or with null that of the calling process: stores in `json` what io.steward.ShowDomain returns. Free it
/// with steward_free_text().
///
/// # Safety
/// `client` is a handle; `name` is null or a text; `json` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn steward_domain_show(
    client: *const StewardClient,
    name: *const c_char,
    json: *mut *mut c_char,
) -> i32 {
    guarded(|| {
        // SAFETY: as the caller promises, here and below.
        let domain = unsafe { optional(name) }?.map(str::to_owned);
        let shown = unsafe { handle(client) }?.call(&api::ShowDomain { domain, pid: None })?;
        unsafe { hand_over(json!(shown).to_string(), json) };
        Ok(STEWARD_OK)
    })
}

//! Putting the program into the kernel: checks before, tables filled, and a clear word when it fails.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Mutex;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, PrintLevel, ProgramInput};
use steward_core::printable::printable_name;

use crate::error::{LoadError, summarize_rejection, to_io};
use crate::skeleton::{StewardSkel, StewardSkelBuilder};
use crate::{CPUS_MAX, DOMAINS_MAX};

const STATE: &str = "/sys/kernel/sched_ext/state";
const NAME: &str = "/sys/kernel/sched_ext/root/ops";
const HOTPLUG_SEQUENCE: &str = "/sys/kernel/sched_ext/hotplug_seq";
/// Of `enum boundary` in `record.h`.
pub(crate) const BOUNDARY_UNWATCHED: u32 = 1;
/// The same.
pub(crate) const BOUNDARY_WATCHED: u32 = 2;
const TYPE_INFORMATION: &str = "/sys/kernel/btf/vmlinux";
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";

/// What libbpf printed since the last load began; it reports the verifier's words in no other way.
static LOG: Mutex<String> = Mutex::new(String::new());

fn remember(level: PrintLevel, message: String) {
    tracing::debug!(target: "bpf", ?level, "{}", message.trim_end());
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&message);
    }
}

/// The loaded program with its links: dropping the links takes the scheduler out of force.
pub(crate) struct Loaded {
    pub(crate) skeleton: StewardSkel<'static>,
    pub(crate) cpus: usize,
    /// What sees programs being executed.
    pub(crate) exec: Option<Link>,
    /// The kernel says where a task was preempted.
    pub(crate) tells_where: bool,
    /// What listens to that, while anybody may be held.
    pub(crate) schedule: Option<Link>,
    _operations: Link,
}

/// Refuses, with the reason, a kernel or a state of it in which loading cannot succeed.
fn check_kernel() -> Result<(), LoadError> {
    let Ok(state) = fs::read_to_string(STATE) else {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        return Err(LoadError::NoSchedExt { release, path: STATE.to_owned() });
    };
    if !Path::new(TYPE_INFORMATION).exists() {
        return Err(LoadError::NoTypeInformation { path: TYPE_INFORMATION.to_owned() });
    }
    if state.trim() != "disabled" {
        let name = fs::read_to_string(NAME).unwrap_or_else(|_| "unknown".to_owned()).trim().to_owned();
        return Err(LoadError::AnotherScheduler { name, path: NAME.to_owned() });
    }
    Ok(())
}

/// Expands a list such as `0-3,6` of the kernel's CPU files.
fn read_cpu_list(path: &str) -> Result<Vec<usize>, LoadError> {
    let text = fs::read_to_string(path)
        .map_err(|source| LoadError::Bpf { action: format!("reading {path}"), source })?;
    parse_cpu_list(&text).ok_or_else(|| LoadError::Bpf {
        action: format!("reading {path}"),
        source: io::Error::new(
            io::ErrorKind::InvalidData,
            format!("\"{}\" is not a list of CPUs", text.trim()),
        ),
    })
}

fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}

/// Loads the program, fills its tables and puts it in force.
pub(crate) fn load() -> Result<Loaded, LoadError> {
    check_kernel()?;
    let possible = read_cpu_list(POSSIBLE_CPUS)?;
    let online = read_cpu_list(ONLINE_CPUS)?;
    let cpus = possible.iter().max().map_or(1, |last| last + 1);
    if cpus > CPUS_MAX {
        return Err(LoadError::TooManyCpus { cpus, most: CPUS_MAX });
    }
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
    let statistics = tracing::enabled!(target: "bpf", tracing::Level::TRACE);
    libbpf_rs::set_print(Some((if statistics { PrintLevel::Debug } else { PrintLevel::Info }, remember)));

    // The skeleton borrows its object for as long as it lives; a loader that retries is bounded, so leaking one
    // small allocation per load is the simplest owner.
    let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = StewardSkelBuilder::default()
        .open(object)
        .map_err(|error| classify(&error, "opening the program"))?;
    if let Some(data) = open.maps.data_data.as_deref_mut() {
        data.settings.cpus = cpus as u32;
    }
    let tells_where = Btf::from_vmlinux().is_ok_and(|types| has_tracepoint(&types, "sched_entry_tp"));
    open.progs.steward_schedule.set_autoload(tells_where);
    let sequence =
        fs::read_to_string(HOTPLUG_SEQUENCE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    open.struct_ops.steward_ops_mut().hotplug_seq = sequence;
    if statistics {
        // What each callback cost the verifier.
        for mut program in open.open_object_mut().progs_mut() {
            program.set_log_level(4);
        }
    }
    open.maps
        .cpu_orders
        .set_max_entries(cpus as u32)
        .map_err(|error| classify(&error, "sizing the tables of CPUs"))?;
    let mut skeleton = open.load().map_err(|error| classify(&error, "loading the program"))?;
    fill_tables(&skeleton, &online)?;
    find_active(&skeleton);

    let exec =
        skeleton.progs.steward_exec.attach_trace().map_err(|error| classify(&error, "watching exec"))?;
    // Before the scheduler: what is preempted first is known, too.
    let schedule = tells_where
        .then(|| skeleton.progs.steward_schedule.attach_trace())
        .transpose()
        .map_err(|error| classify(&error, "watching where tasks are preempted"))?;
    if let (Some(data), true) = (skeleton.maps.data_data.as_deref_mut(), tells_where) {
        data.settings.boundary = BOUNDARY_WATCHED;
    }
    let operations = skeleton.maps.steward_ops.attach_struct_ops().map_err(|error| {
        let reason = exit_reason(&skeleton).map(|reason| format!(" ({reason})")).unwrap_or_default();
        LoadError::NotAttached { source: to_io(&error), reason }
    })?;
    Ok(Loaded { skeleton, cpus, tells_where, exec: Some(exec), schedule, _operations: operations })
}

/// Whether BPF programs can watch the tracepoint; one with a name in `_tp` is in no directory of tracefs.
fn has_tracepoint(types: &Btf<'_>, name: &str) -> bool {
    types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some()
}

fn classify(error: &libbpf_rs::Error, action: &str) -> LoadError {
    let source = to_io(error);
    let log = LOG.lock().map(|log| log.clone()).unwrap_or_default();
    if log.contains("PROG LOAD LOG") {
        return LoadError::Rejected { summary: summarize_rejection(&log) };
    }
    if source.kind() == io::ErrorKind::PermissionDenied {
        return LoadError::NoPermission { source };
    }
    let detail = log.lines().last().map(|line| format!(" ({line})")).unwrap_or_default();
    LoadError::Bpf { action: format!("{action}{detail}"), source }
}

/// Fills the list of free domains and marks the CPUs that are online.
fn fill_tables(skeleton: &StewardSkel<'_>, online: &[usize]) -> Result<(), LoadError> {
    let failed = |action: &str| {
        let action = action.to_owned();
        move |error: libbpf_rs::Error| LoadError::Bpf { action, source: to_io(&error) }
    };
    // A stack: the lowest index last, so that it is taken first.
    for index in (2..DOMAINS_MAX as u32).rev() {
        skeleton
            .maps
            .free_domains
            .update(&[], &index.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("filling the list of free domains"))?;
    }
    for &cpu in online {
        let state = crate::skeleton::types::cpu_state { online: 1, ..Default::default() };
        skeleton
            .maps
            .cpu_states
            .update(&(cpu as u32).to_ne_bytes(), as_bytes(&state), MapFlags::ANY)
            .map_err(failed("marking the CPUs that are online"))?;
    }
    Ok(())
}

/// Has the program ask the kernel where its list of active CPUs is. Where that is not told each that is online counts.
fn find_active(skeleton: &StewardSkel<'_>) {
    let found = skeleton.progs.steward_find_active.test_run(ProgramInput::default());
    let error = match found.map(|found| found.return_value as i32) {
        Ok(0) => return,
        Ok(code) => io::Error::from_raw_os_error(-code),
        Err(error) => to_io(&error),
    };
    tracing::warn!(
        decision = "active-cpus",
        "the kernel does not say where its list of active CPUs is ({error}): one that is to go offline may take seconds to; stewardd \
         needs CAP_SYSLOG for it, and the sysctl kernel.kptr_restrict below 2"
    );
}

/// The scheduler's own record of why it left, `None` while it is in force.
pub(crate) fn exit_reason(skeleton: &StewardSkel<'_>) -> Option<String> {
    let bss = skeleton.maps.bss_data.as_deref()?;
    // SAFETY: the kernel writes this memory; the flag is written last.
    if unsafe { std::ptr::read_volatile(&raw const bss.exit_record.recorded) } == 0 {
        return None;
    }
    // SAFETY: as above; the record is large, and read only when there is one.
    let record = unsafe { std::ptr::read_volatile(&raw const bss.exit_record) };
    let reason = text_of(&record.reason);
    let message = text_of(&record.message);
    Some(if message.is_empty() { reason } else { format!("{reason}: {message}") })
}

/// A C string in a fixed array, without what follows its end, as text that may be shown.
pub(crate) fn text_of(characters: &[i8]) -> String {
    printable_name(&characters.iter().map(|&byte| byte as u8).collect::<Vec<u8>>())
}

/// The bytes of a structure that the kernel shares with us.
pub(crate) fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the structures come from the program's BTF, are plain data and have no implicit padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Maps an array of the program into this process, to be read without system calls.
pub(crate) fn map_array<T>(map: &impl MapCore, entries: usize) -> io::Result<*const T> {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping of the map's own size; the kernel refuses it when the map does not allow it.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            entries * size_of::<T>(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            map.as_fd().as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as *const T) }
}

/// Keeps this process from writing to a variable of the program that has a section of its own: libbpf maps those to be
/// written as well.
pub(crate) fn only_read<T>(variable: *const T) -> io::Result<()> {
    // SAFETY: the section begins with the variable, at the beginning of a page, and nothing else lies in its pages.
    // Nobody here writes to it.
    match unsafe { libc::mprotect(variable.cast_mut().cast(), size_of::<T>(), libc::PROT_READ) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_expanded() {
        assert_eq!(parse_cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("a-b"), None);
    }

    #[test]
    fn text_ends_at_the_first_zero_byte() {
        assert_eq!(text_of(&[b'a' as i8, b'b' as i8, 0, b'c' as i8]), "ab");
    }
}

//! Records a workload: which threads ran, waited for a CPU and slept, and for how long, from the scheduler's
//! tracepoints.
//!
//! A small BPF program (`src/bpf/record.bpf.c`) adds the times up per thread and hands over one record for each cycle
//! from wake-up to wake-up; this crate writes them down in the form of [`steward_sim::cpu::recording`]. It changes
//! nothing in the kernel, and what it attached is gone when it ends, however it ends.

mod cgroups;
#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/record.skel.rs"));
}
mod writer;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, PrintLevel, RingBufferBuilder};
use steward_sim::cpu::recording::{End, Header, VERSION};

use skeleton::{RecordSkel, RecordSkelBuilder, types};
use writer::Writer;

const TYPE_INFORMATION: &str = "/sys/kernel/btf/vmlinux";
/// How often it takes what was reported, and looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why a workload could not be recorded. Nothing stays attached after any of these.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel gives no type information.
    #[error(
        "this kernel has no BTF: {TYPE_INFORMATION} is missing; use a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypeInformation,
    /// The caller may not load BPF programs.
    #[error("no permission to watch the scheduler ({source}); run `steward record` as root")]
    NoPermission {
        /// What the kernel said.
        source: io::Error,
    },
    /// Any other failure of the BPF system.
    #[error("{action}: {source}; the kernel must have BPF tracing (CONFIG_BPF_EVENTS)")]
    Bpf {
        /// What was tried.
        action: &'static str,
        /// What came back.
        source: io::Error,
    },
    /// The recording could not be written.
    #[error("writing the recording: {0}; make room, or name another file with -o")]
    Write(#[from] io::Error),
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How long, in nanoseconds.
    pub duration_ns: u64,
    /// Threads seen.
    pub tasks: u64,
    /// Cycles written.
    pub cycles: u64,
    /// Records that were lost because they came faster than they could be read.
    pub lost: u64,
}

/// Records for `duration`, or until `stop` says so, into `output`.
///
/// # Errors
/// [`RecordError`], each with what to do.
pub fn record(
    duration: Duration,
    output: impl Write,
    stop: impl Fn() -> bool,
) -> Result<Summary, RecordError> {
    if !Path::new(TYPE_INFORMATION).exists() {
        return Err(RecordError::NoTypeInformation);
    }
    // Its words go to nobody: what a person needs is in the errors.
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    let mut object = MaybeUninit::uninit();
    let mut open = RecordSkelBuilder::default()
        .open(&mut object)
        .map_err(|error| failed("opening the recorder", &error))?;
    if let Some(data) = open.maps.bss_data.as_deref_mut() {
        data.own_pid = std::process::id() as i32;
    }
    let mut skeleton = open.load().map_err(|error| failed("loading the recorder", &error))?;

    let mut output = Writer::new(output);
    output.header(&Header {
        steward_recording: VERSION,
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        source: "sched tracepoints".to_owned(),
    })?;
    let begin_ns = now_ns();
    output.begin(begin_ns);
    skeleton.attach().map_err(|error| failed("attaching to the scheduler's tracepoints", &error))?;
    let output = Rc::new(RefCell::new(output));
    read_until(&skeleton, duration, &stop, &output)?;

    let end_ns = now_ns();
    let mut output = output.borrow_mut();
    flush(&skeleton, &mut output, end_ns)?;
    let lost = skeleton.maps.bss_data.as_deref().map_or(0, |data| {
        // SAFETY: the program adds to it while it is attached; it is a plain number.
        unsafe { std::ptr::read_volatile(&raw const data.lost) }
    });
    let duration_ns = end_ns - begin_ns;
    output.end(&End { at_ns: duration_ns, lost })?;
    Ok(Summary { duration_ns, lost, ..output.summary() })
}

/// Hands the program's reports to the writer until it is time to stop.
fn read_until<W: Write>(
    skeleton: &RecordSkel<'_>,
    duration: Duration,
    stop: &impl Fn() -> bool,
    output: &Rc<RefCell<Writer<W>>>,
) -> Result<(), RecordError> {
    let mut builder = RingBufferBuilder::new();
    let sink = Rc::clone(output);
    let take = move |bytes: &[u8]| {
        // What goes wrong is kept by the writer and looked at below.
        if let Some(report) = report_of(bytes) {
            sink.borrow_mut().report(&report);
        }
        0
    };
    builder.add(&skeleton.maps.reports, take).map_err(|error| failed("reading the recorder", &error))?;
    let ring = builder.build().map_err(|error| failed("reading the recorder", &error))?;
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return Ok(());
        }
        std::thread::sleep(left.min(PATIENCE));
        ring.consume().map_err(|error| failed("reading the recorder", &error))?;
        output.borrow_mut().check()?;
    }
}

/// Writes down the cycles that are not over.
fn flush<W: Write>(
    skeleton: &RecordSkel<'_>,
    output: &mut Writer<W>,
    end_ns: u64,
) -> Result<(), RecordError> {
    for key in skeleton.maps.threads.keys() {
        let Ok(tid) = <[u8; 4]>::try_from(key.as_slice()).map(i32::from_ne_bytes) else { continue };
        let Ok(Some(bytes)) = skeleton.maps.threads.lookup(&key, MapFlags::ANY) else { continue };
        if bytes.len() >= size_of::<types::thread>() {
            // SAFETY: the value of this map is this structure, which is plain numbers.
            let thread: types::thread = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
            output.unfinished(tid, &thread, end_ns);
        }
    }
    Ok(output.check()?)
}

fn report_of(bytes: &[u8]) -> Option<types::report> {
    // SAFETY: the program submits this structure, which is plain numbers and characters.
    (bytes.len() >= size_of::<types::report>())
        .then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

fn failed(action: &'static str, error: &libbpf_rs::Error) -> RecordError {
    let text = format!("{error:#}");
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            RecordError::NoPermission { source: io::Error::new(io::ErrorKind::PermissionDenied, text) }
        }
        _ => RecordError::Bpf { action, source: io::Error::other(text) },
    }
}

/// `CLOCK_MONOTONIC`, which the program reads too, in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

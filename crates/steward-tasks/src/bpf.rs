//! The reader in the kernel: `src/bpf/tasks.bpf.c`. Where the kernel has it, one call fills memory that both see; else
//! an iterator is read.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, PrintLevel, libbpf_sys, set_print};
use steward_core::cpu::forecast::{Changed, TaskReading, TaskSample};
use steward_core::cpu::nice;

use crate::shared_memory::SharedMemory;
use crate::{Source, TasksError, class_of, steady};
use skeleton::{OpenTasksSkel, TasksSkelBuilder, types};

#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tasks.skel.rs"));
}

/// `static_prio` of nice 0 (include/linux/sched/prio.h).
const PRIORITY_OF_NICE_0: i32 = 120;
/// What is read at once, in bytes: whole records, about as much as the kernel keeps ready for a reader.
const CHUNK_BYTES: usize = 32 * 1024 / size_of::<types::record>() * size_of::<types::record>();
/// How many of libbpf's last lines are in an error.
const LINES_OF_LOG: usize = 6;

/// Room for so many tasks at least: to get more takes a new program, which costs as much as hundreds of reads.
const ROOM_MIN: u32 = 4096;

/// All tasks through BPF. The program is out of the kernel when this is dropped.
pub struct Bpf {
    reader: Reader,
    /// What was read last, ordered by thread id.
    samples: Vec<TaskSample>,
    /// For each record the place of its sample; empty when nothing was read.
    places: Vec<u32>,
    /// Places of the samples that the last read has changed.
    changed: Vec<u32>,
    /// Thread ids with the indices of their records, in the order of the samples.
    order: Vec<(i32, u32)>,
}

/// The two ways through the tasks.
enum Reader {
    Filled(Filled),
    Iterated(Iterated),
}

/// A program that fills memory with records.
struct Filled {
    program: OwnedFd,
    records: SharedMemory<types::record>,
    /// The indices of those that a call has changed.
    changes: SharedMemory<u64>,
}

/// A program that hands over records one by one.
struct Iterated {
    link: Link,
    chunk: Vec<u8>,
    records: Vec<types::record>,
}

/// What a read found.
struct Found<'r> {
    /// In the kernel's order.
    records: &'r [types::record],
    /// So many of them, from the first on, are about the tasks that they were about at the read before.
    kept: usize,
    /// The indices of the records that differ from those of the read before, and of all that were not kept.
    changes: &'r [u64],
    /// When the first was read, where the program says so, in nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: Option<u64>,
}

impl Bpf {
    /// Loads the program.
    ///
    /// # Errors
    /// [`TasksError::Bpf`]: no permission, or the kernel lacks what it needs.
    pub fn load() -> Result<Self, TasksError> {
        let room = tasks_now().saturating_mul(2).max(ROOM_MIN);
        Filled::load(room).map(Reader::Filled).or_else(|_| Self::iterated()).map(Self::new)
    }

    /// Loads the program for kernels that cannot go through the tasks within one call.
    ///
    /// # Errors
    /// As [`Bpf::load`].
    pub fn load_iterator() -> Result<Self, TasksError> {
        Self::iterated().map(Self::new)
    }

    fn new(reader: Reader) -> Self {
        Bpf { reader, samples: Vec::new(), places: Vec::new(), changed: Vec::new(), order: Vec::new() }
    }

    fn iterated() -> Result<Reader, TasksError> {
        Ok(Reader::Iterated(Iterated::load()?))
    }
}

impl Reader {
    /// `known` records are those of the read before.
    fn read(&mut self, known: u32) -> Result<Found<'_>, TasksError> {
        match self {
            Reader::Filled(filled) => filled.read(known),
            Reader::Iterated(iterated) => {
                let records = iterated.read().map_err(not_read)?;
                Ok(Found { records, kept: 0, changes: &[], at_ns: None })
            }
        }
    }
}

/// How many tasks there are, as the fourth field of `/proc/loadavg` says; 0 when it does not.
fn tasks_now() -> u32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let counts = text.split(' ').nth(3).and_then(|field| field.split_once('/'));
    counts.and_then(|(_, total)| total.parse().ok()).unwrap_or(0)
}

fn not_read(source: io::Error) -> TasksError {
    TasksError::Bpf { action: "reading tasks", source }
}

impl Filled {
    fn load(room: u32) -> Result<Self, TasksError> {
        load(|mut open| {
            open.progs.read_tasks.set_autoload(false);
            (open.maps.records.set_max_entries(room))
                .and_then(|()| open.maps.changes.set_max_entries(room))
                .map_err(|error| failed("sizing the records of tasks", &error))?;
            let skeleton = open.load().map_err(|error| failed("loading the reader of tasks", &error))?;
            let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map_err(not_read);
            let program = own(skeleton.progs.fill_records.as_fd())?;
            let records =
                SharedMemory::new(skeleton.maps.records.as_fd(), room as usize).map_err(not_read)?;
            let changes =
                SharedMemory::new(skeleton.maps.changes.as_fd(), room as usize).map_err(not_read)?;
            Ok(Filled { program, records, changes })
        })
    }

    fn read(&mut self, mut known: u32) -> Result<Found<'_>, TasksError> {
        loop {
            let pass = self.fill(known).map_err(not_read)?;
            let tasks = pass.tasks as usize;
            if tasks <= self.records.len() {
                return Ok(Found {
                    records: &self.records.slice()[..tasks],
                    kept: tasks.min(pass.kept as usize),
                    changes: &self.changes.slice()[..pass.changed as usize],
                    at_ns: Some(pass.at_ns),
                });
            }
            // There are more tasks than room; twice as much lasts for a while.
            *self = Filled::load(pass.tasks.saturating_mul(2))?;
            known = 0;
        }
    }

    /// Has the program run once.
    fn fill(&self, known: u32) -> io::Result<types::pass> {
        let mut pass = types::pass { kept: known, ..types::pass::default() };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: (&raw mut pass).cast(),
            ctx_size_in: size_of::<types::pass>() as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is a program's, the options are complete, and what they point at lives and may be
        // written.
        let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(pass) }
    }
}

impl Iterated {
    fn load() -> Result<Self, TasksError> {
        let link = load(|mut open| {
            open.progs.fill_records.set_autoload(false);
            let skeleton = open.load().map_err(|error| failed("loading the reader of tasks", &error))?;
            // The link keeps the program; the object around it is not needed any more.
            skeleton
                .progs
                .read_tasks
                .attach()
                .map_err(|error| failed("attaching the reader of tasks", &error))
        })?;
        Ok(Iterated { link, chunk: vec![0; CHUNK_BYTES], records: Vec::new() })
    }

    fn read(&mut self) -> io::Result<&[types::record]> {
        self.records.clear();
        let mut pass = Iter::new(&self.link).map_err(io::Error::other)?;
        loop {
            let count = match pass.read(&mut self.chunk) {
                Ok(0) => return Ok(&self.records),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // The kernel hands over what a program wrote in one piece, and this one writes records.
            let pieces = self.chunk[..count].chunks_exact(size_of::<types::record>());
            // SAFETY: the program writes this structure, which is plain numbers and characters.
            self.records
                .extend(pieces.map(|bytes| unsafe {
                    std::ptr::read_unaligned(bytes.as_ptr().cast::<types::record>())
                }));
        }
    }
}

/// Opens the program and does `then` with it; libbpf's words go into the error, and whoever had them before gets them
/// again.
fn load<T>(then: impl FnOnce(OpenTasksSkel<'_>) -> Result<T, TasksError>) -> Result<T, TasksError> {
    let before = set_print(Some((PrintLevel::Warn, remember)));
    let mut object = MaybeUninit::uninit();
    let open = TasksSkelBuilder::default()
        .open(&mut object)
        .map_err(|error| failed("opening the reader of tasks", &error));
    let loaded = open.and_then(then);
    set_print(before);
    loaded
}

impl Source for Bpf {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn read(&mut self, now_ns: u64) -> Result<TaskReading<'_>, TasksError> {
        // Until all is done nothing is known.
        let mut places = std::mem::take(&mut self.places);
        let Found { records, kept, changes, at_ns } = self.reader.read(places.len() as u32)?;
        let at_ns = at_ns.unwrap_or(now_ns);
        self.changed.clear();
        for index in changes.iter().map(|index| *index as usize).filter(|index| *index < kept) {
            let place = places[index];
            let mut now = sample(&records[index]);
            steady::correct_one(&self.samples[place as usize], &mut now);
            self.samples[place as usize] = now;
            self.changed.push(place);
        }
        if kept == records.len() && kept == places.len() {
            self.places = places;
            return Ok(TaskReading { at_ns, tasks: &self.samples, changed: Changed::At(&self.changed) });
        }
        // The kernel's order is that of number or age, each process with its threads.
        self.order.retain(|(_, index)| (*index as usize) < kept);
        self.order.extend(records.iter().zip(0..).skip(kept).map(|(record, index)| (record.tid, index)));
        self.order.sort_unstable();
        let read = |(_, index): &(i32, u32)| match *index as usize {
            index if index < kept => self.samples[places[index] as usize],
            index => sample(&records[index]),
        };
        let mut samples: Vec<TaskSample> = self.order.iter().map(read).collect();
        steady::correct(&self.samples, &mut samples);
        self.samples = samples;
        places.resize(records.len(), 0);
        for ((_, index), place) in self.order.iter().zip(0..) {
            places[*index as usize] = place;
        }
        self.places = places;
        Ok(TaskReading { at_ns, tasks: &self.samples, changed: Changed::All })
    }
}

fn sample(record: &types::record) -> TaskSample {
    TaskSample {
        tid: record.tid,
        pid: record.pid,
        started_ns: record.started_ns,
        uid: record.uid,
        cgroup_id: record.cgroup_id,
        name: record.name.map(|character| character as u8),
        class: class_of(record.policy),
        weight: nice::weight(record.static_prio - PRIORITY_OF_NICE_0),
        run_ns: record.run_ns,
        wait_ns: record.wait_ns,
        runnable: record.runnable != 0,
        reserved: 0.0,
    }
}

/// What libbpf said while the program was loaded last.
static LOG: Mutex<String> = Mutex::new(String::new());

fn remember(_level: PrintLevel, message: String) {
    if let Ok(mut log) = LOG.lock() {
        log.push_str(&message);
    }
}

/// The error with libbpf's last words on it, which say more.
fn failed(action: &'static str, error: &libbpf_rs::Error) -> TasksError {
    let said = LOG.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default();
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_OF_LOG)..].join(" | ");
    let separator = if last.is_empty() { "" } else { ": " };
    TasksError::Bpf { action, source: io::Error::other(format!("{error:#}{separator}{last}")) }
}

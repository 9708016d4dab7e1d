//! The reader in the kernel: `src/bpf/tasks.bpf.c`, an iterator over all tasks.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, PrintLevel, set_print};
use steward_core::forecast::TaskSample;
use steward_core::nice;

use crate::{Source, Steady, TasksError, class_of};
use skeleton::{TasksSkelBuilder, types};

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

/// All tasks through BPF. The program is out of the kernel when this is dropped.
pub struct Bpf {
    link: Link,
    chunk: Vec<u8>,
    steady: Steady,
}

impl Bpf {
    /// Loads the program.
    ///
    /// # Errors
    /// [`TasksError::Bpf`]: no permission, or the kernel lacks what it needs.
    pub fn load() -> Result<Self, TasksError> {
        // The words of libbpf go into the error, and whoever had them before gets them again.
        let before = set_print(Some((PrintLevel::Warn, remember)));
        let loaded = load();
        set_print(before);
        Ok(Bpf { link: loaded?, chunk: vec![0; CHUNK_BYTES], steady: Steady::default() })
    }

    fn read_records(&mut self, take: &mut impl FnMut(&types::record)) -> io::Result<()> {
        let mut pass = Iter::new(&self.link).map_err(io::Error::other)?;
        loop {
            let count = match pass.read(&mut self.chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // The kernel hands over what a program wrote in one piece, and this one writes records.
            for bytes in self.chunk[..count].chunks_exact(size_of::<types::record>()) {
                // SAFETY: the program writes this structure, which is plain numbers and characters.
                take(&unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<types::record>()) });
            }
        }
    }
}

fn load() -> Result<Link, TasksError> {
    let mut object = MaybeUninit::uninit();
    let open = TasksSkelBuilder::default()
        .open(&mut object)
        .map_err(|error| failed("opening the reader of tasks", &error))?;
    let skeleton = open.load().map_err(|error| failed("loading the reader of tasks", &error))?;
    // The link keeps the program; the object around it is not needed any more.
    skeleton.progs.read_tasks.attach().map_err(|error| failed("attaching the reader of tasks", &error))
}

impl Source for Bpf {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn read(&mut self, _now_ns: u64, samples: &mut Vec<TaskSample>) -> Result<(), TasksError> {
        samples.clear();
        self.read_records(&mut |record| samples.push(sample(record)))
            .map_err(|source| TasksError::Bpf { action: "reading tasks", source })?;
        // The kernel goes through them in this order, in its own number space; nothing is moved then.
        samples.sort_by_key(|sample| sample.tid);
        self.steady.correct(samples);
        Ok(())
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

//! What disks did for whom, and who waited for them: a BPF program counts it (`src/bpf/ledger.bpf.c`), and here it is
//! read. It changes nothing in the kernel, and is gone with [`Ledger`].

use std::ffi::CStr;
use std::io;
use std::ptr::{read_volatile, write_volatile};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, RingBuffer};
use steward_core::disk::latency::{Histogram, STEPS};
use steward_core::disk::ledger::{Account, Key, Kind, Reading, Served, Wait, Work};

use crate::WaitsError;
pub use crate::program::Lacks;
use crate::program::{Program, types};

/// How many entries of a map are read at a time.
const BATCH: u32 = 128;

/// The reader of what is counted, of which there is one at a time.
pub struct Ledger {
    ended: RingBuffer<'static>,
    told: Arc<Mutex<Vec<Wait>>>,
    program: Arc<Program>,
    /// How many lines of what disks did have been read.
    lines_read: u64,
}

// SAFETY: the ring, which libbpf keeps behind a pointer, is read through `&mut` only.
unsafe impl Send for Ledger {}

impl Ledger {
    /// Begins to count. What was counted before, for who is told of waits, is left out.
    ///
    /// # Errors
    /// [`WaitsError`]: no permission, or the kernel lacks what it needs.
    pub fn start() -> Result<Self, WaitsError> {
        let program = Program::share()?;
        if program.lacks().requests {
            return Err(WaitsError {
                action: "counting what disks do",
                source: io::ErrorKind::Unsupported.into(),
            });
        }
        let told: Arc<Mutex<Vec<Wait>>> = Arc::default();
        let tells = Arc::clone(&told);
        let ended = program.hear_ended(move |bytes| {
            let wait = as_entry::<types::wait>(bytes).map(|entry| wait(&entry, entry.ended_ns));
            tells.lock().unwrap_or_else(PoisonError::into_inner).extend(wait);
        })?;
        // SAFETY: it lives as long as the program, and is read whole.
        let lines_read = unsafe { read_volatile(&raw const (*program.shared()).lines) };
        let ledger = Ledger { ended, told, program, lines_read };
        let _ = ledger.ended.consume();
        ledger.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for (key, _) in
            entries::<types::account_key, types::account>(ledger.program.accounts()).unwrap_or_default()
        {
            // It may be gone.
            let _ = ledger.program.accounts().delete(as_bytes(&key));
        }
        Ok(ledger)
    }

    /// What cannot be told on this kernel.
    pub fn lacks(&self) -> Lacks {
        self.program.lacks()
    }

    /// Reads everything. `now_ns` is the time of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// When the kernel does not give its counts.
    pub fn read(&mut self, now_ns: u64) -> io::Result<Reading> {
        let accounts = self.accounts()?;
        let mut waits = self.waiting(now_ns)?;
        // What it says comes in through the callback.
        let _ = self.ended.consume();
        waits.append(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let (served, served_missed) = self.served();
        let mut reading =
            Reading { at_ns: now_ns, accounts, served, served_missed, waits, ..Reading::default() };
        let shared = self.program.shared();
        // SAFETY: these live as long as the program, and are read and written whole.
        unsafe {
            reading.requests_missed = read_volatile(&raw const (*shared).requests_missed);
            reading.waits_missed = read_volatile(&raw const (*shared).waits_missed);
            let look = read_volatile(&raw const (*shared).look);
            write_volatile(&raw mut (*shared).look, look + 1);
            write_volatile(&raw mut (*shared).are_full, 0);
        }
        Ok(reading)
    }

    /// Counts no longer for a cgroup that has gone, so that there is room for others.
    pub fn forget(&mut self, key: &Key) {
        let key = types::account_key {
            cgroup_id: key.cgroup_id,
            disk: key.disk,
            kind: match key.kind {
                Kind::Own => 0,
                Kind::Journal => 1,
                Kind::ForCommit => 2,
            },
        };
        // It may be gone.
        let _ = self.program.accounts().delete(as_bytes(&key));
    }

    fn accounts(&self) -> io::Result<Vec<(Key, Account)>> {
        let entries = entries::<types::account_key, types::account>(self.program.accounts())?;
        // SAFETY: it lives as long as the program, and is read whole.
        let look = unsafe { read_volatile(&raw const (*self.program.shared()).look) };
        let account = |(key, account): (types::account_key, types::account)| {
            let Work::Requests(kind) = work(key.kind) else { return None };
            let max_ns = if account.look == look { account.max_ns } else { 0 };
            let latencies = Histogram(std::array::from_fn(|step| u64::from(account.steps[step])));
            let key = Key { cgroup_id: key.cgroup_id, disk: key.disk, kind };
            Some((key, Account { device_ns: account.device_ns, latencies, max_ns }))
        };
        Ok(entries.into_iter().filter_map(account).collect())
    }

    /// Those who wait now, and have for long enough.
    fn waiting(&self, now_ns: u64) -> io::Result<Vec<Wait>> {
        let waits = entries::<u32, types::wait>(self.program.waits())?;
        let mut begun: Vec<(types::wait, u64)> = Vec::new();
        for (_, entry) in waits {
            if now_ns.saturating_sub(entry.began_ns) < steward_core::disk::ledger::LONG_NS {
                continue;
            }
            let others_ns = match entry.journal_since_ns {
                0 => 0,
                since_ns => self.commit_begun_ns(&entry)?.unwrap_or(now_ns).saturating_sub(since_ns),
            };
            begun.push((entry, others_ns));
        }
        let until_now = |since_ns: u64| if since_ns == 0 { 0 } else { now_ns.saturating_sub(since_ns) };
        let going_on = |(entry, others_ns): (types::wait, u64)| Wait {
            goes_on: true,
            journal_ns: entry.journal_ns + until_now(entry.journal_since_ns),
            others_commit_ns: entry.others_commit_ns + others_ns,
            dirty_ns: entry.dirty_ns + until_now(entry.dirty_since_ns),
            ..wait(&entry, now_ns)
        };
        Ok(begun.into_iter().map(going_on).collect())
    }

    /// When the commit began that somebody waits for.
    fn commit_begun_ns(&self, wait: &types::wait) -> io::Result<Option<u64>> {
        let found = self.program.journals().lookup(as_bytes(&wait.journal), MapFlags::ANY);
        let found = found.map_err(io::Error::other)?;
        let Some(commits) = found.and_then(|bytes| as_entry::<types::commits>(&bytes)) else {
            return Ok(None);
        };
        let place = (wait.commit & 3) as usize;
        Ok((commits.commit[place] == wait.commit).then_some(commits.began_ns[place]))
    }

    /// The lines that were written since the last call, and how many are gone of them.
    fn served(&mut self) -> (Vec<Served>, u64) {
        let shared = self.program.shared();
        // SAFETY: these live as long as the program, and the one is read whole.
        let (room, written) = unsafe {
            (
                (&raw const (*shared).served).as_ref().map_or(1, |lines| lines.len()) as u64,
                read_volatile(&raw const (*shared).lines),
            )
        };
        let first = self.lines_read.max(written.saturating_sub(room));
        let missed = first - self.lines_read;
        self.lines_read = written;
        let line = |number: u64| {
            // SAFETY: as above; a line that is written meanwhile has its time last, and is left out or wrong in one
            // figure, once.
            let line = unsafe { read_volatile(&raw const (*shared).served[(number % room) as usize]) };
            (line.at_ns > 0).then(|| Served {
                at_ns: line.at_ns,
                cgroup_id: line.cgroup_id,
                disk: line.disk,
                pid: line.pid as i32,
                name: name(&line.name),
                device_ns: line.device_ns.into(),
                what: work(line.kind),
            })
        };
        ((first..written).filter_map(line).collect(), missed)
    }
}

fn wait(entry: &types::wait, ended_ns: u64) -> Wait {
    Wait {
        began_ns: entry.began_ns,
        ended_ns,
        goes_on: false,
        cgroup_id: entry.cgroup_id,
        disk: (entry.disk != 0).then_some(entry.disk),
        pid: entry.pid as i32,
        tid: entry.tid as i32,
        name: name(&entry.name),
        journal_ns: entry.journal_ns,
        others_commit_ns: entry.others_commit_ns,
        dirty_ns: entry.dirty_ns,
    }
}

/// What the kernel calls a task.
fn name(bytes: &[i8; 16]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// As `enum kind` in the program has them.
fn work(kind: u32) -> Work {
    match kind {
        0 => Work::Requests(Kind::Own),
        1 => Work::Requests(Kind::Journal),
        2 => Work::Requests(Kind::ForCommit),
        _ => Work::Committed,
    }
}

/// Everything in a map; what comes and goes meanwhile may be missed, or there twice.
fn entries<K: Copy, V: Copy>(map: &impl MapCore) -> io::Result<Vec<(K, V)>> {
    let mut all = Vec::new();
    let batches = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(io::Error::other)?;
    for (key, value) in batches {
        all.extend(as_entry::<K>(&key).zip(as_entry::<V>(&value)));
    }
    Ok(all)
}

/// Reads what the program wrote; `None` where that is something else.
fn as_entry<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: all types that this is called with are plain numbers, for which all bytes are good, and there are
    // enough.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// As the kernel takes it.
fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: all types that this is called with are plain numbers without gaps.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

const _: () = assert!(STEPS == 96, "the program has as many steps");

//! What disks did for whom, and who waited for them: a BPF program counts it (`src/bpf/ledger.bpf.c`), and here it is
//! read. It changes nothing in the kernel, and is gone with [`Ledger`].

#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ledger.skel.rs"));
}

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, read_volatile, write_volatile};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};
use skeleton::types;
use skeleton::{LedgerSkel, LedgerSkelBuilder, OpenLedgerSkel};
use steward_core::disk::latency::{Histogram, STEPS};
use steward_core::disk::ledger::{Account, Key, Kind, Reading, Served, Wait, Work};

use crate::{Room, WaitsError, failed};

/// How many entries of a map are read at a time.
const BATCH: u32 = 128;
/// Where the kernel describes its own types and those of its modules.
const BTF: &str = "/sys/kernel/btf";

/// What a kernel may lack, and what cannot be told then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    /// Whose pages are written back: they are the kernel's own threads' then.
    pub owners: bool,
    /// When too many pages are not written yet.
    pub dirty_limit: bool,
    /// Who waits for a journal (jbd2: ext4 and ocfs2).
    pub journal: bool,
}

/// The program, in force.
pub struct Ledger {
    ended: RingBuffer<'static>,
    told: Arc<Mutex<Vec<Wait>>>,
    skeleton: LedgerSkel<'static>,
    /// After the two that are in it: fields go in this order.
    _room: Room,
    /// How many lines of what disks did have been read.
    lines_read: u64,
    lacks: Lacks,
}

// SAFETY: as for `Waits`.
unsafe impl Send for Ledger {}

impl Ledger {
    /// Loads the program and begins to count.
    ///
    /// # Errors
    /// [`WaitsError`]: no permission, or the kernel lacks what it needs.
    pub fn start() -> Result<Self, WaitsError> {
        let kernel = Kernel::read();
        let lacks = kernel.lacks();
        // What is described may still not be let in.
        Self::start_with(&kernel, lacks).or_else(|_| {
            let all = Lacks { owners: true, dirty_limit: true, journal: true };
            Self::start_with(&Kernel::default(), all)
        })
    }

    /// What cannot be told on this kernel.
    pub fn lacks(&self) -> Lacks {
        self.lacks
    }

    fn start_with(kernel: &Kernel, lacks: Lacks) -> Result<Self, WaitsError> {
        let room = Room(NonNull::from(Box::leak(Box::new(MaybeUninit::uninit()))));
        // SAFETY: nothing else points there, and it is freed after everything that borrows it, here and in the value.
        let object: &'static mut MaybeUninit<OpenObject> = unsafe { &mut *room.0.as_ptr() };
        let mut open = LedgerSkelBuilder::default()
            .open(object)
            .map_err(failed("opening the program that counts what disks do"))?;
        choose(&mut open, kernel, lacks);
        let mut skeleton = open.load().map_err(failed("loading the program that counts what disks do"))?;
        let told: Arc<Mutex<Vec<Wait>>> = Arc::default();
        let tells = Arc::clone(&told);
        let mut builder = RingBufferBuilder::new();
        let listening = "listening for who has waited for the disk";
        builder
            .add(&skeleton.maps.ended, move |bytes| {
                let wait = as_entry::<types::wait>(bytes).map(|entry| wait(&entry, entry.ended_ns));
                tells.lock().unwrap_or_else(PoisonError::into_inner).extend(wait);
                0
            })
            .map_err(failed(listening))?;
        let ended = builder.build().map_err(failed(listening))?;
        skeleton.attach().map_err(failed("counting what disks do"))?;
        Ok(Ledger { ended, told, skeleton, _room: room, lines_read: 0, lacks })
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
        let served = self.served();
        let mut reading = Reading { at_ns: now_ns, accounts, served, waits, ..Reading::default() };
        if let Some(shared) = self.skeleton.maps.bss_data.as_deref_mut() {
            // SAFETY: these live as long as the skeleton, and are read and written whole.
            unsafe {
                reading.requests_missed = read_volatile(&raw const shared.requests_missed);
                reading.waits_missed = read_volatile(&raw const shared.waits_missed);
                let look = read_volatile(&raw const shared.look);
                write_volatile(&raw mut shared.look, look + 1);
                write_volatile(&raw mut shared.are_full, 0);
            }
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
        let _ = self.skeleton.maps.accounts.delete(as_bytes(&key));
    }

    fn accounts(&self) -> io::Result<Vec<(Key, Account)>> {
        let entries = entries::<types::account_key, types::account>(&self.skeleton.maps.accounts)?;
        let look = self.skeleton.maps.bss_data.as_deref().map_or(0, |shared| shared.look);
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
        let waits = entries::<u32, types::wait>(&self.skeleton.maps.waits)?;
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
        let found = self.skeleton.maps.journals.lookup(as_bytes(&wait.journal), MapFlags::ANY);
        let found = found.map_err(io::Error::other)?;
        let Some(commits) = found.and_then(|bytes| as_entry::<types::commits>(&bytes)) else {
            return Ok(None);
        };
        let place = (wait.commit & 3) as usize;
        Ok((commits.commit[place] == wait.commit).then_some(commits.began_ns[place]))
    }

    /// The lines that were written since the last call.
    fn served(&mut self) -> Vec<Served> {
        let Some(shared) = self.skeleton.maps.bss_data.as_deref() else { return Vec::new() };
        let room = shared.served.len() as u64;
        // SAFETY: it lives as long as the skeleton, and is read whole.
        let written = unsafe { read_volatile(&raw const shared.lines) };
        let first = self.lines_read.max(written.saturating_sub(room));
        self.lines_read = written;
        let line = |number: u64| {
            // SAFETY: as above; a line that is written meanwhile has its time last, and is left out or wrong in one
            // figure, once.
            let line = unsafe { read_volatile(&raw const shared.served[(number % room) as usize]) };
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
        (first..written).filter_map(line).collect()
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

/// What a kernel says it has of what is optional.
#[derive(Default)]
struct Kernel {
    call: bool,
    writing: bool,
    balance: bool,
    journal: bool,
}

impl Kernel {
    fn read() -> Self {
        let own = Btf::from_vmlinux().ok();
        let has = |name: &str| own.as_ref().is_some_and(|own| own.type_by_name::<Func<'_>>(name).is_some());
        let module = std::path::Path::new(BTF).join("jbd2").exists();
        Kernel {
            call: has("do_fsync"),
            writing: has("do_writepages"),
            balance: has("balance_dirty_pages"),
            journal: module || has("jbd2_log_wait_commit"),
        }
    }

    fn lacks(&self) -> Lacks {
        Lacks { owners: !self.writing, dirty_limit: !self.balance, journal: !self.journal }
    }
}

/// Leaves out what the kernel lacks.
fn choose(open: &mut OpenLedgerSkel<'_>, kernel: &Kernel, lacks: Lacks) {
    let programs = &mut open.progs;
    programs.call_begins.set_autoload(kernel.call);
    programs.call_ends.set_autoload(kernel.call);
    programs.writing_begins.set_autoload(!lacks.owners);
    programs.writing_ends.set_autoload(!lacks.owners);
    programs.balance_begins.set_autoload(!lacks.dirty_limit);
    programs.balance_ends.set_autoload(!lacks.dirty_limit);
    programs.commit_begins.set_autoload(!lacks.journal);
    programs.commit_wait_begins.set_autoload(!lacks.journal);
    programs.commit_wait_ends.set_autoload(!lacks.journal);
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

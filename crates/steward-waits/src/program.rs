//! The BPF program (`src/bpf/ledger.bpf.c`), loaded once for all in this process who use it: the one who is told when
//! somebody waits, and the one who reads what disks did, watch the same calls of the kernel.

#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/ledger.skel.rs"));
}

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, OpenObject, RingBuffer, RingBufferBuilder};
pub(crate) use skeleton::types;
use skeleton::{LedgerSkel, LedgerSkelBuilder, OpenLedgerSkel};
use steward_core::disk::moments::{ALONE_AFTER_NS, DEAR_FROM_NS, DEAR_PART, OVER_AFTER_NS, OVER_LATER_NS};

use crate::WaitsError;

/// Where the kernel describes its own types and those of its modules.
const BTF: &str = "/sys/kernel/btf";

/// What a kernel may lack, and what cannot be told then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Whose pages are written back: they are the kernel's own threads' then.
    pub owners: bool,
    /// When too many pages are not written yet.
    pub dirty_limit: bool,
    /// Who waits for a journal (jbd2: ext4 and ocfs2).
    pub journal: bool,
    /// What requests take: then nothing is counted.
    pub requests: bool,
}

/// The one that is in force.
static LOADED: Mutex<Weak<Program>> = Mutex::new(Weak::new());

/// The program, in force as long as anybody has it.
pub(crate) struct Program {
    skeleton: LedgerSkel<'static>,
    shared: NonNull<types::bss>,
    lacks: Lacks,
    /// After the one that is in it: fields go in this order.
    _room: Room,
}

// SAFETY: what is shared with the program is plain numbers, of which each is read and written whole; maps are
// descriptors; nothing else of the skeleton is touched once it is attached.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// Where libbpf keeps the program.
struct Room(NonNull<MaybeUninit<OpenObject>>);

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and who borrowed it has gone before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What an error of libbpf's is said to be of.
pub(crate) fn failed(action: &'static str) -> impl Fn(libbpf_rs::Error) -> WaitsError {
    move |error| WaitsError { action, source: io::Error::other(format!("{error:#}")) }
}

impl Program {
    /// The one that is in force, or else it is brought into force.
    ///
    /// # Errors
    /// [`WaitsError`]: no permission, or the kernel lacks what it needs.
    pub(crate) fn share() -> Result<Arc<Self>, WaitsError> {
        // It is whole whoever panicked with it.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = loaded.upgrade() {
            return Ok(program);
        }
        let program = Arc::new(Self::load()?);
        *loaded = Arc::downgrade(&program);
        Ok(program)
    }

    /// What is described may still not be let in: then with ever less of it.
    fn load() -> Result<Self, WaitsError> {
        let kernel = Kernel::read();
        let all = Lacks { owners: true, dirty_limit: true, journal: true, ..Lacks::default() };
        let none = Kernel::default();
        let requests = Lacks { requests: true, ..all };
        let load = |kernel, lacks| {
            Self::load_with(kernel, lacks, Functions::Whole)
                .or_else(|_| Self::load_with(kernel, lacks, Functions::Preempted))
        };
        load(&kernel, kernel.lacks())
            .or_else(|_| load(&none, all))
            .or_else(|_| load(&kernel, requests))
            .or_else(|_| load(&none, requests))
    }

    fn load_with(kernel: &Kernel, lacks: Lacks, functions: Functions) -> Result<Self, WaitsError> {
        let room = Room(NonNull::from(Box::leak(Box::new(MaybeUninit::uninit()))));
        // SAFETY: nothing else points there, and it is freed after everything that borrows it, here and in the value.
        let object: &'static mut MaybeUninit<OpenObject> = unsafe { &mut *room.0.as_ptr() };
        let mut open = LedgerSkelBuilder::default()
            .open(object)
            .map_err(failed("opening the program that watches who waits for the disk"))?;
        choose(&mut open, kernel, lacks, functions);
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            (constants.over_after_ns, constants.over_later_ns) = (OVER_AFTER_NS, OVER_LATER_NS);
            constants.alone_after_ns = ALONE_AFTER_NS;
            (constants.dear_from_ns, constants.dear_part) = (DEAR_FROM_NS, DEAR_PART);
            constants.reader_pid = std::process::id();
        }
        let mut skeleton =
            open.load().map_err(failed("loading the program that watches who waits for the disk"))?;
        let shared = skeleton.maps.bss_data.as_deref_mut().map(NonNull::from).ok_or_else(|| WaitsError {
            action: "reading what the program that watches who waits for the disk shares",
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        skeleton.attach().map_err(failed("watching who waits for the disk"))?;
        Ok(Program { skeleton, shared, lacks, _room: room })
    }

    /// What cannot be told on this kernel.
    pub(crate) fn lacks(&self) -> Lacks {
        self.lacks
    }

    /// What it shares with the kernel, for as long as there is the program.
    pub(crate) fn shared(&self) -> *mut types::bss {
        self.shared.as_ptr()
    }

    /// Requests and cgroups that it counts.
    pub(crate) fn accounts(&self) -> &impl MapCore {
        &self.skeleton.maps.accounts
    }

    /// Those who wait now.
    pub(crate) fn waits(&self) -> &impl MapCore {
        &self.skeleton.maps.waits
    }

    /// The cgroups of whose tasks it is said whether they are served first.
    pub(crate) fn first_cgroups(&self) -> &impl MapCore {
        &self.skeleton.maps.first_cgroups
    }

    /// When the last commits of each journal began.
    pub(crate) fn journals(&self) -> &impl MapCore {
        &self.skeleton.maps.journals
    }

    /// Has this be called with each entry of the ring in which moments are announced.
    ///
    /// # Errors
    /// [`WaitsError`] when nobody can listen.
    pub(crate) fn hear_calls(
        &self,
        each: impl FnMut(&[u8]) + 'static,
    ) -> Result<RingBuffer<'static>, WaitsError> {
        hear(&self.skeleton.maps.calls, each)
    }

    /// The same of the ring in which waits are that are over.
    ///
    /// # Errors
    /// [`WaitsError`] when nobody can listen.
    pub(crate) fn hear_ended(
        &self,
        each: impl FnMut(&[u8]) + 'static,
    ) -> Result<RingBuffer<'static>, WaitsError> {
        hear(&self.skeleton.maps.ended, each)
    }
}

fn hear(
    ring: &impl MapCore,
    mut each: impl FnMut(&[u8]) + 'static,
) -> Result<RingBuffer<'static>, WaitsError> {
    let listening = "listening for who waits for the disk";
    let mut builder = RingBufferBuilder::new();
    let heard = move |bytes: &[u8]| {
        each(bytes);
        0
    };
    builder.add(ring, heard).map_err(failed(listening))?;
    builder.build().map_err(failed(listening))
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
        Lacks { owners: !self.writing, dirty_limit: !self.balance, journal: !self.journal, requests: false }
    }
}

/// How the functions are watched in which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Functions {
    /// By programs that are not preempted, and so told of all (`kprobe.multi`).
    Whole,
    /// By such as may be, and are not told of what others do meanwhile (fentry).
    Preempted,
}

/// Leaves out what the kernel lacks.
fn choose(open: &mut OpenLedgerSkel<'_>, kernel: &Kernel, lacks: Lacks, functions: Functions) {
    let programs = &mut open.progs;
    let (whole, preempted) = (functions == Functions::Whole, functions == Functions::Preempted);
    programs.sync_begins.set_autoload(whole);
    programs.sync_ends.set_autoload(whole);
    programs.sync_begins_preempted.set_autoload(preempted);
    programs.sync_ends_preempted.set_autoload(preempted);
    programs.call_begins.set_autoload(whole && kernel.call);
    programs.call_ends.set_autoload(whole && kernel.call);
    programs.call_begins_preempted.set_autoload(preempted && kernel.call);
    programs.call_ends_preempted.set_autoload(preempted && kernel.call);
    programs.balance_begins.set_autoload(whole && !lacks.dirty_limit);
    programs.balance_ends.set_autoload(whole && !lacks.dirty_limit);
    programs.balance_begins_preempted.set_autoload(preempted && !lacks.dirty_limit);
    programs.balance_ends_preempted.set_autoload(preempted && !lacks.dirty_limit);
    programs.made.set_autoload(!lacks.requests);
    programs.given.set_autoload(!lacks.requests);
    programs.done.set_autoload(!lacks.requests);
    programs.writing_begins.set_autoload(!lacks.owners);
    programs.writing_ends.set_autoload(!lacks.owners);
    programs.commit_begins.set_autoload(!lacks.journal);
    programs.commit_wait_begins.set_autoload(!lacks.journal);
    programs.commit_wait_ends.set_autoload(!lacks.journal);
}

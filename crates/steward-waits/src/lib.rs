//! Tells at once when a program whose disk requests are served first begins to wait for the disk.
//!
//! While nobody waits there is no reason to hold others up, or to keep a disk idle for who might come; a daemon that
//! looks once a second would come too late for a save of 30 ms. A BPF program (`src/bpf/waits.bpf.c`) sees such a
//! program hand a request on or begin to bring a file to the disk, and wakes who listens. It changes nothing in the
//! kernel, and is gone with [`Waits`].

#[allow(missing_docs, clippy::all, non_camel_case_types, non_snake_case)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/waits.skel.rs"));
}

pub mod ledger;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{OpenObject, RingBuffer, RingBufferBuilder};
use skeleton::{WaitsSkel, WaitsSkelBuilder};

/// Why nobody can be told.
#[derive(Debug, thiserror::Error)]
#[error(
    "{action}: {source}; it needs root (CAP_BPF and CAP_PERFMON) and a kernel with BTF and BPF tracing \
     (CONFIG_DEBUG_INFO_BTF, CONFIG_BPF_EVENTS, CONFIG_FUNCTION_TRACER)"
)]
pub struct WaitsError {
    /// What was tried.
    pub action: &'static str,
    /// What came back.
    pub source: io::Error,
}

/// The program, in force.
pub struct Waits {
    ring: RingBuffer<'static>,
    skeleton: WaitsSkel<'static>,
    /// After the two that are in it: fields go in this order.
    _room: Room,
}

/// What an error of libbpf's is said to be of.
fn failed(action: &'static str) -> impl Fn(libbpf_rs::Error) -> WaitsError {
    move |error| WaitsError { action, source: io::Error::other(format!("{error:#}")) }
}

/// Where libbpf keeps the program.
struct Room(NonNull<MaybeUninit<OpenObject>>);

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and who borrowed it has gone before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: what is shared with the program is plain numbers, of which each is read and written whole; the ring is read
// through `&mut` only.
unsafe impl Send for Waits {}

impl Waits {
    /// Loads the program and begins to watch.
    ///
    /// # Errors
    /// [`WaitsError`]: no permission, or the kernel lacks what it needs.
    pub fn watch() -> Result<Self, WaitsError> {
        // Not every kernel has the second way in.
        Self::watch_with(true).or_else(|_| Self::watch_with(false))
    }

    fn watch_with(calls_too: bool) -> Result<Self, WaitsError> {
        let room = Room(NonNull::from(Box::leak(Box::new(MaybeUninit::uninit()))));
        // SAFETY: nothing else points there, and it is freed after everything that borrows it, here and in the value.
        let object: &'static mut MaybeUninit<OpenObject> = unsafe { &mut *room.0.as_ptr() };
        let mut open = WaitsSkelBuilder::default()
            .open(object)
            .map_err(failed("opening the program that tells who waits for the disk"))?;
        open.progs.call_begins.set_autoload(calls_too);
        open.progs.call_ends.set_autoload(calls_too);
        let mut skeleton =
            open.load().map_err(failed("loading the program that tells who waits for the disk"))?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&skeleton.maps.calls, |_| 0).map_err(failed("listening for who waits for the disk"))?;
        let ring = builder.build().map_err(failed("listening for who waits for the disk"))?;
        skeleton.attach().map_err(failed("watching who waits for the disk"))?;
        Ok(Waits { ring, skeleton, _room: room })
    }

    /// Takes what was announced: [`AsFd`] is readable until then.
    pub fn take(&mut self) {
        // What it announces is in shared memory; that there was an announcement is all there is to read.
        let _ = self.ring.consume();
    }

    /// Whether nobody waits, and nobody has for so long before `now_ns`, in nanoseconds of `CLOCK_MONOTONIC`. Then the
    /// next one to wait is announced again.
    pub fn are_over(&mut self, now_ns: u64, for_ns: u64) -> bool {
        let Some(shared) = self.skeleton.maps.bss_data.as_deref_mut() else { return true };
        // SAFETY: these live as long as the skeleton, are aligned as the program's types are, and the program treats
        // them as atomic.
        let (last_ns, waiting, announced) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut shared.last_ns),
                AtomicU32::from_ptr(&raw mut shared.waiting),
                AtomicU32::from_ptr(&raw mut shared.announced),
            )
        };
        let are_over = || {
            waiting.load(Ordering::SeqCst) == 0
                && now_ns.saturating_sub(last_ns.load(Ordering::SeqCst)) >= for_ns
        };
        if !are_over() {
            return false;
        }
        announced.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Who began meanwhile was not announced, or will be once more, which does no harm.
        are_over()
    }
}

impl AsFd for Waits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}

//! Tells at once when a program whose disk requests are served first begins to wait for the disk beside others who want
//! it, and what disks did for whom ([`ledger`]).
//!
//! While nobody waits there is no reason to hold others up, or to keep a disk idle for who might come; a daemon that
//! looks once a second would come too late for a save of 30 ms. A BPF program (`src/bpf/first.bpf.h`) sees such a
//! program hand a request on or begin to bring a file to the disk, and wakes who listens. It changes nothing in the
//! kernel, and is gone with the last [`Waits`] and [`Ledger`](ledger::Ledger), which share it.

pub mod ledger;
mod program;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use libbpf_rs::{MapCore, MapFlags, RingBuffer};
use program::{Program, types};
use steward_core::disk::moments::{Last, Seen};

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

/// Who is told of moments, of which there is one at a time.
pub struct Waits {
    ring: RingBuffer<'static>,
    program: Arc<Program>,
}

// SAFETY: the ring, which libbpf keeps behind a pointer, is read through `&mut` only.
unsafe impl Send for Waits {}

impl Waits {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`WaitsError`]: no permission, or the kernel lacks what it needs.
    pub fn watch() -> Result<Self, WaitsError> {
        let program = Program::share()?;
        let ring = program.hear_calls(|_| ())?;
        let waits = Waits { ring, program };
        waits.announced().store(0, Ordering::SeqCst);
        waits.listens().store(1, Ordering::SeqCst);
        Ok(waits)
    }

    /// Nobody is served first but those that have the real-time class, until something is set there.
    pub fn marks(&self) -> Marks {
        Marks { program: Arc::clone(&self.program), set: BTreeMap::new() }
    }

    /// Takes what was announced: [`AsFd`] is readable until then.
    pub fn take(&mut self) {
        // What it announces is in shared memory; that there was an announcement is all there is to read.
        let _ = self.ring.consume();
    }

    /// Whether the moment is over at `now_ns`, in nanoseconds of `CLOCK_MONOTONIC`. Then the next one is announced
    /// again.
    pub fn are_over(&mut self, now_ns: u64) -> bool {
        if self.seen().is_moment(now_ns) {
            return false;
        }
        self.announced().store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Who began meanwhile was not announced, or will be once more, which does no harm.
        !self.seen().is_moment(now_ns)
    }

    /// Who wants the disk.
    pub fn seen(&self) -> Seen {
        let shared = self.program.shared();
        // SAFETY: it lives as long as the program, whose numbers are plain ones, and each is read whole.
        let (waiting, first, others, saved_at_ns, dear_at_ns) = unsafe {
            (
                (&raw const (*shared).waiting).read_volatile(),
                (&raw const (*shared).first).read_volatile(),
                (&raw const (*shared).others).read_volatile(),
                (&raw const (*shared).saved_at_ns).read_volatile(),
                (&raw const (*shared).dear_at_ns).read_volatile(),
            )
        };
        let last =
            |last: types::last| (last.at_ns > 0).then_some(Last { pid: last.pid as i32, at_ns: last.at_ns });
        Seen {
            waiting: waiting as usize,
            first: last(first),
            others: last(others),
            saved_at_ns: (saved_at_ns > 0).then_some(saved_at_ns),
            dear_at_ns: (dear_at_ns > 0).then_some(dear_at_ns),
        }
    }

    /// Whether this one was called and has not looked away since.
    fn announced(&self) -> &AtomicU32 {
        // SAFETY: it lives as long as the program, is aligned as the program's types are, and the program treats it as
        // atomic.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.program.shared()).announced) }
    }

    /// Whether anybody is to be called.
    fn listens(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.program.shared()).listens) }
    }
}

/// Whose tasks are served first beside those that have the real-time class, until this is dropped.
pub struct Marks {
    program: Arc<Program>,
    set: BTreeMap<u64, bool>,
}

impl Marks {
    /// Has the tasks of these cgroups be served first, by id, and not those of which it is said that they are not; what
    /// was set before does not hold any more. Of a cgroup of which nothing is said that of the one above it holds.
    ///
    /// # Errors
    /// [`WaitsError`] where there is no room for all of them; the others are set.
    pub fn set(&mut self, cgroups: &BTreeMap<u64, bool>) -> Result<(), WaitsError> {
        let map = self.program.first_cgroups();
        for id in self.set.keys().filter(|id| !cgroups.contains_key(id)) {
            // It is there, and nobody else takes it out.
            let _ = map.delete(&id.to_ne_bytes());
        }
        let put = |(id, is_first): (&u64, &bool)| {
            map.update(&id.to_ne_bytes(), &[u8::from(*is_first)], MapFlags::ANY)
                .map_err(program::failed("noting whose tasks are served first"))
        };
        let failures: Vec<WaitsError> = cgroups.iter().filter_map(|each| put(each).err()).collect();
        self.set.clone_from(cgroups);
        // SAFETY: it lives as long as the program, is aligned as the program's types are, and is one number.
        let are_any = unsafe { AtomicU32::from_ptr(&raw mut (*self.program.shared()).marks) };
        are_any.store(u32::from(!cgroups.is_empty()), Ordering::SeqCst);
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let _ = self.set(&BTreeMap::new());
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.listens().store(0, Ordering::SeqCst);
    }
}

impl AsFd for Waits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_char;

    // SAFETY: it reads the 16 bytes of its argument and nothing else.
    unsafe extern "C" {
        fn waits_is_journal_name(name: *const c_char) -> bool;
    }

    #[test]
    fn a_journals_thread_is_known_by_its_name_as_far_as_the_kernel_gives_it_one_of_its_own() {
        let is_journal = |text: &str| {
            // As the kernel keeps it: cut after 15 letters.
            let mut name = [0_u8; 16];
            let kept = text.len().min(15);
            name[..kept].copy_from_slice(&text.as_bytes()[..kept]);
            // SAFETY: the name has the 16 bytes.
            unsafe { waits_is_journal_name(name.as_ptr().cast()) }
        };
        for name in ["jbd2/sda1-8", "jbd2/nullb0-8", "xfsaild/nvme0n1p1", "xfsaild/dm-3", "btrfs-transaction"]
        {
            assert!(is_journal(name), "{name}");
        }
        for name in [
            "",
            "jbd",
            "kworker/u8:1",
            "kworker/u8:1-xfs-cil/sda1",
            "btrfs-cleaner",
            "btrfs-endio-write",
            "xfs-log/sda1",
            "kswapd0",
            "flush-8:0",
        ] {
            assert!(!is_journal(name), "{name}");
        }
    }
}

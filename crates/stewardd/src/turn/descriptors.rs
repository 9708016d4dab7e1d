//! What the loop waits for beside time: descriptors, each with whose it is and what for.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Whose a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Whoever ends the daemon.
    Stop,
    /// Whoever has it read its files again.
    Reload,
    /// The files that it reads.
    Files,
    /// Those whom polkit was asked about.
    Polkit,
    /// The kernel's account of processes.
    Programs,
    /// The worker, with what became of its jobs.
    Worker,
    /// The memory loop, with its news, and what watches whether domains are in use.
    Memory,
    /// The mechanism, with its decisions.
    Mechanism,
    /// Domains that begin to be used, or end.
    Domains,
    /// The control files.
    ControlFiles,
    /// The metrics.
    Metrics,
    /// The socket, and the clients in their order.
    Clients,
}

/// One descriptor to wait for.
#[derive(Debug)]
pub struct Wait<'fd> {
    whose: Source,
    descriptor: PollFd<'fd>,
}

impl<'fd> Wait<'fd> {
    /// Until it can be read.
    pub fn readable(whose: Source, descriptor: BorrowedFd<'fd>) -> Self {
        Wait::until(whose, PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
    }

    /// Until what the descriptor says itself.
    pub fn until(whose: Source, descriptor: PollFd<'fd>) -> Self {
        Wait { whose, descriptor }
    }

    /// Whether it is of this source.
    pub fn is_of(&self, whose: Source) -> bool {
        self.whose == whose
    }
}

/// All that is waited for, in order.
#[derive(Debug)]
pub struct Waits<'fd> {
    sources: Vec<Source>,
    descriptors: Vec<PollFd<'fd>>,
}

impl<'fd> Waits<'fd> {
    /// None yet, with room for so many: the loop makes them anew in every turn.
    pub fn with_room(count: usize) -> Self {
        Waits { sources: Vec::with_capacity(count), descriptors: Vec::with_capacity(count) }
    }

    /// Waits until one of them is ready, or for that long at most.
    ///
    /// # Errors
    /// When the kernel cannot wait. A signal is no error.
    pub fn wait(mut self, at_most: &Timespec) -> Result<Woken, Errno> {
        match poll(&mut self.descriptors, Some(at_most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready = self.descriptors.iter().map(PollFd::revents);
        Ok(Woken(self.sources.into_iter().zip(ready).collect()))
    }
}

impl<'fd> Extend<Wait<'fd>> for Waits<'fd> {
    fn extend<T: IntoIterator<Item = Wait<'fd>>>(&mut self, waits: T) {
        for Wait { whose, descriptor } in waits {
            self.sources.push(whose);
            self.descriptors.push(descriptor);
        }
    }
}

/// What descriptors are ready for, in the order in which they were waited for.
#[derive(Debug)]
pub struct Woken(Vec<(Source, PollFlags)>);

impl Woken {
    /// Whether a descriptor of this source is ready.
    pub fn is_by(&self, whose: Source) -> bool {
        self.0.iter().any(|(source, ready)| *source == whose && !ready.is_empty())
    }

    /// What each descriptor of this source is ready for, which may be nothing.
    pub fn of(&self, whose: Source) -> Vec<PollFlags> {
        self.0.iter().filter(|(source, _)| *source == whose).map(|(_, ready)| *ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn woken<'fd>(all: impl IntoIterator<Item = Wait<'fd>>) -> Woken {
        let mut waits = Waits::with_room(1);
        waits.extend(all);
        waits.wait(&Timespec { tv_sec: 0, tv_nsec: 0 }).expect("it waits")
    }

    #[test]
    fn who_woke_the_loop_is_known_by_name_whatever_else_it_waits_for() {
        let (quiet, _quiet_end) = UnixStream::pair().expect("a pair");
        let (rung, mut end) = UnixStream::pair().expect("a pair");
        end.write_all(b"x").expect("written");
        for sources in [[Source::Stop, Source::Metrics], [Source::Metrics, Source::Stop]] {
            let waits = sources.map(|source| match source {
                Source::Stop => Wait::readable(source, rung.as_fd()),
                _ => Wait::readable(source, quiet.as_fd()),
            });
            let woken = woken(waits);
            assert!(
                woken.is_by(Source::Stop) && !woken.is_by(Source::Metrics) && !woken.is_by(Source::Polkit)
            );
        }
    }

    #[test]
    fn clients_keep_their_order_and_are_told_what_they_are_ready_for() {
        let (one, _one_end) = UnixStream::pair().expect("a pair");
        let (other, _other_end) = UnixStream::pair().expect("a pair");
        let client = |stream, interest| Wait::until(Source::Clients, PollFd::new(stream, interest));
        let waits = [
            client(&one, PollFlags::IN),
            Wait::readable(Source::Stop, one.as_fd()),
            client(&other, PollFlags::OUT | PollFlags::IN),
        ];
        let woken = woken(waits);
        assert_eq!(woken.of(Source::Clients), [PollFlags::empty(), PollFlags::OUT]);
    }
}

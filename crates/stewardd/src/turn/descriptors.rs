//! What the loop waits for beside time: descriptors, each with whose it is and what for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
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
    /// systemd, which was asked for scopes.
    Scopes,
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

/// Descriptors that are waited for as long as the loop runs. The kernel is told once, and to each turn they are one.
#[derive(Debug)]
pub struct Lasting {
    set: OwnedFd,
    sources: Vec<Source>,
}

impl Lasting {
    /// Until any of these can be read.
    ///
    /// # Errors
    /// When the kernel cannot wait for one of them.
    pub fn readable<'fd>(waits: impl IntoIterator<Item = Wait<'fd>>) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut sources = Vec::new();
        for Wait { whose, descriptor } in waits {
            let place = epoll::EventData::new_u64(sources.len() as u64);
            epoll::add(&set, descriptor.as_fd(), place, epoll::EventFlags::IN)?;
            sources.push(whose);
        }
        Ok(Lasting { set, sources })
    }

    /// Whose can be read now.
    fn ready(&self) -> Result<Vec<Source>, Errno> {
        let mut events = Vec::with_capacity(self.sources.len());
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()))
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(events.iter().filter_map(|event| self.sources.get(event.data.u64() as usize).copied()).collect())
    }
}

/// All that is waited for in a turn, in order.
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

    /// Waits until one of them is ready, or a lasting one, or for that long at most.
    ///
    /// # Errors
    /// When the kernel cannot wait. A signal is no error.
    pub fn wait(self, lasting: &'fd Lasting, at_most: &Timespec) -> Result<Woken, Errno> {
        let Waits { sources, mut descriptors } = self;
        descriptors.push(PollFd::new(&lasting.set, PollFlags::IN));
        match poll(&mut descriptors, Some(at_most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_any_lasting = descriptors.pop().is_some_and(|set| !set.revents().is_empty());
        let ready = descriptors.iter().map(PollFd::revents);
        let mut woken = Woken(sources.into_iter().zip(ready).collect());
        if is_any_lasting {
            woken.0.extend(lasting.ready()?.into_iter().map(|source| (source, PollFlags::IN)));
        }
        Ok(woken)
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
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn woken<'fd>(all: impl IntoIterator<Item = Wait<'fd>>) -> Woken {
        let mut waits = Waits::with_room(1);
        waits.extend(all);
        let lasting = Lasting::readable([]).expect("a set");
        waits.wait(&lasting, &Timespec::default()).expect("it waits")
    }

    #[test]
    fn lasting_descriptors_are_told_to_the_kernel_once_and_wake_by_name_as_often_as_they_ring() {
        let (quiet, _quiet_end) = UnixStream::pair().expect("a pair");
        let (mut rung, mut end) = UnixStream::pair().expect("a pair");
        let (client, mut client_end) = UnixStream::pair().expect("a pair");
        let waits =
            [Wait::readable(Source::Worker, quiet.as_fd()), Wait::readable(Source::Stop, rung.as_fd())];
        let lasting = Lasting::readable(waits).expect("a set");
        let turn = || {
            let mut waits = Waits::with_room(1);
            waits.extend([Wait::until(Source::Clients, PollFd::new(&client, PollFlags::IN))]);
            waits.wait(&lasting, &Timespec::default()).expect("it waits")
        };
        assert!(!turn().is_by(Source::Stop));
        for _ in 0..2 {
            end.write_all(b"x").expect("written");
            let woken = [turn(), turn()];
            assert!(woken.iter().all(|woken| woken.is_by(Source::Stop)), "until it is read");
            assert!(woken.iter().all(|woken| !woken.is_by(Source::Worker)));
            assert_eq!(woken[0].of(Source::Clients), [PollFlags::empty()]);
            rung.read_exact(&mut [0]).expect("read");
            assert!(!turn().is_by(Source::Stop));
        }
        client_end.write_all(b"x").expect("written");
        assert_eq!(turn().of(Source::Clients), [PollFlags::IN]);
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

//! Between the loop and threads that wait for others: a bounded queue, and a bell beside it that wakes whichever end
//! sleeps.
//!
//! The loop waits for no such thread. It looks into the queue when the bell has rung; whoever finds the queue full is
//! told so at once.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use anyhow::Context;

/// One of two ends, each of which wakes the other.
#[derive(Debug)]
pub struct Bell(UnixStream);

impl Bell {
    /// Both ends.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub fn pair() -> anyhow::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair().context("cannot make a pair of sockets")?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((Bell(one), Bell(other)))
    }

    /// Wakes the other end.
    pub fn ring(&self) {
        // A full socket has woken it already, and an end that is gone needs no waking.
        let _ = (&self.0).write(b"x");
    }

    /// Whether the other end has rung since the last call.
    pub fn has_rung(&self) -> bool {
        drain(&self.0)
    }

    /// Tells the other end, which finds its descriptor hung up, that nobody is here any more.
    pub fn close(&self) {
        // Closed already is as good.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl AsFd for Bell {
    /// Readable when the other end has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Empties a socket that does not block; true when there was something in it.
pub fn drain(mut socket: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while matches!(socket.read(&mut bytes), Ok(count) if count > 0) {
        any = true;
    }
    any
}

/// The loop's end.
#[derive(Debug)]
pub struct Inbox<T> {
    queue: Receiver<T>,
    bell: Bell,
}

/// The threads' end.
#[derive(Debug)]
pub struct Outlet<T> {
    queue: SyncSender<T>,
    bell: Bell,
}

/// Both ends of a queue for at most `most` at a time.
///
/// # Errors
/// When there can be no more descriptors.
pub fn queue<T>(most: usize) -> anyhow::Result<(Inbox<T>, Outlet<T>)> {
    let (inside, outside) = Bell::pair()?;
    let (sender, receiver) = sync_channel(most);
    Ok((Inbox { queue: receiver, bell: inside }, Outlet { queue: sender, bell: outside }))
}

impl<T> Inbox<T> {
    /// What has come, oldest first.
    pub fn take(&self) -> Vec<T> {
        // First the bell: what comes after this rings it again.
        self.bell.has_rung();
        self.queue.try_iter().collect()
    }

    /// The bell, which the threads' end hears too.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl<T> Outlet<T> {
    /// Puts something in and wakes the loop.
    ///
    /// # Errors
    /// When the queue is full, or there is no loop any more; with what was to be put in.
    pub fn put(&self, what: T) -> Result<(), TrySendError<T>> {
        self.queue.try_send(what)?;
        self.bell.ring();
        Ok(())
    }

    /// The bell, which the loop's end hears too.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// What the end of the bell is ready for at this moment.
    fn ready(bell: &Bell) -> PollFlags {
        let mut waiting = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("it can be asked");
        waiting[0].revents()
    }

    #[test]
    fn what_is_put_in_wakes_the_loop_once_however_much_it_is() {
        let (inbox, outlet) = queue(2).expect("a queue");
        assert!(ready(inbox.bell()).is_empty());
        outlet.put(1).expect("there is room");
        outlet.put(2).expect("there is room");
        assert!(matches!(outlet.put(3), Err(TrySendError::Full(3))));
        assert_eq!(ready(inbox.bell()), PollFlags::IN);
        assert_eq!(inbox.take(), [1, 2]);
        assert!(ready(inbox.bell()).is_empty() && inbox.take().is_empty());
        outlet.put(4).expect("there is room again");
        assert_eq!(inbox.take(), [4]);
    }

    #[test]
    fn either_end_wakes_the_other_and_knows_when_it_is_gone() {
        let (inbox, outlet) = queue::<()>(1).expect("a queue");
        inbox.bell().ring();
        assert!(outlet.bell().has_rung() && !outlet.bell().has_rung());
        inbox.bell().close();
        assert!(ready(outlet.bell()).contains(PollFlags::HUP));
        drop(inbox);
        assert!(matches!(outlet.put(()), Err(TrySendError::Disconnected(()))));
    }
}

//! Asks processes one after another, in a thread of its own, what the kernel may take for ever to tell: whoever handles
//! the faults of a process (a file system in user space, userfaultfd) can keep its memory map locked, and everybody
//! waiting who reads it. Such a reading cannot be given up. So its thread is left behind until it comes back, and
//! meanwhile nobody else of that user is asked: one user costs one thread, and nothing that is known of others.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use crate::turn::clock::cpu_time_ns;

/// So many users' processes may keep a thread waiting; then nobody is asked any more.
const LEFT_MAX: usize = 8;

/// What reads it of a process; `None` where that cannot be known.
pub(super) type Read = dyn Fn(i32) -> Option<u64> + Send + Sync;

/// A thread that reads.
struct Reader {
    asks: Sender<i32>,
    /// What was read, and the CPU time that it took in nanoseconds.
    told: Receiver<(Option<u64>, u64)>,
}

impl Reader {
    fn start(read: Arc<Read>) -> io::Result<Self> {
        let (asks, asked) = channel();
        let (tells, told) = channel();
        let work = move || {
            for pid in asked {
                let begun_ns = cpu_time_ns();
                let value = read(pid);
                if tells.send((value, cpu_time_ns().saturating_sub(begun_ns))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("ask".into()).spawn(work)?;
        Ok(Reader { asks, told })
    }
}

/// Asks, and waits no longer than it should.
pub(super) struct Asking {
    read: Arc<Read>,
    patience: Duration,
    reader: Option<Reader>,
    /// Those that have not come back, with the user whose process that is.
    left: Vec<(u32, Reader)>,
    /// The CPU time that reading has taken, in nanoseconds.
    pub(super) cost_ns: u64,
}

impl Asking {
    /// Nobody is waited for longer than `patience`.
    pub(super) fn new(read: Arc<Read>, patience: Duration) -> Self {
        Asking { read, patience, reader: None, left: Vec::new(), cost_ns: 0 }
    }

    /// What is read of a process of this user; `None` where that cannot be known, or takes too long.
    pub(super) fn ask(&mut self, pid: i32, user: u32) -> Option<u64> {
        self.left.retain(|(_, reader)| reader.told.try_recv() == Err(TryRecvError::Empty));
        if self.left.len() >= LEFT_MAX || self.left.iter().any(|(of, _)| *of == user) {
            return None;
        }
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::start(Arc::clone(&self.read)).ok()?,
        };
        reader.asks.send(pid).ok()?;
        match reader.told.recv_timeout(self.patience) {
            Ok((value, cost_ns)) => {
                self.cost_ns = self.cost_ns.saturating_add(cost_ns);
                self.reader = Some(reader);
                value
            }
            Err(_) => {
                self.left.push((user, reader));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    #[test]
    fn a_process_that_keeps_its_reader_waiting_hides_those_of_its_user_and_nobody_elses() {
        // Those of odd numbers are not read before the gate is open.
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let own = Arc::clone(&gate);
        let read = move |pid: i32| {
            let (is_open, changed) = &*own;
            if pid % 2 == 1 {
                drop(changed.wait_while(is_open.lock().expect("no panic"), |is_open| !*is_open));
            }
            u64::try_from(pid).ok()
        };
        let read: Arc<Read> = Arc::new(read);
        let mut asking = Asking::new(Arc::clone(&read), Duration::from_millis(1));
        assert_eq!(asking.ask(1, 1001), None);
        // Who answers is waited for: how fast the machine is says nothing here.
        asking.patience = Duration::from_secs(3600);
        assert_eq!(asking.ask(2, 1001), None, "of the same user");
        assert_eq!(asking.ask(4, 1002), Some(4));
        asking.patience = Duration::from_millis(1);
        (1..20).for_each(|user| assert_eq!(asking.ask(3, 2000 + user), None));
        assert_eq!(asking.left.len(), LEFT_MAX);
        assert_eq!(asking.ask(4, 1002), None, "there are enough that wait");
        *gate.0.lock().expect("no panic") = true;
        gate.1.notify_all();
        asking.patience = Duration::from_secs(3600);
        while !asking.left.is_empty() {
            asking.ask(4, 1002);
        }
        assert_eq!((asking.ask(1, 1001), asking.ask(6, 1003)), (Some(1), Some(6)));
    }
}

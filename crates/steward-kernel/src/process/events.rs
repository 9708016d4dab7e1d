//! The kernel's own account of processes as they fork, execute programs and end (linux/cn_proc.h).
//!
//! A program is seen within about a millisecond of its start, and a machine at rest costs nothing, neither of which
//! holds for listing all processes again and again. It needs CAP_NET_ADMIN, the initial pid namespace and a kernel
//! built with CONFIG_PROC_EVENTS; where one is missing, [`ProcessEvents::open`] says so.
//!
//! An event says what was true when it was sent. By the time it is read the process may have gone on or ended, so
//! whoever acts on it looks at the process first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

/// `CN_IDX_PROC` and `CN_VAL_PROC` of linux/connector.h.
const PROCESS_CHANNEL: u32 = 1;
/// `PROC_CN_MCAST_LISTEN` of linux/cn_proc.h.
const LISTEN: u32 = 1;
/// `NLMSG_DONE` of linux/netlink.h.
const MESSAGE_DONE: u16 = 3;
/// Bytes before the event: `struct nlmsghdr` and `struct cn_msg`.
const HEADER_BYTES: usize = 16 + 20;
/// Bytes of an event before what depends on its kind: what, CPU, time.
const EVENT_HEADER_BYTES: usize = 16;
/// How much the kernel may keep for us: enough for some 10,000 forks.
const BUFFER_BYTES: usize = 4 << 20;

/// Something that happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// `parent` forked `process`.
    Forked {
        /// Process id of the parent.
        parent: i32,
        /// Process id of the child.
        process: i32,
    },
    /// A process has one more thread.
    NewThread {
        /// Process id.
        process: i32,
        /// Thread id of the new one.
        tid: i32,
    },
    /// A process executed a program.
    Executed {
        /// Process id.
        process: i32,
    },
    /// A thread ended; the whole process when both ids are equal and no other thread is left.
    Ended {
        /// Process id.
        process: i32,
        /// Thread id.
        tid: i32,
    },
    /// Events were lost because nobody read them in time: all processes must be looked at again.
    Lost,
}

/// A subscription to the events of all processes.
#[derive(Debug)]
pub struct ProcessEvents {
    socket: OwnedFd,
}

impl ProcessEvents {
    /// Subscribes.
    ///
    /// # Errors
    /// What the kernel said: `EPERM` without CAP_NET_ADMIN; `EPROTONOSUPPORT` or `EOPNOTSUPP` where the kernel has
    /// no such events, or this is not the initial pid namespace.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(CONNECTOR))?;
        bind(&socket, &SocketAddrNetlink::new(0, PROCESS_CHANNEL))?;
        // Without the right to a larger buffer the default one must do.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
        send(&socket, &subscription(), SendFlags::empty())?;
        let mut events = ProcessEvents { socket };
        events.await_answer()?;
        Ok(events)
    }

    /// The kernel answers before `send` returns, so the answer is among what can be read at once.
    fn await_answer(&mut self) -> io::Result<()> {
        let mut message = [0; 256];
        loop {
            let length = match recv(&self.socket, &mut message, RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Err(Errno::OPNOTSUPP.into()),
                Err(errno) => return Err(errno.into()),
            };
            match message.get(HEADER_BYTES..length).and_then(answer) {
                None => {}
                Some(0) => return Ok(()),
                Some(errno) => return Err(io::Error::from_raw_os_error(errno.unsigned_abs() as i32)),
            }
        }
    }

    /// The next event that Steward has a use for; `None` when there is none now.
    pub fn next_event(&mut self) -> Option<ProcessEvent> {
        let mut message = [0; 256];
        loop {
            match recv(&self.socket, &mut message, RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(event) = message.get(HEADER_BYTES..length).and_then(parse) {
                        return Some(event);
                    }
                }
                Err(Errno::NOBUFS) => return Some(ProcessEvent::Lost),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for ProcessEvents {
    /// Readable when an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `struct nlmsghdr`, `struct cn_msg` and the operation.
fn subscription() -> Vec<u8> {
    let operation = LISTEN.to_ne_bytes();
    let mut message = Vec::new();
    let total = (HEADER_BYTES + operation.len()) as u32;
    message.extend(total.to_ne_bytes());
    message.extend(MESSAGE_DONE.to_ne_bytes());
    // Flags, sequence and port.
    message.extend([0; 2 + 4 + 4]);
    message.extend(PROCESS_CHANNEL.to_ne_bytes());
    message.extend(PROCESS_CHANNEL.to_ne_bytes());
    // Sequence and acknowledgement.
    message.extend([0; 4 + 4]);
    message.extend((operation.len() as u16).to_ne_bytes());
    message.extend([0; 2]);
    message.extend(operation);
    message
}

/// The word at a place in an event.
fn word(event: &[u8], offset: usize) -> Option<i32> {
    let bytes = event.get(offset..offset + 4)?;
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}

/// The error number of an answer to a subscription (`PROC_EVENT_NONE`).
fn answer(event: &[u8]) -> Option<i32> {
    if word(event, 0)? == 0 { word(event, EVENT_HEADER_BYTES) } else { None }
}

fn parse(event: &[u8]) -> Option<ProcessEvent> {
    const FORK: u32 = 0x1;
    const EXEC: u32 = 0x2;
    const EXIT: u32 = 0x8000_0000;
    let field = |index: usize| word(event, EVENT_HEADER_BYTES + 4 * index);
    match word(event, 0)? as u32 {
        FORK => {
            let (parent, child_tid, child) = (field(1)?, field(2)?, field(3)?);
            Some(if child_tid == child {
                ProcessEvent::Forked { parent, process: child }
            } else {
                ProcessEvent::NewThread { process: child, tid: child_tid }
            })
        }
        EXEC => Some(ProcessEvent::Executed { process: field(1)? }),
        EXIT => Some(ProcessEvent::Ended { process: field(1)?, tid: field(0)? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn event(what: u32, words: &[i32]) -> Vec<u8> {
        let mut bytes = what.to_ne_bytes().to_vec();
        bytes.extend([0; 12]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn each_kind_of_event_is_read_from_its_bytes() {
        let forked = ProcessEvent::Forked { parent: 10, process: 20 };
        assert_eq!(parse(&event(1, &[11, 10, 20, 20])), Some(forked));
        assert_eq!(
            parse(&event(1, &[10, 10, 21, 10])),
            Some(ProcessEvent::NewThread { process: 10, tid: 21 })
        );
        assert_eq!(parse(&event(2, &[20, 20])), Some(ProcessEvent::Executed { process: 20 }));
        let ended = ProcessEvent::Ended { process: 20, tid: 21 };
        assert_eq!(parse(&event(0x8000_0000, &[21, 20, 0, 17])), Some(ended));
        assert_eq!(parse(&event(0x200, &[20, 20])), None);
        assert_eq!(parse(&event(1, &[10, 10])), None);
    }

    #[test]
    fn an_answer_is_told_from_an_event() {
        assert_eq!(answer(&event(0, &[0])), Some(0));
        assert_eq!(answer(&event(0, &[1])), Some(1));
        assert_eq!(answer(&event(2, &[1, 1])), None);
    }

    #[test]
    fn the_life_of_a_child_is_seen_from_fork_to_end() {
        let mut events = match ProcessEvents::open() {
            Ok(events) => events,
            Err(error) => return println!("skipped: no process events here: {error}"),
        };
        let mut child = Command::new("true").spawn().expect("a child");
        let process = i32::try_from(child.id()).expect("a pid");
        child.wait().expect("it ends");
        let mut seen = Vec::new();
        while !seen.iter().any(|event| matches!(event, ProcessEvent::Ended { .. })) {
            poll(&mut [PollFd::new(&events, PollFlags::IN)], None).expect("it becomes readable");
            while let Some(event) = events.next_event() {
                match event {
                    ProcessEvent::Forked { process: id, .. }
                    | ProcessEvent::Executed { process: id }
                    | ProcessEvent::Ended { process: id, .. }
                        if id == process =>
                    {
                        seen.push(event);
                    }
                    _ => {}
                }
            }
        }
        let parent = i32::try_from(std::process::id()).expect("a pid");
        let life = [
            ProcessEvent::Forked { parent, process },
            ProcessEvent::Executed { process },
            ProcessEvent::Ended { process, tid: process },
        ];
        assert_eq!(seen, life);
    }
}

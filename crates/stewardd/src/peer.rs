//! Who is at the other end of a connection, from the kernel and never from what the client says.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The process that connected, as it was at that moment.
#[derive(Debug)]
pub struct Caller {
    /// Its effective user.
    pub uid: u32,
    /// Its process id. The process may have ended since, and the id may be another's: see [`Caller::is_alive`].
    pub pid: i32,
    /// Holds on to the process itself. `None` where neither the kernel's SO_PEERPIDFD (6.5) nor pidfd_open has it.
    pub process: Option<OwnedFd>,
}

impl Caller {
    /// Whether the process that connected still runs, so that its pid still means it. `false` where that cannot
    /// be known.
    pub fn is_alive(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let mut waiting = [PollFd::new(process, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut waiting, Some(&at_once)), Ok(0))
    }
}

/// How the daemon learns who connected; tests put in somebody else.
pub type Identify = Box<dyn Fn(&UnixStream) -> io::Result<Caller> + Send>;

/// Asks the kernel (SO_PEERCRED, SO_PEERPIDFD).
///
/// # Errors
/// What the kernel says, for example when the client has gone already.
pub fn from_kernel(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    let process = peer_pidfd(stream)
        .or_else(|_| rustix::process::pidfd_open(credentials.pid, rustix::process::PidfdFlags::empty()))
        .ok();
    Ok(Caller { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_nonzero().get(), process })
}

/// `SO_PEERPIDFD` (include/uapi/asm-generic/socket.h), since Linux 6.5.
fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one int, for which there is room, and says how much it wrote.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if result != 0 || descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_is_at_the_other_end() {
        let (one, _other) = UnixStream::pair().expect("a pair of sockets");
        let caller = from_kernel(&one).expect("credentials");
        assert_eq!(caller.pid, std::process::id() as i32);
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        assert!(caller.is_alive());
    }
}

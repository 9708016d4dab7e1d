//! Who is at the other end of a connection, from the kernel and never from what the client says.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The process that connected, as it was at that moment.
#[derive(Debug)]
pub struct Caller {
    /// Its effective user.
    pub uid: u32,
    /// Its process id, 0 when it is in a pid namespace that we do not see. The process may have ended since, and the id may be another's: see [`Caller::is_alive`].
    pub pid: i32,
    /// Holds on to the process itself. `None` where neither the kernel's SO_PEERPIDFD (6.5) nor pidfd_open has it.
    pub process: Option<OwnedFd>,
}

impl Caller {
    /// Whether the process that connected still runs, so that its pid still means it. `false` where that cannot
    /// be known.
    pub fn is_alive(&self) -> bool {
        let Some(process) = self.process.as_ref().filter(|_| self.pid > 0) else { return false };
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
    // The pid is read as a plain number: it is 0 for a process outside of our pid namespace.
    let credentials: libc::ucred = socket_option(stream, libc::SO_PEERCRED)?;
    let process = peer_pidfd(stream).or_else(|_| open_pidfd(credentials.pid)).ok();
    Ok(Caller { uid: credentials.uid, pid: credentials.pid, process })
}

fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    let known = (pid > 0).then(|| rustix::process::Pid::from_raw(pid)).flatten();
    let known = known.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::pidfd_open(known, rustix::process::PidfdFlags::empty())?)
}

/// `SO_PEERPIDFD` (include/uapi/asm-generic/socket.h), since Linux 6.5.
fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let descriptor: libc::c_int = socket_option(stream, SO_PEERPIDFD)?;
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Plain data that the kernel fills: any bytes are a value of it.
trait Plain: Copy {}
impl Plain for libc::ucred {}
impl Plain for libc::c_int {}

fn socket_option<T: Plain>(stream: &UnixStream, option: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, for which there is room.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then written by the kernel; `Plain` says that any bytes are a value.
    Ok(unsafe { value.assume_init() })
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

//! Who asks, from the kernel and never from what the client says.
//!
//! The user and groups are those of the process that connected, at that moment. The process is held by a pidfd, so that
//! its pid cannot come to mean another one unseen.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::authority::Identity;
use steward_kernel::Roots;
use steward_kernel::process::{self, user_namespaces};

use crate::server::turns::Payer;

/// `SO_PEERPIDFD` (include/uapi/asm-generic/socket.h), since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;
/// How many groups a process can be in (`NGROUPS_MAX` of include/uapi/linux/limits.h).
const GROUPS_MAX: usize = 65_536;

/// The process that asks, as it was when it connected.
#[derive(Debug)]
pub struct Caller {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group and its supplementary ones.
    pub gids: Vec<u32>,
    /// Its process id, 0 when it is in a pid namespace that we do not see. The process may have ended since, and the id
    /// may be another's: see [`Caller::is_alive`].
    pub pid: i32,
    /// Holds on to the process itself. `None` where the kernel could not say for certain which one it is.
    pub process: Option<OwnedFd>,
    /// The user whose part of connections, time and memory it takes: its own, but for a user that exists only in a user
    /// namespace that an ordinary user has made, whoever made it. Says nothing about rights.
    pub payer: Payer,
    /// Tells this caller from every other since the daemon started.
    pub id: u64,
    /// Whether it can be left waiting for an answer that a person has to give.
    pub can_wait: bool,
}

impl Caller {
    /// A caller whose pid was given to us with its user and main group by the kernel while the process waits for our
    /// answer (a request of the control files): takes hold of it and reads its other groups.
    pub fn of_process(uid: u32, gid: u32, pid: i32) -> Self {
        let process = open_pidfd(pid).ok();
        let mut gids = vec![gid];
        if process.is_some() {
            gids.extend(process::groups(pid, &Roots::default()).unwrap_or_default());
        }
        let payer = payer(uid, pid, process.as_ref());
        Caller { uid, gids, pid, process, payer, id: next_id(), can_wait: false }
    }

    /// The user and groups, for the rules. Whether the user sits at the machine is for others to say.
    pub fn identity(&self) -> Identity {
        Identity { gids: self.gids.clone(), ..Identity::of_user(self.uid) }
    }

    /// Whether the process that connected still runs, so that its pid still means it. `false` where that cannot
    /// be known.
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().filter(|_| self.pid > 0).is_some_and(runs)
    }
}

/// Whether a process that is held has not ended.
fn runs(process: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut waiting, Some(&at_once)), Ok(0))
}

/// Who pays for those of whom it cannot be known any more because they have ended.
const VANISHED: Payer = Payer::MAX;

/// See [`Caller::payer`]. An ordinary user has thousands of subordinate users, each of which would else have a part of
/// its own.
fn payer(uid: u32, pid: i32, process: Option<&OwnedFd>) -> Payer {
    if uid == 0 {
        return uid;
    }
    let payer = user_namespaces::payer(uid, pid, &Roots::default());
    // What was read is about this process only if it still runs.
    if process.is_some_and(runs) { payer } else { VANISHED }
}

fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// How the daemon learns who connected; tests put in somebody else.
pub type Identify = Box<dyn Fn(&UnixStream) -> io::Result<Caller> + Send>;

/// How the daemon learns of which user a client is, and no more; tests put in somebody else.
pub type UserOf = Box<dyn Fn(&UnixStream) -> io::Result<u32> + Send>;

/// The user alone: one question, where [`from_kernel`] takes a dozen.
///
/// # Errors
/// What the kernel says.
pub fn user_of(stream: &UnixStream) -> io::Result<u32> {
    socket_option::<libc::ucred>(stream, libc::SO_PEERCRED).map(|credentials| credentials.uid)
}

/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS, SO_PEERPIDFD).
///
/// # Errors
/// What the kernel says, for example when the client has gone already.
pub fn from_kernel(stream: &UnixStream) -> io::Result<Caller> {
    // The pid is read as a plain number: it is 0 for a process outside of our pid namespace.
    let credentials: libc::ucred = socket_option(stream, libc::SO_PEERCRED)?;
    let mut gids = vec![credentials.gid];
    gids.extend(peer_groups(stream)?);
    let process = peer_pidfd(stream).or_else(|_| open_checked(&credentials)).ok();
    let (uid, pid) = (credentials.uid, credentials.pid);
    let payer = payer(uid, pid, process.as_ref());
    Ok(Caller { uid, gids, pid, process, payer, id: next_id(), can_wait: true })
}

fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    let known = (pid > 0).then(|| rustix::process::Pid::from_raw(pid)).flatten();
    let known = known.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::pidfd_open(known, rustix::process::PidfdFlags::empty())?)
}

/// Before Linux 6.5: the process that has the pid now. If the one that connected has ended already and its pid was
/// given out again, this is another one, so it counts only if it is of the same user: nobody is reached who is not the
/// caller.
fn open_checked(credentials: &libc::ucred) -> io::Result<OwnedFd> {
    let process = open_pidfd(credentials.pid)?;
    let user = process::user(credentials.pid, &Roots::default()).ok().flatten();
    if user == Some(credentials.uid) { Ok(process) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

fn peer_pidfd(stream: &UnixStream) -> io::Result<OwnedFd> {
    let descriptor: libc::c_int = socket_option(stream, SO_PEERPIDFD)?;
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The supplementary groups (`SO_PEERGROUPS`, Linux 4.13).
fn peer_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    // Most are in a few; whoever is in more is asked about once again, with room for all that there can be.
    for room in [64, GROUPS_MAX] {
        let mut groups: Vec<libc::gid_t> = vec![0; room];
        let mut length = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, for which there is room, and any bytes are numbers.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            groups.truncate(length as usize / size_of::<libc::gid_t>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) {
            return Err(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::ERANGE))
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

    fn own_groups() -> Vec<u32> {
        let mut groups: Vec<u32> =
            rustix::process::getgroups().expect("groups").iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        groups
    }

    #[test]
    fn the_kernel_says_who_is_at_the_other_end() {
        let (one, _other) = UnixStream::pair().expect("a pair of sockets");
        let caller = from_kernel(&one).expect("credentials");
        assert_eq!(caller.pid, std::process::id() as i32);
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        assert_eq!(caller.gids[0], rustix::process::getegid().as_raw());
        let mut others = caller.gids[1..].to_vec();
        others.sort_unstable();
        assert_eq!(others, own_groups());
        assert!(caller.is_alive());
        assert_ne!(from_kernel(&one).expect("credentials").id, caller.id);
    }

    #[test]
    fn a_process_that_waits_for_an_answer_is_known_with_all_its_groups() {
        let own = std::process::id() as i32;
        let caller = Caller::of_process(1, 2, own);
        let mut others = caller.gids[1..].to_vec();
        others.sort_unstable();
        assert_eq!((caller.uid, caller.gids[0], others), (1, 2, own_groups()));
        assert!(caller.is_alive());
        assert!(!Caller::of_process(1, 2, 0).is_alive());
    }

    #[test]
    fn without_a_pidfd_from_the_socket_only_a_process_of_the_same_user_counts() {
        let own = std::process::id() as i32;
        let uid = rustix::process::geteuid().as_raw();
        let credentials = |uid| libc::ucred { pid: own, uid, gid: 0 };
        assert!(open_checked(&credentials(uid)).is_ok());
        assert!(open_checked(&credentials(uid + 1)).is_err());
    }
}

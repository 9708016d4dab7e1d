//! The socket's place in the file system, and the lock beside it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// A socket at `path` to which nobody can connect yet.
pub(super) fn bind_only(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    refuse_descriptors(&socket);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// `SO_PASSRIGHTS` (include/uapi/asm-generic/socket.h), since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors that clients want to pass, on every connection made here. Nobody takes them, so
/// that the last one who lets go of such a file would be the daemon, and there are files for which that waits as long
/// as the client likes: a TCP socket with SO_LINGER and bytes that nobody reads. Older kernels cannot refuse.
fn refuse_descriptors(socket: &impl AsFd) {
    let none: libc::c_int = 0;
    let length = size_of_val(&none) as libc::socklen_t;
    // SAFETY: the kernel reads one number, which is there.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const none).cast(),
            length,
        )
    };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "this kernel lets clients pass descriptors");
    }
}

pub(super) fn another(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("another stewardd listens at {}: stop it first (systemctl stop stewardd)", path.display())
}

/// Held for as long as the daemon lives, because nobody answers at a socket while its daemon starts.
pub(super) struct Lock {
    pub(super) path: PathBuf,
    _file: File,
}

impl Lock {
    /// Beside the socket at this path.
    pub(super) fn take(socket: &Path) -> anyhow::Result<Self> {
        let path = socket.with_extension("lock");
        let failed = || format!("cannot lock {}", path.display());
        loop {
            // Nobody else may open it: whoever can could keep the daemon from starting.
            let file = File::options().create(true).write(true).truncate(false).mode(0o600).open(&path);
            let file = file.with_context(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(another(socket)),
                Err(errno) => return Err(errno).with_context(failed),
            }
            // Unless one that has just ended has removed it meanwhile.
            let is_there = std::fs::metadata(&path).is_ok_and(|there| {
                file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
            });
            if is_there {
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

//! Connecting to a daemon that may be starting.
//!
//! The daemon has its socket before it listens: first it loads its scheduler and gives running programs what is theirs,
//! which takes seconds on a slow machine. Until then the kernel refuses a connection just as it does when nobody has
//! the socket. What tells the two apart is a connection of another type: there is none to a socket that streams, which
//! the kernel says only while a process has it. So everybody who may connect can tell, and nobody can pretend who may
//! not make sockets in its directory.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::Error;

/// How long connecting waits for a daemon that is starting.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long connecting waits for a daemon that listens and takes nobody in.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// From one attempt to the next. A test of that kind costs the daemon nothing.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A connection to the daemon at `path`. Waits at most `patience` for one that is starting.
pub(crate) fn to(path: &Path, patience: Duration) -> Result<UnixStream, Error> {
    let failed = |source: std::io::Error| Error::Connect { path: path.to_owned(), source };
    let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
    let begun = Instant::now();
    loop {
        let socket = new_socket(SocketType::STREAM).map_err(|errno| failed(errno.into()))?;
        // For connecting, this is the one that counts.
        set_socket_timeout(&socket, Timeout::Send, Some(ACCEPT_TIMEOUT))
            .map_err(|errno| failed(errno.into()))?;
        match connect(&socket, &address) {
            Ok(()) => {
                set_socket_timeout(&socket, Timeout::Send, None).map_err(|errno| failed(errno.into()))?;
                return Ok(socket.into());
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(Error::Busy { path: path.to_owned() }),
            Err(Errno::CONNREFUSED) if is_had_by_a_process(&address) => {
                let waited = begun.elapsed();
                if waited >= patience {
                    return Err(Error::Starting { path: path.to_owned(), waited });
                }
                std::thread::sleep(LOOK_EVERY.min(patience - waited));
            }
            Err(Errno::CONNREFUSED) => return Err(Error::Ended { path: path.to_owned() }),
            Err(errno) => return Err(failed(errno.into())),
        }
    }
}

/// A connection to the daemon at `path` if it takes one at once. Never waits.
pub(crate) fn at_once(path: &Path) -> Result<UnixStream, Error> {
    let failed = |source: std::io::Error| Error::Connect { path: path.to_owned(), source };
    let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
    let socket = new_socket(SocketType::STREAM).map_err(|errno| failed(errno.into()))?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(true).map_err(failed)?;
    match connect(&stream, &address) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Err(Error::Busy { path: path.to_owned() }),
        Err(Errno::CONNREFUSED) if is_had_by_a_process(&address) => {
            return Err(Error::Starting { path: path.to_owned(), waited: Duration::ZERO });
        }
        Err(Errno::CONNREFUSED) => return Err(Error::Ended { path: path.to_owned() }),
        Err(errno) => return Err(failed(errno.into())),
    }
    stream.set_nonblocking(false).map_err(failed)?;
    Ok(stream)
}

/// Whether a process has the socket that streams there, listening or not.
fn is_had_by_a_process(address: &SocketAddrUnix) -> bool {
    let probe = new_socket(SocketType::DGRAM).and_then(|socket| connect(&socket, address));
    probe == Err(Errno::PROTOTYPE)
}

fn new_socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::net::{bind, listen};

    use super::*;

    /// A directory that goes when it is dropped.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("steward-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a temporary directory");
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn bound(path: &Path) -> OwnedFd {
        let socket = new_socket(SocketType::STREAM).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("short enough")).expect("it is free");
        socket
    }

    #[test]
    fn a_daemon_that_is_starting_is_waited_for() {
        let directory = Directory::new("waited-for");
        let path = directory.0.join("socket");
        let socket = bound(&path);
        let waits = std::thread::spawn({
            let path = path.clone();
            move || to(&path, Duration::MAX)
        });
        // Whether it has asked by now or asks later, it gets in.
        listen(&socket, 8).expect("it listens");
        waits.join().expect("no panic").expect("connected");
    }

    #[test]
    fn a_daemon_that_ends_while_it_is_waited_for_ends_the_waiting() {
        let directory = Directory::new("ends");
        let path = directory.0.join("socket");
        let socket = bound(&path);
        let waits = std::thread::spawn({
            let path = path.clone();
            move || to(&path, Duration::MAX)
        });
        drop(socket);
        assert!(matches!(waits.join().expect("no panic"), Err(Error::Ended { .. })));
    }

    #[test]
    fn patience_has_an_end_and_who_is_not_there_is_not_waited_for() {
        let directory = Directory::new("patience");
        let path = directory.0.join("socket");
        let absent = to(&path, Duration::MAX).expect_err("nothing is there");
        assert!(matches!(absent, Error::Connect { .. }), "{absent}");
        let socket = bound(&path);
        let starting = to(&path, Duration::ZERO).expect_err("nobody listens");
        assert!(matches!(starting, Error::Starting { .. }), "{starting}");
        drop(socket);
        let ended = to(&path, Duration::MAX).expect_err("nobody has it");
        assert!(matches!(ended, Error::Ended { .. }), "{ended}");
        std::fs::write(directory.0.join("file"), "").expect("written");
        let file = to(&directory.0.join("file"), Duration::MAX).expect_err("no socket");
        assert!(matches!(file, Error::Ended { .. }), "{file}");
    }
}

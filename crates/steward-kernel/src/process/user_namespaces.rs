//! Who has made the user namespace that a process is in (user_namespaces(7)).
//!
//! A user who may have subordinate users (subuid(5)) can be any of them, in user namespaces of their own making and
//! nowhere else. The kernel says who made a namespace, so it says on whose behalf such a process runs.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::error::KernelError;
use crate::roots::Roots;

/// Ioctls of linux/nsfs.h: the namespace above, and the user who made it.
const NS_GET_PARENT: libc::Ioctl = 0xb702;
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
/// How deep user namespaces can be nested (user_namespaces(7)).
const DEPTH_MAX: usize = 33;

/// The user who made the outermost user namespace, below the caller's, that the process is in: `None` when it is in the
/// caller's own. The answer is about the process that has the pid now.
///
/// # Errors
/// [`KernelError::Read`] with the path below `/proc`; see [`KernelError::is_absent`].
pub fn made_by(pid: i32, roots: &Roots) -> Result<Option<u32>, KernelError> {
    let path = roots.proc.join(format!("{pid}/ns/user"));
    let failed = |source| KernelError::Read { path: path.clone(), source };
    let own = own_identity(roots).map_err(failed)?;
    if identity(&path).map_err(failed)? == own {
        return Ok(None);
    }
    let mut inner: OwnedFd = File::open(&path).map_err(failed)?.into();
    for _ in 0..DEPTH_MAX {
        let outer = parent(&inner).map_err(failed)?;
        if File::from(outer.try_clone().map_err(failed)?).metadata().map_err(failed)?.ino() == own.1 {
            return owner(&inner).map(Some).map_err(failed);
        }
        inner = outer;
    }
    Err(failed(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// The user on whose behalf a process of `uid` runs, where what all users share is divided among them: `uid`, but for a
/// user that there is only in a user namespace that an ordinary user has made, whoever made it. It says nothing about
/// rights.
pub fn payer(uid: u32, pid: i32, roots: &Roots) -> u32 {
    if uid == 0 {
        return uid;
    }
    match made_by(pid, roots) {
        Ok(Some(maker)) if maker != 0 => maker,
        // In a container that root has made, those in it are its users. Where it is not known, they count as
        // themselves.
        _ => uid,
    }
}

/// The caller's own. It is looked up once: no thread of ours goes into another one, and this is asked for each client.
fn own_identity(roots: &Roots) -> io::Result<(u64, u64)> {
    static OWN: OnceLock<(u64, u64)> = OnceLock::new();
    if let Some(own) = OWN.get().filter(|_| roots.proc == Roots::default().proc) {
        return Ok(*own);
    }
    let own = identity(&roots.proc.join("self/ns/user"))?;
    Ok(if roots.proc == Roots::default().proc { *OWN.get_or_init(|| own) } else { own })
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let facts = std::fs::metadata(path)?;
    Ok((facts.dev(), facts.ino()))
}

fn parent(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: this ioctl takes no argument and gives a new descriptor.
    let descriptor = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn owner(namespace: &OwnedFd) -> io::Result<u32> {
    let mut uid: libc::uid_t = 0;
    // SAFETY: the kernel writes one user id, for which there is room.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut uid) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(uid) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    /// Who made the user namespace of a process that `unshare` starts; `None` where users may make none.
    fn made_by_us(options: &[&str]) -> Option<Option<u32>> {
        let child = Command::new("unshare")
            .args(options)
            .args(["sh", "-c", "echo x && read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.ok()?;
        let mut byte = [0];
        let has_begun = child.stdout.as_mut().is_some_and(|output| output.read_exact(&mut byte).is_ok());
        let pid = i32::try_from(child.id()).expect("a pid");
        let found = has_begun.then(|| made_by(pid, &Roots::default()).expect("it runs"));
        let _ = child.stdin.take().expect("a pipe").write_all(b"\n");
        child.wait().expect("it ends");
        found
    }

    #[test]
    fn a_namespace_of_a_namespace_is_of_whoever_made_the_outermost() {
        let own = rustix::process::geteuid().as_raw();
        for options in [&["--user"][..], &["--user", "--map-root-user", "unshare", "--user"]] {
            if let Some(made_by) = made_by_us(options) {
                assert_eq!(made_by, Some(own), "{options:?}");
            }
        }
    }

    #[test]
    fn whoever_is_in_no_namespace_of_their_own_is_told_from_one_who_has_gone() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(made_by(own, &Roots::default()).expect("it runs"), None);
        assert!(made_by(i32::MAX, &Roots::default()).expect_err("no process").is_absent());
    }
}

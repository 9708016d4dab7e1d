//! Mounting and unmounting, so that a dead daemon's mount is in nobody's way for longer than until the next one
//! starts.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount as kernel_mount, unmount};
use rustix::process::{getegid, geteuid};
use steward_kernel::mounts::unmount_dead;

use crate::nice::start_first;
use crate::requests::Backend;
use crate::service::Service;
use crate::tree::{DOMAINS, FORECASTS, OWN};

/// A mounted tree. Unmounted when dropped, even while somebody is in it.
pub struct Mounted {
    path: PathBuf,
    links: Vec<PathBuf>,
    /// Its thread ends by itself once the kernel has let go of the mount.
    _session: BackgroundSession,
}

/// Why the tree is not there.
#[derive(Debug)]
pub struct MountError {
    path: PathBuf,
    tried: &'static str,
    source: io::Error,
}

impl std::fmt::Display for MountError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let advice = match self.source.kind() {
            io::ErrorKind::NotFound => "; is the kernel's FUSE there (modprobe fuse)?",
            io::ErrorKind::PermissionDenied => "; is this root?",
            io::ErrorKind::ResourceBusy => "; something else is mounted there: unmount it",
            _ => "",
        };
        write!(
            formatter,
            "no control files at {}: {}: {}{advice}",
            self.path.display(),
            self.tried,
            self.source
        )
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Mounts the tree at `path` and makes the links `self` and `domains` beside it, so that `path`'s directory reads like
/// the tree. What a dead daemon left there is cleared away first.
///
/// # Errors
/// [`MountError`]: no FUSE, no rights, or something else is at `path`.
pub fn mount(path: &Path, backend: impl Backend) -> Result<Mounted, MountError> {
    let fail = |tried| move |source| MountError { path: path.to_owned(), tried, source };
    clear(path).map_err(fail("clearing what a dead stewardd left"))?;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(fail("making the directory"))?;
    let device = attach(path).map_err(fail("mounting"))?;
    // Everybody: who may do what is decided for each request.
    let session = Session::from_fd(Service::new(backend), device, SessionACL::All, Config::default());
    let session = session.and_then(|session| start_first(|| session.spawn()));
    let session = session.map_err(|source| {
        // Nobody would answer there.
        let _ = unmount(path, UnmountFlags::DETACH);
        fail("starting to answer")(source)
    })?;
    let mut mounted = Mounted { path: path.to_owned(), links: Vec::new(), _session: session };
    mounted.link().map_err(fail("linking to it"))?;
    Ok(mounted)
}

/// Mounts an empty FUSE file system and gives the device through which the kernel asks what is in it.
fn attach(path: &Path) -> io::Result<OwnedFd> {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse")?;
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let options =
        format!("fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other", device.as_raw_fd());
    let options = CString::new(options).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    kernel_mount("steward", path, "fuse.steward", flags, Some(options.as_c_str()))?;
    Ok(device.into())
}

impl Mounted {
    /// Links beside the mount, where there is a directory for them.
    fn link(&mut self) -> io::Result<()> {
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(());
        };
        for file in [OWN, DOMAINS, FORECASTS, "last_error"] {
            let link = directory.join(file);
            let target = Path::new(name).join(file);
            match fs::read_link(&link) {
                Ok(old) if old == target => {}
                // Of a daemon with another mount point.
                Ok(_) => fs::remove_file(&link).and_then(|()| symlink(&target, &link))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => symlink(&target, &link)?,
                // Something that is not ours stays.
                Err(_) => continue,
            }
            self.links.push(link);
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for link in &self.links {
            // Gone already, which is what is wanted.
            let _ = fs::remove_file(link);
        }
        // Unmounted already by somebody else, or the machine is going down: nothing better can be done.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

fn is_other_device(directory: &Path, found: &fs::Metadata) -> bool {
    fs::metadata(directory).is_ok_and(|directory| directory.dev() != found.dev())
}

/// Takes away what a daemon that has died left mounted, and leaves alone what is alive.
fn clear(path: &Path) -> io::Result<()> {
    unmount_dead(path)?;
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    // On another device than its own directory: somebody is mounted there.
    let taken = path.parent().is_some_and(|parent| is_other_device(parent, &found));
    if taken { Err(Errno::BUSY.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;

//! One cgroup's directory, held open: its files are read and written in this cgroup and in no other, even if it is
//! removed meanwhile and another is made under its name.
//!
//! The path is walked by the kernel below the root with neither symbolic links nor `..` (openat2), as in
//! [`super::tree`].

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use steward_core::disk::{Limit, cost};

use super::place;
use crate::error::KernelError;
use crate::roots::{Roots, read_text};

/// Stands between the name of a file and the device whose line in it is meant.
const OF_DEVICE: char = '@';

/// The name under which the line of a device is read and written as if it were a file: of files that have one for each
/// device that is limited (`io.max`) or for which something was set (`io.cost.qos`, `io.cost.model`). A device without
/// a line has no limit, and nothing set.
pub(crate) fn line_of(file: &str, device_number: &str) -> String {
    format!("{file}{OF_DEVICE}{device_number}")
}

fn file_and_device(file: &str) -> (&str, Option<&str>) {
    file.split_once(OF_DEVICE).map_or((file, None), |(name, device)| (name, Some(device)))
}

/// What stands for a device that the file has no line for.
fn without_a_line(file: &str, device_number: &str) -> String {
    match file.starts_with("io.cost.") {
        true => cost::unset(file, device_number),
        false => Limit::default().to_kernel(device_number),
    }
}

/// A cgroup, by its directory.
#[derive(Debug)]
pub struct CgroupDirectory {
    directory: OwnedFd,
    id: u64,
    path: PathBuf,
}

impl CgroupDirectory {
    /// Opens a cgroup that is named from the root of the hierarchy, with or without a leading slash; the root itself is
    /// empty.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`]; [`KernelError::is_absent`] when there is none.
    pub fn open(cgroup: &str, roots: &Roots) -> Result<Self, KernelError> {
        let path = place::directory(cgroup, roots);
        let failed = |errno: rustix::io::Errno| KernelError::Cgroup {
            path: path.clone(),
            action: "open",
            source: errno.into(),
        };
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let root = fs::open(&roots.cgroup, flags, Mode::empty()).map_err(failed)?;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let below = match cgroup.trim_start_matches('/') {
            "" => ".",
            below => below,
        };
        let directory = fs::openat2(&root, below, flags, Mode::empty(), beneath).map_err(failed)?;
        let id = fs::fstat(&directory).map_err(failed)?.st_ino;
        Ok(CgroupDirectory { directory, id, path })
    }

    /// As [`CgroupDirectory::open`], if the cgroup at this place is still the one with this id; `None` where another
    /// one has its name now.
    ///
    /// # Errors
    /// As [`CgroupDirectory::open`].
    pub fn open_same(cgroup: &str, id: u64, roots: &Roots) -> Result<Option<Self>, KernelError> {
        Self::open(cgroup, roots).map(|opened| Some(opened).filter(|opened| opened.id == id))
    }

    /// The inode number of the directory, which no other cgroup of this boot has had or will have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The path of one of its files, for people.
    pub fn path_of(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// What one of its files says, trimmed.
    ///
    /// # Errors
    /// [`KernelError::Read`]; [`KernelError::is_absent`] when the cgroup or the file is not there.
    pub fn read(&self, file: &str) -> Result<String, KernelError> {
        let failed = |source: io::Error| KernelError::Read { path: self.path_of(file), source };
        let (name, device) = file_and_device(file);
        let opened = self.open_file(name, OFlags::RDONLY).map_err(failed)?;
        let text = read_trimmed(&opened).map_err(failed)?;
        let Some(device) = device else { return Ok(text) };
        let line = text.lines().map(str::trim).find(|line| line.split(' ').next() == Some(device));
        Ok(line.map_or_else(|| without_a_line(name, device), str::to_owned))
    }

    /// As [`CgroupDirectory::read`], with `None` for a file that this cgroup or kernel does not have.
    ///
    /// # Errors
    /// [`KernelError::Read`] for every other reason; [`KernelError::is_absent`] when the whole cgroup has gone.
    pub fn read_if_present(&self, file: &str) -> Result<Option<String>, KernelError> {
        match self.read(file) {
            Ok(text) => Ok(Some(text)),
            // Pressure that was turned off at boot says so with this.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) if error.is_absent() && self.is_there() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one of its files, in one piece as the kernel's files want it.
    ///
    /// # Errors
    /// [`KernelError::Write`]; [`KernelError::is_absent`] when the cgroup or the file is not there.
    pub fn write(&self, file: &str, value: &str) -> Result<(), KernelError> {
        let (name, device) = file_and_device(file);
        let line = device.map_or_else(|| value.to_owned(), |_| cost::written_back(value));
        self.open_to_write(name)
            .and_then(|mut opened| opened.write_all(line.as_bytes()))
            .map_err(|source| KernelError::Write { path: self.path_of(file), value: line.clone(), source })
    }

    /// Opens one of its files to be read repeatedly.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn open_to_read(&self, file: &str) -> io::Result<File> {
        self.open_file(file, OFlags::RDONLY).map(File::from)
    }

    /// Opens one of its files to be written repeatedly.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn open_to_write(&self, file: &str) -> io::Result<File> {
        self.open_file(file, OFlags::WRONLY | OFlags::TRUNC).map(File::from)
    }

    /// Whether the path still leads to this cgroup.
    pub fn is_there(&self) -> bool {
        fs::stat(&self.path).is_ok_and(|stat| stat.st_ino == self.id)
    }

    fn open_file(&self, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(fs::openat(&self.directory, file, flags, Mode::empty())?)
    }
}

/// What a file of the kernel's says, trimmed.
fn read_trimmed(file: &OwnedFd) -> io::Result<String> {
    let mut text = read_text(file)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::with_files;

    #[test]
    fn the_line_of_a_device_is_read_as_a_file_and_one_without_a_line_has_no_limit() {
        let lines = "8:0 rbps=max wbps=1048576 riops=max wiops=max\n8:16 rbps=1 wbps=2 riops=3 wiops=4\n";
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/a/io.max", lines)]);
        let cgroup = CgroupDirectory::open("/a", &roots).expect("it is there");
        let read = |device| cgroup.read(&line_of("io.max", device)).expect("readable");
        assert_eq!(read("8:16"), "8:16 rbps=1 wbps=2 riops=3 wiops=4");
        assert_eq!(read("8:1"), "8:1 rbps=max wbps=max riops=max wiops=max");
        cgroup.write(&line_of("io.max", "8:1"), "8:1 rbps=7 wbps=7 riops=max wiops=max").expect("written");
        assert_eq!(read("8:1"), "8:1 rbps=7 wbps=7 riops=max wiops=max");
    }

    #[test]
    fn a_file_that_is_missing_is_told_apart_from_a_cgroup_that_has_gone() {
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/a/b/memory.min", "0\n")]);
        let path = roots.cgroup.join("a/b");
        let cgroup = CgroupDirectory::open("/a/b", &roots).expect("it is there");
        assert_eq!(cgroup.read_if_present("memory.min").expect("readable").as_deref(), Some("0"));
        assert_eq!(cgroup.read_if_present("memory.max").expect("the cgroup is there"), None);
        cgroup.write("memory.min", "7").expect("written");
        assert_eq!(cgroup.read("memory.min").expect("readable"), "7");
        // Another one under its name, which the kernel gives another number.
        std::fs::rename(&path, roots.cgroup.join("aside")).expect("moved");
        std::fs::create_dir(&path).expect("made anew");
        std::fs::remove_file(roots.cgroup.join("aside/memory.min")).expect("removed");
        assert!(cgroup.read_if_present("memory.min").expect_err("it has gone").is_absent());
        assert!(CgroupDirectory::open_same("a/b", cgroup.id(), &roots).expect("one is there").is_none());
    }

    #[test]
    fn no_name_leads_out_of_the_tree() {
        let (_keep, roots) = with_files(&[("sys/fs/cgroup/cgroup.procs", "")]);
        for name in ["..", "../..", "a/../.."] {
            let error = CgroupDirectory::open(name, &roots).expect_err("outside").to_string();
            assert!(error.contains("sys/fs/cgroup"), "{error}");
        }
    }
}

//! The cgroup tree as domains need it: listed, changed, and told of processes that come and go.
//!
//! Paths start at the root of the unified hierarchy and have no leading slash; the root itself is the empty path.
//! Every path is walked by the kernel below that root with neither symbolic links nor `..` (openat2), so that
//! whoever may write somewhere in the tree cannot lead Steward elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use steward_core::resource::Resource;

use crate::cgroup::processes::Processes;
use crate::error::KernelError;
use crate::roots::{Roots, read_all, read_text};

/// The magic number of a unified hierarchy (`CGROUP2_SUPER_MAGIC` of include/uapi/linux/magic.h).
const CGROUP2_MAGIC: u64 = 0x6367_7270;
/// How often the processes of a cgroup are moved while new ones may be forked meanwhile.
const MOVE_ROUNDS_MAX: usize = 100;
/// How deep the tree is looked at. The kernel allows more only where somebody asked for it.
pub const DEPTH_MAX: usize = 40;

/// How many cgroups are listed below one at the first level of the tree, at the second, and below any deeper one: as
/// many as can have a domain of their own there (docs/scheduler.md, the tree of domains).
pub const BELOW_MAX: [usize; 3] = [3072, 2048, 1024];

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// From the root of the hierarchy, without a leading slash.
    pub path: String,
    /// The inode number of its directory, which no other cgroup of this boot has had or will have.
    pub id: u64,
    /// The user that its directory belongs to.
    pub uid: u32,
}

/// The unified hierarchy.
#[derive(Debug)]
pub struct CgroupTree {
    root: OwnedFd,
    path: PathBuf,
    inotify: OwnedFd,
    watched: BTreeMap<i32, String>,
}

impl CgroupTree {
    /// Opens the hierarchy at `roots.cgroup`.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when there is no directory, or it is no unified hierarchy.
    pub fn open(roots: &Roots) -> Result<Self, KernelError> {
        let tree = Self::open_any(roots)?;
        let kind = fs::fstatfs(&tree.root).map_err(|errno| tree.failed("", "look at", errno))?.f_type as u64;
        if kind != CGROUP2_MAGIC {
            return Err(tree.failed(
                "",
                "find the unified hierarchy (cgroup v2) at",
                rustix::io::Errno::NODEV,
            ));
        }
        Ok(tree)
    }

    /// As [`CgroupTree::open`], for a directory that stands in for the hierarchy, in a test.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when there is no directory.
    pub fn open_any(roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.cgroup.clone();
        let failed = |errno: rustix::io::Errno| KernelError::Cgroup {
            path: path.clone(),
            action: "open",
            source: errno.into(),
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let root = fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
        Ok(CgroupTree { root, path, inotify, watched: BTreeMap::new() })
    }

    fn failed(&self, path: &str, action: &'static str, errno: rustix::io::Errno) -> KernelError {
        KernelError::Cgroup { path: self.path.join(path), action, source: errno.into() }
    }

    /// Opens something below the root, the root itself for the empty path.
    pub(crate) fn open_below(&self, path: &str, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path = if path.is_empty() { "." } else { path };
        fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), beneath)
    }

    fn directory(&self, path: &str) -> Result<OwnedFd, KernelError> {
        let flags = OFlags::DIRECTORY | OFlags::PATH;
        self.open_below(path, flags).map_err(|errno| self.failed(path, "open", errno))
    }

    /// The cgroup at a path.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`]; [`KernelError::is_absent`] when there is none.
    pub fn find(&self, path: &str) -> Result<Cgroup, KernelError> {
        let directory = self.directory(path)?;
        let stat = fs::fstat(&directory).map_err(|errno| self.failed(path, "look at", errno))?;
        Ok(Cgroup { path: path.to_owned(), id: stat.st_ino, uid: stat.st_uid })
    }

    /// All cgroups, parents before children. What vanishes meanwhile is left out, and so is what is more than
    /// [`BELOW_MAX`]: whoever is given a part of the tree may make cgroups in it without number, and everybody waits
    /// while they are read.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when the root cannot be read.
    pub fn list(&self) -> Result<Vec<Cgroup>, KernelError> {
        let root = self.open_below("", OFlags::DIRECTORY).map_err(|errno| self.failed("", "list", errno))?;
        let mut found = vec![self.find("")?];
        self.list_below(&root, "", 0, usize::MAX, &mut found);
        Ok(found)
    }

    /// The cgroups directly below one, in no particular order.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when it cannot be read.
    pub fn children(&self, path: &str) -> Result<Vec<Cgroup>, KernelError> {
        let directory =
            self.open_below(path, OFlags::DIRECTORY).map_err(|errno| self.failed(path, "list", errno))?;
        let mut found = Vec::new();
        // Seen from one level above the deepest, so that nothing below the children is looked at.
        self.list_below(&directory, path, DEPTH_MAX - 1, usize::MAX, &mut found);
        Ok(found)
    }

    /// The names and ids of the cgroups directly below one, in no particular order, and no more than `names_max`: each
    /// costs far less than with [`CgroupTree::children`].
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when it cannot be read.
    pub fn names_below(&self, path: &str, names_max: usize) -> Result<Vec<(String, u64)>, KernelError> {
        let directory =
            self.open_below(path, OFlags::DIRECTORY).map_err(|errno| self.failed(path, "list", errno))?;
        // A directory has a link for itself, one in that above it, and one for each below it: with two there is none,
        // and to read its names takes ten times as long as this. File systems that count otherwise say 1.
        if fs::fstat(&directory).is_ok_and(|stat| stat.st_nlink == 2) {
            return Ok(Vec::new());
        }
        let entries = Dir::new(directory).map_err(|errno| self.failed(path, "list", errno))?;
        let named = entries.filter_map(Result::ok).filter(|entry| entry.file_type() == FileType::Directory);
        let named =
            named.filter_map(|entry| Some((entry.file_name().to_str().ok()?.to_owned(), entry.ino())));
        Ok(named.filter(|(name, _)| name != "." && name != "..").take(names_max).collect())
    }

    /// Finds at most `room` more.
    fn list_below(
        &self,
        directory: &OwnedFd,
        path: &str,
        depth: usize,
        room: usize,
        found: &mut Vec<Cgroup>,
    ) {
        let Ok(mut entries) = Dir::read_from(directory) else { return };
        let full = found.len().saturating_add(room);
        while found.len() < full
            && let Some(Ok(entry)) = entries.read()
        {
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." || entry.file_type() != FileType::Directory || depth >= DEPTH_MAX {
                continue;
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(child) = fs::openat(directory, name, flags, Mode::empty()) else { continue };
            let Ok(stat) = fs::fstat(&child) else { continue };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            found.push(Cgroup { path: path.clone(), id: stat.st_ino, uid: stat.st_uid });
            let room = (full - found.len()).min(BELOW_MAX[depth.min(BELOW_MAX.len() - 1)]);
            self.list_below(&child, &path, depth + 1, room, found);
        }
    }

    /// Whether the memory of the cgroup with this id is limited (`memory.high`, `memory.max`), by itself or by one
    /// above it. One that is deeper than [`DEPTH_MAX`] counts as limited.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when there is none, or without CAP_DAC_READ_SEARCH, and [`KernelError::Read`].
    pub fn is_memory_limited(&self, id: u64) -> Result<bool, KernelError> {
        let mut directory = self.open_by_id(id)?;
        let root = fs::fstat(&self.root).map_err(|errno| self.failed("", "look at", errno))?.st_ino;
        for _ in 0..DEPTH_MAX {
            let here = fs::fstat(&directory).map_err(|errno| self.failed("", "look at", errno))?;
            if here.st_ino == root {
                return Ok(false);
            }
            for name in ["memory.high", "memory.max"] {
                let opened = fs::openat(&directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                let failed = |source| KernelError::Read { path: PathBuf::from(name), source };
                let opened = match opened {
                    // Its parent hands out no memory: what is above is charged.
                    Err(rustix::io::Errno::NOENT) => continue,
                    opened => opened.map_err(|errno| failed(errno.into()))?,
                };
                if read_all(&opened).map_err(failed)?.trim_ascii_end() != b"max" {
                    return Ok(true);
                }
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = fs::openat(&directory, "..", flags, Mode::empty())
                .map_err(|errno| self.failed("", "look above a cgroup of", errno))?;
        }
        Ok(true)
    }

    /// The path of the cgroup with this id, however many others there are.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`] when there is none, or without CAP_DAC_READ_SEARCH.
    pub fn path_of(&self, id: u64) -> Result<String, KernelError> {
        let found = self.open_by_id(id)?;
        let place = |descriptor: &OwnedFd| {
            let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
            std::fs::read_link(link).map_err(|source| KernelError::Cgroup {
                path: self.path.clone(),
                action: "find a cgroup by its id in",
                source,
            })
        };
        let (found, root) = (place(&found)?, place(&self.root)?);
        let below = found.strip_prefix(root).ok().and_then(Path::to_str);
        below
            .map(str::to_owned)
            .ok_or_else(|| self.failed("", "find a cgroup by its id in", rustix::io::Errno::NOENT))
    }

    /// The directory of the cgroup with this id, by the handle that the kernel has for it (`FILEID_KERNFS` of
    /// include/linux/exportfs.h).
    fn open_by_id(&self, id: u64) -> Result<OwnedFd, KernelError> {
        #[repr(C)]
        struct Handle {
            bytes: u32,
            kind: i32,
            id: u64,
        }
        let mut handle = Handle { bytes: 8, kind: 0xfe, id };
        // The kernel takes none that was opened as a place only.
        let root = self.open_below("", OFlags::DIRECTORY).map_err(|errno| self.failed("", "open", errno))?;
        // SAFETY: the handle has the layout of `struct file_handle` with as many bytes as it says.
        let opened = unsafe {
            libc::open_by_handle_at(
                root.as_raw_fd(),
                (&raw mut handle).cast(),
                libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC,
            )
        };
        if opened < 0 {
            let source = std::io::Error::last_os_error();
            return Err(KernelError::Cgroup {
                path: self.path.clone(),
                action: "open a cgroup by its id in",
                source,
            });
        }
        // SAFETY: the kernel has just given it out, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(opened) })
    }

    /// Makes a cgroup; its parent must be there.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`], for example when it is there already (`EEXIST`).
    pub fn create(&self, path: &str) -> Result<Cgroup, KernelError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.directory(above)?;
        let made = fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755));
        made.map_err(|errno| self.failed(path, "create", errno))?;
        self.find(path)
    }

    /// Removes a cgroup in which nothing is left, neither processes nor cgroups.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`], for example when a process is left (`EBUSY`).
    pub fn remove(&self, path: &str) -> Result<(), KernelError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.directory(above)?;
        let removed = fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        removed.map_err(|errno| self.failed(path, "remove", errno))
    }

    /// The processes in a cgroup itself. One in another pid namespace is 0.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.procs`.
    pub fn processes(&self, path: &str) -> Result<Vec<i32>, KernelError> {
        self.list_processes(path)?.all()
    }

    /// The same, to be read some at a time.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.procs`.
    pub fn list_processes(&self, path: &str) -> Result<Processes, KernelError> {
        let name = file_path(path, "cgroup.procs");
        let opened = self.open_below(&name, OFlags::RDONLY);
        let whole = self.path.join(name);
        match opened {
            Ok(opened) => Ok(Processes::new(File::from(opened), whole)),
            Err(errno) => Err(KernelError::Read { path: whole, source: errno.into() }),
        }
    }

    /// The threads in a cgroup itself.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.threads`.
    pub fn threads(&self, path: &str) -> Result<Vec<i32>, KernelError> {
        let text = self.read(path, "cgroup.threads")?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Whether a process is left in a cgroup or below it.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.events`.
    pub fn is_populated(&self, path: &str) -> Result<bool, KernelError> {
        Ok(self.read(path, "cgroup.events")?.lines().any(|line| line == "populated 1"))
    }

    /// Whether a cgroup itself is frozen; the root never is.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.freeze`.
    pub fn is_frozen(&self, path: &str) -> Result<bool, KernelError> {
        if path.is_empty() {
            return Ok(false);
        }
        Ok(self.read(path, "cgroup.freeze")?.trim() == "1")
    }

    /// Moves a process with all its threads into a cgroup.
    ///
    /// # Errors
    /// [`KernelError::Write`]; [`KernelError::is_absent`] when the process or the cgroup is gone.
    pub fn move_process(&self, pid: i32, path: &str) -> Result<(), KernelError> {
        self.write(path, "cgroup.procs", &pid.to_string())
    }

    /// Moves all processes from one cgroup to another, and those that they fork meanwhile. Returns how many.
    ///
    /// # Errors
    /// [`KernelError::Write`] when one cannot be moved, [`KernelError::Cgroup`] when it does not come to an end.
    pub fn move_all(&self, from: &str, to: &str) -> Result<u64, KernelError> {
        let mut moved = 0;
        for _ in 0..MOVE_ROUNDS_MAX {
            let processes = self.processes(from)?;
            if processes.is_empty() {
                return Ok(moved);
            }
            for pid in processes {
                match self.move_process(pid, to) {
                    Ok(()) => moved += 1,
                    // It has ended.
                    Err(error) if error.errno() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(self.failed(
            from,
            "empty, as it forks faster than processes can be moved:",
            rustix::io::Errno::BUSY,
        ))
    }

    /// Ends all processes in a cgroup and below it.
    ///
    /// # Errors
    /// [`KernelError::Write`] naming `cgroup.kill` (Linux 5.14).
    pub fn kill(&self, path: &str) -> Result<(), KernelError> {
        self.write(path, "cgroup.kill", "1")
    }

    /// Removes a cgroup and those below it as far as no process is in them, and says which were removed and which stay.
    /// None of them is an error where there is no such cgroup.
    pub fn remove_empty(&self, path: &str) -> (Vec<String>, Vec<String>) {
        let (mut removed, mut left) = (Vec::new(), Vec::new());
        let Ok(children) = self.children(path) else { return (removed, left) };
        for child in children {
            let (gone, stays) = self.remove_empty(&child.path);
            removed.extend(gone);
            left.extend(stays);
        }
        match self.remove(path) {
            Ok(()) => removed.push(path.to_owned()),
            Err(error) if error.is_absent() => {}
            Err(_) => left.push(path.to_owned()),
        }
        (removed, left)
    }

    /// Whether a cgroup hands a resource out to its children, so that these have a part of it each.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `cgroup.subtree_control`.
    pub fn hands_out(&self, path: &str, resource: Resource) -> Result<bool, KernelError> {
        let controllers = self.read(path, "cgroup.subtree_control")?;
        Ok(controllers.split_ascii_whitespace().any(|name| name == controller(resource)))
    }

    /// Has a cgroup hand a resource out to its children, or no longer. Other controllers stay as they are.
    ///
    /// # Errors
    /// [`KernelError::Write`] naming `cgroup.subtree_control`.
    pub fn hand_out(&self, path: &str, resource: Resource, hand_out: bool) -> Result<(), KernelError> {
        let sign = if hand_out { '+' } else { '-' };
        self.write(path, "cgroup.subtree_control", &format!("{sign}{}", controller(resource)))
    }

    /// From now on [`CgroupTree::take_changes`] names this cgroup when its last process goes, or its first comes.
    ///
    /// # Errors
    /// [`KernelError::Cgroup`], for example when there are too many watches.
    pub fn watch(&mut self, path: &str) -> Result<(), KernelError> {
        let name = file_path(path, "cgroup.events");
        let file =
            self.open_below(&name, OFlags::PATH).map_err(|errno| self.failed(&name, "watch", errno))?;
        let watch = watch_opened(&self.inotify, &file, WatchFlags::MODIFY | WatchFlags::DELETE_SELF);
        let watch = watch.map_err(|errno| self.failed(&name, "watch", errno))?;
        self.watched.insert(watch, path.to_owned());
        Ok(())
    }

    /// The watched cgroups whose state may have changed since the last call.
    pub fn take_changes(&mut self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut changed = Vec::new();
        while let Ok(event) = reader.next() {
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(self.watched.values().cloned());
            } else if event.events().contains(inotify::ReadFlags::IGNORED) {
                changed.extend(self.watched.remove(&event.wd()));
            } else {
                changed.extend(self.watched.get(&event.wd()).cloned());
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    fn read(&self, path: &str, file: &str) -> Result<String, KernelError> {
        let name = file_path(path, file);
        let failed = |source| KernelError::Read { path: self.path.join(&name), source };
        let opened = self.open_below(&name, OFlags::RDONLY).map_err(|errno| failed(errno.into()))?;
        read_text(&opened).map_err(failed)
    }

    fn write(&self, path: &str, file: &str, value: &str) -> Result<(), KernelError> {
        let name = file_path(path, file);
        let failed =
            |source| KernelError::Write { path: self.path.join(&name), value: value.to_owned(), source };
        let opened = self.open_below(&name, OFlags::WRONLY).map_err(|errno| failed(errno.into()))?;
        File::from(opened).write_all(value.as_bytes()).map_err(failed)
    }

    /// Where the hierarchy is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for CgroupTree {
    /// Readable when [`CgroupTree::take_changes`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Watches exactly the file or directory that was opened, whatever its path leads to by now.
pub(crate) fn watch_opened(
    inotify: impl AsFd,
    file: &OwnedFd,
    flags: WatchFlags,
) -> Result<i32, rustix::io::Errno> {
    inotify::add_watch(inotify, format!("/proc/self/fd/{}", file.as_raw_fd()), flags)
}

/// What the kernel calls the controller of a resource.
fn controller(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
        Resource::Disk => "io",
    }
}

fn file_path(path: &str, file: &str) -> String {
    if path.is_empty() { file.to_owned() } else { format!("{path}/{file}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, CgroupTree) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(roots.cgroup.join("a/b")).expect("directories");
        std::fs::write(roots.cgroup.join("a/cgroup.procs"), "7\n8\n").expect("a file");
        std::fs::write(roots.cgroup.join("a/cgroup.events"), "populated 1\nfrozen 0\n").expect("a file");
        std::fs::write(roots.cgroup.join("a/cgroup.subtree_control"), "cpuset cpu\n").expect("a file");
        let tree = CgroupTree::open_any(&roots).expect("it opens");
        (directory, tree)
    }

    #[test]
    fn cgroups_are_listed_parents_first_with_their_ids() {
        let (_keep, tree) = tree();
        let listed = tree.list().expect("readable");
        assert_eq!(listed.iter().map(|cgroup| cgroup.path.as_str()).collect::<Vec<_>>(), ["", "a", "a/b"]);
        assert_eq!(listed[2], tree.find("a/b").expect("it is there"));
        assert_ne!(listed[1].id, listed[2].id);
        assert!(tree.find("c").expect_err("it is not").is_absent());
        assert_eq!(tree.children("").expect("readable"), listed[1..2]);
        assert_eq!(tree.children("a").expect("readable"), listed[2..]);
        assert_eq!(tree.names_below("a", 9).expect("readable"), [("b".to_owned(), listed[2].id)]);
        assert!(tree.names_below("a", 0).expect("readable").is_empty());
        assert!(tree.names_below("c", 9).expect_err("it is not there").is_absent());
    }

    #[test]
    fn cgroups_without_number_below_one_are_not_all_listed_and_leave_others_their_place() {
        let (_keep, tree) = tree();
        for path in ["a/b/c", "a/d", "e"] {
            tree.create(path).expect("there is room");
        }
        (0..BELOW_MAX[2] + 20).for_each(|number| {
            tree.create(&format!("a/b/c/{number}")).expect("there is room");
        });
        let listed = tree.list().expect("readable");
        let below = listed.iter().filter(|cgroup| cgroup.path.starts_with("a/b/c/")).count();
        assert_eq!((below, listed.len()), (BELOW_MAX[2], BELOW_MAX[2] + 6));
        assert_eq!(tree.children("a/b/c").expect("readable").len(), BELOW_MAX[2] + 20);
    }

    #[test]
    fn what_a_cgroup_says_is_read_from_its_files() {
        let (_keep, tree) = tree();
        assert_eq!(tree.processes("a").expect("readable"), [7, 8]);
        assert!(
            tree.is_populated("a").expect("readable")
                && tree.hands_out("a", Resource::Cpu).expect("readable")
        );
        assert!(tree.processes("a/b").expect_err("no such file").is_absent());
    }

    #[test]
    fn cgroups_come_and_go() {
        let (_keep, tree) = tree();
        let made = tree.create("a/c").expect("there is room");
        assert_eq!(tree.find("a/c").expect("it is there"), made);
        assert_eq!(tree.create("a/c").expect_err("it is there").errno(), Some(libc::EEXIST));
        tree.remove("a/c").expect("it is empty");
        assert!(tree.remove("a/c").expect_err("it has gone").is_absent());
        assert!(tree.create("x/y").expect_err("no parent").is_absent());
    }

    #[test]
    fn what_is_empty_is_removed_from_below_and_the_rest_is_named() {
        let (_keep, tree) = tree();
        tree.create("a/b/c").expect("there is room");
        let (removed, left) = tree.remove_empty("a");
        // The files of this stand-in do not go away with the directory as the kernel's do.
        assert_eq!((removed, left), (vec!["a/b/c".into(), "a/b".into()], vec!["a".into()]));
        assert_eq!(tree.remove_empty("none"), (vec![], vec![]));
    }

    #[test]
    fn no_path_leads_out_of_the_tree_or_through_a_link() {
        let (keep, tree) = tree();
        let outside = keep.path().join("outside");
        std::fs::create_dir_all(outside.join("cgroup")).expect("directories");
        std::fs::write(outside.join("cgroup.procs"), "").expect("a file");
        std::os::unix::fs::symlink(&outside, tree.path().join("link")).expect("a link");
        for path in ["link", "link/cgroup", "..", "a/../../..", "/", "/etc"] {
            assert!(tree.find(path).is_err(), "{path}");
            assert!(tree.move_process(1, path).is_err(), "{path}");
            assert!(tree.remove(&format!("{path}/cgroup")).is_err(), "{path}");
            assert!(tree.create(&format!("{path}/new")).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_to_string(outside.join("cgroup.procs")).expect("readable"), "");
        assert!(!tree.list().expect("readable").iter().any(|cgroup| cgroup.path.contains("link")));
    }

    #[test]
    fn a_change_of_a_watched_cgroup_is_told_once() {
        let (_keep, mut tree) = tree();
        tree.watch("a").expect("watched");
        assert!(tree.take_changes().is_empty());
        std::fs::write(tree.path().join("a/cgroup.events"), "populated 0\n").expect("a file");
        assert_eq!(tree.take_changes(), ["a"]);
        assert!(tree.take_changes().is_empty());
    }

    #[test]
    fn the_kernel_says_which_path_a_cgroup_with_an_id_has() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux has it");
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let found = mounts.find(|mount| mount[2] == "cgroup2").map(|mount| PathBuf::from(mount[1]));
        let tree = found.and_then(|cgroup| CgroupTree::open(&Roots { cgroup, ..Roots::default() }).ok());
        let Some(tree) = tree else { return eprintln!("not tried: no unified hierarchy") };
        let own = std::fs::read_to_string("/proc/self/cgroup").expect("Linux has it");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("one");
        for path in ["", own] {
            let Ok(cgroup) = tree.find(path) else { continue };
            match tree.path_of(cgroup.id) {
                Err(error) if error.is_denied() => eprintln!("not tried: {error}"),
                said => assert_eq!(said.expect("it is there"), path),
            }
        }
        assert!(tree.path_of(u64::MAX).is_err());
    }

    #[test]
    fn a_directory_that_is_no_unified_hierarchy_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(&roots.cgroup).expect("a directory");
        let error = CgroupTree::open(&roots).expect_err("no cgroupfs").to_string();
        assert!(error.contains("cgroup v2") && error.contains("sys/fs/cgroup"), "{error}");
    }
}

//! One way through the file mappings of a process, in small steps, so that it can be left and taken up again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, open, openat, statx};
use steward_core::process::TaskId;

use super::files::{FileKey, HeldFiles, OpenFile, WINDOW_PAGES, WindowKey};
use super::maps::{Line, Lines, Mapping};
use super::pages::PageTables;
use super::ranges::PageRanges;
use super::systems::{LocalFileSystems, Numbering};
use crate::mounts::{MountTable, encode_device};
use crate::process::is_alive;
use crate::roots::Roots;

/// Of a larger mapping, only what the process has in its page tables is held, in bytes.
const WHOLE_MAX_BYTES: u64 = 32 << 20;

/// How many ranges of a window are noted for a process: it may have every other page of a large file.
const RANGES_MAX: usize = 64;

/// What is to be held for a process, and what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The pages that it maps, and of a larger mapping those that it has in its page tables, and of so many ranges that
    /// there would be more than [`RANGES_MAX`] in a window also what is between them.
    pub pages: BTreeMap<WindowKey, PageRanges>,
    /// Pages that it maps and that did not fit into the capacity.
    pub unfitting_pages: u64,
    /// Mappings of files on file systems that are not opened.
    pub foreign_mappings: u64,
    /// Mappings that could not be opened or locked, or had gone.
    pub failed_mappings: u64,
}

/// What a scan works with, the same for all of one refresh.
pub struct Surroundings<'holder> {
    /// Where procfs is.
    pub roots: &'holder Roots,
    /// The size of a page.
    pub page_bytes: u64,
    /// The number of this refresh.
    pub refresh: u64,
    /// Whose files may be opened.
    pub systems: &'holder LocalFileSystems,
    /// The mounts that were looked up in this refresh.
    pub mounts: &'holder mut MountTable,
    /// Where the pages are held.
    pub files: &'holder mut HeldFiles,
    /// The last thing that failed, if any.
    pub failure: &'holder mut Option<io::Error>,
}

/// A mapping that is being looked at.
#[derive(Debug)]
struct Current {
    mapping: Mapping,
    key: FileKey,
    /// The address that comes next.
    next: u64,
}

/// The state of one way through.
#[derive(Debug)]
pub struct Scan {
    process: TaskId,
    /// The process's directory in procfs, which never becomes that of another process.
    directory: OwnedFd,
    lines: Lines,
    tables: PageTables,
    current: Option<Current>,
    /// What was found so far.
    pub found: Found,
}

impl Scan {
    /// Begins with exactly this process; `None` when it has ended.
    ///
    /// # Errors
    /// What opening its files in procfs says.
    pub fn begin(process: TaskId, page_bytes: u64, roots: &Roots) -> io::Result<Option<Self>> {
        let path = roots.proc.join(process.tid.to_string());
        let directory = match open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(directory) => directory,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // The directory is of one process for ever. If the wanted one lives now, no other can have had its pid since
        // the directory was opened; if the directory is an earlier one's, there is nothing to be read in it any more.
        if !is_alive(process, roots) {
            return Ok(None);
        }
        let file = |name| {
            let opened = openat(&directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            opened.map(File::from).map_err(io::Error::from)
        };
        let lines = Lines::new(file("maps")?);
        let tables = PageTables::new(file("pagemap")?, page_bytes);
        Ok(Some(Scan { process, directory, lines, tables, current: None, found: Found::default() }))
    }

    /// Goes one step further: past a line of `maps`, or a window's worth of a mapping. Returns whether it was the last.
    ///
    /// # Errors
    /// What reading the process's mappings says. What is wrong with one file is counted, and no error.
    pub fn step(&mut self, with: &mut Surroundings) -> io::Result<bool> {
        match self.current.take() {
            None => match self.lines.next()? {
                Line::End => return Ok(true),
                Line::Other => {}
                Line::File(mapping) => self.enter(mapping, with),
            },
            Some(current) => self.look(current, with)?,
        }
        Ok(false)
    }

    fn enter(&mut self, mapping: Mapping, with: &mut Surroundings) {
        let key = match with.systems.numbering(mapping.device) {
            None => {
                self.found.foreign_mappings += 1;
                return;
            }
            Some(Numbering::Superblock) => Ok(FileKey { device: mapping.device, inode: mapping.inode }),
            Some(Numbering::Subvolumes) => self.handle(&mapping, with).map(|(_, key, _)| key),
        };
        match key {
            Ok(key) => self.current = Some(Current { next: mapping.addresses.start, mapping, key }),
            Err(error) => self.failed(error, with),
        }
    }

    fn look(&mut self, mut current: Current, with: &mut Surroundings) -> io::Result<()> {
        let Current { mapping, key, next } = &mut current;
        let file_page =
            |address: u64| (mapping.offset_bytes + (address - mapping.addresses.start)) / with.page_bytes;
        let number = file_page(*next) / WINDOW_PAGES;
        let to_window_end = (HeldFiles::extent_of(number).end - file_page(*next)) * with.page_bytes;
        let end = mapping.addresses.end.min(*next + to_window_end);
        // All that is in memory, also what the process does not have in its page tables: it was read with what it has,
        // and is needed for what it does next.
        let is_whole = mapping.addresses.end - mapping.addresses.start <= WHOLE_MAX_BYTES;
        let (present, looked_to) = if is_whole {
            (PageRanges::of(*next / with.page_bytes..end.div_ceil(with.page_bytes)), end)
        } else {
            self.tables.of_files(*next..end)?
        };
        let first = mapping.addresses.start / with.page_bytes;
        let offset = mapping.offset_bytes / with.page_bytes;
        let pages = PageRanges::ascending(
            present.iter().map(|range| range.start - first + offset..range.end - first + offset),
        );
        *next = looked_to;
        let (window, is_done) = ((*key, number), looked_to >= mapping.addresses.end);
        if !pages.is_empty() {
            let held = self.hold(&current.mapping, window, &pages, with);
            // Of a window of which nothing is known there is nothing to be let go.
            if with.files.has(window) {
                let all = self.found.pages.entry(window).or_default();
                if !all.has_all(&pages) {
                    *all = all.union(&pages).coarse(RANGES_MAX);
                }
            }
            match held {
                Ok(unfitting_pages) => self.found.unfitting_pages += unfitting_pages,
                Err(error) => {
                    // The rest of the mapping would fail as well.
                    self.failed(error, with);
                    return Ok(());
                }
            }
        }
        if !is_done {
            self.current = Some(current);
        }
        Ok(())
    }

    fn hold(
        &self,
        mapping: &Mapping,
        window: WindowKey,
        pages: &PageRanges,
        with: &mut Surroundings,
    ) -> io::Result<u64> {
        let Surroundings { roots, page_bytes, refresh, systems, mounts, files, .. } = with;
        files.hold(window, pages, *refresh, || {
            let (handle, key, facts) = self.identify(mapping, roots, systems, mounts)?;
            if key != window.0 {
                return Err(gone());
            }
            let descriptor = reopen(&handle, roots)?;
            Ok(OpenFile { descriptor, pages: facts.stx_size.div_ceil(*page_bytes) })
        })
    }

    fn handle(&self, mapping: &Mapping, with: &mut Surroundings) -> io::Result<(OwnedFd, FileKey, Statx)> {
        self.identify(mapping, with.roots, with.systems, with.mounts)
    }

    /// A handle to the mapped file by which it can be told what it is, and not yet be read: opening a file for reading
    /// may wait for a server, or do something where it is a device.
    fn identify(
        &self,
        mapping: &Mapping,
        roots: &Roots,
        systems: &LocalFileSystems,
        mounts: &mut MountTable,
    ) -> io::Result<(OwnedFd, FileKey, Statx)> {
        // The kernel's link to the file itself, whatever is at its path now and in whichever mount namespace that is.
        let name = format!("map_files/{:x}-{:x}", mapping.addresses.start, mapping.addresses.end);
        let handle = openat(&self.directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let mask = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MNT_ID;
        // What is known without asking a server, for by now it may be another file.
        let facts = statx(&handle, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, mask)?;
        let own_device = encode_device(facts.stx_dev_major, facts.stx_dev_minor);
        let is_regular = u32::from(facts.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        let is_same = facts.stx_ino == mapping.inode
            && (own_device == mapping.device
                || systems.numbering(mapping.device) == Some(Numbering::Subvolumes)
                    && mounts.device_seen_by(roots, self.process.tid, facts.stx_mnt_id, own_device)
                        == Some(mapping.device));
        if !is_regular || !is_same {
            return Err(gone());
        }
        Ok((handle, FileKey { device: own_device, inode: facts.stx_ino }, facts))
    }

    fn failed(&mut self, error: io::Error, with: &mut Surroundings) {
        self.found.failed_mappings += 1;
        // What has gone is told by the figure alone.
        if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) {
            *with.failure = Some(error);
        }
    }
}

/// Opens for reading what a handle is of, without a trace of it in the file's times where that is possible.
fn reopen(handle: &OwnedFd, roots: &Roots) -> io::Result<OwnedFd> {
    let path = roots.proc.join(format!("self/fd/{}", handle.as_raw_fd()));
    // Without waiting for whoever has a lease on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(&path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => Ok(open(&path, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// The mapping is not what it was when its line was read, or not of a regular file.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

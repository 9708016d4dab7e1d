//! Which pages a process has in its page tables that are a file's own, not its copies of them, from `/proc/PID/pagemap`
//! (Documentation/admin-guide/mm/pagemap.rst of Linux).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::ranges::PageRanges;

/// `PAGEMAP_SCAN` of linux/fs.h, from Linux 6.7 on: it passes over what is not mapped without a word about each page.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610;
/// `PAGE_IS_FILE` of linux/fs.h.
const PAGE_IS_FILE: u64 = 1 << 2;
/// `PAGE_IS_PRESENT` of linux/fs.h.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// In an entry of pagemap: the page is in memory, and it is of a file or shared.
const ENTRY_PRESENT_AND_FILE: u64 = 1 << 63 | 1 << 61;
/// In an entry of pagemap: the frame of a page that is in memory. 0 where the reader has no right to know.
const ENTRY_FRAME: u64 = (1 << 55) - 1;
/// In an entry of pagemap: the page is in memory.
const ENTRY_PRESENT: u64 = 1 << 63;
/// How many ranges one look tells.
const REGIONS_MAX: usize = 512;
/// How many entries are read in one look where the kernel has no `PAGEMAP_SCAN`.
const ENTRIES_MAX: u64 = 4096;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
struct ScanArgument {
    size_bytes: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[derive(Clone, Copy)]
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By [`PAGEMAP_SCAN`].
    Scan,
    /// By reading an entry of each page.
    Read,
}

/// The page tables of one process.
#[derive(Debug)]
pub struct PageTables {
    file: File,
    method: Method,
    page_bytes: u64,
}

impl PageTables {
    /// Of an open `pagemap`.
    pub fn new(file: File, page_bytes: u64) -> Self {
        PageTables { file, method: Method::Scan, page_bytes }
    }

    /// As [`PageTables::new`], by the method for older kernels.
    #[cfg(test)]
    pub fn by_reading(file: File, page_bytes: u64) -> Self {
        PageTables { file, method: Method::Read, page_bytes }
    }

    /// The pages of files that are mapped at these addresses, as numbers of pages of the address space, and up to which
    /// address they were looked for: at least a page further than the first, and not always to the last.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_files(&mut self, addresses: Range<u64>) -> io::Result<(PageRanges, u64)> {
        if self.method == Method::Scan {
            match self.scan(addresses.clone()) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.method = Method::Read,
                outcome => return outcome,
            }
        }
        self.read(addresses)
    }

    fn scan(&self, addresses: Range<u64>) -> io::Result<(PageRanges, u64)> {
        let mut regions = [Region { start: 0, end: 0, categories: 0 }; REGIONS_MAX];
        let wanted = PAGE_IS_PRESENT | PAGE_IS_FILE;
        let mut argument = ScanArgument {
            size_bytes: size_of::<ScanArgument>() as u64,
            flags: 0,
            start: addresses.start,
            end: addresses.end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS_MAX as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: wanted,
            category_anyof_mask: 0,
            return_mask: wanted,
        };
        // SAFETY: the argument has the kernel's layout, and its `vec` is a live array of `vec_len` regions.
        let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        let pages = regions[..found]
            .iter()
            .map(|region| region.start / self.page_bytes..region.end / self.page_bytes);
        // A process that has ended has no tables to walk.
        let end = if argument.walk_end > addresses.start { argument.walk_end } else { addresses.end };
        Ok((PageRanges::ascending(pages), end.min(addresses.end)))
    }

    /// The frames of these pages of the address space, in order; 0 for one that is not in memory, or not to be known.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn frames(&self, pages: &PageRanges) -> io::Result<Vec<u64>> {
        let mut frames = Vec::new();
        for range in pages.iter() {
            let mut first = range.start;
            while first < range.end {
                let entries = self.entries(first, range.end - first)?;
                // Where nothing is read, there is nothing.
                let looked_at = if entries.is_empty() { range.end - first } else { entries.len() as u64 };
                let frame = |entry: &u64| if entry & ENTRY_PRESENT == 0 { 0 } else { entry & ENTRY_FRAME };
                frames.extend(entries.iter().map(frame));
                frames.extend((entries.len() as u64..looked_at).map(|_| 0));
                first += looked_at;
            }
        }
        Ok(frames)
    }

    fn read(&self, addresses: Range<u64>) -> io::Result<(PageRanges, u64)> {
        let first = addresses.start / self.page_bytes;
        let entries = self.entries(first, addresses.end.div_ceil(self.page_bytes) - first)?;
        let is_of_file = |entry: &u64| entry & ENTRY_PRESENT_AND_FILE == ENTRY_PRESENT_AND_FILE;
        let pages = (first..).zip(&entries).filter(|(_, entry)| is_of_file(entry));
        let pages = PageRanges::ascending(pages.map(|(page, _)| page..page + 1));
        // Where nothing is read, the process has ended.
        let end =
            if entries.is_empty() { addresses.end } else { (first + entries.len() as u64) * self.page_bytes };
        Ok((pages, end.min(addresses.end)))
    }

    /// The entries of pages of the address space, from the first on: at most so many, and no more than in one look.
    fn entries(&self, first: u64, count: u64) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count.min(ENTRIES_MAX) as usize * 8];
        let read = self.file.read_at(&mut bytes, first * 8)?;
        let entries = bytes[..read].chunks_exact(8);
        Ok(entries.map(|entry| entry.try_into().map_or(0, u64::from_ne_bytes)).collect())
    }
}

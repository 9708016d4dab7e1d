//! Memory that a program holds and touches: its own, and a file's, one word of each page at a time.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

use crate::process;

/// Size of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Bytes in a mebibyte.
pub const MIB: usize = 1 << 20;
const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// A mapping of whole pages, which goes when this is dropped.
struct Mapping {
    base: *mut u64,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, protection: i32, flags: i32, descriptor: i32) -> Result<Mapping> {
        // SAFETY: a new mapping, wherever the kernel likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), bytes })
    }

    fn pages(&self) -> usize {
        self.bytes / PAGE_BYTES
    }

    /// The first word of a page.
    fn word(&self, page: usize) -> *mut u64 {
        assert!(page < self.pages(), "there is no page {page} among {}", self.pages());
        // SAFETY: within the mapping, as was just looked at.
        unsafe { self.base.add(page * PAGE_WORDS) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody else has its address.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Anonymous memory.
pub struct Anonymous(Mapping);

impl Anonymous {
    /// Asks for `mebibytes`; not a page of it is there before it is touched.
    ///
    /// # Errors
    /// The kernel's, when there is no address space.
    pub fn map(mebibytes: usize) -> Result<Anonymous> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Mapping::new(mebibytes * MIB, libc::PROT_READ | libc::PROT_WRITE, flags, -1).map(Anonymous)
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.0.pages()
    }

    /// Writes a whole page: half of it noise, half of it the same over and over, so that it compresses about as well as
    /// memory does. A page of zeros would be no measure: the kernel stores none (`mm/page_io.c`).
    pub fn fill_page(&mut self, page: usize) {
        let first = self.0.word(page);
        let mut state = (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for index in 0..PAGE_WORDS {
            if index < PAGE_WORDS / 2 {
                // xorshift64 (Marsaglia 2003): never 0 when it does not begin with 0.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
            }
            // SAFETY: `first` is the first of the page's words.
            unsafe { first.add(index).write_volatile(state) };
        }
    }

    /// Writes all pages whole.
    pub fn fill(&mut self) {
        (0..self.pages()).for_each(|page| self.fill_page(page));
    }

    /// Changes a word of a page.
    pub fn touch_page(&mut self, page: usize) {
        let word = self.0.word(page);
        // SAFETY: a word of the mapping.
        unsafe { word.write_volatile(word.read_volatile().wrapping_add(1)) };
    }

    /// Changes a word of every page.
    pub fn touch(&mut self) {
        (0..self.pages()).for_each(|page| self.touch_page(page));
    }
}

/// A file, mapped to be read.
pub struct MappedFile(Mapping);

impl MappedFile {
    /// Maps the whole of a file, to its last whole page.
    ///
    /// # Errors
    /// The kernel's, and when the file is shorter than a page.
    pub fn open(path: &str) -> Result<MappedFile> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len() as usize / PAGE_BYTES * PAGE_BYTES;
        Mapping::new(bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd()).map(MappedFile)
    }

    /// Reads a word of every page.
    pub fn touch(&self) {
        for page in 0..self.0.pages() {
            // SAFETY: a word of the mapping. The lab's files are not cut while they are mapped.
            unsafe { self.0.word(page).read_volatile() };
        }
    }
}

/// Pages that this process had to wait for a disk for, since its start.
pub fn major_faults() -> u64 {
    process::usage(libc::RUSAGE_SELF).ru_majflt as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(memory: &Anonymous, page: usize) -> Vec<u64> {
        // SAFETY: a page of the mapping.
        unsafe { std::slice::from_raw_parts(memory.0.word(page), PAGE_WORDS) }.to_vec()
    }

    #[test]
    fn pages_are_filled_with_what_is_no_zero_and_differs_from_page_to_page() {
        let mut memory = Anonymous::map(1).expect("a mebibyte");
        memory.fill();
        let (first, last) = (words(&memory, 0), words(&memory, memory.pages() - 1));
        assert_eq!(memory.pages(), 256);
        assert!(first.iter().all(|word| *word != 0) && first != last);
        // Half of it is the same over and over, the other half is not.
        let repeated = first.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(repeated, PAGE_WORDS / 2);
    }

    #[test]
    fn touching_changes_one_word_of_each_page() {
        let mut memory = Anonymous::map(1).expect("a mebibyte");
        memory.fill();
        let before = words(&memory, 7);
        memory.touch();
        let after = words(&memory, 7);
        assert_eq!(after[0], before[0].wrapping_add(1));
        assert_eq!(after[1..], before[1..]);
    }
}

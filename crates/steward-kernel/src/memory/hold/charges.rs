//! Which cgroup is charged for a page in memory, and whether its pages may be held: `/proc/kpagecgroup`
//! (Documentation/admin-guide/mm/pagemap.rst of Linux).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::ranges::PageRanges;
use crate::error::KernelError;
use crate::roots::Roots;

/// How many entries are read in one look.
const ENTRIES_MAX: usize = 512;

/// Of how many cgroups it is asked in one refresh whether they are limited: each takes some system calls a level.
const ASKED_MAX: usize = 256;

/// Whether the memory of the cgroup with this id (the inode number of its directory) is limited, by itself or by one
/// above it.
pub type IsLimited = Box<dyn FnMut(u64) -> bool + Send>;

/// Who knows who is charged for a frame.
#[derive(Debug)]
enum Owners {
    /// The kernel charges nobody (no `CONFIG_MEMCG`).
    Nobody,
    /// `kpagecgroup`.
    Kernel(File),
    #[cfg(test)]
    Told(fn(u64) -> u64),
}

impl Owners {
    /// Of so many frames, from the first on.
    fn of(&self, first: u64, count: usize) -> io::Result<Vec<u64>> {
        match self {
            Owners::Nobody => Ok(vec![0; count]),
            Owners::Kernel(file) => {
                let mut bytes = vec![0; count * 8];
                file.read_exact_at(&mut bytes, first * 8)?;
                let entries = bytes.chunks_exact(8);
                Ok(entries.map(|entry| entry.try_into().map_or(0, u64::from_ne_bytes)).collect())
            }
            #[cfg(test)]
            Owners::Told(owner) => Ok((first..).take(count).map(owner).collect()),
        }
    }
}

/// Who is charged for what. Pages that a limited cgroup is charged for are left alone: if they could not be taken from
/// it, its own tasks would be slowed at `memory.high`, and ended at `memory.max`, for what others map.
pub struct Charges {
    owners: Owners,
    is_limited: IsLimited,
    /// What was asked for since [`Charges::forget`].
    known: BTreeMap<u64, bool>,
}

impl fmt::Debug for Charges {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.debug_struct("Charges")
            .field("owners", &self.owners)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl Charges {
    /// As the kernel has them.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming `kpagecgroup`, which takes CAP_SYS_ADMIN.
    pub fn new(is_limited: IsLimited, roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.proc.join("kpagecgroup");
        let owners = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Owners::Nobody,
            opened => Owners::Kernel(opened.map_err(|source| KernelError::Read { path, source })?),
        };
        Ok(Charges { owners, is_limited, known: BTreeMap::new() })
    }

    /// As a test has them.
    #[cfg(test)]
    pub fn told(owner: fn(u64) -> u64, is_limited: IsLimited) -> Self {
        Charges { owners: Owners::Told(owner), is_limited, known: BTreeMap::new() }
    }

    /// Limits may have changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Whether pages of this cgroup are to be left alone. Nobody's (0) are not; those of more than [`ASKED_MAX`]
    /// cgroups are.
    pub fn is_limited(&mut self, owner: u64) -> bool {
        if owner == 0 || self.known.len() >= ASKED_MAX && !self.known.contains_key(&owner) {
            return owner != 0;
        }
        *self.known.entry(owner).or_insert_with(|| (self.is_limited)(owner))
    }

    /// The ids of the cgroups that are charged for these pages, which are in the frames of the same place in `frames`,
    /// each with its pages. A page of which the frame is not known (0), because it has just been taken or the kernel
    /// does not tell, is left out.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn owners(&self, pages: &PageRanges, frames: &[u64]) -> io::Result<BTreeMap<u64, PageRanges>> {
        let mut found: BTreeMap<u64, Vec<std::ops::Range<u64>>> = BTreeMap::new();
        let pages: Vec<u64> = pages.iter().flatten().collect();
        let mut place = 0;
        while place < frames.len() {
            let next = |length: usize| frames.get(place + length) == Some(&(frames[place] + length as u64));
            let length = (1..ENTRIES_MAX).find(|length| !next(*length)).unwrap_or(ENTRIES_MAX);
            if frames[place] == 0 {
                place += 1;
                continue;
            }
            let owners = self.owners.of(frames[place], length)?;
            for (page, owner) in pages[place..].iter().zip(owners) {
                found.entry(owner).or_default().push(*page..*page + 1);
            }
            place += length;
        }
        Ok(found.into_iter().map(|(owner, pages)| (owner, PageRanges::ascending(pages))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_of_who_is_charged_for_its_frame_and_where_nobody_is_of_nobody() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        std::fs::create_dir_all(&roots.proc).expect("a directory");
        let pages = PageRanges::ascending([3..6, 10..12]);
        let frames = [7, 8, 9, 0, 2];
        let charges = Charges::new(Box::new(|_| true), &roots).expect("an absent file");
        let nobodys = charges.owners(&pages, &frames).expect("no file");
        assert_eq!(nobodys, BTreeMap::from([(0, PageRanges::ascending([3..6, 11..12]))]));

        let of_frames: Vec<u8> = (0..16u64).flat_map(|frame| (100 + frame / 9).to_ne_bytes()).collect();
        std::fs::write(roots.proc.join("kpagecgroup"), of_frames).expect("a file");
        let mut charges = Charges::new(Box::new(|owner| owner == 101), &roots).expect("a file");
        let owners = charges.owners(&pages, &frames).expect("a file");
        let (first, second) = (PageRanges::ascending([3..5, 11..12]), PageRanges::of(5..6));
        assert_eq!(owners, BTreeMap::from([(100, first), (101, second)]));
        assert!(!charges.is_limited(100) && charges.is_limited(101) && !charges.is_limited(0));
        assert!(charges.owners(&pages, &[99]).is_err(), "there is no such frame");
    }
}

//! One part of a file, mapped into this process for reading so that pages of it can be locked.
//!
//! What the pages hold is never looked at: where a file was cut, touching them would end this process with SIGBUS. The
//! kernel is only asked to map and to lock them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use super::charges::Charges;
use super::pages::PageTables;
use super::ranges::PageRanges;

/// The kernel maps at most so many cached pages around one that is asked for (`fault_around_bytes`).
pub const AROUND_PAGES: u64 = 16;

/// How many cgroups may be charged for pages of one window. Anybody may make more, and have them read one page each.
const OWNERS_MAX: usize = 64;

/// The size of a page in bytes.
pub fn page_bytes() -> u64 {
    // SAFETY: it takes a number and gives a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// How many areas a window takes with these pages locked, at most.
pub fn areas_of(locked: &PageRanges) -> usize {
    1 + 2 * locked.count()
}

/// A mapping of some pages of a file. Dropped, it is unmapped, and so nothing in it is locked any more.
#[derive(Debug)]
pub struct Window {
    /// Where it is in this process. A number, because nothing may be read through it.
    address: u64,
    /// The pages of the file.
    extent: Range<u64>,
    page_bytes: u64,
    locked: PageRanges,
    /// In the page tables of this process, by the last look.
    mapped: PageRanges,
    /// The locked ones of them.
    held: PageRanges,
    /// The cgroups that are charged for pages that are mapped here, with these.
    owners: BTreeMap<u64, PageRanges>,
    /// Not to be held because of who is charged for them.
    pub refused: PageRanges,
    /// In which refresh that was found.
    pub refused_at: u64,
    /// What has been done in the refresh `looked_at`: as much as could be of it is held.
    pub settled: PageRanges,
    /// In which refresh its page tables were looked at last.
    pub looked_at: u64,
}

impl Window {
    /// Maps these pages of a file that is open for reading. Nothing is read, nothing locked.
    ///
    /// # Errors
    /// What mmap(2) says.
    pub fn map(file: impl AsFd, extent: Range<u64>, page_bytes: u64) -> io::Result<Self> {
        let too_far = || io::Error::from_raw_os_error(libc::EOVERFLOW);
        let offset = extent.start.checked_mul(page_bytes).and_then(|offset| i64::try_from(offset).ok());
        let length = (extent.end - extent.start) * page_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that there is.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length as usize,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                offset.ok_or_else(too_far)?,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let window = Window {
            address: address as u64,
            extent: extent.clone(),
            page_bytes,
            locked: PageRanges::default(),
            mapped: PageRanges::default(),
            held: PageRanges::default(),
            owners: BTreeMap::new(),
            refused: PageRanges::default(),
            refused_at: 0,
            settled: PageRanges::default(),
            looked_at: 0,
        };
        // Random: a page that is mapped here has nothing read ahead, and does not count as used. No huge pages: into
        // those khugepaged would put what is mapped here, charged to this process's cgroup, and whose it was would keep
        // that much less. The others keep it out of children and of a dump of this process. None matters enough to fail
        // for.
        let advices = [libc::MADV_RANDOM, libc::MADV_NOHUGEPAGE, libc::MADV_DONTFORK, libc::MADV_DONTDUMP];
        for advice in advices {
            let _ = window.advise(extent.clone(), advice);
        }
        Ok(window)
    }

    /// The pages of the file that are mapped.
    pub fn extent(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// The pages that stay in memory once they are in it.
    pub fn locked(&self) -> &PageRanges {
        &self.locked
    }

    /// The locked pages that were in memory when they were looked at last.
    pub fn held(&self) -> &PageRanges {
        &self.held
    }

    /// The pages that were in the page tables of this process when they were looked at last.
    pub fn mapped(&self) -> &PageRanges {
        &self.mapped
    }

    /// Who is charged for mapped pages, as far as that was [asked for](Window::ask_for_owners).
    pub fn owners(&self) -> impl Iterator<Item = (u64, &PageRanges)> {
        self.owners.iter().map(|(owner, pages)| (*owner, pages))
    }

    /// How many areas this process's address space has for it (`vm.max_map_count`), at most.
    pub fn areas(&self) -> usize {
        areas_of(&self.locked)
    }

    /// Locks pages as soon as they are in memory. Brings none there.
    ///
    /// # Errors
    /// What mlock2(2) says; the ranges before the one that failed are locked then.
    pub fn lock(&mut self, pages: &PageRanges) -> io::Result<()> {
        let mut done = Vec::new();
        let mut outcome = Ok(());
        for range in pages.iter() {
            let (address, length) = self.place(&range);
            let on_fault = libc::MLOCK_ONFAULT as libc::c_uint;
            // SAFETY: the range is within this mapping, and locking changes nothing that can be seen of it.
            if unsafe { libc::mlock2(address as *const libc::c_void, length, on_fault) } != 0 {
                outcome = Err(io::Error::last_os_error());
                break;
            }
            done.push(range);
        }
        self.locked = self.locked.union(&PageRanges::ascending(done));
        self.held = self.mapped.common(&self.locked);
        outcome
    }

    /// Lets pages go: they are not locked and not mapped here any more, and may be taken like any others.
    pub fn let_go(&mut self, pages: &PageRanges) {
        // All of it at once needs no area that there is not.
        let is_all = pages.has_all(&PageRanges::of(self.extent.clone()));
        let locked = if is_all { PageRanges::of(self.extent.clone()) } else { self.locked.common(pages) };
        for range in locked.iter() {
            let (address, length) = self.place(&range);
            // SAFETY: the range is within this mapping, and unlocking changes nothing that can be seen of it.
            if unsafe { libc::munlock(address as *const libc::c_void, length) } != 0 && range != self.extent {
                // It would be one area more than a process may have. All of it takes none.
                self.let_go(&PageRanges::of(self.extent.clone()));
                return;
            }
        }
        for range in pages.iter() {
            // Takes it out of this process's page tables; the file keeps what it has.
            let _ = self.advise(range, libc::MADV_DONTNEED);
        }
        self.locked = self.locked.minus(pages);
        self.have_gone(pages);
    }

    /// Those of these pages that are in memory.
    ///
    /// # Errors
    /// What mincore(2) says.
    pub fn resident(&self, pages: &PageRanges) -> io::Result<PageRanges> {
        let mut all = PageRanges::default();
        for range in pages.iter() {
            let (address, length) = self.place(&range);
            let mut told = vec![0u8; (range.end - range.start) as usize];
            // SAFETY: the range is within this mapping, and there is a byte for each page of it.
            if unsafe { libc::mincore(address as *mut libc::c_void, length, told.as_mut_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let resident = range.zip(told).filter(|(_, told)| told & 1 == 1);
            all = all.union(&PageRanges::ascending(resident.map(|(page, _)| page..page + 1)));
        }
        Ok(all)
    }

    /// Maps pages that are in memory, and looks at them. That one cannot be mapped is no error: it is not mapped then.
    ///
    /// # Errors
    /// What looking at `own` says.
    pub fn populate(&mut self, resident: &PageRanges, own: &mut PageTables) -> io::Result<()> {
        if resident.is_empty() {
            return Ok(());
        }
        let Range { start, end } = resident.extent();
        let start = start.saturating_sub(AROUND_PAGES).max(self.extent.start);
        let around = start..(end + AROUND_PAGES).min(self.extent.end);
        // What is mapped where it is locked already is locked at once, whoever is charged for it; and a page that is
        // mapped may be another one by now.
        let gaps = PageRanges::of(around.clone()).common(&self.locked).minus(&self.held);
        self.let_go(&gaps);
        self.forget_owners(&PageRanges::of(around.clone()));
        for range in resident.iter() {
            let _ = self.advise(range, libc::MADV_POPULATE_READ);
        }
        self.look(around, own)
    }

    /// Finds which pages are mapped now: a page goes when its file is cut.
    ///
    /// # Errors
    /// What looking at `own`, the page tables of this process, says.
    pub fn look(&mut self, part: Range<u64>, own: &mut PageTables) -> io::Result<()> {
        let (mut address, length) = self.place(&part);
        let end = address + length as u64;
        let first = address / self.page_bytes;
        let mut found = PageRanges::default();
        while address < end {
            let (pages, looked_to) = own.of_files(address..end)?;
            let here =
                pages.iter().map(|range| range.start - first + part.start..range.end - first + part.start);
            found = found.union(&PageRanges::ascending(here));
            address = looked_to;
        }
        self.have_gone(&PageRanges::of(part).minus(&found));
        self.mapped = self.mapped.union(&found);
        self.held = self.mapped.common(&self.locked);
        Ok(())
    }

    /// Asks who is charged for mapped pages of which it is not known. Those of which it is not known then have gone.
    /// Where there are more than [`OWNERS_MAX`], nothing is mapped afterwards, and `false` is returned.
    ///
    /// # Errors
    /// What the kernel says of frames and charges.
    pub fn ask_for_owners(
        &mut self,
        pages: &PageRanges,
        own: &PageTables,
        charges: &Charges,
    ) -> io::Result<bool> {
        let known = PageRanges::all_of(self.owners.values());
        let asked = pages.common(&self.mapped).minus(&known);
        if asked.is_empty() {
            return Ok(true);
        }
        let first = self.address / self.page_bytes;
        let shifted = |range: Range<u64>| {
            range.start - self.extent.start + first..range.end - self.extent.start + first
        };
        let frames = own.frames(&PageRanges::ascending(asked.iter().map(shifted)))?;
        let mut unknown = asked.clone();
        for (owner, pages) in charges.owners(&asked, &frames)? {
            unknown = unknown.minus(&pages);
            let owned = self.owners.entry(owner).or_default();
            *owned = owned.union(&pages);
        }
        self.let_go(&unknown);
        let are_few = self.owners.len() <= OWNERS_MAX;
        if !are_few {
            self.let_go(&PageRanges::of(self.extent.clone()));
        }
        Ok(are_few)
    }

    fn have_gone(&mut self, pages: &PageRanges) {
        self.mapped = self.mapped.minus(pages);
        self.held = self.held.minus(pages);
        self.forget_owners(pages);
    }

    /// Who is charged for these pages is to be asked again.
    pub fn forget_owners(&mut self, pages: &PageRanges) {
        self.owners.values_mut().for_each(|owned| *owned = owned.minus(pages));
        self.owners.retain(|_, owned| !owned.is_empty());
    }

    fn advise(&self, pages: Range<u64>, advice: libc::c_int) -> io::Result<()> {
        let (address, length) = self.place(&pages);
        // SAFETY: the range is within this mapping, of which nothing is kept in Rust's memory.
        match unsafe { libc::madvise(address as *mut libc::c_void, length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address and length in bytes of pages of the file.
    fn place(&self, pages: &Range<u64>) -> (u64, usize) {
        assert!(
            self.extent.start <= pages.start && pages.end <= self.extent.end,
            "{pages:?} is not within {:?}",
            self.extent
        );
        let address = self.address + (pages.start - self.extent.start) * self.page_bytes;
        (address, ((pages.end - pages.start) * self.page_bytes) as usize)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let (address, length) = self.place(&self.extent);
        // SAFETY: the whole of this mapping, which nobody else knows.
        unsafe { libc::munmap(address as *mut libc::c_void, length) };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The flags of the area that begins there (`VmFlags` in proc_pid_smaps(5)).
    fn flags_at(address: u64) -> Vec<String> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&format!("{address:x}-")));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("flags of the area");
        flags.split_ascii_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_held_is_not_put_into_huge_pages_which_would_be_charged_to_the_holder() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").is_dir() {
            eprintln!("nothing is tested: this kernel has no transparent huge pages");
            return;
        }
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &[7; 4096]).expect("room");
        let window = Window::map(&file, 0..1, page_bytes()).expect("a mapping");
        let flags = flags_at(window.address);
        assert!(flags.iter().any(|flag| flag == "nh"), "{flags:?}");
    }
}

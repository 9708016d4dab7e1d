//! The files of which pages are held, within a capacity: what is mapped here, and what of it is locked.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use super::charges::Charges;
use super::pages::PageTables;
use super::ranges::PageRanges;
use super::window::{AROUND_PAGES, Window, areas_of};

/// How many pages one window has. Looking at one takes about a millisecond at most, and a large file needs few.
pub const WINDOW_PAGES: u64 = 16 * 1024;

/// Gaps of at most so many pages between pages to be held are locked as well, for each range takes two areas of this
/// process's address space. What is in a gap is not read, but stays if it is in memory.
const GAP_PAGES: u64 = AROUND_PAGES;

/// Who is charged for a page that was not to be held is not asked in each refresh.
const REFUSED_REFRESHES: u64 = 16;

/// A file, as `stat` tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The device that `stat` gives, as [`crate::mounts::encode_device`] has it.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// A part of a file: the number of the window.
pub type WindowKey = (FileKey, u64);

/// How much may be held. In one holder, who comes first takes room from the others: who must not, gets a holder of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Of all files together, in bytes.
    pub bytes_max: u64,
    /// How many areas of this process's address space are taken for it. The kernel allows a process 65,530
    /// (`vm.max_map_count`), and this one needs others.
    pub areas_max: usize,
}

/// A file that was opened, and how many pages it has.
pub struct OpenFile {
    /// Open for reading.
    pub descriptor: OwnedFd,
    /// Its size, in whole pages.
    pub pages: u64,
}

/// All files of which pages are held.
#[derive(Debug)]
pub struct HeldFiles {
    capacity: Capacity,
    page_bytes: u64,
    windows: BTreeMap<WindowKey, Window>,
    own: PageTables,
    charges: Charges,
    /// Sums over all windows.
    locked_pages: u64,
    areas: usize,
}

impl HeldFiles {
    /// None, to be held within this capacity; `own` are the page tables of this process.
    pub fn new(capacity: Capacity, own: PageTables, charges: Charges, page_bytes: u64) -> Self {
        HeldFiles { capacity, page_bytes, windows: BTreeMap::new(), own, charges, locked_pages: 0, areas: 0 }
    }

    /// From now on a test says who is charged.
    #[cfg(test)]
    pub fn charge(&mut self, charges: Charges) {
        self.charges = charges;
    }

    /// Holds within another capacity from now on. Where it is less than what is held, whole windows are let go.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
        while self.locked_pages * self.page_bytes > capacity.bytes_max || self.areas > capacity.areas_max {
            let Some(last) = self.windows.last_key_value().map(|(key, _)| *key) else { return };
            let _ = self.take(last);
        }
    }

    /// A refresh begins: what somebody is charged for whose memory is limited by now is let go.
    ///
    /// # Errors
    /// What the kernel says when it is asked who is charged. Nothing is held then of which that is not known.
    pub fn begin(&mut self, refresh: u64) -> io::Result<()> {
        self.charges.forget();
        let keys: Vec<WindowKey> = self.windows.keys().copied().collect();
        let mut outcome = Ok(());
        for key in keys {
            let doubtful = limited(&self.windows[&key], &mut self.charges);
            if !doubtful.is_empty()
                && let Some(mut window) = self.take(key)
            {
                // What a cgroup was charged for that has gone, those above it are.
                window.forget_owners(&doubtful);
                match window.ask_for_owners(&doubtful, &self.own, &self.charges) {
                    Ok(are_few) => self.refuse(&mut window, !are_few, refresh),
                    Err(error) => {
                        window.let_go(&doubtful);
                        outcome = Err(error);
                    }
                }
                if is_of_use(&window) {
                    self.put_back(key, window);
                }
            }
        }
        outcome
    }

    /// The pages of one part of a file that are held.
    pub fn held(&self, key: WindowKey) -> Option<&PageRanges> {
        self.windows.get(&key).map(Window::held)
    }

    /// Each file, with how many bytes of it are held.
    pub fn bytes(&self) -> BTreeMap<FileKey, u64> {
        let mut bytes = BTreeMap::new();
        for ((file, _), window) in &self.windows {
            *bytes.entry(*file).or_default() += window.held().pages() * self.page_bytes;
        }
        bytes
    }

    /// Whether anything is known of a part of a file: pages of it are held, or not to be held.
    pub fn has(&self, key: WindowKey) -> bool {
        self.windows.contains_key(&key)
    }

    /// What counts against the capacity, in bytes: with the gaps that are locked.
    pub fn locked_bytes(&self) -> u64 {
        self.locked_pages * self.page_bytes
    }

    /// The sums over all: bytes held, and areas of this process's address space.
    pub fn totals(&self) -> (u64, usize) {
        (self.windows.values().map(|window| window.held().pages() * self.page_bytes).sum(), self.areas)
    }

    /// Holds pages of one window of a file that are in memory, as far as there is room, and as nobody is charged for
    /// them whose memory is limited; returns for how many there was no room. `open` is asked for the file where it is
    /// not mapped yet as far as that. `refresh` is the number of this refresh.
    ///
    /// # Errors
    /// What opening, mapping or locking says.
    pub fn hold(
        &mut self,
        key: WindowKey,
        pages: &PageRanges,
        refresh: u64,
        open: impl FnOnce() -> io::Result<OpenFile>,
    ) -> io::Result<u64> {
        let is_looked_at = |window: &&Window| window.looked_at == refresh;
        if self.windows.get(&key).filter(is_looked_at).is_some_and(|window| window.settled.has_all(pages)) {
            return Ok(0);
        }
        let is_room = self.locked_pages * self.page_bytes < self.capacity.bytes_max;
        let end = pages.extent().end;
        let known = self.windows.get(&key).filter(|window| end <= window.extent().end);
        if known.is_none() {
            if !is_room || self.areas + 3 > self.capacity.areas_max {
                let had = self.windows.get(&key).map_or(0, |shorter| pages.common(shorter.locked()).pages());
                return Ok(pages.pages() - had);
            }
            self.map(key, end, refresh, open()?)?;
        }
        let Some(mut window) = self.take(key) else { return Ok(0) };
        let outcome = self.hold_in(&mut window, pages, refresh);
        if is_of_use(&window) {
            self.put_back(key, window);
        }
        outcome
    }

    /// Pages are mapped first, and locked when it is known who is charged for them: while they are only mapped, they
    /// can be taken.
    fn hold_in(&mut self, window: &mut Window, pages: &PageRanges, refresh: u64) -> io::Result<u64> {
        if window.looked_at != refresh {
            window.look(window.extent(), &mut self.own)?;
            window.settled = PageRanges::default();
            window.looked_at = refresh;
        }
        if refresh - window.refused_at >= REFUSED_REFRESHES {
            window.refused = PageRanges::default();
        }
        let wanted = window.resident(pages)?.minus(&window.refused);
        let fitting = self.fitting(window, &wanted);
        window.populate(&fitting.minus(window.mapped()), &mut self.own)?;
        let whole = window.locked().union(&fitting.common(window.mapped())).close_gaps(GAP_PAGES);
        let are_few = window.ask_for_owners(&whole, &self.own, &self.charges)?;
        self.refuse(window, !are_few, refresh);
        // Again, for of those that were to be locked some may have gone; and no gap has what is not to be held.
        let whole = window.locked().union(&fitting.common(window.mapped())).close_gaps(GAP_PAGES);
        let new = whole.minus(&window.refused).minus(window.locked());
        if !self.has_areas_for(&window.locked().union(&new)) {
            self.refuse(window, true, refresh);
            return Ok(0);
        }
        let outcome = window.lock(&new);
        if outcome.is_err() {
            window.let_go(&new);
        }
        // Around a page that is asked for the kernel maps others.
        window.let_go(&window.mapped().minus(window.locked()));
        outcome?;
        let unfitting_pages = wanted.minus(&fitting).pages();
        if unfitting_pages == 0 {
            window.settled = window.settled.union(pages);
        }
        Ok(unfitting_pages)
    }

    /// Lets go what is not to be held because of who is charged for it; all of the window where that is wanted, or
    /// where what is left would be in more pieces than there may be areas.
    fn refuse(&mut self, window: &mut Window, all: bool, refresh: u64) {
        let mut limited = limited(window, &mut self.charges);
        let left = window.locked().minus(&limited);
        if all || !self.has_areas_for(&left) {
            limited = PageRanges::of(window.extent());
        }
        if !limited.is_empty() {
            window.let_go(&limited);
            if window.refused.is_empty() {
                window.refused_at = refresh;
            }
            window.refused = window.refused.union(&limited);
        }
    }

    /// Whether there are as many areas as another window takes that has these pages locked.
    fn has_areas_for(&self, locked: &PageRanges) -> bool {
        self.areas + areas_of(locked) <= self.capacity.areas_max
    }

    /// As many of these pages, from the first on, as there is room for. Gaps that are locked with them count, so that
    /// what is held stays within the capacity whatever turns up in them.
    fn fitting(&self, window: &Window, pages: &PageRanges) -> PageRanges {
        let room = (self.capacity.bytes_max / self.page_bytes).saturating_sub(self.locked_pages);
        let mut fitting = pages.clone();
        while !fitting.is_empty() {
            let all = window.locked().union(&fitting).close_gaps(GAP_PAGES);
            if all.pages() <= room && self.has_areas_for(&all) {
                break;
            }
            // What is locked anyway costs nothing; of the rest half is tried, and half of that.
            let new = fitting.minus(window.locked());
            let had = fitting.common(window.locked());
            if new.is_empty() {
                break;
            }
            fitting = had.union(&new.first(new.pages() / 2));
        }
        fitting
    }

    /// Locks in one window nothing but these pages and small gaps between them.
    pub fn keep(&mut self, key: WindowKey, pages: &PageRanges) {
        let Some(mut window) = self.take(key) else { return };
        let unneeded = window.locked().minus(&pages.close_gaps(GAP_PAGES));
        window.let_go(&unneeded);
        window.settled = window.settled.common(pages);
        window.refused = window.refused.common(pages);
        if is_of_use(&window) {
            self.put_back(key, window);
        }
    }

    /// The pages of a window.
    pub fn extent_of(number: u64) -> Range<u64> {
        number * WINDOW_PAGES..(number + 1) * WINDOW_PAGES
    }

    /// Maps a window up to the file's end, or at least to `end`. One that was mapped while the file was shorter is
    /// replaced: what it had locked is locked in the new one first.
    fn map(&mut self, key: WindowKey, end: u64, refresh: u64, file: OpenFile) -> io::Result<()> {
        let whole = HeldFiles::extent_of(key.1);
        let extent = whole.start..whole.end.min(file.pages.max(end));
        let mut window = Window::map(&file.descriptor, extent, self.page_bytes)?;
        if let Some(shorter) = self.windows.get(&key).map(|shorter| shorter.held().clone()) {
            self.hold_in(&mut window, &shorter, refresh)?;
        }
        let _ = self.take(key);
        self.put_back(key, window);
        Ok(())
    }

    /// Takes a window out, and out of the sums.
    fn take(&mut self, key: WindowKey) -> Option<Window> {
        let window = self.windows.remove(&key)?;
        self.locked_pages -= window.locked().pages();
        self.areas -= window.areas();
        Some(window)
    }

    fn put_back(&mut self, key: WindowKey, window: Window) {
        self.locked_pages += window.locked().pages();
        self.areas += window.areas();
        self.windows.insert(key, window);
    }
}

/// Whether anything is known of it that is of use at the next refresh.
fn is_of_use(window: &Window) -> bool {
    !window.locked().is_empty() || !window.refused.is_empty()
}

/// The pages of which it is known that somebody is charged for them whose memory is limited.
fn limited(window: &Window, charges: &mut Charges) -> PageRanges {
    PageRanges::all_of(
        window.owners().filter(|(owner, _)| charges.is_limited(*owner)).map(|(_, pages)| pages),
    )
}

//! The multi-generational LRU of one cgroup (Documentation/admin-guide/mm/multigen_lru.rst): groups of pages in at most
//! four generations, those of programs and those of files apart.
//!
//! Where a group enters is `lru_gen_folio_seq()` of include/linux/mm_inline.h: mapped ones in the second youngest
//! generation, what is read through a file descriptor in the oldest. That a mapped group was used is seen when it is
//! looked at: by an ageing, or when its turn to be taken has come.

use std::collections::VecDeque;

use steward_core::memory::ageing::Generation;

/// Pages come in groups of this many bytes, which are used, taken and read together: the least that Steward takes.
pub const GROUP_BYTES: u64 = steward_core::memory::victims::PIECE_MIN_BYTES;

/// No more generations than this (`MAX_NR_GENS`), and no fewer than that (`MIN_NR_GENS`).
const GENERATIONS_MAX: u64 = 4;
const GENERATIONS_MIN: u64 = 2;

/// What is in a group of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program's own.
    Anonymous,
    /// A file's: it is there anew after a read.
    File,
}

/// Where a group of pages is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory.
    Resident,
    /// In memory, on its way into the swap.
    Writing,
    /// In the swap.
    Swapped,
    /// In its file alone.
    Absent,
}

/// A group of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// To which cgroup it is charged, or was when it was in memory.
    pub(super) cgroup: usize,
    /// When it was last used.
    pub(super) used_at_ns: Option<u64>,
    /// When it was last taken.
    pub(super) taken_at_ns: u64,
    /// Whether it was used since it was last looked at.
    pub(super) is_accessed: bool,
    /// Whether it was read through a file descriptor once and not used since: pages that Linux without generations has
    /// on its list of inactive files.
    is_read_once: bool,
    /// Grows whenever it moves: a place in a list with another stamp is no longer its own.
    pub(super) stamp: u32,
    generation: u64,
}

impl Group {
    pub(super) fn new(kind: Kind, place: Place, cgroup: usize, stamp: u32) -> Self {
        Group {
            kind,
            place,
            cgroup,
            used_at_ns: None,
            taken_at_ns: 0,
            is_accessed: false,
            is_read_once: false,
            stamp,
            generation: 0,
        }
    }
}

/// The groups of one kind, by generation.
#[derive(Clone, Debug, Default)]
struct Ages {
    oldest: u64,
    lists: [VecDeque<(u32, u32)>; GENERATIONS_MAX as usize],
    counts: [u64; GENERATIONS_MAX as usize],
}

fn slot(generation: u64) -> usize {
    (generation % GENERATIONS_MAX) as usize
}

/// The generations of one cgroup.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    newest: u64,
    opened_ns: [u64; GENERATIONS_MAX as usize],
    kinds: [Ages; 2],
    /// How many were read once and not used since.
    read_once: u64,
}

impl Lru {
    pub(super) fn new() -> Self {
        let kinds = [Ages::default(), Ages::default()];
        Lru { newest: GENERATIONS_MIN - 1, opened_ns: [0; 4], kinds, read_once: 0 }
    }

    /// One that a program has mapped, and uses.
    pub(super) fn add_mapped(&mut self, groups: &mut [Group], id: u32) {
        self.add(groups, id, self.newest - 1);
    }

    /// One that was read through a file descriptor.
    pub(super) fn add_read(&mut self, groups: &mut [Group], id: u32) {
        self.add(groups, id, 0);
        groups[id as usize].is_read_once = true;
        self.read_once += 1;
    }

    /// One that is there is used: it is none that was read but once.
    pub(super) fn note_use(&mut self, groups: &mut [Group], id: u32) {
        self.read_once -= u64::from(std::mem::take(&mut groups[id as usize].is_read_once));
    }

    /// How many were read once and not used since.
    pub(super) fn read_once(&self) -> u64 {
        self.read_once
    }

    /// Takes out the one of those whose turn it is.
    pub(super) fn take_read_once(&mut self, groups: &mut [Group]) -> Option<u32> {
        let ages = &self.kinds[Kind::File as usize];
        let lists = (ages.oldest..=self.newest).flat_map(|generation| ages.lists[slot(generation)].iter());
        let is_it = |(id, stamp): &&(u32, u32)| {
            let group = &groups[*id as usize];
            group.stamp == *stamp && group.is_read_once
        };
        let id = lists.filter(|_| self.read_once > 0).find(is_it)?.0;
        self.remove(groups, id);
        Some(id)
    }

    fn add(&mut self, groups: &mut [Group], id: u32, generation: u64) {
        let group = &mut groups[id as usize];
        let ages = &mut self.kinds[group.kind as usize];
        group.generation = generation.max(ages.oldest);
        group.stamp += 1;
        ages.lists[slot(group.generation)].push_back((id, group.stamp));
        ages.counts[slot(group.generation)] += 1;
    }

    pub(super) fn remove(&mut self, groups: &mut [Group], id: u32) {
        self.note_use(groups, id);
        let group = &mut groups[id as usize];
        let ages = &mut self.kinds[group.kind as usize];
        group.stamp += 1;
        ages.counts[slot(group.generation.max(ages.oldest))] -= 1;
    }

    /// How many groups of this kind there are.
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].counts.iter().sum()
    }

    /// The oldest generation in which there is one of this kind.
    pub(super) fn oldest(&self, kind: Kind) -> Option<u64> {
        let ages = &self.kinds[kind as usize];
        (ages.oldest..=self.newest).find(|generation| ages.counts[slot(*generation)] > 0)
    }

    /// Opens a generation, and moves there what was used since it was last looked at. Returns how many groups it
    /// looked at.
    pub(super) fn age(&mut self, now_ns: u64, groups: &mut [Group]) -> u64 {
        for ages in &mut self.kinds {
            if self.newest - ages.oldest + 1 == GENERATIONS_MAX {
                let mut merged = std::mem::take(&mut ages.lists[slot(ages.oldest)]);
                merged.append(&mut ages.lists[slot(ages.oldest + 1)]);
                ages.lists[slot(ages.oldest + 1)] = merged;
                ages.counts[slot(ages.oldest + 1)] += std::mem::take(&mut ages.counts[slot(ages.oldest)]);
                ages.oldest += 1;
            }
        }
        self.newest += 1;
        self.opened_ns[slot(self.newest)] = now_ns;
        let mut looked_at = 0;
        for kind in [Kind::Anonymous, Kind::File] {
            for generation in self.kinds[kind as usize].oldest..self.newest {
                let list = std::mem::take(&mut self.kinds[kind as usize].lists[slot(generation)]);
                let mut stays = VecDeque::with_capacity(list.len());
                for (id, stamp) in list {
                    let group = &mut groups[id as usize];
                    if group.stamp != stamp {
                        continue;
                    }
                    looked_at += 1;
                    if std::mem::take(&mut group.is_accessed) {
                        self.remove(groups, id);
                        self.add(groups, id, self.newest);
                    } else {
                        stays.push_back((id, stamp));
                    }
                }
                self.kinds[kind as usize].lists[slot(generation)] = stays;
            }
        }
        looked_at
    }

    /// Takes out the one of this kind whose turn it is: of the oldest generation, one that was not used since it was
    /// last looked at. The last generations but two are used up before a new one is opened.
    pub(super) fn take(&mut self, now_ns: u64, groups: &mut [Group], kind: Kind) -> Option<u32> {
        while self.count(kind) > 0 {
            let oldest = self.kinds[kind as usize].oldest;
            let Some((id, stamp)) = self.kinds[kind as usize].lists[slot(oldest)].pop_front() else {
                if self.newest - oldest + 1 > GENERATIONS_MIN {
                    self.kinds[kind as usize].oldest += 1;
                } else {
                    self.age(now_ns, groups);
                }
                continue;
            };
            let group = &mut groups[id as usize];
            if group.stamp != stamp {
                continue;
            }
            let is_accessed = std::mem::take(&mut group.is_accessed);
            self.remove(groups, id);
            if !is_accessed {
                return Some(id);
            }
            self.add(groups, id, self.newest);
        }
        None
    }

    /// Takes out the one of this kind whose turn it is, from generations up to this one alone: `run_eviction()` of
    /// mm/vmscan.c. What was used since it was last looked at is moved to the youngest, and no generation is opened.
    pub(super) fn evict(&mut self, groups: &mut [Group], kind: Kind, up_to: u64) -> Option<u32> {
        if up_to + GENERATIONS_MIN > self.newest {
            return None;
        }
        while self.kinds[kind as usize].oldest <= up_to {
            let oldest = self.kinds[kind as usize].oldest;
            let Some((id, stamp)) = self.kinds[kind as usize].lists[slot(oldest)].pop_front() else {
                self.kinds[kind as usize].oldest += 1;
                continue;
            };
            if groups[id as usize].stamp != stamp {
                continue;
            }
            let is_accessed = std::mem::take(&mut groups[id as usize].is_accessed);
            self.remove(groups, id);
            if !is_accessed {
                return Some(id);
            }
            self.add(groups, id, self.newest);
        }
        None
    }

    /// The number of the youngest generation.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// What can be read of it: oldest first.
    pub(super) fn generations(&self, now_ns: u64) -> Vec<Generation> {
        let oldest = self.kinds.iter().map(|ages| ages.oldest).min().unwrap_or(0);
        let bytes_of = |kind: Kind, generation: u64| {
            let ages = &self.kinds[kind as usize];
            if generation < ages.oldest { 0 } else { GROUP_BYTES * ages.counts[slot(generation)] }
        };
        let read = |generation: u64| Generation {
            age_ns: now_ns.saturating_sub(self.opened_ns[slot(generation)]),
            anonymous_bytes: bytes_of(Kind::Anonymous, generation),
            file_bytes: bytes_of(Kind::File, generation),
        };
        (oldest..=self.newest).map(read).collect()
    }
}

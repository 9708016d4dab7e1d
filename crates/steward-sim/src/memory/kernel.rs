//! What a stock kernel does with memory: it charges who touches first, takes memory in the background and from those
//! who allocate, and does not take what `memory.min` protects.

use super::event::Event;
use super::lru::{GROUP_BYTES, Group, Kind, Lru, Place};
use super::measure::Counts;
use super::scenario::MachineSettings;
use crate::events::Events;
use crate::random::Random;

/// How long it takes to take a group of a file, which is clean.
pub(super) const FILE_TAKE_NS: u64 = 10_000;

/// A device that serves one request after the other.
#[derive(Clone, Debug)]
struct Device {
    service_ns: u64,
    busy_until_ns: u64,
}

impl Device {
    /// Takes a request; returns when it is done.
    fn submit(&mut self, now_ns: u64) -> u64 {
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + self.service_ns;
        self.busy_until_ns
    }
}

/// What the kernel knows of a domain. Its pages are its own programs', without those of domains below it.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    pub(super) lru: Lru,
    /// On their way into the swap, and charged until they are there.
    pub(super) writing: u64,
    pub(super) swapped: u64,
    /// `memory.min`.
    pub(super) min_bytes: u64,
    /// `memory.swap.max`, in groups.
    pub(super) swap_max: Option<u64>,
    /// Since when it is protected by Steward, and for which period: for the counts only.
    pub(super) protected: Option<(u64, u64)>,
    pub(super) counts: Counts,
}

impl Cgroup {
    /// What it is charged, in bytes.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.staying_bytes() + GROUP_BYTES * self.writing
    }

    /// How many groups more of it may be swapped out.
    fn swap_left(&self) -> u64 {
        self.swap_max.map_or(u64::MAX, |most| most.saturating_sub(self.swapped + self.writing))
    }

    /// What is charged to it and not on its way out.
    fn staying_bytes(&self) -> u64 {
        GROUP_BYTES * (self.lru.count(Kind::Anonymous) + self.lru.count(Kind::File))
    }
}

/// What came of the use of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Used {
    /// It was there.
    Hit,
    /// It is there from this moment on.
    Read(u64),
    /// No memory was free; it is worth another try at this moment.
    Blocked(u64),
    /// There is nothing that could be taken.
    Nothing,
}

/// The kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) settings: MachineSettings,
    pub(super) events: Events<Event>,
    pub(super) groups: Vec<Group>,
    unused: Vec<u32>,
    pub(super) cgroups: Vec<Cgroup>,
    free: u64,
    swap_free: u64,
    /// Groups on their way into the swap.
    writing: u64,
    swap: Device,
    disk: Device,
    is_reclaiming: bool,
    random: Random,
    pub(super) direct_reclaims: u64,
}

impl Kernel {
    pub(super) fn new(settings: &MachineSettings, minima: &[u64], random: Random) -> Self {
        let cgroup = |min_bytes: &u64| Cgroup {
            lru: Lru::new(),
            writing: 0,
            swapped: 0,
            min_bytes: *min_bytes,
            swap_max: None,
            protected: None,
            counts: Counts::default(),
        };
        Kernel {
            events: Events::default(),
            groups: Vec::new(),
            unused: Vec::new(),
            cgroups: minima.iter().map(cgroup).collect(),
            free: (settings.total_bytes - settings.kernel_bytes) / GROUP_BYTES,
            swap_free: settings.swap_bytes / GROUP_BYTES,
            writing: 0,
            swap: Device { service_ns: settings.swap_ns, busy_until_ns: 0 },
            disk: Device { service_ns: settings.disk_ns, busy_until_ns: 0 },
            is_reclaiming: false,
            random,
            direct_reclaims: 0,
            settings: settings.clone(),
        }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free * GROUP_BYTES
    }

    pub(super) fn swap_free_bytes(&self) -> u64 {
        self.swap_free * GROUP_BYTES
    }

    /// How much more of a cgroup may be swapped out, in bytes; `None` where it has no limit.
    pub(super) fn swap_left_bytes(&self, place: usize) -> Option<u64> {
        let cgroup = &self.cgroups[place];
        cgroup.swap_max.map(|_| cgroup.swap_left() * GROUP_BYTES)
    }

    /// What could be taken of this kind, in bytes.
    pub(super) fn resident_bytes(&self, kind: Kind) -> u64 {
        GROUP_BYTES * self.cgroups.iter().map(|cgroup| cgroup.lru.count(kind)).sum::<u64>()
    }

    /// A group that nothing is in yet.
    pub(super) fn make(&mut self, kind: Kind, cgroup: usize) -> u32 {
        match self.unused.pop() {
            Some(id) => {
                let stamp = self.groups[id as usize].stamp;
                self.groups[id as usize] = Group::new(kind, Place::Absent, cgroup, stamp);
                id
            }
            None => {
                self.groups.push(Group::new(kind, Place::Absent, cgroup, 0));
                u32::try_from(self.groups.len() - 1).expect("a machine has fewer groups")
            }
        }
    }

    /// Nobody wants this any more.
    pub(super) fn discard(&mut self, id: u32) {
        let group = self.groups[id as usize];
        let cgroup = &mut self.cgroups[group.cgroup];
        match group.place {
            Place::Resident => {
                cgroup.lru.remove(&mut self.groups, id);
                self.free += 1;
            }
            Place::Writing => {
                cgroup.writing -= 1;
                self.free += 1;
                self.swap_free += 1;
            }
            Place::Swapped => {
                cgroup.swapped -= 1;
                self.swap_free += 1;
            }
            Place::Absent => {}
        }
        self.groups[id as usize].stamp += 1;
        self.unused.push(id);
    }

    /// A program of this cgroup uses a group: one that it has mapped, or one that it reads.
    pub(super) fn use_group(&mut self, now_ns: u64, cgroup: usize, id: u32, is_mapped: bool) -> Used {
        let group = self.groups[id as usize];
        let used = match group.place {
            Place::Resident => {
                self.cgroups[group.cgroup].lru.note_use(&mut self.groups, id);
                Used::Hit
            }
            Place::Writing => {
                // What was written is of no use, and what it was written for waits for another.
                self.cgroups[group.cgroup].writing -= 1;
                self.swap_free += 1;
                self.cgroups[group.cgroup].lru.add_mapped(&mut self.groups, id);
                Used::Hit
            }
            Place::Swapped | Place::Absent => match self.allocate(now_ns) {
                Used::Hit => self.bring(now_ns, cgroup, id, is_mapped),
                not_yet => return not_yet,
            },
        };
        let group = &mut self.groups[id as usize];
        group.place = Place::Resident;
        group.used_at_ns = Some(now_ns);
        group.is_accessed |= is_mapped;
        used
    }

    /// Fills memory that was allocated for it.
    fn bring(&mut self, now_ns: u64, cgroup: usize, id: u32, is_mapped: bool) -> Used {
        let group = self.groups[id as usize];
        self.count_fault(now_ns, &group);
        let used = match (group.place, group.kind) {
            (Place::Swapped, _) => {
                self.cgroups[group.cgroup].swapped -= 1;
                self.swap_free += 1;
                Used::Read(self.swap.submit(now_ns))
            }
            (_, Kind::File) => Used::Read(self.disk.submit(now_ns)),
            (_, Kind::Anonymous) => Used::Hit,
        };
        self.groups[id as usize].cgroup = cgroup;
        let lru = &mut self.cgroups[cgroup].lru;
        if is_mapped {
            lru.add_mapped(&mut self.groups, id);
        } else {
            lru.add_read(&mut self.groups, id);
        }
        used
    }

    /// Whether it is read again within the period of the domain from which it was taken while that was protected.
    fn count_fault(&mut self, now_ns: u64, group: &Group) {
        let cgroup = &mut self.cgroups[group.cgroup];
        let Some(used_at_ns) = group.used_at_ns else { return };
        cgroup.counts.faults += 1;
        cgroup.counts.faults_of_files += u64::from(group.kind == Kind::File);
        if let Some((since_ns, period_ns)) = cgroup.protected
            && group.taken_at_ns >= since_ns
            && now_ns.saturating_sub(used_at_ns) < period_ns
        {
            cgroup.counts.faults_within_period_count += 1;
        }
    }

    /// One group of free memory.
    fn allocate(&mut self, now_ns: u64) -> Used {
        while self.free_bytes() <= self.settings.min_watermark_bytes {
            self.direct_reclaims += 1;
            match self.take_from_any(now_ns) {
                // A page of a file is free at once.
                Some(done_ns) if done_ns <= now_ns + FILE_TAKE_NS => {}
                Some(done_ns) => return Used::Blocked(done_ns),
                None if self.writing > 0 => return Used::Blocked(self.swap.busy_until_ns.max(now_ns + 1)),
                None => return Used::Nothing,
            }
        }
        self.free -= 1;
        if self.free_bytes() < self.settings.low_watermark_bytes && !self.is_reclaiming {
            self.is_reclaiming = true;
            self.events.push(now_ns, Event::Reclaim);
        }
        Used::Hit
    }

    /// Background reclaim takes the next group.
    pub(super) fn reclaim(&mut self, now_ns: u64) {
        self.is_reclaiming = false;
        if self.free_bytes() >= self.settings.high_watermark_bytes {
            return;
        }
        if let Some(done_ns) = self.take_from_any(now_ns) {
            self.is_reclaiming = true;
            self.events.push(done_ns, Event::Reclaim);
        }
    }

    /// Takes a group from somebody, in proportion to what is not protected. Returns when it is free.
    fn take_from_any(&mut self, now_ns: u64) -> Option<u64> {
        let of = |cgroup: &Cgroup| {
            let bytes = cgroup.staying_bytes().saturating_sub(cgroup.min_bytes) / GROUP_BYTES;
            if self.kind_to_take(cgroup).is_some() { bytes } else { 0 }
        };
        let unprotected: Vec<u64> = self.cgroups.iter().map(of).collect();
        let all: u64 = unprotected.iter().sum();
        let mut left = (self.random.fraction() * all as f64) as u64;
        let place = unprotected.iter().position(|groups| {
            let is_it = left < *groups;
            left = left.saturating_sub(*groups);
            is_it
        })?;
        self.take_from(now_ns, place)
    }

    /// Takes a group from this cgroup, as `memory.reclaim` does: its own minimum does not hold. Returns when it is
    /// free.
    pub(super) fn take_from(&mut self, now_ns: u64, place: usize) -> Option<u64> {
        let kind = self.kind_to_take(&self.cgroups[place])?;
        let id = self.cgroups[place].lru.take(now_ns, &mut self.groups, kind)?;
        Some(self.taken(now_ns, place, id))
    }

    /// The same, of generations up to this one alone, as the command `-` of `lru_gen` does.
    pub(super) fn evict_from(&mut self, now_ns: u64, place: usize, up_to: u64) -> Option<u64> {
        let has_room = self.swap_free.min(self.cgroups[place].swap_left()) > 0;
        for kind in [Kind::File, Kind::Anonymous] {
            if kind == Kind::Anonymous && !has_room {
                continue;
            }
            if let Some(id) = self.cgroups[place].lru.evict(&mut self.groups, kind, up_to) {
                return Some(self.taken(now_ns, place, id));
            }
        }
        None
    }

    /// The same, of files that were read once and not used since alone, as `memory.reclaim` does with a `swappiness` of
    /// 0 as long as there are such.
    pub(super) fn take_read_once_from(&mut self, now_ns: u64, place: usize) -> Option<u64> {
        let id = self.cgroups[place].lru.take_read_once(&mut self.groups)?;
        Some(self.taken(now_ns, place, id))
    }

    /// A group has been taken out of its list. Returns when it is free.
    fn taken(&mut self, now_ns: u64, place: usize, id: u32) -> u64 {
        let kind = self.groups[id as usize].kind;
        let cgroup = &mut self.cgroups[place];
        let group = &mut self.groups[id as usize];
        group.taken_at_ns = now_ns;
        let used_at_ns = group.used_at_ns.unwrap_or(0);
        if let Some((_, period_ns)) = cgroup.protected
            && now_ns.saturating_sub(used_at_ns) < period_ns
            && cgroup.staying_bytes() < cgroup.min_bytes
        {
            cgroup.counts.taken_below_min += 1;
        }
        if kind == Kind::File {
            group.place = Place::Absent;
            self.free += 1;
            return now_ns + FILE_TAKE_NS;
        }
        group.place = Place::Writing;
        cgroup.writing += 1;
        self.writing += 1;
        self.swap_free -= 1;
        let done_ns = self.swap.submit(now_ns);
        self.events.push(done_ns, Event::Written { group: id, stamp: group.stamp });
        done_ns
    }

    /// The kind of which the oldest is older; of equals a file, which costs less.
    fn kind_to_take(&self, cgroup: &Cgroup) -> Option<Kind> {
        let file = cgroup.lru.oldest(Kind::File);
        let has_room = self.swap_free.min(cgroup.swap_left()) > 0;
        let anonymous = cgroup.lru.oldest(Kind::Anonymous).filter(|_| has_room);
        match (file, anonymous) {
            (Some(file), Some(anonymous)) if anonymous < file => Some(Kind::Anonymous),
            (Some(_), _) => Some(Kind::File),
            (None, Some(_)) => Some(Kind::Anonymous),
            (None, None) => None,
        }
    }

    /// A group is in the swap.
    pub(super) fn written(&mut self, id: u32, stamp: u32) {
        self.writing -= 1;
        let group = &mut self.groups[id as usize];
        if group.stamp == stamp && group.place == Place::Writing {
            group.place = Place::Swapped;
            let cgroup = &mut self.cgroups[group.cgroup];
            cgroup.writing -= 1;
            cgroup.swapped += 1;
            self.free += 1;
        }
    }

    /// Ages the pages of a cgroup; returns how many groups it looked at.
    pub(super) fn age(&mut self, now_ns: u64, place: usize) -> u64 {
        self.cgroups[place].lru.age(now_ns, &mut self.groups)
    }
}

//! The tree of cgroups, kept: it is read once, and from then on looked at where the kernel tells that it has changed.
//!
//! Whoever is given a part of the tree can make cgroups in it without number and change them without end, and nobody
//! else is answered while it is looked at. So that is done in pieces: what is to be looked at stands in a list, each
//! look is at one cgroup, and a piece is some of them. A list is worked off before what has changed meanwhile becomes
//! the next one, so that it comes to an end however fast the tree changes. A look is at what is there now, whatever was
//! told: one that has vanished meanwhile, or been made anew under its name, is found so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use steward_kernel::cgroup::changes::{CgroupChanges, Change};
use steward_kernel::cgroup::reading::CpuShare;
use steward_kernel::cgroup::tree::{BELOW_MAX, Cgroup, DEPTH_MAX};

use super::cgroups::Cgroups;
use crate::turn::clock::{cpu_time_ns, now_ns};

/// How long a piece goes on, in nanoseconds; the look that is in hand then is finished.
const PIECE_NS: u64 = 2_000_000;
/// How many looks a piece is at least, so that it is one also where each takes long.
const LOOKS_MIN: usize = 6;
/// How many changes wait to be looked at; beyond them everything is looked at anew.
const CHANGES_MAX: usize = 4096;
/// While nobody waits for it, looking takes one part in so many of a CPU.
const REST_TIMES: u64 = 10;
/// How often what is told of changes is taken in although nobody asks, in nanoseconds.
const TAKE_IN_EVERY_NS: u64 = 1_000_000_000;
/// How long ago everything was looked at for it to be looked at again although nothing was told, in nanoseconds.
const ANEW_AFTER_NS: u64 = 30_000_000_000;

/// One cgroup, as it was seen last.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) path: Arc<str>,
    pub(crate) cgroup_id: u64,
    /// 0 for the root.
    pub(crate) parent_id: u64,
    /// The user that its directory belongs to.
    pub(crate) uid: u32,
    /// What it was given of the CPU.
    pub(crate) share: CpuShare,
    pub(crate) is_frozen: bool,
    /// Those directly below it, by name.
    children: BTreeMap<Box<str>, u64>,
    /// How far it is from the root.
    depth: usize,
    /// How many there are below it.
    below: usize,
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    /// Who has this name below that one.
    Entry(u64, String),
    /// What one was given, and whose it is.
    Settings(u64),
    /// What those directly below one were given.
    SettingsBelow(u64),
    /// Who is below one; `again` those too that are known, with all below them.
    Below { id: u64, again: bool },
}

impl Look {
    /// At what has changed; `None` where that may be anything.
    fn at(change: Change) -> Option<Self> {
        match change {
            Change::Entry(parent_id, name) => Some(Look::Entry(parent_id, name)),
            Change::Settings(id) => Some(Look::Settings(id)),
            Change::SettingsBelow(id) => Some(Look::SettingsBelow(id)),
            Change::Anything => None,
        }
    }
}

/// All cgroups, and what is to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    seen: HashMap<u64, Seen>,
    root_id: Option<u64>,
    /// Tells of changes; `None` where nobody does.
    changes: Option<CgroupChanges>,
    /// What is to be looked at, last first, of what had changed when that was begun.
    looks: Vec<Look>,
    begun_at_ns: u64,
    /// What has changed since.
    changed: HashSet<Change>,
    /// Everything is to be looked at.
    all_changed: bool,
    /// What changed until then is known.
    whole_at_ns: Option<u64>,
    /// What is to be looked at again although nothing was told of it, last first; and when that was begun.
    anew: Vec<Look>,
    anew_at_ns: u64,
    /// Whether somebody has asked since.
    is_asked_for: bool,
    taken_in_at_ns: u64,
    rest_until_ns: u64,
    /// Counts what was found to be different.
    revision: u64,
}

impl Survey {
    /// From now on changes are told of by this.
    pub(crate) fn watch(&mut self, changes: Option<CgroupChanges>) {
        self.changes = changes;
        self.all_changed = true;
    }

    /// A number that changes when something is found to be different.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether all that changed before this moment is known.
    pub(crate) fn is_whole_since(&self, at_ns: u64) -> bool {
        self.whole_at_ns.is_some_and(|whole_at_ns| whole_at_ns >= at_ns)
    }

    /// Whether everything was looked at once.
    pub(crate) fn was_whole(&self) -> bool {
        self.whole_at_ns.is_some()
    }

    /// The cgroup with this id.
    pub(crate) fn get(&self, cgroup_id: u64) -> Option<&Seen> {
        self.seen.get(&cgroup_id)
    }

    /// All cgroups, parents before children and each followed by all below it, those of one parent by name.
    pub(crate) fn all(&self) -> Vec<&Seen> {
        let mut all = Vec::with_capacity(self.seen.len());
        let mut next: Vec<u64> = self.root_id.into_iter().collect();
        while let Some(seen) = next.pop().and_then(|id| self.seen.get(&id)) {
            all.push(seen);
            next.extend(seen.children.values().rev());
        }
        all
    }

    /// Looks at some of what has changed, for somebody who asks. `cgroups` is `None` where there are none.
    pub(crate) fn go_on(&mut self, cgroups: Option<&dyn Cgroups>) {
        self.is_asked_for = true;
        self.make_piece(cgroups);
    }

    fn make_piece(&mut self, cgroups: Option<&dyn Cgroups>) {
        let now = now_ns();
        self.take_in(now);
        if self.looks.is_empty() {
            self.begin(now, cgroups);
        }
        self.work_off(cgroups);
        if self.looks.is_empty() {
            self.whole_at_ns = Some(self.begun_at_ns);
        }
    }

    fn work_off(&mut self, cgroups: Option<&dyn Cgroups>) {
        let Some(cgroups) = cgroups else { return };
        let begun_ns = now_ns();
        let mut done = 0;
        while let Some(look) = self.looks.pop() {
            self.look(look, cgroups);
            done += 1;
            if done >= LOOKS_MIN && now_ns().saturating_sub(begun_ns) >= PIECE_NS {
                break;
            }
        }
    }

    /// To be called often: takes in what is told of changes and looks at some of it, now and then.
    pub(crate) fn go_on_at_rest(&mut self, cgroups: Option<&dyn Cgroups>, now_ns: u64) {
        if self.changes.is_none() {
            return;
        }
        if now_ns.saturating_sub(self.taken_in_at_ns) >= TAKE_IN_EVERY_NS {
            self.take_in(now_ns);
        }
        let is_old = now_ns.saturating_sub(self.anew_at_ns) >= ANEW_AFTER_NS;
        if let Some(id) = self.root_id.filter(|_| is_old && self.is_asked_for && self.anew.is_empty()) {
            self.anew = vec![Look::Below { id, again: true }];
            (self.anew_at_ns, self.is_asked_for) = (now_ns, false);
        }
        if now_ns < self.rest_until_ns || !(self.has_work() || !self.anew.is_empty()) {
            return;
        }
        let begun_ns = cpu_time_ns();
        if self.has_work() {
            self.make_piece(cgroups);
        } else {
            std::mem::swap(&mut self.looks, &mut self.anew);
            self.work_off(cgroups);
            std::mem::swap(&mut self.looks, &mut self.anew);
        }
        let cost_ns = cpu_time_ns().saturating_sub(begun_ns);
        self.rest_until_ns = now_ns.saturating_add(cost_ns.saturating_mul(REST_TIMES));
    }

    /// When [`Survey::go_on_at_rest`] has something to do that nothing else announces.
    pub(crate) fn wake_at_ns(&self) -> Option<u64> {
        let has_work = self.has_work() || !self.anew.is_empty();
        (self.changes.is_some() && has_work).then_some(self.rest_until_ns)
    }

    /// Looks at one at once, and all above it, without waiting for its turn.
    pub(crate) fn look_at(&mut self, path: &str, cgroups: &dyn Cgroups) {
        let Some(mut parent_id) = self.root_id else { return };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            self.look_at_entry(parent_id, name, cgroups);
            let child = self.seen.get(&parent_id).and_then(|parent| parent.children.get(name));
            let Some(child) = child else { return };
            parent_id = *child;
        }
    }

    fn has_work(&self) -> bool {
        !self.looks.is_empty() || !self.changed.is_empty() || self.all_changed
    }

    fn take_in(&mut self, now_ns: u64) {
        self.taken_in_at_ns = now_ns;
        let Survey { changes, changed, all_changed, .. } = self;
        let Some(changes) = changes else { return };
        changes.take(&mut |change| match change {
            Change::Anything => *all_changed = true,
            // Nothing is to be remembered while everything is to be looked at anyway.
            change if !*all_changed => {
                changed.insert(change);
                *all_changed = changed.len() > CHANGES_MAX;
            }
            _ => {}
        });
        if *all_changed {
            changed.clear();
        }
    }

    /// What has changed is what is to be looked at now.
    fn begin(&mut self, now_ns: u64, cgroups: Option<&dyn Cgroups>) {
        self.begun_at_ns = now_ns;
        if !self.all_changed && self.changes.is_some() {
            self.looks = self.changed.drain().filter_map(Look::at).collect();
            return;
        }
        self.changed.clear();
        self.anew.clear();
        (self.all_changed, self.anew_at_ns, self.is_asked_for) = (false, now_ns, false);
        let root = cgroups.and_then(|cgroups| cgroups.find("").ok());
        if self.root_id != root.as_ref().map(|root| root.id) {
            self.seen.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.remove(id));
            self.root_id = None;
        }
        let (Some(root), Some(cgroups)) = (root, cgroups) else { return };
        let id = root.id;
        if self.root_id.is_none() {
            self.root_id = Some(id);
            self.add(root, 0, cgroups);
        }
        self.looks = vec![Look::Below { id, again: true }, Look::Settings(id)];
    }

    fn look(&mut self, look: Look, cgroups: &dyn Cgroups) {
        match look {
            Look::Entry(parent_id, name) => self.look_at_entry(parent_id, &name, cgroups),
            Look::Settings(id) => self.look_at_settings(id, cgroups),
            Look::SettingsBelow(id) => {
                let children = self.seen.get(&id).into_iter().flat_map(|seen| seen.children.values());
                self.looks.extend(children.map(|id| Look::Settings(*id)));
            }
            Look::Below { id, again } => self.look_below(id, again, cgroups),
        }
    }

    fn look_at_entry(&mut self, parent_id: u64, name: &str, cgroups: &dyn Cgroups) {
        let Some(parent) = self.seen.get(&parent_id) else { return };
        let known = parent.children.get(name).copied();
        let path = if parent.path.is_empty() { name.to_owned() } else { format!("{}/{name}", parent.path) };
        let found = cgroups.find(&path).ok();
        if let Some(known) = known.filter(|known| found.as_ref().is_none_or(|found| found.id != *known)) {
            self.remove(known);
        }
        let Some(found) = found else { return };
        if known == Some(found.id) {
            self.note_owner(&found);
            return;
        }
        self.remove(found.id);
        if self.room_below(parent_id) > 0 {
            self.add(found, parent_id, cgroups);
        }
    }

    fn look_below(&mut self, id: u64, again: bool, cgroups: &dyn Cgroups) {
        let Some(seen) = self.seen.get(&id) else { return };
        let names_max = if seen.depth == 0 { usize::MAX } else { BELOW_MAX[0] };
        let Ok(found) = cgroups.names_below(&seen.path, names_max) else {
            // It has gone, which is found by its name.
            self.looks.extend(self.entry_of(id));
            return;
        };
        let mut room = self.room_below(id);
        let Some(seen) = self.seen.get(&id) else { return };
        let mut looks = Vec::new();
        let mut known = seen.children.clone();
        for (name, child) in found {
            if known.remove(name.as_str()) == Some(child) {
                if again {
                    looks.extend([Look::Below { id: child, again }, Look::Settings(child)]);
                }
            } else if room > 0 {
                room -= 1;
                looks.push(Look::Entry(id, name));
            }
        }
        looks.extend(known.into_keys().map(|name| Look::Entry(id, name.into_string())));
        self.looks.append(&mut looks);
    }

    fn look_at_settings(&mut self, id: u64, cgroups: &dyn Cgroups) {
        let Some(seen) = self.seen.get(&id) else { return };
        match cgroups.find(&seen.path) {
            Ok(found) if found.id == id => self.note_owner(&found),
            _ => {
                self.looks.extend(self.entry_of(id));
                return;
            }
        }
        self.read_settings(id, cgroups);
    }

    /// The look by its name at one that may have gone.
    fn entry_of(&self, id: u64) -> Option<Look> {
        let seen = self.seen.get(&id).filter(|seen| seen.parent_id != 0)?;
        let name = seen.path.rsplit('/').next()?;
        Some(Look::Entry(seen.parent_id, name.to_owned()))
    }

    fn note_owner(&mut self, found: &Cgroup) {
        if let Some(seen) = self.seen.get_mut(&found.id).filter(|seen| seen.uid != found.uid) {
            seen.uid = found.uid;
            self.revision += 1;
        }
    }

    fn read_settings(&mut self, id: u64, cgroups: &dyn Cgroups) {
        let Some(seen) = self.seen.get_mut(&id) else { return };
        let share = cgroups.cpu_share(&seen.path);
        let is_frozen = cgroups.is_frozen(&seen.path).unwrap_or(false);
        if (&share, is_frozen) != (&seen.share, seen.is_frozen) {
            (seen.share, seen.is_frozen) = (share, is_frozen);
            self.revision += 1;
        }
    }

    /// How many more there may be below one.
    fn room_below(&self, id: u64) -> usize {
        let Some(seen) = self.seen.get(&id).filter(|seen| seen.depth < DEPTH_MAX) else { return 0 };
        let above = std::iter::successors(Some(seen), |seen| self.seen.get(&seen.parent_id));
        let room = |seen: &Seen| match seen.depth {
            0 => usize::MAX,
            depth => BELOW_MAX[(depth - 1).min(BELOW_MAX.len() - 1)].saturating_sub(seen.below),
        };
        above.map(room).min().unwrap_or(0)
    }

    fn add(&mut self, found: Cgroup, parent_id: u64, cgroups: &dyn Cgroups) {
        // First, so that what is made in it while it is looked at is told.
        match self.changes.as_mut().map(|changes| changes.watch(&found)) {
            Some(Ok(false)) => return,
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot watch all cgroups: they are looked at anew whenever somebody asks for forecasts");
                self.changes = None;
            }
            Some(Ok(true)) | None => {}
        }
        let name = found.path.rsplit('/').next().unwrap_or_default();
        let depth = self.seen.get(&parent_id).map_or(0, |parent| parent.depth + 1);
        if let Some(parent) = self.seen.get_mut(&parent_id) {
            parent.children.insert(name.into(), found.id);
        }
        self.count(parent_id, |below| below + 1);
        let Cgroup { path, id, uid } = found;
        let seen = Seen {
            path: path.into(),
            cgroup_id: id,
            parent_id,
            uid,
            share: CpuShare::default(),
            is_frozen: false,
            children: BTreeMap::new(),
            depth,
            below: 0,
        };
        self.seen.insert(id, seen);
        self.revision += 1;
        self.read_settings(id, cgroups);
        if depth > 0 {
            self.looks.push(Look::Below { id, again: false });
        }
    }

    /// Forgets one with all below it.
    fn remove(&mut self, id: u64) {
        let Some(seen) = self.seen.get(&id) else { return };
        let (parent_id, count) = (seen.parent_id, seen.below + 1);
        let name: Box<str> = seen.path.rsplit('/').next().unwrap_or_default().into();
        self.count(parent_id, |below| below.saturating_sub(count));
        if let Some(parent) = self.seen.get_mut(&parent_id)
            && parent.children.get(&name) == Some(&id)
        {
            parent.children.remove(&name);
        }
        let mut gone = vec![id];
        while let Some(id) = gone.pop() {
            gone.extend(self.seen.remove(&id).into_iter().flat_map(|seen| seen.children.into_values()));
            if let Some(changes) = &mut self.changes {
                changes.forget(id);
            }
        }
        self.revision += 1;
    }

    /// Changes how many are below this one, and below all above it.
    fn count(&mut self, id: u64, change: impl Fn(usize) -> usize) {
        let mut at = id;
        while let Some(seen) = self.seen.get_mut(&at) {
            seen.below = change(seen.below);
            at = seen.parent_id;
        }
    }
}

#[cfg(test)]
mod tests;

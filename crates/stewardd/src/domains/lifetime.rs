//! How domains end by themselves, and how they outlive a daemon.
//!
//! A domain that Steward made goes when its last process has gone, or when none came within a minute, unless it was
//! made to stay or is declared in a file. One whose cgroup somebody else removed is noticed within a second, and so is
//! a root that hands out the CPU no longer: systemd has it cease to when it reads its files again and none of its units
//! asks for the CPU. Across a restart of the daemon within one boot, domains are what they were. When the daemon stops,
//! the cgroups of empty domains are removed, and those with processes stay as plain cgroups: nobody is moved, and
//! without the scheduler all have the same weight.

use std::ops::Bound;

use libsteward::api;
use steward_core::domain::name;
use steward_core::resource::Resource;

use super::{Asker, Domains, Held};
use crate::cpu::mechanisms::InForce;

/// How long a domain waits for its first process, in nanoseconds.
pub const UNUSED_NS: u64 = 60_000_000_000;
/// How often domains are looked at whether they are still there, in nanoseconds.
const CHECK_EVERY_NS: u64 = 1_000_000_000;
/// How many are looked at each time; the next ones then follow.
const CHECK_AT_ONCE: usize = 256;

impl Domains {
    /// Takes over what an earlier daemon of this boot kept. A domain that was made to stay, or has not been used yet,
    /// is made again if its cgroup is gone; any other whose cgroup is not the one that it was is dropped.
    pub fn restore(&mut self, saved: Vec<Held>) {
        for held in saved {
            let path = held.path.clone();
            let Ok(cgroups) = self.cgroups() else { return };
            let id = cgroups.find(&path).ok().map(|cgroup| cgroup.id);
            if id == Some(held.cgroup_id) {
                self.take_over(held);
            } else if held.made && (held.keep || !held.used) {
                match self.make_cgroup(&path) {
                    Ok(cgroup_id) => self.take_over(Held { cgroup_id, leaf: false, ..held }),
                    Err(error) => tracing::warn!(%error, "a domain of an earlier daemon is not made again"),
                }
            } else {
                tracing::info!(decision = "domain-dropped", domain = path, "its cgroup is gone");
                self.changed = true;
            }
        }
    }

    fn take_over(&mut self, held: Held) {
        let path = held.path.clone();
        let made = held.made;
        self.held.insert(path.clone(), held);
        if made && let Err(error) = self.watch(&path) {
            tracing::warn!(%error, "a domain does not end by itself");
        }
    }

    /// To be called at least once a second, and when the descriptor is readable, which is what `announced` says.
    /// Returns whether what domains are to have had been lost: it was given anew.
    pub fn tick(&mut self, now_ns: u64, announced: bool, mechanism: &mut InForce) -> bool {
        let Ok(cgroups) = &mut self.cgroups else { return false };
        let is_due = announced || now_ns.saturating_sub(self.looked_at_ns) >= CHECK_EVERY_NS;
        let changes = if is_due { cgroups.take_changes() } else { Vec::new() };
        if is_due {
            self.looked_at_ns = now_ns;
        }
        let (mut ended, mut opened) = (false, false);
        for path in changes {
            self.populated.get_mut().note_change(&path);
            if let Some(held) = self.held.get_mut(&path).filter(|held| !held.used) {
                held.used = true;
                self.changed = true;
            }
            ended |= self.end_if_empty(&path);
        }
        if self.check_at_ns <= now_ns && !(self.held.is_empty() && self.none_lowered()) {
            self.check_at_ns = now_ns + CHECK_EVERY_NS;
            self.forget_vanished_lowered();
            self.check(now_ns);
            self.look_again_at_others();
            self.forget_ended();
            opened = self.open_again();
            // What could not be told the mechanism before may be possible now.
            ended |= opened || self.changed || !self.problems.is_empty();
        }
        if ended {
            self.apply(mechanism);
        }
        if let Ok(cgroups) = &self.cgroups
            && self.memory.try_again(cgroups.as_ref(), now_ns)
        {
            self.apply_memory();
        }
        opened
    }

    /// Has the root hand out again what it handed out for domains, where somebody has had it cease to. With that, what
    /// domains had is gone.
    fn open_again(&mut self) -> bool {
        let Ok(cgroups) = &self.cgroups else { return false };
        let mut opened = self.memory.forget_shut(cgroups.as_ref());
        let is_ours = |held: &Held| held.made && name::parent_of(&held.path) == Some("");
        if !self.held.values().any(is_ours) || !matches!(cgroups.hands_out("", Resource::Cpu), Ok(false)) {
            return opened;
        }
        match cgroups.hand_out("", Resource::Cpu, true) {
            Ok(()) => {
                self.root_hands_out = true;
                self.applied.clear();
                tracing::info!(
                    decision = "cpu-handed-out-again",
                    "somebody had the root of the cgroups hand out the CPU no longer (systemd does): domains have theirs again"
                );
                opened = true;
            }
            Err(error) => {
                tracing::warn!(%error, "the root of the cgroups hands out the CPU no longer, and domains have nothing of it");
            }
        }
        opened
    }

    /// Looks whether every domain is still there and still wanted.
    fn check(&mut self, now_ns: u64) {
        let after = (Bound::Excluded(std::mem::take(&mut self.checked)), Bound::Unbounded);
        let mut paths: Vec<String> =
            self.held.range(after).take(CHECK_AT_ONCE).map(|(path, _)| path.clone()).collect();
        if paths.len() == CHECK_AT_ONCE {
            self.checked = paths.last().cloned().unwrap_or_default();
        }
        if self.held.contains_key("") {
            paths.push(String::new());
        }
        // Children before their parents, which go with them.
        for path in paths.into_iter().rev() {
            let Some(held) = self.held.get(&path) else { continue };
            let id = self.cgroups().ok().and_then(|cgroups| cgroups.find(&path).ok()).map(|cgroup| cgroup.id);
            if id != Some(held.cgroup_id) {
                self.forget_vanished(&path);
            } else if held.made && (held.used || now_ns > held.made_at_ns.saturating_add(UNUSED_NS)) {
                self.end_if_empty(&path);
            }
        }
    }

    fn forget_vanished(&mut self, path: &str) {
        // systemd removes a scope with its last process.
        let (kind, why) = match self.is_scope(path) {
            true => (api::EventKind::DomainRemoved, Some("its last process has gone")),
            false => (api::EventKind::DomainVanished, None),
        };
        self.tell(kind, path, Asker::default(), why);
        self.held.remove(path);
        self.complaints.remove(path);
        self.forget_lowered(path);
        self.changed = true;
    }

    /// Removes a domain, and then those above it, when no process and no child is left and it is not to stay.
    pub(super) fn end_if_empty(&mut self, path: &str) -> bool {
        let mut ended = false;
        let mut next = Some(path);
        while let Some(path) = next {
            let Some(held) = self.held.get(path).filter(|held| held.made && !held.keep) else { break };
            let unused =
                !held.used && held.made_at_ns.saturating_add(UNUSED_NS) > crate::turn::clock::now_ns();
            let has_children = self.held.keys().any(|other| name::parent_of(other) == Some(path));
            if unused || has_children || self.has_processes(path) {
                break;
            }
            let why = if held.used { "its last process has gone" } else { "no process came within a minute" };
            let told = held.clone();
            if let Err(error) = self.try_remove(path) {
                tracing::debug!(%error, "an empty domain is not removed yet");
                break;
            }
            self.held.insert(path.to_owned(), told);
            self.tell(api::EventKind::DomainRemoved, path, Asker::default(), Some(why));
            self.held.remove(path);
            ended = true;
            next = name::parent_of(path);
        }
        ended
    }

    /// Leaves a tidy tree: removes the cgroups of domains without processes. What is held stays held, for the next
    /// daemon.
    pub fn stop(&mut self) {
        if let Ok(cgroups) = &self.cgroups {
            self.memory.stop(cgroups.as_ref());
        }
        let held: Vec<Held> = self.held.values().rev().filter(|held| held.made).cloned().collect();
        for held in &held {
            if !self.has_processes(&held.path) {
                // Whatever is left in the way stays, as the processes do.
                let _ = self.try_remove(&held.path);
            }
        }
        for held in held {
            self.held.insert(held.path.clone(), held);
        }
        self.close_root();
    }

    /// Has the root hand out the CPU no longer if that was for us only.
    fn close_root(&mut self) {
        let Ok(cgroups) = &self.cgroups else { return };
        let children = cgroups.children("").unwrap_or_default();
        let are_ours_left =
            children.iter().any(|child| self.held.get(&child.path).is_some_and(|held| held.made));
        if !self.root_hands_out || are_ours_left {
            return;
        }
        if children.iter().all(|child| cgroups.weight(&child.path).is_none_or(|weight| weight == 100))
            && cgroups.hand_out("", Resource::Cpu, false).is_ok()
        {
            self.root_hands_out = false;
        }
    }
}

//! Domains that Steward makes: their cgroups come, take in processes, and go.
//!
//! They are directly below the root, beside the slices of the service manager, which leaves alone what it did not make
//! there. A domain with children keeps its own processes in a leaf, because a cgroup that hands the
//! CPU out holds none itself.

use std::collections::{BTreeMap, BTreeSet};

use libsteward::api::{self, ApiError};
use steward_core::domain::{Change, OWN_LEAF, Settings, name};
use steward_core::resource::Resource;
use steward_kernel::KernelError;

use super::{
    Asker, DOMAINS_IN_ONE_MAX, DOMAINS_MAX, Domains, Given, Held, invalid_name, invalid_setting,
    kernel_failed, place,
};
use crate::cpu::mechanisms::InForce;
use crate::turn::clock::now_ns;

/// How often a cgroup is tried to be removed whose last process is still on its way out.
const REMOVE_TRIES: usize = 100;
/// How often a domain's own processes are moved to its leaf.
const LEAF_TRIES: usize = 10;

impl Domains {
    /// The path of a domain to be made, if the name and the place are free.
    ///
    /// # Errors
    /// [`ApiError::InvalidParameter`], [`ApiError::DomainExists`], [`ApiError::NoSuchDomain`] naming the parent.
    pub fn path_to_make(&self, name: &str) -> Result<String, ApiError> {
        let path = self.names.path_to_make(name).map_err(invalid_name)?;
        let name = self.names.name_of(&path);
        let is_taken = self.cgroups()?.find(&name).is_ok();
        if self.held.contains_key(&path) || is_taken {
            return Err(ApiError::DomainExists { domain: name });
        }
        let parent = name::parent_of(&path).unwrap_or("");
        if !parent.is_empty() && !self.held.get(parent).is_some_and(|held| held.made) {
            return Err(ApiError::NoSuchDomain { domain: self.names.name_of(parent) });
        }
        Ok(path)
    }

    /// Makes the domain at a path from [`Domains::path_to_make`]. Nothing is left of it when any part is refused.
    ///
    /// # Errors
    /// As [`Domains::set`], and what the kernel says.
    pub fn create(
        &mut self,
        path: &str,
        change: &Change,
        given: Given,
        asker: Asker,
        mechanism: &mut InForce,
    ) -> Result<(), ApiError> {
        let settings = change.apply(&Settings::default()).map_err(invalid_setting)?;
        if self.held.values().filter(|held| held.made).count() >= DOMAINS_MAX {
            let reason = format!("there are {DOMAINS_MAX} domains already; remove some first");
            return Err(ApiError::MechanismFailed { reason });
        }
        let top = name::top_of(path);
        let in_one = self.held.keys().filter(|held| name::is_at_or_below(held, top)).count();
        if in_one >= DOMAINS_IN_ONE_MAX {
            let top = self.names.name_of(top);
            let reason =
                format!("there are {DOMAINS_IN_ONE_MAX} domains in {top} already; remove some first");
            return Err(ApiError::MechanismFailed { reason });
        }
        self.admit(path, &settings, asker)?;
        let cgroup_id = self.make_cgroup(path).map_err(|error| cannot_make(&error))?;
        self.hold(Held {
            path: path.to_owned(),
            cgroup_id,
            made: true,
            keep: given.keep.unwrap_or(false),
            user: given.user.unwrap_or(asker.uid),
            settings,
            leaf: false,
            used: false,
            made_at_ns: now_ns(),
            declared: None,
            scope: false,
            left: BTreeMap::new(),
        });
        self.apply(mechanism);
        let watched = self.watch(path);
        if let Err(error) = self.outcome(path, mechanism).and(watched) {
            self.dissolve(path, mechanism);
            return Err(error);
        }
        self.tell(api::EventKind::DomainCreated, path, asker, None);
        Ok(())
    }

    /// Whether this is a domain that Steward made, or below one.
    pub fn is_within_made(&self, path: &str) -> bool {
        std::iter::successors(Some(path), |path| name::parent_of(path))
            .any(|path| self.held.get(path).is_some_and(|held| held.made))
    }

    pub(super) fn watch(&mut self, path: &str) -> Result<(), ApiError> {
        let Ok(cgroups) = &mut self.cgroups else { return Ok(()) };
        let watched = cgroups.watch(path);
        self.populated.get_mut().note_watch(path, watched.is_ok());
        watched.map_err(|error| kernel_failed(&error))
    }

    /// Makes a cgroup, and the way to it. One that is there already, left by an earlier daemon, is taken over.
    pub(super) fn make_cgroup(&mut self, path: &str) -> Result<u64, KernelError> {
        let Ok(cgroups) = &self.cgroups else { return Ok(0) };
        let parent = name::parent_of(path).unwrap_or("");
        if !parent.is_empty() {
            self.open_leaf(parent)?;
        } else if !cgroups.hands_out("", Resource::Cpu)? {
            cgroups.hand_out("", Resource::Cpu, true)?;
            self.root_hands_out = true;
        }
        let Ok(cgroups) = &self.cgroups else { return Ok(0) };
        create_if_absent(cgroups.as_ref(), path)
    }

    /// Makes room for children: moves a domain's own processes into its leaf, and hands the CPU out.
    fn open_leaf(&mut self, path: &str) -> Result<(), KernelError> {
        let Ok(cgroups) = &self.cgroups else { return Ok(()) };
        let leaf = format!("{path}/{OWN_LEAF}");
        create_if_absent(cgroups.as_ref(), &leaf)?;
        let mut tries_left = LEAF_TRIES;
        while !cgroups.hands_out(path, Resource::Cpu)? {
            cgroups.move_all(path, &leaf)?;
            match cgroups.hand_out(path, Resource::Cpu, true) {
                // A process was forked between the two: it is moved at the next try.
                Err(error) if error.errno() == Some(libc::EBUSY) && tries_left > 0 => tries_left -= 1,
                outcome => outcome?,
            }
        }
        if let Some(held) = self.held.get_mut(path) {
            held.leaf = true;
            self.changed = true;
        }
        Ok(())
    }

    /// Moves a process into a domain that Steward made.
    ///
    /// # Errors
    /// [`ApiError::NoSuchTask`] when it has ended; what the kernel says.
    pub fn enter(&mut self, pid: i32, path: &str) -> Result<(), ApiError> {
        let Some(held) = self.held.get(path).filter(|held| held.made) else {
            let reason = format!(
                "{} was not made by Steward, and processes there are its manager's business; make a domain of your \
                 own (steward domain create)",
                self.names.name_of(path)
            );
            return Err(ApiError::InvalidParameter { parameter: "domain".into(), reason });
        };
        let place = place(held);
        self.move_noting(pid, path, &place)?;
        if let Some(held) = self.held.get_mut(path).filter(|held| !held.used) {
            held.used = true;
            self.changed = true;
        }
        Ok(())
    }

    /// Removes a domain that Steward made with all below it, or takes from any other what it was given.
    ///
    /// # Errors
    /// As [`Domains::begin_removal`] and [`Domains::remove_piece`].
    pub fn remove(
        &mut self,
        path: &str,
        kill: bool,
        asker: Asker,
        mechanism: &mut InForce,
    ) -> Result<api::DomainRemoved, ApiError> {
        self.begin_removal(path, kill)?;
        let below = self.held_below(path, usize::MAX, &BTreeSet::new());
        self.remove_piece(path, &below, kill, asker, mechanism)
    }

    /// Begins to remove a domain: has all its processes end, if they are to.
    ///
    /// # Errors
    /// [`ApiError::InvalidParameter`] when nothing is held of it; what the kernel says.
    pub fn begin_removal(&mut self, path: &str, kill: bool) -> Result<(), ApiError> {
        let Some(held) = self.held.get(path) else {
            let reason = "it was not made by Steward, and was given nothing".to_owned();
            return Err(ApiError::InvalidParameter { parameter: "domain".into(), reason });
        };
        if kill && held.made {
            self.cgroups()?.kill(path).map_err(|error| kernel_failed(&error))?;
            let below = self.held_below(path, usize::MAX, &BTreeSet::new());
            below.iter().for_each(|path| self.end_with_last_process(path));
        }
        Ok(())
    }

    /// Some of the domains to be removed with this one, those below first and itself last, without those that were
    /// `tried`.
    pub fn held_below(&self, path: &str, most: usize, tried: &BTreeSet<String>) -> Vec<String> {
        if self.held.get(path).is_some_and(|held| !held.made) {
            return vec![path.to_owned()];
        }
        let is_left = |other: &&String| name::is_at_or_below(other, path) && !tried.contains(*other);
        self.held.keys().rev().filter(is_left).take(most).cloned().collect()
    }

    /// Removes these domains, which are at or below the one at `top`: their processes go to where those of that one
    /// go, unless they were told to end.
    ///
    /// # Errors
    /// What the kernel says. Those before it are removed.
    pub fn remove_piece(
        &mut self,
        top: &str,
        paths: &[String],
        kill: bool,
        asker: Asker,
        mechanism: &mut InForce,
    ) -> Result<api::DomainRemoved, ApiError> {
        if self.held.get(top).is_some_and(|held| !held.made) {
            self.held.remove(top);
            self.changed = true;
            self.apply(mechanism);
            self.tell(api::EventKind::DomainChanged, top, asker, Some("it has its default again"));
            return Ok(api::DomainRemoved { removed: 1, moved: 0 });
        }
        let to = self.place_above(top);
        let mut done = api::DomainRemoved { removed: 0, moved: 0 };
        let mut outcome = Ok(());
        for path in paths {
            if !kill {
                match self.empty(path, &to) {
                    Ok(moved) => done.moved += moved,
                    Err(error) => {
                        outcome = Err(kernel_failed(&error));
                        break;
                    }
                }
            }
            let is_gone = self.try_remove(path).is_ok();
            done.removed += u64::from(is_gone);
            let why = if is_gone { None } else { Some("it goes as soon as its processes have ended") };
            self.tell(api::EventKind::DomainRemoved, path, asker, why);
        }
        self.apply(mechanism);
        outcome.map(|()| done)
    }

    /// Where processes go whose domain is removed: to the parent, and from the top to the root.
    fn place_above(&self, path: &str) -> String {
        let parent = name::parent_of(path).unwrap_or("");
        self.held.get(parent).map(place).unwrap_or_default()
    }

    fn empty(&self, path: &str, to: &str) -> Result<u64, KernelError> {
        let (Ok(cgroups), Some(held)) = (&self.cgroups, self.held.get(path)) else { return Ok(0) };
        let mut moved = 0;
        for from in [place(held), path.to_owned()] {
            match cgroups.move_all(&from, to) {
                Ok(count) => moved += count,
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Its processes were told to end: what it had is free now, and it goes with the last of them.
    fn end_with_last_process(&mut self, path: &str) {
        if let Some(held) = self.held.get_mut(path) {
            held.settings = Settings::default();
            held.keep = false;
            held.used = true;
            self.changed = true;
        }
    }

    /// Removes the cgroup of a domain without processes, and forgets the domain.
    pub(super) fn try_remove(&mut self, path: &str) -> Result<(), KernelError> {
        if let (Ok(cgroups), Some(held)) = (&self.cgroups, self.held.get(path)) {
            if held.leaf {
                remove_if_present(cgroups.as_ref(), &place(held))?;
            }
            remove_if_present(cgroups.as_ref(), path)?;
        }
        self.held.remove(path);
        self.complaints.remove(path);
        self.forget_lowered(path);
        self.changed = true;
        Ok(())
    }

    /// Takes back a domain that could not be made.
    fn dissolve(&mut self, path: &str, mechanism: &mut InForce) {
        if let Err(error) = self.try_remove(path) {
            tracing::warn!(%error, "a domain that could not be made is still there");
            self.held.remove(path);
        }
        self.apply(mechanism);
    }
}

fn create_if_absent(cgroups: &dyn crate::domains::cgroups::Cgroups, path: &str) -> Result<u64, KernelError> {
    match cgroups.create(path) {
        Ok(cgroup) => Ok(cgroup.id),
        Err(error) if error.errno() == Some(libc::EEXIST) => Ok(cgroups.find(path)?.id),
        Err(error) => Err(error),
    }
}

/// A process that has just ended or left may hold its cgroup for a moment.
fn remove_if_present(cgroups: &dyn crate::domains::cgroups::Cgroups, path: &str) -> Result<(), KernelError> {
    let mut tries_left = REMOVE_TRIES;
    loop {
        match cgroups.remove(path) {
            Err(error) if error.errno() == Some(libc::EBUSY) && tries_left > 0 => {
                if cgroups.is_populated(path)? {
                    return Err(error);
                }
                tries_left -= 1;
            }
            Err(error) if error.is_absent() => return Ok(()),
            outcome => return outcome,
        }
    }
}

fn cannot_make(error: &KernelError) -> ApiError {
    let advice = match error.errno() {
        Some(libc::ENOENT | libc::EINVAL) => {
            "; the kernel's cpu controller must be in the unified hierarchy (cgroup.controllers), and not in one of \
             version 1"
        }
        Some(libc::EBUSY) => "; the cgroup above holds processes of its own",
        _ => "",
    };
    ApiError::MechanismFailed { reason: format!("{error}{advice}") }
}

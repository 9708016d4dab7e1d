//! What domains were given of the disk: which of their tasks are served first, and what part of a disk's time each has.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::disk::config::Order;
use steward_core::disk::cost::{Lines, Standing};
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, Choice, InForce, Need};
use steward_core::disk::plan::Seen;
use steward_core::disk::priority::Priority;
use steward_core::disk::{Class, Limit, shares};
use steward_core::domain::Tree;
use steward_core::domain::name::upwards;
use steward_core::process::TaskId;
use steward_core::resource::Resource;
use steward_kernel::process;

use super::knobs::{Charged, Limited};
use super::places::OfFirst;
use crate::daemon::Daemon;

/// What is wanted for domains.
#[derive(Debug, Default)]
pub(super) struct OfDomains {
    /// The tasks of those that are served first.
    pub(super) first: BTreeMap<TaskId, Priority>,
    /// Their processes.
    pub(super) processes: BTreeMap<TaskId, i32>,
    /// The tasks of those that were lately and are no longer, as they are now: one that was born since the last look
    /// has its parent's priority, and nobody has seen it.
    pub(super) no_longer_first: BTreeMap<TaskId, Priority>,
    /// Whether they come first by weights.
    pub(super) by_weight: bool,
    /// Where they are, and what of them.
    pub(super) of_first: OfFirst,
    /// By which domain each of the processes comes first beside others then: the highest one that it is in.
    pub(super) first_domains: BTreeMap<i32, String>,
    /// The cgroups right below which a domain is in the background.
    pub(super) with_background: BTreeSet<String>,
    /// Then, the cgroups of domains at or below one that is served first, by id, and whether each domain is so itself.
    pub(super) cgroups: BTreeMap<u64, bool>,
    /// Whether anybody has a part of a disk's time that counts also while nobody who is served first waits.
    pub(super) has_parts: bool,
    /// The weight of each cgroup that is to have one, with the cgroup's id, by path.
    pub(super) weights: BTreeMap<String, (u64, u16)>,
    /// The limit of each cgroup that is to have one, by path and the device's number.
    pub(super) limits: BTreeMap<(String, String), Limited>,
    /// The disks whose requests are to be charged, by number.
    pub(super) charged: BTreeMap<String, Charged>,
    /// The machine's disks, where they were looked at.
    pub(super) devices: Option<Vec<Device>>,
    /// Whether there is any disk whose requests are charged, by Steward or somebody else.
    pub(super) any_charged: bool,
    /// Calibrated disks that are left to somebody else, each in a sentence.
    pub(super) left: Vec<String>,
    /// Why weights or limits cannot be given, in sentences.
    pub(super) problems: Vec<String>,
}

impl Daemon {
    /// What domains are to have that have processes; of the others nobody waits for a disk. `programs` is what
    /// specifications say of who is there.
    pub(super) fn disk_domains(&mut self, now_ns: u64, programs: &Seen) -> OfDomains {
        let mut wanted = OfDomains::default();
        let tree = self.domains.disk_levels();
        let first: BTreeMap<i32, String>;
        (first, wanted.of_first) = tree.as_ref().map(|tree| self.served_first(tree)).unwrap_or_default();
        let lately = self.disk.note_first(now_ns, first.values());
        (wanted.no_longer_first, _) = self.tasks_of(&self.processes_of(lately.iter().map(String::as_str)));
        let Some(mut tree) = tree else {
            self.hand_disk_out_no_longer(now_ns, false, (programs, &wanted.first));
            return wanted;
        };
        (wanted.first, wanted.processes) = self.tasks_of(&first);
        let Ok(cgroups) = self.domains.cgroups() else { return wanted };
        // Where nobody hands the disk out, all stand in one line, in which the tasks' own priorities count everywhere.
        // Is it handed out, they count within each cgroup only, and between cgroups weights do: also for what the
        // kernel writes back for a domain, which is nobody's in one line.
        let is_handed_out = cgroups.hands_out("", Resource::Disk).unwrap_or(false);
        let is_made = |path: &str| self.domains.held(path).is_some_and(|held| held.made);
        let others_ask = || {
            let children = cgroups.children("").unwrap_or_default();
            children.iter().any(|child| !is_made(&child.path) && cgroups.has_disk_settings(&child.path))
        };
        let by_others = is_handed_out && (!self.disk.handed_out.contains_key("") || others_ask());
        let devices = self.disk.devices(&self.options.roots);
        self.look_at_costs(&devices, &mut wanted);
        // Where requests are charged, by whomever, no task's own priority counts: who comes first needs a weight.
        let has_first = shares::has_class(&tree, Class::Interactive);
        let is_first_by_weight = wanted.any_charged && has_first;
        wanted.has_parts = shares::needs_weights(&tree) || by_others || is_first_by_weight;
        let knows_weights = self.disk.knows_weights(&devices);
        let by_weight_alone = has_first
            && knows_weights
            && shares::reach_the_top(&tree)
            && !self.is_anybody_first_elsewhere(programs, &wanted.first);
        let by_weight_alone = has_first && self.disk.by_weight_alone(now_ns, by_weight_alone);
        let mut limits: Vec<(String, Limit)> = tree
            .iter()
            .map(|(path, node)| (path.clone(), node.settings.disk.max))
            .filter(|(path, max)| !max.is_none() && is_made(path))
            .collect();
        // For a limit the disk is handed out too, and then there is no one line.
        let by_weight = by_weight_alone || has_first && knows_weights && !limits.is_empty();
        let has_weights = wanted.has_parts || by_weight;
        let come_first = knows_weights && has_weights;
        if come_first {
            wanted.first_domains = wanted.of_first.processes.clone();
            wanted.with_background = shares::with_background(&tree);
            let set_back = self.set_back_domains(&first, &wanted.first_domains);
            for path in &set_back {
                if let Some(mut node) = tree.get(path).cloned() {
                    node.settings.disk.class = Some(Class::Normal);
                    tree.insert(path, node);
                }
            }
            self.come_first_by_weight(&mut wanted, &set_back);
        }
        let mut weights = match has_weights {
            true => shares::all_weights(&tree, &is_made),
            false => BTreeMap::new(),
        };
        if weights.is_empty() && limits.is_empty() {
            (wanted.charged, wanted.any_charged) = (BTreeMap::new(), false);
            wanted.devices = Some(devices);
            self.hand_disk_out_no_longer(now_ns, has_first, (programs, &wanted.first));
            return wanted;
        }
        // Weights that bring somebody first alone are not missed: who is served first is so in one line as well.
        let are_missed = wanted.has_parts || !limits.is_empty();
        let paths = weights.keys().chain(limits.iter().map(|(path, _)| path));
        let payers: BTreeSet<String> =
            paths.flat_map(|path| upwards(path).skip(1)).map(str::to_owned).collect();
        let shut = self.hand_disk_out(payers);
        // Whoever is elsewhere has what is theirs all the same.
        let has_it = |path: &str| !upwards(path).skip(1).any(|above| shut.contains_key(above));
        weights.retain(|path, _| has_it(path));
        limits.retain(|(path, _)| has_it(path));
        if weights.is_empty() {
            (wanted.charged, wanted.any_charged) = (BTreeMap::new(), false);
        }
        if come_first && shut.contains_key("") {
            (wanted.first, wanted.processes) = self.tasks_of(&first);
            (wanted.by_weight, wanted.cgroups) = (false, BTreeMap::new());
        }
        if are_missed {
            wanted.problems.extend(shut.into_values());
        }
        let id = |path: &str| self.domains.held(path).map(|held| held.cgroup_id);
        let known = weights.into_iter().filter_map(|(path, weight)| Some((id(&path)?, path, weight)));
        wanted.weights = known.map(|(id, path, weight)| (path, (id, weight))).collect();
        wanted.limits = self.limits_of_devices(&limits, &devices);
        wanted.devices = Some(devices);
        wanted
    }

    /// Has these cgroups hand the disk out, those above others first. Returns those that cannot, each with a sentence
    /// why; it is tried again at the next look.
    fn hand_disk_out(&mut self, payers: BTreeSet<String>) -> BTreeMap<String, String> {
        let mut shut = BTreeMap::new();
        self.disk.handed_out_for_nobody_since_ns = None;
        let Ok(cgroups) = self.domains.cgroups() else { return shut };
        for path in payers {
            // One that has gone has nobody below it.
            if !matches!(cgroups.hands_out(&path, Resource::Disk), Ok(false)) {
                continue;
            }
            let cgroup = cgroups.find(&path);
            let handed_out =
                cgroup.and_then(|cgroup| cgroups.hand_out(&path, Resource::Disk, true).map(|()| cgroup.id));
            match handed_out {
                Ok(id) => {
                    self.disk.note_handed_out(&path);
                    self.disk.handed_out.insert(path, id);
                }
                Err(error) => {
                    let advice = match error.errno() {
                        Some(libc::EBUSY) => {
                            "processes are in this cgroup itself, beside those below it: move them into one of these"
                        }
                        _ => {
                            "the kernel's io controller must be in the unified hierarchy (cgroup.controllers), and not in one of version 1"
                        }
                    };
                    let sentence = format!("{error}; {advice}");
                    shut.insert(path, sentence);
                }
            }
        }
        shut
    }

    /// Whether anybody is to be served first who is in no domain that is. Programs were looked at before domains were:
    /// whoever has ended in between was in none of them when these were, and all would stand in one line for half a
    /// minute for somebody who has gone.
    fn is_anybody_first_elsewhere(&self, programs: &Seen, first: &BTreeMap<TaskId, Priority>) -> bool {
        programs.first_elsewhere(first).any(|task| process::is_alive(task, &self.options.roots))
    }

    /// Where Steward had a cgroup hand the disk out for nobody who is there any more: at once where somebody is to be
    /// served first in one line, as `has_first` domains are or a program [elsewhere](Self::is_anybody_first_elsewhere),
    /// and else after a while.
    fn hand_disk_out_no_longer(
        &mut self,
        now_ns: u64,
        has_first: bool,
        (programs, first): (&Seen, &BTreeMap<TaskId, Priority>),
    ) {
        // The worker has put the weights back by now, or had a second to.
        if self.disk.handed_out.is_empty() || !self.disk.has_no_parts() {
            return;
        }
        let is_first = has_first || self.is_anybody_first_elsewhere(programs, first);
        let stays_for_ns = if is_first { 0 } else { self.options.disk_handed_out_for_ns };
        if self.disk.is_handed_out_for_nobody(now_ns, stays_for_ns)
            && let Ok(cgroups) = self.domains.cgroups()
        {
            self.disk.hand_out_no_longer(cgroups);
        }
    }

    /// Has domains that are served first be so by their weights, but those that have lost their place.
    fn come_first_by_weight(&self, wanted: &mut OfDomains, set_back: &BTreeSet<String>) {
        wanted.by_weight = true;
        // Also of those without a process, in which one may begin.
        let class = |path: &str| match set_back.contains(path) {
            true => Some(Class::Normal),
            false => self.domains.held(path)?.settings.disk.class,
        };
        let is_below = |path: &&str| upwards(path).any(|above| class(above) == Some(Class::Interactive));
        let is_first = |path: &str| upwards(path).find_map(class) == Some(Class::Interactive);
        // All of them, since what the kernel writes back is known by the cgroup alone that has changed it.
        let ids = |path: &str| match wanted.of_first.ids.get(path) {
            Some(ids) => ids.clone(),
            None => self.domains.cgroups_of(path).into_iter().map(|(_, cgroup_id)| cgroup_id).collect(),
        };
        let known = |path: &str| {
            let is_first = is_first(path);
            ids(path).into_iter().map(move |cgroup_id| (cgroup_id, is_first))
        };
        wanted.cgroups = self.domains.made().filter(is_below).flat_map(known).collect();
    }

    /// The domains of whose processes any has lost its place, with those that they are in: who is served first there is
    /// so by the weights of all of them.
    fn set_back_domains(
        &self,
        first: &BTreeMap<i32, String>,
        first_domains: &BTreeMap<i32, String>,
    ) -> BTreeSet<String> {
        let lost = self.disk.set_back_processes();
        let lost_with_all =
            |pid: &i32| first_domains.get(pid).is_some_and(|domain| self.disk.is_place_set_back(domain));
        let of_lost = first.iter().filter(|(pid, _)| lost.contains(pid) || lost_with_all(pid));
        of_lost
            .flat_map(|(_, path)| upwards(path).filter(|path| !path.is_empty()))
            .map(str::to_owned)
            .collect()
    }

    /// Which disks are to be charged, and which are left to somebody else.
    fn look_at_costs(&self, devices: &[Device], wanted: &mut OfDomains) {
        let is_looked_at = |device: &&Device| device.is_own() && device.order != Order::Keep;
        for device in devices.iter().filter(is_looked_at) {
            wanted.any_charged |= device.cost.as_ref().is_some_and(Lines::is_on);
            if let Choice::Charge(model) = elevator::choose(device, Need::default()) {
                let charged = Charged { sequence: device.sequence, model };
                wanted.charged.insert(device.number.clone(), charged);
                wanted.any_charged = true;
            } else if let (Some(lines), Some(model)) = (&device.cost, &device.model)
                && matches!(lines.standing(Some(model)), Standing::OthersOn | Standing::OthersOff)
            {
                wanted.left.push(format!(
                    "{}: {}",
                    device.name,
                    elevator::backend(device, &InForce::default())
                ));
            }
        }
    }

    /// Each of these limits for each disk of its own: what others hand on to it is counted there.
    fn limits_of_devices(
        &self,
        limits: &[(String, Limit)],
        devices: &[Device],
    ) -> BTreeMap<(String, String), Limited> {
        let own: Vec<&Device> = devices.iter().filter(|device| device.is_own()).collect();
        let id = |path: &str| self.domains.held(path).map(|held| held.cgroup_id);
        let known = limits.iter().filter_map(|(path, limit)| Some((path, id(path)?, *limit)));
        let of_each = |(path, cgroup_id, max): (&String, u64, Limit)| {
            let of = |device: &&Device| {
                let limited = Limited { cgroup_id, sequence: device.sequence, max };
                ((path.clone(), device.number.clone()), limited)
            };
            own.iter().map(of).collect::<Vec<_>>()
        };
        known.flat_map(of_each).collect()
    }

    /// The processes in interactive domains, each with its domain: what they start is theirs too. And by which domain
    /// they, and all in their cgroups, come first.
    fn served_first(&self, tree: &Tree) -> (BTreeMap<i32, String>, OfFirst) {
        let (mut first, mut of_first) = (BTreeMap::new(), OfFirst::default());
        let is_first = |path: &&str| shares::class_of(tree, path) == Class::Interactive;
        for path in self.domains.made().filter(is_first) {
            let highest = shares::highest_first(tree, path).unwrap_or(path);
            let cgroups = self.domains.cgroups_of(path);
            let ids: Vec<u64> = cgroups.iter().map(|(_, cgroup_id)| *cgroup_id).collect();
            of_first.cgroups.extend(ids.iter().map(|cgroup_id| (*cgroup_id, highest.to_owned())));
            of_first.ids.insert(path.to_owned(), ids);
            for pid in self.domains.processes_in(cgroups) {
                first.insert(pid, path.to_owned());
                of_first.processes.insert(pid, highest.to_owned());
            }
        }
        (first, of_first)
    }

    /// The processes in these domains, each with its domain.
    fn processes_of<'path>(&self, paths: impl Iterator<Item = &'path str>) -> BTreeMap<i32, String> {
        let of = |path: &'path str| {
            let processes = self.domains.processes_in(self.domains.cgroups_of(path)).into_iter();
            processes.map(move |pid| (pid, path.to_owned()))
        };
        paths.flat_map(of).collect()
    }

    /// All tasks of these processes, served first by the real-time class, and the process of each.
    fn tasks_of(&self, first: &BTreeMap<i32, String>) -> (BTreeMap<TaskId, Priority>, BTreeMap<TaskId, i32>) {
        let roots = &self.options.roots;
        let threads = |pid: i32| process::threads_of(pid, roots).into_iter().map(move |task| (task.id, pid));
        let of: BTreeMap<TaskId, i32> = first.keys().copied().flat_map(threads).collect();
        (of.keys().map(|task| (*task, Priority::OF_DOMAIN)).collect(), of)
    }
}

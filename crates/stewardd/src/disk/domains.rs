//! What domains were given of the disk: which of their tasks are served first, and what part of a disk's time each has.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::disk::config::Order;
use steward_core::disk::cost::{Lines, Standing};
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, Choice, InForce, Need};
use steward_core::disk::priority::Priority;
use steward_core::disk::{Class, Limit, shares};
use steward_core::domain::Tree;
use steward_core::domain::name::parent_of;
use steward_core::process::TaskId;
use steward_core::resource::Resource;
use steward_kernel::process;

use super::knobs::{Charged, Limited};
use crate::daemon::Daemon;

/// What is wanted for domains.
#[derive(Debug, Default)]
pub(super) struct OfDomains {
    /// The tasks of those that are served first.
    pub(super) first: BTreeMap<TaskId, Priority>,
    /// Their processes.
    pub(super) processes: BTreeMap<TaskId, i32>,
    /// The weight of each cgroup that is to have one, with the cgroup's id, by path.
    pub(super) weights: BTreeMap<String, (u64, u16)>,
    /// The limit of each cgroup that is to have one, by path and the device's number.
    pub(super) limits: BTreeMap<(String, String), Limited>,
    /// The disks whose requests are to be charged, by number.
    pub(super) charged: BTreeMap<String, Charged>,
    /// Whether there is any disk whose requests are charged, by Steward or somebody else.
    pub(super) any_charged: bool,
    /// Calibrated disks that are left to somebody else, each in a sentence.
    pub(super) left: Vec<String>,
    /// Why weights or limits cannot be given, in sentences.
    pub(super) problems: Vec<String>,
}

impl Daemon {
    /// What domains are to have that have processes; of the others nobody waits for a disk.
    pub(super) fn disk_domains(&mut self) -> OfDomains {
        let mut wanted = OfDomains::default();
        let Some(tree) = self.domains.disk_levels() else {
            // The worker has put the weights back by now, or had a second to.
            if self.disk.has_no_parts()
                && let Ok(cgroups) = self.domains.cgroups()
            {
                self.disk.hand_out_no_longer(cgroups);
            }
            return wanted;
        };
        (wanted.first, wanted.processes) = self.tasks_served_first(&tree);
        let Ok(cgroups) = self.domains.cgroups() else { return wanted };
        // Where nobody hands the disk out, all stand in one line, in which the tasks' own priorities count everywhere.
        // Is it handed out, they count within each cgroup only, and between cgroups weights do.
        let is_handed_out = cgroups.hands_out("", Resource::Disk).unwrap_or(false);
        let is_made = |path: &str| self.domains.held(path).is_some_and(|held| held.made);
        let devices = self.disk.devices(&self.options.roots);
        self.look_at_costs(&devices, &mut wanted);
        // Where requests are charged no task's own priority counts: what comes first needs a weight there too.
        let is_first_by_weight = !wanted.charged.is_empty() && shares::has_class(&tree, Class::Interactive);
        let weights = match shares::needs_weights(&tree) || is_handed_out || is_first_by_weight {
            true => shares::all_weights(&tree, &is_made),
            false => BTreeMap::new(),
        };
        let limits: Vec<(String, Limit)> = tree
            .iter()
            .map(|(path, node)| (path.clone(), node.settings.disk.max))
            .filter(|(path, max)| !max.is_none() && is_made(path))
            .collect();
        if weights.is_empty() {
            (wanted.charged, wanted.any_charged) = (BTreeMap::new(), false);
        }
        if weights.is_empty() && limits.is_empty() {
            return wanted;
        }
        let above = |path: &str| {
            std::iter::successors(parent_of(path), |path| parent_of(path)).map(str::to_owned).collect()
        };
        let payers: BTreeSet<String> = weights
            .keys()
            .chain(limits.iter().map(|(path, _)| path))
            .flat_map(|path| -> Vec<String> { above(path) })
            .collect();
        for path in payers {
            match cgroups.hands_out(&path, Resource::Disk) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => continue,
            }
            match cgroups.hand_out(&path, Resource::Disk, true) {
                Ok(()) => {
                    self.disk.note_handed_out(&path);
                    self.disk.handed_out.insert(path);
                }
                Err(error) => wanted.problems.push(format!(
                    "{error}; the kernel's io controller must be in the unified hierarchy (cgroup.controllers), and not in one of \
                     version 1"
                )),
            }
        }
        if wanted.problems.is_empty() {
            let id = |path: &str| self.domains.held(path).map(|held| held.cgroup_id);
            let known = weights.into_iter().filter_map(|(path, weight)| Some((id(&path)?, path, weight)));
            wanted.weights = known.map(|(id, path, weight)| (path, (id, weight))).collect();
            wanted.limits = self.limits_of_devices(&limits, &devices);
        }
        wanted
    }

    /// Which disks are to be charged, and which are left to somebody else.
    fn look_at_costs(&self, devices: &[Device], wanted: &mut OfDomains) {
        let is_looked_at = |device: &&Device| !device.stands_for_others && device.order != Order::Keep;
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
        let own: Vec<&Device> = devices.iter().filter(|device| !device.stands_for_others).collect();
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

    /// All tasks of the processes in interactive domains, each with its process: what they start is theirs too.
    fn tasks_served_first(&self, tree: &Tree) -> (BTreeMap<TaskId, Priority>, BTreeMap<TaskId, i32>) {
        let roots = &self.options.roots;
        let Some(first) = Priority::of(Class::Interactive, None) else { return Default::default() };
        let interactive =
            self.domains.made().filter(|path| shares::class_of(tree, path) == Class::Interactive);
        let processes = interactive.flat_map(|path| self.domains.processes(path).unwrap_or_default());
        let threads = |pid| process::threads_of(pid, roots).into_iter().map(move |task| (task.id, pid));
        let of: BTreeMap<TaskId, i32> = processes.flat_map(threads).collect();
        (of.keys().map(|task| (*task, first)).collect(), of)
    }
}

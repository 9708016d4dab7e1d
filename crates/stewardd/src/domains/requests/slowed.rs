//! Who outside of a domain is slowed, and by what: the CPU, as forecasts say it, memory and the disk, as the kernel
//! counts for cgroups.
//!
//! Each is told alone, because in a sum one that wants little is not seen. What the caller may not see is told as one:
//! the slowest of them, without a name.

use std::collections::{BTreeMap, BTreeSet};

use libsteward::api::{self, Lack};
use steward_core::printable::printable_name;
use steward_core::resource::Resource;
use steward_kernel::cgroup::reading::CgroupReader;

use crate::cpu::herald::Outlook;
use crate::cpu::reply::{forecast, rounded};
use crate::cpu::requests::Sight;
use crate::daemon::Daemon;

/// Of how many cgroups pressure is read.
const GROUPS_MAX: usize = 64;
/// Who is slower by less than this is not slowed.
const SLOWED_MIN: f64 = 1.01;
/// Stands for all that the caller may not see.
const HIDDEN: u64 = 0;

impl Daemon {
    /// Adds those outside of the domain with this index that are slowed. Domains that come last for now are none of
    /// them.
    pub(crate) fn add_slowed(
        &mut self,
        forecasts: &mut api::Forecasts,
        outlook: &Outlook,
        domain: usize,
        sight: &Sight,
    ) {
        let spared = self.spared(domain);
        let report = &outlook.report;
        let is_other = |place: usize| !spared.contains(&report.home(place).unwrap_or(0));
        forecasts.others = forecast(&report.sum(is_other));
        let groups = self.cpu.sampler.groups.all();
        let mut told = Told::default();
        for (place, slowdown) in report.slowed(is_other) {
            let task = &report.samples()[place];
            let is_seen = sight.has_task(task, &groups[report.home(place).unwrap_or(0)]);
            let seen = is_seen.then(|| (task.tid as u64, printable_name(&task.name)));
            told.add(Lack::Cpu, seen, slowdown);
        }
        let beside = self.beside(&spared);
        self.read_pressure(&beside, report.at_ns);
        let groups = self.cpu.sampler.groups.all();
        for ((cgroup_id, resource), slowdown) in self.cpu.sampler.stalls.slowdowns() {
            let index = self.cpu.sampler.groups.index(*cgroup_id).filter(|index| beside.contains(index));
            let Some(group) = index.map(|index| &groups[index]) else { continue };
            let by = match resource {
                Resource::Cpu => Lack::Cpu,
                Resource::Memory => Lack::Memory,
                Resource::Disk => Lack::Disk,
            };
            told.add(by, sight.has_domain(group).then(|| (*cgroup_id, group.about.name.clone())), slowdown);
        }
        forecasts.slowed = told.slowest_first();
    }

    /// The domain with this index, all that come last for now, and all that is below them.
    fn spared(&self, domain: usize) -> BTreeSet<usize> {
        let mut spared = BTreeSet::from([domain]);
        for (index, group) in self.cpu.sampler.groups.all().iter().enumerate() {
            let is_below = group.parent.is_some_and(|parent| spared.contains(&parent));
            if is_below || self.domains.is_lowered_at(&group.about.path) {
                spared.insert(index);
            }
        }
        spared
    }

    /// The cgroups beside the spared ones, and beside all that are above these: none of them has a spared one in it.
    fn beside(&self, spared: &BTreeSet<usize>) -> Vec<usize> {
        let groups = self.cpu.sampler.groups.all();
        let parent = |index: usize| groups.get(index).and_then(|group| group.parent);
        let above: BTreeSet<usize> = spared
            .iter()
            .flat_map(|index| std::iter::successors(parent(*index), |above| parent(*above)))
            .collect();
        let is_beside = |index: usize| {
            !spared.contains(&index)
                && !above.contains(&index)
                && parent(index).is_some_and(|parent| above.contains(&parent))
        };
        (0..groups.len()).filter(|index| is_beside(*index)).take(GROUPS_MAX).collect()
    }

    /// Reads for how long the cgroups with these indices stood still.
    fn read_pressure(&mut self, places: &[usize], at_ns: u64) {
        let mut totals: Vec<((u64, Resource), u64)> = Vec::new();
        for group in places.iter().map(|index| &self.cpu.sampler.groups.all()[*index]) {
            let Ok(reader) = CgroupReader::open(&group.about.path, &self.options.roots) else { continue };
            for resource in Resource::STALLS {
                // Where nobody counts it, nobody is seen.
                if let Ok(Some(stalled)) = reader.stalled(resource) {
                    totals.push(((group.cgroup_id(), resource), stalled.some_ns));
                }
            }
        }
        self.cpu.sampler.stalls.observe(at_ns, totals);
    }
}

/// Those who are slowed, by what and who.
#[derive(Default)]
struct Told(BTreeMap<(Lack, u64), api::Slowed>);

impl Told {
    fn add(&mut self, by: Lack, seen: Option<(u64, String)>, slowdown: f64) {
        let (id, name) = seen.map_or((HIDDEN, None), |(id, name)| (id, Some(name)));
        if slowdown < SLOWED_MIN {
            return;
        }
        let slowed = self.0.entry((by, id)).or_insert(api::Slowed { by, id, name, slowdown: 1.0 });
        slowed.slowdown = slowed.slowdown.max(rounded(slowdown));
    }

    fn slowest_first(self) -> Vec<api::Slowed> {
        let mut slowed: Vec<api::Slowed> = self.0.into_values().collect();
        slowed.sort_by(|one, other| other.slowdown.total_cmp(&one.slowdown));
        let mut told: BTreeMap<Lack, usize> = BTreeMap::new();
        slowed.retain(|slowed| {
            let told = told.entry(slowed.by).or_default();
            *told += 1;
            *told <= api::SLOWED_MAX
        });
        slowed
    }
}

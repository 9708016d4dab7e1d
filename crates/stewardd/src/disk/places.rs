//! Where the processes are that are served first, and where those were that have ended lately: what these had of a disk
//! is held against their place (`steward_core::disk::guard`).

use std::collections::{BTreeMap, BTreeSet};

use steward_core::disk::guard;

/// For how long it is known of one that has ended where it was, in nanoseconds: what disks did for it is read once a
/// second, and the guard looks as often.
const LATELY_NS: u64 = 3_000_000_000;

/// What domains say of it at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfFirst {
    /// By which domain each process comes first: the highest one.
    pub(super) processes: BTreeMap<i32, String>,
    /// The same of the cgroups of these domains, by id.
    pub(super) cgroups: BTreeMap<u64, String>,
    /// These ids, by the domain's path.
    pub(super) ids: BTreeMap<String, Vec<u64>>,
}

/// All of it, with when each was seen last, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Places {
    processes: BTreeMap<i32, (u64, String)>,
    domains: BTreeMap<u64, (u64, String)>,
}

impl Places {
    /// Takes in a look: who is served first now, and what of them their domains say. Of another one it is asked
    /// `cgroup_of` when it is new.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        first: &BTreeSet<i32>,
        of_first: OfFirst,
        cgroup_of: impl Fn(i32) -> Option<String>,
    ) {
        let is_late = |at_ns: &u64| now_ns < at_ns.saturating_add(LATELY_NS);
        self.processes.retain(|pid, (at_ns, _)| is_late(at_ns) || first.contains(pid));
        self.domains.retain(|_, (at_ns, _)| is_late(at_ns));
        self.domains.extend(of_first.cgroups.into_iter().map(|(id, path)| (id, (now_ns, path))));
        for pid in first {
            let known = || self.processes.get(pid).map(|(_, place)| place.clone());
            let place = of_first.processes.get(pid).cloned().or_else(known).or_else(|| cgroup_of(*pid));
            self.processes.extend(place.map(|place| (*pid, (now_ns, place))));
        }
    }

    /// Where those are that are served first now.
    pub(super) fn of(&self, first: &BTreeSet<i32>) -> guard::Places {
        let place = |pid: &i32| Some((*pid, self.processes.get(pid)?.1.clone()));
        first.iter().filter_map(place).collect()
    }

    /// Where a process was that has ended, and whose requests were made in this cgroup; `None` where it was not served
    /// first.
    pub(super) fn of_ended(&self, pid: i32, cgroup_id: u64) -> Option<&str> {
        let of_process = self.processes.get(&pid);
        of_process.or_else(|| self.domains.get(&cgroup_id)).map(|(_, place)| place.as_str())
    }

    /// The domains that come first now, or did lately.
    pub(super) fn domains(&self) -> BTreeSet<String> {
        self.domains.values().map(|(_, path)| path.clone()).collect()
    }

    /// Whether nobody is served first, nor was lately.
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.domains.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn where_one_was_is_known_for_three_seconds_after_it_was_seen_and_a_domain_by_its_cgroups() {
        let mut places = Places::default();
        let of_first = || OfFirst {
            processes: BTreeMap::from([(1, "steward.a".to_owned())]),
            cgroups: BTreeMap::from([(70, "steward.a".to_owned())]),
            ids: BTreeMap::new(),
        };
        places.note(S, &BTreeSet::from([1, 2]), of_first(), |pid| (pid == 2).then(|| "user".to_owned()));
        let both = guard::Places::from([(1, "steward.a".to_owned()), (2, "user".to_owned())]);
        assert_eq!(places.of(&BTreeSet::from([1, 2, 3])), both);
        for (pid, cgroup_id, place) in
            [(1, 70, Some("steward.a")), (9, 70, Some("steward.a")), (2, 5, Some("user")), (9, 5, None)]
        {
            assert_eq!(places.of_ended(pid, cgroup_id), place, "{pid} {cgroup_id}");
        }
        // Nobody is asked again for one that is known.
        places.note(2 * S, &BTreeSet::from([2]), OfFirst::default(), |_| panic!("it is known"));
        assert_eq!(places.domains(), BTreeSet::from(["steward.a".to_owned()]));
        places.note(4 * S, &BTreeSet::new(), OfFirst::default(), |_| None);
        assert_eq!((places.of_ended(1, 70), places.of_ended(2, 5)), (None, Some("user")));
        places.note(5 * S, &BTreeSet::new(), OfFirst::default(), |_| None);
        assert!(places.is_empty() && places.domains().is_empty());
    }
}

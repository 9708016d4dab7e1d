//! The metrics of memory: what domains use and keep, what was taken from them, and whether promises were kept.

use std::collections::BTreeMap;

use libsteward::api;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use steward_core::authority::{Identity, Request, Target};
use steward_core::config::MetricsAddress;
use steward_core::memory::audit::Tally;

use super::labels::{OfDomain, Seconds, seconds};
use crate::daemon::Daemon;
use crate::domains::view;
use crate::turn::clock::now_ns;

/// The kernel's word for no user: whom no rule can name.
const NOBODY_KNOWN: u32 = u32::MAX;

/// The memory of one domain with all below it. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// What is charged to it.
    pub used_bytes: u64,
    /// What of it is in the swap besides.
    pub swapped_bytes: u64,
    /// Its minimum; `None` where it has none.
    pub min_bytes: Option<u64>,
    /// What is kept of it; `None` where it is not protected.
    pub kept_bytes: Option<u64>,
    /// How much it may use now; `None` where that is not known, or not for all who can read the metrics.
    pub available_bytes: Option<u64>,
    /// For how long it was held back because it took memory, or changed files, too fast, in nanoseconds.
    pub held_back_ns: u64,
    /// What Steward has taken from it.
    pub taken_bytes: u64,
    /// Whether it is in use; `None` where it is not protected.
    pub activity: Option<api::Activity>,
    /// What was found about its promise since the daemon started; `None` while nothing is promised.
    pub audit: Option<Tally>,
    /// In how many seconds who took the most memory while its promise was broken, by name; all others by the empty one.
    pub broken_by: BTreeMap<String, u64>,
}

/// The labels of what one did to another.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfDomainBy {
    domain: String,
    by: String,
}

/// A domain's name, and its figures.
type Named<'a> = (&'a str, &'a MemoryFigures);

/// Puts the figures of all domains into the registry.
pub(super) fn describe(registry: &mut Registry, domains: &[Named<'_>]) {
    type Bytes = fn(&MemoryFigures) -> Option<u64>;
    let gauges: [(&str, &str, Bytes); 5] = [
        ("memory", "Memory charged to a domain with all below it", |memory| Some(memory.used_bytes)),
        ("memory_swapped", "What of a domain is in the swap besides", |memory| Some(memory.swapped_bytes)),
        ("memory_minimum", "Memory that a domain is promised with a minimum", |memory| memory.min_bytes),
        ("memory_kept", "Memory that a protected domain keeps; 0 while it is demoted", |memory| {
            memory.kept_bytes
        }),
        (
            "memory_available",
            "Memory that a domain may use now: less than it uses where others lack it",
            |memory| memory.available_bytes,
        ),
    ];
    for (name, help, bytes) in gauges {
        let family = Family::<OfDomain, Gauge>::default();
        for (domain, bytes) in domains.iter().filter_map(|(name, memory)| Some((*name, bytes(memory)?))) {
            family.get_or_create(&of(domain)).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    }
    let taken = Family::<OfDomain, Counter>::default();
    for (domain, memory) in domains {
        taken.get_or_create(&of(domain)).inc_by(memory.taken_bytes);
    }
    let help = "Memory that was taken from a domain, so that some is free for protected ones";
    registry.register_with_unit("memory_taken", help, Unit::Bytes, taken);
    let held_back = Family::<OfDomain, Seconds>::default();
    for (domain, memory) in domains {
        held_back.get_or_create(&of(domain)).inc_by(seconds(memory.held_back_ns));
    }
    let help =
        "Time for which tasks of a domain were held back, for taking memory or changing files too fast";
    registry.register_with_unit("memory_held_back", help, Unit::Seconds, held_back);
    describe_activity(registry, domains);
    describe_audits(registry, domains);
    let blamed = Family::<OfDomainBy, Seconds>::default();
    for (domain, memory) in domains {
        for (by, count) in &memory.broken_by {
            let labels = OfDomainBy { domain: (*domain).to_owned(), by: by.clone() };
            blamed.get_or_create(&labels).inc_by(*count as f64);
        }
    }
    let help = "Seconds in which a promise of memory was broken, by who took the most memory then; nobody's name: others";
    registry.register_with_unit("memory_broken_by", help, Unit::Seconds, blamed);
}

/// Of those that are protected, whether they are in use.
fn describe_activity(registry: &mut Registry, domains: &[Named<'_>]) {
    let (idle, lapsed) = (Family::<OfDomain, Gauge>::default(), Family::<OfDomain, Gauge>::default());
    let in_use = Family::<OfDomain, Seconds>::default();
    let watched = domains.iter().filter_map(|(name, memory)| Some((*name, memory.activity.as_ref()?)));
    for (domain, activity) in watched {
        idle.get_or_create(&of(domain)).set((activity.idle_ns / 1_000_000_000) as i64);
        lapsed.get_or_create(&of(domain)).set(i64::from(activity.lapsed));
        in_use.get_or_create(&of(domain)).inc_by(seconds(activity.used_ns));
    }
    let help = "How long ago the last sign was that a protected domain is in use, to ten seconds";
    registry.register_with_unit("memory_idle", help, Unit::Seconds, idle);
    let help = "Whether the protection of a domain has lapsed because it is not in use";
    registry.register("memory_lapsed", help, lapsed);
    let help = "Time for which a protected domain was in use, to ten seconds";
    registry.register_with_unit("memory_in_use", help, Unit::Seconds, in_use);
}

/// Counters of those that are promised something.
fn describe_audits(registry: &mut Registry, domains: &[Named<'_>]) {
    let audited = || domains.iter().filter_map(|(name, memory)| Some((*name, memory.audit.as_ref()?)));
    type Time = fn(&Tally) -> f64;
    let times: [(&str, &str, Time); 4] = [
        ("memory_stalled", "Time in which tasks of a domain stood still for want of memory", |tally| {
            seconds(tally.stalled_ns)
        }),
        ("memory_in_force", "Time in which what a domain is promised of memory was in force", |tally| {
            seconds(tally.in_force_ns)
        }),
        ("memory_audited", "Seconds in which a promise of memory was judged", |tally| tally.seconds as f64),
        ("memory_broken", "Seconds in which a promise of memory was broken", |tally| tally.broken as f64),
    ];
    for (name, help, time) in times {
        let family = Family::<OfDomain, Seconds>::default();
        for (domain, tally) in audited() {
            family.get_or_create(&of(domain)).inc_by(time(tally));
        }
        registry.register_with_unit(name, help, Unit::Seconds, family);
    }
    type Count = fn(&Tally) -> u64;
    let counts: [(&str, &str, Count); 2] = [
        ("memory_refaults", "Pages of a domain that were fetched again after they had been taken", |tally| {
            tally.refaults
        }),
        ("memory_major_faults", "Faults of a domain that waited for a disk", |tally| tally.major_faults),
    ];
    for (name, help, count) in counts {
        let family = Family::<OfDomain, Counter>::default();
        for (domain, tally) in audited() {
            family.get_or_create(&of(domain)).inc_by(count(tally));
        }
        registry.register(name, help, family);
    }
}

fn of(domain: &str) -> OfDomain {
    OfDomain { domain: domain.to_owned() }
}

impl Daemon {
    /// What is known of a domain's memory, now.
    pub(super) fn memory_figures(&self, path: &str, available_bytes: Option<u64>) -> Option<MemoryFigures> {
        let used = self.domains.cgroups().ok()?.memory_use(path)?;
        let cared = self.domains.cared();
        let held = self.domains.held(path);
        let activity = held.and_then(|held| self.domains.activity_of(path, held.cgroup_id));
        Some(MemoryFigures {
            used_bytes: used.used_bytes,
            swapped_bytes: used.swapped_bytes,
            min_bytes: held.and_then(|held| held.settings.memory.min_bytes),
            kept_bytes: cared.kept(path),
            available_bytes,
            held_back_ns: self.memory.lately.held_ns(path),
            taken_bytes: cared.taken(path),
            activity: activity.map(view::activity),
            audit: self.memory.audit.totals.get(path).copied(),
            broken_by: self.broken_by(path),
        })
    }

    /// How much each of these may use now, in bytes; only where that is counted of itself, and served at this address.
    pub(super) fn available_bytes(
        &mut self,
        paths: &[String],
        address: &MetricsAddress,
    ) -> BTreeMap<String, u64> {
        if !self.is_availability_served(address) {
            return BTreeMap::new();
        }
        let now_ns = now_ns();
        // Whoever may read metrics has root's part of the looks.
        let available = |path: &String| {
            let figures = self.availability(path, 0, now_ns).ok().filter(|figures| figures.path == *path)?;
            Some((path.clone(), figures.amounts.available_bytes))
        };
        paths.iter().filter_map(available).collect()
    }

    /// Whether the rules let whoever can read the metrics know how much memory all domains may use: at a socket that is
    /// root, at any other address nobody knows who, whom only rules for everyone are about.
    fn is_availability_served(&self, address: &MetricsAddress) -> bool {
        let reader = Identity::of_user(match address {
            MetricsAddress::Unix(_) => 0,
            MetricsAddress::Tcp(_) => NOBODY_KNOWN,
        });
        let request = Request::of_availability(Target::Others, "domains");
        self.settings.policy.permit(&reader, &request).is_ok()
    }

    fn broken_by(&self, path: &str) -> BTreeMap<String, u64> {
        let name = |by: &String| match by.as_str() {
            "" => String::new(),
            by => self.domains.names().name_of(by),
        };
        let blamed = self.memory.audit.blamed_totals.get(path).into_iter().flatten();
        blamed.map(|(by, count)| (name(by), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use steward_core::authority::{Matrix, parse_rules};
    use steward_kernel::Roots;
    use steward_kernel::cgroup::reading::MemoryUse;

    use super::*;
    use crate::fake::cgroups::FakeCgroups;
    use crate::fake::disk::FakeDisk;
    use crate::fake::{Fake, options};
    use crate::files::accounts::AccountFiles;
    use crate::server::peer::Caller;

    #[test]
    fn what_domains_may_use_is_served_where_root_alone_reads_and_elsewhere_if_everyone_may_know_it() {
        let (directory, cgroups) = (tempfile::tempdir().expect("a directory"), FakeCgroups::default());
        let tree = Ok(Box::new(cgroups.clone()) as Box<_>);
        let options = options(directory.path(), Roots::default());
        let mut daemon =
            Daemon::start(options, Fake::default().loader(), tree, Arc::new(FakeDisk::default()))
                .expect("it starts");
        let create = api::CreateDomain { domain: "a".into(), keep: Some(true), ..Default::default() };
        let root = Caller::of_process(0, 0, std::process::id() as i32);
        daemon.create_domain(&root, &create).expect("it is free");
        cgroups.tree().memory_available = 100;
        cgroups.tree().used.insert("steward.a".into(), MemoryUse { used_bytes: 7, ..MemoryUse::default() });
        let served = |daemon: &mut Daemon, address: &MetricsAddress| {
            let mut domains = daemon.figures(address).domains.into_iter();
            let memory = domains.find(|domain| domain.name == "a").and_then(|domain| domain.memory);
            memory.map(|memory| (memory.used_bytes, memory.available_bytes)).expect("it is counted")
        };
        let tcp = MetricsAddress::Tcp("127.0.0.1:9101".parse().expect("an address"));
        let socket = MetricsAddress::Unix("/run/steward/metrics".into());
        assert_eq!(served(&mut daemon, &socket), (7, Some(107)));
        assert_eq!(served(&mut daemon, &tcp), (7, None));
        let mut rule = |who: &str, verdict: &str| {
            let text = format!(
                "[[rule]]\nwho = \"{who}\"\naction = \"read-availability\"\nof = \"anyone\"\nverdict = \"{verdict}\"\n"
            );
            daemon.settings.policy.matrix =
                Matrix::of(vec![parse_rules(Path::new("a.toml"), &text, &AccountFiles::default())]);
            [served(&mut daemon, &socket).1, served(&mut daemon, &tcp).1]
        };
        assert_eq!(rule("everyone", "allow"), [Some(107); 2]);
        assert_eq!(rule("root", "allow"), [Some(107), None]);
        assert_eq!(rule("everyone", "ask"), [None; 2], "nobody can be asked here");
    }
}

//! Metrics for Prometheus: what is promised, to whom, and whether it is kept, as OpenMetrics text in base units.
//!
//! Domains have labels, processes have none: their number and names change too much. [`Figures`] is what the loop
//! knows; [`text`] is its form; the [endpoint](crate::server::metrics::endpoint) serves it.

mod disk;
pub mod endpoint;
mod labels;
mod memory;

use std::collections::BTreeSet;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use steward_core::config::MetricsAddress;
use steward_core::cpu::audit::{self, Tally};
use steward_core::cpu::forecast::Forecast;
use steward_core::cpu::mechanism::{DomainRecord, MechanismKind, Standing};
use steward_core::disk::explain::Use;

use crate::daemon::Daemon;
use crate::turn::clock::now_ns;
pub use disk::DiskWork;
use labels::{OfDomain, Ratio, Seconds, Word, seconds};
pub use memory::MemoryFigures;

/// Everything that is served, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The daemon's version.
    pub version: String,
    /// What is in force.
    pub mechanism: Option<MechanismKind>,
    /// How often it was loaded again.
    pub restarts: u64,
    /// How many CPUs are online.
    pub cpus: u32,
    /// Tasks with a specification, by standing.
    pub tasks: Vec<(Standing, u64)>,
    /// Decisions since the daemon started, by kind.
    pub decisions: Vec<(&'static str, u64)>,
    /// Decisions that were lost because nobody read them in time.
    pub decisions_lost: u64,
    /// Problems of files, and what goes wrong in the daemon.
    pub problems: u64,
    /// What all tasks together get, wanted, will get and could get.
    pub forecast: Forecast,
    /// The CPU time that the daemon has spent on disks, in nanoseconds, by what for.
    pub spent_on_disks_ns: Vec<(&'static str, u64)>,
    /// Domains that were made by Steward, or given something, and the root.
    pub domains: Vec<DomainFigures>,
}

/// One domain with all below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainFigures {
    /// Its name.
    pub name: String,
    /// The fraction of the machine that is reserved for it; 0 when nothing is.
    pub reserved: f64,
    /// CPU time as best-effort, in nanoseconds.
    pub best_effort_ns: u64,
    /// CPU time out of reservations of tasks, in nanoseconds.
    pub reserved_ns: u64,
    /// Time that tasks have waited, summed over tasks, in nanoseconds.
    pub waited_ns: u64,
    /// What was found about its promise since the daemon started; `None` while nothing is promised.
    pub audit: Option<Tally>,
    /// Its memory; `None` where that is not counted.
    pub memory: Option<MemoryFigures>,
    /// What it had of the disks; `None` where that is not counted.
    pub disk: Option<Use>,
    /// What its disk requests took, and for how long it waited for disks.
    pub disk_work: DiskWork,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfVersion {
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfDomainAndKind {
    domain: String,
    kind: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfMechanism {
    mechanism: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfStanding {
    standing: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfAllocation {
    allocation: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfDecision {
    decision: Word,
}

/// The figures as OpenMetrics text, which ends with `# EOF`.
pub fn text(figures: &Figures) -> String {
    let mut registry = Registry::with_prefix("steward");
    describe_daemon(&mut registry, figures);
    describe_domains(&mut registry, &figures.domains);
    let of_memory = figures.domains.iter();
    let of_memory = of_memory.filter_map(|domain| Some((domain.name.as_str(), domain.memory.as_ref()?)));
    memory::describe(&mut registry, &of_memory.collect::<Vec<_>>());
    disk::describe_spent(&mut registry, &figures.spent_on_disks_ns);
    let of_disk = figures.domains.iter();
    let of_disk = of_disk.filter_map(|domain| Some((domain.name.as_str(), domain.disk.as_ref()?)));
    disk::describe(&mut registry, &of_disk.collect::<Vec<_>>());
    let works = figures.domains.iter().map(|domain| (domain.name.as_str(), &domain.disk_work));
    disk::describe_work(&mut registry, &works.collect::<Vec<_>>());
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

/// OpenMetrics text in Prometheus' own text format: there a counter is described by the name that its samples have, and
/// units and the end are not written.
pub fn prometheus_text(open_metrics: &str) -> String {
    let counters: BTreeSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        match parts[..] {
            ["#", "EOF"] | ["#", "UNIT", ..] => continue,
            ["#", what, name, rest] if counters.contains(name) => {
                text.extend(["# ", what, " ", name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

fn describe_daemon(registry: &mut Registry, figures: &Figures) {
    // A gauge and not of the type `info`, which Prometheus' own text format does not have.
    let build = Family::<OfVersion, Gauge>::default();
    build.get_or_create(&OfVersion { version: figures.version.clone() }).set(1);
    registry.register("build_info", "The daemon's version", build);
    let in_force = Family::<OfMechanism, Gauge>::default();
    let names = [
        (MechanismKind::SchedExt, "sched_ext"),
        (MechanismKind::Deadline, "deadline"),
        (MechanismKind::Nice, "nice"),
    ];
    for (kind, name) in names {
        let is_in_force = figures.mechanism == Some(kind);
        in_force.get_or_create(&OfMechanism { mechanism: Word(name) }).set(is_in_force.into());
    }
    registry.register("mechanism_in_force", "What enforces reservations: 1 if this does", in_force);
    registry.register("mechanism_restarts", "How often it was loaded again", counter(figures.restarts));
    registry.register("cpus", "CPUs that are online", gauge(figures.cpus.into()));
    let tasks = Family::<OfStanding, Gauge>::default();
    for (standing, count) in &figures.tasks {
        let standing = Word(match standing {
            Standing::Admitted => "admitted",
            Standing::Refused => "refused",
            Standing::Revoked => "revoked",
        });
        tasks.get_or_create(&OfStanding { standing }).set(i64::try_from(*count).unwrap_or(i64::MAX));
    }
    registry.register("tasks", "Tasks with a specification, by where they stand", tasks);
    let decisions = Family::<OfDecision, Counter>::default();
    for (kind, count) in &figures.decisions {
        decisions.get_or_create(&OfDecision { decision: Word(kind) }).inc_by(*count);
    }
    registry.register("decisions", "Decisions about tasks and domains since the daemon started", decisions);
    let lost = counter(figures.decisions_lost);
    registry.register("decisions_lost", "Decisions that came too fast to be counted", lost);
    let problems = gauge(figures.problems);
    registry.register("problems", "What is wrong now; steward status says what", problems);
    describe_forecast(registry, &figures.forecast);
}

fn describe_forecast(registry: &mut Registry, forecast: &Forecast) {
    let family = Family::<OfAllocation, Ratio>::default();
    for (allocation, ms_per_s) in [
        ("actual", forecast.actual_ms_per_s),
        ("desired", forecast.desired_ms_per_s),
        ("predicted", forecast.predicted_ms_per_s),
        ("potential", forecast.potential_ms_per_s),
    ] {
        family.get_or_create(&OfAllocation { allocation: Word(allocation) }).set(ms_per_s / 1000.0);
    }
    let help =
        "CPUs that all tasks together got, wanted, will get and could get, over the last second and the next";
    registry.register("forecast_cpus", help, family);
}

fn counter(count: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(count);
    counter
}

fn gauge(count: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    gauge
}

fn describe_domains(registry: &mut Registry, domains: &[DomainFigures]) {
    let reserved = Family::<OfDomain, Ratio>::default();
    let cpu = Family::<OfDomainAndKind, Seconds>::default();
    let waited = Family::<OfDomain, Seconds>::default();
    for domain in domains {
        let of = OfDomain { domain: domain.name.clone() };
        reserved.get_or_create(&of).set(domain.reserved);
        waited.get_or_create(&of).inc_by(seconds(domain.waited_ns));
        for (kind, time_ns) in [("best_effort", domain.best_effort_ns), ("reserved", domain.reserved_ns)] {
            let of = OfDomainAndKind { domain: domain.name.clone(), kind: Word(kind) };
            cpu.get_or_create(&of).inc_by(seconds(time_ns));
        }
    }
    let help = "Fraction of the machine that is reserved for a domain";
    registry.register_with_unit("domain_reserved", help, Unit::Ratios, reserved);
    let help = "CPU time of a domain with all below it, as best-effort and out of reservations of tasks";
    registry.register_with_unit("domain_cpu", help, Unit::Seconds, cpu);
    let help =
        "Time that tasks of a domain and below it have waited for a CPU as best-effort, summed over tasks";
    registry.register_with_unit("domain_waiting", help, Unit::Seconds, waited);
    type Figure = fn(&Tally) -> f64;
    let audits: [(&str, &str, Figure); 4] = [
        ("domain_promised", "CPU time that a domain was promised", |tally| seconds(tally.promised_ns)),
        ("domain_wanted", "CPU time that it wanted of that, at least", |tally| seconds(tally.wanted_ns)),
        ("domain_audited", "Seconds with something promised and wanted", |tally| tally.seconds as f64),
        ("domain_broken", "Seconds in which a promise was broken", |tally| tally.broken as f64),
    ];
    for (name, help, figure) in audits {
        let family = Family::<OfDomain, Seconds>::default();
        for (domain, tally) in domains.iter().filter_map(|domain| Some((domain, domain.audit.as_ref()?))) {
            family.get_or_create(&OfDomain { domain: domain.name.clone() }).inc_by(figure(tally));
        }
        registry.register_with_unit(name, help, Unit::Seconds, family);
    }
}

impl Daemon {
    /// What is served at an address, now.
    pub(crate) fn figures(&mut self, address: &MetricsAddress) -> Figures {
        self.disk.counting.ask(now_ns());
        let snapshot = self.snapshot().unwrap_or_default();
        let standings = [Standing::Admitted, Standing::Refused, Standing::Revoked];
        let count = |standing| snapshot.tasks.iter().filter(|task| task.standing == standing).count() as u64;
        let records =
            self.cpu.mechanism.as_mut().and_then(|mechanism| mechanism.domains().ok()).unwrap_or_default();
        Figures {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mechanism: self.cpu.mechanism.as_ref().map(|mechanism| mechanism.kind()),
            restarts: self.cpu.loading.restarts,
            cpus: self.online_cpu_count(),
            tasks: standings.map(|standing| (standing, count(standing))).to_vec(),
            decisions: self.decisions.iter().map(|(kind, count)| (*kind, *count)).collect(),
            decisions_lost: self.events_lost,
            problems: (self.problems().count() + self.health.all().count()) as u64,
            forecast: self.outlook_with(&records, now_ns()).report.machine,
            spent_on_disks_ns: self.disk.spent_ns().to_vec(),
            domains: self.domain_figures(&records, address),
        }
    }

    /// What is counted of a domain.
    fn disk_work(&self, path: &str) -> DiskWork {
        let totals = self.disk.totals.get(path);
        DiskWork {
            device_ns: self.disk.counting.has_counted().then(|| totals.map_or(0, |totals| totals.device_ns)),
            lately: self.domains.disk_lately.get(path).cloned(),
            waits: totals.map(|totals| totals.waits.clone()).unwrap_or_default(),
            dirty_bytes: self.domains.cgroups().ok().and_then(|cgroups| cgroups.dirty_bytes(path)),
        }
    }

    fn domain_figures(&mut self, records: &[DomainRecord], address: &MetricsAddress) -> Vec<DomainFigures> {
        let places = self.domains.places();
        let paths: Vec<String> = places.iter().map(|(path, _)| path.clone()).collect();
        let available = self.available_bytes(&paths, address);
        let family = audit::Family::of(records);
        let figures = places.into_iter().map(|(path, cgroup_id)| {
            let mut figures = DomainFigures {
                name: self.domains.names().name_of(&path),
                reserved: family.reserved_of_machine(cgroup_id),
                audit: self.cpu.audit.totals.get(&path).copied(),
                memory: self.memory_figures(&path, available.get(&path).copied()),
                disk: self.domains.cgroups().ok().and_then(|cgroups| cgroups.disk_use(&path)),
                disk_work: self.disk_work(&path),
                ..DomainFigures::default()
            };
            for record in family.at_or_below(cgroup_id) {
                figures.best_effort_ns = figures.best_effort_ns.saturating_add(record.best_effort_time_ns);
                figures.reserved_ns = figures.reserved_ns.saturating_add(record.reserved_time_ns);
                figures.waited_ns = figures.waited_ns.saturating_add(record.waiting_time_ns);
            }
            figures
        });
        figures.collect()
    }
}

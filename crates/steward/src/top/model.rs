//! The one model behind the screen, `--once`, `--json`, recordings and the report: what the daemon's answers say
//! together, with what was before. Pure: time and all else come in with a [`Reading`].

use std::collections::{BTreeMap, HashMap, HashSet};

use libsteward::api;
use serde::{Deserialize, Serialize};

use super::cpu::promise::{self, Keeping};
use super::disk::Disk;
use super::groups::{self, GroupRow};
use super::history::History;
use super::memory::Memory;
use super::row::{DomainRow, Key, TaskRow};
use super::text::NOTHING_MS_PER_S;

/// What the daemon said at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Forecasts of all that the caller may see.
    pub forecasts: api::Forecasts,
    /// Mechanism, and tasks with a reservation.
    pub status: api::StatusReply,
    /// Settings of the domains.
    pub domains: api::DomainList,
    /// Decisions since the reading before; in the first, all that the daemon remembers.
    pub events: Vec<api::Event>,
    /// Which of the tasks are threads of the kernel itself, by number.
    pub kernel_threads: HashSet<i32>,
    /// What became of promises of memory, by the names of the domains, where that was asked.
    pub memory_records: HashMap<String, Vec<api::AuditedMemory>>,
    /// Why there are no domains, where there are none: all tasks are below the root then.
    pub no_domains: Option<String>,
}

/// How many promises stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// Got what they wanted of what was promised.
    pub kept: u64,
    /// Got less, or are not in force.
    pub broken: u64,
    /// Wanted nothing.
    pub idle: u64,
}

/// All that is known at one moment: what `steward top --json` prints, and one line of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The same moment in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Over how long the figures of the past are, in nanoseconds; 0 when the daemon has none yet, and all are 0.
    pub window_ns: u64,
    /// What enforces reservations: `sched_ext`, `SCHED_DEADLINE`, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<String>,
    /// Which model predicts.
    pub model: String,
    /// Where the figures come from.
    pub source: String,
    /// How many CPUs are online.
    pub cpus: u32,
    /// How many tasks there are that the caller may not see.
    pub hidden: u64,
    /// All tasks of the machine together.
    pub machine: api::Forecast,
    /// Those outside of what was asked for, together.
    pub others: api::Forecast,
    /// How the promises stand.
    pub promises: Promises,
    /// The domains, parents before children.
    pub domains: Vec<DomainRow>,
    /// The tasks. In a recording only those with a promise.
    pub tasks: Vec<TaskRow>,
    /// Tasks that belong together. Left out of JSON and recordings, which have the tasks.
    #[serde(skip)]
    pub groups: Vec<GroupRow>,
    /// Why there are no domains, where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_domains: Option<String>,
    /// Decisions since the snapshot before. Empty in the first.
    #[serde(default)]
    pub events: Vec<api::Event>,
}

/// The latest snapshot, with the history of all that is in it.
#[derive(Clone, Debug, Default)]
pub struct Model {
    snapshot: Snapshot,
    histories: HashMap<Key, History>,
    /// The latest decision that put a task out or refused it, by thread.
    decisions: BTreeMap<i32, api::Event>,
    /// Whether children inherit, and whether it may be revoked: of each thread with a reservation.
    flags: HashMap<i32, (bool, bool)>,
    readings: u64,
}

impl Model {
    /// Whether a thread's reservation is inherited and whether it may be revoked, where it has one.
    pub fn flags(&self, tid: i32) -> Option<(bool, bool)> {
        self.flags.get(&tid).copied()
    }

    /// The latest snapshot; empty before the first reading.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether anything was read yet.
    pub fn is_empty(&self) -> bool {
        self.readings == 0
    }

    /// What a row was like before.
    pub fn history(&self, key: &Key) -> Option<&History> {
        self.histories.get(key)
    }

    /// Takes in what the daemon said.
    pub fn take(&mut self, reading: Reading) {
        let Reading { unix_ms, forecasts, status, domains, events, kernel_threads, no_domains, .. } = reading;
        let mut records = reading.memory_records;
        for event in events.iter().filter(|event| promise::puts_out(event.kind)) {
            self.decisions.extend(event.task.as_ref().map(|task| (task.tid, event.clone())));
        }
        // What is known of tasks without a specification serves nobody any more.
        let known: HashSet<i32> = status.cpu.tasks.iter().map(|task| task.tid).collect();
        self.decisions.retain(|tid, _| known.contains(tid));
        let api::Forecasts { at_ns, window_ns, model, source, cpus, hidden, machine, others, .. } = forecasts;
        let mut rows_of_domains = domain_rows(forecasts.domains, &domains, &status, cpus, window_ns > 0);
        for row in &mut rows_of_domains {
            row.memory_record = records.remove(&row.domain.name).unwrap_or_default();
        }
        let suspended = suspended(&rows_of_domains);
        let mut rows_of_tasks = self.task_rows(forecasts.tasks, &status, &suspended, at_ns);
        rows_of_tasks.iter_mut().for_each(|row| row.kernel = kernel_threads.contains(&row.task.tid));
        let flags =
            status.cpu.tasks.iter().map(|task| (task.tid, (task.grant.inherit, task.grant.revocable)));
        self.flags = flags.collect();
        let first = self.is_empty();
        self.snapshot = Snapshot {
            unix_ms,
            at_ns,
            window_ns,
            mechanism: status.cpu.mechanism.kind.map(|kind| crate::status::mechanism_name(kind).to_owned()),
            model,
            source,
            cpus,
            hidden,
            machine,
            others,
            promises: count(&rows_of_domains, &rows_of_tasks),
            domains: rows_of_domains,
            groups: groups::of(&rows_of_tasks, cpus),
            tasks: rows_of_tasks,
            no_domains,
            events: if first { Vec::new() } else { events },
        };
        self.remember();
        self.readings += 1;
    }

    fn task_rows(
        &mut self,
        tasks: Vec<api::TaskForecast>,
        status: &api::StatusReply,
        suspended: &HashSet<String>,
        at_ns: u64,
    ) -> Vec<TaskRow> {
        let promised: HashMap<i32, &api::Task> =
            status.cpu.tasks.iter().map(|task| (task.tid, task)).collect();
        let mut rows = Vec::with_capacity(tasks.len());
        for task in tasks {
            let of_status = promised.get(&task.tid).filter(|promised| promised.pid == task.pid);
            let promise = of_status.map(|promised| {
                let history = self.histories.entry(Key::Task(task.tid, task.pid)).or_default();
                let (periods, missed) = (promised.periods, promised.deadlines_missed);
                let deadlines = history.deadlines(at_ns, periods, missed, promised.budgets_exhausted);
                let decision = self.decisions.get(&task.tid);
                promise::of_task(promised, deadlines, decision, suspended.contains(&task.domain))
            });
            rows.push(TaskRow { task, promise, kernel: false });
        }
        rows
    }

    /// Adds the snapshot to the histories, and forgets those of what has gone.
    fn remember(&mut self) {
        let (at_ns, snapshot) = (self.snapshot.at_ns, &self.snapshot);
        let mut present = HashSet::with_capacity(snapshot.domains.len() + snapshot.tasks.len());
        let domains = snapshot
            .domains
            .iter()
            .map(|row| (Key::Domain(row.domain.name.clone()), &row.domain.forecast, row.promise.as_ref()));
        let tasks = snapshot.tasks.iter();
        let tasks = tasks.map(|row| (row.key(), &row.task.forecast, row.promise.as_ref()));
        let groups = snapshot.groups.iter();
        let groups = groups.map(|row| (row.key.clone(), &row.forecast, row.promise.as_ref()));
        for (key, forecast, promise) in domains.chain(tasks).chain(groups) {
            // Most tasks of a machine never do anything while it is watched, and need no memory.
            let most_ms_per_s = forecast.actual_ms_per_s.max(forecast.desired_ms_per_s);
            let is_idle = most_ms_per_s < NOTHING_MS_PER_S && promise.is_none();
            if !is_idle || self.histories.contains_key(&key) {
                let history = self.histories.entry(key.clone()).or_default();
                history.add(at_ns, forecast, promise.map(|promise| promise.state));
                present.insert(key);
            }
        }
        self.histories.retain(|key, _| present.contains(key));
    }
}

impl Snapshot {
    /// Whether the daemon has counted long enough for figures.
    pub fn is_measured(&self) -> bool {
        self.window_ns > 0
    }

    /// The same as a recording keeps it: tasks without a promise are left out.
    pub fn to_record(&self) -> Snapshot {
        let tasks = self.tasks.iter().filter(|row| row.promise.is_some()).cloned().collect();
        Snapshot { tasks, ..self.clone() }
    }
}

fn domain_rows(
    forecasts: Vec<api::DomainForecast>,
    domains: &api::DomainList,
    status: &api::StatusReply,
    cpus: u32,
    measured: bool,
) -> Vec<DomainRow> {
    let by_name: HashMap<&str, &api::Domain> =
        domains.domains.iter().map(|domain| (domain.name.as_str(), domain)).collect();
    let mechanism = &status.cpu.mechanism;
    let reason = mechanism.exit_reason.as_deref().or(mechanism.note.as_deref());
    let nothing_in_force =
        mechanism.kind.is_none().then(|| reason.unwrap_or("nothing enforces reservations now"));
    // What fractions are of: what a domain has reserved, or without a reservation what it got. Parents come first.
    let mut has_ms_per_s: HashMap<String, f64> = HashMap::from([("/".to_owned(), f64::from(cpus) * 1e3)]);
    let rows = forecasts.into_iter().map(|domain| {
        let of_parent = domain.parent.as_ref().and_then(|parent| has_ms_per_s.get(parent)).copied();
        let cpu = by_name.get(domain.name.as_str()).and_then(|settings| settings.cpu);
        // A parent that may not be seen: what the weights give too is the best that is known.
        let promised_ms_per_s = match (of_parent, cpu) {
            (Some(of_parent), Some(cpu)) => of_parent * cpu,
            _ => domain.guaranteed * f64::from(cpus) * 1e3,
        };
        let has = cpu.map_or(domain.forecast.actual_ms_per_s, |_| promised_ms_per_s);
        has_ms_per_s.entry(domain.name.clone()).or_insert(has);
        let promise = promise::of_domain(&domain, &by_name, promised_ms_per_s, nothing_in_force, measured);
        let memory = by_name.get(domain.name.as_str()).and_then(|known| Memory::of(known));
        let disk = by_name.get(domain.name.as_str()).and_then(|known| Disk::of(known));
        DomainRow { domain, promise, memory, disk, memory_record: Vec::new() }
    });
    rows.collect()
}

/// The domains that are suspended, themselves or with one above them.
fn suspended(rows: &[DomainRow]) -> HashSet<String> {
    let mut names = HashSet::new();
    // Parents come before children.
    for DomainRow { domain, .. } in rows {
        if domain.suspended || domain.parent.as_ref().is_some_and(|parent| names.contains(parent)) {
            names.insert(domain.name.clone());
        }
    }
    names
}

fn count(domains: &[DomainRow], tasks: &[TaskRow]) -> Promises {
    let mut promises = Promises::default();
    let domains = domains.iter().filter_map(|row| row.promise.as_ref());
    for promise in domains.chain(tasks.iter().filter_map(|row| row.promise.as_ref())) {
        match promise.state {
            Keeping::Kept => promises.kept += 1,
            Keeping::Broken => promises.broken += 1,
            Keeping::Idle => promises.idle += 1,
        }
    }
    promises
}

#[cfg(test)]
pub mod testing {
    //! The sample as readings.

    use std::collections::HashMap;

    use libsteward::api;

    use super::{Model, Reading};
    use crate::top::sample;

    /// What the daemon says after that many seconds.
    pub fn reading(second: u64) -> Reading {
        Reading {
            unix_ms: 1_800_000_000_000 + second * 1000,
            forecasts: sample::forecasts(second),
            status: sample::status(second),
            domains: sample::domains(),
            events: if second == 0 { sample::events() } else { Vec::new() },
            kernel_threads: Default::default(),
            memory_records: if second == 20 { memory_records() } else { Default::default() },
            no_domains: None,
        }
    }

    /// What became of what a domain was promised of the memory.
    fn memory_records() -> HashMap<String, Vec<api::AuditedMemory>> {
        let minute = api::AuditedMemory {
            span: "minute".into(),
            seen_ns: 60_000_000_000,
            in_force_ns: 60_000_000_000,
            seconds: 60,
            broken: 2,
            worst_stalled_ns: 120_000_000,
            culprits: vec![api::Culprit { domain: Some("batch".into()), seconds: 2, taken: 30 << 20 }],
            ..api::AuditedMemory::default()
        };
        HashMap::from([("web".to_owned(), vec![minute])])
    }

    /// The same with threads: two more of the film, and two of the kernel's.
    pub fn reading_with_threads() -> Reading {
        let mut reading = reading(0);
        let film = reading.forecasts.tasks[4].clone();
        let busy = |actual: f64, desired: f64| libsteward::api::Forecast {
            actual_ms_per_s: actual,
            desired_ms_per_s: desired,
            predicted_ms_per_s: actual,
            potential_ms_per_s: 1000.0,
            slowdown: Some(desired / actual),
            ..Default::default()
        };
        let mut add = |tid, pid, name: &str, domain: &str, forecast| {
            let user = if domain == "/" { 0 } else { film.user };
            let (name, domain) = (name.to_owned(), domain.to_owned());
            reading.forecasts.tasks.push(libsteward::api::TaskForecast {
                tid,
                pid,
                name,
                domain,
                user,
                forecast,
                ..film.clone()
            });
        };
        add(4322, 4321, "decoder", &film.domain, busy(15.0, 20.0));
        add(4323, 4321, "音声", &film.domain, busy(5.0, 10.0));
        add(9, 9, "kworker/0:1", "/", busy(1.0, 1.0));
        add(10, 10, "ksoftirqd/0", "/", busy(2.0, 2.0));
        reading.kernel_threads = [9, 10].into();
        reading
    }

    /// A model that has read for half a minute.
    pub fn model() -> Model {
        let mut model = Model::default();
        (0..30).for_each(|second| model.take(reading(second)));
        model
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{model, reading};
    use super::*;
    use crate::top::cpu::promise::Promise;

    fn task<'a>(snapshot: &'a Snapshot, name: &str) -> &'a TaskRow {
        snapshot.tasks.iter().find(|row| row.task.name == name).expect("it is in the sample")
    }

    fn domain<'a>(snapshot: &'a Snapshot, name: &str) -> &'a DomainRow {
        snapshot.domains.iter().find(|row| row.domain.name == name).expect("it is in the sample")
    }

    fn state(promise: &Option<Promise>) -> (Keeping, &str) {
        promise.as_ref().map(|promise| (promise.state, promise.why.as_str())).expect("it has a promise")
    }

    #[test]
    fn a_promise_that_is_broken_says_why() {
        let model = model();
        let snapshot = model.snapshot();
        let (film, why) = state(&task(snapshot, "mplayer").promise);
        assert_eq!((film, why), (Keeping::Broken, sample_event().as_str()));
        let (web, why) = state(&domain(snapshot, "web").promise);
        let wanted = "got 200 of the 600 ms/s that it was promised and wanted: cpu.max of web holds it back";
        assert_eq!((web, why), (Keeping::Broken, wanted));
        let (batch, why) = state(&domain(snapshot, "batch").promise);
        assert_eq!((batch, why), (Keeping::Kept, "got 400 of the 400 ms/s that it was promised and wanted"));
        let (vim, why) = state(&task(snapshot, "vim").promise);
        assert_eq!((vim, why), (Keeping::Kept, "no deadline missed in 725 periods in the last 29s"));
        assert_eq!(domain(snapshot, "user.slice").promise, None);
        assert_eq!(snapshot.promises, Promises { kept: 2, broken: 2, idle: 0 });
    }

    fn sample_event() -> String {
        crate::top::sample::events()[0].text.clone()
    }

    #[test]
    fn a_missed_deadline_breaks_a_promise_only_once_it_is_seen_to_be_new() {
        let mut model = Model::default();
        model.take(reading(0));
        let (vim, why) = state(&task(model.snapshot(), "vim").promise);
        assert_eq!(vim, Keeping::Kept, "{why}");
        assert!(why.contains("2 of 100 deadlines since it was admitted"), "{why}");
        let mut next = reading(1);
        next.status.cpu.tasks[1].deadlines_missed += 1;
        model.take(next);
        let (vim, why) = state(&task(model.snapshot(), "vim").promise);
        assert_eq!((vim, why), (Keeping::Broken, "missed 1 of 25 deadlines in the last 1s"));
    }

    #[test]
    fn what_holds_for_a_domain_is_said_first() {
        let changed = |change: &dyn Fn(&mut Reading)| {
            let (mut model, mut reading) = (Model::default(), reading(0));
            change(&mut reading);
            model.take(reading);
            domain(model.snapshot(), "web").promise.clone()
        };
        let gone = changed(&|reading| {
            reading.status.cpu.mechanism.kind = None;
            reading.status.cpu.mechanism.exit_reason = Some("the scheduler was ejected".into());
        });
        assert_eq!(state(&gone), (Keeping::Broken, "not in force: the scheduler was ejected"));
        let suspended = changed(&|reading| reading.forecasts.domains[4].suspended = true);
        assert_eq!(state(&suspended).0, Keeping::Idle);
        let unknown = changed(&|reading| reading.forecasts.window_ns = 0);
        assert_eq!(state(&unknown), (Keeping::Idle, "there are no figures yet"));
        let idle = changed(&|reading| reading.forecasts.domains[4].forecast.desired_ms_per_s = 0.0);
        assert_eq!(state(&idle), (Keeping::Idle, "it wanted nothing"));
        let circle = changed(&|reading| {
            reading.domains.domains[4].usage = None;
            reading.domains.domains[4].parent = Some("web".into());
        });
        assert_eq!(state(&circle).0, Keeping::Broken);
    }

    #[test]
    fn a_domain_is_promised_what_it_reserved_and_not_what_weights_might_add() {
        let (mut model, mut reading) = (Model::default(), reading(0));
        // A domain below one without a reservation has its fraction of what that one got, and below one with, of that.
        let nested =
            api::DomainForecast { name: "web/a".into(), parent: Some("web".into()), ..Default::default() };
        reading.forecasts.domains.push(nested);
        reading.domains.domains.push(api::Domain {
            name: "web/a".into(),
            cpu: Some(0.5),
            ..Default::default()
        });
        reading.forecasts.domains[4].guaranteed = 0.9;
        reading.domains.domains[3].cpu = Some(0.5);
        model.take(reading);
        let promised =
            |name: &str| domain(model.snapshot(), name).promise.as_ref().map(|it| it.promised_ms_per_s);
        let user = "user.slice/user-1000.slice";
        assert_eq!(["web", "web/a", user].map(promised), [Some(600.0), Some(300.0), Some(115.0)]);
    }

    #[test]
    fn a_task_that_never_did_anything_costs_no_memory() {
        let mut model = model();
        let cron = Key::Task(77, 77);
        assert_eq!(model.history(&cron).map(|history| history.points().len()), None);
        let mut next = reading(30);
        next.forecasts.tasks[0].forecast.actual_ms_per_s = 5.0;
        model.take(next);
        model.take(reading(31));
        assert_eq!(model.history(&cron).map(|history| history.points().len()), Some(2));
    }

    #[test]
    fn what_has_gone_is_forgotten_and_a_number_that_comes_back_is_another_task() {
        let mut model = model();
        let film = Key::Task(4321, 4321);
        assert_eq!(model.history(&film).map(|history| history.points().len()), Some(30));
        let mut next = reading(30);
        next.forecasts.tasks[4].pid = 4320;
        model.take(next);
        assert_eq!(model.history(&film).map(|history| history.points().len()), None);
        let other = model.snapshot().tasks.iter().find(|row| row.task.tid == 4321).expect("it is there");
        assert_eq!((other.key(), &other.promise), (Key::Task(4321, 4320), &None));
        let mut empty = reading(31);
        empty.forecasts.tasks.clear();
        empty.forecasts.domains.clear();
        model.take(empty);
        assert!(model.histories.is_empty());
    }

    #[test]
    fn a_snapshot_is_read_back_as_it_was_written() {
        let model = model();
        let snapshot = model.snapshot();
        let text = serde_json::to_string(snapshot).expect("it is JSON");
        assert_eq!(&serde_json::from_str::<Snapshot>(&text).expect("it reads"), snapshot);
        assert_eq!(snapshot.to_record().tasks.len(), 2, "those with a promise");
    }
}

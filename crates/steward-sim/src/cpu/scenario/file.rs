//! Scenario files: TOML to [`Scenario`], with file and line in every error. docs/simulator.md has the reference.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use steward_core::cpu::best_effort::BestEffortSettings;
use steward_core::cpu::config::order_by_name;
use steward_core::cpu::policy::PRIORITIES;
use steward_core::cpu::reservation::Reservation;
use steward_core::cpu::thresholds::Thresholds;
use steward_core::problem::{Origin, Problem};
use steward_core::quantity::{QuantityError, parse_duration};
use toml::{Spanned, Value};

use super::{
    BufferSpec, CPUS_MAX, CpuSet, DomainSpec, MachineSettings, SCENARIO_DOMAINS_MAX, Scenario, TASKS_MAX,
    TaskSpec, set, to_parts, weight_of_nice,
};
use crate::cpu::program::{Phase, Program};
use crate::random::Amount;

/// A scenario file: what it says, and which of it is varied.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    path: PathBuf,
    text: String,
    /// Keys and the values that `[sweep]` wants tried, every combination of them.
    pub sweep: Vec<(String, Vec<String>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    seed: Option<u64>,
    duration: Option<Spanned<String>>,
    warmup: Option<Spanned<String>>,
    #[serde(default)]
    machine: MachineTable,
    #[serde(default)]
    best_effort: BestEffortTable,
    thresholds: Option<Spanned<ThresholdsTable>>,
    #[serde(default)]
    domain: Vec<Spanned<DomainTable>>,
    #[serde(default)]
    buffer: Vec<Spanned<BufferTable>>,
    #[serde(default)]
    task: Vec<Spanned<TaskTable>>,
    #[serde(default)]
    sweep: BTreeMap<String, Vec<Value>>,
}

/// A CPU, or several.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum PinValue {
    One(u32),
    Some(Vec<u32>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineTable {
    cpus: Option<Spanned<u32>>,
    tick: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BestEffortTable {
    order: Option<Spanned<String>>,
    service_cycle: Option<Spanned<String>>,
    preemption_interval: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ThresholdsTable {
    reactivate_below: f64,
    admit_below: f64,
    revoke_above: f64,
    irrevocable_max: Option<f64>,
    user_max: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainTable {
    name: Spanned<String>,
    parent: Option<Spanned<String>>,
    weight: Option<Spanned<u32>>,
    cpu: Option<Spanned<Value>>,
    priority: Option<Spanned<u32>>,
    own_weight: Option<Spanned<u32>>,
    own_priority: Option<Spanned<u32>>,
    max: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BufferTable {
    name: Spanned<String>,
    capacity: u32,
    #[serde(default)]
    level: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskTable {
    name: Spanned<String>,
    count: Option<Spanned<u32>>,
    domain: Option<Spanned<String>>,
    #[serde(default)]
    own_domains: bool,
    nice: Option<Spanned<i32>>,
    start: Option<Spanned<String>>,
    pin: Option<Spanned<PinValue>>,
    cpu: Option<Spanned<String>>,
    irrevocable: Option<bool>,
    user: Option<u32>,
    repeat: Option<u64>,
    program: Spanned<Vec<Spanned<PhaseTable>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseTable {
    run: Option<Spanned<String>>,
    sleep: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    wait: Option<Spanned<String>>,
    until: Option<Spanned<String>>,
    put: Option<Spanned<String>>,
    take: Option<Spanned<String>>,
}

impl ScenarioFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is no scenario: where, what, and what to do.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let what = format!("cannot be read: {error}");
            Problem::error(Origin::at(path, 0), what, "correct the name or its permissions")
        })?;
        Self::parse(path, text)
    }

    /// Takes a file's text; `path` is what errors call it.
    ///
    /// # Errors
    /// As [`ScenarioFile::read`].
    pub fn parse(path: &Path, text: impl Into<String>) -> Result<Self, Problem> {
        let text = text.into();
        let reader = Reader { path, text: &text };
        let document = reader.document()?;
        reader.scenario(&document)?;
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values = |values: &Vec<Value>| values.iter().map(plain).collect();
        let sweep = document.sweep.iter().map(|(key, list)| (key.clone(), values(list))).collect();
        Ok(ScenarioFile { path: path.to_owned(), text, sweep })
    }

    /// The scenario, with `KEY=VALUE` in place of what the file says for each of `settings`.
    ///
    /// # Errors
    /// When a key does not exist or a value does not fit: which, and what to do.
    pub fn scenario(&self, settings: &[(String, String)]) -> Result<Scenario, Problem> {
        if settings.is_empty() {
            let reader = Reader { path: &self.path, text: &self.text };
            return reader.scenario(&reader.document()?);
        }
        let text = set::apply(&self.path, &self.text, settings)?;
        let reader = Reader { path: &self.path, text: &text };
        reader.document().and_then(|document| reader.scenario(&document)).map_err(|mut problem| {
            // The line would be one of a text that nobody has written.
            let pairs: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
            problem.origin = Origin::at(&self.path, 0);
            problem.what = format!("with {}: {}", pairs.join(" "), problem.what);
            problem
        })
    }

    /// Every combination of what `[sweep]` varies, as settings for [`ScenarioFile::scenario`]; one without any when it
    /// varies nothing.
    pub fn points(&self) -> Vec<Vec<(String, String)>> {
        let mut points = vec![Vec::new()];
        for (key, values) in &self.sweep {
            let with = |point: &Vec<(String, String)>, value: &String| {
                let mut point = point.clone();
                point.push((key.clone(), value.clone()));
                point
            };
            points =
                points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        points
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

type Place = Range<usize>;

impl Reader<'_> {
    fn problem(&self, place: Place, what: impl Into<String>, advice: impl Into<String>) -> Problem {
        let before = &self.text.as_bytes()[..place.start.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Problem::error(Origin::at(self.path, line as u32), what, advice)
    }

    fn document(&self) -> Result<Document, Problem> {
        toml::from_str(self.text).map_err(|error| {
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            self.problem(error.span().unwrap_or(0..0), message, "docs/simulator.md lists what a file may say")
        })
    }

    fn quantity<T>(&self, place: Place, result: Result<T, QuantityError>) -> Result<T, Problem> {
        result.map_err(|error| self.problem(place, error.what, error.advice))
    }

    fn duration(&self, value: Option<&Spanned<String>>, otherwise_ns: u64) -> Result<u64, Problem> {
        let Some(value) = value else { return Ok(otherwise_ns) };
        self.quantity(value.span(), parse_duration(value.get_ref()))
    }

    /// A duration that must not be 0.
    fn some_duration(&self, value: Option<&Spanned<String>>, otherwise_ns: u64) -> Result<u64, Problem> {
        let ns = self.duration(value, otherwise_ns)?;
        match value {
            Some(value) if ns == 0 => Err(self.problem(
                value.span(),
                "this time must not be 0",
                "write a longer one, as in \"10ms\"",
            )),
            _ => Ok(ns),
        }
    }

    fn amount(&self, value: &Spanned<String>) -> Result<Amount, Problem> {
        let words: Vec<&str> = value.get_ref().split_whitespace().collect();
        let time = |text: &str| self.quantity(value.span(), parse_duration(text));
        match words[..] {
            ["forever"] => Ok(Amount::Forever),
            ["exponential", mean] => time(mean).map(Amount::Exponential),
            ["uniform", least, most] => {
                let (least, most) = (time(least)?, time(most)?);
                if least > most {
                    let what = format!("{} has its limits the wrong way round", value.get_ref());
                    return Err(self.problem(value.span(), what, "write the shorter time first"));
                }
                Ok(Amount::Uniform(least, most))
            }
            [fixed] => time(fixed).map(Amount::Fixed),
            _ => Err(self.problem(
                value.span(),
                format!("\"{}\" is not an amount of time", value.get_ref()),
                "write \"5ms\", \"uniform 1ms 10ms\", \"exponential 5ms\" or \"forever\"",
            )),
        }
    }

    fn in_range(&self, value: &Spanned<u32>, what: &str, least: u32, most: u32) -> Result<u32, Problem> {
        let number = *value.get_ref();
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let message = format!("{what} is {number}");
        Err(self.problem(value.span(), message, format!("write a number from {least} to {most}")))
    }

    fn scenario(&self, document: &Document) -> Result<Scenario, Problem> {
        let machine = self.machine(&document.machine)?;
        let duration_ns = self.some_duration(document.duration.as_ref(), 10_000_000_000)?;
        let warmup_ns = self.duration(document.warmup.as_ref(), 0)?;
        if warmup_ns >= duration_ns {
            let place = document.warmup.as_ref().map_or(0..0, Spanned::span);
            let what = "the warm-up takes the whole run";
            return Err(self.problem(place, what, "make the duration longer: it includes the warm-up"));
        }
        let mut scenario = Scenario {
            seed: document.seed.unwrap_or(1),
            duration_ns,
            warmup_ns,
            machine,
            best_effort: self.best_effort(&document.best_effort)?,
            thresholds: self.thresholds(document.thresholds.as_ref())?,
            buffers: document.buffer.iter().map(|entry| self.buffer(entry)).collect::<Result<_, _>>()?,
            ..Scenario::default()
        };
        for table in &document.domain {
            let domain = self.domain(table.get_ref(), &scenario.domains)?;
            scenario.domains.push(domain);
        }
        for table in &document.task {
            let task = self.task(table.get_ref(), &mut scenario)?;
            scenario.tasks.push(task);
        }
        self.check_sums(document, &scenario)?;
        Ok(scenario)
    }

    fn machine(&self, table: &MachineTable) -> Result<MachineSettings, Problem> {
        let default = MachineSettings::default();
        let cpus = table.cpus.as_ref().map(|cpus| self.in_range(cpus, "cpus", 1, CPUS_MAX));
        Ok(MachineSettings {
            cpus: cpus.transpose()?.unwrap_or(default.cpus),
            tick_ns: self.some_duration(table.tick.as_ref(), default.tick_ns)?,
        })
    }

    fn best_effort(&self, table: &BestEffortTable) -> Result<BestEffortSettings, Problem> {
        let default = BestEffortSettings::default();
        let order = match &table.order {
            None => default.order,
            Some(word) => order_by_name(word.get_ref()).ok_or_else(|| {
                let what = format!("there is no order \"{}\"", word.get_ref());
                self.problem(word.span(), what, "write \"virtual-time\", \"mtr-ls\" or \"wrr\"")
            })?,
        };
        let interval = table.preemption_interval.as_ref();
        Ok(BestEffortSettings {
            order,
            service_cycle_ns: self.some_duration(table.service_cycle.as_ref(), default.service_cycle_ns)?,
            preemption_interval_ns: self.duration(interval, default.preemption_interval_ns)?,
        })
    }

    fn thresholds(
        &self,
        table: Option<&Spanned<ThresholdsTable>>,
    ) -> Result<steward_sched::decide::LoadThresholds, Problem> {
        let Some(table) = table else { return Ok(to_parts(Thresholds::default())) };
        let ThresholdsTable { reactivate_below, admit_below, revoke_above, irrevocable_max, user_max } =
            *table.get_ref();
        let default = Thresholds::default();
        let irrevocable_max = irrevocable_max.unwrap_or(default.irrevocable_max);
        let user_max = user_max.unwrap_or(default.user_max);
        if !(0.0 < reactivate_below && reactivate_below <= admit_below && admit_below <= revoke_above) {
            let what = "the thresholds are out of order";
            let advice = "keep 0 < reactivate_below <= admit_below <= revoke_above";
            return Err(self.problem(table.span(), what, advice));
        }
        Ok(to_parts(Thresholds { reactivate_below, admit_below, revoke_above, irrevocable_max, user_max }))
    }

    fn buffer(&self, entry: &Spanned<BufferTable>) -> Result<BufferSpec, Problem> {
        let table = entry.get_ref();
        if table.capacity == 0 || table.level > table.capacity {
            let what =
                format!("buffer {} has {} of {} pieces", table.name.get_ref(), table.level, table.capacity);
            return Err(self.problem(entry.span(), what, "write a capacity above 0 and a level up to it"));
        }
        Ok(BufferSpec { name: table.name.get_ref().clone(), capacity: table.capacity, level: table.level })
    }

    /// A fraction from 0 to 1, written as a number or in per cent.
    fn fraction(&self, value: &Spanned<Value>) -> Result<f64, Problem> {
        let fraction = match value.get_ref() {
            Value::Float(number) => Some(*number),
            Value::Integer(number) => Some(*number as f64),
            Value::String(text) => match text.strip_suffix('%') {
                Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
                None => text.trim().parse().ok(),
            },
            _ => None,
        };
        fraction.filter(|fraction| (0.0..=1.0).contains(fraction)).ok_or_else(|| {
            let what = format!("{} is not a fraction of the parent's CPU", value.get_ref());
            self.problem(value.span(), what, "write \"0%\" to \"100%\", or a number from 0 to 1")
        })
    }

    fn domain(&self, table: &DomainTable, known: &[DomainSpec]) -> Result<DomainSpec, Problem> {
        let name = table.name.get_ref();
        if known.iter().any(|domain| domain.name == *name) {
            let what = format!("there are two domains \"{name}\"");
            return Err(self.problem(table.name.span(), what, "give each its own name"));
        }
        let parent = table.parent.as_ref().map(|parent| self.find_domain(parent, known)).transpose()?;
        let mut domain = DomainSpec::new(name, parent);
        if let Some(weight) = &table.weight {
            domain.weight = self.in_range(weight, "the weight", 1, 10_000)?;
        }
        if let Some(cpu) = &table.cpu {
            domain.reserved = self.fraction(cpu)?;
        }
        let most = u32::from(PRIORITIES) - 1;
        if let Some(priority) = &table.priority {
            domain.priority = self.in_range(priority, "the priority", 0, most)? as u8;
        }
        if let Some(priority) = &table.own_priority {
            domain.own_priority = self.in_range(priority, "the own priority", 0, most)? as u8;
        }
        if let Some(weight) = &table.own_weight {
            domain.own_weight = Some(self.in_range(weight, "the own weight", 1, 10_000)?);
        }
        if let Some(max) = &table.max {
            let quota: Reservation = self.quantity(max.span(), max.get_ref().parse())?;
            if quota.budget_ns == 0 || quota.period_ns == 0 {
                return Err(self.problem(max.span(), "a quota of nothing", "write it as in \"20ms/100ms\""));
            }
            domain.quota = Some((quota.budget_ns, quota.period_ns));
        }
        Ok(domain)
    }

    fn find_domain(&self, name: &Spanned<String>, known: &[DomainSpec]) -> Result<usize, Problem> {
        known.iter().position(|domain| domain.name == *name.get_ref()).ok_or_else(|| {
            let what = format!("there is no domain \"{}\" above this line", name.get_ref());
            self.problem(name.span(), what, "add a [[domain]] with that name before it")
        })
    }

    fn task(&self, table: &TaskTable, scenario: &mut Scenario) -> Result<TaskSpec, Problem> {
        let name = table.name.get_ref();
        if scenario.tasks.iter().any(|task| task.name == *name) {
            let what = format!("there are two tasks \"{name}\"");
            return Err(self.problem(table.name.span(), what, "give each its own name; count makes copies"));
        }
        let count = table.count.as_ref().map(|count| self.in_range(count, "count", 0, TASKS_MAX));
        let count = count.transpose()?.unwrap_or(1);
        let parent =
            table.domain.as_ref().map(|domain| self.find_domain(domain, &scenario.domains)).transpose()?;
        let domains = if table.own_domains && count > 0 {
            (1..=count).map(|copy| Some(self.own_domain(scenario, name, copy, parent))).collect()
        } else {
            vec![parent]
        };
        Ok(TaskSpec {
            name: name.clone(),
            count,
            domains,
            weight: weight_of_nice(self.nice(table.nice.as_ref())?),
            starts: vec![table.start.as_ref().map_or(Ok(Amount::Fixed(0)), |start| self.amount(start))?],
            pinned: table
                .pin
                .as_ref()
                .map(|pin| self.pinned(pin, scenario.machine.cpus))
                .transpose()?
                .flatten(),
            reservation: self.reservation(table)?,
            user: table.user.unwrap_or(0),
            programs: vec![self.program(table, &scenario.buffers)?],
        })
    }

    /// The CPUs of `pin = 3` or `pin = [0, 1]`.
    fn pinned(&self, pin: &Spanned<PinValue>, cpus: u32) -> Result<Option<CpuSet>, Problem> {
        let list = match pin.get_ref() {
            PinValue::One(cpu) => vec![*cpu],
            PinValue::Some(list) => list.clone(),
        };
        if let Some(beyond) = list.iter().find(|cpu| **cpu >= cpus) {
            let advice = format!("write a number from 0 to {}, or a list of such", cpus - 1);
            return Err(self.problem(pin.span(), format!("pin is {beyond}"), advice));
        }
        if list.is_empty() {
            return Err(self.problem(pin.span(), "pin is an empty list", "name a CPU, or leave it out"));
        }
        Ok(CpuSet::of(list))
    }

    fn own_domain(&self, scenario: &mut Scenario, name: &str, copy: u32, parent: Option<usize>) -> usize {
        scenario.domains.push(DomainSpec::new(format!("{name}.{copy}"), parent));
        scenario.domains.len() - 1
    }

    fn nice(&self, nice: Option<&Spanned<i32>>) -> Result<i32, Problem> {
        match nice {
            Some(nice) if !(-20..=19).contains(nice.get_ref()) => {
                let what = format!("there is no nice value {}", nice.get_ref());
                Err(self.problem(nice.span(), what, "write a number from -20 to 19"))
            }
            nice => Ok(nice.map_or(0, |nice| *nice.get_ref())),
        }
    }

    fn reservation(&self, table: &TaskTable) -> Result<Option<(Reservation, bool)>, Problem> {
        let Some(cpu) = &table.cpu else { return Ok(None) };
        let reservation: Reservation = self.quantity(cpu.span(), cpu.get_ref().parse())?;
        self.quantity(cpu.span(), reservation.validate())?;
        Ok(Some((reservation, !table.irrevocable.unwrap_or(false))))
    }

    fn program(&self, table: &TaskTable, buffers: &[BufferSpec]) -> Result<Program, Problem> {
        let phases: Vec<Phase> = table
            .program
            .get_ref()
            .iter()
            .map(|phase| self.phase(phase, buffers))
            .collect::<Result<_, _>>()?;
        let takes_time = |phase: &Phase| match phase {
            Phase::Run(amount) | Phase::Sleep(amount) | Phase::Wait(amount) | Phase::Disk(amount) => {
                !amount.is_zero()
            }
            Phase::Until(_) => true,
            Phase::Put(_) | Phase::Take(_) => false,
        };
        if !phases.iter().any(takes_time) {
            let what = format!("the program of {} takes no time", table.name.get_ref());
            return Err(self.problem(table.program.span(), what, "add a phase like { run = \"5ms\" }"));
        }
        Ok(Program { phases: Arc::from(phases), repeat: table.repeat })
    }

    fn phase(&self, entry: &Spanned<PhaseTable>, buffers: &[BufferSpec]) -> Result<Phase, Problem> {
        let PhaseTable { run, sleep, disk, wait, until, put, take } = entry.get_ref();
        let buffer = |name: &Spanned<String>| {
            let index = buffers.iter().position(|buffer| buffer.name == *name.get_ref());
            index.map(|index| index as u32).ok_or_else(|| {
                let what = format!("there is no buffer \"{}\"", name.get_ref());
                self.problem(name.span(), what, "add a [[buffer]] with that name")
            })
        };
        match (run, sleep, wait, disk, until, put, take) {
            (Some(amount), None, None, None, None, None, None) => self.amount(amount).map(Phase::Run),
            (None, Some(amount), None, None, None, None, None) => self.amount(amount).map(Phase::Sleep),
            (None, None, Some(amount), None, None, None, None) => self.amount(amount).map(Phase::Wait),
            (None, None, None, Some(amount), None, None, None) => match self.amount(amount)? {
                Amount::Forever => {
                    Err(self.problem(amount.span(), "the disk would never be free again", "write a time"))
                }
                amount => Ok(Phase::Disk(amount)),
            },
            (None, None, None, None, Some(_), None, None) => {
                self.some_duration(until.as_ref(), 0).map(Phase::Until)
            }
            (None, None, None, None, None, Some(name), None) => buffer(name).map(Phase::Put),
            (None, None, None, None, None, None, Some(name)) => buffer(name).map(Phase::Take),
            _ => Err(self.problem(
                entry.span(),
                "a phase is exactly one thing",
                "write one of run, sleep, wait, disk, until, put and take, as in { run = \"5ms\" }",
            )),
        }
    }

    /// What one level promises must not be more than there is (Eclipse 1998, section 3: admission).
    fn check_sums(&self, document: &Document, scenario: &Scenario) -> Result<(), Problem> {
        let place = || document.domain.last().map_or(0..0, Spanned::span);
        if scenario.domains.len() > SCENARIO_DOMAINS_MAX {
            let what = format!("there are {} domains", scenario.domains.len());
            return Err(self.problem(0..0, what, format!("at most {SCENARIO_DOMAINS_MAX} are possible")));
        }
        let tasks: u64 = scenario.tasks.iter().map(|task| u64::from(task.count)).sum();
        if tasks > u64::from(TASKS_MAX) {
            let what = format!("there are {tasks} tasks");
            return Err(self.problem(0..0, what, format!("at most {TASKS_MAX} are possible")));
        }
        let mut sums: BTreeMap<Option<usize>, f64> = BTreeMap::new();
        for domain in &scenario.domains {
            *sums.entry(domain.parent).or_default() += domain.reserved;
        }
        for (parent, sum) in sums {
            if sum > 1.0 + 1e-9 {
                let above = parent.map_or("the root", |parent| &scenario.domains[parent].name);
                let what = format!("{:.1}% of the CPU of {above} is reserved", sum * 100.0);
                return Err(self.problem(place(), what, "reserve at most 100% on one level"));
            }
        }
        Ok(())
    }
}

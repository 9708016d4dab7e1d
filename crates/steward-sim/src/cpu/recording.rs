//! Recorded workloads: who ran, waited and slept on a real machine (`steward record`), written as JSON lines and
//! replayed as a [`Scenario`].
//!
//! A line is one of:
//!
//! | line | what it is |
//! |---|---|
//! | `{"steward_recording": 1, ...}` | [`Header`], the first line |
//! | `{"domain": {...}}` | a cgroup, [`DomainLine`] |
//! | `{"task": {...}}` | a thread, [`TaskLine`]; again when its name changes |
//! | `[tid, at_ns, ran_ns, waited_ns, slept_ns, "S"]` | a [`Cycle`] of a thread |
//! | `{"end": {...}}` | [`End`], the last line |
//!
//! A replay lets each thread ask for the CPU time that it used, and then sleep as long as it slept. What depends on the
//! outcome in truth (who waits for whom, timers set to a moment) is not known, and stays as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use steward_core::problem::{Origin, Problem};

use crate::cpu::program::{Phase, Program};
use crate::cpu::scenario::{
    CPUS_MAX, CpuSet, DomainSpec, SCENARIO_DOMAINS_MAX, Scenario, TaskSpec, weight_of_nice,
};
use crate::random::Amount;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub steward_recording: u32,
    /// How many CPUs were online.
    pub cpus: u32,
    /// The kernel's release.
    pub kernel: String,
    /// How it was recorded.
    pub source: String,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainLine {
    /// Its path below the root of cgroup2, without a slash at either end.
    pub path: String,
    /// Its `cpu.weight`.
    pub weight: u32,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of the thread.
    pub name: String,
    /// Nice value.
    pub nice: i32,
    /// Path of its cgroup, empty for the root.
    pub domain: String,
    /// The only CPU that it may use, if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<u32>,
}

/// How a cycle of a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sleep {
    /// An interruptible sleep.
    S,
    /// An uninterruptible wait: for a disk, a page, a lock.
    D,
    /// It ended, or the recording did.
    X,
}

/// What a thread did from one wake-up to the next: it ran, waited for a CPU meanwhile, and slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle(
    /// Thread id.
    pub i32,
    /// When the cycle ended, in nanoseconds from the start of the recording.
    pub u64,
    /// CPU time used, in nanoseconds.
    pub u64,
    /// Time spent waiting for a CPU, in nanoseconds.
    pub u64,
    /// Time slept, in nanoseconds.
    pub u64,
    /// How it slept.
    pub Sleep,
);

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How long was recorded, in nanoseconds.
    pub at_ns: u64,
    /// Cycles that could not be written down in time.
    pub lost: u64,
}

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// The first line.
    Header(Header),
    /// A cgroup.
    Domain {
        /// The cgroup.
        domain: DomainLine,
    },
    /// A thread.
    Task {
        /// The thread.
        task: TaskLine,
    },
    /// What a thread did.
    Cycle(Cycle),
    /// The last line.
    End {
        /// How it ended.
        end: End,
    },
}

/// A recording in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The machine that was recorded.
    pub header: Header,
    /// Cgroups.
    pub domains: Vec<DomainLine>,
    /// Threads by their id.
    pub tasks: BTreeMap<i32, TaskLine>,
    /// Cycles in the order in which they ended.
    pub cycles: Vec<Cycle>,
    /// How the recording ended.
    pub end: End,
}

impl Recording {
    /// Reads a recording. One that breaks off (a full disk, a killed recorder) is taken as far as it goes.
    ///
    /// # Errors
    /// When it cannot be read, or a line in it is none of a recording: which, and what to do.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let unreadable = |error: std::io::Error| {
            let what = format!("cannot be read: {error}");
            Problem::error(Origin::at(path, 0), what, "correct the name or its permissions")
        };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut lines = Vec::new();
        for (number, line) in std::io::BufReader::new(file).lines().enumerate() {
            lines.push((number as u32 + 1, line.map_err(unreadable)?));
        }
        Self::parse(path, lines.iter().map(|(number, line)| (*number, line.as_str())))
    }

    fn parse<'a>(path: &Path, lines: impl Iterator<Item = (u32, &'a str)>) -> Result<Self, Problem> {
        let problem = |number, what: String| {
            Problem::error(Origin::at(path, number), what, "record anew with `steward record`")
        };
        let mut recording: Option<Recording> = None;
        let mut lines = lines.peekable();
        while let Some((number, text)) = lines.next() {
            let line = match serde_json::from_str(text) {
                Ok(line) => line,
                // The last line of a recorder that was killed in the middle of it.
                Err(_) if lines.peek().is_none() && recording.is_some() => break,
                Err(_) => return Err(problem(number, "not a line of a recording".to_owned())),
            };
            let Some(recording) = &mut recording else {
                recording = Some(Recording::begin(line).map_err(|what| problem(number, what))?);
                continue;
            };
            match line {
                Line::Header(_) => return Err(problem(number, "a second first line".to_owned())),
                Line::Domain { domain } => recording.domains.push(domain),
                Line::Task { task } => drop(recording.tasks.insert(task.tid, task)),
                Line::Cycle(cycle) => recording.cycles.push(cycle),
                Line::End { end } => recording.end = end,
            }
        }
        let mut recording = recording.ok_or_else(|| problem(0, "the file is empty".to_owned()))?;
        if recording.end.at_ns == 0 {
            recording.end.at_ns = recording.cycles.iter().map(|cycle| cycle.1).max().unwrap_or(0);
        }
        Ok(recording)
    }

    fn begin(line: Line) -> Result<Recording, String> {
        let Line::Header(header) = line else { return Err("not the first line of a recording".to_owned()) };
        if header.steward_recording != VERSION {
            return Err(format!("version {} of recordings is not known here", header.steward_recording));
        }
        let end = End { at_ns: 0, lost: 0 };
        Ok(Recording { header, domains: vec![], tasks: BTreeMap::new(), cycles: vec![], end })
    }

    /// The workload as a scenario: the recorded machine, its cgroups as domains, and for each thread a program that
    /// repeats what it did. Threads with one name in one cgroup are reported together.
    pub fn scenario(&self) -> Scenario {
        let mut scenario = Scenario { duration_ns: self.end.at_ns.max(1), ..Scenario::default() };
        scenario.machine.cpus = self.header.cpus.clamp(1, CPUS_MAX);
        let domains = self.make_domains(&mut scenario);
        let mut programs = self.programs();
        let mut entries: BTreeMap<(String, String, i32, Option<u32>), TaskSpec> = BTreeMap::new();
        for task in self.tasks.values() {
            let Some((start_ns, phases)) = programs.remove(&task.tid) else { continue };
            let pinned = task.pinned.filter(|cpu| *cpu < scenario.machine.cpus);
            let entry = entries
                .entry((task.name.clone(), task.domain.clone(), task.nice, pinned))
                .or_insert_with(|| TaskSpec {
                    name: task.name.clone(),
                    count: 0,
                    domains: vec![domains.get(&task.domain).copied()],
                    weight: weight_of_nice(task.nice),
                    starts: Vec::new(),
                    pinned: pinned.and_then(|cpu| CpuSet::of([cpu])),
                    reservation: None,
                    user: 0,
                    programs: Vec::new(),
                });
            entry.count += 1;
            entry.starts.push(Amount::Fixed(start_ns));
            entry.programs.push(Program { phases: Arc::from(phases), repeat: Some(1) });
        }
        scenario.tasks = entries.into_values().collect();
        scenario
    }

    /// Makes a domain for each cgroup that has threads, and for those above it.
    fn make_domains(&self, scenario: &mut Scenario) -> BTreeMap<String, usize> {
        let weights: BTreeMap<&str, u32> =
            self.domains.iter().map(|domain| (domain.path.as_str(), domain.weight)).collect();
        let used: BTreeSet<&str> = self.tasks.values().map(|task| task.domain.as_str()).collect();
        let mut indices: BTreeMap<String, usize> = BTreeMap::new();
        for path in used.into_iter().filter(|path| !path.is_empty()) {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            let mut parent = None;
            for end in ends {
                let path = &path[..end];
                if !indices.contains_key(path) && scenario.domains.len() < SCENARIO_DOMAINS_MAX {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    let mut domain = DomainSpec::new(name, parent);
                    domain.weight = weights.get(path).copied().unwrap_or(domain.weight).clamp(1, 10_000);
                    indices.insert(path.to_owned(), scenario.domains.len());
                    scenario.domains.push(domain);
                }
                parent = indices.get(path).copied();
            }
        }
        indices
    }

    /// When each thread first became runnable, in nanoseconds, and what it did from then on.
    fn programs(&self) -> BTreeMap<i32, (u64, Vec<Phase>)> {
        let mut programs: BTreeMap<i32, (u64, Vec<Phase>)> = BTreeMap::new();
        for Cycle(tid, at_ns, ran_ns, waited_ns, slept_ns, sleep) in self.cycles.iter().copied() {
            let start_ns = at_ns.saturating_sub(ran_ns.saturating_add(waited_ns).saturating_add(slept_ns));
            let (_, phases) = programs.entry(tid).or_insert((start_ns, Vec::new()));
            if ran_ns > 0 {
                phases.push(Phase::Run(Amount::Fixed(ran_ns)));
            }
            match sleep {
                Sleep::S => phases.push(Phase::Sleep(Amount::Fixed(slept_ns))),
                Sleep::D => phases.push(Phase::Wait(Amount::Fixed(slept_ns))),
                Sleep::X => {}
            }
        }
        programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    const TEXT: &str = r#"{"steward_recording":1,"cpus":1,"kernel":"7.3.4","source":"sched tracepoints"}
{"domain":{"path":"a","weight":200}}
{"task":{"tid":7,"pid":7,"name":"worker","nice":0,"domain":"a/b"}}
{"task":{"tid":8,"pid":8,"name":"loop","nice":5,"domain":"","pinned":0}}
[7,20000000,5000000,5000000,10000000,"S"]
[7,50000000,10000000,0,20000000,"D"]
[7,60000000,10000000,0,0,"X"]
[8,100000000,75000000,25000000,0,"X"]
{"end":{"at_ns":100000000,"lost":0}}
"#;

    fn read(text: &str) -> Result<Recording, Problem> {
        let lines = text.lines().enumerate().map(|(number, line)| (number as u32 + 1, line));
        Recording::parse(Path::new("a.jsonl"), lines)
    }

    #[test]
    fn a_recording_is_replayed_with_the_cpu_time_that_was_used() {
        let scenario = read(TEXT).unwrap().scenario();
        assert_eq!(scenario.domains.iter().map(|domain| domain.weight).collect::<Vec<_>>(), [200, 100]);
        let outcome = Machine::new(&scenario).run();
        let share = |name| outcome.task(name).unwrap().share;
        assert!((share("worker") - 0.25).abs() < 1e-9, "{outcome}");
        assert!((share("loop") - 0.75).abs() < 1e-9, "{outcome}");
    }

    #[test]
    fn every_line_is_written_as_it_is_read() {
        for text in TEXT.lines() {
            let line: Line = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
        }
    }

    #[test]
    fn a_recording_that_breaks_off_is_taken_as_far_as_it_goes() {
        let whole = read(TEXT).unwrap();
        let cut = read(&TEXT[..TEXT.len() - 60]).unwrap();
        assert_eq!(cut.cycles[..], whole.cycles[..cut.cycles.len()]);
        assert!(cut.end.at_ns > 0);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert!(message("").contains("a.jsonl: the file is empty"));
        assert!(message("{}\n{}").contains("a.jsonl:1: not a line of a recording"));
        assert!(message(&TEXT.replace("{\"domain\"", "{\"dom\"")).contains("a.jsonl:2: not a line"));
        assert!(message(&TEXT.replace("recording\":1", "recording\":2")).contains("version 2"));
        assert!(message(&TEXT[TEXT.find('[').unwrap()..]).contains("a.jsonl:1: not the first line"));
    }
}

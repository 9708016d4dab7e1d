//! Reads a recording of `steward top --record`: line by line, into what the report draws. Pure but for the reader.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use libsteward::api::{AuditedMemory, Event, Forecast};
use serde::Deserialize;

use crate::output::SCHEMA;
use crate::top::cpu::promise::{Keeping, Promise};
use crate::top::disk::Disk;
use crate::top::memory::Memory;
use crate::top::model::Snapshot;
use crate::top::text::{Slowdown, slowdown_value};

/// No line of a recording is longer: 32 MiB hold 65,536 tasks.
const LINE_BYTES_MAX: u64 = 32 << 20;

/// What became of a promise, as it was told at this moment, in seconds since the recording began.
pub type Record = (f64, Vec<AuditedMemory>);

/// Something at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the recording began.
    pub at_s: f64,
    /// What it got.
    pub actual_ms_per_s: f64,
    /// What it wanted.
    pub desired_ms_per_s: f64,
    /// What it would get.
    pub predicted_ms_per_s: f64,
    /// How slow its CPU was; `None` when it wanted nothing, infinity when it got nothing.
    pub slowdown: Option<f64>,
    /// What it was promised, and how that stood.
    pub promise: Option<(f64, Keeping)>,
}

/// A task, a domain or the machine over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What there is to know, oldest first.
    pub points: Vec<Point>,
    /// The latest promise.
    pub promise: Option<Promise>,
    /// When its promise was broken last, in seconds since the beginning, and why.
    pub broken: Option<(f64, String)>,
    /// Its memory, of a domain where it is counted, by seconds since the beginning.
    pub memory: Vec<(f64, Memory)>,
    /// What became of what it was promised of the memory, as it was told last, and when, in seconds since the
    /// beginning.
    pub memory_record: Option<Record>,
    /// Its part of the disk, of a domain of which there is something to say, by seconds since the beginning.
    pub disk: Vec<(f64, Disk)>,
}

impl Series {
    fn add(&mut self, at_s: f64, forecast: &Forecast, promise: Option<&Promise>) {
        self.points.push(Point {
            at_s,
            actual_ms_per_s: forecast.actual_ms_per_s,
            desired_ms_per_s: forecast.desired_ms_per_s,
            predicted_ms_per_s: forecast.predicted_ms_per_s,
            slowdown: slowdown_value(forecast, Slowdown::Now),
            promise: promise.map(|promise| (promise.promised_ms_per_s, promise.state)),
        });
        if let Some(promise) = promise {
            if promise.state == Keeping::Broken {
                self.broken = Some((at_s, promise.why.clone()));
            }
            self.promise = Some(promise.clone());
        }
    }

    /// In how many readings its promise stood so.
    pub fn count(&self, state: Keeping) -> usize {
        self.points
            .iter()
            .filter(|point| point.promise.is_some_and(|(_, of_point)| of_point == state))
            .count()
    }

    /// What it got on average.
    pub fn mean_ms_per_s(&self) -> f64 {
        let sum: f64 = self.points.iter().map(|point| point.actual_ms_per_s).sum();
        sum / self.points.len().max(1) as f64
    }
}

/// A whole recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The wall clock at its beginning, in milliseconds since 1970.
    pub start_unix_ms: u64,
    /// How long it is, in seconds.
    pub length_s: f64,
    /// The first snapshot, without its rows.
    pub about: Snapshot,
    /// The whole machine.
    pub machine: Series,
    /// The domains, by name.
    pub domains: BTreeMap<String, Series>,
    /// The tasks with a promise, by name and numbers.
    pub tasks: BTreeMap<(String, i32, i32), Series>,
    /// Decisions, with the second of each.
    pub events: Vec<(f64, Event)>,
    /// What was left out, in a sentence: a last line that was not written to its end.
    pub cut: Option<String>,
}

/// One line, as far as it must be right.
#[derive(Deserialize)]
struct Head {
    schema: Option<u64>,
}

impl Recording {
    /// Reads a recording. `name` is the file's, for what is wrong with it.
    ///
    /// # Errors
    /// Names the file, the line, and what is wrong with it. Only a last line that was not written to its end is left
    /// out.
    pub fn read(input: impl Read, name: &str) -> anyhow::Result<Self> {
        let mut input = std::io::BufReader::new(input);
        let (mut recording, mut start_ns, mut latest_ns) = (Recording::default(), 0, 0);
        for number in 1.. {
            let place = format!("{name}:{number}");
            let mut line = Vec::new();
            let count = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            if count.map_err(|error| anyhow::anyhow!("{place}: cannot read it: {error}"))? == 0 {
                break;
            }
            let is_whole = line.last() == Some(&b'\n');
            let snapshot = match parse(&line) {
                Ok(snapshot) => snapshot,
                Err(_) if !is_whole && number > 1 => {
                    recording.cut =
                        Some(format!("{place}: the last line was not written to its end, and is left out"));
                    break;
                }
                Err(fault) => anyhow::bail!("{place}: {fault}"),
            };
            if number == 1 {
                start_ns = snapshot.at_ns;
                recording.start_unix_ms = snapshot.unix_ms;
                recording.about = Snapshot {
                    domains: Vec::new(),
                    tasks: Vec::new(),
                    events: Vec::new(),
                    ..snapshot.clone()
                };
            } else if snapshot.at_ns < latest_ns {
                anyhow::bail!(
                    "{place}: it is older than the line before; was this put together from several recordings?"
                );
            }
            latest_ns = snapshot.at_ns;
            recording.add(&snapshot, (latest_ns - start_ns) as f64 / 1e9);
        }
        if recording.machine.points.is_empty() {
            anyhow::bail!("{name}: the recording is empty; steward top --record FILE makes one");
        }
        Ok(recording)
    }

    fn add(&mut self, snapshot: &Snapshot, at_s: f64) {
        self.length_s = at_s;
        self.machine.add(at_s, &snapshot.machine, None);
        for row in &snapshot.domains {
            let series = self.domains.entry(row.domain.name.clone()).or_default();
            series.add(at_s, &row.domain.forecast, row.promise.as_ref());
            series.memory.extend(row.memory.map(|memory| (at_s, memory)));
            if !row.memory_record.is_empty() {
                series.memory_record = Some((at_s, row.memory_record.clone()));
            }
            series.disk.extend(row.disk.map(|disk| (at_s, disk)));
        }
        for row in &snapshot.tasks {
            let key = (row.task.name.clone(), row.task.pid, row.task.tid);
            self.tasks.entry(key).or_default().add(at_s, &row.task.forecast, row.promise.as_ref());
        }
        self.events.extend(snapshot.events.iter().map(|event| (at_s, event.clone())));
    }
}

/// One line as a snapshot, or what is wrong with it.
fn parse(line: &[u8]) -> Result<Snapshot, String> {
    const WHAT: &str = "a recording of steward top --record has one JSON object a line";
    let head: Head = serde_json::from_slice(line).map_err(|error| format!("{error}; {WHAT}"))?;
    match head.schema {
        None => return Err(format!("there is no \"schema\" in it; {WHAT}")),
        Some(schema) if schema != u64::from(SCHEMA) => {
            return Err(format!(
                "its schema is {schema}, and this program knows {SCHEMA}; use the steward that recorded it"
            ));
        }
        Some(_) => {}
    }
    serde_json::from_slice(line).map_err(|error| format!("{error}; {WHAT}"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::top::model::Model;
    use crate::top::model::testing::reading;
    use crate::top::record::json_line;

    /// What is recorded of the sample in half a minute.
    pub fn lines() -> Vec<String> {
        let mut model = Model::default();
        let line = |second| {
            model.take(reading(second));
            json_line(&model.snapshot().to_record()).expect("JSON")
        };
        (0..30).map(line).collect()
    }

    fn read(text: &str) -> Result<Recording, String> {
        Recording::read(text.as_bytes(), "load.jsonl").map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_is_read_whole() {
        let recording = read(&(lines().join("\n") + "\n")).expect("it is a recording");
        assert_eq!((recording.length_s, recording.machine.points.len(), &recording.cut), (29.0, 30, &None));
        let web = &recording.domains["web"];
        assert_eq!((web.count(Keeping::Broken), web.count(Keeping::Kept)), (30, 0));
        assert_eq!(web.broken.as_ref().map(|(at_s, _)| *at_s), Some(29.0));
        assert_eq!(recording.tasks.len(), 2);
        assert_eq!(recording.domains["batch"].mean_ms_per_s(), 1520.0);
    }

    #[test]
    fn a_last_line_that_was_cut_off_costs_only_itself() {
        let mut text = lines().join("\n");
        text.truncate(text.len() - 100);
        let recording = read(&text).expect("the rest is whole");
        assert_eq!(recording.machine.points.len(), 29);
        assert!(recording.cut.is_some_and(|cut| cut.starts_with("load.jsonl:30: ")));
        // One that only lacks its end of line is whole.
        assert_eq!(read(&lines().join("\n")).map(|recording| recording.machine.points.len()), Ok(30));
    }

    #[test]
    fn what_is_no_recording_is_named_with_its_line() {
        let lines = lines();
        let good = &lines[0];
        let older = good.replace("\"schema\":1", "\"schema\":7");
        for (text, hints) in [
            (String::new(), vec!["load.jsonl: the recording is empty"]),
            ("frames\n".to_owned(), vec!["load.jsonl:1: ", "one JSON object a line"]),
            (format!("{good}\n{{\"schema\":1}}\n{good}\n"), vec!["load.jsonl:2: missing field"]),
            (format!("{good}\n{{}}\n"), vec!["load.jsonl:2: there is no \"schema\""]),
            (format!("{good}\n\n"), vec!["load.jsonl:2: "]),
            (older, vec!["load.jsonl:1: its schema is 7", "knows 1"]),
            (format!("{}\n{good}\n", lines[3]), vec!["load.jsonl:2: it is older"]),
            ("\u{0}\u{ff}".repeat(100), vec!["load.jsonl:1: "]),
        ] {
            let fault = read(&text).expect_err("it is no recording");
            for hint in hints {
                assert!(fault.contains(hint), "{hint:?} is not in {fault}");
            }
        }
    }
}

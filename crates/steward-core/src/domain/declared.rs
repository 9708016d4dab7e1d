//! Domains that files declare: each is there from the start of the machine on, with or without processes.
//!
//! ```toml
//! [[domain]]
//! name = "web"
//! cpu = "30%"
//! weight = 300
//! user = "alice"
//! ```

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::CommonChange;
use super::{Change, Common, Names, Setting, Settings};
use crate::accounts::Accounts;
use crate::last_good::{self, About, Mistake};
use crate::problem::{Origin, Problem};
use crate::quantity::{format_duration, format_size, parse_duration, parse_fraction, parse_size};
use crate::toml_reader::{Reader, Value, lookup, suggest};
use crate::{cpu, disk, memory};

/// The keys of a row. All but `name` and `user` are settings, by their names.
const KEYS: [&str; 15] = [
    "name",
    "cpu",
    "weight",
    "priority",
    "own_weight",
    "own_priority",
    "cpu_reservable",
    "memory_min",
    "memory_max",
    "protect",
    "io",
    "disk",
    "io_max_bytes",
    "io_max_requests",
    "user",
];

/// One domain, as a file declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// What it is called: `batch`, or `web/front` below the domain `web`.
    pub name: String,
    /// What it has.
    pub settings: Settings,
    /// The user it belongs to.
    pub user: u32,
    /// Where it was written.
    pub origin: Origin,
}

/// What one file gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedDomains {
    /// The rows that stand, in the order written; no name twice.
    pub domains: Vec<Declared>,
    /// What is wrong with the others, in the order of lines.
    pub problems: Vec<Problem>,
    /// Those of the problems that cost rows.
    pub mistakes: Vec<Mistake<String>>,
}

impl ParsedDomains {
    /// A file of which nothing can be read.
    pub fn unreadable(problem: Problem) -> Self {
        let mistakes = vec![Mistake::new(About::File, problem.clone())];
        ParsedDomains { domains: Vec::new(), problems: vec![problem], mistakes }
    }

    /// The same with what the mistakes cost as it was in `before` (see [`last_good::keep`]). The problems say so.
    pub fn keep_last_good(mut self, before: &[Declared]) -> Self {
        let ParsedDomains { domains, problems, mistakes } = &mut self;
        last_good::keep(domains, mistakes, problems, before, |declared| &declared.name);
        self
    }
}

/// Reads a file of `[[domain]]` rows; domains are called by `names`, and users are looked up in `accounts`. A row with
/// a fault is left out and every fault of it is among the problems; the other rows stand. A syntax error costs the
/// whole file.
pub fn parse_domains(file: &Path, text: &str, names: &Names, accounts: &dyn Accounts) -> ParsedDomains {
    let mut reader = Reader::new(file, text);
    let mut parsed = ParsedDomains::default();
    let Some(document) = reader.document() else {
        let whole = |problem: &Problem| Mistake::new(About::File, problem.clone());
        let mistakes = reader.problems.iter().map(whole).collect();
        return ParsedDomains { mistakes, problems: reader.problems, ..parsed };
    };
    let rows = rows_of(&mut reader, &document);
    let outside = reader.problems.iter().cloned();
    parsed.mistakes.extend(outside.map(|problem| Mistake::new(About::SomeRow, problem)));
    for row in rows {
        let before = reader.problems.len();
        if let Some(declared) = read_row(&mut reader, row, names, accounts) {
            match parsed.domains.iter().find(|present| present.name == declared.name) {
                Some(first) => reader.error(
                    row.span(),
                    format!("{} has a row already, on line {}", declared.name, first.origin.line),
                    "keep one of them; the first one is in force",
                ),
                None => parsed.domains.push(declared),
            }
        }
        let about = name_of(row).map_or(About::SomeRow, About::Row);
        let wrong = reader.problems[before..].iter().cloned();
        parsed.mistakes.extend(wrong.map(|problem| Mistake::new(about.clone(), problem)));
    }
    parsed.problems = reader.problems;
    parsed.problems.sort_by_key(|problem| problem.origin.line);
    parsed
}

fn rows_of<'t, 'a>(reader: &mut Reader<'a>, document: &'t DeTable<'a>) -> &'t [Value<'a>] {
    for key in document.keys().filter(|key| key.get_ref() != "domain") {
        let name: &str = key.get_ref();
        let advice = if KEYS.contains(&name) {
            format!("put [[domain]] on a line of its own before {name}")
        } else {
            "a file of domains has [[domain]] rows only".to_owned()
        };
        reader.error(key.span(), format!("\"{name}\" is outside of any [[domain]] row"), advice);
    }
    match lookup(document, "domain").map(|value| (value.span(), value.get_ref())) {
        None => &[],
        Some((_, DeValue::Array(rows))) => rows,
        Some((span, _)) => {
            let advice = "write [[domain]] with two brackets on each side";
            reader.error(span, "domain is not a list of rows", advice);
            &[]
        }
    }
}

/// Which domain a row is for, whatever else is wrong with it.
fn name_of(row: &Value<'_>) -> Option<String> {
    let DeValue::Table(table) = row.get_ref() else { return None };
    match lookup(table, "name")?.get_ref() {
        DeValue::String(name) => Some(name.to_string()),
        _ => None,
    }
}

/// One row; `None` if anything is wrong with it.
fn read_row<'a>(
    reader: &mut Reader<'a>,
    row: &Value<'a>,
    names: &Names,
    accounts: &dyn Accounts,
) -> Option<Declared> {
    let DeValue::Table(table) = row.get_ref() else {
        let advice = "write [[domain]], then its keys below it";
        reader.error(row.span(), "a row of domain is not a table", advice);
        return None;
    };
    let problems_before = reader.problems.len();
    reader.reject_unknown_keys(table, &KEYS, "a domain");
    let name = read_name(reader, row, table, names);
    let user = read_user(reader, table, accounts);
    let change = Change {
        common: CommonChange {
            priority: read_whole(reader, table, "priority"),
            weight: read_whole(reader, table, "weight"),
            own_priority: read_whole(reader, table, "own_priority"),
            own_weight: read_whole(reader, table, "own_weight"),
        },
        cpu: cpu::settings::Change {
            reserved: read_fraction(reader, table, "cpu"),
            reservable: read_fraction(reader, table, "cpu_reservable"),
        },
        memory: memory::settings::Change {
            min_bytes: read_size(reader, table, "memory_min"),
            max_bytes: read_size(reader, table, "memory_max"),
            protect_ns: read_period(reader, table, "protect"),
        },
        disk: disk::settings::Change {
            class: read_class(reader, table, "io"),
            reserved: read_fraction(reader, table, "disk"),
            max_bytes_per_second: read_size(reader, table, "io_max_bytes"),
            max_requests_per_second: read_whole(reader, table, "io_max_requests"),
        },
        reset: Vec::new(),
    };
    let settings = match change.apply(&Settings::default()) {
        Ok(settings) => settings,
        Err(fault) => {
            let span = lookup(table, fault.setting.name()).map_or(row.span(), Spanned::span);
            reader.error(span, format!("{}: {}", fault.setting.name(), fault.reason), "correct it");
            return None;
        }
    };
    if reader.problems.len() > problems_before {
        return None;
    }
    Some(Declared { name: name?, settings, user, origin: reader.origin(&row.span()) })
}

fn read_name<'a>(
    reader: &mut Reader<'a>,
    row: &Value<'a>,
    table: &DeTable<'a>,
    names: &Names,
) -> Option<String> {
    if lookup(table, "name").is_none() {
        reader.error(row.span(), "name is missing", "say what the domain is called, as in name = \"web\"");
    }
    let name = reader.string(table, "name", "web")?;
    match names.path_to_make(name.get_ref()) {
        Ok(_) => Some(name.into_inner()),
        Err(what) => {
            reader.error(name.span(), what, "give it another name, as in \"web\" or \"web/front\"");
            None
        }
    }
}

/// The user's number; root's when none is named or it cannot be read.
fn read_user<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, accounts: &dyn Accounts) -> u32 {
    let Some(value) = lookup(table, "user") else { return 0 };
    let text = match value.get_ref() {
        DeValue::Integer(number) => number.as_str().to_owned(),
        _ => reader.string(table, "user", "alice").map_or_else(String::new, Spanned::into_inner),
    };
    let uid = text.parse().ok().or_else(|| accounts.uid_of(&text)).filter(|uid| *uid != u32::MAX);
    if uid.is_none() && !text.is_empty() {
        let advice = "correct the name, or write the user's number (for accounts of a directory service)";
        reader.error(value.span(), format!("user: /etc/passwd has no \"{text}\""), advice);
    }
    uid.unwrap_or(0)
}

/// `"30%"`, `"0.3"` or `0.3`.
fn read_fraction<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, key: &str) -> Option<f64> {
    let value = lookup(table, key)?;
    if !matches!(value.get_ref(), DeValue::String(_)) {
        return reader.number(table, key, "\"30%\"").map(Spanned::into_inner);
    }
    let text = reader.string(table, key, "30%")?;
    match parse_fraction(text.get_ref()) {
        Ok(fraction) => Some(fraction),
        Err(what) => {
            let what = format!("{key} = \"{}\": {what}", text.get_ref());
            reader.error(text.span(), what, "give a part of what its parent has");
            None
        }
    }
}

fn read_whole<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, key: &str) -> Option<i64> {
    let number = reader.number(table, key, "100")?;
    let value = *number.get_ref();
    if value.fract() != 0.0 || value.abs() > 1e9 {
        reader.error(number.span(), format!("{key} = {value} is no whole number"), "write one, as in 100");
        return None;
    }
    Some(value as i64)
}

fn read_size<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, key: &str) -> Option<i64> {
    let text = reader.string(table, key, "64M")?;
    match parse_size(text.get_ref()) {
        Ok(bytes) => Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
        Err(fault) => {
            reader.error(text.span(), format!("{key}: {}", fault.what), fault.advice);
            None
        }
    }
}

fn read_period<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, key: &str) -> Option<i64> {
    let text = reader.string(table, key, "30min")?;
    match parse_duration(text.get_ref()) {
        Ok(period_ns) => Some(i64::try_from(period_ns).unwrap_or(i64::MAX)),
        Err(fault) => {
            reader.error(text.span(), format!("{key}: {}", fault.what), fault.advice);
            None
        }
    }
}

fn read_class<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>, key: &str) -> Option<disk::Class> {
    let word = reader.string(table, key, "background")?;
    let class = disk::Class::from_name(word.get_ref());
    if class.is_none() {
        let advice = suggest(word.get_ref(), &disk::Class::NAMES);
        reader.error(word.span(), format!("there is no {key} \"{}\"", word.get_ref()), advice);
    }
    class
}

/// Writes a domain as a row that [`parse_domains`] reads back the same; what has its default is left out, and so is
/// root as its user.
pub fn to_toml(name: &str, settings: &Settings, user: u32) -> String {
    let quoted = |text: String| toml::Value::String(text).to_string();
    let mut row = format!("[[domain]]\nname = {}\n", quoted(name.to_owned()));
    for setting in Setting::ALL {
        if let Some(value) = written(settings, setting) {
            let _ = writeln!(row, "{} = {value}", setting.name());
        }
    }
    if user != 0 {
        let _ = writeln!(row, "user = {user}");
    }
    row
}

/// The value of a setting as it is written; `None` for the default.
fn written(settings: &Settings, setting: Setting) -> Option<String> {
    let (common, default) = (&settings.common, Common::default());
    // As few digits as read back the same.
    let fraction = |value: Option<f64>| value.map(|value| format!("{value:?}"));
    let size = |value: Option<u64>| value.map(|bytes| format!("\"{}\"", format_size(bytes)));
    match setting {
        Setting::Priority => (common.priority != default.priority).then(|| common.priority.to_string()),
        Setting::Weight => common.weight.map(|weight| weight.to_string()),
        Setting::OwnPriority => {
            (common.own_priority != default.own_priority).then(|| common.own_priority.to_string())
        }
        Setting::OwnWeight => common.own_weight.map(|weight| weight.to_string()),
        Setting::Cpu => fraction(settings.cpu.reserved),
        Setting::CpuReservable => fraction(settings.cpu.reservable),
        Setting::MemoryMin => size(settings.memory.min_bytes),
        Setting::MemoryMax => size(settings.memory.max_bytes),
        Setting::Protect => {
            settings.memory.protect_ns.map(|period_ns| format!("\"{}\"", format_duration(period_ns)))
        }
        Setting::Io => settings.disk.class.map(|class| format!("\"{class}\"")),
        Setting::Disk => fraction(settings.disk.reserved),
        Setting::IoMaxBytes => size(settings.disk.max.bytes_per_second),
        Setting::IoMaxRequests => settings.disk.max.requests_per_second.map(|value| value.to_string()),
    }
}

#[cfg(test)]
mod tests;

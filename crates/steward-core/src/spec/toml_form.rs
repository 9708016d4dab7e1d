//! Specifications as TOML rows.
//!
//! ```toml
//! [[spec]]
//! path = "/usr/bin/mplayer"
//! cpu = "5ms/30ms"
//! inherit = true
//! ```

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::row::{Class, Draft, Fault, Spec, SpecPath, io_priority, read_path, read_user};
use super::set::{ParsedFile, reject_duplicates};
use crate::disk;
use crate::last_good::{About, Mistake};
use crate::quantity::{
    QuantityError, format_duration, format_size, parse_duration, parse_fraction, parse_size,
};
use crate::toml_reader::{Reader, Value, lookup, suggest};

/// The keys of a row.
const KEYS: [&str; 13] = [
    "path",
    "class",
    "cpu",
    "inherit",
    "revocable",
    "user",
    "protect",
    "memory_min",
    "memory_max",
    "io",
    "io_priority",
    "disk",
    "io_max",
];

/// Reads a file of `[[spec]]` rows. A row with a fault is left out and every fault of it is among the problems;
/// the other rows stand. A syntax error costs the whole file.
pub fn parse_toml(file: &Path, text: &str) -> ParsedFile {
    let mut reader = Reader::new(file, text);
    let (mut specs, mut mistakes) = (Vec::new(), Vec::new());
    if let Some(document) = reader.document() {
        for key in document.keys().filter(|key| key.get_ref() != "spec") {
            let name: &str = key.get_ref();
            let advice = if KEYS.contains(&name) {
                format!("put [[spec]] on a line of its own before {name}")
            } else {
                "a file of specifications has [[spec]] rows only".to_owned()
            };
            reader.error(key.span(), format!("\"{name}\" is outside of any [[spec]] row"), advice);
        }
        let rows = lookup(&document, "spec").map_or(&[][..], |value| rows_of(&mut reader, value));
        let outside = reader.problems.iter().cloned();
        mistakes.extend(outside.map(|problem| Mistake::new(About::SomeRow, problem)));
        for row in rows {
            let before = reader.problems.len();
            specs.extend(read_row(&mut reader, row));
            let about = path_of(row).map_or(About::SomeRow, About::Row);
            let wrong = reader.problems[before..].iter().cloned();
            mistakes.extend(wrong.map(|problem| Mistake::new(about.clone(), problem)));
        }
    } else {
        mistakes.extend(reader.problems.iter().cloned().map(|problem| Mistake::new(About::File, problem)));
    }
    reject_duplicates(ParsedFile { specs, problems: reader.problems, mistakes })
}

/// Which program a row is for, whatever else is wrong with it.
fn path_of(row: &Value<'_>) -> Option<SpecPath> {
    let DeValue::Table(table) = row.get_ref() else { return None };
    match lookup(table, "path")?.get_ref() {
        DeValue::String(path) => read_path(path).ok(),
        _ => None,
    }
}

/// The rows under `spec`, if they are rows.
fn rows_of<'t, 'a>(reader: &mut Reader<'a>, value: &'t Value<'a>) -> &'t [Value<'a>] {
    match value.get_ref() {
        DeValue::Array(rows) => rows,
        _ => {
            reader.error(
                value.span(),
                "spec is not a list of rows",
                "write [[spec]] with two brackets on each side",
            );
            &[]
        }
    }
}

/// One row; `None` if anything is wrong with it.
fn read_row<'a>(reader: &mut Reader<'a>, row: &Value<'a>) -> Option<Spec> {
    let DeValue::Table(table) = row.get_ref() else {
        reader.error(row.span(), "a row of spec is not a table", "write [[spec]], then its keys below it");
        return None;
    };
    let problems_before = reader.problems.len();
    reader.reject_unknown_keys(table, &KEYS, "a specification");
    let mut cells = Cells { reader, table, row: row.span() };
    let draft = Draft {
        path: cells.text("path", "/usr/bin/mplayer", read_path),
        class: cells.text("class", "interactive", |word| {
            Class::from_name(word).ok_or_else(|| unknown_word("class", word, &Class::NAMES))
        }),
        reservation: cells.text("cpu", "5ms/30ms", |text| text.parse().map_err(of_key("cpu"))),
        inherit: cells.reader.boolean(table, "inherit"),
        revocable: cells.reader.boolean(table, "revocable"),
        user: cells.text("user", "alice", read_user),
        protect_ns: cells.text("protect", "30min", |text| parse_duration(text).map_err(of_key("protect"))),
        memory_min: cells.text("memory_min", "64M", |text| parse_size(text).map_err(of_key("memory_min"))),
        memory_max: cells.text("memory_max", "1G", |text| parse_size(text).map_err(of_key("memory_max"))),
        io: cells.text("io", "interactive", |word| {
            disk::Class::from_name(word).ok_or_else(|| unknown_word("io", word, &disk::Class::NAMES))
        }),
        io_priority: cells.io_priority(),
        disk: cells.text("disk", "20%", |text| {
            let advice = "give a part of the disk's time, as in disk = \"20%\"";
            parse_fraction(text).map_err(|what| Fault::new("disk", format!("disk: {what}"), advice))
        }),
        io_max: cells.text("io_max", "10M/s", |text| {
            text.parse().map_err(|what: String| Fault::new("io_max", format!("io_max: {what}"), "correct it"))
        }),
    };
    // A key that is there but unreadable looks left out in the draft: a fault about that would mislead.
    if cells.reader.problems.len() > problems_before {
        return None;
    }
    let origin = cells.reader.origin(&cells.row);
    draft.finish(origin).map_err(|faults| faults.iter().for_each(|fault| cells.fault(fault))).ok()
}

/// The keys of one row, being read.
struct Cells<'r, 't, 'a> {
    reader: &'r mut Reader<'a>,
    table: &'t DeTable<'a>,
    row: Range<usize>,
}

impl Cells<'_, '_, '_> {
    /// Reads a text and turns it into a value; a fault is recorded at its line.
    fn text<T>(
        &mut self,
        key: &'static str,
        example: &str,
        convert: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Option<T> {
        let text: Spanned<String> = self.reader.string(self.table, key, example)?;
        convert(text.get_ref()).map_err(|fault| self.fault(&fault)).ok()
    }

    /// Reads how soon requests are served among those that are served first.
    fn io_priority(&mut self) -> Option<u8> {
        let number = *self.reader.number(self.table, "io_priority", "2")?.get_ref();
        let is_whole = number.fract() == 0.0 && (0.0..=f64::from(u8::MAX)).contains(&number);
        io_priority(is_whole.then_some(number as u8)).map_err(|fault| self.fault(&fault)).ok()
    }

    /// Records a fault at the line of its key, or of the row if the row lacks the key; names the program.
    fn fault(&mut self, fault: &Fault) {
        let span = lookup(self.table, fault.key).map_or(self.row.clone(), Spanned::span);
        let program = match lookup(self.table, "path").map(Spanned::get_ref) {
            Some(DeValue::String(path)) if fault.key != "path" => format!("{path}: "),
            _ => String::new(),
        };
        self.reader.error(span, format!("{program}{}", fault.what), fault.advice.clone());
    }
}

fn of_key(key: &'static str) -> impl FnOnce(QuantityError) -> Fault {
    move |error| Fault::new(key, format!("{key}: {}", error.what), error.advice)
}

fn unknown_word(key: &'static str, word: &str, known: &[&str]) -> Fault {
    Fault::new(key, format!("there is no {key} \"{word}\""), suggest(word, known))
}

/// Writes specifications as a file that [`parse_toml`] reads back the same, except for their origins.
pub fn to_toml(specs: &[Spec]) -> String {
    let rows: Vec<String> = specs.iter().map(row_to_toml).collect();
    rows.join("\n")
}

fn row_to_toml(spec: &Spec) -> String {
    let mut row = String::from("[[spec]]\n");
    let mut line = |key: &str, value: String| {
        let _ = writeln!(row, "{key} = {value}");
    };
    let quoted = |text: String| toml::Value::String(text).to_string();
    line("path", quoted(spec.path.clone().into()));
    match spec.reservation {
        Some(reservation) => {
            line("cpu", quoted(reservation.to_string()));
            line("inherit", spec.inherit.to_string());
            line("revocable", spec.revocable.to_string());
            if let Some(user) = &spec.user {
                line("user", quoted(user.to_string()));
            }
        }
        None => line("class", quoted(spec.class.to_string())),
    }
    if let Some(protect) = spec.protect {
        line("protect", quoted(format_duration(u64::try_from(protect.as_nanos()).unwrap_or(u64::MAX))));
    }
    if let Some(bytes) = spec.memory_min {
        line("memory_min", quoted(format_size(bytes)));
    }
    if let Some(bytes) = spec.memory_max {
        line("memory_max", quoted(format_size(bytes)));
    }
    if let Some(io) = spec.io {
        line("io", quoted(io.to_string()));
    }
    if let Some(level) = spec.io_priority {
        line("io_priority", level.to_string());
    }
    if let Some(disk) = spec.disk {
        // As few digits as read back the same.
        line("disk", quoted(format!("{disk:?}")));
    }
    if let Some(io_max) = spec.io_max {
        line("io_max", quoted(io_max.to_string()));
    }
    row
}

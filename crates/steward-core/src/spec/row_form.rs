//! The paper's one-line form, `pathname : type : C : T : flags : π : io` (Yang 2009, section 7.2.1).
//!
//! C and T are milliseconds; π is a number of minutes, or a duration with its unit; `-` stands for what is left
//! out. Memory sizes, disk time, limits and the user came after the paper, so the form has no place for them.

use std::path::Path;

use super::row::{Class, Draft, Fault, Spec, io_priority, read_path};
use super::set::{ParsedFile, reject_duplicates};
use crate::cpu::reservation::Reservation;
use crate::disk;
use crate::problem::{Origin, Problem};
use crate::quantity::{format_duration, format_milliseconds, parse_duration, parse_milliseconds};
use crate::toml_reader::suggest;

const FORM: &str = "write PATH:Iact|BE:C:T:FLAGS:PROTECTION:IO, as in \"/usr/bin/mplayer:Iact:5:30:IR:-:-\"";

const MINUTE_NS: u64 = 60_000_000_000;

/// Reads one row that was typed on a command line.
///
/// # Errors
/// The first thing that is wrong with it, with [`Origin::command_line`].
pub fn parse_row(row: &str) -> Result<Spec, Problem> {
    let origin = Origin::command_line();
    read_row(row, &origin).map_err(|faults| problem(&origin, row, faults.into_iter().next()))
}

/// Reads a file of rows, one a line; empty lines and lines that start with `#` are left out. A row with a fault
/// is left out and reported; the others stand.
pub fn parse_tab(file: &Path, text: &str) -> ParsedFile {
    let mut parsed = ParsedFile::default();
    for (line, row) in (1..).zip(text.lines()) {
        if row.trim().is_empty() || row.trim_start().starts_with('#') {
            continue;
        }
        let origin = Origin::at(file, line);
        match read_row(row, &origin) {
            Ok(spec) => parsed.specs.push(spec),
            Err(faults) => {
                parsed.problems.extend(faults.into_iter().map(|fault| problem(&origin, row, Some(fault))));
            }
        }
    }
    reject_duplicates(parsed)
}

fn problem(origin: &Origin, row: &str, fault: Option<Fault>) -> Problem {
    let fault = fault.unwrap_or_else(|| Fault::new("path", "not a specification", FORM));
    Problem::error(origin.clone(), format!("\"{}\": {}", row.trim(), fault.what), fault.advice)
}

fn read_row(row: &str, origin: &Origin) -> Result<Spec, Vec<Fault>> {
    read_draft(row).map_err(|fault| vec![fault])?.finish(origin.clone())
}

fn read_draft(row: &str) -> Result<Draft, Fault> {
    let inner = row.trim().trim_start_matches(['⟨', '<']).trim_end_matches(['⟩', '>']);
    // From the right, because a path may contain a colon and the other fields may not.
    let fields: Vec<&str> = inner.rsplitn(7, ':').map(str::trim).collect();
    let &[io, protect, flags, period, budget, class, path] = fields.as_slice() else {
        return Err(Fault::new("path", format!("has {} of the 7 fields", fields.len()), FORM));
    };
    let class = read_class(class)?;
    let flags = read_flags(flags)?;
    let interactive = class == Class::Interactive;
    let (io, io_priority) = read_io(io)?;
    Ok(Draft {
        path: Some(read_path(path)?),
        class: Some(class),
        reservation: read_reservation(budget, period)?,
        inherit: Some(flags.0),
        revocable: (interactive || flags.1).then_some(flags.1),
        protect_ns: read_protection(protect)?,
        io,
        io_priority,
        ..Draft::default()
    })
}

fn given(field: &str) -> Option<&str> {
    (field != "-" && !field.is_empty()).then_some(field)
}

fn read_class(field: &str) -> Result<Class, Fault> {
    match field.to_ascii_lowercase().as_str() {
        // Long names too, for those who have the TOML form in their fingers.
        "iact" | "interactive" => Ok(Class::Interactive),
        "be" | "best-effort" => Ok(Class::BestEffort),
        _ => Err(Fault::new(
            "class",
            format!("there is no type \"{field}\""),
            "write Iact or BE as the second field",
        )),
    }
}

fn read_reservation(budget: &str, period: &str) -> Result<Option<Reservation>, Fault> {
    let number =
        |text: &str| parse_milliseconds(text).map_err(|error| Fault::new("cpu", error.what, error.advice));
    match (given(budget), given(period)) {
        (None, None) => Ok(None),
        (Some(budget), Some(period)) => {
            Ok(Some(Reservation { budget_ns: number(budget)?, period_ns: number(period)? }))
        }
        _ => {
            Err(Fault::new("cpu", "only one of C and T is given", "give both in milliseconds, or - for both"))
        }
    }
}

/// Whether the flags have I, and whether they have R.
fn read_flags(field: &str) -> Result<(bool, bool), Fault> {
    let (mut inherit, mut revocable) = (false, false);
    for flag in given(field).unwrap_or_default().chars() {
        let seen = match flag {
            'I' => &mut inherit,
            'R' => &mut revocable,
            _ => {
                let advice = "write I (children inherit), R (may be revoked), IR or -";
                return Err(Fault::new("inherit", format!("there is no flag \"{flag}\""), advice));
            }
        };
        *seen = true;
    }
    Ok((inherit, revocable))
}

fn read_protection(field: &str) -> Result<Option<u64>, Fault> {
    let Some(text) = given(field) else { return Ok(None) };
    let with_unit =
        if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text}min") } else { text.to_owned() };
    let fault = |error: crate::quantity::QuantityError| Fault::new("protect", error.what, error.advice);
    parse_duration(&with_unit).map(Some).map_err(fault)
}

/// The class, and after a slash how soon requests are served among those that are served first.
fn read_io(field: &str) -> Result<(Option<disk::Class>, Option<u8>), Fault> {
    let Some(given) = given(field) else { return Ok((None, None)) };
    let (word, level) = given.split_once('/').map_or((given, None), |(word, level)| (word, Some(level)));
    let fault =
        || Fault::new("io", format!("there is no I/O class \"{word}\""), suggest(word, &disk::Class::NAMES));
    let class = disk::Class::from_name(word).ok_or_else(fault)?;
    let level = level.map(|level| io_priority(level.parse().ok())).transpose()?;
    Ok((Some(class), level))
}

/// Writes a specification in the one-line form, which [`parse_row`] reads back. Memory sizes, disk time, limits, the
/// user and the origin have no place in it and are lost.
pub fn format_row(spec: &Spec) -> String {
    let class = match spec.class {
        Class::Interactive => "Iact",
        Class::BestEffort => "BE",
    };
    let (budget, period) = spec.reservation.map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |reservation| {
            (format_milliseconds(reservation.budget_ns), format_milliseconds(reservation.period_ns))
        },
    );
    let flags = match (spec.inherit, spec.revocable) {
        (true, true) => "IR",
        (true, false) => "I",
        (false, true) => "R",
        (false, false) => "-",
    };
    let protect = spec.protect.map_or_else(
        || "-".to_owned(),
        |protect| {
            let nanoseconds = u64::try_from(protect.as_nanos()).unwrap_or(u64::MAX);
            if nanoseconds % MINUTE_NS == 0 {
                (nanoseconds / MINUTE_NS).to_string()
            } else {
                format_duration(nanoseconds)
            }
        },
    );
    let level = spec.io_priority.map(|level| format!("/{level}")).unwrap_or_default();
    let io = spec.io.map_or_else(|| "-".to_owned(), |io| format!("{io}{level}"));
    let path = String::from(spec.path.clone());
    format!("{path}:{class}:{budget}:{period}:{flags}:{protect}:{io}")
}

//! The memory's part of the daemon's configuration.
//!
//! ```toml
//! [memory]
//! reservable = 0.8 # of the machine's memory, for all minima of domains together
//! reserve = "16M" # kept free while a domain is protected, above where the kernel begins to take memory back
//! ages = "auto" # by what it is known what protected domains use: mglru, refaults-and-pressure or none
//! idle = "30min" # after so long without a sign of use a domain's protection lapses; or "never"
//! ```

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use super::source::Choice;
use crate::quantity::{format_duration, format_size, parse_duration, parse_size};
use crate::toml_reader::{Reader, suggest};

/// The part of the machine's memory that domains may be promised together unless the configuration says otherwise. The
/// rest is the kernel's own, and everybody's who was promised nothing: minima that leave nothing to reclaim end in the
/// out-of-memory killer.
const RESERVABLE: f64 = 0.8;

/// What is kept free unless the configuration says otherwise, in bytes. The paper's 8 MiB (Yang 2009, section 9.3) and
/// as much again: while they are being handed out, the next are taken.
const RESERVE_BYTES: u64 = 16 << 20;
/// The most that may be kept free, in bytes: what is free is of use to nobody.
const RESERVE_MAX_BYTES: u64 = 1 << 30;

/// After which time without a sign of use protection lapses unless the configuration says otherwise, in nanoseconds: 30
/// minutes (Edwards & Cao, section 3.2.2).
const IDLE_NS: u64 = 30 * 60 * 1_000_000_000;
/// The times that can be set, in nanoseconds: 10 seconds to 7 days. Signs are looked for about once a second, and what
/// works is told from what only ticks a timer over a third of this.
const IDLE_RANGE_NS: std::ops::RangeInclusive<u64> = 10 * 1_000_000_000..=7 * 24 * 3_600 * 1_000_000_000;

/// What is set of the memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// What all domains may be promised of the machine's memory together, above 0 and at most 1.
    pub reservable: f64,
    /// What is kept free while a domain is protected, in bytes, above the kernel's high watermark.
    pub reserve_bytes: u64,
    /// After which time without a sign of use a domain's protection lapses, in nanoseconds; `None`: never.
    pub idle_ns: Option<u64>,
    /// By what it is to be known what protected domains use.
    #[serde(default)]
    pub ages: Choice,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            reservable: RESERVABLE,
            reserve_bytes: RESERVE_BYTES,
            idle_ns: Some(IDLE_NS),
            ages: Choice::default(),
        }
    }
}

/// Reads `[memory]`. A setting that is wrong is reported and keeps its default.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "memory", &["reservable", "reserve", "idle", "ages"]) else {
        return config;
    };
    let reservable = reader.part(section, "reservable", "the machine's memory");
    config.reservable = reservable.unwrap_or(config.reservable);
    if let Some(text) = reader.string(section, "reserve", "16M") {
        match parse_size(text.get_ref()) {
            Ok(bytes) if bytes <= RESERVE_MAX_BYTES => config.reserve_bytes = bytes,
            Ok(_) => {
                let what = format!("reserve = \"{}\" is more than may be kept free", text.get_ref());
                let advice = format!("give at most {}", format_size(RESERVE_MAX_BYTES));
                reader.error(text.span(), what, advice);
            }
            Err(error) => reader.error(text.span(), format!("reserve: {}", error.what), error.advice),
        }
    }
    config.idle_ns = read_idle(reader, section).unwrap_or(config.idle_ns);
    if let Some(text) = reader.string(section, "ages", "auto") {
        match text.get_ref().parse() {
            Ok(choice) => config.ages = choice,
            Err(()) => reader.error(
                text.span(),
                format!("ages = \"{}\" is nothing by which Steward knows what is used", text.get_ref()),
                suggest(text.get_ref(), &Choice::ALL.map(Choice::name)),
            ),
        }
    }
    config
}

/// `idle`; nothing where it is not there or wrong.
fn read_idle<'a>(reader: &mut Reader<'a>, section: &DeTable<'a>) -> Option<Option<u64>> {
    let text = reader.string(section, "idle", "30min")?;
    if text.get_ref() == "never" {
        return Some(None);
    }
    match parse_duration(text.get_ref()) {
        Ok(idle_ns) if IDLE_RANGE_NS.contains(&idle_ns) => Some(Some(idle_ns)),
        Ok(_) => {
            let [least, most] = [IDLE_RANGE_NS.start(), IDLE_RANGE_NS.end()].map(|ns| format_duration(*ns));
            let advice = format!("give {least} to {most}, or \"never\"");
            reader.error(text.span(), format!("idle = \"{}\" is out of range", text.get_ref()), advice);
            None
        }
        Err(fault) => {
            reader.error(
                text.span(),
                format!("idle: {}", fault.what),
                format!("{}; or \"never\"", fault.advice),
            );
            None
        }
    }
}

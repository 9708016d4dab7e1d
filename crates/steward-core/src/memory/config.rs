//! The memory's part of the daemon's configuration.
//!
//! ```toml
//! [memory]
//! reservable = 0.8 # of the machine's memory, for all minima of domains together
//! reserve = "16M" # kept free while a domain is protected, above where the kernel begins to take memory back
//! ```

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::quantity::{format_size, parse_size};
use crate::toml_reader::Reader;

/// The part of the machine's memory that domains may be promised together unless the configuration says otherwise. The
/// rest is the kernel's own, and everybody's who was promised nothing: minima that leave nothing to reclaim end in the
/// out-of-memory killer.
const RESERVABLE: f64 = 0.8;

/// What is kept free unless the configuration says otherwise, in bytes. The paper's 8 MiB (Yang 2009, section 9.3) and
/// as much again: while they are being handed out, the next are taken.
const RESERVE_BYTES: u64 = 16 << 20;
/// The most that may be kept free, in bytes: what is free is of use to nobody.
const RESERVE_MAX_BYTES: u64 = 1 << 30;

/// What is set of the memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// What all domains may be promised of the machine's memory together, above 0 and at most 1.
    pub reservable: f64,
    /// What is kept free while a domain is protected, in bytes, above the kernel's high watermark.
    pub reserve_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { reservable: RESERVABLE, reserve_bytes: RESERVE_BYTES }
    }
}

/// Reads `[memory]`. A setting that is wrong is reported and keeps its default.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "memory", &["reservable", "reserve"]) else { return config };
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
    config
}

//! The memory's part of the daemon's configuration.
//!
//! ```toml
//! [memory]
//! reservable = 0.8 # of the machine's memory, for all minima of domains together
//! ```

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::toml_reader::Reader;

/// The part of the machine's memory that domains may be promised together unless the configuration says otherwise. The
/// rest is the kernel's own, and everybody's who was promised nothing: minima that leave nothing to reclaim end in the
/// out-of-memory killer.
const RESERVABLE: f64 = 0.8;

/// What is set of the memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// What all domains may be promised of the machine's memory together, above 0 and at most 1.
    pub reservable: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { reservable: RESERVABLE }
    }
}

/// Reads `[memory]`. A setting that is wrong is reported and keeps its default.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "memory", &["reservable"]) else { return config };
    let reservable = reader.part(section, "reservable", "the machine's memory");
    config.reservable = reservable.unwrap_or(config.reservable);
    config
}

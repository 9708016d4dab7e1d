//! The disk's part of the daemon's configuration.
//!
//! ```toml
//! [disk]
//! order = "auto" # give devices an elevator that knows classes, where that helps; or "keep": leave them as they are
//! ```

use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::toml_reader::{Reader, suggest};

/// Whether devices get what orders requests by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Those where it helps, while a program runs whose class is not the normal one.
    #[default]
    Auto,
    /// None: what the machine's owner chose stays.
    Keep,
}

/// What is set of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What is done with devices.
    pub order: Order,
}

/// Reads `[disk]`. A setting that is wrong is reported and keeps its default.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "disk", &["order"]) else { return config };
    if let Some(text) = reader.string(section, "order", "auto") {
        match text.get_ref().as_str() {
            "auto" => config.order = Order::Auto,
            "keep" => config.order = Order::Keep,
            word => reader.error(
                text.span(),
                format!("order = \"{word}\" is nothing that can be done with disks"),
                suggest(word, &["auto", "keep"]),
            ),
        }
    }
    config
}

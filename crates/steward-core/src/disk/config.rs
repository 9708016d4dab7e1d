//! The disk's part of the daemon's configuration.
//!
//! ```toml
//! [disk]
//! order = "auto"      # give devices an elevator that knows classes, where that helps; or "keep": leave them as they
//!                     # are
//! [disk.devices]      # the same of single ones, by name or by what is known of them
//! vda = "charge"
//! "eui.0025385b71b0a1c2" = "keep"
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::toml_reader::{Reader, lookup, suggest};

/// What is done with a device so that classes count on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// What helps there, while a program runs whose class is not the normal one.
    #[default]
    Auto,
    /// Nothing: what the machine's owner chose stays.
    Keep,
    /// An elevator orders its requests, as on a disk that rotates, whatever it says of itself.
    Elevator,
    /// No elevator does, as on a disk that does not rotate: it is charged for once it is calibrated.
    Charge,
}

/// What can be said of all devices.
const OF_ALL: &[(&str, Order)] = &[("auto", Order::Auto), ("keep", Order::Keep)];
/// What can be said of a single one.
const OF_ONE: &[(&str, Order)] =
    &[("auto", Order::Auto), ("keep", Order::Keep), ("elevator", Order::Elevator), ("charge", Order::Charge)];

/// What is set of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What is done with devices.
    pub order: Order,
    /// What is done with single ones instead, by the kernel's name of them or by what each is known again.
    pub devices: BTreeMap<String, Order>,
}

impl Config {
    /// What is to be done with the device of this name, of which this is known (its wwid, or whatever else it says of
    /// itself): what it is counts before what it is called, and either before what is said of all.
    pub fn order_of(&self, name: &str, identity: &str) -> Order {
        let said = names(name, identity).into_iter().find_map(|key| self.devices.get(key));
        said.copied().unwrap_or(self.order)
    }

    /// Of what is said of single devices, the names that none of these has, as the kernel calls it and as it is known.
    pub fn without_device<'a>(&self, disks: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
        let there: BTreeSet<&str> = disks.flat_map(|(name, identity)| names(name, identity)).collect();
        self.devices.keys().filter(|key| !there.contains(key.as_str())).cloned().collect()
    }

    /// Whether there may be any device with which something is done.
    pub fn may_order(&self) -> bool {
        std::iter::once(&self.order).chain(self.devices.values()).any(|order| *order != Order::Keep)
    }
}

/// By what a device can be meant, what counts most first.
fn names<'a>(name: &'a str, identity: &'a str) -> [&'a str; 3] {
    [identity, identity.strip_prefix("wwid ").unwrap_or(identity), name]
}

/// What there is to say of a name that no device has. It is no mistake for sure: one may come.
pub fn no_such_device(name: &str) -> String {
    format!(
        "steward.toml has something below [disk.devices] of {name}, and no disk is called or known so now; what it says counts once one \
         comes (`lsblk` has the names of those that are there, and a partition is none)"
    )
}

/// Reads `[disk]`. A setting that is wrong is reported and keeps its default.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, table: &DeTable<'a>) -> Config {
    let mut config = Config::default();
    let Some(section) = reader.section(table, "disk", &["order", "devices"]) else { return config };
    config.order = read_order(reader, section, "order", OF_ALL, "disks").unwrap_or_default();
    let Some(devices) = lookup(section, "devices") else { return config };
    let DeValue::Table(devices) = devices.get_ref() else {
        let advice = "write [disk.devices], and below it a line such as sda = \"keep\" for each disk";
        reader.error(devices.span(), "devices is not a table", advice);
        return config;
    };
    for key in devices.keys() {
        let name: &str = key.get_ref();
        if let Some(order) = read_order(reader, devices, name, OF_ONE, "a disk") {
            config.devices.insert(name.to_owned(), order);
        }
    }
    config
}

fn read_order<'a>(
    reader: &mut Reader<'a>,
    table: &DeTable<'a>,
    key: &str,
    known: &[(&str, Order)],
    whom: &str,
) -> Option<Order> {
    let text = reader.string(table, key, "auto")?;
    let word = text.get_ref().as_str();
    if let Some((_, order)) = known.iter().find(|(name, _)| *name == word) {
        return Some(*order);
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let what = format!("{key} = \"{word}\" is nothing that can be done with {whom}");
    reader.error(text.span(), what, suggest(word, &names));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_single_device_counts_before_what_is_said_of_all_and_its_number_before_its_name() {
        let said =
            [("sda", Order::Elevator), ("eui.1", Order::Keep), ("Fast, serial number S1", Order::Charge)];
        let devices = said.map(|(name, order)| (name.to_owned(), order)).into();
        let config = Config { order: Order::Auto, devices };
        for (name, identity, order) in [
            ("sda", "", Order::Elevator),
            ("sda", "wwid eui.1", Order::Keep),
            ("sdb", "Fast, serial number S1", Order::Charge),
            ("sdb", "wwid eui.2", Order::Auto),
        ] {
            assert_eq!(config.order_of(name, identity), order, "{name} {identity}");
        }
        let there = [("sda", "wwid eui.2"), ("sdb", "wwid eui.1")];
        assert_eq!(config.without_device(there.into_iter()), ["Fast, serial number S1"]);
        assert_eq!(config.without_device(there[..1].iter().copied()), ["Fast, serial number S1", "eui.1"]);
        assert!(no_such_device("eui.1").contains("eui.1, and no disk is called or known so"));
        let kept = Config { order: Order::Keep, ..config };
        assert_eq!(kept.order_of("sdb", "wwid eui.2"), Order::Keep);
        assert!(kept.may_order());
        assert!(!Config { order: Order::Keep, ..Config::default() }.may_order());
    }
}

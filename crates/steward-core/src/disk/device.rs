//! A disk, as far as Steward needs to know it.

use serde::{Deserialize, Serialize};

use super::cost::{Lines, Model};

/// A device that serves requests, with what orders them (Documentation/block/queue-sysfs.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name of it, as in `sda`.
    pub name: String,
    /// Its numbers, as in `8:0`.
    pub number: String,
    /// What tells it from one that had the same name and numbers before (`diskseq`); 0 where the kernel does not say.
    pub sequence: u64,
    /// Whether it rotates, or says so.
    pub rotational: bool,
    /// Whether it is one of those that stand for others (device-mapper, md, loop) or for memory (zram), which order
    /// nothing themselves.
    pub stands_for_others: bool,
    /// The disks that its requests end up at, by name, where it stands for others and that is known.
    #[serde(default)]
    pub below: Vec<String>,
    /// Whether the kernel queues its requests, so that an elevator can order them.
    pub queues: bool,
    /// What can order its requests, as far as it is loaded.
    pub elevators: Vec<String>,
    /// What does; `none` where each request goes to the device at once.
    pub elevator: String,
    /// How many requests may wait in the elevator.
    pub requests: u64,
    /// How many the device itself takes at once, where it says so.
    pub depth: Option<u64>,
    /// By what it is known again when it has another name; empty where nothing is known of it.
    #[serde(default)]
    pub identity: String,
    /// What the kernel says of io.cost for it; `None` where the kernel has no io.cost.
    #[serde(default)]
    pub cost: Option<Lines>,
    /// What its requests cost, where it was calibrated.
    #[serde(default)]
    pub model: Option<Model>,
}

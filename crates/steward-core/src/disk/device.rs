//! A disk, as far as Steward needs to know it.

use serde::{Deserialize, Serialize};

use super::config::Order;
use super::cost::{Lines, Model};

/// What no disk that rotates comes near, reading pages far from each other, in a second: a seek and half a turn take
/// 4 ms at the best, and of many requests at once it picks those that lie on its way, three times as many at most.
const ROTATING_PER_SECOND_MAX: u64 = 1_000;

/// A device that serves requests, with what orders them (Documentation/block/queue-sysfs.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name of it, as in `sda`.
    pub name: String,
    /// Its numbers, as in `8:0`.
    pub number: String,
    /// What tells it from one that had the same name and numbers before (`diskseq`); 0 where the kernel does not say.
    pub sequence: u64,
    /// Whether it says that it rotates. Many do that do not: the kernel says it of each disk of which nobody has told
    /// it otherwise, as those of virtual machines. See [`Device::rotates`].
    pub rotational: bool,
    /// Whether it is one of those that stand for others (device-mapper, md, loop) or for memory (zram), which order
    /// nothing themselves.
    pub stands_for_others: bool,
    /// The disks that its requests end up at, by name, where it stands for others and that is known.
    #[serde(default)]
    pub below: Vec<String>,
    /// The device that hands requests on to it past its own elevator, where there is one: it is one of several ways to
    /// the same disk (multipath), where they are ordered.
    #[serde(default)]
    pub path_of: Option<String>,
    /// Whether the kernel queues its requests, so that an elevator can order them.
    pub queues: bool,
    /// In how many queues the device takes them; 0 where nobody has said.
    #[serde(default)]
    pub hardware_queues: u64,
    /// What can order its requests, as far as it is loaded.
    pub elevators: Vec<String>,
    /// What does; `none` where each request goes to the device at once.
    pub elevator: String,
    /// How many requests may wait in the elevator.
    pub requests: u64,
    /// Whether the kernel can be told how many of these may be writes (`queue/async_depth`, from Linux 7.0 on).
    #[serde(default)]
    pub limits_writes: bool,
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
    /// What the machine's owner wants done with it.
    #[serde(default)]
    pub order: Order,
    /// Whether it is known that this kernel has no [`BY_CLASS`](super::elevator::BY_CLASS) for it.
    #[serde(default)]
    pub lacks_by_class: bool,
}

impl Device {
    /// Whether its requests are its own: it hands none on to others, and gets none that others have ordered.
    pub fn is_own(&self) -> bool {
        !self.stands_for_others && self.path_of.is_none()
    }

    /// Whether it is memory: compressed (zram), or a disk of it (brd). It has nothing to tell it by but its name.
    pub fn is_memory(&self) -> bool {
        self.stands_for_others && ["zram", "ram"].iter().any(|kind| self.name.starts_with(kind))
    }

    /// Whether it is to be taken for a disk that rotates: by what its owner says, else by how many pages far from each
    /// other it was found to read in a second, else by what it says itself.
    pub fn rotates(&self) -> bool {
        match (self.order, self.model) {
            (Order::Elevator, _) => true,
            (Order::Charge, _) => false,
            (_, Some(model)) => model.read.random_per_second < ROTATING_PER_SECOND_MAX,
            (_, None) => self.rotational,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::Way;
    use super::*;

    #[test]
    fn what_the_owner_says_counts_before_what_was_found_and_that_before_what_a_disk_says_itself() {
        let way = |random_per_second| Way {
            bytes_per_second: 100 << 20,
            sequential_per_second: 20_000,
            random_per_second,
        };
        // What is written may be in a disk's own cache: only reading tells.
        let model = |read| Some(Model { read: way(read), write: way(5_000) });
        for (order, model, rotational, rotates) in [
            (Order::Auto, None, true, true),
            (Order::Auto, None, false, false),
            (Order::Auto, model(3_600), true, false),
            (Order::Auto, model(100), false, true),
            (Order::Auto, model(400), true, true),
            (Order::Elevator, model(3_600), false, true),
            (Order::Charge, model(100), true, false),
            (Order::Charge, None, true, false),
        ] {
            let device = Device { order, model, rotational, ..Device::default() };
            assert_eq!(device.rotates(), rotates, "{device:?}");
        }
    }
}

//! What can be asked for a domain, and what is wrong with what was asked.
//!
//! What counts for all resources stands here; what is about one is in that resource's room.

use serde::{Deserialize, Serialize};

use super::setting::{Fault, Setting};
use crate::cpu::policy::{DomainPolicy, PRIORITIES, PRIORITY_DEFAULT};
use crate::resource::Resource;
use crate::{cpu, disk, memory};

/// The smallest and the largest weight, as for `cpu.weight`.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// What a domain was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Its place among its siblings, for every resource.
    pub common: Common,
    /// Of the CPU.
    pub cpu: cpu::settings::Settings,
    /// Of the memory.
    pub memory: memory::Settings,
    /// Of the disk.
    pub disk: disk::Settings,
}

/// The place of a domain among its siblings, and of what is its own among its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Common {
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    pub priority: u8,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10,000; `None`: the cgroup's `cpu.weight`.
    pub weight: Option<u32>,
    /// Priority of the domain's own tasks beside its children.
    pub own_priority: u8,
    /// Weight of the domain's own tasks beside its children; `None`: as the mechanism has it.
    pub own_weight: Option<u32>,
}

impl Default for Common {
    fn default() -> Self {
        Common { priority: PRIORITY_DEFAULT, weight: None, own_priority: PRIORITY_DEFAULT, own_weight: None }
    }
}

impl Settings {
    /// The part of it that the scheduler is told.
    pub fn policy(&self) -> DomainPolicy {
        DomainPolicy {
            priority: self.common.priority,
            weight: self.common.weight,
            reserved: self.cpu.reserved.unwrap_or(0.0),
            own_priority: self.common.own_priority,
            own_weight: self.common.own_weight,
        }
    }
}

/// What to change: what is `Some` gets that value, what is in `reset` its default before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Of its place among its siblings.
    pub common: CommonChange,
    /// Of the CPU.
    pub cpu: cpu::settings::Change,
    /// Of the memory.
    pub memory: memory::settings::Change,
    /// Of the disk.
    pub disk: disk::settings::Change,
    /// Settings that get their default again.
    pub reset: Vec<Setting>,
}

/// What to change of [`Common`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonChange {
    /// [`Common::priority`].
    pub priority: Option<i64>,
    /// [`Common::weight`].
    pub weight: Option<i64>,
    /// [`Common::own_priority`].
    pub own_priority: Option<i64>,
    /// [`Common::own_weight`].
    pub own_weight: Option<i64>,
}

impl Change {
    /// The change after which there is nothing but these settings.
    pub fn to(settings: &Settings) -> Self {
        let common = &settings.common;
        Change {
            common: CommonChange {
                priority: Some(common.priority.into()),
                weight: common.weight.map(Into::into),
                own_priority: Some(common.own_priority.into()),
                own_weight: common.own_weight.map(Into::into),
            },
            cpu: settings.cpu.as_change(),
            memory: settings.memory.as_change(),
            disk: settings.disk.as_change(),
            reset: Setting::ALL.to_vec(),
        }
    }

    /// The settings after the change.
    ///
    /// # Errors
    /// The first value that is out of its range; nothing is changed then.
    pub fn apply(&self, before: &Settings) -> Result<Settings, Fault> {
        let mut after = before.clone();
        for setting in &self.reset {
            after.reset(*setting);
        }
        self.common.apply(&mut after.common)?;
        self.cpu.apply(&mut after.cpu)?;
        self.memory.apply(&mut after.memory)?;
        self.disk.apply(&mut after.disk)?;
        Ok(after)
    }

    /// The resources that it is about, and no others. A place among siblings is one for the CPU
    /// ([`Setting::resource`]), and so is a change of nothing.
    pub fn resources(&self) -> Vec<Resource> {
        let names = |resource| match resource {
            Resource::Cpu => {
                self.common != CommonChange::default() || self.cpu != cpu::settings::Change::default()
            }
            Resource::Memory => self.memory != memory::settings::Change::default(),
            Resource::Disk => self.disk != disk::settings::Change::default(),
        };
        let resets = |resource| self.reset.iter().any(|setting| setting.resource() == resource);
        let is_about = |resource: &Resource| names(*resource) || resets(*resource);
        let about: Vec<Resource> = Resource::ALL.into_iter().filter(is_about).collect();
        if about.is_empty() { vec![Resource::Cpu] } else { about }
    }
}

impl CommonChange {
    fn apply(&self, settings: &mut Common) -> Result<(), Fault> {
        if let Some(value) = self.priority {
            settings.priority = priority(Setting::Priority, value)?;
        }
        if let Some(value) = self.own_priority {
            settings.own_priority = priority(Setting::OwnPriority, value)?;
        }
        if let Some(value) = self.weight {
            settings.weight = Some(weight(Setting::Weight, value)?);
        }
        if let Some(value) = self.own_weight {
            settings.own_weight = Some(weight(Setting::OwnWeight, value)?);
        }
        Ok(())
    }
}

impl Settings {
    fn reset(&mut self, setting: Setting) {
        let default = Common::default();
        match setting {
            Setting::Priority => self.common.priority = default.priority,
            Setting::Weight => self.common.weight = default.weight,
            Setting::OwnPriority => self.common.own_priority = default.own_priority,
            Setting::OwnWeight => self.common.own_weight = default.own_weight,
            Setting::Cpu => self.cpu.reserved = None,
            Setting::CpuReservable => self.cpu.reservable = None,
            Setting::MemoryMin => self.memory.min_bytes = None,
            Setting::MemoryMax => self.memory.max_bytes = None,
            Setting::Protect => self.memory.protect_ns = None,
            Setting::Io => self.disk.class = None,
            Setting::Disk => self.disk.reserved = None,
            Setting::IoMaxBytes => self.disk.max.bytes_per_second = None,
            Setting::IoMaxRequests => self.disk.max.requests_per_second = None,
        }
    }

    /// Whether `self` asks for nothing that `before` does not have already, towards its siblings: no more reserved, no
    /// higher priority or class, no larger weight, no higher maximum, no longer protection. `kernel_weight` stands for
    /// a weight that is not set.
    pub fn takes_no_more_than(&self, before: &Settings, kernel_weight: u32) -> bool {
        let weight = |settings: &Settings| settings.common.weight.unwrap_or(kernel_weight);
        self.common.priority <= before.common.priority
            && weight(self) <= weight(before)
            && self.cpu.reserved.unwrap_or(0.0) <= before.cpu.reserved.unwrap_or(0.0)
            && self.memory.takes_no_more_than(&before.memory)
            && self.disk.takes_no_more_than(&before.disk)
    }
}

fn priority(setting: Setting, value: i64) -> Result<u8, Fault> {
    let known = u8::try_from(value).ok().filter(|value| *value < PRIORITIES);
    known.ok_or_else(|| Fault {
        setting,
        reason: format!("{value} is no priority; they go from 0 (last) to {} (first)", PRIORITIES - 1),
    })
}

fn weight(setting: Setting, value: i64) -> Result<u32, Fault> {
    let known = u32::try_from(value).ok().filter(|value| WEIGHTS.contains(value));
    known.ok_or_else(|| Fault {
        setting,
        reason: format!("{value} is no weight; they go from {} to {}", WEIGHTS.start(), WEIGHTS.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(reserved: f64) -> Settings {
        let mut settings = Settings::default();
        settings.cpu.reserved = Some(reserved);
        settings
    }

    #[test]
    fn a_change_that_is_wrong_in_one_part_changes_nothing() {
        let mut before = Settings::default();
        before.common.weight = Some(50);
        let mut wrong = Change::default();
        (wrong.common.weight, wrong.cpu.reserved) = (Some(70), Some(1.5));
        let fault = wrong.apply(&before).expect_err("150 %");
        assert_eq!(fault.setting, Setting::Cpu);
        assert!(fault.to_string().contains("1.5 is not a fraction"), "{fault}");
        let mut right = Change { reset: vec![Setting::Weight], ..Change::default() };
        right.cpu.reserved = Some(0.5);
        assert_eq!(right.apply(&before), Ok(cpu(0.5)));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let wrong: [fn(&mut Change); 18] = [
            |change| change.cpu.reserved = Some(0.0),
            |change| change.cpu.reserved = Some(-0.1),
            |change| change.cpu.reserved = Some(f64::NAN),
            |change| change.cpu.reserved = Some(f64::INFINITY),
            |change| change.cpu.reservable = Some(1.01),
            |change| change.disk.reserved = Some(0.0),
            |change| change.disk.max_bytes_per_second = Some((1 << 20) - 1),
            |change| change.disk.max_bytes_per_second = Some(-1),
            |change| change.disk.max_requests_per_second = Some(15),
            |change| change.disk.max_requests_per_second = Some(i64::MAX),
            |change| change.common.weight = Some(0),
            |change| change.common.own_weight = Some(10_001),
            |change| change.common.priority = Some(8),
            |change| change.common.own_priority = Some(-1),
            |change| change.memory.min_bytes = Some(0),
            |change| change.memory.max_bytes = Some(-1),
            |change| change.memory.protect_ns = Some(0),
            |change| change.memory.protect_ns = Some(-1_800_000_000_000),
        ];
        for spoil in wrong {
            let mut change = Change::default();
            spoil(&mut change);
            assert!(change.apply(&Settings::default()).is_err(), "{change:?}");
        }
    }

    #[test]
    fn every_setting_has_a_name_and_can_be_reset() {
        let all = Settings {
            common: Common { priority: 7, weight: Some(1), own_priority: 0, own_weight: Some(3) },
            cpu: cpu::settings::Settings { reserved: Some(0.1), reservable: Some(0.5) },
            memory: memory::Settings {
                min_bytes: Some(1),
                max_bytes: Some(2),
                protect_ns: Some(1_000_000_000),
            },
            disk: disk::Settings {
                class: Some(disk::Class::Background),
                reserved: Some(0.2),
                max: disk::Limit { bytes_per_second: Some(1 << 20), requests_per_second: Some(50) },
            },
        };
        for setting in Setting::ALL {
            assert_eq!(Setting::by_name(setting.name()), Some(setting));
            let change = Change { reset: vec![setting], ..Change::default() };
            assert_ne!(change.apply(&all).expect("a reset"), all);
            assert_eq!(change.resources(), [setting.resource()]);
        }
        let change = Change { reset: Setting::ALL.to_vec(), ..Change::default() };
        assert_eq!(change.apply(&all), Ok(Settings::default()));
        assert_eq!(Change::to(&all).apply(&Settings::default()), Ok(all.clone()));
        assert_eq!(Change::to(&Settings::default()).apply(&all), Ok(Settings::default()));
    }

    #[test]
    fn a_change_is_about_the_resources_that_it_names_and_no_others() {
        let about = |spoil: fn(&mut Change)| {
            let mut change = Change::default();
            spoil(&mut change);
            change.resources()
        };
        assert_eq!(about(|_| ()), [Resource::Cpu]);
        assert_eq!(about(|change| change.memory.max_bytes = Some(1)), [Resource::Memory]);
        assert_eq!(about(|change| change.disk.reserved = Some(0.5)), [Resource::Disk]);
        assert_eq!(about(|change| change.cpu.reserved = Some(0.5)), [Resource::Cpu]);
        assert_eq!(about(|change| change.common.weight = Some(50)), [Resource::Cpu]);
        let of_two = |change: &mut Change| {
            (change.common.own_priority, change.disk.max_requests_per_second) = (Some(1), Some(50));
        };
        assert_eq!(about(of_two), [Resource::Cpu, Resource::Disk]);
        assert_eq!(Change::to(&Settings::default()).resources(), Resource::ALL);
    }

    #[test]
    fn less_is_told_from_more() {
        let mut has = cpu(0.2);
        has.common.weight = Some(50);
        let mut less = has.clone();
        less.cpu.reserved = Some(0.1);
        assert!(less.takes_no_more_than(&has, 100) && !has.takes_no_more_than(&less, 100));
        let mut default_weight = has.clone();
        default_weight.common.weight = None;
        assert!(!default_weight.takes_no_more_than(&has, 100));
        let mut own = has.clone();
        (own.common.own_weight, own.common.own_priority, own.cpu.reservable) = (Some(9), 7, Some(1.0));
        assert!(own.takes_no_more_than(&has, 100), "what it keeps for itself takes from nobody else");
    }
}

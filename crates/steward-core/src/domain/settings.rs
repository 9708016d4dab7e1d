//! What can be asked for a domain, and what is wrong with what was asked.

use serde::{Deserialize, Serialize};

use crate::cpu::policy::{DomainPolicy, PRIORITIES, PRIORITY_DEFAULT};

/// The smallest and the largest weight, as for `cpu.weight`.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;
/// The smallest fraction that can be reserved: below it, a service cycle of half a second gives less than the
/// shortest turn that is worth switching for.
pub const FRACTION_MIN: f64 = 0.0001;

/// What a domain was given. All fractions are of what the parent has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Order among siblings, 0 to 7: what a higher one wants, a lower one gets only by its reservation.
    pub priority: u8,
    /// Share of the unreserved rest among siblings of one priority, 1 to 10,000; `None`: the cgroup's `cpu.weight`.
    pub weight: Option<u32>,
    /// CPU reserved, above 0 and at most 1.
    pub cpu: Option<f64>,
    /// Priority of the domain's own tasks beside its children.
    pub own_priority: u8,
    /// Weight of the domain's own tasks beside its children; `None`: as the mechanism has it.
    pub own_weight: Option<u32>,
    /// The most that the children may reserve together, as a fraction of this domain's CPU; `None`: all of it.
    pub cpu_limit: Option<f64>,
    /// Memory reserved, in bytes. Kept and shown; nothing enforces it yet.
    pub memory_bytes: Option<u64>,
    /// Disk time reserved. Kept and shown; nothing enforces it yet.
    pub disk: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            priority: PRIORITY_DEFAULT,
            weight: None,
            cpu: None,
            own_priority: PRIORITY_DEFAULT,
            own_weight: None,
            cpu_limit: None,
            memory_bytes: None,
            disk: None,
        }
    }
}

impl Settings {
    /// The part of it that the scheduler is told.
    pub fn policy(&self) -> DomainPolicy {
        DomainPolicy {
            priority: self.priority,
            weight: self.weight,
            reserved: self.cpu.unwrap_or(0.0),
            own_priority: self.own_priority,
            own_weight: self.own_weight,
        }
    }
}

/// One of the settings, by the name that the API and the command line have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Setting {
    /// [`Settings::priority`].
    Priority,
    /// [`Settings::weight`].
    Weight,
    /// [`Settings::cpu`].
    Cpu,
    /// [`Settings::own_priority`].
    OwnPriority,
    /// [`Settings::own_weight`].
    OwnWeight,
    /// [`Settings::cpu_limit`].
    CpuLimit,
    /// [`Settings::memory_bytes`].
    Memory,
    /// [`Settings::disk`].
    Disk,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 8] = [
        Setting::Priority,
        Setting::Weight,
        Setting::Cpu,
        Setting::OwnPriority,
        Setting::OwnWeight,
        Setting::CpuLimit,
        Setting::Memory,
        Setting::Disk,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Priority => "priority",
            Setting::Weight => "weight",
            Setting::Cpu => "cpu",
            Setting::OwnPriority => "own_priority",
            Setting::OwnWeight => "own_weight",
            Setting::CpuLimit => "cpu_limit",
            Setting::Memory => "memory",
            Setting::Disk => "disk",
        }
    }

    /// The setting of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Setting::ALL.into_iter().find(|setting| setting.name() == name)
    }
}

/// What to change: settings that are `Some` get that value, those in `reset` their default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// [`Settings::priority`].
    pub priority: Option<i64>,
    /// [`Settings::weight`].
    pub weight: Option<i64>,
    /// [`Settings::cpu`].
    pub cpu: Option<f64>,
    /// [`Settings::own_priority`].
    pub own_priority: Option<i64>,
    /// [`Settings::own_weight`].
    pub own_weight: Option<i64>,
    /// [`Settings::cpu_limit`].
    pub cpu_limit: Option<f64>,
    /// [`Settings::memory_bytes`].
    pub memory_bytes: Option<i64>,
    /// [`Settings::disk`].
    pub disk: Option<f64>,
    /// Settings that get their default again.
    pub reset: Vec<Setting>,
}

/// A value that a setting cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", setting.name())]
pub struct Fault {
    /// The setting.
    pub setting: Setting,
    /// What is wrong, and what is possible.
    pub reason: String,
}

impl Change {
    /// The change after which there is nothing but these settings.
    pub fn to(settings: &Settings) -> Self {
        Change {
            priority: Some(settings.priority.into()),
            weight: settings.weight.map(Into::into),
            cpu: settings.cpu,
            own_priority: Some(settings.own_priority.into()),
            own_weight: settings.own_weight.map(Into::into),
            cpu_limit: settings.cpu_limit,
            memory_bytes: settings.memory_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            disk: settings.disk,
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
        if let Some(value) = self.priority {
            after.priority = priority(Setting::Priority, value)?;
        }
        if let Some(value) = self.own_priority {
            after.own_priority = priority(Setting::OwnPriority, value)?;
        }
        if let Some(value) = self.weight {
            after.weight = Some(weight(Setting::Weight, value)?);
        }
        if let Some(value) = self.own_weight {
            after.own_weight = Some(weight(Setting::OwnWeight, value)?);
        }
        if let Some(value) = self.cpu {
            after.cpu = Some(fraction(Setting::Cpu, value)?);
        }
        if let Some(value) = self.cpu_limit {
            after.cpu_limit = Some(fraction(Setting::CpuLimit, value)?);
        }
        if let Some(value) = self.disk {
            after.disk = Some(fraction(Setting::Disk, value)?);
        }
        if let Some(value) = self.memory_bytes {
            after.memory_bytes = Some(memory(value)?);
        }
        Ok(after)
    }
}

impl Settings {
    fn reset(&mut self, setting: Setting) {
        let default = Settings::default();
        match setting {
            Setting::Priority => self.priority = default.priority,
            Setting::Weight => self.weight = default.weight,
            Setting::Cpu => self.cpu = default.cpu,
            Setting::OwnPriority => self.own_priority = default.own_priority,
            Setting::OwnWeight => self.own_weight = default.own_weight,
            Setting::CpuLimit => self.cpu_limit = default.cpu_limit,
            Setting::Memory => self.memory_bytes = default.memory_bytes,
            Setting::Disk => self.disk = default.disk,
        }
    }

    /// Whether `self` asks for nothing that `before` does not have already, towards its siblings: no more
    /// reserved, no higher priority, no larger weight. `kernel_weight` stands for a weight that is not set.
    pub fn takes_no_more_than(&self, before: &Settings, kernel_weight: u32) -> bool {
        let weight = |settings: &Settings| settings.weight.unwrap_or(kernel_weight);
        self.priority <= before.priority
            && weight(self) <= weight(before)
            && self.cpu.unwrap_or(0.0) <= before.cpu.unwrap_or(0.0)
            && self.memory_bytes.unwrap_or(0) <= before.memory_bytes.unwrap_or(0)
            && self.disk.unwrap_or(0.0) <= before.disk.unwrap_or(0.0)
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

fn fraction(setting: Setting, value: f64) -> Result<f64, Fault> {
    // A NaN is in no range.
    if (FRACTION_MIN..=1.0).contains(&value) {
        return Ok(value);
    }
    let reason = if value == 0.0 {
        "0 reserves nothing: leave it out, or reset it to its default".to_owned()
    } else {
        format!("{value} is not a fraction of what the parent has; they go from {FRACTION_MIN} to 1 (100 %)")
    };
    Err(Fault { setting, reason })
}

fn memory(value: i64) -> Result<u64, Fault> {
    let known = u64::try_from(value).ok().filter(|value| *value > 0);
    known.ok_or_else(|| Fault {
        setting: Setting::Memory,
        reason: format!("{value} is no amount of memory; give a number of bytes above 0"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_wrong_in_one_part_changes_nothing() {
        let before = Settings { weight: Some(50), ..Settings::default() };
        let wrong = Change { weight: Some(70), cpu: Some(1.5), ..Change::default() };
        let fault = wrong.apply(&before).expect_err("150 %");
        assert_eq!(fault.setting, Setting::Cpu);
        assert!(fault.to_string().contains("1.5 is not a fraction"), "{fault}");
        let right = Change { cpu: Some(0.5), reset: vec![Setting::Weight], ..Change::default() };
        let expected = Settings { cpu: Some(0.5), ..Settings::default() };
        assert_eq!(right.apply(&before), Ok(expected));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let wrong = [
            Change { cpu: Some(0.0), ..Change::default() },
            Change { cpu: Some(-0.1), ..Change::default() },
            Change { cpu: Some(f64::NAN), ..Change::default() },
            Change { cpu: Some(f64::INFINITY), ..Change::default() },
            Change { cpu_limit: Some(1.01), ..Change::default() },
            Change { disk: Some(0.0), ..Change::default() },
            Change { weight: Some(0), ..Change::default() },
            Change { own_weight: Some(10_001), ..Change::default() },
            Change { priority: Some(8), ..Change::default() },
            Change { own_priority: Some(-1), ..Change::default() },
            Change { memory_bytes: Some(0), ..Change::default() },
        ];
        for change in wrong {
            assert!(change.apply(&Settings::default()).is_err(), "{change:?}");
        }
    }

    #[test]
    fn every_setting_has_a_name_and_can_be_reset() {
        let all = Settings {
            priority: 7,
            weight: Some(1),
            cpu: Some(0.1),
            own_priority: 0,
            own_weight: Some(3),
            cpu_limit: Some(0.5),
            memory_bytes: Some(1),
            disk: Some(0.2),
        };
        for setting in Setting::ALL {
            assert_eq!(Setting::by_name(setting.name()), Some(setting));
            let change = Change { reset: vec![setting], ..Change::default() };
            assert_ne!(change.apply(&all).expect("a reset"), all);
        }
        let change = Change { reset: Setting::ALL.to_vec(), ..Change::default() };
        assert_eq!(change.apply(&all), Ok(Settings::default()));
        assert_eq!(Change::to(&all).apply(&Settings::default()), Ok(all.clone()));
        assert_eq!(Change::to(&Settings::default()).apply(&all), Ok(Settings::default()));
    }

    #[test]
    fn less_is_told_from_more() {
        let has = Settings { cpu: Some(0.2), weight: Some(50), ..Settings::default() };
        let less = Settings { cpu: Some(0.1), ..has.clone() };
        assert!(less.takes_no_more_than(&has, 100) && !has.takes_no_more_than(&less, 100));
        let default_weight = Settings { weight: None, ..has.clone() };
        assert!(!default_weight.takes_no_more_than(&has, 100));
        let own = Settings { own_weight: Some(9), own_priority: 7, cpu_limit: Some(1.0), ..has.clone() };
        assert!(own.takes_no_more_than(&has, 100), "what it keeps for itself takes from nobody else");
    }
}

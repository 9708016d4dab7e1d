//! The settings of a domain by name, and what is wrong with a value.

use crate::resource::Resource;

/// The smallest fraction that can be reserved: below it, a service cycle of half a second gives less than the
/// shortest turn that is worth switching for.
pub const FRACTION_MIN: f64 = 0.0001;

/// One of the settings, by the name that the API and the command line have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Setting {
    /// [`super::settings::Common::priority`].
    Priority,
    /// [`super::settings::Common::weight`].
    Weight,
    /// [`super::settings::Common::own_priority`].
    OwnPriority,
    /// [`super::settings::Common::own_weight`].
    OwnWeight,
    /// [`crate::cpu::settings::Settings::reserved`].
    Cpu,
    /// [`crate::cpu::settings::Settings::reservable`].
    CpuReservable,
    /// [`crate::memory::Settings::min_bytes`].
    MemoryMin,
    /// [`crate::memory::Settings::max_bytes`].
    MemoryMax,
    /// [`crate::memory::Settings::protect_ns`].
    Protect,
    /// [`crate::disk::Settings::class`].
    Io,
    /// [`crate::disk::Settings::reserved`].
    Disk,
    /// [`crate::disk::Limit::bytes_per_second`].
    IoMaxBytes,
    /// [`crate::disk::Limit::requests_per_second`].
    IoMaxRequests,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 13] = [
        Setting::Priority,
        Setting::Weight,
        Setting::OwnPriority,
        Setting::OwnWeight,
        Setting::Cpu,
        Setting::CpuReservable,
        Setting::MemoryMin,
        Setting::MemoryMax,
        Setting::Protect,
        Setting::Io,
        Setting::Disk,
        Setting::IoMaxBytes,
        Setting::IoMaxRequests,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Priority => "priority",
            Setting::Weight => "weight",
            Setting::OwnPriority => "own_priority",
            Setting::OwnWeight => "own_weight",
            Setting::Cpu => "cpu",
            Setting::CpuReservable => "cpu_reservable",
            Setting::MemoryMin => "memory_min",
            Setting::MemoryMax => "memory_max",
            Setting::Protect => "protect",
            Setting::Io => "io",
            Setting::Disk => "disk",
            Setting::IoMaxBytes => "io_max_bytes",
            Setting::IoMaxRequests => "io_max_requests",
        }
    }

    /// The setting of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Setting::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// The resource whose division it changes. A place among siblings is one for the CPU.
    pub fn resource(self) -> Resource {
        match self {
            Setting::MemoryMin | Setting::MemoryMax | Setting::Protect => Resource::Memory,
            Setting::Io | Setting::Disk | Setting::IoMaxBytes | Setting::IoMaxRequests => Resource::Disk,
            Setting::Priority
            | Setting::Weight
            | Setting::OwnPriority
            | Setting::OwnWeight
            | Setting::Cpu
            | Setting::CpuReservable => Resource::Cpu,
        }
    }
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

pub(crate) fn fraction(setting: Setting, value: f64) -> Result<f64, Fault> {
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

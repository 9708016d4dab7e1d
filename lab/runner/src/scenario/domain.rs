//! The domains of a scenario, as its file has them.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use steward_core::quantity::parse_duration;

/// A domain of a scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainRow {
    /// Its name: the cgroup's directory.
    pub name: String,
    /// The domain that it is below; the root if absent.
    pub parent: Option<String>,
    /// The fraction of its parent's CPU time that is reserved for it, 0 to 1.
    #[serde(default)]
    pub cpu: f64,
    /// The fraction of its parent's time of the disk that is reserved for it, 0 to 1; what nobody has reserved is
    /// shared evenly.
    #[serde(default)]
    pub disk: f64,
    /// Its weight among its siblings, 1 to 10,000.
    pub weight: Option<u32>,
    /// The most that it may use, under every contender: C in every T, where C may be more than T on several CPUs.
    pub max: Option<Limit>,
    /// It is to have only what nobody else wants (`cpu.idle`), under every contender.
    #[serde(default)]
    pub idle: bool,
    /// The CPUs that it may use, under every contender.
    #[serde(default)]
    pub cpus: Vec<u32>,
}

/// A limit of CPU time as `cpu.max` has it: `quota` in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How much of each period, over all CPUs.
    pub quota: Duration,
    /// How long a period is.
    pub period: Duration,
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mistake = || format!("`{text}` is not a limit: write 20ms/100ms, with a period of 1ms to 1s");
        let limit = || {
            let read = |text| parse_duration(text).ok().map(Duration::from_nanos);
            let (quota, period) = text.split_once('/')?;
            let (quota, period) = (read(quota)?, read(period)?);
            let fits = (1..=1000).contains(&period.as_millis()) && quota.as_millis() >= 1;
            fits.then_some(Limit { quota, period })
        };
        limit().ok_or_else(|| serde::de::Error::custom(mistake()))
    }
}

//! What a domain can be given of the disk.

use serde::{Deserialize, Serialize};

use super::class::Class;
use super::limit::{self, Limit};
use crate::domain::setting::{Fault, Setting, fraction};

/// What a domain was given of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How soon its requests are served; `None`: as those of the domain above, and at the top as usual.
    pub class: Option<Class>,
    /// Disk time reserved of what the parent has, a fraction above 0 and at most 1.
    pub reserved: Option<f64>,
    /// The most that it may read and write.
    pub max: Limit,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// [`Settings::class`].
    pub class: Option<Class>,
    /// [`Settings::reserved`].
    pub reserved: Option<f64>,
    /// [`Limit::bytes_per_second`].
    pub max_bytes_per_second: Option<i64>,
    /// [`Limit::requests_per_second`].
    pub max_requests_per_second: Option<i64>,
}

impl Settings {
    /// Whether nothing was given.
    pub fn is_default(&self) -> bool {
        *self == Settings::default()
    }

    /// The change after which there is nothing but this.
    pub fn as_change(&self) -> Change {
        let asked = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        Change {
            class: self.class,
            reserved: self.reserved,
            max_bytes_per_second: asked(self.max.bytes_per_second),
            max_requests_per_second: asked(self.max.requests_per_second),
        }
    }

    /// Whether it was given a part of the disk's time of its own.
    pub fn has_part(&self) -> bool {
        self.class.is_some() || self.reserved.is_some()
    }

    /// Whether this asks for nothing that `before` does not have already. A domain without a class may be in one whose
    /// class comes last, so that no class at all counts as the usual one.
    pub(crate) fn takes_no_more_than(&self, before: &Settings) -> bool {
        let class = |settings: &Settings| settings.class.unwrap_or_default();
        !class(self).is_before(class(before))
            && self.reserved.unwrap_or(0.0) <= before.reserved.unwrap_or(0.0)
            && self.max.allows_no_more_than(&before.max)
    }

    /// Whether its requests are to be served before all others, and were not.
    pub fn is_served_sooner_than(&self, before: &Settings) -> bool {
        self.class == Some(Class::Interactive) && before.class != Some(Class::Interactive)
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// A value that is out of its range.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Fault> {
        settings.class = self.class.or(settings.class);
        if let Some(value) = self.reserved {
            settings.reserved = Some(fraction(Setting::Disk, value)?);
        }
        if let Some(value) = self.max_bytes_per_second {
            settings.max.bytes_per_second = Some(limit::bytes_per_second(value)?);
        }
        if let Some(value) = self.max_requests_per_second {
            settings.max.requests_per_second = Some(limit::requests_per_second(value)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_way_takes_nothing_and_who_comes_sooner_does() {
        let of = |class| Settings { class, ..Settings::default() };
        let order = [Some(Class::Background), None, Some(Class::Interactive)];
        for (place, less) in order.iter().enumerate() {
            for more in &order[place + 1..] {
                assert!(of(*less).takes_no_more_than(&of(*more)), "{less:?} than {more:?}");
                assert!(!of(*more).takes_no_more_than(&of(*less)), "{more:?} than {less:?}");
            }
        }
        assert!(of(Some(Class::Normal)).takes_no_more_than(&of(None)));
        let reserved = |reserved| Settings { reserved, ..Settings::default() };
        assert!(!reserved(Some(0.1)).takes_no_more_than(&reserved(None)));
        let max = |bytes_per_second| Settings {
            max: Limit { bytes_per_second, requests_per_second: None },
            ..Settings::default()
        };
        assert!(max(Some(1 << 20)).takes_no_more_than(&max(None)));
        assert!(!max(None).takes_no_more_than(&max(Some(1 << 20))));
        assert!(of(Some(Class::Interactive)).is_served_sooner_than(&of(None)));
        assert!(!of(Some(Class::Normal)).is_served_sooner_than(&of(Some(Class::Background))));
    }
}

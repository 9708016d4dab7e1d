//! What a domain can be given of the memory (Edwards & Cao, section 3.2.1).

use serde::{Deserialize, Serialize};

use crate::domain::setting::{Fault, Setting};
use crate::quantity::{QuantityError, format_duration, format_size};

/// The protection period of whoever asks for protection and names none, in nanoseconds: 30 minutes (Yang 2009, section
/// 9.2).
pub const PROTECTION_PERIOD_NS: u64 = 30 * 60 * 1_000_000_000;

/// The protection periods that can be asked for, in nanoseconds: 1 second to 24 hours. Ages of pages are no finer than
/// the first, and a period beyond the second protects whatever was used once.
pub const PROTECTION_PERIODS_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=24 * 3_600 * 1_000_000_000;

/// What a domain was given of the memory, with all below it. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Promised: what it uses up to this is not taken from it, whoever else needs memory.
    pub min_bytes: Option<u64>,
    /// The most that it may use.
    pub max_bytes: Option<u64>,
    /// Protected: for how long one of its pages may go unused before it may be taken, in nanoseconds (Yang 2009, the
    /// protection period pi). How much that protects is seen as it runs: no amount is promised.
    pub protect_ns: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// [`Settings::min_bytes`].
    pub min_bytes: Option<i64>,
    /// [`Settings::max_bytes`].
    pub max_bytes: Option<i64>,
    /// [`Settings::protect_ns`].
    pub protect_ns: Option<i64>,
}

impl Settings {
    /// The change after which there is nothing but this.
    pub fn as_change(&self) -> Change {
        let asked = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        Change {
            min_bytes: asked(self.min_bytes),
            max_bytes: asked(self.max_bytes),
            protect_ns: asked(self.protect_ns),
        }
    }

    /// Whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        *self == Settings::default()
    }

    /// Whether this leaves the others at least what `before` left them: no more promised, no more allowed, and
    /// no page protected for longer.
    pub(crate) fn takes_no_more_than(&self, before: &Settings) -> bool {
        self.min_bytes.unwrap_or(0) <= before.min_bytes.unwrap_or(0)
            && self.max_bytes.unwrap_or(u64::MAX) <= before.max_bytes.unwrap_or(u64::MAX)
            && !self.protects_more_than(before)
    }

    /// Whether pages are protected that were not, or for longer than they were.
    pub fn protects_more_than(&self, before: &Settings) -> bool {
        self.protect_ns.unwrap_or(0) > before.protect_ns.unwrap_or(0)
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// An amount that is none, a protection period out of range, or a minimum above the maximum.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Fault> {
        if let Some(value) = self.min_bytes {
            settings.min_bytes = Some(bytes(Setting::MemoryMin, value)?);
        }
        if let Some(value) = self.max_bytes {
            settings.max_bytes = Some(bytes(Setting::MemoryMax, value)?);
        }
        if let Some(value) = self.protect_ns {
            let period = check_protection_period(value)
                .map_err(|error| Fault { setting: Setting::Protect, reason: error.to_string() });
            settings.protect_ns = Some(period?);
        }
        match (settings.min_bytes, settings.max_bytes) {
            (Some(min), Some(max)) if min > max => Err(Fault {
                setting: if self.max_bytes.is_some() { Setting::MemoryMax } else { Setting::MemoryMin },
                reason: format!(
                    "{} cannot be promised where at most {} may be used: ask for less, or for a larger maximum",
                    format_size(min),
                    format_size(max)
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether `period_ns` nanoseconds can be asked for as a protection period ([`PROTECTION_PERIODS_NS`]).
///
/// # Errors
/// Says what can be.
pub fn check_protection_period(period_ns: i64) -> Result<u64, QuantityError> {
    let whole = u64::try_from(period_ns);
    if let Some(period_ns) = whole.ok().filter(|period_ns| PROTECTION_PERIODS_NS.contains(period_ns)) {
        return Ok(period_ns);
    }
    let asked = whole.map_or_else(|_| format!("{period_ns}ns"), format_duration);
    let (shortest, longest) = (PROTECTION_PERIODS_NS.start(), PROTECTION_PERIODS_NS.end());
    Err(QuantityError {
        what: format!("{asked} is no protection period"),
        advice: format!(
            "they go from {} to {}, and {} is usual",
            format_duration(*shortest),
            format_duration(*longest),
            format_duration(PROTECTION_PERIOD_NS)
        ),
    })
}

fn bytes(setting: Setting, value: i64) -> Result<u64, Fault> {
    let known = u64::try_from(value).ok().filter(|value| *value > 0);
    let what = if value < 0 { "is negative" } else { "is no amount of memory" };
    known.ok_or_else(|| Fault { setting, reason: format!("{value} {what}; give a number of bytes above 0") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::parse_duration;

    #[test]
    fn a_minimum_above_the_maximum_is_refused_whichever_came_first() {
        let given = |min_bytes, max_bytes| Settings { min_bytes, max_bytes, protect_ns: None };
        let asked = |min_bytes, max_bytes| Change { min_bytes, max_bytes, protect_ns: None };
        for (before, change, setting) in [
            (given(None, Some(10)), asked(Some(20), None), Setting::MemoryMin),
            (given(Some(20), None), asked(None, Some(10)), Setting::MemoryMax),
            (given(None, None), asked(Some(20), Some(10)), Setting::MemoryMax),
        ] {
            let fault = change.apply(&mut { before }).expect_err("it cannot be");
            assert_eq!(fault.setting, setting);
            assert!(fault.reason.contains("cannot be promised"), "{fault}");
        }
        let both = asked(Some(10), Some(10));
        assert_eq!(both.apply(&mut Settings::default()), Ok(()));
    }

    #[test]
    fn an_amount_below_0_and_none_are_refused_each_in_its_own_words() {
        for (asked, expected) in [(-5, "-5 is negative; give"), (0, "0 is no amount of memory; give")] {
            let change = Change { min_bytes: Some(asked), ..Change::default() };
            let fault = change.apply(&mut Settings::default()).expect_err("it is none");
            assert!(fault.setting == Setting::MemoryMin && fault.reason.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn who_may_use_less_takes_nothing_and_who_may_use_more_does() {
        let limited = |max_bytes| Settings { max_bytes, ..Settings::default() };
        assert!(limited(Some(10)).takes_no_more_than(&limited(None)));
        assert!(!limited(None).takes_no_more_than(&limited(Some(10))));
        assert!(!limited(Some(20)).takes_no_more_than(&limited(Some(10))));
        let promised = Settings { min_bytes: Some(1), ..Settings::default() };
        assert!(!promised.takes_no_more_than(&Settings::default()));
        let protected = |protect_ns| Settings { protect_ns, ..Settings::default() };
        assert!(!protected(Some(1)).takes_no_more_than(&protected(None)));
        assert!(!protected(Some(2)).takes_no_more_than(&protected(Some(1))));
        assert!(protected(Some(1)).takes_no_more_than(&protected(Some(2))));
        assert!(protected(None).takes_no_more_than(&protected(Some(1))));
    }

    #[test]
    fn a_protection_period_is_within_a_second_and_a_day() {
        for (asked, understood) in
            [("1s", true), ("24h", true), ("999ms", false), ("0s", false), ("1441min", false)]
        {
            let period_ns = i64::try_from(parse_duration(asked).expect("a duration")).expect("it fits");
            let change = Change { protect_ns: Some(period_ns), ..Change::default() };
            let mut settings = Settings::default();
            match change.apply(&mut settings) {
                Ok(()) => assert!(understood && settings.protect_ns == Some(period_ns as u64), "{asked}"),
                Err(fault) => {
                    assert!(!understood && fault.setting == Setting::Protect, "{asked}: {fault}");
                    assert!(fault.reason.contains("from 1s to 24h, and 30min is usual"), "{fault}");
                }
            }
        }
        for wrong in [-1, i64::MIN, i64::MAX] {
            assert!(check_protection_period(wrong).is_err(), "{wrong}");
        }
        assert_eq!(check_protection_period(PROTECTION_PERIOD_NS as i64), Ok(PROTECTION_PERIOD_NS));
    }
}

//! What a domain can be given of the memory (Edwards & Cao, section 3.2.1).

use serde::{Deserialize, Serialize};

use crate::domain::setting::{Fault, Setting};
use crate::quantity::format_size;

/// What a domain was given of the memory, with all below it. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Promised: what it uses up to this is not taken from it, whoever else needs memory.
    pub min_bytes: Option<u64>,
    /// The most that it may use.
    pub max_bytes: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// [`Settings::min_bytes`].
    pub min_bytes: Option<i64>,
    /// [`Settings::max_bytes`].
    pub max_bytes: Option<i64>,
}

impl Settings {
    /// The change after which there is nothing but this.
    pub(crate) fn as_change(&self) -> Change {
        let asked = |bytes: Option<u64>| bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        Change { min_bytes: asked(self.min_bytes), max_bytes: asked(self.max_bytes) }
    }

    /// Whether anything is asked of the kernel.
    pub fn is_default(&self) -> bool {
        *self == Settings::default()
    }

    /// Whether this leaves the others at least what `before` left them: no more promised, and no more allowed.
    pub(crate) fn takes_no_more_than(&self, before: &Settings) -> bool {
        self.min_bytes.unwrap_or(0) <= before.min_bytes.unwrap_or(0)
            && self.max_bytes.unwrap_or(u64::MAX) <= before.max_bytes.unwrap_or(u64::MAX)
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// An amount that is none, or a minimum above the maximum.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Fault> {
        if let Some(value) = self.min_bytes {
            settings.min_bytes = Some(bytes(Setting::MemoryMin, value)?);
        }
        if let Some(value) = self.max_bytes {
            settings.max_bytes = Some(bytes(Setting::MemoryMax, value)?);
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

fn bytes(setting: Setting, value: i64) -> Result<u64, Fault> {
    let known = u64::try_from(value).ok().filter(|value| *value > 0);
    known.ok_or_else(|| Fault {
        setting,
        reason: format!("{value} is no amount of memory; give a number of bytes above 0"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_above_the_maximum_is_refused_whichever_came_first() {
        let given = |min_bytes, max_bytes| Settings { min_bytes, max_bytes };
        for (before, change, setting) in [
            (given(None, Some(10)), Change { min_bytes: Some(20), max_bytes: None }, Setting::MemoryMin),
            (given(Some(20), None), Change { min_bytes: None, max_bytes: Some(10) }, Setting::MemoryMax),
            (given(None, None), Change { min_bytes: Some(20), max_bytes: Some(10) }, Setting::MemoryMax),
        ] {
            let fault = change.apply(&mut { before }).expect_err("it cannot be");
            assert_eq!(fault.setting, setting);
            assert!(fault.reason.contains("cannot be promised"), "{fault}");
        }
        let both = Change { min_bytes: Some(10), max_bytes: Some(10) };
        assert_eq!(both.apply(&mut Settings::default()), Ok(()));
    }

    #[test]
    fn who_may_use_less_takes_nothing_and_who_may_use_more_does() {
        let limited = |max_bytes| Settings { min_bytes: None, max_bytes };
        assert!(limited(Some(10)).takes_no_more_than(&limited(None)));
        assert!(!limited(None).takes_no_more_than(&limited(Some(10))));
        assert!(!limited(Some(20)).takes_no_more_than(&limited(Some(10))));
        let promised = Settings { min_bytes: Some(1), max_bytes: None };
        assert!(!promised.takes_no_more_than(&Settings::default()));
    }
}

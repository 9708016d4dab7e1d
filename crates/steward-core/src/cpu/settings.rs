//! What a domain can be given of the CPU.

use serde::{Deserialize, Serialize};

use crate::domain::setting::{Fault, Setting, fraction};

/// What a domain was given of the CPU. Fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Reserved of what the parent has, above 0 and at most 1.
    pub reserved: Option<f64>,
    /// The most that the children may reserve together, of this domain's own; `None`: all of it.
    pub reservable: Option<f64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// [`Settings::reserved`].
    pub reserved: Option<f64>,
    /// [`Settings::reservable`].
    pub reservable: Option<f64>,
}

impl Settings {
    /// The change after which there is nothing but this.
    pub(crate) fn as_change(&self) -> Change {
        Change { reserved: self.reserved, reservable: self.reservable }
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Fault> {
        if let Some(value) = self.reserved {
            settings.reserved = Some(fraction(Setting::Cpu, value)?);
        }
        if let Some(value) = self.reservable {
            settings.reservable = Some(fraction(Setting::CpuReservable, value)?);
        }
        Ok(())
    }
}

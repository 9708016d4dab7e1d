//! What a domain can be given of the disk.

use serde::{Deserialize, Serialize};

use crate::domain::setting::{Fault, Setting, fraction};

/// What a domain was given of the disk. Kept and shown; nothing enforces it yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Disk time reserved of what the parent has, a fraction above 0 and at most 1.
    pub reserved: Option<f64>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// [`Settings::reserved`].
    pub reserved: Option<f64>,
}

impl Settings {
    /// The change after which there is nothing but this.
    pub(crate) fn as_change(&self) -> Change {
        Change { reserved: self.reserved }
    }
}

impl Change {
    /// Makes the change.
    ///
    /// # Errors
    /// A value that is out of its range.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Fault> {
        if let Some(value) = self.reserved {
            settings.reserved = Some(fraction(Setting::Disk, value)?);
        }
        Ok(())
    }
}

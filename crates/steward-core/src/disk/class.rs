//! How soon disk requests are served.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How soon a program's disk requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Before all others.
    Interactive,
    /// As the kernel does by default.
    Normal,
    /// When nobody else wants the disk.
    Background,
}

impl Class {
    pub(crate) const NAMES: [&'static str; 3] = ["interactive", "normal", "background"];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Class::Interactive, Class::Normal, Class::Background]
            .into_iter()
            .find(|class| Self::NAMES[*class as usize] == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::NAMES[*self as usize])
    }
}

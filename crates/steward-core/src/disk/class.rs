//! How soon disk requests are served.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How soon a program's disk requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Before all others.
    Interactive,
    /// As the kernel does by default.
    #[default]
    Normal,
    /// When nobody else wants the disk.
    Background,
}

impl Class {
    /// The words in files, in the order of [`Class::ALL`].
    pub const NAMES: [&'static str; 3] = ["interactive", "normal", "background"];

    /// All of them.
    pub const ALL: [Class; 3] = [Class::Interactive, Class::Normal, Class::Background];

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The word in files.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether it comes before another.
    pub fn is_before(self, other: Self) -> bool {
        (self as usize) < other as usize
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

//! The disk: how soon requests are served.

use serde::{Deserialize, Serialize};

/// How soon the disk requests of a domain, or of a program, are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoClass {
    /// Before all others.
    Interactive,
    /// As the kernel does by default.
    #[default]
    Normal,
    /// When nobody else wants the disk, but for a hundredth of its time.
    Background,
}

impl IoClass {
    /// All of them, the first first.
    pub const ALL: [IoClass; 3] = [IoClass::Interactive, IoClass::Normal, IoClass::Background];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            IoClass::Interactive => "interactive",
            IoClass::Normal => "normal",
            IoClass::Background => "background",
        }
    }
}

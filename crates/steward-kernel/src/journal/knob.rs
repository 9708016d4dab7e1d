//! A knob: a file of a cgroup that was written. The cgroup is named by its id too, for its path may be somebody else's
//! tomorrow.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cgroup::directory::CgroupDirectory;
use crate::error::KernelError;
use crate::roots::Roots;

/// A file of a cgroup, with what it said before Steward wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// The cgroup, from the root of the hierarchy.
    pub cgroup: String,
    /// The inode number of its directory.
    pub id: u64,
    /// The file's name.
    pub file: String,
    /// What it said before Steward wrote it first.
    pub old: String,
    /// What Steward wrote last, as the kernel shows it.
    pub new: String,
    /// What Steward had written before that, as long as the last write may not have been made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

impl fmt::Display for Knob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of the cgroup /{} to {:?}", self.file, self.cgroup, self.old)
    }
}

impl Knob {
    /// Whether a value is one that Steward wrote.
    pub(super) fn is_ours(&self, value: &str) -> bool {
        value == self.new || self.before.as_deref() == Some(value)
    }

    /// A further value is about to be written.
    pub(super) fn will_be(&mut self, value: String) {
        self.before = Some(std::mem::replace(&mut self.new, value));
    }

    /// The kernel shows this for what was written last.
    pub(super) fn shows(&mut self, value: String) {
        self.before = None;
        self.new = value;
    }

    /// Puts the old value back. `Err(Ok(why))` when it is left alone.
    pub(super) fn put_back(&self, roots: &Roots) -> Result<(), Result<String, KernelError>> {
        let gone =
            |error: KernelError| if error.is_absent() { Ok("it is gone".to_owned()) } else { Err(error) };
        let cgroup = CgroupDirectory::open_same(&self.cgroup, self.id, roots).map_err(gone)?;
        let cgroup = cgroup.ok_or_else(|| Ok("another cgroup has its name now".to_owned()))?;
        let current = cgroup.read(&self.file).map_err(gone)?;
        if current == self.old {
            return Err(Ok("it is as it was".into()));
        }
        if !self.is_ours(&current) {
            return Err(Ok(format!("someone else has written {current:?} since")));
        }
        cgroup.write(&self.file, &self.old).map_err(gone)
    }
}

//! Where processes are of whose memory, or disk time, a specification says something.

use std::collections::BTreeMap;

use steward_core::disk;
use steward_core::domain::Change;
use steward_core::memory::Settings;
use steward_core::spec::Spec;

/// What became of what specifications promise to processes.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By process: its domain, or why there is none.
    pub(super) placed: BTreeMap<i32, Result<Placed, String>>,
}

/// Where a process has what its specification says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// What its domain is called.
    pub(crate) domain: String,
    /// What of it is not in force there, in a sentence without its end; `None` when all is.
    pub(crate) lacks: Option<String>,
}

impl Placed {
    /// In a domain in which all of it is in force.
    pub(super) fn whole(domain: String) -> Self {
        Placed { domain, lacks: None }
    }
}

impl Programs {
    /// The domain of a process, or why it has none; `None` where no specification is about its memory.
    pub(crate) fn of(&self, pid: i32) -> Option<&Result<Placed, String>> {
        self.placed.get(&pid)
    }
}

/// What a specification says that only a domain can have.
pub(crate) fn change_of(spec: &Spec) -> Change {
    let max = spec.io_max.unwrap_or_default();
    let disk = disk::Settings { class: spec.io, reserved: spec.disk, max }.as_change();
    Change { memory: settings_of(spec).as_change(), disk, ..Change::default() }
}

/// What of it is about memory.
pub(crate) fn memory_change_of(spec: &Spec) -> Change {
    Change { memory: settings_of(spec).as_change(), ..Change::default() }
}

/// Whether a specification says anything of memory.
pub(crate) fn asks_of_memory(spec: &Spec) -> bool {
    !settings_of(spec).is_default()
}

/// Whether a specification gives anything of the disk that only a domain can have.
pub(crate) fn asks_of_disk(spec: &Spec) -> bool {
    spec.disk.is_some() || spec.io_max.is_some()
}

/// Whether a program needs a domain of its own: a class alone is one of its tasks.
pub(crate) fn needs_domain(spec: &Spec) -> bool {
    asks_of_memory(spec) || asks_of_disk(spec)
}

/// What a specification says of memory.
pub(crate) fn settings_of(spec: &Spec) -> Settings {
    let protect_ns = spec.protect.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    Settings { min_bytes: spec.memory_min, max_bytes: spec.memory_max, protect_ns }
}

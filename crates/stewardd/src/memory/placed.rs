//! Where processes are of whose memory, or disk time, a specification says something.

use std::collections::BTreeMap;

use steward_core::disk;
use steward_core::domain::Change;
use steward_core::memory::Settings;
use steward_core::spec::Spec;

/// What became of what specifications promise to processes.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By process: the name of its domain, or why there is none.
    pub(super) placed: BTreeMap<i32, Result<String, String>>,
}

impl Programs {
    /// The domain of a process, or why it has none; `None` where no specification is about its memory.
    pub(crate) fn of(&self, pid: i32) -> Option<&Result<String, String>> {
        self.placed.get(&pid)
    }
}

/// What a specification says that only a domain can have.
pub(crate) fn change_of(spec: &Spec) -> Change {
    let max = spec.io_max.unwrap_or_default();
    let disk = disk::Settings { class: spec.io, reserved: spec.disk, max }.as_change();
    Change { memory: settings_of(spec).as_change(), disk, ..Change::default() }
}

/// Whether a program needs a domain of its own: a class alone is one of its tasks.
pub(crate) fn needs_domain(spec: &Spec) -> bool {
    !settings_of(spec).is_default() || spec.disk.is_some() || spec.io_max.is_some()
}

/// What a specification says of memory.
pub(crate) fn settings_of(spec: &Spec) -> Settings {
    let protect_ns = spec.protect.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    Settings { min_bytes: spec.memory_min, max_bytes: spec.memory_max, protect_ns }
}

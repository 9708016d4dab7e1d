//! Where processes are of whose memory a specification says something.

use std::collections::BTreeMap;

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

/// What a specification says of memory.
pub(crate) fn settings_of(spec: &Spec) -> Settings {
    let protect_ns = spec.protect.map(|period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
    Settings { min_bytes: spec.memory_min, max_bytes: spec.memory_max, protect_ns }
}

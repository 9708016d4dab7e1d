//! Puts a mechanism in force: the sched_ext program, or SCHED_DEADLINE.

use std::path::Path;

use steward_core::mechanism::{Mechanism, MechanismKind, Thresholds};

use crate::daemon::Loader;

/// Loads the real mechanisms. What SCHED_DEADLINE changes is recorded in the state directory.
pub fn loader(state_directory: &Path) -> Loader {
    let state_directory = state_directory.to_owned();
    Box::new(move |kind, thresholds| match kind {
        MechanismKind::SchedExt => load_sched_ext(thresholds),
        MechanismKind::Deadline => load_deadline(thresholds, &state_directory),
    })
}

fn load_sched_ext(_thresholds: Thresholds) -> Result<Box<dyn Mechanism>, String> {
    Err("this build has no sched_ext program; use --mechanism deadline".to_owned())
}

fn load_deadline(_thresholds: Thresholds, _state_directory: &Path) -> Result<Box<dyn Mechanism>, String> {
    Err("this build has no SCHED_DEADLINE mechanism".to_owned())
}

//! Commands about the machine that need no daemon: `doctor`, `revert`.

use steward_kernel::{Roots, doctor, journal};

use crate::cli::RevertArguments;
use crate::output::{print, print_json};

/// `steward doctor`. False when nothing can enforce reservations here.
pub fn doctor(json: bool) -> anyhow::Result<bool> {
    let diagnosis = doctor::examine(&Roots::default());
    if json {
        // It carries its own schema.
        print(&(serde_json::to_string_pretty(&diagnosis)? + "\n"))?;
    } else {
        print(&diagnosis.to_string())?;
    }
    Ok(diagnosis.mechanism.is_some())
}

/// `steward revert`. False when something could not be put back.
pub fn revert(arguments: &RevertArguments) -> anyhow::Result<bool> {
    let journal = arguments.state_directory.join(libsteward::UNDO_JOURNAL);
    let report = journal::revert(&journal, &Roots::default())?;
    if arguments.output.json {
        print_json(&report)?;
    } else {
        print(&report.to_string())?;
    }
    Ok(report.failed.is_empty())
}

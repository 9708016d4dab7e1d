//! The lab: boots a machine, runs a scenario under each contender, reports.

//! What this machine offers, and which of Steward's promises hold on it.
//!
//! [`examine`] looks; [`abilities`] and [`promises`] judge, and are pure, so that they are tested on the facts of
//! machines that are not at hand. Kernels 7.1 and later keep all promises; 6.12 to 7.0 keep those that their sched_ext
//! lets a scheduler keep; others keep what SCHED_DEADLINE can.

mod abilities;
mod facts;
mod page;
mod promises;

use serde::{Deserialize, Serialize};
use steward_core::cpu::mechanism::MechanismKind;

pub use abilities::{Ability, abilities};
pub use facts::{Caller, Cgroup, Facts, Manager, Memory, Pressure, SCHEDULER_NAME, SchedExt};
pub use promises::{Choice, Holds, Promise, choose_mechanism, promises};

use crate::roots::Roots;

/// The version of [`Diagnosis`] as JSON.
pub const SCHEMA: u32 = 1;

/// What the doctor says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What enforces reservations here; `None` where nothing can.
    pub mechanism: Option<MechanismKind>,
    /// Why this one.
    pub mechanism_why: String,
    /// What would give a better one; empty when it is the best.
    pub mechanism_what_to_do: String,
    /// What can be done with Steward here.
    #[serde(default)]
    pub abilities: Vec<Ability>,
    /// Which promises hold.
    pub promises: Vec<Promise>,
    /// What the judgement rests on.
    pub facts: Facts,
}

/// Looks at the machine. What can not be read is part of the result, so there is no error.
pub fn examine(roots: &Roots) -> Diagnosis {
    diagnose(facts::Look::new(roots).facts())
}

/// Judges what was found.
pub fn diagnose(facts: Facts) -> Diagnosis {
    let choice = choose_mechanism(&facts);
    Diagnosis {
        schema: SCHEMA,
        mechanism: choice.mechanism,
        mechanism_why: choice.why.clone(),
        mechanism_what_to_do: choice.what_to_do.clone(),
        abilities: abilities(&facts, &choice),
        promises: promises(&facts, &choice),
        facts,
    }
}

#[cfg(test)]
mod tests;

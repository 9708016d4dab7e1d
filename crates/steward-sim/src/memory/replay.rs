//! Replays what the memory loop saw on a real machine through the same decisions, with the settings of then or others.
//!
//! What was seen stays as it was: had other memory been taken, later looks would have been others. So a replay answers
//! what would have been decided at each moment, and not what would have come of it.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Serialize;
use steward_core::memory::availability::{Room, available};
use steward_core::memory::manager::{Decision, Settings};
use steward_core::memory::principal::Principal;
use steward_core::memory::recorded::{Header, Look, VERSION};

use super::decide::Decide;

/// A recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was seen, in order.
    pub looks: Vec<Look>,
}

/// What comes to one cgroup over all looks. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// What would be taken from it: of what is planned so much as is not free at that moment.
    pub taken_bytes: u64,
    /// At how many looks it is protected and demoted.
    pub demoted_looks: u64,
    /// The least that it may use (Walfield, algorithm 2), as if there were room in the swap for all that others have.
    pub least_available_bytes: u64,
}

impl Recording {
    /// What comes to each cgroup, by path, where this is decided at each look.
    ///
    /// # Panics
    /// With another number of decisions than there are looks.
    pub fn shares(&self, decisions: &[Decision]) -> BTreeMap<&str, Share> {
        assert_eq!(decisions.len(), self.looks.len(), "a decision for each look");
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        for (look, decision) in self.looks.iter().zip(decisions) {
            let mut missing_bytes = decision.target_bytes.saturating_sub(look.machine.free_bytes);
            let mut taken_bytes = vec![0; look.paths.len()];
            for victim in &decision.victims {
                let bytes = victim.bytes.min(missing_bytes);
                missing_bytes -= bytes;
                taken_bytes[victim.place] += bytes;
            }
            let told = available(&principals(look, decision), &room(look, decision));
            for (place, path) in look.paths.iter().enumerate() {
                let kept = decision.kept.iter().find(|kept| kept.id == look.domains[place].id);
                let share = shares
                    .entry(path)
                    .or_insert(Share { least_available_bytes: u64::MAX, ..Share::default() });
                share.taken_bytes = share.taken_bytes.saturating_add(taken_bytes[place]);
                share.demoted_looks += u64::from(kept.is_some_and(|kept| kept.is_demoted));
                share.least_available_bytes = share.least_available_bytes.min(told[place].bytes);
            }
        }
        shares
    }

    /// Reads one. A last line that is not whole is left out: the machine may have stopped while it was written.
    ///
    /// # Errors
    /// Says which line is none, and why.
    pub fn read(lines: impl BufRead) -> Result<Self, String> {
        let lines = lines.lines().collect::<Result<Vec<String>, _>>().map_err(|error| error.to_string())?;
        let (first, rest) =
            lines.split_first().ok_or("it is empty: record one with stewardd --record-memory")?;
        let header: Header = serde_json::from_str(first)
            .map_err(|error| format!("line 1 does not begin a recording of memory: {error}"))?;
        if header.steward_memory_recording != VERSION {
            return Err(format!(
                "it is of version {}, and this program reads version {VERSION}",
                header.steward_memory_recording
            ));
        }
        let mut looks = Vec::with_capacity(rest.len());
        for (number, line) in (2..).zip(rest) {
            match serde_json::from_str(line) {
                Ok(look) => looks.push(look),
                Err(error) if number > rest.len() && error.is_eof() => {}
                Err(error) => return Err(format!("line {number} is no look at a machine: {error}")),
            }
        }
        Ok(Recording { looks })
    }

    /// What is decided at each look, by `manager`, with these settings in place of those of then.
    pub fn replay(&self, manager: &mut dyn Decide, settings: Option<&Settings>) -> Vec<Decision> {
        let decide = |look: &Look| {
            let settings = settings.unwrap_or(&look.settings);
            manager.decide(look.now_ns, &look.machine, &look.domains, settings)
        };
        self.looks.iter().map(decide).collect()
    }
}

/// Those of a look, with what each keeps by a decision.
fn principals(look: &Look, decision: &Decision) -> Vec<Principal> {
    let kept_bytes = |id| decision.kept.iter().find(|kept| kept.id == id).map_or(0, |kept| kept.bytes);
    let keeping = look.domains.iter().map(|seen| {
        let kept_bytes = if seen.is_spared { u64::MAX } else { kept_bytes(seen.id) };
        Principal { kept_bytes, ..seen.principal }
    });
    keeping.collect()
}

fn room(look: &Look, decision: &Decision) -> Room {
    Room {
        free_bytes: look.machine.free_bytes,
        target_bytes: decision.target_bytes,
        total_bytes: look.machine.total_bytes,
    }
}

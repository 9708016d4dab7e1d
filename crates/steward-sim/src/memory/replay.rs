//! Replays what the memory loop saw on a real machine through the same decisions, with the settings of then or others.
//!
//! What was seen stays as it was: had other memory been taken, later looks would have been others. So a replay answers
//! what would have been decided at each moment, and not what would have come of it.

use std::io::BufRead;

use steward_core::memory::manager::{Decision, Settings};
use steward_core::memory::recorded::{Header, Look, VERSION};

use super::decide::Decide;

/// A recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was seen, in order.
    pub looks: Vec<Look>,
}

impl Recording {
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

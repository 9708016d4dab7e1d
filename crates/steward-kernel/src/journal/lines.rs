//! What the journal's lines say, and what they make of each other.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::error::{JournalError, SCHEMA};
use crate::{files, sealed};

/// The format before [`SCHEMA`], which knew no knobs of cgroups; its lines are the same otherwise.
pub(super) const SCHEMA_WITHOUT_KNOBS: u32 = 2;
/// The first format, whose lines had no sums.
const SCHEMA_WITHOUT_SUMS: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    Start { schema: u32, boot: String },
    Made { number: u64, change: Change },
    Shown { number: u64, value: String },
    Again { number: u64, value: String },
    Closed { number: u64 },
}

/// The first line says of which boot the others are, so that it can be read without knowing that.
pub(super) fn encode(line: &Line, boot: &str) -> String {
    let word = if matches!(line, Line::Start { .. }) { "" } else { boot };
    sealed::encode(word, line).expect("a journal line has only strings and numbers")
}

/// What a journal says of this boot.
#[derive(Default)]
pub(super) struct Past {
    /// The highest number of a change.
    pub(super) next_number: u64,
    pub(super) outstanding: BTreeMap<u64, Change>,
    /// What is not as it was written.
    pub(super) damage: Vec<String>,
}

impl Past {
    pub(super) fn read(path: &Path, boot: &str) -> Result<Self, JournalError> {
        match files::read_bytes(path, files::KEPT_BYTES_MAX) {
            Ok(content) => Past::parse(&content, boot, path),
            Err(error) if error.is_absent() => Ok(Past::default()),
            Err(error) => Ok(Past { damage: vec![format!("it {}", error.what())], ..Past::default() }),
        }
    }

    fn parse(content: &[u8], boot: &str, path: &Path) -> Result<Self, JournalError> {
        let (lines, cut) = sealed::lines(content);
        let mut past = Past::default();
        let mut plain = false;
        for (number, text) in (1_u64..).zip(lines.chain((!cut.is_empty()).then_some(cut))) {
            if number == 1 {
                match start_of(text) {
                    Some((SCHEMA_WITHOUT_SUMS..=SCHEMA, of)) if of != boot => return Ok(Past::default()),
                    Some((SCHEMA_WITHOUT_KNOBS..=SCHEMA, _)) => continue,
                    Some((SCHEMA_WITHOUT_SUMS, _)) => {
                        plain = true;
                        continue;
                    }
                    Some((found, _)) => return Err(JournalError::Schema { path: path.into(), found }),
                    // Each other line shows by itself whether it is of this boot.
                    None => {}
                }
            }
            let line =
                sealed::decode(boot, text).or_else(|| serde_json::from_slice(text).ok().filter(|_| plain));
            match line {
                Some(line) => past.take(line),
                None => past.damage.push(format!("line {number} is not as it was written")),
            }
        }
        Ok(past)
    }

    fn take(&mut self, line: Line) {
        if let Line::Made { number, .. } | Line::Closed { number } = line {
            self.next_number = self.next_number.max(number);
        }
        take_in(&mut self.outstanding, line);
    }
}

/// What a line makes of the changes that are in force.
pub(super) fn take_in(outstanding: &mut BTreeMap<u64, Change>, line: Line) {
    match line {
        Line::Start { .. } => {}
        Line::Made { number, change } => _ = outstanding.insert(number, change),
        Line::Shown { number, value } => match outstanding.get_mut(&number) {
            Some(Change::File { new, .. }) => *new = value,
            Some(Change::Knob(knob)) => knob.shows(value),
            _ => {}
        },
        Line::Again { number, value } => {
            if let Some(Change::Knob(knob)) = outstanding.get_mut(&number) {
                knob.will_be(value);
            }
        }
        Line::Closed { number } => _ = outstanding.remove(&number),
    }
}

/// Format and boot, if this is a first line. One without a sum is believed only in the format that had none.
fn start_of(text: &[u8]) -> Option<(u32, String)> {
    let plain = || {
        let line = serde_json::from_slice(text).ok()?;
        matches!(line, Line::Start { schema: SCHEMA_WITHOUT_SUMS, .. }).then_some(line)
    };
    match sealed::decode("", text).or_else(plain)? {
        Line::Start { schema, boot } => Some((schema, boot)),
        _ => None,
    }
}

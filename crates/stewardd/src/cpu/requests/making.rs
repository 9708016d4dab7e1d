//! A reply about forecasts that is made in pieces: the text of thousands of tasks takes long, and nobody else is
//! answered meanwhile.
//!
//! It is made of what was known when it was begun, whatever is read or changed until it is whole.

use std::sync::Arc;

use super::forecast_text::TaskTexts;
use crate::cpu::herald::{Outlook, OutlookAsked};
use crate::domains::reading::Group;

/// How many tasks one piece is about: some of what reading them all costs, and a small part of a turn.
pub(crate) const PIECE_TASKS: usize = 256;

/// A reply that is not whole yet.
pub(crate) struct Making {
    /// Under what its text is kept for others; `None` when it is for one caller alone.
    pub(crate) asked: Option<OutlookAsked>,
    /// What it is made from.
    pub(crate) outlook: Arc<Outlook>,
    pub(crate) groups: Arc<Vec<Group>>,
    /// The places of the tasks that it tells of, and how many of them are in the text.
    pub(crate) places: Vec<u32>,
    pub(crate) done: usize,
    pub(crate) texts: TaskTexts,
    /// Leave to make it.
    pub(crate) _leave: Option<Arc<()>>,
}

impl Making {
    /// Makes one piece more. Returns whether all tasks are in.
    pub(crate) fn go_on(&mut self) -> bool {
        let report = &self.outlook.report;
        let piece = self.places.iter().skip(self.done).take(PIECE_TASKS);
        for place in piece.map(|place| *place as usize) {
            let home = report.home(place).unwrap_or(0);
            self.texts.push(&report.samples()[place], home, &self.groups[home].name, &report.task(place));
        }
        self.done += PIECE_TASKS;
        self.done >= self.places.len()
    }

    /// What it takes of memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.texts.held_bytes() + self.places.capacity() * size_of::<u32>()
    }
}

//! A reply about forecasts that is made in pieces: the text of thousands of tasks takes long, and nobody else is
//! answered meanwhile.
//!
//! It is made of what was known when it was begun, whatever is read or changed until it is whole.

use std::sync::Arc;

use libsteward::api;

use super::forecast_text::TaskTexts;
use crate::cpu::herald::{Outlook, OutlookAsked};
use crate::cpu::reply::forecast;
use crate::domains::reading::Group;

/// How many tasks one piece is about: some of what reading them all costs, and a small part of a turn.
pub(crate) const PIECE_TASKS: usize = 256;
/// How many domains one piece is about.
pub(crate) const PIECE_DOMAINS: usize = 64;

/// A reply that is not whole yet.
pub(crate) struct Making {
    /// Under what its text is kept for others; `None` when it is for one caller alone.
    pub(crate) asked: Option<OutlookAsked>,
    /// What it is made from.
    pub(crate) outlook: Arc<Outlook>,
    pub(crate) groups: Arc<Vec<Group>>,
    /// The places of the domains that it tells of and are not in the text yet, in their order.
    pub(crate) domains: Vec<u32>,
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
        if !self.texts.has_all_domains() {
            for index in self.domains.drain(..self.domains.len().min(PIECE_DOMAINS)) {
                let domain = domain_forecast(&self.outlook, &self.groups, index as usize);
                self.texts.push_domain(&domain);
            }
            if !self.domains.is_empty() {
                return false;
            }
            self.texts.end_domains();
        }
        let piece = self.places.iter().skip(self.done).take(PIECE_TASKS);
        for place in piece.map(|place| *place as usize) {
            let home = report.home(place).unwrap_or(0);
            self.texts.push(
                &report.samples()[place],
                home,
                &self.groups[home].about.name,
                &report.task(place),
            );
        }
        self.done += PIECE_TASKS;
        self.done >= self.places.len()
    }

    /// What it takes of memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.texts.held_bytes() + (self.domains.capacity() + self.places.capacity()) * size_of::<u32>()
    }
}

fn domain_forecast(outlook: &Outlook, groups: &[Group], index: usize) -> api::DomainForecast {
    let (group, figures) = (&groups[index], &outlook.report.domains[index]);
    api::DomainForecast {
        name: group.about.name.clone(),
        parent: group.parent.map(|parent| groups[parent].about.name.clone()),
        tasks: figures.tasks,
        runnable: figures.runnable,
        guaranteed: group.guaranteed,
        suspended: outlook.samples[index].suspended,
        forecast: forecast(&figures.forecast),
    }
}

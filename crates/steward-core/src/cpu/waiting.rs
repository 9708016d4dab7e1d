//! Who waits for room: the tasks that were refused or revoked, kept up to date from the mechanism's decisions.
//!
//! While someone waits, the mechanism must know how much memory is free: a task that comes back must not bring in
//! more than there is (Yang 2009, section 8.1.2.3 b). While nobody does, nothing is read.

use std::collections::BTreeSet;

use super::event::{Event, EventKind};
use super::mechanism::{Snapshot, Standing};

/// How often free memory is read while someone waits, in nanoseconds: as often as tasks are taken back.
const READ_EVERY_NS: u64 = 1_000_000_000;

/// What to do about free memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Read it and tell the mechanism.
    Publish,
    /// Tell the mechanism that it is not known any more.
    Withdraw,
    /// Nothing.
    Leave,
}

/// The tasks that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    tids: BTreeSet<i32>,
    /// When to read again; `None` while nothing is published.
    read_at_ns: Option<u64>,
}

impl Waiting {
    /// Takes in a decision.
    pub fn note(&mut self, event: &Event) {
        match event.kind {
            EventKind::Refused
            | EventKind::RevokedExhausted
            | EventKind::RevokedHungriest
            | EventKind::RevokedDisplaced => _ = self.tids.insert(event.tid),
            EventKind::Admitted | EventKind::Reactivated | EventKind::Released => {
                _ = self.tids.remove(&event.tid);
            }
            // It has no place in the table, so it does not come back.
            EventKind::TableFull => {}
        }
    }

    /// Starts anew from what the mechanism knows, after decisions were lost.
    pub fn recount(&mut self, snapshot: &Snapshot) {
        let waiting = snapshot.tasks.iter().filter(|task| task.standing != Standing::Admitted);
        self.tids = waiting.map(|task| task.tid).collect();
    }

    /// What to do at `now_ns`; the answer counts as done.
    pub fn ask(&mut self, now_ns: u64) -> Memory {
        if self.tids.is_empty() {
            return if self.read_at_ns.take().is_some() { Memory::Withdraw } else { Memory::Leave };
        }
        if self.read_at_ns.is_some_and(|at| now_ns < at) {
            return Memory::Leave;
        }
        self.read_at_ns = Some(now_ns + READ_EVERY_NS);
        Memory::Publish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tid: i32, kind: EventKind) -> Event {
        let (at_ns, cpu, load, bandwidth, threshold) = (1, 0, 0.0, 0.1, 0.8);
        Event {
            at_ns,
            tid,
            pid: tid,
            user: None,
            name: "p".into(),
            cpu,
            kind,
            load,
            bandwidth,
            threshold,
            reason: None,
        }
    }

    #[test]
    fn memory_is_read_once_a_second_while_someone_waits_and_withdrawn_once_nobody_does() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.ask(0), Memory::Leave);
        waiting.note(&event(1, EventKind::Refused));
        waiting.note(&event(2, EventKind::RevokedHungriest));
        assert_eq!(waiting.ask(5), Memory::Publish);
        assert_eq!(waiting.ask(6), Memory::Leave);
        assert_eq!(waiting.ask(5 + READ_EVERY_NS), Memory::Publish);
        waiting.note(&event(1, EventKind::Released));
        waiting.note(&event(2, EventKind::Reactivated));
        assert_eq!(waiting.ask(6 + READ_EVERY_NS), Memory::Withdraw);
        assert_eq!(waiting.ask(7 + READ_EVERY_NS), Memory::Leave);
    }

    #[test]
    fn a_recount_makes_up_for_lost_decisions() {
        let mut waiting = Waiting::default();
        waiting.note(&event(1, EventKind::Refused));
        waiting.recount(&Snapshot::default());
        assert_eq!(waiting.ask(0), Memory::Leave);
    }
}

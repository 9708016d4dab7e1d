//! What may happen in the disk machine.

use crate::events::Events;

/// Something that happens at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A program goes on, or starts.
    Step { program: usize },
    /// A program ends.
    End { program: usize },
    /// The device has served a request.
    Served { id: u64 },
    /// The elevator has waited long enough for somebody's next request.
    Elevator,
    /// What is to be written is written, however little it is.
    Flush,
    /// Steward looks who is to be served how.
    Look,
    /// What it wants is in the kernel.
    Apply { number: usize },
    /// Steward's thread hears that somebody waits.
    Told,
    /// It looks whether anybody still does.
    Quiet,
    /// A change of the scenario's.
    Change { place: usize },
}

impl Events<Event> {
    /// Has it be asked then whether anybody still waits.
    pub(super) fn push_quiet(&mut self, at_ns: Option<u64>) {
        if let Some(at_ns) = at_ns {
            self.push(at_ns, Event::Quiet);
        }
    }
}

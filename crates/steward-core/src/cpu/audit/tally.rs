//! What is counted of a promise of CPU time.

use crate::record::Counted;

/// What was promised and given within some time. All times are in nanoseconds; sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How long the domain was looked at.
    pub seen_ns: u64,
    /// CPU time that it was promised.
    pub promised_ns: u64,
    /// CPU time that it wanted of what was promised, at least.
    pub wanted_ns: u64,
    /// CPU time that it got, promised or not.
    pub received_ns: u64,
    /// Time for which tasks of it waited, summed over tasks.
    pub waited_ns: u64,
    /// How many seconds had something promised and wanted.
    pub seconds: u64,
    /// In how many of these the promise was broken.
    pub broken: u64,
    /// What was missing in the worst of them.
    pub worst_missing_ns: u64,
}

impl Counted for Tally {
    const NAME: &'static str = "record of promises";
    const HEADER: &'static str = "steward-audit 1";
    type Numbers = [u64; 8];

    fn add(&mut self, other: &Tally) {
        self.seen_ns = self.seen_ns.saturating_add(other.seen_ns);
        self.promised_ns = self.promised_ns.saturating_add(other.promised_ns);
        self.wanted_ns = self.wanted_ns.saturating_add(other.wanted_ns);
        self.received_ns = self.received_ns.saturating_add(other.received_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.seconds = self.seconds.saturating_add(other.seconds);
        self.broken = self.broken.saturating_add(other.broken);
        self.worst_missing_ns = self.worst_missing_ns.max(other.worst_missing_ns);
    }

    fn numbers(&self) -> [u64; 8] {
        let Tally { seen_ns, promised_ns, wanted_ns, received_ns, .. } = *self;
        let Tally { waited_ns, seconds, broken, worst_missing_ns, .. } = *self;
        [seen_ns, promised_ns, wanted_ns, received_ns, waited_ns, seconds, broken, worst_missing_ns]
    }

    fn of_numbers(numbers: [u64; 8]) -> Self {
        let [seen_ns, promised_ns, wanted_ns, received_ns, waited_ns, seconds, broken, worst_missing_ns] =
            numbers;
        Tally { seen_ns, promised_ns, wanted_ns, received_ns, waited_ns, seconds, broken, worst_missing_ns }
    }
}

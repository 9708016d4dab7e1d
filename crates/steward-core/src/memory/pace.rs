//! How fast memory is freed that has to be written to a disk first, by what the memory loop's own reclaims showed.

/// What is believed before anything was measured, in bytes a second: what a disk that turns takes of pieces that lie
/// between each other, under load (docs/memory.md).
pub const ASSUMED_BYTES_PER_SECOND: u64 = 8 << 20;
/// What was measured counts for half once as much time again was spent on it, in nanoseconds: disks are busy with other
/// things now and then.
const HALVED_NS: u64 = 10_000_000_000;
/// From less than this nothing is told, in bytes: the first pages only fill a queue.
const MEASURED_MIN_BYTES: u64 = 1 << 20;

/// What was written, and the time that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    written_bytes: u64,
    busy_ns: u64,
    /// Until when it is counted.
    until_ns: u64,
}

impl Pace {
    /// A reclaim from one moment to another had so much written. One that had nothing written says nothing; time in
    /// which clean pages were taken as well makes the disk seem slower than it is, which errs on the safe side. Of
    /// several at once, which wait for the same disk, the time counts once.
    pub fn note(&mut self, written_bytes: u64, from_ns: u64, to_ns: u64) {
        if written_bytes == 0 {
            return;
        }
        let busy_ns = to_ns.saturating_sub(from_ns.max(self.until_ns));
        self.until_ns = self.until_ns.max(to_ns);
        if self.busy_ns >= HALVED_NS {
            (self.written_bytes, self.busy_ns) = (self.written_bytes / 2, self.busy_ns / 2);
        }
        self.written_bytes = self.written_bytes.saturating_add(written_bytes);
        self.busy_ns = self.busy_ns.saturating_add(busy_ns);
    }

    /// Bytes a second; `None` as long as too little was measured.
    pub fn measured(&self) -> Option<u64> {
        let per_second = u128::from(self.written_bytes) * 1_000_000_000 / u128::from(self.busy_ns.max(1));
        let is_measured = self.written_bytes >= MEASURED_MIN_BYTES;
        is_measured.then(|| u64::try_from(per_second).unwrap_or(u64::MAX).max(1))
    }
}

/// How long it takes to write so much at a pace, or at the assumed one, in nanoseconds.
pub fn time_to_write_ns(bytes: u64, bytes_per_second: Option<u64>) -> u64 {
    let bytes_per_second = bytes_per_second.unwrap_or(ASSUMED_BYTES_PER_SECOND).max(1);
    let needed_ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_second));
    u64::try_from(needed_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    #[test]
    fn nothing_is_measured_before_something_was_written() {
        let mut pace = Pace::default();
        pace.note(0, 0, 5 * SECOND_NS);
        assert_eq!(pace.measured(), None);
        pace.note(MIB - 1, SECOND_NS, 2 * SECOND_NS);
        assert_eq!(pace.measured(), None);
        pace.note(1 + MIB, 3 * SECOND_NS, 4 * SECOND_NS);
        assert_eq!(pace.measured(), Some(MIB));
    }

    #[test]
    fn several_who_wait_for_one_disk_do_not_make_it_slower() {
        let mut pace = Pace::default();
        // Four at a time, each of which waits for the others.
        (4..100).for_each(|second| pace.note(10 * MIB, (second - 4) * SECOND_NS, second * SECOND_NS));
        let expected = 10 * MIB;
        assert!(pace.measured().is_some_and(|pace| pace.abs_diff(expected) < MIB), "{pace:?}");
    }

    #[test]
    fn a_disk_that_has_become_slower_is_known_to_be_after_a_while() {
        let mut pace = Pace::default();
        (0..100).for_each(|second| pace.note(100 * MIB, second * SECOND_NS, (second + 1) * SECOND_NS));
        assert_eq!(pace.measured(), Some(100 * MIB));
        (100..140).for_each(|second| pace.note(10 * MIB, second * SECOND_NS, (second + 1) * SECOND_NS));
        assert!(pace.measured().is_some_and(|pace| pace < 20 * MIB), "{pace:?}");
    }

    #[test]
    fn what_takes_longer_than_can_be_said_takes_for_ever() {
        assert_eq!(time_to_write_ns(0, Some(0)), 0);
        assert_eq!(time_to_write_ns(3, Some(2)), 3 * SECOND_NS / 2);
        assert_eq!(time_to_write_ns(ASSUMED_BYTES_PER_SECOND, None), SECOND_NS);
        assert_eq!(time_to_write_ns(u64::MAX, Some(1)), u64::MAX);
    }
}

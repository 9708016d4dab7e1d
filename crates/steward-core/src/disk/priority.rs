//! The priority of requests (Yang 2009, sections 7.1 and 10.2.2), as the kernel's elevators understand it
//! (Documentation/block/ioprio.rst).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Class;

/// Levels go from 0, the highest, to this.
pub const LEVEL_MAX: u8 = 7;
/// The level of an interactive program without a reservation of CPU time.
const LEVEL_USUAL: u8 = 4;
/// The first period that is not of the highest level any more; each level below is for twice as long, in nanoseconds.
const HIGHEST_BELOW_NS: u64 = 10_000_000;

/// Where the kernel keeps hints to devices beside a priority (Linux 6.5, `include/uapi/linux/ioprio.h`), ten bits of
/// them, and where it begins.
const HINT_SHIFT: u32 = 3;
const HINT_MASK: u32 = 0x3ff;

/// That a priority is from Steward: it goes with it to whoever inherits it, and `ionice` sets none. So what somebody
/// has chosen is told from what was given, also when its parents have ended and the daemon was killed meanwhile.
///
/// It is a hint to devices of which there is none: they know 1 to 7, and nothing orders requests by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Children are not to have the priority: the scheduler tells of those that do (`report_heir()` in
    /// `steward-sched/src/bpf/admission.bpf.h`, which knows the number).
    Alone,
    /// Children are to have it as well.
    WithChildren,
}

impl Mark {
    /// The kernel's number for the hint.
    fn hint(self) -> u32 {
        match self {
            Mark::Alone => 0x100,
            Mark::WithChildren => 0x200,
        }
    }

    /// What is in the kernel's number of a priority (`ioprio_get(2)`).
    pub fn from_kernel(number: u32) -> Option<Self> {
        let hint = number >> HINT_SHIFT & HINT_MASK;
        [Mark::Alone, Mark::WithChildren].into_iter().find(|mark| mark.hint() == hint)
    }
}

/// Whose requests are served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Nothing was chosen: the kernel goes by the nice value.
    #[default]
    Unset,
    /// Before all that have none of these, by level.
    RealTime(u8),
    /// Among all others, by level.
    BestEffort(u8),
    /// When nobody else has requests.
    Idle,
}

impl Priority {
    /// What a program of this class has that is served first; `level` says how soon among those that are, 0 to 7, or
    /// else `period_ns`, that of its reservation of CPU time: the shorter, the sooner. `None` where Steward leaves it
    /// alone.
    ///
    /// What is in the background is the last among all others, and not idle: an idle program that is writing may hold
    /// what the file system's journal waits for, and so would everybody.
    pub fn of(class: Class, level: Option<u8>, period_ns: Option<u64>) -> Option<Self> {
        let by_period = || period_ns.map_or(LEVEL_USUAL, level_of_period);
        match class {
            Class::Interactive => Some(Priority::RealTime(level.unwrap_or_else(by_period))),
            Class::Normal => None,
            Class::Background => Some(Priority::LAST),
        }
    }

    /// What is in the background has.
    pub const LAST: Priority = Priority::BestEffort(LEVEL_MAX);

    /// What tasks of a domain have that is served first, also where it is so by its weight: that counts for what its
    /// tasks ask for, but not for a file that somebody else had changed before them, which the kernel goes on to write
    /// for whoever that was (docs/disk.md#what-others-had-changed).
    pub const OF_DOMAIN: Priority = Priority::RealTime(LEVEL_USUAL);

    /// What those have who have lost their place for a while: the first among those that have no class.
    pub const SET_BACK: Priority = Priority::BestEffort(0);

    /// What else a task has from Steward that is to have `self` for its domain: what was born while its parent had lost
    /// its place has the priority that this had then, and the other way round.
    pub fn other_way(self) -> Option<Priority> {
        match self {
            Priority::OF_DOMAIN => Some(Priority::SET_BACK),
            Priority::SET_BACK => Some(Priority::OF_DOMAIN),
            _ => None,
        }
    }

    /// What the kernel's threads get that are to be served first because others wait for them: with a level above
    /// theirs a disk that is kept idle for the next request of who waits takes up that of the thread at once.
    pub const FOR_OTHERS: Priority = Priority::RealTime(0);

    /// From the kernel's number (`ioprio_get(2)`): the class in the three bits from 13 on, the level in the lowest
    /// three. `None` for a class that this version does not know.
    pub fn from_kernel(number: u32) -> Option<Self> {
        let level = (number & u32::from(LEVEL_MAX)) as u8;
        match number >> 13 & 7 {
            0 => Some(Priority::Unset),
            1 => Some(Priority::RealTime(level)),
            2 => Some(Priority::BestEffort(level)),
            3 => Some(Priority::Idle),
            _ => None,
        }
    }

    /// The kernel's number (`ioprio_set(2)`).
    pub fn to_kernel(self) -> u32 {
        let (class, level) = match self {
            Priority::Unset => (0, 0),
            Priority::RealTime(level) => (1, level),
            Priority::BestEffort(level) => (2, level),
            Priority::Idle => (3, 0),
        };
        class << 13 | u32::from(level.min(LEVEL_MAX))
    }

    /// The same with a mark. Kernels before Linux 6.5 take it for a level that there is not (`EINVAL`).
    pub fn to_kernel_marked(self, mark: Mark) -> u32 {
        self.to_kernel() | mark.hint() << HINT_SHIFT
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::Unset => formatter.write_str("none"),
            Priority::RealTime(level) => write!(formatter, "real-time {level}"),
            Priority::BestEffort(level) => write!(formatter, "best-effort {level}"),
            Priority::Idle => formatter.write_str("idle"),
        }
    }
}

/// The level that goes with a period.
fn level_of_period(period_ns: u64) -> u8 {
    let doublings = (period_ns / HIGHEST_BELOW_NS).checked_ilog2().map_or(0, |exponent| exponent + 1);
    doublings.min(u32::from(LEVEL_MAX)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_shorter_period_is_served_sooner_and_background_last_without_being_idle() {
        let of = |period_ms: u64| Priority::of(Class::Interactive, None, Some(period_ms * 1_000_000));
        for (period_ms, level) in
            [(1, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2), (40, 3), (100, 4), (10_000, 7)]
        {
            assert_eq!(of(period_ms), Some(Priority::RealTime(level)), "{period_ms} ms");
        }
        assert_eq!(Priority::of(Class::Interactive, None, None), Some(Priority::RealTime(LEVEL_USUAL)));
        assert_eq!(Priority::of(Class::Normal, Some(1), Some(1)), None);
        assert_eq!(Priority::of(Class::Background, None, None), Some(Priority::BestEffort(7)));
        assert_eq!(Priority::of(Class::Interactive, Some(6), Some(1)), Some(Priority::RealTime(6)));
    }

    #[test]
    fn the_kernels_numbers_are_those_of_its_manual() {
        // ionice -c 1 -n 4, -c 2 -n 7, -c 3; and nothing.
        for (number, priority) in [
            (0x2004, Priority::RealTime(4)),
            (0x4007, Priority::BestEffort(7)),
            (0x6000, Priority::Idle),
            (0, Priority::Unset),
        ] {
            assert_eq!(Priority::from_kernel(number), Some(priority));
            assert_eq!(priority.to_kernel(), number);
        }
        assert_eq!(Priority::from_kernel(7 << 13), None);
    }

    #[test]
    fn a_mark_is_beside_the_class_and_the_level_and_nobody_else_sets_one() {
        for mark in [Mark::Alone, Mark::WithChildren] {
            let number = Priority::RealTime(2).to_kernel_marked(mark);
            assert_eq!(Priority::from_kernel(number), Some(Priority::RealTime(2)));
            assert_eq!((Mark::from_kernel(number), number >> 16), (Some(mark), 0));
        }
        // ionice, and a limit of a request's duration (IOPRIO_HINT_DEV_DURATION_LIMIT_1 to 7).
        for hint in 0..8 {
            assert_eq!(Mark::from_kernel(1 << 13 | hint << 3 | 4), None);
        }
    }

    proptest! {
        #[test]
        fn a_longer_period_is_never_served_before_a_shorter_one(one in 1_u64..1 << 50, more in 0_u64..1 << 50) {
            let of = |period_ns| Priority::of(Class::Interactive, None, Some(period_ns));
            prop_assert!(of(one) <= of(one + more));
        }
    }
}

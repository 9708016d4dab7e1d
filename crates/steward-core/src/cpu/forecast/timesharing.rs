//! The model of schedulers that move tasks between levels of priority by how much CPU time they use (CPU Futures,
//! section 4.3.1).
//!
//! Its hypothesis: what all tasks of one level get together stays the same for a while, even as tasks come to the level
//! and leave it. Linux has had no such scheduler since 2.6.22; the model is held against one in `steward-sim`.

/// One level of priority, over the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PriorityGroup {
    /// What its tasks got together, in milliseconds of CPU time per second.
    pub allocation_ms_per_s: f64,
    /// How many of its tasks were ready, in the mean.
    pub ready: f64,
}

impl PriorityGroup {
    /// What one task of the level gets (equation 2); 0 where nothing was given out. A level on which there was less
    /// than one task in the mean is not shared: whoever is on it gets what the level gets, not more.
    pub fn per_task_ms_per_s(&self) -> f64 {
        if self.allocation_ms_per_s <= 0.0 || self.ready <= 0.0 {
            return 0.0;
        }
        self.allocation_ms_per_s / self.ready.max(1.0)
    }
}

/// The most that a task on level `level` could get (equation 3): what one task gets on that level or on a worse one, to
/// which it falls when it uses more. `groups` are ordered from the worst level to the best; what is idle is a worst
/// level of its own. At most 1,000 ms/s, and 0 when there is no such level.
pub fn potential_ms_per_s(groups: &[PriorityGroup], level: usize) -> f64 {
    let reachable = groups.get(..=level).unwrap_or(&[]);
    reachable.iter().map(PriorityGroup::per_task_ms_per_s).fold(0.0, f64::max).min(1000.0)
}

/// What a task on level `level` will get (equation 4): the smaller of what it desires and what it could get.
pub fn predicted_ms_per_s(groups: &[PriorityGroup], level: usize, desired_ms_per_s: f64) -> f64 {
    potential_ms_per_s(groups, level).min(desired_ms_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [PriorityGroup; 3] = [
        PriorityGroup { allocation_ms_per_s: 300.0, ready: 2.0 },
        PriorityGroup { allocation_ms_per_s: 100.0, ready: 4.0 },
        PriorityGroup { allocation_ms_per_s: 400.0, ready: 0.5 },
    ];

    #[test]
    fn a_task_keeps_its_level_or_falls_to_a_worse_one_that_has_more() {
        assert_eq!(potential_ms_per_s(&GROUPS, 0), 150.0);
        assert_eq!(potential_ms_per_s(&GROUPS, 1), 150.0);
        assert_eq!(potential_ms_per_s(&GROUPS, 2), 400.0);
        assert_eq!(potential_ms_per_s(&GROUPS, 3), 0.0);
    }

    #[test]
    fn no_task_is_predicted_more_than_it_desires_or_one_cpu_has() {
        assert_eq!(predicted_ms_per_s(&GROUPS, 2, 50.0), 50.0);
        assert_eq!(predicted_ms_per_s(&GROUPS, 1, 500.0), 150.0);
        let rounded_up = PriorityGroup { allocation_ms_per_s: 1000.1, ready: 0.9 };
        assert_eq!(potential_ms_per_s(&[rounded_up], 0), 1000.0);
        assert_eq!(PriorityGroup::default().per_task_ms_per_s(), 0.0);
    }
}

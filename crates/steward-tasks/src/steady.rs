//! Keeps counters from going back.
//!
//! A run or wait that lasts is added to what the kernel has counted so far, as far as that can be seen without stopping
//! the task. It can come out some microseconds above what is counted in the end (time of interrupts, for example), and
//! a counter that goes back means to its readers that a task began anew. So a small step back is held at the old
//! value until the kernel's own count has passed it.

use steward_core::forecast::TaskSample;

/// The largest step back that is taken for a correction, in nanoseconds: a few ticks.
const STEP_MAX_NS: u64 = 50_000_000;

/// The counters of the read before.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    last: Vec<Counters>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    tid: i32,
    started_ns: u64,
    run_ns: u64,
    wait_ns: u64,
}

impl Steady {
    /// Corrects samples that are ordered by thread id.
    pub(crate) fn correct(&mut self, samples: &mut [TaskSample]) {
        let mut before = self.last.iter().peekable();
        for sample in samples.iter_mut() {
            while before.next_if(|counters| counters.tid < sample.tid).is_some() {}
            let known = before
                .peek()
                .filter(|known| known.tid == sample.tid && known.started_ns == sample.started_ns);
            if let Some(known) = known {
                sample.run_ns = held(known.run_ns, sample.run_ns);
                sample.wait_ns = held(known.wait_ns, sample.wait_ns);
            }
        }
        self.last.clear();
        self.last.extend(samples.iter().map(|sample| Counters {
            tid: sample.tid,
            started_ns: sample.started_ns,
            run_ns: sample.run_ns,
            wait_ns: sample.wait_ns,
        }));
    }
}

fn held(before_ns: u64, now_ns: u64) -> u64 {
    if before_ns.saturating_sub(now_ns) <= STEP_MAX_NS { now_ns.max(before_ns) } else { now_ns }
}

#[cfg(test)]
mod tests {
    use steward_core::forecast::SchedulingClass;

    use super::*;

    fn sample(tid: i32, started_ns: u64, run_ns: u64, wait_ns: u64) -> TaskSample {
        TaskSample {
            tid,
            pid: tid,
            started_ns,
            uid: 0,
            cgroup_id: 1,
            name: [0; 16],
            class: SchedulingClass::Fair,
            weight: 100.0,
            run_ns,
            wait_ns,
            runnable: true,
            reserved: 0.0,
        }
    }

    fn corrected(steady: &mut Steady, mut samples: Vec<TaskSample>) -> Vec<(u64, u64)> {
        steady.correct(&mut samples);
        samples.iter().map(|sample| (sample.run_ns, sample.wait_ns)).collect()
    }

    #[test]
    fn a_small_step_back_is_held_until_the_count_has_passed_it() {
        let mut steady = Steady::default();
        corrected(&mut steady, vec![sample(7, 1, 1_000, 5_000)]);
        assert_eq!(corrected(&mut steady, vec![sample(7, 1, 900, 5_100)]), [(1_000, 5_100)]);
        assert_eq!(corrected(&mut steady, vec![sample(7, 1, 950, 5_000)]), [(1_000, 5_100)]);
        assert_eq!(corrected(&mut steady, vec![sample(7, 1, 1_200, 5_200)]), [(1_200, 5_200)]);
    }

    #[test]
    fn a_counter_that_begins_anew_is_passed_on_as_is_another_task_of_the_same_number() {
        let mut steady = Steady::default();
        let second_ns = 1_000_000_000;
        corrected(&mut steady, vec![sample(5, 1, 7, 7), sample(7, 1, second_ns, 100)]);
        assert_eq!(corrected(&mut steady, vec![sample(7, 1, 3, 100)]), [(3, 100)]);
        assert_eq!(corrected(&mut steady, vec![sample(7, 2, 1, 1), sample(9, 1, 4, 4)]), [(1, 1), (4, 4)]);
    }
}

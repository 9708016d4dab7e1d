//! Keeps counters from going back.
//!
//! A run or wait that lasts is added to what the kernel has counted so far, as far as that can be seen without stopping
//! the task. It can come out some microseconds above what is counted in the end (time of interrupts, for example), and
//! a counter that goes back means to its readers that a task began anew. So a small step back is held at the old
//! value until the kernel's own count has passed it.

use steward_core::cpu::forecast::TaskSample;

/// The largest step back that is taken for a correction, in nanoseconds: a few ticks.
const STEP_MAX_NS: u64 = 50_000_000;

/// Corrects samples by those of the read before; both are ordered by thread id.
pub(crate) fn correct(before: &[TaskSample], samples: &mut [TaskSample]) {
    let mut before = before.iter().peekable();
    for sample in samples.iter_mut() {
        while before.next_if(|known| known.tid < sample.tid).is_some() {}
        if let Some(known) = before.peek() {
            correct_one(known, sample);
        }
    }
}

/// Corrects a sample if the other one is of the same task, of the read before.
pub(crate) fn correct_one(known: &TaskSample, sample: &mut TaskSample) {
    if (known.tid, known.started_ns) == (sample.tid, sample.started_ns) {
        sample.run_ns = held(known.run_ns, sample.run_ns);
        sample.wait_ns = held(known.wait_ns, sample.wait_ns);
    }
}

fn held(before_ns: u64, now_ns: u64) -> u64 {
    if before_ns.saturating_sub(now_ns) <= STEP_MAX_NS { now_ns.max(before_ns) } else { now_ns }
}

#[cfg(test)]
mod tests {
    use steward_core::cpu::forecast::SchedulingClass;

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

    fn corrected(before: &mut Vec<TaskSample>, mut samples: Vec<TaskSample>) -> Vec<(u64, u64)> {
        correct(before, &mut samples);
        *before = samples;
        before.iter().map(|sample| (sample.run_ns, sample.wait_ns)).collect()
    }

    #[test]
    fn a_small_step_back_is_held_until_the_count_has_passed_it() {
        let mut before = vec![sample(7, 1, 1_000, 5_000)];
        assert_eq!(corrected(&mut before, vec![sample(7, 1, 900, 5_100)]), [(1_000, 5_100)]);
        assert_eq!(corrected(&mut before, vec![sample(7, 1, 950, 5_000)]), [(1_000, 5_100)]);
        assert_eq!(corrected(&mut before, vec![sample(7, 1, 1_200, 5_200)]), [(1_200, 5_200)]);
    }

    #[test]
    fn a_counter_that_begins_anew_is_passed_on_as_is_another_task_of_the_same_number() {
        let second_ns = 1_000_000_000;
        let mut before = vec![sample(5, 1, 7, 7), sample(7, 1, second_ns, 100)];
        assert_eq!(corrected(&mut before, vec![sample(7, 1, 3, 100)]), [(3, 100)]);
        assert_eq!(corrected(&mut before, vec![sample(7, 2, 1, 1), sample(9, 1, 4, 4)]), [(1, 1), (4, 4)]);
    }
}

//! What is shown of tasks with a specification, and of the CPUs.

use steward_core::cpu::mechanism::{CpuRecord, Standing, TaskRecord};

use super::account::LoadWindow;
use super::state::Managed;
use crate::cpu::scheduling;
use crate::process;
use crate::roots::{Roots, read};

pub(super) fn task_record(task: &Managed, roots: &Roots) -> TaskRecord {
    let tid = task.id.tid;
    let (budget_left_ns, deadline_ns) = progress(task, roots).unwrap_or((0, 0));
    let (reserved_time_ns, best_effort_time_ns) = task.account.split(tid, task.standing, roots);
    TaskRecord {
        tid,
        pid: task.pid,
        name: task.name.clone(),
        cpu: process::stat(tid, roots).map_or(0, |stat| stat.cpu),
        standing: task.standing,
        grant: task.grant,
        budget_left_ns,
        deadline_ns,
        periods: 0,
        periods_announced: 0,
        deadlines_missed: 0,
        budgets_exhausted: 0,
        reserved_time_ns,
        best_effort_time_ns,
        overrun_max_ns: 0,
        reason: task.refused_because,
    }
}

/// Budget left and end of the period: from the system call where the kernel has it, else from the task's `sched`
/// file, whose clock is the scheduler's own (equal to `CLOCK_MONOTONIC` but for what the two drift apart).
fn progress(task: &Managed, roots: &Roots) -> Option<(i64, u64)> {
    if task.standing != Standing::Admitted {
        return None;
    }
    scheduling::read_progress(task.id.tid).or_else(|| {
        let text = read(&roots.proc.join(format!("{}/sched", task.id.tid))).ok()?;
        Some((value_of("dl.runtime", &text)?.parse().ok()?, value_of("dl.deadline", &text)?.parse().ok()?))
    })
}

/// The value of a line `name   :   value`.
fn value_of<'a>(name: &str, text: &'a str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.split_once(':').filter(|(left, _)| left.trim() == name))
        .map(|(_, right)| right.trim())
}

pub(super) fn cpu_record(cpu: u32, reserved: f64, load: &LoadWindow, tasks: &[TaskRecord]) -> CpuRecord {
    let admitted = tasks.iter().filter(|task| task.cpu == cpu && task.standing == Standing::Admitted).count();
    CpuRecord {
        cpu,
        online: true,
        measured_load: load.window.iter().sum::<f64>() / load.window.len() as f64,
        projected_load: reserved,
        window: load.window,
        reserved,
        admitted: u32::try_from(admitted).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_the_sched_file() {
        let text = "mplayer (7, #threads: 1)\n----\npolicy      :    6\ndl.runtime    :    -108517\n";
        assert_eq!(value_of("dl.runtime", text), Some("-108517"));
        assert_eq!(value_of("dl", text), None);
    }
}

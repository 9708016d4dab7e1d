//! What tasks with a reservation used, read from procfs, and what that makes of the CPUs' loads.

use steward_core::cpu::mechanism::Standing;

use crate::clock::now_ns;
pub(super) use crate::cpu::cpus::online as online_cpus;
use crate::roots::{Roots, read_if_present};

/// How many tasks run or want to run now, on the whole machine.
pub(super) fn runnable_tasks(roots: &Roots) -> Option<u32> {
    let text = read_if_present(&roots.proc.join("loadavg")).ok()??;
    text.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// The CPU time that a task has used since it started, in nanoseconds.
fn run_time_ns(tid: i32, roots: &Roots) -> Option<u64> {
    let text = read_if_present(&roots.proc.join(format!("{tid}/schedstat"))).ok()??;
    text.split(' ').next()?.parse().ok()
}

/// What a task used between two looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// CPU time, in nanoseconds.
    pub(super) run_ns: u64,
    /// Time that passed, in nanoseconds.
    pub(super) passed_ns: u64,
}

impl Usage {
    /// Of one CPU.
    pub(super) fn fraction(self) -> f64 {
        self.run_ns as f64 / self.passed_ns.max(1) as f64
    }
}

/// The CPU time of one task, split by what it was at the time.
#[derive(Debug)]
pub(super) struct Account {
    /// Whether it may go on past its budget with bandwidth that nobody reserved.
    pub(super) reclaims: bool,
    /// When its reactivation was last tried, on `CLOCK_MONOTONIC`.
    pub(super) last_tried_ns: u64,
    seen_at_ns: u64,
    seen_run_ns: u64,
    reserved_ns: u64,
    best_effort_ns: u64,
}

impl Account {
    pub(super) fn open(tid: i32, reclaims: bool, roots: &Roots) -> Self {
        Account {
            reclaims,
            last_tried_ns: 0,
            seen_at_ns: now_ns(),
            seen_run_ns: run_time_ns(tid, roots).unwrap_or(0),
            reserved_ns: 0,
            best_effort_ns: 0,
        }
    }

    /// Books what was used up to now, before the standing changes.
    pub(super) fn settle(&mut self, tid: i32, standing: Standing, roots: &Roots) {
        let Some(run_ns) = run_time_ns(tid, roots) else { return };
        let used_ns = run_ns.saturating_sub(self.seen_run_ns);
        match standing {
            Standing::Admitted => self.reserved_ns += used_ns,
            Standing::Refused | Standing::Revoked => self.best_effort_ns += used_ns,
        }
        self.seen_run_ns = run_ns;
        self.seen_at_ns = now_ns();
    }

    /// What an admitted task used since the last look; `None` when it has ended.
    pub(super) fn measure(&mut self, tid: i32, now_ns: u64, roots: &Roots) -> Option<Usage> {
        let run_ns = run_time_ns(tid, roots)?;
        let usage = Usage {
            run_ns: run_ns.saturating_sub(self.seen_run_ns),
            passed_ns: now_ns.saturating_sub(self.seen_at_ns),
        };
        self.reserved_ns += usage.run_ns;
        (self.seen_run_ns, self.seen_at_ns) = (run_ns, now_ns);
        Some(usage)
    }

    /// Time used as admitted and as best-effort, up to now.
    pub(super) fn split(&self, tid: i32, standing: Standing, roots: &Roots) -> (u64, u64) {
        let since_ns = run_time_ns(tid, roots).unwrap_or(0).saturating_sub(self.seen_run_ns);
        match standing {
            Standing::Admitted => (self.reserved_ns + since_ns, self.best_effort_ns),
            Standing::Refused | Standing::Revoked => (self.reserved_ns, self.best_effort_ns + since_ns),
        }
    }
}

/// Whether tasks wait for a CPU, by the last two samples: one alone says little.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crowd {
    now: bool,
    before: bool,
}

impl Crowd {
    /// Takes how many tasks run or want to run, the caller included.
    pub(super) fn sample(&mut self, runnable: u32, cpu_count: u32) {
        self.before = self.now;
        self.now = runnable.saturating_sub(1) > cpu_count;
    }

    pub(super) fn is_here(self) -> bool {
        self.now && self.before
    }

    /// Whether a task may go on past its budget, given whether it may now and whether it used more than promised.
    ///
    /// A task that is held uses no more than promised, so that alone does not let it go: it would at once take all.
    pub(super) fn may_reclaim(self, may_now: bool, used_more: bool) -> bool {
        if may_now { !(self.is_here() && used_more) } else { !self.now && !self.before }
    }
}

/// The last four samples of what admitted tasks used, per CPU, latest first.
#[derive(Debug, Default)]
pub(super) struct LoadWindow {
    pub(super) window: [f64; 4],
    sampled_at_ns: u64,
}

impl LoadWindow {
    pub(super) fn sample(&mut self, used_ns: u64, now_ns: u64, cpu_count: u32) {
        if self.sampled_at_ns != 0 {
            let available_ns = now_ns.saturating_sub(self.sampled_at_ns).max(1) as f64 * f64::from(cpu_count);
            self.window.rotate_right(1);
            self.window[0] = used_ns as f64 / available_ns;
        }
        self.sampled_at_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_held_while_others_wait_and_let_go_when_none_does() {
        let mut crowd = Crowd::default();
        let mut may = true;
        let mut history = Vec::new();
        for (runnable, used_more) in
            [(2, true), (4, true), (4, false), (5, true), (5, false), (2, false), (3, false)]
        {
            crowd.sample(runnable, 2);
            may = crowd.may_reclaim(may, used_more);
            history.push(may);
        }
        assert_eq!(history, [true, true, true, false, false, false, true]);
    }

    #[test]
    fn a_window_holds_the_last_four_samples_latest_first() {
        let mut load = LoadWindow::default();
        load.sample(999, 1_000, 2);
        for (step, used_ns) in (1_u64..).zip([200, 400, 600, 800, 1_000]) {
            load.sample(used_ns, 1_000 + step * 1_000, 2);
        }
        assert_eq!(load.window, [0.5, 0.4, 0.3, 0.2]);
    }
}

//! Periods, budgets and eligibility of interactive tasks (`src/bpf/decide/edf.h`; Yang 2009, section 8.2.1).

/// The reservation of one interactive task: C in every T, and where it stands in its current period.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdfTask {
    /// C, above 0.
    pub budget_ns: u64,
    /// T.
    pub period_ns: u64,
    /// When the current period begins; it may lie ahead.
    pub start_ns: u64,
    /// When the current period ends.
    pub deadline_ns: u64,
    /// What is left of the budget; negative after an overrun.
    pub left_ns: i64,
    /// Periods begun.
    pub periods: u64,
    /// Periods that ended with budget owed to a task that wanted it.
    pub missed: u64,
    /// Periods whose budget was used up.
    pub exhausted: u64,
    /// The largest overrun of one period.
    pub overrun_max_ns: u64,
    /// 1: the task gave the CPU up of its own will in this period.
    pub slept: u32,
    /// 1: the task waited for a disk, a page or a lock in this period.
    pub blocked: u32,
    /// 1: this period has been counted as missed.
    pub late: u32,
    /// Periods that began because a request was announced.
    pub renewed: u32,
}

/// What [`EdfTask::update`] and [`EdfTask::wake`] made of the current period.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdfOutcome {
    /// It goes on.
    Continues = 0,
    /// A new period was assigned; it may begin later.
    NewPeriod = 1,
    /// It ended with budget owed to a task that wanted it. It goes on being owed.
    Missed = 2,
}

unsafe extern "C" {
    fn decide_edf_bandwidth(budget_ns: u64, period_ns: u64) -> u32;
    fn decide_edf_begin(task: *mut EdfTask, budget_ns: u64, period_ns: u64, now_ns: u64);
    fn decide_edf_eligible(task: *const EdfTask, now_ns: u64) -> bool;
    fn decide_edf_next_period(task: *mut EdfTask, start_ns: u64);
    fn decide_edf_update(task: *mut EdfTask, now_ns: u64) -> u32;
    fn decide_edf_wake(task: *mut EdfTask, now_ns: u64) -> u32;
    fn decide_edf_announce(task: *mut EdfTask, now_ns: u64) -> u32;
    fn decide_edf_sleep(task: *mut EdfTask, voluntary: bool);
    fn decide_edf_charge(task: *mut EdfTask, used_ns: u64) -> bool;
    fn decide_edf_timer_serves(timer_ns: u64, now_ns: u64, end_ns: u64) -> bool;
    fn decide_edf_timer_next(now_ns: u64, end_ns: u64) -> u64;
    fn decide_edf_lend(parent: *mut EdfTask, now_ns: u64) -> u64;
    fn decide_edf_return(parent: *mut EdfTask, unused_ns: u64, deadline_ns: u64);
    fn decide_edf_lend_again(parent: *mut EdfTask, resting: bool, lent_deadline_ns: u64, now_ns: u64) -> u64;
}

/// Whether a timer that fires at `timer_ns` (0: none is set) is left alone when a budget begins at `now_ns` that ends
/// at `end_ns`. All in nanoseconds.
pub fn edf_timer_serves(timer_ns: u64, now_ns: u64, end_ns: u64) -> bool {
    // SAFETY: no pointers.
    unsafe { decide_edf_timer_serves(timer_ns, now_ns, end_ns) }
}

/// The timer has fired at `now_ns`, and the budget that is watched ends at `end_ns` (0: none is): when it fires next.
/// `None` if it does not, because the budget is over or there is none. All in nanoseconds.
pub fn edf_timer_next(now_ns: u64, end_ns: u64) -> Option<u64> {
    // SAFETY: no pointers.
    Some(unsafe { decide_edf_timer_next(now_ns, end_ns) }).filter(|next_ns| *next_ns > 0)
}

/// C/T in parts per million of one CPU, rounded up, at most [`LOAD_ONE`](super::LOAD_ONE).
pub fn edf_bandwidth(budget_ns: u64, period_ns: u64) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_edf_bandwidth(budget_ns, period_ns) }
}

impl EdfTask {
    /// A task whose first period begins at `now_ns` with the whole budget.
    ///
    /// # Panics
    /// If `budget_ns` or `period_ns` is 0.
    pub fn begin(budget_ns: u64, period_ns: u64, now_ns: u64) -> Self {
        assert!(budget_ns > 0 && period_ns > 0, "a reservation of {budget_ns} ns in {period_ns} ns");
        let mut task = Self::default();
        // SAFETY: a structure of the layout that the function expects, which a test checks.
        unsafe { decide_edf_begin(&mut task, budget_ns, period_ns, now_ns) };
        task
    }

    /// Whether the task is served ahead of best-effort work: its period has begun and budget is left.
    pub fn eligible(&self, now_ns: u64) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_edf_eligible(self, now_ns) }
    }

    /// Assigns the period that follows, at `start_ns`, or later where an overrun larger than C is to be paid.
    ///
    /// # Panics
    /// If the task has no budget, that is, was not made by [`EdfTask::begin`].
    pub fn next_period(&mut self, start_ns: u64) {
        self.assert_begun();
        // SAFETY: as in begin(); the budget is not 0, by which the function divides.
        unsafe { decide_edf_next_period(self, start_ns) }
    }

    /// Assigns a new period where the current one is over (Yang 2009, listing 2). To be called when the task starts to
    /// run and after each [`EdfTask::charge`].
    ///
    /// # Panics
    /// As [`EdfTask::next_period`].
    pub fn update(&mut self, now_ns: u64) -> EdfOutcome {
        self.assert_begun();
        // SAFETY: as in next_period().
        outcome(unsafe { decide_edf_update(self, now_ns) })
    }

    /// The task wakes up: as [`EdfTask::update`], with the constant bandwidth server's rule.
    ///
    /// # Panics
    /// As [`EdfTask::next_period`].
    pub fn wake(&mut self, now_ns: u64) -> EdfOutcome {
        self.assert_begun();
        // SAFETY: as in next_period().
        outcome(unsafe { decide_edf_wake(self, now_ns) })
    }

    /// The task has announced that it begins with another request: a fresh period, if that is within C in T.
    ///
    /// # Panics
    /// As [`EdfTask::next_period`].
    pub fn announce(&mut self, now_ns: u64) -> EdfOutcome {
        self.assert_begun();
        // SAFETY: as in next_period().
        outcome(unsafe { decide_edf_announce(self, now_ns) })
    }

    /// The task gives the CPU up: voluntarily (an interruptible sleep), or to wait for a disk, a page or a lock.
    pub fn sleep(&mut self, voluntary: bool) {
        // SAFETY: as in begin().
        unsafe { decide_edf_sleep(self, voluntary) }
    }

    /// Takes `used_ns` of CPU time out of the budget. True when it is used up; [`EdfTask::update`] is then due.
    pub fn charge(&mut self, used_ns: u64) -> bool {
        // SAFETY: as in begin().
        unsafe { decide_edf_charge(self, used_ns) }
    }

    /// Takes the CPU time for a child's start out of this parent's budget (Yang 2009, 7.2.2). Returns it, in
    /// nanoseconds.
    pub fn lend(&mut self, now_ns: u64) -> u64 {
        // SAFETY: as in begin().
        unsafe { decide_edf_lend(self, now_ns) }
    }

    /// The same for a child that has used up what it was lent in the period that ended at `lent_deadline_ns` (0 where
    /// it has been lent nothing): once in each period. A parent that is asleep or blocked (`resting`) begins its next
    /// period for it.
    pub fn lend_again(&mut self, resting: bool, lent_deadline_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: as in begin().
        unsafe { decide_edf_lend_again(self, resting, lent_deadline_ns, now_ns) }
    }

    /// Takes back what a child has left of what it was lent in the period that ends at `deadline_ns`, if that still is
    /// the current one.
    pub fn take_back(&mut self, unused_ns: u64, deadline_ns: u64) {
        // SAFETY: the pointer is valid and the layouts are the same.
        unsafe { decide_edf_return(self, unused_ns, deadline_ns) }
    }

    fn assert_begun(&self) {
        assert!(self.budget_ns > 0, "the task has no reservation yet");
    }
}

fn outcome(value: u32) -> EdfOutcome {
    match value {
        0 => EdfOutcome::Continues,
        1 => EdfOutcome::NewPeriod,
        2 => EdfOutcome::Missed,
        _ => unreachable!("edf.h has no outcome {value}"),
    }
}

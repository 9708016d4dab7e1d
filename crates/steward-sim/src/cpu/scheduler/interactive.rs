//! The interactive class, as in `interactive.bpf.h`: slots, admission, and the timers of periods and budgets.

use std::cmp::Reverse;

use steward_core::cpu::reservation::Reservation;
use steward_sched::decide::{Claim, EdfTask, Fit, Rule, SLICE_NS, Verdict, edf_bandwidth};

use super::state::{Decision, Mode, Scheduler, Slot, Standing};
use crate::cpu::event::Event;
use crate::cpu::kernel::{Kernel, Queue, TaskId};

/// The end of a budget counts as reached when it is this near.
const BUDGET_SLACK_NS: u64 = 20_000;

/// How many admitted tasks are tried to make room (`MOVES_TRIED_MAX`).
const MOVES_TRIED_MAX: usize = 32;

impl Scheduler {
    pub(super) fn report(&mut self, decision: Decision) {
        let counts = &mut self.counts;
        let counter = match decision {
            Decision::Admitted => &mut counts.admitted,
            Decision::Refused => &mut counts.refused,
            Decision::Revoked => &mut counts.revoked,
            Decision::Reactivated => &mut counts.reactivated,
        };
        *counter += 1;
    }

    /// Starts the slot's timer for the begin of its period.
    pub(super) fn watch_period(&mut self, k: &mut Kernel, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.timer = slot.timer.wrapping_add(1);
        let event = Event::PeriodBegins { slot: index, generation: slot.timer };
        k.events.push(slot.edf.start_ns.max(k.now_ns), event);
    }

    /// Holds a task against the rules of a CPU.
    pub(super) fn judge(&self, index: u32, cpu: u32) -> Verdict {
        let state = &self.cpu_states[cpu as usize];
        state.declared.judge(&state.load, &self.thresholds, &self.slots[index as usize].claim)
    }

    /// How a task fits on a CPU.
    pub(super) fn fit(&self, index: u32, cpu: u32) -> Fit {
        let verdict = self.judge(index, cpu);
        let declared = &self.cpu_states[cpu as usize].declared;
        declared.fit(&self.thresholds, &self.slots[index as usize].claim, &verdict)
    }

    /// The least loaded of the CPUs that the task may use and that would take it; without one of those, of those where
    /// others would give way to it; without one of those the least loaded.
    fn choose_cpu(&self, k: &Kernel, index: u32, except: Option<u32>) -> Option<u32> {
        let p = self.slots[index as usize].task;
        let allowed = (0..k.cpu_count()).filter(|cpu| k.task(p).may_run_on(*cpu) && Some(*cpu) != except);
        allowed.min_by_key(|cpu| {
            (Reverse(self.fit(index, *cpu)), self.cpu_states[*cpu as usize].load.expected())
        })
    }

    /// Adds the reservation to the CPU if admission allows it.
    pub(super) fn reserve_on(&mut self, index: u32, cpu: u32) -> Verdict {
        let slot = &mut self.slots[index as usize];
        slot.claim.irrevocable = u32::from(!slot.revocable);
        let verdict = self.judge(index, cpu);
        if verdict.admits() {
            let slot = &mut self.slots[index as usize];
            let state = &mut self.cpu_states[cpu as usize];
            state.load.announce(slot.claim.bandwidth);
            state.declared.declare(&mut slot.claim, &verdict);
            slot.cpu = cpu;
            slot.admitted_sample = state.load.samples;
        }
        verdict
    }

    /// Where a newcomer fits into its user's part, those give way whose users have more than theirs: first who has used
    /// nothing lately. Whether it has room then.
    fn others_give_way(&mut self, newcomer: u32, cpu: u32, now_ns: u64) -> bool {
        if self.fit(newcomer, cpu) != Fit::InItsPart {
            return false;
        }
        let slots = self.slots.len() as u32;
        for turn in 0..2 * slots {
            let (idle_only, index) = (turn < slots, turn % slots);
            let slot = &self.slots[index as usize];
            let there =
                slot.standing == Standing::Admitted && slot.cpu == cpu && !(idle_only && slot.used > 0);
            let declared = &self.cpu_states[cpu as usize].declared;
            let claim = &self.slots[newcomer as usize].claim;
            if there && declared.gives_way(&self.thresholds, claim, &slot.claim) {
                self.revoke(index, now_ns);
                if self.fit(newcomer, cpu) == Fit::Now {
                    return true;
                }
            }
        }
        false
    }

    /// Adds the reservation to the CPU; if nothing is in its way but what others have beyond their parts, these give
    /// way.
    pub(super) fn reserve_or_claim(&mut self, index: u32, cpu: u32, now_ns: u64) -> Verdict {
        let verdict = self.reserve_on(index, cpu);
        if verdict.rule == Rule::Together as u32 && self.others_give_way(index, cpu, now_ns) {
            return self.reserve_on(index, cpu);
        }
        verdict
    }

    fn unreserve(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let state = &mut self.cpu_states[slot.cpu as usize];
        state.load.withdraw(slot.claim.bandwidth, state.load.samples - slot.admitted_sample);
        state.declared.undeclare(&slot.claim);
    }

    /// Moves an admitted task to another CPU that takes it.
    fn move_away(&mut self, k: &mut Kernel, index: u32) -> bool {
        let before = self.slots[index as usize].clone();
        let Some(to) = self.choose_cpu(k, index, Some(before.cpu)) else { return false };
        if !self.reserve_on(index, to).admits() {
            self.slots[index as usize].claim = before.claim;
            return false;
        }
        let state = &mut self.cpu_states[before.cpu as usize];
        let ago = state.load.samples - before.admitted_sample;
        if before.used > 0 {
            state.load.without(before.claim.bandwidth, ago, before.used);
        } else {
            state.load.withdraw(before.claim.bandwidth, ago);
        }
        state.declared.undeclare(&before.claim);
        self.watch_period(k, index);
        true
    }

    /// Moves a task away from a CPU that a newcomer depends on, if that makes room for it.
    fn make_room(&mut self, k: &mut Kernel, newcomer: u32, cpu: u32) -> bool {
        let bandwidth = self.slots[newcomer as usize].claim.bandwidth;
        let frees_enough = |scheduler: &Self, other: u32| {
            let slot = &scheduler.slots[other as usize];
            let mut after = scheduler.cpu_states[cpu as usize].load;
            after.without(slot.claim.bandwidth, after.samples - slot.admitted_sample, slot.used);
            slot.standing == Standing::Admitted
                && slot.cpu == cpu
                && after.admits(bandwidth, scheduler.thresholds.admit_below)
        };
        let others: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|other| frees_enough(self, *other))
            .take(MOVES_TRIED_MAX)
            .collect();
        others.into_iter().any(|other| self.move_away(k, other))
    }

    /// Begins the first period of a task that was taken in.
    pub(super) fn begin(&mut self, index: u32, now_ns: u64) {
        let slot = &mut self.slots[index as usize];
        let Reservation { budget_ns, period_ns } = slot.reservation;
        let before = slot.edf;
        slot.edf = EdfTask::begin(budget_ns, period_ns, now_ns);
        slot.edf.periods += before.periods;
        slot.edf.missed = before.missed;
        slot.edf.exhausted = before.exhausted;
        slot.edf.overrun_max_ns = before.overrun_max_ns;
        slot.standing = Standing::Admitted;
        slot.failures = 0;
    }

    /// Gives a task a specification and submits it to admission on the least loaded CPU (Yang 2009, 8.1.2.1, 8.3).
    pub(crate) fn adopt(
        &mut self,
        k: &mut Kernel,
        p: TaskId,
        reservation: Reservation,
        revocable: bool,
        uid: u32,
    ) {
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            task: p,
            standing: Standing::Refused,
            edf: EdfTask::default(),
            reserved_time_ns: 0,
            best_effort_time_ns: 0,
            cpu: 0,
            claim: Claim {
                bandwidth: edf_bandwidth(reservation.budget_ns, reservation.period_ns),
                uid,
                limited: u32::from(uid != 0),
                irrevocable: u32::from(!revocable),
            },
            revocable,
            used: 0,
            sampled_reserved_ns: 0,
            sampled_exhausted: 0,
            exhausted_sample: 0,
            admitted_sample: 0,
            waiting_since_ns: k.now_ns,
            failures: 0,
            retry_sample: 0,
            reservation,
            timer: 0,
        });
        let cpu = self.choose_cpu(k, index, None);
        if cpu.is_some_and(|cpu| self.admit_on(k, index, cpu)) {
            self.begin(index, k.now_ns);
            self.report(Decision::Admitted);
        } else {
            self.slots[index as usize].cpu = cpu.unwrap_or(0);
            self.report(Decision::Refused);
        }
        self.tasks[p as usize].slot = Some(index);
    }

    /// Where a task depends on few CPUs, one that does not makes room for it.
    fn admit_on(&mut self, k: &mut Kernel, index: u32, cpu: u32) -> bool {
        let verdict = self.reserve_or_claim(index, cpu, k.now_ns);
        let pinned = self.is_restricted(k, self.slots[index as usize].task);
        verdict.admits()
            || (verdict.rule == Rule::Use as u32
                && pinned
                && self.make_room(k, index, cpu)
                && self.reserve_on(index, cpu).admits())
    }

    /// Puts an admitted task out of the class.
    pub(super) fn revoke(&mut self, index: u32, now_ns: u64) {
        self.unreserve(index);
        let slot = &mut self.slots[index as usize];
        slot.standing = Standing::Revoked;
        slot.waiting_since_ns = now_ns;
        self.report(Decision::Revoked);
    }

    /// Takes the task's specification away.
    pub(super) fn release(&mut self, p: TaskId) {
        let Some(index) = self.tasks[p as usize].slot.take() else { return };
        if self.slots[index as usize].standing == Standing::Admitted {
            self.unreserve(index);
        }
        self.slots[index as usize].standing = Standing::None;
    }

    /// Watches the budget of the task that begins to run on the CPU.
    pub(super) fn watch_budget(&mut self, k: &mut Kernel, cpu: u32, left_ns: u64) {
        self.cpu_runs[cpu as usize].budget_end_ns = Some(k.now_ns + left_ns);
        k.start_budget_timer(cpu, left_ns);
    }

    /// The running task's budget is used up (or about to be): make the CPU choose again.
    pub(crate) fn budget_ends(&mut self, k: &mut Kernel, cpu: u32) {
        let end_ns = self.cpu_runs[cpu as usize].budget_end_ns;
        if end_ns.is_some_and(|end_ns| k.now_ns + BUDGET_SLACK_NS >= end_ns) {
            k.kick(cpu, true);
        }
    }

    /// Makes the task's CPU choose again if what runs there has a later deadline, or none.
    pub(super) fn preempt_for(&mut self, k: &mut Kernel, index: u32) {
        let slot = &self.slots[index as usize];
        let cpu = slot.cpu;
        if self.cpu_runs[cpu as usize].deadline_ns <= slot.edf.deadline_ns {
            return;
        }
        let idle = k.test_and_clear_idle(cpu);
        k.kick(cpu, !idle);
    }

    /// Takes the task out of its domain's count of waiting tasks.
    pub(super) fn leave_queue(&mut self, p: TaskId) {
        let t = &mut self.tasks[p as usize];
        if std::mem::take(&mut t.counted_waiting) {
            let domain = t.domain;
            self.domains.at_mut(domain).waiting -= 1;
        }
    }

    /// Moves a waiting task from one ordered queue to another, with the counts that go with it.
    fn change_queue(&mut self, k: &mut Kernel, p: TaskId, to: Queue, slice_ns: u64, key: u64) -> bool {
        match k.queue_remove(p) {
            Some(from) if from != to => {}
            Some(from) => {
                k.queue_insert(p, from, slice_ns, key);
                return false;
            }
            None => return false,
        }
        self.leave_queue(p);
        k.queue_insert(p, to, slice_ns, key);
        true
    }

    /// Brings a task that waits in an interactive queue to where it waits as best-effort work, and an idle CPU to it.
    fn return_to_domain(&mut self, k: &mut Kernel, p: TaskId) {
        let index = self.tasks[p as usize].domain;
        let restricted = self.is_restricted(k, p);
        self.join_clock(p, false);
        let vtime = self.tasks[p as usize].vtime;
        let queue = if restricted { Queue::Restricted(index) } else { Queue::Domain(index) };
        if !self.change_queue(k, p, queue, SLICE_NS, vtime) {
            return;
        }
        self.tasks[p as usize].waiting_since_ns = k.now_ns;
        if restricted {
            self.restricted_wait(k, p, index);
        } else {
            self.count_waiting(p);
            self.domain_make_queued(index, k.now_ns);
        }
        if let Some(idle_cpu) = k.pick_idle_cpu(p) {
            k.kick(idle_cpu, false);
        }
    }

    /// A period begins for a task that had used its budget up, or its standing or CPU changed.
    pub(crate) fn period_begins(&mut self, k: &mut Kernel, index: u32, generation: u32) {
        let slot = &self.slots[index as usize];
        let (p, home, edf, standing) = (slot.task, slot.cpu, slot.edf, slot.standing);
        if slot.timer != generation || standing == Standing::None {
            return;
        }
        if self.tasks[p as usize].mode != Mode::Off {
            return k.kick(k.task(p).cpu, true);
        }
        if standing != Standing::Admitted {
            if matches!(k.task(p).queue(), Some(Queue::Interactive(_))) {
                self.return_to_domain(k, p);
            }
            return;
        }
        if edf.start_ns > k.now_ns {
            return self.watch_period(k, index);
        }
        let slice_ns = edf.left_ns.max(1) as u64;
        if k.task(p).may_run_on(home)
            && self.change_queue(k, p, Queue::Interactive(home), slice_ns, edf.deadline_ns)
        {
            self.preempt_for(k, index);
        }
    }
}

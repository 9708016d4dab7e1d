//! The scheduler's callbacks, as the BPF program has them (`steward-sched/src/bpf/steward.bpf.c`): the same functions
//! in the same order around the same decisions ([`steward_sched::decide`]), so that the two can be read side by side.
//!
//! Left out is what a machine in memory does not have: races, kernel threads, fork and exec, CPUs that go offline; and
//! what only saves time while nobody else waits (`enqueue_direct`, `goes_on_alone`, `CHARGE_ALONE_NS`). Who gets a
//! specification is written in the scenario.

mod best_effort;
mod interactive;
mod sampler;
mod state;

use steward_core::cpu::best_effort::BestEffortSettings;
use steward_sched::decide::{
    CLASS_GAP_NS, CpuOrder, DomainTable, LoadThresholds, Policy, RESCUE_SLICE_NS, Restriction,
    SLICE_ALONE_NS, SLICE_NS, WEIGHT_DEFAULT, Waiters,
};

use crate::cpu::kernel::{Kernel, Queue, TaskId};
use crate::random::Random;
use best_effort::Choice;
use state::{Counts, CpuRun, CpuState, Mode, NEVER, TaskState};
pub(crate) use state::{Enqueued, Scheduler, Slot, Standing};

impl Scheduler {
    pub(crate) fn new(cpus: u32, thresholds: LoadThresholds, best_effort: &BestEffortSettings) -> Self {
        let mut domains = DomainTable::new();
        domains.cpus = cpus;
        domains.set_order(best_effort.order.into(), best_effort.service_cycle_ns);
        let mut scheduler = Scheduler {
            thresholds,
            tasks: Vec::new(),
            slots: Vec::new(),
            cpu_states: vec![CpuState::default(); cpus as usize],
            cpu_runs: vec![CpuRun::new(); cpus as usize],
            orders: (0..cpus).map(|_| CpuOrder::new()).collect(),
            domains,
            preemption_interval_ns: best_effort.preemption_interval_ns,
            overdue: false,
            overdue_press: false,
            overdue_cursor: 0,
            room: 0,
            waiters: Waiters::default(),
            samples: 0,
            sampled_ns: 0,
            random: Random::new(0, 0),
            counts: Counts::default(),
        };
        scheduler.domain_init(None, WEIGHT_DEFAULT, &Policy::default());
        scheduler
    }

    /// A task begins: `weight` 100 stands for nice 0.
    pub(crate) fn init_task(&mut self, domain: u16, weight: u32) {
        let vtime = self.domains.at(domain).task_clock;
        self.domains.at_mut(domain).tasks += 1;
        self.tasks.push(TaskState { domain, weight, vtime, ..TaskState::default() });
    }

    /// Accounts the CPU time used since the last call, and lets a spent budget end the period.
    fn charge(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        let now_ns = k.now_ns;
        let t = &mut self.tasks[p as usize];
        if t.mode == Mode::Off || now_ns <= t.charged_ns {
            return;
        }
        let used_ns = now_ns - t.charged_ns;
        t.charged_ns = now_ns;
        let mode = t.mode;
        let index = t.slot;
        if let (Mode::Interactive, Some(index)) = (mode, index) {
            let slot = &mut self.slots[index as usize];
            slot.reserved_time_ns += used_ns;
            self.charge_reserved(p, cpu, used_ns, now_ns);
            let slot = &mut self.slots[index as usize];
            self.cpu_states[cpu as usize].reserved_time_ns += used_ns;
            self.cpu_runs[cpu as usize].class.used(used_ns, now_ns);
            let spent = slot.edf.charge(used_ns);
            slot.edf.update(now_ns);
            if spent && slot.standing == Standing::Admitted && slot.edf.start_ns > now_ns {
                self.watch_period(k, index);
            }
            return;
        }
        if let Some(index) = index {
            self.slots[index as usize].best_effort_time_ns += used_ns;
        }
        self.charge_best_effort(p, cpu, used_ns, now_ns);
    }

    /// The task runs, or goes on, out of its reservation: its budget is the slice, and is watched.
    fn run_interactive(&mut self, k: &mut Kernel, p: TaskId, slot: u32, cpu: u32) {
        let edf = &self.slots[slot as usize].edf;
        let left_ns = edf.left_ns.max(1) as u64;
        self.tasks[p as usize].mode = Mode::Interactive;
        let run = &mut self.cpu_runs[cpu as usize];
        run.deadline_ns = edf.deadline_ns;
        run.domain = None;
        run.gap = false;
        k.task_mut(p).slice_ns = left_ns;
        self.watch_budget(k, cpu, left_ns);
    }

    fn run_best_effort(&mut self, k: &Kernel, p: TaskId, cpu: u32) {
        self.cpu_runs[cpu as usize].restriction = self.restriction(k, p);
        let t = &mut self.tasks[p as usize];
        t.mode = Mode::BestEffort;
        let run = &mut self.cpu_runs[cpu as usize];
        run.deadline_ns = NEVER;
        run.budget_end_ns = None;
        run.domain = Some(t.domain);
        (run.vtime, run.vtime_at_ns, run.weight) = (t.vtime, t.charged_ns, t.weight);
        run.alone = false;
    }

    /// prev goes on as best-effort: for long if nothing else waits, because then nobody is kept waiting.
    fn keep_best_effort(&mut self, k: &mut Kernel, prev: TaskId, cpu: u32) {
        let TaskState { domain, vtime, .. } = self.tasks[prev as usize];
        let alone = !self.others_wait(domain, cpu);
        let restricted = self.is_restricted(k, prev);
        self.serve(Choice { index: domain, restricted, free: None }, cpu as usize);
        let clock = &mut self.domains.at_mut(domain).task_clock;
        *clock = (*clock).max(vtime);
        self.run_best_effort(k, prev, cpu);
        self.cpu_runs[cpu as usize].alone = alone;
        k.task_mut(prev).slice_ns = if alone { SLICE_ALONE_NS } else { SLICE_NS };
    }

    /// Whether a task that has a CPU runs out of its reservation.
    pub(crate) fn runs_reserved(&self, p: TaskId) -> bool {
        self.tasks[p as usize].mode == Mode::Interactive
    }

    /// Whether what runs on a CPU does so because it had waited too long.
    pub(crate) fn rescues(&self, cpu: u32) -> bool {
        self.cpu_runs[cpu as usize].rescue
    }

    /// The slot of a task that has a specification.
    pub(crate) fn slot_of(&self, p: TaskId) -> Option<&Slot> {
        Some(&self.slots[self.tasks[p as usize].slot? as usize])
    }

    /// The index of the task's slot if it is admitted.
    fn admitted(&self, p: TaskId) -> Option<u32> {
        let index = self.tasks[p as usize].slot?;
        (self.slots[index as usize].standing == Standing::Admitted).then_some(index)
    }

    /// May run on some CPUs only.
    pub(super) fn is_restricted(&self, k: &Kernel, p: TaskId) -> bool {
        self.restriction(k, p) != Restriction::None
    }

    fn restriction(&self, k: &Kernel, p: TaskId) -> Restriction {
        if k.task(p).pinned.is_none() || k.cpu_count() == 1 {
            return Restriction::None;
        }
        match (0..k.cpu_count()).filter(|cpu| k.task(p).may_run_on(*cpu)).count() {
            1 => Restriction::OneCpu,
            _ => Restriction::SomeCpus,
        }
    }

    /// The task can run: it counts in its domain, and if it has just woken its period may be a new one.
    fn becomes_runnable(&mut self, k: &mut Kernel, p: TaskId, woken: bool) {
        if woken && let Some(slot) = self.admitted(p) {
            self.slots[slot as usize].edf.wake(k.now_ns);
        }
        let t = &self.tasks[p as usize];
        if t.runnable_weight == 0 {
            self.domain_counts(p, t.weight, k.now_ns);
        }
    }

    /// A task wakes. True when it was given to an idle CPU at once.
    pub(crate) fn select_cpu(&mut self, k: &mut Kernel, p: TaskId) -> bool {
        if let Some(slot) = self.admitted(p) {
            let cpu = self.slots[slot as usize].cpu;
            if k.task(p).may_run_on(cpu) {
                k.task_mut(p).cpu = cpu;
                return false;
            }
        }
        let Some(cpu) = k.pick_idle_cpu(p) else { return false };
        k.task_mut(p).cpu = cpu;
        if self.held_by_quota(p) {
            k.set_idle(cpu, true);
            return false;
        }
        self.becomes_runnable(k, p, true);
        self.tasks[p as usize].unjoined = true;
        k.task_mut(p).slice_ns = SLICE_NS;
        k.give_to(p, cpu);
        k.choose_soon(cpu);
        true
    }

    /// The task waits for a CPU.
    pub(crate) fn enqueue(&mut self, k: &mut Kernel, p: TaskId, why: Enqueued) {
        let (now_ns, cpu) = (k.now_ns, k.task(p).cpu);
        self.leave_queue(p);
        self.tasks[p as usize].rescued = false;
        self.becomes_runnable(k, p, why == Enqueued::Woken);
        if let Some(index) = self.admitted(p) {
            let slot = &self.slots[index as usize];
            let (home, edf) = (slot.cpu, slot.edf);
            if slot.served_by_deadline(now_ns) && k.task(p).may_run_on(home) {
                k.queue_insert(p, Queue::Interactive(home), edf.left_ns as u64, edf.deadline_ns);
                self.preempt_for(k, index);
                return;
            }
            if edf.start_ns > now_ns {
                self.watch_period(k, index);
            }
        }
        self.join_clock(p, why == Enqueued::Woken);
        if self.is_restricted(k, p) {
            self.enqueue_restricted(k, p);
        } else {
            self.enqueue_domain(k, p);
        }
        if why == Enqueued::Last {
            return;
        }
        if let Some(idle_cpu) = k.pick_idle_cpu(p) {
            k.kick(idle_cpu, false);
        } else if why == Enqueued::Woken {
            self.preempt_later(k, p, cpu);
        }
    }

    /// Lets prev, whose slice is over, go on if it comes first. True when that is decided.
    fn keep_interactive(
        &mut self,
        k: &mut Kernel,
        prev: TaskId,
        cpu: u32,
        first_deadline_ns: Option<u64>,
    ) -> bool {
        let Some(index) = self.tasks[prev as usize].slot else { return false };
        let slot = &self.slots[index as usize];
        if slot.cpu != cpu || !slot.served_by_deadline(k.now_ns) {
            return false;
        }
        if first_deadline_ns.is_some_and(|deadline_ns| deadline_ns < slot.edf.deadline_ns) {
            return false;
        }
        self.run_interactive(k, prev, index, cpu);
        true
    }

    /// Whether a task that runs here as best-effort work is to be served out of its reservation on another CPU.
    fn belongs_elsewhere(&self, k: &Kernel, p: TaskId, cpu: u32) -> bool {
        let Some(index) = self.admitted(p) else { return false };
        let slot = &self.slots[index as usize];
        slot.cpu != cpu && slot.served_by_deadline(k.now_ns) && k.task(p).may_run_on(slot.cpu)
    }

    /// A CPU has nothing to run: gives it a task, or lets prev, which could go on, do so by giving it a slice.
    pub(crate) fn dispatch(&mut self, k: &mut Kernel, cpu: u32, prev: Option<TaskId>) {
        self.counts.decisions += 1;
        if let Some(prev) = prev {
            self.charge(k, prev, cpu);
            self.end_rescue(k, cpu);
        }
        let first_deadline_ns = k.queue_first_key(Queue::Interactive(cpu));
        let interactive = prev.is_some_and(|prev| self.tasks[prev as usize].mode == Mode::Interactive);
        if (first_deadline_ns.is_some() || interactive) && self.serve_gap(k, cpu) {
            return;
        }
        if prev.is_some_and(|prev| self.keep_interactive(k, prev, cpu, first_deadline_ns)) {
            return;
        }
        if first_deadline_ns.is_some() && k.queue_to_local(Queue::Interactive(cpu), cpu) {
            return;
        }
        if self.serve_overdue(k, cpu, false) {
            return;
        }
        let prev = prev.filter(|prev| !self.held_by_quota(*prev) && !self.belongs_elsewhere(k, *prev, cpu));
        if let Some(prev) = prev {
            self.join_late(k, prev, cpu);
        }
        if self.serve_domains(k, cpu, prev) {
            return;
        }
        match prev {
            Some(prev) => self.keep_best_effort(k, prev, cpu),
            None => {
                self.serve_overdue(k, cpu, true);
            }
        }
    }

    /// The interactive class has had more than it may: serves best-effort work first, if any waits.
    fn serve_gap(&mut self, k: &mut Kernel, cpu: u32) -> bool {
        let run = &mut self.cpu_runs[cpu as usize];
        if !run.class.held(0, k.now_ns) {
            return false;
        }
        run.gap = true;
        let served = self.serve_overdue(k, cpu, false) || self.serve_domains(k, cpu, None);
        self.cpu_runs[cpu as usize].gap = served;
        served
    }

    /// What runs as best-effort was chosen before the interactive class.
    fn begin_gap(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        if std::mem::take(&mut self.cpu_runs[cpu as usize].gap) {
            k.task_mut(p).slice_ns = CLASS_GAP_NS;
            self.watch_budget(k, cpu, CLASS_GAP_NS);
        }
    }

    /// The timer interrupt of a CPU on which the task runs.
    pub(crate) fn tick(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        self.charge(k, p, cpu);
        let t = &self.tasks[p as usize];
        let over = if t.mode == Mode::Interactive {
            let run = &self.cpu_runs[cpu as usize];
            let restricted = self.orders[cpu as usize].any_restricted != 0;
            let others = self.domains.waiting > 0 || restricted || self.overdue;
            t.slot.is_none_or(|slot| !self.slots[slot as usize].served_by_deadline(k.now_ns))
                || (others && run.class.held(0, k.now_ns))
        } else {
            self.held_by_quota(p) || self.overtaken(k, p, cpu)
        };
        if over {
            k.task_mut(p).slice_ns = 0;
        }
    }

    /// The task sleeps: of its own will, or because it waits for a disk.
    pub(crate) fn ceases(&mut self, k: &Kernel, p: TaskId, voluntary: bool) {
        self.leave_queue(p);
        self.domain_counts(p, 0, k.now_ns);
        if let Some(slot) = self.tasks[p as usize].slot {
            self.slots[slot as usize].edf.sleep(voluntary);
        }
    }

    /// A rescued task runs for a moment only.
    fn begin_rescue(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) -> bool {
        if !std::mem::take(&mut self.tasks[p as usize].rescued) {
            return false;
        }
        self.cpu_runs[cpu as usize].rescue = true;
        k.task_mut(p).slice_ns = RESCUE_SLICE_NS;
        self.watch_budget(k, cpu, RESCUE_SLICE_NS);
        true
    }

    pub(crate) fn running(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        let now_ns = k.now_ns;
        let t = &mut self.tasks[p as usize];
        if t.counted_waiting || t.restricted_waiting {
            self.domains.at_mut(t.domain).waited_ns += now_ns - t.waiting_since_ns;
        }
        t.charged_ns = now_ns;
        self.leave_queue(p);
        self.cpu_runs[cpu as usize].began_ns = now_ns;
        self.becomes_runnable(k, p, false);
        if let Some(index) = self.admitted(p) {
            let slot = &mut self.slots[index as usize];
            slot.edf.update(now_ns);
            if slot.cpu == cpu && slot.served_by_deadline(now_ns) {
                return self.run_interactive(k, p, index, cpu);
            }
        }
        let TaskState { vtime, domain, .. } = self.tasks[p as usize];
        self.run_best_effort(k, p, cpu);
        self.begin_gap(k, p, cpu);
        if self.begin_rescue(k, p, cpu) {
            return;
        }
        let d = self.domains.at_mut(domain);
        d.task_clock = d.task_clock.max(vtime);
    }

    pub(crate) fn stopping(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        self.charge(k, p, cpu);
        self.end_rescue(k, cpu);
        self.tasks[p as usize].mode = Mode::Off;
        let run = &mut self.cpu_runs[cpu as usize];
        run.deadline_ns = NEVER;
        run.budget_end_ns = None;
        run.domain = None;
    }

    /// The task is gone, with its reservation.
    pub(crate) fn exit_task(&mut self, k: &mut Kernel, p: TaskId) {
        k.queue_remove(p);
        self.leave_queue(p);
        self.domain_counts(p, 0, k.now_ns);
        self.release(p);
        let domain = self.tasks[p as usize].domain;
        self.domains.at_mut(domain).tasks -= 1;
    }
}

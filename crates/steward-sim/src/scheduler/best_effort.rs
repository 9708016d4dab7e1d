//! Best-effort work, as in `best_effort.bpf.h`: domains, their queues, quotas, and work bound to one CPU.

use steward_sched::decide::{
    CHARGE_BATCH_NS, Domain, Policy, QUOTA_NONE, ROOT_DOMAIN, SHARE_ONE, SLICE_NS, WEIGHT_SCALE,
    bound_fraction, domain_weight, rescue_allowed, rescue_due, rescue_room, task_cost, task_join,
};

use super::Scheduler;
use crate::event::Event;
use crate::kernel::{Kernel, Queue, TaskId};

/// How many domains are tried that turn out to have nothing to run (`SERVE_ATTEMPTS`).
const SERVE_ATTEMPTS: u32 = 64;
/// How many CPUs are looked at for one to preempt (`PREEMPT_SCAN_MAX`).
const PREEMPT_SCAN_MAX: u32 = 8;
/// How many tasks of a queue are looked at for having waited too long (`OVERDUE_SCAN_MAX`).
const OVERDUE_SCAN_MAX: usize = 4096;
/// How many that stood first in vain are revised before the next one is served as it is (`REVISE_ATTEMPTS`).
const REVISE_ATTEMPTS: u32 = 16;
/// `REFILL_INTERVAL_NS`.
const REFILL_INTERVAL_NS: u64 = 5_000_000;

impl Scheduler {
    /// A cgroup is made: `weight` as in `cpu.weight`. The first one is the root. Returns its index.
    pub(crate) fn domain_init(&mut self, parent: Option<u16>, weight: u32, policy: &Policy) -> u16 {
        let table = &mut self.domains;
        let index = parent.map_or(ROOT_DOMAIN, |_| table.high_water as u16);
        let depth = parent.map_or(0, |parent| table.at(parent).depth + 1);
        let d = table.at_mut(index);
        d.cgroup_id = u64::from(index);
        d.quota_ns = QUOTA_NONE;
        d.cgroup_weight = domain_weight(weight, false);
        d.parent = parent.unwrap_or(0);
        d.depth = depth;
        d.in_use = 1;
        table.set_policy(index, policy);
        table.reset(index);
        table.set_quota(index, 0, QUOTA_NONE, 0, 0);
        table.high_water = u32::from(index) + 1;
        index
    }

    /// Sets `cpu.max` of a domain.
    pub(crate) fn set_quota(&mut self, k: &mut Kernel, domain: u16, quota_ns: u64, period_ns: u64) {
        self.domains.set_quota(domain, period_ns, quota_ns, 0, k.now_ns);
        if self.domains.quotas == 1 {
            k.events.push(k.now_ns + REFILL_INTERVAL_NS, Event::RefillQuotas);
        }
    }

    pub(super) fn domain_make_queued(&mut self, index: u16, now_ns: u64) {
        let d = self.domains.at(index);
        if d.queued == 0 && d.parked == 0 {
            let standing = self.domains.standing(index);
            self.domains.enqueue(index, standing, now_ns);
        }
    }

    /// The domain's queue was found empty, or it is held: take it out of the heap.
    fn domain_make_unqueued(&mut self, index: u16, held: bool) {
        self.domains.dequeue(index);
        if held {
            self.domains.at_mut(index).parked = 1;
        }
    }

    /// A domain pays for CPU time that its tasks got.
    fn pay_domain(&mut self, index: u16, used_ns: u64, now_ns: u64) {
        if used_ns == 0 {
            return;
        }
        self.domains.at_mut(index).used_ns += used_ns;
        let standing = self.domains.standing(index);
        self.domains.charge(index, used_ns, standing, now_ns);
    }

    fn pay_quotas(&mut self, index: u16, used_ns: u64) {
        let mut payer = index;
        while payer != 0 {
            let domain = self.domains.at_mut(payer);
            domain.quota_charge(used_ns);
            payer = domain.parent;
        }
    }

    /// Adds to what the domain owes for this CPU, and lets it pay when that is worth it.
    fn charge_domain(&mut self, index: u16, cpu: u32, used_ns: u64, now_ns: u64) {
        let mut unpaid_ns = used_ns;
        match self.cpu_runs[cpu as usize].unpaid.take() {
            Some((same, before_ns)) if same == index => unpaid_ns += before_ns,
            Some((before, before_ns)) => self.pay_domain(before, before_ns, now_ns),
            None => {}
        }
        if unpaid_ns >= CHARGE_BATCH_NS {
            self.pay_domain(index, unpaid_ns, now_ns);
            unpaid_ns = 0;
        }
        self.cpu_runs[cpu as usize].unpaid = Some((index, unpaid_ns));
    }

    /// Charges best-effort time to the task, its domain and the quotas above it.
    pub(super) fn charge_best_effort(&mut self, p: TaskId, cpu: u32, used_ns: u64, now_ns: u64) {
        let t = &mut self.tasks[p as usize];
        t.vtime += task_cost(used_ns, t.weight);
        let index = t.domain;
        self.charge_domain(index, cpu, used_ns, now_ns);
        if self.domains.quotas > 0 {
            self.pay_quotas(index, used_ns);
        }
    }

    /// Charges time out of a reservation: the task's domain pays for it.
    pub(super) fn charge_reserved(&mut self, p: TaskId, cpu: u32, used_ns: u64, now_ns: u64) {
        let index = self.tasks[p as usize].domain;
        self.domains.at_mut(index).reserved_used_ns += used_ns;
        self.charge_domain(index, cpu, used_ns, now_ns);
    }

    /// Whether a best-effort task that runs is to let another one go before its slice is over; asked at each tick.
    pub(super) fn overtaken(&mut self, p: TaskId, cpu: u32, now_ns: u64) -> bool {
        let run = &self.cpu_runs[cpu as usize];
        if now_ns - run.began_ns < self.preemption_interval_ns {
            return false;
        }
        if run.alone && (self.domains.waiting() > 0 || run.bound_shares > 0) {
            return true;
        }
        let own = self.tasks[p as usize].domain;
        self.domains.first().is_some_and(|first| self.goes_before(first, own))
    }

    /// Makes a CPU choose again that runs a task of a domain which comes after this task's, if one is found near `cpu`.
    pub(super) fn preempt_later_domain(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        let domain = self.tasks[p as usize].domain;
        for distance in 0..PREEMPT_SCAN_MAX.min(k.cpu_count()) {
            let candidate = (cpu + distance) % k.cpu_count();
            let run = &self.cpu_runs[candidate as usize];
            let Some(running) = run.domain else { continue };
            if k.now_ns - run.began_ns >= self.preemption_interval_ns
                && self.goes_before(domain, running)
                && k.task(p).may_run_on(candidate)
            {
                return k.kick(candidate, true);
            }
        }
    }

    pub(super) fn held_by_quota(&self, p: TaskId) -> bool {
        self.domains.quotas > 0 && self.domains.held(self.tasks[p as usize].domain)
    }

    pub(super) fn count_waiting(&mut self, p: TaskId) {
        let t = &mut self.tasks[p as usize];
        if !std::mem::replace(&mut t.counted_waiting, true) {
            let domain = t.domain;
            self.domains.at_mut(domain).waiting += 1;
        }
    }

    /// Puts a task into its domain's queue.
    pub(super) fn enqueue_domain(&mut self, k: &mut Kernel, p: TaskId) {
        let t = &mut self.tasks[p as usize];
        let index = t.domain;
        t.vtime = task_join(t.vtime, self.domains.at(index).task_clock);
        t.waiting_since_ns = k.now_ns;
        let vtime = t.vtime;
        self.count_waiting(p);
        k.queue_insert(p, Queue::Domain(index), SLICE_NS, vtime);
        self.domain_make_queued(index, k.now_ns);
    }

    /// A bound task no longer counts among what its CPU owes to bound work.
    pub(super) fn bound_leaves(&mut self, p: TaskId) {
        let t = &mut self.tasks[p as usize];
        if let Some(cpu) = t.bound_to.take() {
            self.cpu_runs[cpu as usize].bound_shares -= t.bound_share;
        }
    }

    /// Puts a task that may run on this CPU only into the CPU's queue of bound work.
    pub(super) fn enqueue_bound(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        self.bound_leaves(p);
        let t = &mut self.tasks[p as usize];
        let weight = t.weight * WEIGHT_SCALE;
        let beside = self.domains.at(t.domain).runnable_weight.max(weight);
        t.bound_share = self.domains.share(t.domain) * u64::from(weight) / u64::from(beside);
        t.bound_to = Some(cpu);
        let run = &mut self.cpu_runs[cpu as usize];
        run.bound_shares += t.bound_share;
        t.vtime = task_join(t.vtime, run.task_clock);
        t.waiting_since_ns = k.now_ns;
        k.queue_insert(p, Queue::Bound(cpu), SLICE_NS, t.vtime);
    }

    /// Advances the clock of the class that used this CPU.
    pub(super) fn charge_classes(&mut self, k: &Kernel, cpu: u32, bound: bool, used_ns: u64) {
        let run = &mut self.cpu_runs[cpu as usize];
        if run.bound_shares == 0 {
            return;
        }
        let fraction = bound_fraction(run.bound_shares, k.cpu_count());
        if bound {
            run.bound_vtime += used_ns * SHARE_ONE / fraction;
        } else {
            run.floating_vtime += used_ns * SHARE_ONE / (SHARE_ONE - fraction);
        }
    }

    /// A task begins or ceases (weight 0) to count among what is runnable in its domain.
    pub(super) fn domain_counts(&mut self, p: TaskId, weight: u32, now_ns: u64) {
        let t = &mut self.tasks[p as usize];
        let index = t.domain;
        let d = self.domains.at_mut(index);
        let settle = if weight > 0 {
            t.runnable_weight = weight;
            d.runnable_weight += weight * WEIGHT_SCALE;
            d.runnable_changes(true, now_ns)
        } else if t.runnable_weight > 0 {
            d.runnable_weight -= std::mem::take(&mut t.runnable_weight) * WEIGHT_SCALE;
            d.runnable_changes(false, now_ns)
        } else {
            false
        };
        if settle && d.parent != 0 {
            self.domains.settle(index);
        }
    }

    /// Whether a domain that runs has to stand behind now.
    fn runs_behind(&self, running: u16) -> bool {
        self.domains.priorities != 0 && self.domains.standing(running).stands_behind()
    }

    /// Whether a task of a domain that waits is to preempt one of a domain that runs.
    fn goes_before(&self, waiting: u16, running: u16) -> bool {
        waiting != running && self.domains.preempts(waiting, running, self.runs_behind(running))
    }

    fn revise_domain(&mut self, index: u16, now_ns: u64) -> bool {
        let (d, standing) = (self.domains.at(index), self.domains.standing(index));
        if d.queued == 0 || (d.behind == 1) == standing.stands_behind() {
            return false;
        }
        self.domains.dequeue(index);
        self.domains.enqueue(index, standing, now_ns);
        true
    }

    /// Brings the order up to date with what priorities say now of those that may come first.
    fn revise_domains(&mut self, now_ns: u64) {
        if let Some(index) = self.domains.next_behind() {
            self.revise_domain(index, now_ns);
        }
        for _ in 0..REVISE_ATTEMPTS {
            let ahead = self.domains.first().is_some_and(|first| self.revise_domain(first, now_ns));
            let behind = self.domains.first_behind().is_some_and(|first| self.revise_domain(first, now_ns));
            if !ahead && !behind {
                break;
            }
        }
    }

    /// Serves the first domain whose queue yields a task.
    pub(super) fn serve_domains(&mut self, k: &mut Kernel, cpu: u32) -> bool {
        if self.domains.priorities != 0 {
            self.revise_domains(k.now_ns);
        }
        for _ in 0..SERVE_ATTEMPTS {
            let Some(index) = self.domains.first() else { return false };
            let Domain { waiting, .. } = *self.domains.at(index);
            self.domains.serve(index);
            if self.domains.quotas > 0 && self.domains.held(index) {
                self.domain_make_unqueued(index, true);
                continue;
            }
            if waiting > 0 && k.queue_to_local(Queue::Domain(index), cpu) {
                return true;
            }
            self.domain_make_unqueued(index, false);
        }
        false
    }

    /// Whether prev, which could go on, comes before everything that waits in the domains.
    pub(super) fn before_domains(&mut self, k: &Kernel, prev: TaskId) -> bool {
        let t = &self.tasks[prev as usize];
        let (own, vtime) = (t.domain, t.vtime);
        if self.domains.priorities != 0 {
            self.revise_domains(k.now_ns);
        }
        if self.domains.first() == Some(own)
            && let Some(key) = k.queue_first_key(Queue::Domain(own))
        {
            return key >= vtime;
        }
        self.domains.nobody_before(own, self.runs_behind(own))
    }

    /// Brings tasks of one queue that have waited too long to the queue of those to be rescued, at most `room` of them.
    /// Returns how many.
    fn find_overdue(&mut self, k: &mut Kernel, queue: Queue, room: usize) -> usize {
        let now_ns = k.now_ns;
        let due = |p: &TaskId| rescue_due(self.tasks[*p as usize].waiting_since_ns, false, now_ns);
        let overdue: Vec<TaskId> =
            k.queue_tasks(queue).take(OVERDUE_SCAN_MAX).filter(due).take(room).collect();
        let moved = overdue.len();
        for p in overdue {
            k.queue_remove(p);
            k.queue_insert(p, Queue::Rescue, SLICE_NS, 0);
            self.tasks[p as usize].rescued = true;
            self.leave_queue(p);
        }
        moved
    }

    /// Looks through the queues of best-effort work for tasks that have waited too long.
    pub(super) fn find_all_overdue(&mut self, k: &mut Kernel) {
        let mut room = rescue_room(k.queue_len(Queue::Rescue) as u32, k.cpu_count()) as usize;
        for cpu in 0..k.cpu_count() {
            room -= self.find_overdue(k, Queue::Bound(cpu), room);
        }
        // Goes on where the last look ran out of room.
        for _ in 0..self.domains.high_water {
            if room == 0 {
                break;
            }
            let index =
                if self.overdue_cursor < self.domains.high_water as u16 { self.overdue_cursor } else { 0 };
            self.overdue_cursor = index + 1;
            if self.domains.at(index).waiting > 0 {
                room -= self.find_overdue(k, Queue::Domain(index), room);
            }
        }
        self.overdue = k.queue_len(Queue::Rescue) > 0;
    }

    /// Serves one overdue task, if it is time to.
    pub(super) fn serve_overdue(&mut self, k: &mut Kernel, cpu: u32) -> bool {
        if !self.overdue || !rescue_allowed(self.cpu_runs[cpu as usize].rescued_ns, k.now_ns) {
            return false;
        }
        let here = k.queue_tasks(Queue::Rescue).find(|p| k.task(*p).may_run_on(cpu));
        let Some(p) = here else { return false };
        k.queue_remove(p);
        k.give_to(p, cpu);
        self.cpu_runs[cpu as usize].rescued_ns = k.now_ns;
        self.counts.rescued += 1;
        true
    }

    /// Refills quotas and lets parked domains go on.
    pub(crate) fn refill_quotas(&mut self, k: &mut Kernel) {
        let mut released = false;
        for index in 1..self.domains.high_water as u16 {
            released |= self.domains.at_mut(index).quota_refill(k.now_ns);
        }
        for index in 1..self.domains.high_water as u16 {
            if self.domains.at(index).parked == 0 || self.domains.held(index) {
                continue;
            }
            let d = self.domains.at_mut(index);
            d.parked = 0;
            if d.waiting > 0 {
                let standing = self.domains.standing(index);
                self.domains.enqueue(index, standing, k.now_ns);
            }
            released = true;
        }
        // An idle CPU looks for work only when it is told to.
        if released || k.queue_len(Queue::Rescue) > 0 {
            for cpu in 0..k.cpu_count() {
                if k.test_and_clear_idle(cpu) {
                    k.kick(cpu, false);
                }
            }
        }
        k.events.push(k.now_ns + REFILL_INTERVAL_NS, Event::RefillQuotas);
    }
}

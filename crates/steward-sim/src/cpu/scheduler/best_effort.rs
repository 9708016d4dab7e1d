//! Best-effort work, as in `best_effort.bpf.h`: domains, their queues, quotas, and work that may run on some CPUs only.

use steward_sched::decide::{
    CHARGE_BATCH_NS, Order, Policy, QUEUE_SCAN_MAX, ROOT_DOMAIN, Restriction, SLICE_NS, WEIGHT_SCALE,
    domain_weight, rescue_allowed, rescue_begins, rescue_due, rescue_interval_ns, rescue_paid,
    rescue_presses, rescue_room, task_cost, task_join, task_preempts, task_preempts_in, task_spread,
};

use super::state::{CpuRun, Scheduler, TaskState, Unpaid};
use crate::cpu::event::Event;
use crate::cpu::kernel::{Kernel, Queue, TaskId};

/// How many domains are tried that turn out to have nothing to run (`SERVE_ATTEMPTS`).
const SERVE_ATTEMPTS: u32 = 64;
/// How many CPUs are looked at for one to preempt (`PREEMPT_SCAN_MAX`).
const PREEMPT_SCAN_MAX: u32 = 8;
/// `REFILL_INTERVAL_NS`.
const REFILL_INTERVAL_NS: u64 = 5_000_000;

/// What may come next on a CPU: tasks of a domain that may run everywhere, or those that may not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) index: u16,
    pub(super) restricted: bool,
    /// The first domain whose tasks may run everywhere.
    pub(super) free: Option<u16>,
}

impl CpuRun {
    /// Whether the task that runs as best-effort is to let another one of its domain go, whose virtual time this is.
    fn preempted_by(&self, vtime: u64, now_ns: u64) -> bool {
        task_preempts(vtime, self.vtime, now_ns - self.vtime_at_ns, now_ns - self.began_ns, self.weight)
    }

    /// In how many nanoseconds it is to do so, if soon.
    fn preempted_in(&self, vtime: u64, now_ns: u64) -> Option<u64> {
        task_preempts_in(vtime, self.vtime, now_ns - self.vtime_at_ns, now_ns - self.began_ns, self.weight)
    }
}

impl Scheduler {
    /// A cgroup is made: `weight` as in `cpu.weight`. The first one is the root. Returns its index.
    pub(crate) fn domain_init(&mut self, parent: Option<u16>, weight: u32, policy: &Policy) -> u16 {
        let table = &mut self.domains;
        let index = parent.map_or(ROOT_DOMAIN, |_| table.high_water as u16);
        table.at_mut(index).cgroup_id = u64::from(index);
        table.begin(index, parent.unwrap_or(0), domain_weight(weight, false));
        table.set_policy(index, policy);
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
        self.domains.enqueue(index, now_ns);
    }

    /// A domain pays for CPU time that its tasks got on a CPU.
    fn pay_domain(&mut self, unpaid: Unpaid, cpu: u32, now_ns: u64) {
        let Unpaid { index, used_ns, restriction } = unpaid;
        if used_ns == 0 {
            return;
        }
        self.domains.at_mut(index).used_ns += used_ns;
        self.domains.charge_on(&mut self.orders[cpu as usize], restriction, index, used_ns, now_ns);
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
        let restriction = self.cpu_runs[cpu as usize].restriction;
        let mut unpaid = Unpaid { index, used_ns, restriction };
        match self.cpu_runs[cpu as usize].unpaid.take() {
            // What it owes together, of several kinds, is taken for the one that pays for most.
            Some(before) if before.index == index && before.used_ns > 0 => {
                unpaid.used_ns += before.used_ns;
                unpaid.restriction = unpaid.restriction.max(before.restriction);
            }
            Some(before) => self.pay_domain(before, cpu, now_ns),
            None => {}
        }
        if unpaid.used_ns >= CHARGE_BATCH_NS {
            self.pay_domain(unpaid, cpu, now_ns);
            unpaid.used_ns = 0;
        }
        self.cpu_runs[cpu as usize].unpaid = Some(unpaid);
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

    /// Whether anything waits that this CPU may serve.
    pub(super) fn others_wait(&mut self, running: u16, cpu: u32) -> bool {
        if self.orders[cpu as usize].any_restricted != 0 {
            return true;
        }
        let first = self.domains.first();
        first.is_some_and(|first| {
            first != running || self.domains.waiting > 1 || self.domains.at(running).waiting > 0
        })
    }

    /// Before a task goes on in front of others that began without waiting in the order: credit of its domain beyond a
    /// cycle is forgotten, as it is when a domain begins to wait.
    pub(super) fn join_late(&mut self, k: &Kernel, p: TaskId, cpu: u32) {
        let t = &mut self.tasks[p as usize];
        if std::mem::take(&mut t.unjoined) && !self.domains.is_queued(t.domain) {
            let restriction = self.cpu_runs[cpu as usize].restriction;
            self.domains.join(&mut self.orders[cpu as usize], restriction, t.domain, k.now_ns);
        }
    }

    /// Whether a best-effort task that runs is to let another one go before its slice is over; asked at each tick.
    pub(super) fn overtaken(&mut self, k: &Kernel, p: TaskId, cpu: u32) -> bool {
        self.join_late(k, p, cpu);
        let run = &self.cpu_runs[cpu as usize];
        if k.now_ns - run.began_ns < self.preemption_interval_ns {
            return false;
        }
        let own = self.tasks[p as usize].domain;
        if run.alone && self.others_wait(own, cpu) {
            return true;
        }
        let Some(choice) = self.choose_first(k, cpu) else { return false };
        let Choice { index, restricted, .. } = choice;
        if index == own {
            let first = match restricted {
                true => k.queue_first_for(Queue::Restricted(index), cpu).map(|(key, _)| key),
                false => k.queue_first_key(Queue::Domain(index)),
            };
            return first.is_some_and(|vtime| self.cpu_runs[cpu as usize].preempted_by(vtime, k.now_ns));
        }
        self.domains.order != Order::Wrr as u32 && !self.stands_before(own, choice, cpu)
    }

    /// Makes a CPU choose again that runs a task which comes after this one, if one is found near `cpu`.
    pub(super) fn preempt_later(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        let TaskState { domain, vtime, .. } = self.tasks[p as usize];
        for distance in 0..PREEMPT_SCAN_MAX.min(k.cpu_count()) {
            let candidate = (cpu + distance) % k.cpu_count();
            let run = &self.cpu_runs[candidate as usize];
            let Some(running) = run.domain else { continue };
            if k.now_ns - run.began_ns < self.preemption_interval_ns {
                continue;
            }
            let first = if running == domain {
                run.preempted_by(vtime, k.now_ns)
            } else {
                let both = self.is_restricted(k, p) && run.restriction != Restriction::None;
                run.alone || self.goes_before(domain, running, both.then_some(candidate))
            };
            if first && k.task(p).may_run_on(candidate) {
                return k.kick(candidate, true);
            }
        }
        self.preempt_soon(k, p, cpu);
    }

    /// Makes a CPU choose again when a task of this one's domain has run there for long enough, if that is soon: where
    /// it is soonest of the CPUs that were looked at.
    fn preempt_soon(&mut self, k: &mut Kernel, p: TaskId, cpu: u32) {
        let TaskState { domain, vtime, .. } = self.tasks[p as usize];
        let soon = |distance| {
            let candidate = (cpu + distance) % k.cpu_count();
            let run = &self.cpu_runs[candidate as usize];
            if run.domain != Some(domain) || run.budget_end_ns.is_some() || !k.task(p).may_run_on(candidate) {
                return None;
            }
            let least_ns = self.preemption_interval_ns.saturating_sub(k.now_ns - run.began_ns);
            Some((run.preempted_in(vtime, k.now_ns)?.max(least_ns), candidate))
        };
        let soonest =
            (0..PREEMPT_SCAN_MAX.min(k.cpu_count())).filter_map(soon).min_by_key(|(in_ns, _)| *in_ns);
        if let Some((in_ns, candidate)) = soonest {
            self.watch_budget(k, candidate, in_ns);
        }
    }

    pub(crate) fn held_by_quota(&self, p: TaskId) -> bool {
        self.domains.quotas > 0 && self.domains.held(self.tasks[p as usize].domain)
    }

    /// Brings the task to where it joins its domain's queue.
    pub(super) fn join_clock(&mut self, p: TaskId, begins: bool) {
        let random = (self.random.fraction() * f64::from(u32::MAX)) as u32;
        let t = &mut self.tasks[p as usize];
        let d = self.domains.at(t.domain);
        let spread_ns = if begins { task_spread(d, t.weight, random) } else { 0 };
        t.vtime = task_join(t.vtime, d.task_clock, spread_ns);
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
        t.unjoined = false;
        t.waiting_since_ns = k.now_ns;
        let vtime = t.vtime;
        self.count_waiting(p);
        k.queue_insert(p, Queue::Domain(index), SLICE_NS, vtime);
        self.domain_make_queued(index, k.now_ns);
    }

    /// Puts a task that may run on some CPUs only into its domain's queue of such tasks, and lets each of those CPUs
    /// know.
    pub(super) fn enqueue_restricted(&mut self, k: &mut Kernel, p: TaskId) {
        let t = &mut self.tasks[p as usize];
        let index = t.domain;
        t.unjoined = false;
        t.waiting_since_ns = k.now_ns;
        k.queue_insert(p, Queue::Restricted(index), SLICE_NS, t.vtime);
        self.restricted_wait(k, p, index);
    }

    /// A task that may run on some CPUs only waits in its domain's queue of such tasks: lets each of those CPUs know.
    pub(super) fn restricted_wait(&mut self, k: &Kernel, p: TaskId, index: u16) {
        self.tasks[p as usize].restricted_waiting = true;
        let cpu = k.task(p).cpu;
        let restriction = self.restriction(k, p);
        self.domains.join(&mut self.orders[cpu as usize], restriction, index, k.now_ns);
        self.note_restricted(k, index, p);
    }

    fn note_restricted(&mut self, k: &Kernel, index: u16, p: TaskId) {
        for cpu in (0..k.cpu_count()).filter(|cpu| k.task(p).may_run_on(*cpu)) {
            self.orders[cpu as usize].restricted_waits(index);
        }
    }

    /// A task begins or ceases (weight 0) to count among what is runnable in its domain.
    pub(super) fn domain_counts(&mut self, p: TaskId, weight: u32, now_ns: u64) {
        let t = &mut self.tasks[p as usize];
        let index = t.domain;
        let d = self.domains.at_mut(index);
        let settle = if weight > 0 {
            t.runnable_weight = weight;
            d.weight_changes(true, weight * WEIGHT_SCALE);
            d.runnable_changes(true, now_ns)
        } else if t.runnable_weight > 0 {
            d.weight_changes(false, std::mem::take(&mut t.runnable_weight) * WEIGHT_SCALE);
            d.runnable_changes(false, now_ns)
        } else {
            false
        };
        if settle && d.parent != 0 {
            self.domains.settle(index);
        }
    }

    /// Whether a task of a domain that waits is to preempt one of a domain that runs; `few`: on this CPU, and both may
    /// run on some CPUs only.
    fn goes_before(&self, waiting: u16, running: u16, few: Option<u32>) -> bool {
        waiting != running
            && self.domains.order != Order::Wrr as u32
            && self.precedes_running(waiting, running, few)
    }

    /// Whether a domain that waits comes before one that runs.
    fn precedes_running(&self, waiting: u16, running: u16, few: Option<u32>) -> bool {
        self.domains.precedes_running(few.map(|cpu| &*self.orders[cpu as usize]), waiting, running)
    }

    /// Of the tasks that may run everywhere and those that may not, the domain that comes first.
    fn choose_first(&mut self, k: &Kernel, cpu: u32) -> Option<Choice> {
        let free = self.domains.first();
        let order = &mut self.orders[cpu as usize];
        let mut restricted = self.domains.restricted_first(order, free, true);
        if let Some(index) = restricted.filter(|index| free == Some(*index)) {
            let key = k.queue_first_for(Queue::Restricted(index), cpu).map(|(key, _)| key);
            let first = k.queue_first_key(Queue::Domain(index));
            if key.is_none() {
                order.restricted_forget(index);
            }
            // Its first task may run everywhere: others of the few that come before it are not behind that.
            if key.is_none_or(|key| first.is_some_and(|first| first < key)) {
                restricted = self.domains.restricted_first(order, free, false);
            }
        }
        let choice = restricted.map(|index| Choice { index, restricted: true, free });
        choice.or(free.map(|index| Choice { index, restricted: false, free }))
    }

    /// Whether the domain that runs on a CPU comes before what was chosen of another one.
    fn stands_before(&self, running: u16, choice: Choice, cpu: u32) -> bool {
        let both = choice.restricted && self.cpu_runs[cpu as usize].restriction != Restriction::None;
        // Its place among the few is nothing to what may run everywhere.
        let behind = |free: u16| free != running && self.precedes_running(free, running, None);
        let is_behind = both && choice.free.is_some_and(behind);
        !is_behind && !self.precedes_running(choice.index, running, both.then_some(cpu))
    }

    /// Whether prev, which could go on, comes before what was chosen.
    fn goes_on_before(&self, k: &Kernel, prev: TaskId, choice: Choice, cpu: u32) -> bool {
        let TaskState { domain, vtime, .. } = self.tasks[prev as usize];
        if choice.index != domain {
            return self.stands_before(domain, choice, cpu);
        }
        let key = match choice.restricted {
            true => k.queue_first_for(Queue::Restricted(domain), cpu).map(|(key, _)| key),
            false => k.queue_first_key(Queue::Domain(domain)),
        };
        key.is_none_or(|key| key >= vtime)
    }

    /// The clocks follow what a CPU serves.
    pub(super) fn serve(&mut self, choice: Choice, cpu: usize) {
        match choice.restricted {
            true => self.domains.serve_restricted(&mut self.orders[cpu], choice.index),
            false => self.domains.serve(&mut self.orders[cpu], choice.index),
        }
    }

    /// Serves what comes first, if it comes before prev. False when prev goes on, or nothing waits.
    pub(super) fn serve_domains(&mut self, k: &mut Kernel, cpu: u32, prev: Option<TaskId>) -> bool {
        for _ in 0..SERVE_ATTEMPTS {
            let Some(choice) = self.choose_first(k, cpu) else { return false };
            let (index, here) = (choice.index, cpu as usize);
            if let Some(held) = self.domains.held_by(index).filter(|_| self.domains.quotas > 0) {
                match choice.restricted {
                    true => self.orders[here].restricted_forget(index),
                    false => self.domains.park(held),
                }
                continue;
            }
            let queue = if choice.restricted { Queue::Restricted(index) } else { Queue::Domain(index) };
            if prev.is_some_and(|prev| k.queue_len(queue) > 0 && self.goes_on_before(k, prev, choice, cpu)) {
                return false;
            }
            if choice.restricted {
                self.orders[here].restricted_forget(index);
            }
            if k.queue_to_local(queue, cpu) {
                if choice.restricted && k.queue_len(queue) > 0 {
                    self.orders[here].restricted_waits(index);
                }
                self.serve(choice, here);
                return true;
            }
            if !choice.restricted {
                self.domains.dequeue(index);
            }
        }
        false
    }

    /// Brings tasks of one queue that have waited too long to the queue of those to be rescued, at most `room` of them.
    /// Returns how many.
    fn find_overdue(&mut self, k: &mut Kernel, queue: Queue, room: usize) -> usize {
        let now_ns = k.now_ns;
        let due = |p: &TaskId| rescue_due(self.tasks[*p as usize].waiting_since_ns, false, now_ns);
        let overdue: Vec<TaskId> = k.queue_tasks(queue).take(QUEUE_SCAN_MAX).filter(due).take(room).collect();
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
        let waits_since = |p: TaskId| self.tasks[p as usize].waiting_since_ns;
        self.overdue_press =
            k.queue_tasks(Queue::Rescue).next().is_some_and(|p| rescue_presses(waits_since(p), k.now_ns));
        // Goes on where the last look ran out of room.
        for _ in 0..self.domains.high_water {
            if room == 0 {
                break;
            }
            let index =
                if self.overdue_cursor < self.domains.high_water as u16 { self.overdue_cursor } else { 0 };
            self.overdue_cursor = index + 1;
            for queue in [Queue::Domain(index), Queue::Restricted(index)] {
                room -= self.find_overdue(k, queue, room);
            }
        }
        self.overdue = k.queue_len(Queue::Rescue) > 0;
    }

    /// Serves one overdue task, if it is time to or nothing else waits.
    pub(super) fn serve_overdue(&mut self, k: &mut Kernel, cpu: u32, nothing_else: bool) -> bool {
        if !self.overdue {
            return false;
        }
        let last_ns = self.cpu_runs[cpu as usize].rescued_ns;
        let standing = k.queue_len(Queue::Rescue) as u32;
        let interval_ns = rescue_interval_ns(standing, k.cpu_count(), self.overdue_press);
        if !nothing_else && !rescue_allowed(last_ns, interval_ns, k.now_ns) {
            return false;
        }
        let here = k.queue_tasks(Queue::Rescue).find(|p| k.task(*p).may_run_on(cpu));
        let Some(p) = here else { return false };
        k.queue_remove(p);
        k.give_to(p, cpu);
        let run = &mut self.cpu_runs[cpu as usize];
        run.rescued_ns = rescue_begins(last_ns, interval_ns, k.now_ns);
        run.rescue_interval_ns = interval_ns;
        self.counts.rescued += 1;
        true
    }

    /// The turn of a task that was rescued is over, or it goes on because it comes first anyway.
    pub(super) fn end_rescue(&mut self, k: &Kernel, cpu: u32) {
        let run = &mut self.cpu_runs[cpu as usize];
        if std::mem::take(&mut run.rescue) {
            run.rescued_ns = rescue_paid(run.rescued_ns, k.now_ns - run.began_ns, run.rescue_interval_ns);
        }
    }

    /// Refills quotas and lets parked domains go on.
    pub(crate) fn refill_quotas(&mut self, k: &mut Kernel) {
        let mut released = false;
        for index in 1..self.domains.high_water as u16 {
            released |= self.domains.at_mut(index).quota_refill(k.now_ns);
        }
        for index in 1..self.domains.high_water as u16 {
            if self.domains.at(index).throttled == 1 || self.domains.at(index).suspended == 1 {
                continue;
            }
            if self.domains.at(index).parked == 1 {
                self.domains.unpark(index, k.now_ns);
                released = true;
            }
            let restricted: Vec<TaskId> = k.queue_tasks(Queue::Restricted(index)).collect();
            if !restricted.is_empty() && !self.domains.held(index) {
                restricted.into_iter().for_each(|p| self.note_restricted(k, index, p));
                released = true;
            }
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

//! What the scheduler finds in the kernel: tasks, CPUs, ordered queues, timers, and what sched_ext does between its
//! callbacks.
//!
//! Simplified where no decision depends on it: interrupts take no time, a switch takes none, and a kick arrives at
//! once. The timer interrupt is kept, because slices end at it.

use std::collections::{BTreeSet, VecDeque};

use crate::cpu::event::{Event, EventQueue};
use crate::cpu::scenario::CpuSet;

/// Index of a task.
pub(crate) type TaskId = u32;

/// Where a task can wait. The order of the variants means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Interactive tasks of a CPU, by deadline.
    Interactive(u32),
    /// Tasks of a domain that may run on some CPUs only, by virtual time.
    Restricted(u16),
    /// Tasks of a domain that may run everywhere, by virtual time.
    Domain(u16),
    /// Tasks that have waited too long, first come first served.
    Rescue,
}

/// A task as the kernel has it.
#[derive(Debug)]
pub(crate) struct KernelTask {
    pub(crate) cpu: u32,
    /// The CPUs that it may use, if it is pinned.
    pub(crate) pinned: Option<CpuSet>,
    pub(crate) runnable: bool,
    /// When it last became runnable or ceased to be.
    pub(crate) turned_ns: u64,
    /// Time for which it was runnable, up to `turned_ns`.
    pub(crate) ready_ns: u64,
    pub(crate) slice_ns: u64,
    /// CPU time that its program asks for before it does something else.
    pub(crate) wants_ns: u64,
    /// CPU time used since it began.
    pub(crate) used_ns: u64,
    /// When it last became runnable, until it runs.
    pub(crate) woken_ns: Option<u64>,
    /// Since when it could run and does not.
    pub(crate) waits_since_ns: Option<u64>,
    /// The longest that it could run and did not, of such times that are over.
    pub(crate) longest_wait_ns: u64,
    queued: Option<(Queue, u64, u64)>,
}

impl KernelTask {
    pub(crate) fn new(pinned: Option<CpuSet>) -> Self {
        KernelTask {
            cpu: pinned.and_then(|cpus| cpus.first()).unwrap_or(0),
            pinned,
            runnable: false,
            turned_ns: 0,
            ready_ns: 0,
            slice_ns: 0,
            wants_ns: 0,
            used_ns: 0,
            woken_ns: None,
            waits_since_ns: None,
            longest_wait_ns: 0,
            queued: None,
        }
    }

    /// It becomes runnable, or ceases to be.
    pub(crate) fn set_runnable(&mut self, runnable: bool, now_ns: u64) {
        self.ready_ns = self.ready_until(now_ns);
        self.turned_ns = now_ns;
        self.runnable = runnable;
    }

    /// It begins to run.
    pub(crate) fn waits_no_more(&mut self, now_ns: u64) {
        let waited_ns = now_ns - self.waits_since_ns.take().unwrap_or(now_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(waited_ns);
    }

    /// Time for which it was runnable, up to now.
    pub(crate) fn ready_until(&self, now_ns: u64) -> u64 {
        self.ready_ns + if self.runnable { now_ns - self.turned_ns } else { 0 }
    }

    /// The queue in which it stands.
    pub(crate) fn queue(&self) -> Option<Queue> {
        self.queued.map(|(queue, ..)| queue)
    }

    pub(crate) fn may_run_on(&self, cpu: u32) -> bool {
        self.pinned.is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// A CPU as the kernel has it.
#[derive(Debug, Default)]
pub(crate) struct KernelCpu {
    pub(crate) current: Option<TaskId>,
    /// Tasks that were given to this CPU and run next.
    pub(crate) local: VecDeque<TaskId>,
    /// Up to when the running task's time has been taken into account.
    pub(crate) accounted_ns: u64,
    pub(crate) generation: u32,
    pub(crate) tick_pending: bool,
    choose: bool,
    budget_generation: u32,
    /// CPU time given to tasks.
    pub(crate) busy_ns: u64,
}

type OrderedQueue = BTreeSet<(u64, u64, TaskId)>;

/// The machine below the scheduler.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) now_ns: u64,
    pub(crate) tick_ns: u64,
    pub(crate) events: EventQueue,
    pub(crate) tasks: Vec<KernelTask>,
    pub(crate) cpus: Vec<KernelCpu>,
    /// CPUs that are to choose again, once the current event has been dealt with.
    choosing: VecDeque<u32>,
    idle: Vec<u64>,
    interactive: Vec<OrderedQueue>,
    domains: Vec<OrderedQueue>,
    restricted: Vec<OrderedQueue>,
    rescue: OrderedQueue,
    sequence: u64,
}

impl Kernel {
    pub(crate) fn new(cpus: u32, domains: usize, tick_ns: u64) -> Self {
        let count = cpus as usize;
        let mut idle = vec![0; count.div_ceil(64)];
        for cpu in 0..count {
            idle[cpu / 64] |= 1 << (cpu % 64);
        }
        Kernel {
            now_ns: 0,
            tick_ns,
            events: EventQueue::default(),
            tasks: Vec::new(),
            cpus: (0..count).map(|_| KernelCpu::default()).collect(),
            choosing: VecDeque::new(),
            idle,
            interactive: vec![BTreeSet::new(); count],
            domains: vec![BTreeSet::new(); domains],
            restricted: vec![BTreeSet::new(); domains],
            rescue: BTreeSet::new(),
            sequence: 0,
        }
    }

    pub(crate) fn cpu_count(&self) -> u32 {
        self.cpus.len() as u32
    }

    pub(crate) fn task(&self, task: TaskId) -> &KernelTask {
        &self.tasks[task as usize]
    }

    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut KernelTask {
        &mut self.tasks[task as usize]
    }

    pub(crate) fn cpu_mut(&mut self, cpu: u32) -> &mut KernelCpu {
        &mut self.cpus[cpu as usize]
    }

    fn queue(&mut self, queue: Queue) -> &mut OrderedQueue {
        match queue {
            Queue::Interactive(cpu) => &mut self.interactive[cpu as usize],
            Queue::Restricted(index) => &mut self.restricted[index as usize],
            Queue::Domain(index) => &mut self.domains[index as usize],
            Queue::Rescue => &mut self.rescue,
        }
    }

    fn queue_ref(&self, queue: Queue) -> &OrderedQueue {
        match queue {
            Queue::Interactive(cpu) => &self.interactive[cpu as usize],
            Queue::Restricted(index) => &self.restricted[index as usize],
            Queue::Domain(index) => &self.domains[index as usize],
            Queue::Rescue => &self.rescue,
        }
    }

    /// Puts a task into a queue by its key; among equal keys the first one stays first.
    pub(crate) fn queue_insert(&mut self, task: TaskId, queue: Queue, slice_ns: u64, key: u64) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.queue(queue).insert((key, sequence, task));
        let entry = self.task_mut(task);
        entry.slice_ns = slice_ns;
        entry.queued = Some((queue, key, sequence));
    }

    /// Takes a task out of the queue in which it stands.
    pub(crate) fn queue_remove(&mut self, task: TaskId) -> Option<Queue> {
        let (queue, key, sequence) = self.task_mut(task).queued.take()?;
        self.queue(queue).remove(&(key, sequence, task));
        Some(queue)
    }

    pub(crate) fn queue_first_key(&self, queue: Queue) -> Option<u64> {
        self.queue_ref(queue).first().map(|(key, _, _)| *key)
    }

    pub(crate) fn queue_len(&self, queue: Queue) -> usize {
        self.queue_ref(queue).len()
    }

    /// The tasks that stand in a queue, first to last.
    pub(crate) fn queue_tasks(&self, queue: Queue) -> impl Iterator<Item = TaskId> + '_ {
        self.queue_ref(queue).iter().map(|(_, _, task)| *task)
    }

    /// The first task of a queue that may run on this CPU, and its key.
    pub(crate) fn queue_first_for(&self, queue: Queue, cpu: u32) -> Option<(u64, TaskId)> {
        let mut tasks = self.queue_ref(queue).iter();
        tasks.find(|(_, _, task)| self.task(*task).may_run_on(cpu)).map(|(key, _, task)| (*key, *task))
    }

    /// Moves the first task of a queue that may run on this CPU there.
    pub(crate) fn queue_to_local(&mut self, queue: Queue, cpu: u32) -> bool {
        let Some((_, task)) = self.queue_first_for(queue, cpu) else { return false };
        self.queue_remove(task);
        self.give_to(task, cpu);
        true
    }

    /// Gives a task to a CPU, to run there next.
    pub(crate) fn give_to(&mut self, task: TaskId, cpu: u32) {
        self.task_mut(task).cpu = cpu;
        self.cpu_mut(cpu).local.push_back(task);
    }

    pub(crate) fn set_idle(&mut self, cpu: u32, idle: bool) {
        let bit = 1 << (cpu % 64);
        let word = &mut self.idle[cpu as usize / 64];
        *word = if idle { *word | bit } else { *word & !bit };
    }

    /// Claims a CPU if it is idle.
    pub(crate) fn test_and_clear_idle(&mut self, cpu: u32) -> bool {
        let was = self.idle[cpu as usize / 64] & (1 << (cpu % 64)) != 0;
        self.set_idle(cpu, false);
        was
    }

    /// Claims an idle CPU for the task, the one that it used last if possible.
    pub(crate) fn pick_idle_cpu(&mut self, task: TaskId) -> Option<u32> {
        let KernelTask { cpu: last, pinned, .. } = *self.task(task);
        if let Some(cpus) = pinned {
            return cpus.iter().find(|cpu| self.test_and_clear_idle(*cpu));
        }
        if self.test_and_clear_idle(last) {
            return Some(last);
        }
        let word = self.idle.iter().position(|word| *word != 0)?;
        let cpu = word as u32 * 64 + self.idle[word].trailing_zeros();
        self.set_idle(cpu, false);
        Some(cpu)
    }

    /// Makes a CPU choose, at once if it is idle, or in place of what runs there.
    pub(crate) fn kick(&mut self, cpu: u32, preempt: bool) {
        if preempt && let Some(current) = self.cpus[cpu as usize].current {
            self.account(cpu);
            self.task_mut(current).slice_ns = 0;
        }
        self.choose_soon(cpu);
    }

    pub(crate) fn choose_soon(&mut self, cpu: u32) {
        if !std::mem::replace(&mut self.cpu_mut(cpu).choose, true) {
            self.choosing.push_back(cpu);
        }
    }

    /// The next CPU that is to choose.
    pub(crate) fn next_choosing(&mut self) -> Option<u32> {
        let cpu = self.choosing.pop_front()?;
        self.cpu_mut(cpu).choose = false;
        Some(cpu)
    }

    /// Brings the running task's times up to now.
    pub(crate) fn account(&mut self, cpu: u32) {
        let now_ns = self.now_ns;
        let entry = &mut self.cpus[cpu as usize];
        let spent_ns = now_ns - entry.accounted_ns;
        entry.accounted_ns = now_ns;
        let Some(task) = entry.current else { return };
        entry.busy_ns += spent_ns;
        let task = self.task_mut(task);
        task.used_ns += spent_ns;
        task.wants_ns = task.wants_ns.saturating_sub(spent_ns);
        task.slice_ns = task.slice_ns.saturating_sub(spent_ns);
    }

    /// Starts the timer for the end of the budget that runs on a CPU.
    pub(crate) fn start_budget_timer(&mut self, cpu: u32, left_ns: u64) {
        let at_ns = self.now_ns + left_ns;
        let entry = self.cpu_mut(cpu);
        entry.budget_generation = entry.budget_generation.wrapping_add(1);
        let generation = entry.budget_generation;
        self.events.push(at_ns, Event::BudgetEnds { cpu, generation });
    }

    /// Whether a budget timer that fired is the one that was started last.
    pub(crate) fn is_budget_timer(&self, cpu: u32, generation: u32) -> bool {
        self.cpus[cpu as usize].budget_generation == generation
    }

    /// Watches for the end of what the task that runs now wants of the CPU.
    pub(crate) fn watch_phase(&mut self, cpu: u32) {
        let Some(task) = self.cpus[cpu as usize].current else { return };
        let at_ns = self.now_ns.saturating_add(self.task(task).wants_ns);
        let entry = self.cpu_mut(cpu);
        entry.generation = entry.generation.wrapping_add(1);
        let generation = entry.generation;
        if at_ns < u64::MAX {
            self.events.push(at_ns, Event::PhaseDone { cpu, generation });
        }
    }

    /// Makes sure that a busy CPU gets its next timer interrupt; all CPUs' fall on the same moments.
    pub(crate) fn watch_tick(&mut self, cpu: u32) {
        let at_ns = (self.now_ns / self.tick_ns + 1) * self.tick_ns;
        let entry = self.cpu_mut(cpu);
        if !std::mem::replace(&mut entry.tick_pending, true) {
            self.events.push(at_ns, Event::Tick { cpu });
        }
    }
}

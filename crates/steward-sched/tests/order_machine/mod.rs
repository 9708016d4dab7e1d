//! A machine whose CPUs choose anew each quantum, around the order of domains, for the properties of it.

use steward_sched::decide::*;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
pub const CYCLE: u64 = 500 * MS;

/// A domain of a test's tree: the place of its parent among those before it (none: the root), and its policy.
#[derive(Debug, Clone, Copy)]
pub struct Branch {
    pub parent: Option<usize>,
    pub weight: u32,
    pub reserved: f64,
    pub priority: u8,
}

pub fn branch(weight: u32) -> Branch {
    Branch { parent: None, weight, reserved: 0.0, priority: PRIORITY_DEFAULT }
}

pub fn index_of(place: usize) -> u16 {
    ROOT_DOMAIN + 1 + place as u16
}

/// A table with these domains at `ROOT_DOMAIN + 1` and after.
pub fn table(order: Order, cpus: u32, branches: &[Branch]) -> Box<DomainTable> {
    let mut table = DomainTable::new();
    table.cpus = cpus;
    table.set_order(order, CYCLE);
    table.begin(ROOT_DOMAIN, 0, domain_weight(100, false));
    for (place, branch) in branches.iter().enumerate() {
        let index = index_of(place);
        table.begin(index, branch.parent.map_or(ROOT_DOMAIN, index_of), branch.weight);
        let reserved = (branch.reserved * SHARE_ONE as f64) as u32;
        table.set_policy(index, &Policy::new(branch.priority, 0, reserved, PRIORITY_DEFAULT, 0));
    }
    table
}

/// What a task does: for ever CPU time, then time elsewhere (0: never leaves the CPU).
#[derive(Debug, Clone, Copy)]
pub struct Habit {
    pub run_ns: u64,
    pub away_ns: u64,
}

pub const BUSY: Habit = Habit { run_ns: u64::MAX, away_ns: 0 };

#[derive(Debug, Clone)]
pub struct Task {
    pub domain: u16,
    pub habit: Habit,
    /// The CPUs that it may use, by bit.
    pub cpus: u64,
    /// What is left of this turn on the CPU.
    pub left_ns: u64,
    /// When it is back, if it is away.
    pub back_ns: Option<u64>,
    /// Since when it wants the CPU without having it.
    pub waits_since_ns: u64,
    pub on_cpu: bool,
    pub used_ns: u64,
    /// Time with the CPU, and waiting for it.
    pub present_ns: u64,
    pub longest_wait_ns: u64,
}

/// A machine whose CPUs choose anew each quantum, one after the other, as the scheduler does (`best_effort.bpf.h`).
pub struct Machine {
    pub table: Box<DomainTable>,
    pub orders: Vec<Box<CpuOrder>>,
    pub tasks: Vec<Task>,
    pub quantum_ns: u64,
    pub now_ns: u64,
    pub idle_ns: u64,
    /// What each task has used, after each quantum.
    pub record: Vec<Vec<u64>>,
}

impl Machine {
    /// One task in each domain, that may run everywhere.
    pub fn new(table: Box<DomainTable>, habits: &[Habit], quantum_ns: u64) -> Self {
        let tasks: Vec<(u16, Habit, u64)> =
            habits.iter().enumerate().map(|(place, habit)| (index_of(place), *habit, u64::MAX)).collect();
        Machine::with_tasks(table, &tasks, quantum_ns)
    }

    /// Tasks by domain, habit and the CPUs that they may use.
    pub fn with_tasks(table: Box<DomainTable>, tasks: &[(u16, Habit, u64)], quantum_ns: u64) -> Self {
        let tasks = tasks
            .iter()
            .map(|(domain, habit, cpus)| Task {
                domain: *domain,
                habit: *habit,
                cpus: *cpus,
                left_ns: habit.run_ns,
                back_ns: Some(0),
                waits_since_ns: 0,
                on_cpu: false,
                used_ns: 0,
                present_ns: 0,
                longest_wait_ns: 0,
            })
            .collect();
        let orders = (0..table.cpus).map(|_| CpuOrder::new()).collect();
        Machine { table, orders, tasks, quantum_ns, now_ns: 0, idle_ns: 0, record: Vec::new() }
    }

    pub fn all_cpus(&self) -> u64 {
        u64::MAX >> (64 - self.orders.len())
    }

    pub fn is_restricted(&self, task: usize) -> bool {
        self.restriction(task) != Restriction::None
    }

    fn restriction(&self, task: usize) -> Restriction {
        match self.tasks[task].cpus & self.all_cpus() {
            cpus if cpus == self.all_cpus() => Restriction::None,
            cpus if cpus.count_ones() == 1 => Restriction::OneCpu,
            _ => Restriction::SomeCpus,
        }
    }

    pub fn set_runnable(&mut self, task: usize, runnable: bool) {
        let index = self.tasks[task].domain;
        let domain = self.table.at_mut(index);
        let change = if runnable { 1 } else { u32::MAX };
        domain.runnable = domain.runnable.wrapping_add(change);
        domain.weight_changes(runnable, 1000);
        self.table.settle(index);
    }

    /// The task, which was on a CPU if any, waits.
    pub fn queue(&mut self, task: usize, cpu: usize) {
        let index = self.tasks[task].domain;
        if !self.is_restricted(task) {
            self.table.enqueue(index, self.now_ns);
            return;
        }
        let cpus = self.tasks[task].cpus;
        let home = if cpus >> cpu & 1 == 1 { cpu } else { cpus.trailing_zeros() as usize };
        let restriction = self.restriction(task);
        self.table.join(&mut self.orders[home], restriction, index, self.now_ns);
        for (place, order) in self.orders.iter_mut().enumerate() {
            if cpus >> place & 1 == 1 {
                order.restricted_waits(index);
            }
        }
    }

    /// A task of the domain that waits, may run on the CPU, and is restricted or not.
    pub fn waiting(&self, index: u16, cpu: usize, restricted: bool) -> Option<usize> {
        let waits = |task: &usize| {
            let state = &self.tasks[*task];
            state.domain == index
                && state.back_ns.is_none()
                && !state.on_cpu
                && state.cpus >> cpu & 1 == 1
                && self.is_restricted(*task) == restricted
        };
        (0..self.tasks.len()).filter(waits).min_by_key(|task| self.tasks[*task].used_ns)
    }

    /// What the CPU serves next.
    pub fn choose(&mut self, cpu: usize) -> Option<usize> {
        loop {
            let free = self.table.first();
            let restricted = self.table.restricted_first(&mut self.orders[cpu], free, true);
            let of_restricted = restricted.is_some();
            let index = restricted.or(free)?;
            match self.waiting(index, cpu, of_restricted) {
                Some(task) => {
                    match of_restricted {
                        true => self.table.serve_restricted(&mut self.orders[cpu], index),
                        false => self.table.serve(&mut self.orders[cpu], index),
                    }
                    return Some(task);
                }
                None if of_restricted => self.orders[cpu].restricted_forget(index),
                None => self.table.dequeue(index),
            }
        }
    }

    /// One quantum: who is back queues, each CPU serves what comes first, and they pay.
    pub fn step(&mut self) {
        for task in 0..self.tasks.len() {
            if self.tasks[task].back_ns.is_some_and(|back_ns| back_ns <= self.now_ns) {
                (self.tasks[task].back_ns, self.tasks[task].waits_since_ns) = (None, self.now_ns);
                self.set_runnable(task, true);
                self.queue(task, 0);
            }
        }
        let mut served = Vec::new();
        for cpu in 0..self.orders.len() {
            match self.choose(cpu) {
                Some(task) => {
                    self.tasks[task].on_cpu = true;
                    served.push((task, cpu));
                }
                None => self.idle_ns += self.quantum_ns,
            }
        }
        for (task, _) in &served {
            let task = &mut self.tasks[*task];
            task.longest_wait_ns = task.longest_wait_ns.max(self.now_ns - task.waits_since_ns);
        }
        for task in self.tasks.iter_mut().filter(|task| task.back_ns.is_none()) {
            task.present_ns += self.quantum_ns;
        }
        self.now_ns += self.quantum_ns;
        for (task, cpu) in served {
            let used_ns = self.quantum_ns.min(self.tasks[task].left_ns);
            let domain = self.tasks[task].domain;
            let restriction = self.restriction(task);
            self.table.charge_on(&mut self.orders[cpu], restriction, domain, used_ns, self.now_ns);
            let state = &mut self.tasks[task];
            (state.on_cpu, state.waits_since_ns) = (false, self.now_ns);
            state.used_ns += used_ns;
            if state.habit.away_ns > 0 {
                state.left_ns -= used_ns;
            }
            if state.left_ns == 0 {
                (state.left_ns, state.back_ns) =
                    (state.habit.run_ns, Some(self.now_ns + state.habit.away_ns));
                self.set_runnable(task, false);
            } else {
                self.queue(task, cpu);
            }
        }
        self.record.push(self.tasks.iter().map(|task| task.used_ns).collect());
    }

    pub fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            self.step();
        }
    }

    /// What a task was served in each window of this length, from every quantum on.
    pub fn windows(&self, task: usize, length_ns: u64) -> impl Iterator<Item = u64> {
        let steps = (length_ns / self.quantum_ns) as usize;
        self.record
            .iter()
            .zip(&self.record[steps.min(self.record.len())..])
            .map(move |(a, b)| b[task] - a[task])
    }

    /// How far the services of two groups of tasks, each divided by the group's weight, move apart from `from` on: the
    /// widest difference of `used / weight`.
    pub fn distance(&self, groups: [(&[usize], f64); 2], from_ns: u64) -> f64 {
        let part = |used: &[u64], (tasks, weight): (&[usize], f64)| {
            tasks.iter().map(|task| used[*task] as f64).sum::<f64>() / weight
        };
        let (least, most) = self.record[(from_ns / self.quantum_ns) as usize..]
            .iter()
            .map(|used| part(used, groups[0]) - part(used, groups[1]))
            .fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
        most - least
    }
}

//! One CPU and its interactive tasks, as a discrete-event model that calls the EDF rules where steward.bpf.c does:
//! charge and update when a task stops, at the budget timer and at dispatch; update when it starts to run; wake when
//! it becomes runnable; sleep when it blocks.

use steward_sched::decide::EdfTask;

/// Whose wake-up rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    Steward,
    /// Yang 2009, listing 2 as printed, but for line 16: a task that wakes keeps its period.
    PaperWake,
}

/// What a task does when it has the CPU.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Never gives it up.
    Greedy,
    /// Runs and sleeps in turn, over and over.
    Sleeper { turns: Vec<Turn> },
}

#[derive(Debug, Clone, Copy)]
pub struct Turn {
    pub run_ns: u64,
    pub sleep_ns: u64,
    pub voluntary: bool,
}

#[derive(Debug, Clone)]
pub struct TaskSpec {
    pub budget_ns: u64,
    pub period_ns: u64,
    pub phase_ns: u64,
    pub behaviour: Behaviour,
    /// It announces a request so often, also while it is not served; the scheduler sees that when it looks.
    pub announces_every_ns: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct ModelTask {
    pub spec: TaskSpec,
    pub edf: EdfTask,
    /// Reserved service: from when to when, and the sum up to then.
    pub served: Vec<(u64, u64, u64)>,
    /// Begin and end of each period that was assigned.
    pub periods: Vec<(u64, u64)>,
    pub served_ns: u64,
    runnable: bool,
    wakes_at: u64,
    turn: usize,
    run_left_ns: u64,
    announced: u64,
}

impl ModelTask {
    fn new(spec: TaskSpec) -> Self {
        let run_left_ns = match &spec.behaviour {
            Behaviour::Greedy => u64::MAX,
            Behaviour::Sleeper { turns } => turns[0].run_ns,
        };
        Self {
            edf: EdfTask::default(),
            served: vec![],
            periods: vec![],
            served_ns: 0,
            runnable: false,
            wakes_at: spec.phase_ns,
            turn: 0,
            run_left_ns,
            announced: 0,
            spec,
        }
    }

    /// Reserved service in `[from, to)`.
    pub fn service_between(&self, from: u64, to: u64) -> u64 {
        self.service_until(to) - self.service_until(from)
    }

    fn service_until(&self, at: u64) -> u64 {
        let begun = self.served.partition_point(|(from, _, _)| *from < at);
        let Some((_, to, sum)) = begun.checked_sub(1).map(|last| self.served[last]) else { return 0 };
        sum - to.saturating_sub(at)
    }

    fn has_announced(&self, now_ns: u64) -> bool {
        self.spec.announces_every_ns.is_some_and(|every_ns| now_ns / every_ns != self.announced)
    }

    /// The scheduler looks whether it has announced a request.
    fn look(&mut self, now_ns: u64) {
        if !self.has_announced(now_ns) {
            return;
        }
        self.announced = now_ns / self.spec.announces_every_ns.expect("it announces");
        self.edf.announce(now_ns);
        self.note_period();
    }

    fn note_period(&mut self) {
        let period = (self.edf.start_ns, self.edf.deadline_ns);
        if self.periods.last() != Some(&period) {
            self.periods.push(period);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Interactive,
    BestEffort,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    task: usize,
    mode: Mode,
    since_ns: u64,
    /// What preemption compares with: the deadline when it began to run.
    deadline_ns: u64,
    budget_end_ns: u64,
}

pub struct OneCpu {
    pub now_ns: u64,
    pub tasks: Vec<ModelTask>,
    rules: Rules,
    /// How late the budget timer fires, used in turn.
    lateness_ns: Vec<u64>,
    timers: usize,
    running: Option<Running>,
    best_effort_turn: usize,
}

const NEVER: u64 = u64::MAX;
/// At each tick it is looked whether the running task has announced a request.
pub const TICK_NS: u64 = 1_000_000;

impl OneCpu {
    /// `lateness_ns` must not be empty; its largest element is the enforcement's grain.
    pub fn new(specs: Vec<TaskSpec>, rules: Rules, lateness_ns: Vec<u64>) -> Self {
        let tasks = specs.into_iter().map(ModelTask::new).collect();
        Self { now_ns: 0, tasks, rules, lateness_ns, timers: 0, running: None, best_effort_turn: 0 }
    }

    /// Runs up to `end_ns`, calling `check` after every event.
    pub fn run_until(&mut self, end_ns: u64, mut check: impl FnMut(&ModelTask)) {
        while self.now_ns < end_ns {
            let next_ns = self.next_event().min(end_ns);
            let spent_ns = next_ns - self.now_ns;
            if let Some(running) = self.running {
                let task = &mut self.tasks[running.task];
                task.run_left_ns = task.run_left_ns.saturating_sub(spent_ns);
            }
            self.now_ns = next_ns;
            self.handle_event();
            self.tasks.iter().for_each(&mut check);
        }
        if let Some(running) = self.running {
            self.charge(running);
        }
    }

    fn next_event(&self) -> u64 {
        let mut next_ns = NEVER;
        for task in &self.tasks {
            if !task.runnable {
                next_ns = next_ns.min(task.wakes_at);
            } else if task.edf.start_ns > self.now_ns {
                next_ns = next_ns.min(task.edf.start_ns);
            }
        }
        if let Some(running) = self.running {
            next_ns = next_ns.min(running.budget_end_ns);
            next_ns = next_ns.min(self.now_ns.saturating_add(self.tasks[running.task].run_left_ns));
            if self.tasks[running.task].spec.announces_every_ns.is_some() {
                next_ns = next_ns.min((self.now_ns / TICK_NS + 1) * TICK_NS);
            }
        }
        next_ns
    }

    fn handle_event(&mut self) {
        let now_ns = self.now_ns;
        let mut choose = self.running.is_none();
        if let Some(running) = self.running {
            if self.tasks[running.task].run_left_ns == 0 {
                self.block(running);
                choose = true;
            } else if running.budget_end_ns <= now_ns {
                choose = true;
            } else if running.mode == Mode::Interactive {
                choose = now_ns.is_multiple_of(TICK_NS) && self.tasks[running.task].has_announced(now_ns);
            }
        }
        for index in 0..self.tasks.len() {
            let deadline_of_running = self.running.map_or(NEVER, |running| running.deadline_ns);
            let is_running = self.running.is_some_and(|running| running.task == index);
            let task = &mut self.tasks[index];
            if !task.runnable && task.wakes_at == now_ns {
                wake(task, now_ns, self.rules);
            } else if !task.runnable || task.edf.start_ns != now_ns || is_running {
                // Neither a wake-up nor the begin of a period; the running task's own is looked at below.
                choose |= is_running && task.edf.start_ns == now_ns;
                continue;
            }
            choose |= task.edf.eligible(now_ns) && task.edf.deadline_ns < deadline_of_running;
        }
        if choose {
            self.dispatch();
        }
    }

    /// The running task gives the CPU up and sleeps: `stopping`.
    fn block(&mut self, running: Running) {
        self.charge(running);
        self.running = None;
        let now_ns = self.now_ns;
        let task = &mut self.tasks[running.task];
        let Behaviour::Sleeper { turns } = &task.spec.behaviour else {
            unreachable!("a greedy task never blocks")
        };
        let turn = turns[task.turn];
        task.turn = (task.turn + 1) % turns.len();
        task.run_left_ns = turns[task.turn].run_ns;
        task.runnable = false;
        task.wakes_at = now_ns + turn.sleep_ns;
        task.edf.sleep(turn.voluntary);
    }

    fn charge(&mut self, running: Running) {
        let now_ns = self.now_ns;
        let used_ns = now_ns - running.since_ns;
        if let Some(current) = &mut self.running {
            current.since_ns = now_ns;
        }
        let task = &mut self.tasks[running.task];
        if used_ns > 0 && running.mode == Mode::Interactive {
            task.served_ns += used_ns;
            task.served.push((running.since_ns, now_ns, task.served_ns));
            task.edf.charge(used_ns);
            task.edf.update(now_ns);
            task.note_period();
        }
        task.look(now_ns);
    }

    /// The running task goes on if it comes first; else the first of the others starts.
    fn dispatch(&mut self) {
        let now_ns = self.now_ns;
        if let Some(running) = self.running {
            self.charge(running);
        }
        let previous = self.running.take().map(|running| running.task);
        let first = (0..self.tasks.len())
            .filter(|index| self.tasks[*index].runnable && self.tasks[*index].edf.eligible(now_ns))
            .min_by_key(|index| (self.tasks[*index].edf.deadline_ns, Some(*index) != previous));
        if let Some(index) = first {
            let task = &mut self.tasks[index];
            if previous != first {
                task.edf.update(now_ns);
                task.note_period();
            }
            if task.edf.eligible(now_ns) {
                return self.start(index, Mode::Interactive);
            }
        }
        // What is left over goes to those whose budget is spent, in turn.
        let runnable: Vec<usize> =
            (0..self.tasks.len()).filter(|index| self.tasks[*index].runnable).collect();
        if !runnable.is_empty() {
            self.best_effort_turn += 1;
            self.start(runnable[self.best_effort_turn % runnable.len()], Mode::BestEffort);
        }
    }

    fn start(&mut self, task: usize, mode: Mode) {
        let edf = &self.tasks[task].edf;
        let (deadline_ns, budget_end_ns) = match mode {
            Mode::Interactive => {
                self.timers += 1;
                let late_ns = self.lateness_ns[self.timers % self.lateness_ns.len()];
                (edf.deadline_ns, self.now_ns + edf.left_ns.max(1) as u64 + late_ns)
            }
            Mode::BestEffort => (NEVER, NEVER),
        };
        self.running = Some(Running { task, mode, since_ns: self.now_ns, deadline_ns, budget_end_ns });
    }
}

fn wake(task: &mut ModelTask, now_ns: u64, rules: Rules) {
    task.runnable = true;
    if task.edf.budget_ns == 0 {
        task.edf = EdfTask::begin(task.spec.budget_ns, task.spec.period_ns, now_ns);
    } else if rules == Rules::Steward {
        task.edf.wake(now_ns);
    } else {
        task.edf.update(now_ns);
    }
    task.note_period();
}

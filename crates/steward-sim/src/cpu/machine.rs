//! The machine: takes events in order, lets tasks do what their programs say, and asks the scheduler.

use steward_core::cpu::mechanism::DomainRecord;

use crate::cpu::event::Event;
use crate::cpu::kernel::{Kernel, KernelTask, TaskId};
use crate::cpu::measure::Measured;
use crate::cpu::program::{Buffer, Disk, Next, Progress};
use crate::cpu::scenario::Scenario;
use crate::cpu::scheduler::{Enqueued, Scheduler};
use crate::random::Random;

/// A task that ends without having taken any time so often in a row is an error of the scenario.
const STEPS_WITHOUT_TIME_MAX: u32 = 100_000;

/// A task beside what kernel and scheduler know of it.
#[derive(Debug)]
pub(crate) struct Task {
    progress: Progress,
    /// Index of its entry in the scenario.
    pub(crate) entry: u32,
    pub(crate) domain: u16,
    pub(crate) started_ns: Option<u64>,
    pub(crate) ended: bool,
    frame: u64,
    /// When its last frame ended, from when measuring began.
    pub(crate) last_frame_ns: Option<u64>,
    /// `used_ns` when measuring began.
    pub(crate) used_before_ns: u64,
}

/// A discrete-event machine that runs one scenario.
pub struct Machine {
    pub(crate) scenario: Scenario,
    pub(crate) kernel: Kernel,
    pub(crate) scheduler: Scheduler,
    pub(crate) tasks: Vec<Task>,
    pub(crate) measured: Vec<Measured>,
    pub(crate) measured_from_ns: u64,
    pub(crate) busy_before_ns: u64,
    pub(crate) disk: Disk,
    buffers: Vec<Buffer>,
    /// The index in the table of domains of each domain of the scenario.
    pub(crate) domains: Vec<u16>,
}

impl Machine {
    /// Sets the machine up: domains, tasks and reservations as the scenario has them.
    pub fn new(scenario: &Scenario) -> Self {
        let scenario = scenario.clone();
        let settings = &scenario.machine;
        let mut kernel = Kernel::new(settings.cpus, scenario.domains.len() + 2, settings.tick_ns);
        let mut scheduler = Scheduler::new(settings.cpus, scenario.thresholds, &scenario.best_effort);
        let domains = make_domains(&scenario, &mut scheduler, &mut kernel);
        let buffers = scenario
            .buffers
            .iter()
            .map(|buffer| Buffer { capacity: buffer.capacity, level: buffer.level, ..Buffer::default() })
            .collect();
        let measured = scenario.tasks.iter().map(|_| Measured::new()).collect();
        scheduler.start_sampler(&mut kernel);
        let mut machine = Machine {
            kernel,
            scheduler,
            tasks: Vec::new(),
            measured,
            measured_from_ns: 0,
            busy_before_ns: 0,
            disk: Disk::default(),
            buffers,
            domains,
            scenario,
        };
        machine.make_tasks();
        if machine.scenario.warmup_ns > 0 {
            machine.kernel.events.push(machine.scenario.warmup_ns, Event::MeasureFromHere);
        }
        machine
    }

    fn make_tasks(&mut self) {
        let scenario = self.scenario.clone();
        for (entry, spec) in scenario.tasks.iter().enumerate() {
            for copy in 0..spec.count {
                let id = self.tasks.len() as TaskId;
                let domain = spec.domains[copy as usize % spec.domains.len()];
                let domain = domain.map_or(steward_sched::decide::ROOT_DOMAIN, |index| self.domains[index]);
                let random = Random::new(scenario.seed, (entry as u64) << 32 | u64::from(copy));
                let mut progress =
                    Progress::new(spec.programs[copy as usize % spec.programs.len()].clone(), random);
                let start_ns = progress.draw(spec.starts[copy as usize % spec.starts.len()]);
                self.tasks.push(Task {
                    progress,
                    entry: entry as u32,
                    domain,
                    started_ns: None,
                    ended: false,
                    frame: 0,
                    last_frame_ns: None,
                    used_before_ns: 0,
                });
                self.kernel.tasks.push(KernelTask::new(spec.pinned));
                self.scheduler.init_task(domain, spec.weight);
                self.kernel.events.push(start_ns, Event::Wake { task: id });
            }
        }
    }

    /// CPU time that the tasks of a domain, without those below it, have used and waited for so far, in nanoseconds. A
    /// wait counts once it is over. `None` if there is no domain of that name.
    pub fn domain_times(&self, name: &str) -> Option<(u64, u64)> {
        let place = self.scenario.domains.iter().position(|domain| domain.name == name)?;
        let index = self.domains[place];
        let own = self.tasks.iter().zip(&self.kernel.tasks).filter(|(task, _)| task.domain == index);
        let used_ns = own.map(|(_, kernel_task)| kernel_task.used_ns).sum();
        Some((used_ns, self.scheduler.domains.at(index).waited_ns))
    }

    /// The id of a domain in [`Machine::domain_records`].
    pub fn cgroup_id(&self, name: &str) -> Option<u64> {
        let place = self.scenario.domains.iter().position(|domain| domain.name == name)?;
        Some(self.scheduler.domains.at(self.domains[place]).cgroup_id)
    }

    /// What the scheduler counts for all domains, as a mechanism gives it.
    pub fn domain_records(&self) -> Vec<DomainRecord> {
        let table = &self.scheduler.domains;
        let indices = (1..table.high_water as u16).filter(|index| table.at(*index).in_use == 1);
        indices.map(|index| steward_sched::domain_record(table, index, self.kernel.now_ns)).collect()
    }

    /// How often a CPU has chosen what to run next.
    pub fn decisions(&self) -> u64 {
        self.scheduler.counts.decisions
    }

    /// Runs up to a moment, in nanoseconds from the start.
    pub fn run_until(&mut self, end_ns: u64) {
        while self.step(end_ns) {}
    }

    /// Lets the next thing happen that is due by a moment, and every CPU choose that is to because of it. False when
    /// there was none: then it is that moment.
    pub fn step(&mut self, end_ns: u64) -> bool {
        if let Some(at_ns) = self.kernel.events.next_ns().filter(|at_ns| *at_ns <= end_ns) {
            self.kernel.now_ns = at_ns;
            if let Some((_, event)) = self.kernel.events.pop() {
                self.handle(event);
            }
            while let Some(cpu) = self.kernel.next_choosing() {
                self.choose(cpu);
            }
            return true;
        }
        self.kernel.now_ns = end_ns;
        for cpu in 0..self.kernel.cpu_count() {
            self.kernel.account(cpu);
        }
        false
    }

    fn handle(&mut self, event: Event) {
        let (kernel, scheduler) = (&mut self.kernel, &mut self.scheduler);
        match event {
            Event::Wake { task } => self.wake(task),
            Event::PhaseDone { cpu, generation } => self.phase_done(cpu, generation),
            Event::Tick { cpu } => self.tick(cpu),
            Event::BudgetEnds { cpu, generation } => {
                if kernel.is_budget_timer(cpu, generation) {
                    scheduler.budget_ends(kernel, cpu);
                }
            }
            Event::PeriodBegins { slot, generation } => scheduler.period_begins(kernel, slot, generation),
            Event::RefillQuotas => scheduler.refill_quotas(kernel),
            Event::Sample => scheduler.take_sample(kernel),
            Event::DiskDone => self.disk_done(),
            Event::MeasureFromHere => self.measure_from_here(),
        }
    }

    fn measure_from_here(&mut self) {
        let now_ns = self.kernel.now_ns;
        self.measured_from_ns = now_ns;
        for cpu in 0..self.kernel.cpu_count() {
            self.kernel.account(cpu);
        }
        self.busy_before_ns = self.kernel.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        self.disk.busy_ns = 0;
        // What became of reservations is of interest from the start.
        self.scheduler.counts.decisions = 0;
        self.scheduler.counts.rescued = 0;
        for (task, kernel_task) in self.tasks.iter_mut().zip(&self.kernel.tasks) {
            task.used_before_ns = kernel_task.used_ns;
            task.last_frame_ns = None;
        }
        self.measured.fill_with(Measured::new);
    }

    /// The task becomes runnable, in the order of the kernel's calls.
    fn wake(&mut self, p: TaskId) {
        let task = &mut self.tasks[p as usize];
        if task.started_ns.is_none() {
            task.started_ns = Some(self.kernel.now_ns);
            let entry = &self.scenario.tasks[task.entry as usize];
            if let Some((reservation, revocable)) = entry.reservation {
                self.scheduler.adopt(&mut self.kernel, p, reservation, revocable, entry.user);
            }
        }
        let wants_ns = match task.progress.is_to_run().then(|| task.progress.step()) {
            Some(Next::Run(ns)) => ns,
            // It is woken to do something that takes no time.
            _ => 0,
        };
        let now_ns = self.kernel.now_ns;
        let entry = self.kernel.task_mut(p);
        entry.set_runnable(true, now_ns);
        entry.wants_ns = wants_ns;
        entry.woken_ns = Some(now_ns);
        entry.waits_since_ns = Some(now_ns);
        let given = self.scheduler.select_cpu(&mut self.kernel, p);
        if !given {
            self.scheduler.enqueue(&mut self.kernel, p, Enqueued::Woken);
        }
    }

    fn tick(&mut self, cpu: u32) {
        self.kernel.cpu_mut(cpu).tick_pending = false;
        let Some(current) = self.kernel.cpus[cpu as usize].current else { return };
        self.kernel.account(cpu);
        self.scheduler.tick(&mut self.kernel, current, cpu);
        if self.kernel.task(current).slice_ns == 0 {
            self.kernel.choose_soon(cpu);
        }
        self.kernel.watch_tick(cpu);
    }

    /// The CPU chooses what to run, as the kernel does between the scheduler's callbacks.
    fn choose(&mut self, cpu: u32) {
        let kernel = &mut self.kernel;
        kernel.account(cpu);
        let prev = kernel.cpus[cpu as usize].current;
        let goes_on = |kernel: &Kernel| prev.is_some_and(|prev| kernel.task(prev).slice_ns > 0);
        if goes_on(kernel) {
            return;
        }
        if kernel.cpus[cpu as usize].local.is_empty() {
            self.scheduler.dispatch(kernel, cpu, prev);
        }
        let next = kernel.cpu_mut(cpu).local.pop_front();
        if next.is_none() && goes_on(kernel) {
            return;
        }
        if let Some(prev) = prev {
            self.scheduler.stopping(kernel, prev, cpu);
            kernel.cpu_mut(cpu).current = None;
            kernel.task_mut(prev).waits_since_ns = Some(kernel.now_ns);
            let why = if next.is_some() { Enqueued::SliceOver } else { Enqueued::Last };
            self.scheduler.enqueue(kernel, prev, why);
        }
        match next {
            Some(next) => self.start(cpu, next),
            None => kernel.set_idle(cpu, true),
        }
    }

    fn start(&mut self, cpu: u32, p: TaskId) {
        let kernel = &mut self.kernel;
        kernel.set_idle(cpu, false);
        kernel.cpu_mut(cpu).current = Some(p);
        let now_ns = kernel.now_ns;
        kernel.task_mut(p).waits_no_more(now_ns);
        if let Some(woken_ns) = kernel.task_mut(p).woken_ns.take()
            && woken_ns >= self.measured_from_ns
        {
            let entry = self.tasks[p as usize].entry as usize;
            self.measured[entry].wake(now_ns - woken_ns);
        }
        self.scheduler.running(kernel, p, cpu);
        kernel.watch_phase(cpu);
        kernel.watch_tick(cpu);
    }

    /// The task that runs on the CPU has used what it wanted.
    fn phase_done(&mut self, cpu: u32, generation: u32) {
        if self.kernel.cpus[cpu as usize].generation != generation {
            return;
        }
        self.kernel.account(cpu);
        let Some(p) = self.kernel.cpus[cpu as usize].current else { return };
        if self.kernel.task(p).wants_ns > 0 {
            return;
        }
        match self.proceed(p) {
            After::Runs => self.kernel.watch_phase(cpu),
            After::Waits { voluntary } => {
                self.leave_cpu(p, cpu);
                self.scheduler.ceases(&self.kernel, p, voluntary);
            }
            After::Ended => {
                self.leave_cpu(p, cpu);
                self.tasks[p as usize].ended = true;
                self.scheduler.exit_task(&mut self.kernel, p);
            }
        }
    }

    fn leave_cpu(&mut self, p: TaskId, cpu: u32) {
        self.scheduler.stopping(&mut self.kernel, p, cpu);
        let now_ns = self.kernel.now_ns;
        self.kernel.task_mut(p).set_runnable(false, now_ns);
        let entry = self.kernel.cpu_mut(cpu);
        entry.current = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.kernel.choose_soon(cpu);
    }

    /// Takes the program's next steps up to one that takes time.
    fn proceed(&mut self, p: TaskId) -> After {
        let now_ns = self.kernel.now_ns;
        for _ in 0..STEPS_WITHOUT_TIME_MAX {
            match self.tasks[p as usize].progress.step() {
                Next::Run(0) => {}
                Next::Run(ns) => {
                    self.kernel.task_mut(p).wants_ns = ns;
                    return After::Runs;
                }
                Next::Sleep(ns) => {
                    self.kernel.events.push(now_ns.saturating_add(ns), Event::Wake { task: p });
                    return After::Waits { voluntary: true };
                }
                Next::Wait(ns) => {
                    self.kernel.events.push(now_ns.saturating_add(ns), Event::Wake { task: p });
                    return After::Waits { voluntary: false };
                }
                Next::Disk(ns) => {
                    if let Some(service_ns) = self.disk.submit(p, ns) {
                        self.kernel.events.push(now_ns.saturating_add(service_ns), Event::DiskDone);
                    }
                    return After::Waits { voluntary: false };
                }
                Next::FrameDone(period_ns) => {
                    let begins_ns = self.frame_done(p, period_ns);
                    if begins_ns > now_ns {
                        self.kernel.events.push(begins_ns, Event::Wake { task: p });
                        return After::Waits { voluntary: true };
                    }
                }
                Next::Put(buffer) => match self.buffers[buffer as usize].put(p) {
                    Some(woken) => woken.into_iter().for_each(|task| self.wake_now(task)),
                    None => return After::Waits { voluntary: true },
                },
                Next::Take(buffer) => match self.buffers[buffer as usize].take(p) {
                    Some(woken) => woken.into_iter().for_each(|task| self.wake_now(task)),
                    None => return After::Waits { voluntary: true },
                },
                Next::IterationDone => {
                    self.measured[self.tasks[p as usize].entry as usize].iterations += 1;
                }
                Next::Exit => return After::Ended,
            }
        }
        After::Ended
    }

    /// A frame ended. Returns when the next one begins.
    fn frame_done(&mut self, p: TaskId, period_ns: u64) -> u64 {
        let now_ns = self.kernel.now_ns;
        let task = &mut self.tasks[p as usize];
        task.frame += 1;
        let next_begins_ns =
            task.started_ns.unwrap_or(0).saturating_add(task.frame.saturating_mul(period_ns));
        let at_ns = now_ns - self.measured_from_ns;
        let before_ns = task.last_frame_ns.replace(at_ns);
        self.measured[task.entry as usize].frame(at_ns, before_ns, now_ns > next_begins_ns);
        next_begins_ns
    }

    /// Wakes a task once the current step is complete.
    fn wake_now(&mut self, task: TaskId) {
        self.kernel.events.push(self.kernel.now_ns, Event::Wake { task });
    }

    fn disk_done(&mut self) {
        let Some((task, next_ns)) = self.disk.complete() else { return };
        if let Some(next_ns) = next_ns {
            self.kernel.events.push(self.kernel.now_ns.saturating_add(next_ns), Event::DiskDone);
        }
        self.wake(task);
    }
}

/// What a task does after its program's steps.
enum After {
    Runs,
    Waits { voluntary: bool },
    Ended,
}

fn make_domains(scenario: &Scenario, scheduler: &mut Scheduler, kernel: &mut Kernel) -> Vec<u16> {
    let mut indices: Vec<u16> = Vec::new();
    for domain in &scenario.domains {
        let parent = domain.parent.map_or(steward_sched::decide::ROOT_DOMAIN, |parent| indices[parent]);
        let index = scheduler.domain_init(Some(parent), domain.weight, &domain.policy());
        if let Some((quota_ns, period_ns)) = domain.quota {
            scheduler.set_quota(kernel, index, quota_ns, period_ns);
        }
        indices.push(index);
    }
    indices
}

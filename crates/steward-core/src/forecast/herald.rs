//! The herald: takes what the kernel counts, and answers with the forecasts of all tasks and domains.

use super::history::{History, Usage};
use super::tree::{NONE, Outlook, Scene, Shape};
use super::{DomainSample, Forecast, Model, TaskSample};

/// What the kernel counted lately, for all tasks.
///
/// ```
/// use steward_core::forecast::{Herald, Model};
///
/// let mut herald = Herald::new();
/// herald.observe(100_000_000, Vec::new());
/// let report = herald.forecasts(Model::Steward, 2, &[]);
/// assert_eq!(report.machine.potential_ms_per_s, 2000.0);
/// ```
#[derive(Debug, Default)]
pub struct Herald {
    pub(super) history: History,
    tasks: Vec<TaskSample>,
    busy_now: f64,
}

/// The forecasts at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When, in nanoseconds of the clock that the observations came with.
    pub at_ns: u64,
    /// Over how long the figures of the past are, in nanoseconds: about a second, less after the start, and 0 when there was
    /// only one observation yet.
    pub window_ns: u64,
    /// One for each of [`Herald::tasks`], in their order.
    pub tasks: Vec<Forecast>,
    /// One for each domain given, in their order.
    pub domains: Vec<DomainFigures>,
    /// All tasks together; the potential is all CPUs'.
    pub machine: Forecast,
    /// For each task the index of its domain among those given, or of the root.
    homes: Vec<u32>,
    /// For each domain the index of its parent.
    parents: Vec<u32>,
}

/// A domain's forecast: its tasks and those below it together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DomainFigures {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// How many tasks are in it and below it.
    pub tasks: u32,
    /// How many of them run or wait for a CPU now.
    pub runnable: u32,
    /// Sums over its tasks, but for the potential: the most that the domain could get if it wanted everything.
    pub forecast: Forecast,
}

impl Herald {
    /// A herald that knows nothing yet.
    pub fn new() -> Self {
        Herald::default()
    }

    /// Takes all tasks of the machine as they were at a moment, in any order. The figures are best when it is called about
    /// every 100 ms; two observations make a first window.
    ///
    /// A clock that goes back, or ahead by more than 10 s, starts anew; so does a single task whose counters go back.
    pub fn observe(&mut self, at_ns: u64, mut tasks: Vec<TaskSample>) {
        if !tasks.is_sorted_by_key(|task| task.tid) {
            tasks.sort_unstable_by_key(|task| task.tid);
        }
        // One that was met twice while the tasks were walked.
        tasks.dedup_by_key(|task| task.tid);
        self.history.observe(at_ns, &self.tasks, &tasks);
        self.tasks = tasks;
        self.busy_now = self.history.busy();
    }

    /// The tasks of the latest observation, ordered by thread id.
    pub fn tasks(&self) -> &[TaskSample] {
        &self.tasks
    }

    /// When the latest observation was; `None` before the first.
    pub fn at_ns(&self) -> Option<u64> {
        self.history.at_ns()
    }

    /// Forecasts for all tasks, and for these domains, as the scheduler described by `model` divides `cpus` CPUs. What
    /// `domains` say now holds, whatever was in force when the tasks were observed.
    pub fn forecasts(&self, model: Model, cpus: u32, domains: &[DomainSample]) -> Report {
        let shape = Shape::new(domains);
        let homes = self.homes(&shape);
        let usages = self.history.usages(&self.tasks);
        let scene = Scene {
            model,
            cpus: f64::from(cpus),
            domains,
            shape: &shape,
            tasks: &self.tasks,
            usages: &usages,
            homes: &homes,
        };
        let mut outlook = scene.outlook();
        self.lose_as_before(&mut outlook, &usages, f64::from(cpus));
        self.report(cpus, domains, shape, homes, &usages, &outlook)
    }

    /// The index of each task's domain; the root's for those whose cgroup was not given.
    fn homes(&self, shape: &Shape) -> Vec<u32> {
        let mut last = (0, shape.root);
        let home = |task: &TaskSample| {
            if last.0 != task.cgroup_id {
                last = (task.cgroup_id, shape.find(task.cgroup_id).unwrap_or(shape.root));
            }
            last.1
        };
        self.tasks.iter().map(home).collect()
    }

    /// Even on a machine that is not full, tasks meet and wait for each other. What was lost that way is expected to be
    /// lost again, by those who lost it: as much as keeps the sum at what the machine hands out.
    fn lose_as_before(&self, outlook: &mut Outlook, usages: &[Usage], cpus: f64) {
        let given: f64 = usages.iter().map(|usage| usage.actual).sum();
        let handed_out = given.max(self.busy_now).min(cpus);
        let predicted: f64 = outlook.tasks.iter().map(|(predicted, _)| predicted).sum();
        let missed = |((predicted, _), usage): (&(f64, f64), &Usage)| (predicted - usage.actual).max(0.0);
        let missing: f64 = outlook.tasks.iter().zip(usages).map(missed).sum();
        if predicted <= handed_out || missing <= 0.0 {
            return;
        }
        let part = ((predicted - handed_out) / missing).min(1.0);
        for ((predicted, _), usage) in outlook.tasks.iter_mut().zip(usages) {
            *predicted -= part * (*predicted - usage.actual).max(0.0);
        }
    }

    fn report(
        &self,
        cpus: u32,
        domains: &[DomainSample],
        shape: Shape,
        homes: Vec<u32>,
        usages: &[Usage],
        outlook: &Outlook,
    ) -> Report {
        let capacity = f64::from(cpus) * 1000.0;
        let forecast = |(usage, (predicted, potential)): (&Usage, &(f64, f64))| Forecast {
            actual_ms_per_s: usage.actual * 1000.0,
            desired_ms_per_s: usage.desired * 1000.0,
            predicted_ms_per_s: predicted * 1000.0,
            potential_ms_per_s: potential * 1000.0,
        };
        let tasks: Vec<Forecast> = usages.iter().zip(&outlook.tasks).map(forecast).collect();
        let mut figures: Vec<DomainFigures> = vec![DomainFigures::default(); shape.parents.len()];
        let mut machine = Forecast::default();
        for ((task, forecast), home) in self.tasks.iter().zip(&tasks).zip(&homes) {
            add(&mut machine, forecast);
            let mut at = *home;
            while at != NONE {
                let domain = &mut figures[at as usize];
                domain.tasks += 1;
                domain.runnable += u32::from(task.runnable);
                add(&mut domain.forecast, forecast);
                at = shape.parents[at as usize];
            }
        }
        machine.potential_ms_per_s = capacity;
        bound(&mut machine, capacity);
        for (index, domain) in figures.iter_mut().enumerate() {
            domain.cgroup_id = domains.get(index).map_or(0, |domain| domain.cgroup_id);
            domain.forecast.potential_ms_per_s = outlook.domains[index] * 1000.0;
            bound(&mut domain.forecast, capacity);
        }
        figures.truncate(domains.len());
        Report {
            at_ns: self.history.at_ns().unwrap_or(0),
            window_ns: self.history.window_ns(),
            tasks,
            domains: figures,
            machine,
            homes,
            parents: shape.parents,
        }
    }
}

impl Report {
    /// Whether the task with this index is in the domain with that index, or below it.
    pub fn is_in(&self, task: usize, domain: usize) -> bool {
        let mut at = self.homes.get(task).copied().unwrap_or(NONE);
        while at != NONE {
            if at as usize == domain {
                return true;
            }
            at = self.parents[at as usize];
        }
        false
    }

    /// The index of the task's domain: the root where its cgroup is not one of those given, `None` when the root is not either.
    pub fn home(&self, task: usize) -> Option<usize> {
        self.homes.get(task).map(|home| *home as usize).filter(|home| *home < self.domains.len())
    }

    /// The tasks whose index `chosen` takes, together. Their potential is what they get and what nobody takes.
    pub fn sum(&self, mut chosen: impl FnMut(usize) -> bool) -> Forecast {
        let mut sum = Forecast::default();
        for (index, forecast) in self.tasks.iter().enumerate() {
            if chosen(index) {
                add(&mut sum, forecast);
            }
        }
        let capacity = self.machine.potential_ms_per_s;
        sum.potential_ms_per_s =
            sum.predicted_ms_per_s + (capacity - self.machine.predicted_ms_per_s).max(0.0);
        bound(&mut sum, capacity);
        sum
    }

    /// All tasks outside of the domain with this index, together.
    pub fn outside(&self, domain: usize) -> Forecast {
        self.sum(|task| !self.is_in(task, domain))
    }
}

fn add(sum: &mut Forecast, more: &Forecast) {
    sum.actual_ms_per_s += more.actual_ms_per_s;
    sum.desired_ms_per_s += more.desired_ms_per_s;
    sum.predicted_ms_per_s += more.predicted_ms_per_s;
}

/// Rates of tasks that began within the window are of their own lifetimes, and may sum to more than there is.
fn bound(sum: &mut Forecast, capacity: f64) {
    sum.actual_ms_per_s = sum.actual_ms_per_s.min(capacity);
    sum.predicted_ms_per_s = sum.predicted_ms_per_s.min(capacity);
    sum.potential_ms_per_s = sum.potential_ms_per_s.min(capacity).max(sum.predicted_ms_per_s);
}

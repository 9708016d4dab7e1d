//! The herald: takes what the kernel counts, and answers with the forecasts of all tasks and domains.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::history::{Active, History, LIFE_MIN_NS};
use super::terms::{
    Changed, DomainCounters, DomainSample, Forecast, Model, SchedulingClass, TaskReading, TaskSample,
};
use super::tree::{Outlook, Scene, Shape, Vacancies};

/// What a task uses until the scheduler charges it may be so much, in nanoseconds.
const UNCHARGED_NS: f64 = 20e6;
/// Of less than this, in CPUs, the slowdown says little.
const LITTLE: f64 = 0.01;
/// Who wants less than this, in milliseconds of CPU time per second, is not looked at alone.
const WANTED_MIN_MS_PER_S: f64 = 5.0;
/// Who is slower by less than this is not slowed.
const SLOWED_MIN: f64 = 1.01;

/// What the kernel counted lately, for all tasks.
///
/// ```
/// use steward_core::cpu::forecast::{Herald, Model};
///
/// let mut herald = Herald::new();
/// herald.observe(100_000_000, Vec::new());
/// let report = herald.forecasts(Model::Steward, 2, &[]);
/// assert_eq!(report.machine.potential_ms_per_s, 2000.0);
/// ```
#[derive(Debug, Default)]
pub struct Herald {
    pub(super) history: History,
    tasks: Arc<Vec<TaskSample>>,
    /// Places of those that something is reserved for, since it was told last.
    reserved: Vec<usize>,
    /// How many tasks are in each cgroup itself, by its id.
    crowds: BTreeMap<u64, u32>,
    busy_now: f64,
}

/// The forecasts at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When, in nanoseconds of the clock that the observations came with.
    pub at_ns: u64,
    /// Over how long the figures of the past are, in nanoseconds: about a second, less after the start, and 0 when
    /// there was only one observation yet.
    pub window_ns: u64,
    /// One for each domain given, in their order.
    pub domains: Vec<DomainFigures>,
    /// All tasks together; the potential is all CPUs'. Where the idle time is known the actual is all that was not
    /// idle, exactly: what interrupts and tasks that have ended used counts as well, as something that was wanted and
    /// that will be used again.
    pub machine: Forecast,
    /// All tasks, ordered by thread id.
    samples: Arc<Vec<TaskSample>>,
    /// Those that are active: their places among all, ascending, and their forecasts.
    active: Vec<(u32, Forecast)>,
    vacancies: Vacancies,
    shape: Shape,
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
    /// Sums over its tasks, with those that ended where the scheduler counts what they used
    /// ([`Herald::set_domain_counters`]), but for the potential: the most that the domain could get if it wanted
    /// everything.
    pub forecast: Forecast,
}

impl Herald {
    /// A herald that knows nothing yet.
    pub fn new() -> Self {
        Herald::default()
    }

    /// Takes all tasks of the machine as they were at a moment, in any order. The figures are best when it is called
    /// about every 100 ms; two observations make a first window.
    ///
    /// A clock that goes back, or ahead by more than 10 s, starts anew; so does a single task whose counters go back.
    pub fn observe(&mut self, at_ns: u64, mut tasks: Vec<TaskSample>) {
        if !tasks.is_sorted_by_key(|task| task.tid) {
            tasks.sort_unstable_by_key(|task| task.tid);
        }
        // One that was met twice while the tasks were walked.
        tasks.dedup_by_key(|task| task.tid);
        self.history.observe(at_ns, &tasks);
        self.crowds.clear();
        for crowd in tasks.chunk_by(|one, next| one.cgroup_id == next.cgroup_id) {
            *self.crowds.entry(crowd[0].cgroup_id).or_default() += crowd.len() as u32;
        }
        self.tasks = Arc::new(tasks);
        self.reserved.clear();
        self.busy_now = self.history.busy();
    }

    /// The same with what a source has read, which knows what of it has changed. Every reading of a source has to come
    /// here, or go to [`Herald::observe`], for what it says about changes to hold.
    pub fn take(&mut self, reading: &TaskReading<'_>) {
        let at_ns = reading.at_ns;
        let places = match reading.changed {
            Changed::At(places) if reading.tasks.len() == self.tasks.len() => places,
            _ => return self.observe(at_ns, reading.tasks.to_vec()),
        };
        if !self.history.advance(at_ns, reading.tasks, places) {
            return self.observe(at_ns, reading.tasks.to_vec());
        }
        let tasks = Arc::make_mut(&mut self.tasks);
        for place in places.iter().map(|place| *place as usize) {
            let (before, now) = (tasks[place].cgroup_id, reading.tasks[place].cgroup_id);
            if before != now {
                self.crowds.entry(before).and_modify(|tasks| *tasks = tasks.saturating_sub(1));
                *self.crowds.entry(now).or_default() += 1;
            }
            tasks[place] = reading.tasks[place];
        }
        self.busy_now = self.history.busy();
    }

    /// Says for how long CPUs have been idle since some moment, summed over all CPUs, in nanoseconds: with the latest
    /// observation.
    pub fn set_idle(&mut self, idle_ns: u64) {
        self.history.set_idle(idle_ns);
    }

    /// Says what the scheduler has counted for domains by the latest observation.
    pub fn set_domain_counters(&mut self, domains: impl Iterator<Item = DomainCounters>) {
        self.history.set_domain_counters(domains.collect());
    }

    /// Says what is promised to tasks themselves: thread ids, and the fraction of one CPU for each. It holds for the
    /// tasks of the latest observation, in place of what their samples say.
    pub fn set_reserved(&mut self, reserved: impl Iterator<Item = (i32, f64)>) {
        let tasks = Arc::make_mut(&mut self.tasks);
        for place in self.reserved.drain(..) {
            tasks[place].reserved = 0.0;
        }
        for (tid, fraction) in reserved {
            if let Ok(place) = tasks.binary_search_by_key(&tid, |task| task.tid) {
                tasks[place].reserved = fraction;
                self.reserved.push(place);
            }
        }
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
        let active = self.history.active(&self.tasks, |cgroup_id| shape.home(cgroup_id));
        let scene = Scene {
            model,
            cpus: f64::from(cpus),
            domains,
            shape: &shape,
            tasks: &self.tasks,
            active: &active,
        };
        let mut outlook = scene.outlook();
        self.lose_as_before(&mut outlook, &active, f64::from(cpus));
        self.report(cpus, domains, shape, &active, outlook)
    }

    /// Even on a machine that is not full, tasks meet and wait for each other. What was lost that way is expected to be
    /// lost again, by those who lost it: as much as keeps the sum at what the machine hands out.
    fn lose_as_before(&self, outlook: &mut Outlook, active: &[Active], cpus: f64) {
        let given: f64 = active.iter().map(|task| task.usage.actual).sum();
        let handed_out = given.max(self.busy_now).min(cpus);
        let predicted: f64 = outlook.tasks.iter().map(|(predicted, _)| predicted).sum();
        let missed =
            |((predicted, _), task): (&(f64, f64), &Active)| (predicted - task.usage.actual).max(0.0);
        let missing: f64 = outlook.tasks.iter().zip(active).map(missed).sum();
        if predicted <= handed_out || missing <= 0.0 {
            return;
        }
        let part = ((predicted - handed_out) / missing).min(1.0);
        for ((predicted, _), task) in outlook.tasks.iter_mut().zip(active) {
            *predicted -= part * (*predicted - task.usage.actual).max(0.0);
        }
    }

    /// Where a domain's tasks end and begin, what is there at one moment says little about the whole: its figures
    /// become means over the window, with what ended tasks used as the scheduler counted it.
    fn add_ended(
        &self,
        figures: &mut [DomainFigures],
        domains: &[DomainSample],
        shape: &Shape,
        active: &[Active],
        outlook: &Outlook,
        cpus: u32,
    ) {
        let mut means = vec![Means::default(); figures.len()];
        for rate in self.history.domain_rates() {
            let home = &mut means[shape.home(rate.cgroup_id) as usize];
            home.used += rate.used;
            home.runnable += rate.runnable;
        }
        if means.iter().all(|means| means.used == 0.0) {
            return;
        }
        let window_ns = self.history.window_ns();
        for task in active {
            let home = &mut means[task.home as usize];
            let (used, wanted) =
                (task.usage.actual * task.usage.known, task.usage.desired * task.usage.known);
            if self.tasks[task.place as usize].class == SchedulingClass::RealTime {
                home.real_time_used += used;
                home.real_time_wanted += wanted;
            } else {
                home.seen += used;
                home.wanted += wanted;
                if task.usage.known * window_ns as f64 > LIFE_MIN_NS as f64 {
                    home.judged += used;
                    home.judged_wanted += wanted;
                }
            }
        }
        let mut suspended = vec![false; figures.len()];
        for index in shape.order.iter().map(|index| *index as usize) {
            suspended[index] = domains.get(index).is_some_and(|domain| domain.suspended)
                || suspended.get(shape.parents[index] as usize).is_some_and(|above| *above);
            let Some(ended) = means[index].ended(window_ns, f64::from(cpus)) else { continue };
            let (sum, potential) = (figures[index].forecast, outlook.domains[index] * 1000.0);
            let forecast = means[index].forecast(ended, sum, potential);
            let predicted =
                if suspended[index] { sum.predicted_ms_per_s } else { forecast.predicted_ms_per_s };
            figures[index].forecast = Forecast { predicted_ms_per_s: predicted, ..forecast };
        }
    }

    fn report(
        &self,
        cpus: u32,
        domains: &[DomainSample],
        shape: Shape,
        active: &[Active],
        outlook: Outlook,
    ) -> Report {
        let capacity = f64::from(cpus) * 1000.0;
        let mut figures: Vec<DomainFigures> = vec![DomainFigures::default(); shape.parents.len()];
        for (cgroup_id, tasks) in &self.crowds {
            figures[shape.home(*cgroup_id) as usize].tasks += tasks;
        }
        let mut machine = Forecast::default();
        let mut forecasts = Vec::with_capacity(active.len());
        for (task, (predicted, potential)) in active.iter().zip(&outlook.tasks) {
            let forecast = Forecast {
                actual_ms_per_s: task.usage.actual * 1000.0,
                desired_ms_per_s: task.usage.desired * 1000.0,
                predicted_ms_per_s: predicted * 1000.0,
                potential_ms_per_s: potential * 1000.0,
            };
            let home = &mut figures[task.home as usize];
            home.runnable += u32::from(self.tasks[task.place as usize].runnable);
            add(&mut home.forecast, &forecast);
            add(&mut machine, &forecast);
            forecasts.push((task.place, forecast));
        }
        self.add_ended(&mut figures, domains, &shape, active, &outlook, cpus);
        for &index in shape.order.iter().rev() {
            let below = figures[index as usize];
            if let Some(above) = figures.get_mut(shape.parents[index as usize] as usize) {
                above.tasks += below.tasks;
                above.runnable += below.runnable;
                add(&mut above.forecast, &below.forecast);
            }
        }
        if let Some(idle) = self.history.idle() {
            // Exact, where the rates of tasks with short lives sum to more or less.
            machine.actual_ms_per_s = (capacity - idle * 1000.0).clamp(0.0, capacity);
            for figure in [&mut machine.desired_ms_per_s, &mut machine.predicted_ms_per_s] {
                *figure = figure.max(machine.actual_ms_per_s);
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
            domains: figures,
            machine,
            samples: Arc::clone(&self.tasks),
            active: forecasts,
            vacancies: outlook.vacancies,
            shape,
        }
    }
}

/// What is known of a domain's own tasks in the mean over the window.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    /// What the scheduler counted, for those that ended, too.
    used: f64,
    runnable: f64,
    /// What those that are there now used and wanted of it.
    seen: f64,
    wanted: f64,
    /// The same of those that have lived long enough to tell how much slower it was than on an idle machine.
    judged: f64,
    judged_wanted: f64,
    /// The same of real-time tasks, which the scheduler does not count.
    real_time_used: f64,
    real_time_wanted: f64,
}

impl Means {
    /// What they used that those which are there now do not account for; `None` if that may be what is not charged yet.
    fn ended(&self, window_ns: u64, cpus: f64) -> Option<f64> {
        let uncharged = UNCHARGED_NS / window_ns.max(1) as f64 * self.runnable.min(cpus).max(1.0);
        Some(self.used - self.seen).filter(|ended| *ended > uncharged)
    }

    /// The forecast of a domain of which that much has ended: what it got will be got again, by others like those.
    fn forecast(&self, ended: f64, sum: Forecast, potential_ms_per_s: f64) -> Forecast {
        // The ended ones had it as those that are there. Where these are as young as the others became, they are taken
        // to compute.
        let computing = (self.runnable / self.used).max(1.0);
        let slowdown =
            if self.judged < LITTLE { computing } else { (self.judged_wanted / self.judged).min(computing) };
        let actual_ms_per_s = (self.used + self.real_time_used) * 1000.0;
        let desired = self.wanted + ended * slowdown + self.real_time_wanted;
        let desired_ms_per_s = (desired * 1000.0).max(actual_ms_per_s);
        let predicted_ms_per_s = sum.predicted_ms_per_s.max(actual_ms_per_s.min(potential_ms_per_s));
        Forecast {
            actual_ms_per_s,
            desired_ms_per_s,
            predicted_ms_per_s: predicted_ms_per_s.min(desired_ms_per_s),
            ..sum
        }
    }
}

impl Report {
    /// All tasks that it is about, ordered by thread id: their places are those that the other functions take.
    pub fn samples(&self) -> &[TaskSample] {
        &self.samples
    }

    /// The forecast of the task at this place.
    ///
    /// # Panics
    /// When there are not so many tasks.
    pub fn task(&self, place: usize) -> Forecast {
        match self.active.binary_search_by_key(&(place as u32), |(active, _)| *active) {
            Ok(index) => self.active[index].1,
            Err(_) => {
                let sample = &self.samples[place];
                let potential = self.vacancies.potential(self.shape.home(sample.cgroup_id), sample);
                Forecast { potential_ms_per_s: potential * 1000.0, ..Forecast::default() }
            }
        }
    }

    /// The forecasts of all tasks, in their order.
    pub fn tasks(&self) -> impl Iterator<Item = Forecast> {
        (0..self.samples.len()).map(|place| self.task(place))
    }

    /// The index of the task's domain: the root where its cgroup is not one of those given, `None` when the root is not
    /// either.
    pub fn home(&self, place: usize) -> Option<usize> {
        let home = self.shape.home(self.samples.get(place)?.cgroup_id) as usize;
        Some(home).filter(|home| *home < self.domains.len())
    }

    /// For each task, by its place, whether it is in the domain with this index, or below it.
    pub fn members(&self, domain: usize) -> impl Fn(usize) -> bool {
        let Shape { parents, order, .. } = &self.shape;
        let mut inside = vec![false; parents.len()];
        for index in order.iter().map(|index| *index as usize) {
            inside[index] =
                index == domain || inside.get(parents[index] as usize).is_some_and(|above| *above);
        }
        move |place| inside[self.shape.home(self.samples[place].cgroup_id) as usize]
    }

    /// The tasks whose places `chosen` takes, together. Their potential is what they get and what nobody takes.
    pub fn sum(&self, chosen: impl Fn(usize) -> bool) -> Forecast {
        let mut sum = Forecast::default();
        for (place, forecast) in &self.active {
            if chosen(*place as usize) {
                add(&mut sum, forecast);
            }
        }
        let capacity = self.machine.potential_ms_per_s;
        sum.potential_ms_per_s =
            sum.predicted_ms_per_s + (capacity - self.machine.predicted_ms_per_s).max(0.0);
        bound(&mut sum, capacity);
        sum
    }

    /// Those of the tasks whose places `chosen` takes that had less of the CPU than they wanted, slowest first, by
    /// their places, and how many times slower they were. Only those that have been there for the whole window and want
    /// 5 ms of a second or more.
    pub fn slowed(&self, chosen: impl Fn(usize) -> bool) -> Vec<(usize, f64)> {
        let was_there = |place: usize| self.samples[place].started_ns + self.window_ns <= self.at_ns;
        let mut slowed: Vec<(usize, f64)> = self
            .active
            .iter()
            .map(|(place, forecast)| (*place as usize, forecast))
            .filter(|(_, forecast)| forecast.desired_ms_per_s >= WANTED_MIN_MS_PER_S)
            .filter_map(|(place, forecast)| Some((place, forecast.slowdown()?)))
            .filter(|(place, slowdown)| *slowdown >= SLOWED_MIN && was_there(*place) && chosen(*place))
            .collect();
        slowed.sort_by(|one, other| other.1.total_cmp(&one.1));
        slowed
    }

    /// All tasks outside of the domain with this index, together.
    pub fn outside(&self, domain: usize) -> Forecast {
        let is_inside = self.members(domain);
        self.sum(|place| !is_inside(place))
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

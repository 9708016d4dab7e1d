//! The daemon's state, and what happens to it: start, change of specifications, loss of the scheduler, stop.
//!
//! Requests of clients are in [`crate::server::dispatch`]; the loop that waits is in [`crate::turn`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use steward_core::cpu::best_effort::BestEffortOrder;
use steward_core::cpu::config::MechanismChoice;
use steward_core::cpu::mechanism::MechanismKind;
use steward_core::cpu::plan;
use steward_core::cpu::reservation::Reservation;
use steward_core::domain::{Machine, Names};
use steward_core::problem::{Origin, Problem};
use steward_kernel::{Roots, memory};

use crate::cpu::audit::Audit;
use crate::cpu::mechanisms::Loader;
use crate::cpu::state::{Applied, Cpu};
use crate::disk::knobs::Knobs;
use crate::disk::state::Disk;
use crate::domains::cgroups::Cgroups;
use crate::domains::declared::{self, Declarations};
use crate::domains::{Domains, Held as HeldDomain, Told};
use crate::files::accounts::AccountFiles;
use crate::files::settings::{self, Settings};
use crate::files::specs::{self, LastGood, Loaded};
use crate::files::state::StateFile;
use crate::health::{Health, Topic};
use crate::memory::audit::Audit as MemoryAudit;
use crate::memory::state::Memory;
use crate::programs::complaints::Complaints;
use crate::programs::running::Running;
use crate::programs::table::Ids;
use crate::server::history::History;
use crate::server::polkit::Polkit;
use crate::server::report;
use crate::server::texts::Texts;
use crate::turn::worker::{About, Outcome, Worker};

mod waiting;

/// What the daemon reserves for itself with Steward's scheduler, so that it answers while everything else is starved.
/// Past its budget it shares what is left; SCHED_DEADLINE would stop it there, so that whoever makes it work makes all
/// others wait, and there it has a nice value instead ([`OWN_NICE`]).
pub const OWN_RESERVATION: Reservation = Reservation { budget_ns: 1_000_000, period_ns: 100_000_000 };

/// What the thread that keeps memory for protected domains has of its own while any is protected: a look at what is
/// free each 20 ms, and a tenth of a CPU for who takes it while that is little (`memory/manager/holds.rs`). Without, it
/// stands behind each domain that has not run lately, for 300 ms beside two of them, and that is what one needs to take
/// all that is free.
pub const MEMORY_RESERVATION: Reservation = Reservation { budget_ns: 2_000_000, period_ns: 20_000_000 };

/// How long a request waits for the worker to limit memory. What takes longer goes on beside the loop, and the domain
/// says so.
const MEMORY_PATIENCE: Duration = Duration::from_millis(20);

/// Where things are and what was asked for on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Directories of specifications, lowest precedence first; at most three.
    pub spec_directories: Vec<PathBuf>,
    /// Directories of rules about who may ask for what, lowest precedence first; at most three.
    pub rule_directories: Vec<PathBuf>,
    /// Directories of files that declare domains, lowest precedence first; at most three.
    pub domain_directories: Vec<PathBuf>,
    /// Where what must survive a restart is kept.
    pub state_directory: PathBuf,
    /// Where the FIFOs are by which programs are told that they should give memory back.
    pub pressure_directory: PathBuf,
    /// Goes before the configuration's choice.
    pub mechanism: Option<MechanismChoice>,
    /// Goes before the configuration's order among domains.
    pub best_effort: Option<BestEffortOrder>,
    /// The kernel's trees.
    pub roots: Roots,
    /// The program that asks polkit: [`crate::server::polkit::PROGRAM`].
    pub polkit: PathBuf,
    /// The program that asks systemd ([`crate::memory::scopes::PROGRAM`]); `None` where process 1 is not systemd.
    pub systemd: Option<PathBuf>,
    /// What the daemon reserves for itself, or has a better nice value for; `None` leaves it an ordinary program.
    pub own_reservation: Option<Reservation>,
    /// The same for the thread that keeps memory for protected domains.
    pub memory_reservation: Option<Reservation>,
    /// For how long cgroups go on handing the disk out after the last domain for which they began to, in nanoseconds:
    /// [`crate::disk::HANDED_OUT_FOR_NS`].
    pub disk_handed_out_for_ns: u64,
}

/// Where things stand, as a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    mechanism: Option<MechanismKind>,
    specs: usize,
    problems: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mechanism {
            Some(kind) => write!(formatter, "{kind} in force")?,
            None => formatter.write_str("nothing in force")?,
        }
        write!(formatter, "; specifications: {}; problems: {}", self.specs, self.problems)
    }
}

/// The daemon without its socket.
pub struct Daemon {
    pub(crate) options: Options,
    pub(crate) cpu: Cpu,
    pub(crate) memory: Memory,
    pub(crate) disk: Disk,
    pub(crate) settings: Settings,
    last_settings: settings::LastGood,
    pub(crate) loaded: Loaded,
    pub(crate) ids: Ids,
    pub(crate) domains: Domains,
    domain_state: StateFile<HeldDomain>,
    declarations: Declarations,
    /// What is declared and cannot be done.
    unfulfilled: Vec<Problem>,
    spec_state: StateFile<LastGood>,
    /// Which programs run that specifications give more than CPU time.
    pub(crate) running: Running,
    /// What processes complained of, as sums.
    pub(crate) complaints: Complaints,
    pub(crate) health: Health,
    pub(crate) polkit: Polkit,
    pub(crate) worker: Worker,
    pub(crate) history: History,
    pub(crate) texts: Texts,
    pub(crate) events_lost: u64,
    /// Whether the rules, or who the owner is, changed since those who listen were held against them.
    pub(crate) rules_changed: bool,
    /// How many there were of each kind, by its name in the log.
    pub(crate) decisions: BTreeMap<&'static str, u64>,
}

impl Daemon {
    /// Reads everything, loads the mechanism and puts the specifications in force, for programs that run already
    /// too. `cgroups` is the tree that domains are in, or why there is none; `disk` writes what is about disks.
    ///
    /// # Errors
    /// When no mechanism can be loaded. Nothing is in force then.
    pub fn start(
        options: Options,
        loader: Loader,
        cgroups: Result<Box<dyn Cgroups>, String>,
        disk: Arc<dyn Knobs>,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let boot_id = options.roots.proc.join("sys/kernel/random/boot_id");
        let boot_id = std::fs::read_to_string(boot_id).unwrap_or_default();
        let state = StateFile::new(&options.state_directory, &boot_id);
        let mut last_settings = settings::LastGood::default();
        let settings = settings::load(&options.config, &options.rule_directories, &mut last_settings);
        let spec_state = StateFile::new(&options.state_directory, &boot_id);
        let (last_good, spec_message) = spec_state.load();
        let mut ids = Ids::default();
        let loaded = specs::load(&options.spec_directories, &mut ids, &options.roots, &last_good);
        let (by_hand, message) = state.load();
        let polkit = Polkit::new(&options.polkit)?;
        let domain_state = StateFile::new(&options.state_directory, &boot_id);
        let (held, domain_message) = domain_state.load();
        let domains = domains_of(cgroups, &settings, &options.roots);
        let (audit, audit_message) = Audit::load(&options.state_directory, &boot_id);
        let (memory_audit, memory_messages) = MemoryAudit::load(&options.state_directory, &boot_id);
        let memory =
            Memory::new(&options.roots, memory_audit, options.systemd.clone(), &options.pressure_directory)?;
        let mut daemon = Daemon {
            options,
            cpu: Cpu::new(loader, state, by_hand, audit),
            memory,
            disk: Disk::new(disk),
            settings,
            last_settings,
            loaded,
            ids,
            domains,
            domain_state,
            declarations: Declarations::default(),
            unfulfilled: Vec::new(),
            spec_state,
            running: Running::default(),
            complaints: Complaints::default(),
            health: Health::default(),
            polkit,
            worker: Worker::new()?,
            history: History::default(),
            texts: Texts::default(),
            events_lost: 0,
            rules_changed: false,
            decisions: BTreeMap::new(),
        };
        let messages = [message, domain_message, audit_message, spec_message];
        let messages = messages.into_iter().flatten().chain(memory_messages);
        daemon.health.set(Topic::State, messages.collect());
        if daemon.loaded.last_good != last_good {
            daemon.save_last_good();
        }
        daemon.domains.restore(held);
        daemon.running.want(daemon.specs_are_about_programs());
        daemon.read_calibrations();
        daemon.read_declarations();
        daemon.log_problems();
        let files_read = begun.elapsed();
        daemon.load_first_mechanism()?;
        let loaded = begun.elapsed();
        daemon.put_in_force();
        tracing::debug!(
            decision = "started",
            files_ms = files_read.as_millis(),
            mechanism_ms = (loaded - files_read).as_millis(),
            programs_ms = (begun.elapsed() - loaded).as_millis(),
            "what starting took: reading files, loading the mechanism, looking at running programs"
        );
        Ok(daemon)
    }

    /// Reads configuration and specifications again, and carries over to running tasks what changed. What is
    /// wrong changes nothing: its last good version stays in force.
    pub(crate) fn reload(&mut self) -> Applied {
        self.texts.forget();
        let (thresholds, best_effort) = (self.settings.config.cpu.thresholds, self.best_effort());
        let owner = self.settings.policy.owner_uid;
        let choice = self.choice();
        let prefix = self.settings.config.domains.prefix.clone();
        let (config, rules) = (&self.options.config, &self.options.rule_directories);
        let settings = settings::load(config, rules, &mut self.last_settings);
        self.rules_changed |= settings.policy != self.settings.policy;
        self.settings = settings;
        self.domains.set_machine(machine(&self.settings, &self.options.roots));
        if self.settings.config.domains.prefix != prefix {
            let origin = Origin::at(&self.options.config, 0);
            let advice = "run systemctl restart stewardd when no domain is left";
            self.settings.problems.push(Problem::error(
                origin,
                format!("prefix has changed, and new domains still get \"{prefix}\""),
                advice,
            ));
            self.settings.config.domains.prefix = prefix;
        }
        if self.choice() != choice {
            let origin = Origin::at(&self.options.config, 0);
            let advice = "run systemctl restart stewardd to have the other one loaded";
            self.settings.problems.push(Problem::error(
                origin,
                "mechanism was changed while stewardd runs",
                advice,
            ));
            self.settings.config.cpu.mechanism = choice;
        }
        let directories = &self.options.spec_directories;
        let new = specs::load(directories, &mut self.ids, &self.options.roots, &self.loaded.last_good);
        let old = std::mem::replace(&mut self.loaded, new);
        if old.last_good != self.loaded.last_good {
            self.save_last_good();
        }
        self.running.want(self.specs_are_about_programs());
        self.disk.forget_specs();
        self.read_calibrations();
        self.read_declarations();
        self.log_problems();
        if best_effort != self.best_effort() {
            self.configure_best_effort();
        }
        self.declare_domains();
        if old.table == self.loaded.table
            && thresholds == self.settings.config.cpu.thresholds
            && owner == self.settings.policy.owner_uid
        {
            return Applied::default();
        }
        self.configure();
        let held = self.held();
        let running = self.running();
        let steps = plan::at_reload(&old.table, &self.loaded.table, &running, &held, &self.cpu.by_hand);
        let applied = self.carry_out(&steps);
        tracing::info!(
            decision = "reloaded",
            specs = self.loaded.specs.len(),
            assigned = applied.assigned,
            released = applied.released,
            "specifications were read again"
        );
        applied
    }

    /// What an earlier daemon has left behind and could not be undone, in sentences.
    pub fn note_leftovers(&mut self, leftovers: Vec<String>) {
        let sentence = |line| format!("left behind by an earlier stewardd: {line}");
        self.health.set(Topic::Leftovers, leftovers.into_iter().map(sentence).collect());
    }

    fn read_declarations(&mut self) {
        let (directories, before) = (&self.options.domain_directories, self.domains.declared());
        self.declarations = declared::load(directories, self.domains.names(), &AccountFiles::read(), &before);
    }

    /// Has there be the domains that files declare.
    pub(crate) fn declare_domains(&mut self) {
        let unfulfilled = self.domains.declare(&self.declarations.domains, &mut self.cpu.mechanism);
        for problem in unfulfilled.iter().filter(|problem| !self.unfulfilled.contains(problem)) {
            tracing::warn!(decision = "left-out", "{problem}");
        }
        self.unfulfilled = unfulfilled;
    }

    /// Keeps domains if they have changed, and takes in what is to be told of them.
    pub(crate) fn settle_domains(&mut self) -> Vec<Told> {
        for job in self.domains.take_jobs() {
            self.worker.give(job);
        }
        if std::mem::take(&mut self.domains.changed) {
            self.disk.look_soon();
            self.domain_state.keep(&self.domains.all_held(), &mut self.worker);
        }
        self.health.set(Topic::Domains, self.domains.problem_sentences());
        let told = self.domains.take_told();
        for told in &told {
            let event = &told.event;
            report::log_domain_event(event);
            *self.decisions.entry(report::domain_event_name(event.kind)).or_default() += 1;
            self.history.note(event.clone(), told.about.clone());
        }
        told
    }

    fn save_last_good(&mut self) {
        self.spec_state.keep(&self.loaded.last_good, &mut self.worker);
    }

    /// What became of what the worker was given.
    fn note_outcomes(&mut self) {
        for Outcome { about, goes_on, failure } in self.worker.take_outcomes() {
            match about {
                About::File(topic) => self.health.set(topic, failure.into_iter().collect()),
                About::Memory(path) => self.domains.note_memory(&path, goes_on, failure),
                About::Disk => self.note_disk(failure),
                // Where it cannot be had, the kernel's flusher comes round all the same.
                About::Writeback => {}
            }
        }
    }

    /// Has the worker do what domains need of the kernel, and waits a moment for it: it is mostly done at once.
    pub(crate) fn settle_memory(&mut self) {
        for job in self.domains.take_jobs() {
            self.worker.give(job);
        }
        let begun = Instant::now();
        while self.domains.awaits_worker()
            && let Some(left) = MEMORY_PATIENCE.checked_sub(begun.elapsed())
        {
            self.worker.await_outcome(left);
            self.note_outcomes();
            for job in self.domains.take_jobs() {
                self.worker.give(job);
            }
        }
    }

    /// To be called about once a second and whenever something was announced: each room does what is due. Whether
    /// domains began to be used, or ended, is looked at when the kernel has announced that, or a second has passed.
    /// Returns the new decisions.
    pub(crate) fn tick(&mut self, now_ns: u64, domains_announced: bool) -> Vec<Told> {
        self.note_outcomes();
        let mut told = self.tick_cpu(now_ns);
        self.tick_programs(now_ns);
        if self.domains.tick(now_ns, domains_announced, &mut self.cpu.mechanism) {
            self.cpu.suspensions.apply(&mut self.cpu.mechanism);
        }
        self.tick_memory(now_ns);
        self.tick_disk(now_ns);
        told.extend(self.settle_domains());
        told
    }

    /// Where things stand, in a line.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            mechanism: self.cpu.mechanism.as_ref().map(|mechanism| mechanism.kind()),
            specs: self.loaded.specs.len(),
            problems: self.problems().count() + self.health.all().count(),
        }
    }

    /// Takes everything back.
    pub(crate) fn stop(&mut self) {
        self.cpu.stop(&mut self.worker);
        self.domains.stop();
        self.disk.stop(self.domains.cgroups().ok());
        self.memory.stop(&mut self.worker);
        self.settle_domains();
        self.worker.finish();
        self.settle_writeback();
        self.note_outcomes();
        tracing::info!(decision = "stopped", "all tasks are back on the default scheduler");
    }

    /// All problems of files.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &Problem> {
        let files = self.settings.problems.iter().chain(&self.loaded.problems);
        files.chain(&self.declarations.problems).chain(&self.unfulfilled)
    }

    fn log_problems(&self) {
        let files = self.settings.problems.iter().chain(&self.loaded.problems);
        for problem in files.chain(&self.declarations.problems) {
            tracing::warn!(decision = "left-out", "{problem}");
        }
    }
}

fn domains_of(cgroups: Result<Box<dyn Cgroups>, String>, settings: &Settings, roots: &Roots) -> Domains {
    // The configuration has been held against the same rule.
    let names = Names::new(&settings.config.domains.prefix).unwrap_or_default();
    let machine = machine(settings, roots);
    let mut domains = Domains::new(cgroups, names, machine);
    domains.set_machine(machine);
    domains
}

/// What domains may reserve of the machine together, before it is looked at what of its memory programs can have. Where
/// nobody knows how much there is, none.
fn machine(settings: &Settings, roots: &Roots) -> Machine {
    let config = &settings.config;
    let total_bytes = memory::machine::usage(roots).unwrap_or_default().total_bytes;
    let machine =
        Machine { cpu: config.cpu.reservable, memory_part: config.memory.reservable, ..Machine::default() };
    machine.with_memory(total_bytes, 0)
}

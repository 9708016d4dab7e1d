//! The daemon's state, and what happens to it: start, change of specifications, loss of the scheduler, stop.
//!
//! Requests of clients are in [`crate::server::dispatch`]; the loop that waits is in [`crate::turn`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use steward_core::config::MechanismChoice;
use steward_core::cpu::best_effort::{BestEffortOrder, BestEffortSettings};
use steward_core::cpu::event::Event;
use steward_core::cpu::mechanism::{MechanismError, MechanismKind, Snapshot, Standing};
use steward_core::cpu::plan::{self, ByHand, Held, Step};
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_core::cpu::retry::{Retries, Retry};
use steward_core::cpu::waiting::{Memory, Waiting};
use steward_core::domain::Names;
use steward_core::problem::{Origin, Problem};
use steward_core::process::Process;
use steward_kernel::cpu::cpus;
use steward_kernel::cpu::scheduling::{self, Scheduling};
use steward_kernel::{KernelError, Roots, memory, process};

use crate::cpu::audit::Audit;
use crate::cpu::herald::Sampler;
use crate::cpu::mechanisms::{Enforcer, LoadFailure, Loader};
use crate::cpu::reply;
use crate::cpu::suspension::Suspensions;
use crate::domains::cgroups::Cgroups;
use crate::domains::declared::{self, Declarations};
use crate::domains::{Domains, Held as HeldDomain, Told};
use crate::files::accounts::AccountFiles;
use crate::files::settings::{self, Settings};
use crate::files::specs::{self, LastGood, Loaded};
use crate::files::state::StateFile;
use crate::health::{Health, Topic};
use crate::programs::complaints::Complaints;
use crate::programs::table::Ids;
use crate::server::history::History;
use crate::server::polkit::Polkit;
use crate::server::report;
use crate::server::texts::Texts;
use crate::turn::worker::{Outcome, Worker};

use crate::cpu::lines::{log_event, log_step};

mod waiting;

/// How often what was given by hand is cleared of processes that have ended, in nanoseconds.
const PRUNE_EVERY_NS: u64 = 60_000_000_000;

/// With how many, and twice as many as ran last, they are cleared sooner.
const PRUNE_ABOVE_MIN: usize = 64;
/// Of how many processes it is remembered that one user, other than root, has taken from them what they had. Whoever needs one more
/// has the first forgotten: after a restart or a change of its specification that process may have something again.
const RELEASED_PER_USER_MAX: usize = 512;

/// What the daemon reserves for itself with Steward's scheduler, so that it answers while everything else is starved. Past
/// its budget it shares what is left; SCHED_DEADLINE would stop it there, so that whoever makes it work makes all others
/// wait, and there it has a nice value instead ([`OWN_NICE`]).
pub const OWN_RESERVATION: Reservation = Reservation { budget_ns: 1_000_000, period_ns: 100_000_000 };

/// The daemon's own nice value where it has no reservation.
const OWN_NICE: i32 = -20;

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
    /// Goes before the configuration's choice.
    pub mechanism: Option<MechanismChoice>,
    /// Goes before the configuration's order among domains.
    pub best_effort: Option<BestEffortOrder>,
    /// The kernel's trees.
    pub roots: Roots,
    /// The program that asks polkit: [`crate::server::polkit::PROGRAM`].
    pub polkit: PathBuf,
    /// What the daemon reserves for itself, or has a better nice value for; `None` leaves it an ordinary program.
    pub own_reservation: Option<Reservation>,
}

/// What became of the mechanisms so far.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Why the one in force is not the one that was asked for.
    pub(crate) note: Option<String>,
    /// Why the last one ended.
    pub(crate) exit_reason: Option<String>,
    /// How often one was loaded again.
    pub(crate) restarts: u64,
    retries: Retries,
    retry_at_ns: Option<u64>,
    load_failed: bool,
}

/// What a change of specifications did to running tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) assigned: u64,
    pub(crate) released: u64,
}

/// The daemon without its socket.
pub struct Daemon {
    pub(crate) options: Options,
    loader: Loader,
    pub(crate) mechanism: Option<Box<dyn Enforcer>>,
    pub(crate) loading: Loading,
    pub(crate) settings: Settings,
    last_settings: settings::LastGood,
    pub(crate) loaded: Loaded,
    pub(crate) ids: Ids,
    pub(crate) by_hand: Vec<ByHand>,
    state: StateFile<ByHand>,
    pub(crate) domains: Domains,
    domain_state: StateFile<HeldDomain>,
    declarations: Declarations,
    /// What is declared and cannot be done.
    unfulfilled: Vec<Problem>,
    spec_state: StateFile<LastGood>,
    pub(crate) sampler: Sampler,
    pub(crate) suspensions: Suspensions,
    /// What processes complained of, as sums.
    pub(crate) complaints: Complaints,
    pub(crate) health: Health,
    pub(crate) polkit: Polkit,
    pub(crate) audit: Audit,
    pub(crate) worker: Worker,
    pub(crate) history: History,
    pub(crate) texts: Texts,
    pub(crate) events_lost: u64,
    /// How many there were of each kind, by its name in the log.
    pub(crate) decisions: BTreeMap<&'static str, u64>,
    waiting: Waiting,
    prune_at_ns: u64,
    /// With how many that were given something by hand those are sought that have ended.
    prune_above: usize,
    scan_at_ns: u64,
}

impl Daemon {
    /// Reads everything, loads the mechanism and puts the specifications in force, for programs that run already
    /// too. `cgroups` is the tree that domains are in, or why there is none.
    ///
    /// # Errors
    /// When no mechanism can be loaded. Nothing is in force then.
    pub fn start(
        options: Options,
        loader: Loader,
        cgroups: Result<Box<dyn Cgroups>, String>,
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
        let domains = domains_of(cgroups, &settings);
        let (audit, audit_message) = Audit::load(&options.state_directory, &boot_id);
        let mut daemon = Daemon {
            options,
            loader,
            mechanism: None,
            loading: Loading::default(),
            settings,
            last_settings,
            loaded,
            ids,
            by_hand,
            state,
            domains,
            domain_state,
            declarations: Declarations::default(),
            unfulfilled: Vec::new(),
            spec_state,
            sampler: Sampler::default(),
            suspensions: Suspensions::default(),
            complaints: Complaints::default(),
            health: Health::default(),
            polkit,
            audit,
            worker: Worker::new()?,
            history: History::default(),
            texts: Texts::default(),
            events_lost: 0,
            decisions: BTreeMap::new(),
            waiting: Waiting::default(),
            prune_at_ns: 0,
            prune_above: PRUNE_ABOVE_MIN,
            scan_at_ns: 0,
        };
        let messages = [message, domain_message, audit_message, spec_message];
        daemon.health.set(Topic::State, messages.into_iter().flatten().collect());
        if daemon.loaded.last_good != last_good {
            daemon.save_last_good();
        }
        daemon.domains.restore(held);
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

    /// Which mechanism is wanted.
    fn choice(&self) -> MechanismChoice {
        self.options.mechanism.unwrap_or(self.settings.config.mechanism)
    }

    fn load_first_mechanism(&mut self) -> anyhow::Result<()> {
        let choice = self.choice();
        let first = if choice == MechanismChoice::Deadline {
            MechanismKind::Deadline
        } else {
            MechanismKind::SchedExt
        };
        let Err(LoadFailure { reason, kernel_lacks_it }) = self.load_mechanism(first) else { return Ok(()) };
        if choice != MechanismChoice::Auto || !kernel_lacks_it {
            anyhow::bail!("{first}: {reason}");
        }
        tracing::warn!(decision = "fall-back", reason, "sched_ext cannot be used: trying SCHED_DEADLINE");
        match self.load_mechanism(MechanismKind::Deadline) {
            Ok(()) => {
                self.loading.note = Some(format!("sched_ext cannot be used: {reason}"));
                Ok(())
            }
            Err(second) => anyhow::bail!("sched_ext: {reason}\nSCHED_DEADLINE: {}", second.reason),
        }
    }

    fn load_mechanism(&mut self, kind: MechanismKind) -> Result<(), LoadFailure> {
        let mut mechanism = (self.loader)(kind, self.settings.config.thresholds)?;
        mechanism.set_domain_names(self.domains.names());
        tracing::info!(decision = "mechanism-loaded", mechanism = %kind, "{kind} is in force");
        self.mechanism = Some(mechanism);
        Ok(())
    }

    /// Tells a fresh mechanism everything, and gives running tasks what is theirs.
    fn put_in_force(&mut self) {
        self.configure();
        if let Some(reservation) = self.options.own_reservation
            && let Err(error) = self.put_oneself_first(reservation)
        {
            tracing::warn!(error, "nothing for stewardd itself: under overload it may answer late");
        }
        self.domains.forget_applied();
        self.domains.apply(&mut self.mechanism);
        self.declare_domains();
        self.suspensions.apply(&mut self.mechanism);
        self.forget_ended();
        let running = self.running();
        let steps = plan::at_start(&self.loaded.table, &running, &self.by_hand);
        let applied = self.carry_out(&steps);
        tracing::info!(
            decision = "in-force",
            specs = self.loaded.specs.len(),
            assigned = applied.assigned,
            "specifications are in force"
        );
    }

    /// Both end with this process, and none of the programs and threads that it starts has them.
    fn put_oneself_first(&mut self, reservation: Reservation) -> Result<(), String> {
        let Some(mechanism) = self.mechanism.as_mut() else { return Ok(()) };
        if mechanism.kind() != MechanismKind::SchedExt {
            return prefer_this_thread().map_err(|error| error.to_string());
        }
        let (inherit, revocable, keep_over_exec) = (false, false, false);
        let irrevocable_for = IrrevocableFor::Root;
        let grant = Grant { reservation, inherit, revocable, irrevocable_for, keep_over_exec, spec_id: 0 };
        let own = rustix::process::getpid().as_raw_nonzero().get();
        mechanism.assign(own, Some(grant)).map(drop).map_err(|error| error.to_string())
    }

    /// Thresholds and the table of executables.
    fn configure(&mut self) {
        let Some(mechanism) = self.mechanism.as_mut() else { return };
        let outcomes = [
            mechanism.set_thresholds(self.settings.config.thresholds),
            mechanism.set_owner(self.settings.policy.owner_uid),
            mechanism.set_exec_table(&self.loaded.table.executables()),
        ];
        let failures = outcomes.into_iter().filter_map(Result::err);
        let sentence = |error| format!("specifications are not in force as written: {error}");
        self.health.set(Topic::Configure, failures.map(sentence).collect());
        self.configure_best_effort();
    }

    /// How many CPUs are online; where that cannot be read, one.
    pub(crate) fn online_cpu_count(&self) -> u32 {
        cpus::online(&self.options.roots).map_or(1, |online| online.len().max(1) as u32)
    }

    /// The order among domains that is wanted.
    pub(crate) fn best_effort(&self) -> BestEffortSettings {
        let configured = self.settings.config.best_effort;
        BestEffortSettings { order: self.options.best_effort.unwrap_or(configured.order), ..configured }
    }

    fn configure_best_effort(&mut self) {
        let settings = self.best_effort();
        let Some(mechanism) = self.mechanism.as_mut() else { return };
        let failure = match mechanism.set_best_effort(settings) {
            // Where there is no order to choose, the default is nobody's wish.
            Err(MechanismError::Unsupported { .. }) if settings == BestEffortSettings::default() => None,
            outcome => outcome.err(),
        };
        let sentence = |error| format!("best_effort = \"{}\" is not in force: {error}", settings.order);
        self.health.set(Topic::BestEffort, failure.map(sentence).into_iter().collect());
    }

    fn running(&mut self) -> Vec<Process> {
        self.note_listed(process::list(&self.options.roots))
    }

    fn note_listed(&mut self, listed: Result<Vec<Process>, KernelError>) -> Vec<Process> {
        let (running, failure) = match listed {
            Ok(running) => (running, None),
            Err(error) => (Vec::new(), Some(format!("running programs are left as they are: {error}"))),
        };
        self.health.set(Topic::Processes, failure.into_iter().collect());
        running
    }

    /// Reads configuration and specifications again, and carries over to running tasks what changed. What is
    /// wrong changes nothing: its last good version stays in force.
    pub(crate) fn reload(&mut self) -> Applied {
        self.texts.forget();
        let (thresholds, best_effort) = (self.settings.config.thresholds, self.best_effort());
        let owner = self.settings.policy.owner_uid;
        let choice = self.choice();
        let prefix = self.settings.config.domains.prefix.clone();
        let (config, rules) = (&self.options.config, &self.options.rule_directories);
        self.settings = settings::load(config, rules, &mut self.last_settings);
        self.domains.set_root_limit(self.settings.config.domains.cpu_limit);
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
            self.settings.config.mechanism = choice;
        }
        let directories = &self.options.spec_directories;
        let new = specs::load(directories, &mut self.ids, &self.options.roots, &self.loaded.last_good);
        let old = std::mem::replace(&mut self.loaded, new);
        if old.last_good != self.loaded.last_good {
            self.save_last_good();
        }
        self.read_declarations();
        self.log_problems();
        if best_effort != self.best_effort() {
            self.configure_best_effort();
        }
        self.declare_domains();
        if old.table == self.loaded.table
            && thresholds == self.settings.config.thresholds
            && owner == self.settings.policy.owner_uid
        {
            return Applied::default();
        }
        self.configure();
        let held = self.held();
        let running = self.running();
        let steps = plan::at_reload(&old.table, &self.loaded.table, &running, &held, &self.by_hand);
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
    fn declare_domains(&mut self) {
        let unfulfilled = self.domains.declare(&self.declarations.domains, &mut self.mechanism);
        for problem in unfulfilled.iter().filter(|problem| !self.unfulfilled.contains(problem)) {
            tracing::warn!(decision = "left-out", "{problem}");
        }
        self.unfulfilled = unfulfilled;
    }

    fn held(&mut self) -> Vec<Held> {
        let tasks = self.snapshot().map(|snapshot| snapshot.tasks).unwrap_or_default();
        tasks.into_iter().map(|task| Held { tid: task.tid, pid: task.pid, grant: task.grant }).collect()
    }

    /// What the mechanism knows now.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, MechanismError> {
        match self.mechanism.as_mut() {
            Some(mechanism) => mechanism.snapshot(),
            None => Err(MechanismError::Gone { reason: self.gone_reason() }),
        }
    }

    pub(crate) fn gone_reason(&self) -> String {
        let reason = self.loading.note.as_ref().or(self.loading.exit_reason.as_ref());
        reason.cloned().unwrap_or_else(|| "it was never loaded".to_owned())
    }

    /// Gives or takes, for one task.
    pub(crate) fn assign(
        &mut self,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        match self.mechanism.as_mut() {
            Some(mechanism) => mechanism.assign(tid, grant),
            None => Err(MechanismError::Gone { reason: self.gone_reason() }),
        }
    }

    fn carry_out(&mut self, steps: &[Step]) -> Applied {
        let mut applied = Applied::default();
        let mut failures = Vec::new();
        for step in steps {
            match self.assign(step.tid, step.grant) {
                Ok(standing) => {
                    log_step(step, standing);
                    let counter =
                        if step.grant.is_some() { &mut applied.assigned } else { &mut applied.released };
                    *counter += 1;
                }
                // It ended meanwhile.
                Err(MechanismError::NoSuchTask { .. }) => {}
                Err(error @ (MechanismError::Gone { .. } | MechanismError::Full { .. })) => {
                    failures.push(format!("not all running programs got their specification: {error}"));
                    break;
                }
                Err(error) => failures.push(format!("thread {} of process {}: {error}", step.tid, step.pid)),
            }
        }
        self.health.set(Topic::Running, failures);
        applied
    }

    /// Notes what was given by hand, in place of what the same process was given before, and keeps it.
    pub(crate) fn remember(&mut self, hand: ByHand) {
        self.by_hand.retain(|known| known.process != hand.process);
        self.by_hand.push(hand);
        if hand.grant.is_none() && hand.user != 0 {
            plan::bound_released(&mut self.by_hand, hand.user, RELEASED_PER_USER_MAX);
        }
        // Looking whether each still runs takes long when there are many.
        if self.by_hand.len() >= self.prune_above {
            self.forget_ended();
        }
        self.save();
    }

    /// Keeps domains if they have changed, and takes in what is to be told of them.
    pub(crate) fn settle_domains(&mut self) -> Vec<Told> {
        if std::mem::take(&mut self.domains.changed) {
            self.domain_state.keep(&self.domains.all_held(), &mut self.worker);
        }
        self.health.set(Topic::Domains, self.domains.trouble_sentences());
        let told = self.domains.take_told();
        for told in &told {
            let event = &told.event;
            tracing::info!(
                decision = report::domain_event_name(event.kind),
                domain = event.name,
                reserved = event.bandwidth,
                pid = event.pid,
                "{}",
                event.text
            );
            *self.decisions.entry(report::domain_event_name(event.kind)).or_default() += 1;
            self.history.note(event.clone());
        }
        told
    }

    fn save(&mut self) {
        self.state.keep(&self.by_hand, &mut self.worker);
    }

    fn save_last_good(&mut self) {
        self.spec_state.keep(&self.loaded.last_good, &mut self.worker);
    }

    /// What became of what the worker was given.
    fn note_outcomes(&mut self) {
        for Outcome { topic, failure } in self.worker.take_outcomes() {
            self.health.set(topic, failure.into_iter().collect());
        }
    }

    fn forget_ended(&mut self) {
        let roots = &self.options.roots;
        self.by_hand.retain(|hand| process::is_alive(hand.process, roots));
        self.prune_above = 2 * self.by_hand.len() + PRUNE_ABOVE_MIN;
        self.complaints.keep(|process| process::is_alive(process, roots));
    }

    /// To be called about once a second and whenever the mechanism has events: takes in its decisions, notices
    /// when it has gone. Returns the new decisions.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Vec<Told> {
        self.note_outcomes();
        self.scan_if_due(now_ns);
        let mut told = self.take_events();
        self.domains.tick(now_ns, &mut self.mechanism);
        self.audit_if_due(now_ns);
        self.publish_memory(now_ns);
        if let Some(reason) = self.mechanism.as_ref().and_then(|mechanism| mechanism.exit_reason()) {
            self.lose_mechanism(reason, now_ns);
        }
        if self.loading.retry_at_ns.is_some_and(|at| at <= now_ns) {
            self.load_again(now_ns);
        }
        if self.prune_at_ns <= now_ns {
            self.prune_at_ns = now_ns + PRUNE_EVERY_NS;
            let before = self.by_hand.len();
            self.forget_ended();
            if self.by_hand.len() != before {
                self.save();
            }
        }
        told.extend(self.settle_domains());
        told
    }

    /// Shows all processes to a mechanism that does not see programs start by itself.
    fn scan_if_due(&mut self, now_ns: u64) {
        let every = self.mechanism.as_ref().and_then(|mechanism| mechanism.scan_every());
        let Some(every) = every.filter(|_| self.scan_at_ns <= now_ns) else { return };
        self.scan_at_ns = now_ns + every.as_nanos() as u64;
        let running = self.note_listed(process::list_first_threads(&self.options.roots));
        let failure = self.mechanism.as_mut().and_then(|mechanism| mechanism.scan(&running).err());
        let sentence = |error| format!("not all programs have what their specification says: {error}");
        self.health.set(Topic::Scan, failure.map(sentence).into_iter().collect());
    }

    /// Cgroups for which there is no domain: their weights, limits and priorities are not kept.
    pub(crate) fn note_cgroups(&mut self) {
        let count = self.mechanism.as_ref().map_or(0, |mechanism| mechanism.cgroups_without_domain());
        let sentence = format!(
            "{count} cgroups have no domain of their own and belong to the one above them, so that their weights and limits do \
             not hold: there are too many below one cgroup (docs/scheduler.md, Known limits)"
        );
        self.health.set(Topic::Cgroups, (count > 0).then_some(sentence).into_iter().collect());
    }

    fn take_events(&mut self) -> Vec<Told> {
        let mut events: Vec<Event> = Vec::new();
        if let Some(mechanism) = self.mechanism.as_mut() {
            let lost = mechanism.take_events(&mut |event| events.push(event));
            self.events_lost += lost;
            if lost > 0
                && let Ok(snapshot) = mechanism.snapshot()
            {
                self.waiting.recount(&snapshot);
            }
        }
        let mut told = Vec::with_capacity(events.len());
        for event in &events {
            log_event(event);
            self.waiting.note(event);
            *self.decisions.entry(reply::event_kind_name(event.kind)).or_default() += 1;
            let event = reply::event(event);
            self.history.note(event.clone());
            told.push(Told { event, domain: None });
        }
        told
    }

    /// While a task waits to be taken back, the mechanism knows how much memory is free.
    fn publish_memory(&mut self, now_ns: u64) {
        let Some(mechanism) = self.mechanism.as_mut() else { return };
        match self.waiting.ask(now_ns) {
            // Where it cannot be read, memory keeps nobody out.
            Memory::Publish => {
                mechanism.set_memory_free(memory::available_bytes(&self.options.roots).ok());
            }
            Memory::Withdraw => mechanism.set_memory_free(None),
            Memory::Leave => {}
        }
    }

    fn lose_mechanism(&mut self, reason: String, now_ns: u64) {
        let kind = self.mechanism.as_ref().map(|mechanism| mechanism.kind());
        tracing::error!(
            decision = "mechanism-lost",
            mechanism = kind.map(|kind| kind.to_string()),
            reason,
            "the kernel took the scheduler back; all tasks are on the default scheduler, unharmed"
        );
        // Dropped before the next is loaded: only one can be attached.
        self.mechanism = None;
        self.waiting = Waiting::default();
        self.loading.exit_reason = Some(reason);
        self.loading.load_failed = false;
        self.loading.retry_at_ns = Some(now_ns);
    }

    fn load_again(&mut self, now_ns: u64) {
        let first = match self.choice() {
            MechanismChoice::Deadline => MechanismKind::Deadline,
            MechanismChoice::Auto | MechanismChoice::SchedExt => MechanismKind::SchedExt,
        };
        match self.loading.retries.ask(now_ns, self.loading.load_failed) {
            Retry::Later(at) => self.loading.retry_at_ns = Some(at),
            Retry::GiveUp => self.fall_back(),
            Retry::Now => match self.load_mechanism(first) {
                Ok(()) => {
                    self.loading.retry_at_ns = None;
                    self.loading.restarts += 1;
                    self.loading.note = None;
                    self.put_in_force();
                }
                Err(LoadFailure { reason, .. }) => {
                    tracing::error!(
                        decision = "mechanism-failed",
                        reason,
                        "the scheduler could not be loaded again"
                    );
                    self.loading.note = Some(reason);
                    self.loading.load_failed = true;
                    self.loading.retry_at_ns = Some(now_ns);
                }
            },
        }
    }

    /// After too many failures: nice values where the choice allows it, otherwise nothing. Not SCHED_DEADLINE: what
    /// made the kernel take our scheduler out is not known, and with tasks in a real-time class it would go on, or
    /// worse. A nice value can starve nobody and has no part in the kernel's account of CPUs.
    fn fall_back(&mut self) {
        self.loading.retry_at_ns = None;
        let last = self.loading.exit_reason.clone().unwrap_or_default();
        let mut note = format!("given up after 3 attempts within 10 minutes; the last ended with: {last}");
        if self.choice() == MechanismChoice::Auto {
            match self.load_mechanism(MechanismKind::Nice) {
                Ok(()) => {
                    note = format!(
                        "sched_ext was {note}; nothing is reserved now: programs with a specification have a better \
                         nice value"
                    );
                    self.loading.restarts += 1;
                    self.put_in_force();
                }
                Err(second) => note = format!("sched_ext was {note}; nice values: {}", second.reason),
            }
        }
        tracing::error!(decision = "gave-up", "{note}; systemctl restart stewardd tries again");
        self.loading.note = Some(note);
    }

    /// Where things stand, in a line.
    pub(crate) fn summary(&self) -> String {
        let mechanism = match &self.mechanism {
            Some(mechanism) => format!("{} in force", mechanism.kind()),
            None => "nothing in force".to_owned(),
        };
        let problems = self.problems().count() + self.health.all().count();
        format!("{mechanism}; specifications: {}; problems: {problems}", self.loaded.specs.len())
    }

    /// Takes everything back.
    pub(crate) fn stop(&mut self) {
        let held = self.held();
        if let Some(mechanism) = self.mechanism.take() {
            take_back(mechanism, &held);
        }
        self.domains.stop();
        self.audit.finish(&mut self.worker);
        self.settle_domains();
        self.worker.finish();
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

/// Gives the calling thread, the loop's, the nice value [`OWN_NICE`].
fn prefer_this_thread() -> Result<(), KernelError> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let flags = scheduling::FLAG_RESET_ON_FORK;
    scheduling::write(tid, &Scheduling { flags, nice: OWN_NICE, ..scheduling::read(tid)? })
}

/// Takes from all tasks what they hold, and lets the mechanism go.
fn take_back(mut mechanism: Box<dyn Enforcer>, held: &[Held]) {
    if let Err(error) = mechanism.set_exec_table(&[]) {
        tracing::warn!(%error, "while stopping");
    }
    for task in held {
        match mechanism.assign(task.tid, None) {
            Ok(_) | Err(MechanismError::NoSuchTask { .. } | MechanismError::Gone { .. }) => {}
            Err(error) => tracing::warn!(%error, "while stopping"),
        }
    }
}

fn domains_of(cgroups: Result<Box<dyn Cgroups>, String>, settings: &Settings) -> Domains {
    let config = &settings.config.domains;
    // The configuration has been held against the same rule.
    let names = Names::new(&config.prefix).unwrap_or_default();
    Domains::new(cgroups, names, config.cpu_limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_put_first_and_what_it_starts_is_not() {
        // A thread of its own: what is given to one cannot be taken back without the right to.
        let (outcome, own, child) = std::thread::spawn(|| {
            let outcome = prefer_this_thread();
            let child = std::thread::spawn(|| scheduling::read(0)).join().expect("no panic");
            (outcome, scheduling::read(0).expect("it runs"), child.expect("it runs"))
        })
        .join()
        .expect("no panic");
        match outcome {
            Ok(()) => assert_eq!((own.nice, child.nice), (OWN_NICE, 0)),
            Err(error) => assert!(error.is_denied(), "{error}"),
        }
    }
}

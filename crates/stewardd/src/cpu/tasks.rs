//! Tasks that have something of the CPU: gives and takes, remembers what people gave, and takes in what the mechanism
//! decided.

use steward_core::cpu::event::Event;
use steward_core::cpu::mechanism::{MechanismError, Snapshot, Standing};
use steward_core::cpu::plan::{self, ByHand, Held, Step};
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::waiting::Memory;
use steward_core::process::Process;
use steward_kernel::{KernelError, memory, process};

use super::lines::{log_event, log_step};
use super::reply;
use super::state::{Applied, PRUNE_ABOVE_MIN};
use crate::daemon::Daemon;
use crate::domains::Told;
use crate::health::Topic;
use crate::server::sight::{About, Whose};

/// How often what was given by hand is cleared of processes that have ended, in nanoseconds.
const PRUNE_EVERY_NS: u64 = 60_000_000_000;
/// Of how many processes it is remembered that one user, other than root, has taken from them what they had. Whoever
/// needs one more has the first forgotten: after a restart or a change of its specification that process may have
/// something again.
const RELEASED_PER_USER_MAX: usize = 512;

impl Daemon {
    /// To be called about once a second and whenever the mechanism has events: takes in its decisions, notices when it
    /// has gone. Returns the new decisions.
    pub(crate) fn tick_cpu(&mut self, now_ns: u64) -> Vec<Told> {
        self.scan_if_due(now_ns);
        let told = self.take_events();
        self.audit_if_due(now_ns);
        self.publish_memory(now_ns);
        if let Some(reason) = self.cpu.mechanism.as_ref().and_then(|mechanism| mechanism.exit_reason()) {
            self.lose_mechanism(reason, now_ns);
        }
        if self.cpu.loading.retry_at_ns.is_some_and(|at| at <= now_ns) {
            self.load_again(now_ns);
        }
        self.prune_if_due(now_ns);
        told
    }

    /// Forgets what was given by hand to processes that have ended.
    fn prune_if_due(&mut self, now_ns: u64) {
        if self.cpu.prune_at_ns > now_ns {
            return;
        }
        self.cpu.prune_at_ns = now_ns + PRUNE_EVERY_NS;
        let before = self.cpu.by_hand.len();
        self.forget_ended();
        if self.cpu.by_hand.len() != before {
            self.save();
        }
    }

    pub(crate) fn running(&mut self) -> Vec<Process> {
        self.note_listed(process::list(&self.options.roots))
    }

    pub(crate) fn note_listed(&mut self, listed: Result<Vec<Process>, KernelError>) -> Vec<Process> {
        let (running, failure) = match listed {
            Ok(running) => (running, None),
            Err(error) => (Vec::new(), Some(format!("running programs are left as they are: {error}"))),
        };
        self.health.set(Topic::Processes, failure.into_iter().collect());
        running
    }

    pub(crate) fn held(&mut self) -> Vec<Held> {
        let tasks = self.snapshot().map(|snapshot| snapshot.tasks).unwrap_or_default();
        tasks.into_iter().map(|task| Held { tid: task.tid, pid: task.pid, grant: task.grant }).collect()
    }

    /// What the mechanism knows now.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, MechanismError> {
        match self.cpu.mechanism.as_mut() {
            Some(mechanism) => mechanism.snapshot(),
            None => Err(MechanismError::Gone { reason: self.gone_reason() }),
        }
    }

    /// Gives or takes, for one thread of a process, if it still is one.
    pub(crate) fn assign_thread(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        match self.cpu.mechanism.as_mut() {
            Some(mechanism) => mechanism.assign_thread(pid, tid, grant),
            None => Err(MechanismError::Gone { reason: self.gone_reason() }),
        }
    }

    pub(crate) fn carry_out(&mut self, steps: &[Step]) -> Applied {
        let mut applied = Applied::default();
        let mut failures = Vec::new();
        for step in steps {
            match self.assign_thread(step.pid, step.tid, step.grant) {
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
        self.cpu.by_hand.retain(|known| known.process != hand.process);
        self.cpu.by_hand.push(hand);
        if hand.grant.is_none() && hand.user != 0 {
            plan::bound_released(&mut self.cpu.by_hand, hand.user, RELEASED_PER_USER_MAX);
        }
        // Looking whether each still runs takes long when there are many.
        if self.cpu.by_hand.len() >= self.cpu.prune_above {
            self.forget_ended();
        }
        self.save();
    }

    pub(crate) fn save(&mut self) {
        self.cpu.state.keep(&self.cpu.by_hand, &mut self.worker);
    }

    /// Forgets what was given by hand to processes that have executed something since: the kernel took it from them
    /// then, and what they executed, which may have other rights, is not to get it anew.
    pub(crate) fn forget_ended_by_exec(&mut self) {
        let roots = &self.options.roots;
        self.cpu.by_hand.retain(|hand| {
            let pid = process::process_of(hand.process.tid, roots).unwrap_or(hand.process.tid);
            !hand.ended_by_exec(process::executed(pid, roots))
        });
    }

    pub(crate) fn forget_ended(&mut self) {
        let roots = &self.options.roots;
        self.cpu.by_hand.retain(|hand| process::is_alive(hand.process, roots));
        self.cpu.prune_above = 2 * self.cpu.by_hand.len() + PRUNE_ABOVE_MIN;
        self.complaints.forget_ended(|process| process::is_alive(process, roots));
    }

    /// Shows all processes to a mechanism that does not see programs start by itself.
    pub(crate) fn scan_if_due(&mut self, now_ns: u64) {
        let every = self.cpu.mechanism.as_ref().and_then(|mechanism| mechanism.scan_every());
        let Some(every) = every.filter(|_| self.cpu.scan_at_ns <= now_ns) else { return };
        self.cpu.scan_at_ns = now_ns + every.as_nanos() as u64;
        let is_needed = self.cpu.mechanism.as_ref().is_some_and(|mechanism| mechanism.needs_all_processes());
        let running = match is_needed {
            true => self.note_listed(process::list_first_threads(&self.options.roots)),
            false => Vec::new(),
        };
        let failure = self.cpu.mechanism.as_mut().and_then(|mechanism| mechanism.scan(&running).err());
        let sentence = |error| format!("not all programs have what their specification says: {error}");
        self.health.set(Topic::Scan, failure.map(sentence).into_iter().collect());
    }

    pub(crate) fn take_events(&mut self) -> Vec<Told> {
        let mut events: Vec<Event> = Vec::new();
        if let Some(mechanism) = self.cpu.mechanism.as_mut() {
            let lost = mechanism.take_events(&mut |event| events.push(event));
            self.events_lost += lost;
            if lost > 0 {
                self.disk.look_for_heirs();
            }
            if lost > 0
                && let Ok(snapshot) = mechanism.snapshot()
            {
                self.cpu.waiting.recount(&snapshot);
            }
        }
        if !events.is_empty() {
            self.disk.look_soon();
        }
        let mut told = Vec::with_capacity(events.len());
        for event in &events {
            log_event(event);
            self.cpu.waiting.note(event);
            *self.decisions.entry(reply::event_kind_name(event.kind)).or_default() += 1;
            let about = About::of(Whose::of_user(event.user));
            let event = reply::event(event);
            self.history.note(event.clone(), about.clone());
            told.push(Told { event, domain: None, about });
        }
        told
    }

    /// While a task waits to be taken back, the mechanism knows how much memory is free.
    pub(crate) fn publish_memory(&mut self, now_ns: u64) {
        let Some(mechanism) = self.cpu.mechanism.as_mut() else { return };
        match self.cpu.waiting.ask(now_ns) {
            // Where it cannot be read, memory keeps nobody out.
            Memory::Publish => {
                let memory = memory::machine::usage(&self.options.roots).ok();
                mechanism.set_memory_free(memory.map(|memory| memory.available_bytes));
            }
            Memory::Withdraw => mechanism.set_memory_free(None),
            Memory::Leave => {}
        }
    }
}

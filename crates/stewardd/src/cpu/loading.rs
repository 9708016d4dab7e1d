//! Which mechanism is in force: loads it, tells it everything, loads it again when the kernel has taken it out, and
//! falls back.

use steward_core::cpu::best_effort::BestEffortSettings;
use steward_core::cpu::config::MechanismChoice;
use steward_core::cpu::mechanism::{MechanismError, MechanismKind, Standing};
use steward_core::cpu::plan;
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_core::cpu::retry::Retry;
use steward_core::cpu::waiting::Waiting;
use steward_kernel::KernelError;
use steward_kernel::cpu::cpus;
use steward_kernel::cpu::scheduling::{self, Scheduling};

use super::mechanisms::LoadFailure;
use crate::daemon::Daemon;
use crate::health::Topic;

/// The daemon's own nice value where it has no reservation.
const OWN_NICE: i32 = -20;

impl Daemon {
    /// Which mechanism is wanted.
    pub(crate) fn choice(&self) -> MechanismChoice {
        self.options.mechanism.unwrap_or(self.settings.config.cpu.mechanism)
    }

    pub(crate) fn load_first_mechanism(&mut self) -> anyhow::Result<()> {
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
                self.cpu.loading.note = Some(format!("sched_ext cannot be used: {reason}"));
                Ok(())
            }
            Err(second) => anyhow::bail!("sched_ext: {reason}\nSCHED_DEADLINE: {}", second.reason),
        }
    }

    pub(crate) fn load_mechanism(&mut self, kind: MechanismKind) -> Result<(), LoadFailure> {
        let mut mechanism = (self.cpu.loader)(kind, self.settings.config.cpu.thresholds)?;
        mechanism.set_domain_names(self.domains.names());
        tracing::info!(decision = "mechanism-loaded", mechanism = %kind, "{kind} is in force");
        self.memory.manager.set_bumper(mechanism.bumper());
        self.cpu.mechanism = Some(mechanism);
        Ok(())
    }

    /// Tells a fresh mechanism everything, and gives running tasks what is theirs.
    pub(crate) fn put_in_force(&mut self) {
        self.configure();
        if let Some(reservation) = self.options.own_reservation
            && let Err(error) = self.put_oneself_first(reservation)
        {
            tracing::warn!(error, "nothing for stewardd itself: under overload it may answer late");
        }
        self.memory.reserved_for = None;
        self.domains.forget_applied();
        self.domains.apply(&mut self.cpu.mechanism);
        self.declare_domains();
        self.cpu.suspensions.apply(&mut self.cpu.mechanism);
        self.forget_ended();
        self.forget_ended_by_exec();
        let running = self.running();
        let steps = plan::at_start(&self.loaded.table, &running, &self.cpu.by_hand);
        let applied = self.carry_out(&steps);
        tracing::info!(
            decision = "in-force",
            specs = self.loaded.specs.len(),
            assigned = applied.assigned,
            "specifications are in force"
        );
    }

    /// Both end with this process, and none of the programs and threads that it starts has them.
    pub(crate) fn put_oneself_first(&mut self, reservation: Reservation) -> Result<(), String> {
        let Some(mechanism) = self.cpu.mechanism.as_mut() else { return Ok(()) };
        if mechanism.kind() != MechanismKind::SchedExt {
            return prefer_this_thread().map_err(|error| error.to_string());
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        mechanism.assign(own, Some(own_grant(reservation))).map(drop).map_err(|error| error.to_string())
    }

    /// Has the memory loop's thread have its reservation while it has something to do. Its nice value, which it has in
    /// any case, counts beyond that, and where there is no scheduler of Steward's.
    pub(crate) fn reserve_for_memory(&mut self) {
        let Some(reservation) = self.options.memory_reservation else { return };
        let wanted = self.memory.manager.busy_thread();
        let Some(mechanism) =
            self.cpu.mechanism.as_mut().filter(|mechanism| mechanism.kind() == MechanismKind::SchedExt)
        else {
            return;
        };
        if wanted == self.memory.reserved_for {
            return;
        }
        let (tid, grant) = match (wanted, self.memory.reserved_for) {
            (Some(tid), _) => (tid, Some(own_grant(reservation))),
            (None, Some(tid)) => (tid, None),
            (None, None) => return,
        };
        let problem = match mechanism.assign(tid, grant) {
            Ok(standing) => {
                self.memory.reserved_for = wanted;
                if matches!(standing, Some(Standing::Refused | Standing::Revoked)) {
                    tracing::warn!(
                        decision = "memory-loop-waits",
                        "the memory loop has its {reservation} only once there is room"
                    );
                }
                None
            }
            // It is tried again at the next turn.
            Err(error) => Some(format!(
                "nothing is reserved for the memory loop, which may come too late under overload: {error}"
            )),
        };
        self.health.set(Topic::MemoryReservation, problem.into_iter().collect());
    }

    /// Thresholds and the table of executables.
    pub(crate) fn configure(&mut self) {
        let Some(mechanism) = self.cpu.mechanism.as_mut() else { return };
        let outcomes = [
            mechanism.set_thresholds(self.settings.config.cpu.thresholds),
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
        let configured = self.settings.config.cpu.best_effort;
        BestEffortSettings { order: self.options.best_effort.unwrap_or(configured.order), ..configured }
    }

    pub(crate) fn configure_best_effort(&mut self) {
        let settings = self.best_effort();
        let Some(mechanism) = self.cpu.mechanism.as_mut() else { return };
        let failure = match mechanism.set_best_effort(settings) {
            // Where there is no order to choose, nobody has asked for the default.
            Err(MechanismError::Unsupported { .. }) if settings == BestEffortSettings::default() => None,
            outcome => outcome.err(),
        };
        let sentence = |error| format!("best_effort = \"{}\" is not in force: {error}", settings.order);
        self.health.set(Topic::BestEffort, failure.map(sentence).into_iter().collect());
    }

    pub(crate) fn gone_reason(&self) -> String {
        let reason = self.cpu.loading.note.as_ref().or(self.cpu.loading.exit_reason.as_ref());
        reason.cloned().unwrap_or_else(|| "it was never loaded".to_owned())
    }

    pub(crate) fn lose_mechanism(&mut self, reason: String, now_ns: u64) {
        let kind = self.cpu.mechanism.as_ref().map(|mechanism| mechanism.kind());
        tracing::error!(
            decision = "mechanism-lost",
            mechanism = kind.map(|kind| kind.to_string()),
            reason,
            "the kernel took the scheduler back; all tasks are on the default scheduler, unharmed"
        );
        self.memory.manager.set_bumper(None);
        // Dropped before the next is loaded: only one can be attached.
        self.cpu.mechanism = None;
        self.cpu.waiting = Waiting::default();
        self.cpu.loading.exit_reason = Some(reason);
        self.cpu.loading.load_failed = false;
        self.cpu.loading.retry_at_ns = Some(now_ns);
    }

    pub(crate) fn load_again(&mut self, now_ns: u64) {
        let first = match self.choice() {
            MechanismChoice::Deadline => MechanismKind::Deadline,
            MechanismChoice::Auto | MechanismChoice::SchedExt => MechanismKind::SchedExt,
        };
        match self.cpu.loading.retries.ask(now_ns, self.cpu.loading.load_failed) {
            Retry::Later(at) => self.cpu.loading.retry_at_ns = Some(at),
            Retry::GiveUp => self.fall_back(),
            Retry::Now => match self.load_mechanism(first) {
                Ok(()) => {
                    self.cpu.loading.retry_at_ns = None;
                    self.cpu.loading.restarts += 1;
                    self.cpu.loading.note = None;
                    self.put_in_force();
                }
                Err(LoadFailure { reason, .. }) => {
                    tracing::error!(
                        decision = "mechanism-failed",
                        reason,
                        "the scheduler could not be loaded again"
                    );
                    self.cpu.loading.note = Some(reason);
                    self.cpu.loading.load_failed = true;
                    self.cpu.loading.retry_at_ns = Some(now_ns);
                }
            },
        }
    }

    /// After too many failures: nice values where the choice allows it, otherwise nothing. Not SCHED_DEADLINE: what
    /// made the kernel take our scheduler out is not known, and with tasks in a real-time class it would go on, or
    /// worse. A nice value can starve nobody and has no part in the kernel's account of CPUs.
    pub(crate) fn fall_back(&mut self) {
        self.cpu.loading.retry_at_ns = None;
        let last = self.cpu.loading.exit_reason.clone().unwrap_or_default();
        let mut note = format!("given up after 3 attempts within 10 minutes; the last ended with: {last}");
        if self.choice() == MechanismChoice::Auto {
            match self.load_mechanism(MechanismKind::Nice) {
                Ok(()) => {
                    note = format!(
                        "sched_ext was {note}; nothing is reserved now: programs with a specification have a better \
                         nice value"
                    );
                    self.cpu.loading.restarts += 1;
                    self.put_in_force();
                }
                Err(second) => note = format!("sched_ext was {note}; nice values: {}", second.reason),
            }
        }
        tracing::error!(decision = "gave-up", "{note}; systemctl restart stewardd tries again");
        self.cpu.loading.note = Some(note);
    }

    /// Cgroups for which there is no domain: their weights, limits and priorities are not kept.
    pub(crate) fn note_cgroups(&mut self) {
        let count = self.cpu.mechanism.as_ref().map_or(0, |mechanism| mechanism.cgroups_without_domain());
        let sentence = format!(
            "{count} cgroups have no domain of their own and belong to the one above them, so that their weights and limits do \
             not hold: there are too many below one cgroup (docs/scheduler.md, Known limits)"
        );
        self.health.set(Topic::Cgroups, (count > 0).then_some(sentence).into_iter().collect());
    }
}

/// What one of the daemon's own threads is given.
fn own_grant(reservation: Reservation) -> Grant {
    let (inherit, revocable, keep_over_exec) = (false, false, false);
    let irrevocable_for = IrrevocableFor::Root;
    let (spec_id, requests_at) = (0, None);
    Grant { reservation, inherit, revocable, irrevocable_for, keep_over_exec, spec_id, requests_at }
}

/// Gives the calling thread, the loop's, the nice value [`OWN_NICE`].
fn prefer_this_thread() -> Result<(), KernelError> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let flags = scheduling::FLAG_RESET_ON_FORK;
    scheduling::write(tid, &Scheduling { flags, nice: OWN_NICE, ..scheduling::read(tid)? })
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

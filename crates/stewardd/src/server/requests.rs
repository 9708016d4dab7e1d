//! Requests about the daemon and its files.

use libsteward::{ApiError, api};
use steward_core::authority::Action;
use steward_core::printable::printable_path;

use super::access::{Access, Handler, PROMISED, reply as answer};
use super::history::{Form, Telling};
use super::peer::Caller;
use super::{Answer, Topic, report};
use crate::cpu::reply;
use crate::cpu::requests::taken;
use crate::daemon::Daemon;

impl Handler for api::Status {
    const ACCESS: Access = PROMISED;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, _: &Caller) -> Result<Answer, ApiError> {
        daemon.shared::<Self>(|daemon| Ok(daemon.status()))
    }
}

impl Handler for api::ListSpecs {
    const ACCESS: Access = PROMISED;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, _: &Caller) -> Result<Answer, ApiError> {
        daemon.shared::<Self>(|daemon| Ok(daemon.list_specs()))
    }
}

impl Handler for api::Reload {
    const ACCESS: Access = Access::All(Action::Administer, "how the machine is divided");
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, _: &Caller) -> Result<Answer, ApiError> {
        answer(Ok(daemon.reloaded()))
    }
}

impl Handler for api::ListEvents {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        let sight = daemon.permit_decisions(caller)?;
        daemon.go_on_telling(caller, Telling::new(Form::List, sight))
    }
}

impl Handler for api::Monitor {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        let sight = daemon.permit_decisions(caller)?;
        match self.history {
            Some(true) => daemon.go_on_telling(caller, Telling::new(Form::Stream, sight)),
            _ => Ok(Answer::Stream(Topic::Decisions, sight, Vec::new())),
        }
    }
}

impl Daemon {
    /// Tells somebody more of all decisions, and answers once that was all.
    pub(crate) fn go_on_telling(
        &mut self,
        caller: &Caller,
        mut telling: Telling,
    ) -> Result<Answer, ApiError> {
        if !self.history.tell(&mut telling) {
            return Ok(Answer::Again(telling.into()));
        }
        // The rules may have changed while it was made.
        let (sight, form) = (telling.sight(), telling.form());
        let other = self.permit_listening(caller, sight)?;
        if other != sight {
            return Ok(Answer::Again(Telling::new(form, other).into()));
        }
        let reply = telling.into_reply(self.events_lost);
        Ok(match form {
            Form::List => Answer::Texts(reply),
            Form::Stream => Answer::Stream(Topic::Decisions, sight, reply),
        })
    }

    fn reloaded(&mut self) -> api::Reloaded {
        let applied = self.reload();
        api::Reloaded {
            specs: self.loaded.specs.len() as u64,
            assigned: applied.assigned,
            released: applied.released,
            problems: self.reported_problems(),
        }
    }

    pub(crate) fn reported_problems(&self) -> Vec<api::Problem> {
        let said = self.health.all().map(|sentence| report::health(sentence));
        self.problems().map(report::problem).chain(said).collect()
    }

    pub(crate) fn status(&mut self) -> api::StatusReply {
        self.note_cgroups();
        let snapshot = self.snapshot().unwrap_or_default();
        let real_time = self.real_time(&snapshot.tasks);
        let kind = self.cpu.mechanism.as_ref().map(|mechanism| reply::mechanism_kind(mechanism.kind()));
        api::StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            owner: self.settings.policy.owner_uid.map(|uid| uid.to_string()),
            specs: self.loaded.specs.len() as u64,
            events_lost: self.events_lost,
            cpu: api::CpuState {
                mechanism: api::MechanismState {
                    kind,
                    note: self.cpu.loading.note.clone(),
                    exit_reason: self.cpu.loading.exit_reason.clone(),
                    restarts: self.cpu.loading.restarts,
                },
                thresholds: reply::thresholds(&self.settings.config.cpu.thresholds),
                cpus: snapshot.cpus.iter().map(|cpu| reply::cpu(cpu, taken(&real_time, cpu.cpu))).collect(),
                tasks: snapshot.tasks.iter().map(|task| self.reported_task(task)).collect(),
            },
            memory: self.memory_state(),
            disks: self.calibrated_disks(),
            problems: self.reported_problems(),
        }
    }

    pub(crate) fn list_specs(&self) -> api::SpecList {
        let specs = self.loaded.table.entries.iter().filter_map(|entry| {
            let spec = self.loaded.by_name(&entry.name)?;
            Some(api::Spec {
                name: entry.name.clone(),
                grant: entry.grant.map(|grant| reply::grant(&grant, &self.ids)),
                file: printable_path(&spec.origin.file),
                line: (spec.origin.line > 0).then_some(u64::from(spec.origin.line)),
                resolved: !matches!(entry.subject, steward_core::cpu::table::Subject::Executable(None)),
            })
        });
        let mut specs: Vec<api::Spec> = specs.collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        api::SpecList { specs, problems: self.reported_problems() }
    }
}

//! `SuspendDomain` and `LowerDomain`: who may suspend or lower what, and what must never be.

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request};
use steward_core::domain::name;
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use crate::cpu::reply;
use crate::daemon::Daemon;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply as answer};
use crate::server::peer::Caller;

impl Handler for api::SuspendDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        answer(daemon.suspend_domain(caller, &self))
    }
}

impl Handler for api::LowerDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        answer(daemon.lower_domain(caller, &self))
    }
}

impl Daemon {
    pub(crate) fn suspend_domain(
        &mut self,
        caller: &Caller,
        request: &api::SuspendDomain,
    ) -> Result<api::DomainSuspended, ApiError> {
        let cgroup = self.domains.resolve(&request.domain)?;
        let suspended = if request.suspended {
            let (target, about) = self.target(caller, &cgroup);
            self.permit(caller, &Request::new(Action::Limit, Resource::Cpu, target, about))?;
            self.refuse_to_suspend(caller, &cgroup)?;
            if self.cpu.mechanism.is_none() {
                return Err(ApiError::MechanismGone { reason: self.gone_reason() });
            }
            let (path, id) = (cgroup.path.as_str(), cgroup.id);
            let outcome = self.cpu.suspensions.suspend(path, id, caller.id, &mut self.cpu.mechanism);
            outcome.map_err(reply::mechanism_error)?;
            self.cpu.audit.note_suspended(id);
            true
        } else {
            // Nobody is asked: it ends only what this caller's own connection began.
            self.cpu.suspensions.let_go(&cgroup.path, caller.id, &mut self.cpu.mechanism)
        };
        tracing::debug!(
            decision = if request.suspended { "suspended" } else { "let-go" },
            domain = request.domain,
            suspended,
            uid = caller.uid,
            "asked for by process {}",
            caller.pid
        );
        Ok(api::DomainSuspended { suspended })
    }

    pub(crate) fn lower_domain(
        &mut self,
        caller: &Caller,
        request: &api::LowerDomain,
    ) -> Result<api::DomainLowered, ApiError> {
        let cgroup = self.domains.resolve(&request.domain)?;
        let lowered = if request.lowered {
            let (target, about) = self.target(caller, &cgroup);
            self.permit(caller, &Request::new(Action::Limit, Resource::Cpu, target, about))?;
            if cgroup.path.is_empty() {
                let reason = "there is nothing beside it to come first; lower a domain below it".to_owned();
                return Err(ApiError::InvalidParameter { parameter: "domain".into(), reason });
            }
            if self.cpu.mechanism.is_none() {
                return Err(ApiError::MechanismGone { reason: self.gone_reason() });
            }
            self.domains.lower(&cgroup, caller.id, &mut self.cpu.mechanism)?;
            true
        } else {
            // Nobody is asked: it ends only what this caller's own connection began.
            self.domains.raise(&cgroup.path, caller.id, &mut self.cpu.mechanism)
        };
        tracing::debug!(
            decision = if request.lowered { "lowered" } else { "raised" },
            domain = request.domain,
            lowered,
            uid = caller.uid,
            "asked for by process {}",
            caller.pid
        );
        Ok(api::DomainLowered { lowered })
    }

    /// What must go on, and what is not ours to stop.
    fn refuse_to_suspend(&self, caller: &Caller, cgroup: &Cgroup) -> Result<(), ApiError> {
        let refused = |reason: &str| {
            Err(ApiError::InvalidParameter { parameter: "domain".into(), reason: reason.to_owned() })
        };
        if cgroup.path.is_empty() {
            return refused("everything would stand still; suspend a domain below it");
        }
        let cgroups = self.domains.cgroups()?;
        let holds = |pid: i32| cgroups.path_of(pid).is_ok_and(|at| name::is_at_or_below(&at, &cgroup.path));
        if holds(rustix::process::getpid().as_raw_nonzero().get()) {
            return refused("stewardd itself is in it, and could never resume it");
        }
        if holds(caller.pid) {
            return refused("the process that asks is in it, and could never resume it; ask from outside");
        }
        let is_ours = self.cpu.suspensions.is_suspended(cgroup.id);
        if !is_ours && cgroups.is_frozen(&cgroup.path).unwrap_or(false) {
            let name = &cgroup.path;
            return refused(&format!(
                "somebody else has frozen it (/sys/fs/cgroup/{name}/cgroup.freeze is 1); nothing was changed"
            ));
        }
        Ok(())
    }
}

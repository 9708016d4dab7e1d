//! Why a domain has the memory, and the part of the disk, that it has. Everybody may ask for the domain that they are
//! in and those below it; for others by the rules.

use libsteward::api::{self, ApiError, EventKind};
use steward_core::authority::{Action, Request, Target};
use steward_core::cpu::explain::explain_domain;
use steward_core::resource::Resource;

use crate::daemon::Daemon;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply};
use crate::server::peer::Caller;

impl Handler for api::ExplainDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.domain_explanation(caller, &self))
    }
}

impl Daemon {
    fn domain_explanation(
        &mut self,
        caller: &Caller,
        request: &api::ExplainDomain,
    ) -> Result<api::DomainExplanation, ApiError> {
        let cgroup = match &request.domain {
            None => self.domain_of_caller(caller)?,
            Some(domain) => self.domains.resolve(domain)?,
        };
        if !self.is_own_domain(caller, &cgroup) {
            let (target, about) = self.target(caller, &cgroup);
            self.permit(caller, &Request::new(Action::Read, Resource::Memory, target, about))?;
        }
        let name = self.domains.names().name_of(&cgroup.path);
        let reserved = self.domains.held(&cgroup.path).and_then(|held| held.settings.cpu.reserved);
        let of_memory = self.explain_memory(&cgroup, &|path| self.may_see(caller, path));
        let of_record = self.memory_record(caller, &cgroup)?.map_or_else(String::new, |(_, text)| text);
        let text = explain_domain(&name, reserved, None).replacen("It is in the", "This is the", 1)
            + &of_memory
            + &self.explain_disk(&cgroup)
            + &of_record;
        let sees_all = self
            .is_permitted(caller, &Request::of_all(Action::Read, Target::Others, "what is promised to whom"));
        let is_about = |event: &&api::Event| {
            let about = event.domain.as_ref();
            about.is_some_and(|domain| domain.name == name) && (sees_all || names_nobody_else(event))
        };
        let events = self.history.events().filter(is_about).cloned().collect();
        Ok(api::DomainExplanation { domain: name, text, events })
    }
}

/// Whether a decision about a domain has no other domain's name in it.
fn names_nobody_else(event: &api::Event) -> bool {
    !matches!(event.kind, EventKind::MemoryTaken | EventKind::MemoryStalled)
}

//! Why a domain has the memory, and the part of the disk, that it has. Everybody may ask for the domain that they are
//! in and those below it; for others by the rules.

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request};
use steward_core::cpu::explain::explain_domain;
use steward_core::resource::Resource;

use crate::daemon::Daemon;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply};
use crate::server::peer::Caller;
use crate::server::sight::Sight;

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
            + &self.explain_disk_lately(caller, &cgroup)
            + &of_record;
        // Who may see the domain is told what became of it; the names of others are by the rules.
        let events = self.history.of_domain(&name, self.sight(caller).unwrap_or(Sight::none_of(caller.uid)));
        let disk_waits = self.disk_waits_below(caller, &cgroup.path);
        Ok(api::DomainExplanation { domain: name, text, disk_waits, events })
    }
}

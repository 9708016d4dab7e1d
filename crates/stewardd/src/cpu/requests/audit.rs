//! Did a domain get what it was promised? Everybody may ask for the domain that they are in; for others by the rules.

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request};
use steward_core::cpu::audit::text::{Promised, explain};
use steward_core::cpu::audit::{Family, Tally};
use steward_core::cpu::mechanism::MechanismKind;
use steward_core::record::Span;
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;
use crate::files::record::since_boot_s;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply};
use crate::server::peer::Caller;

impl Handler for api::AuditDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.audit_domain(caller, &self))
    }
}

impl Daemon {
    pub(crate) fn audit_domain(
        &mut self,
        caller: &Caller,
        request: &api::AuditDomain,
    ) -> Result<api::DomainAudit, ApiError> {
        let cgroup = match &request.domain {
            None => self.domain_of_caller(caller)?,
            Some(domain) => {
                let cgroup = self.domains.resolve(domain)?;
                self.permit_audit(caller, &cgroup)?;
                cgroup
            }
        };
        let name = self.domains.names().name_of(&cgroup.path);
        let now_s = self.cpu.audit.now_s(since_boot_s());
        let record = self.cpu.audit.record(&cgroup.path, self.domains.user_of(&cgroup));
        let kept = |span| (span, record.map(|record| record.sum(span, now_s)).unwrap_or_default());
        let kept: Vec<(Span, Tally)> = Span::ALL.into_iter().map(kept).collect();
        let of_cpu = explain(&name, &self.promised(&cgroup), &kept);
        let (memory, of_memory) = self.memory_record(caller, &cgroup)?.unzip();
        let of_disk = Some(self.explain_disk_lately(caller, &cgroup)).filter(|text| !text.is_empty());
        let texts = [Some(of_cpu), of_memory, of_disk].into_iter().flatten();
        let text = texts.collect::<Vec<_>>().join("\n");
        Ok(api::DomainAudit { domain: name, spans: kept.iter().map(span).collect(), memory, text })
    }

    fn permit_audit(&mut self, caller: &Caller, cgroup: &Cgroup) -> Result<(), ApiError> {
        let is_own = self.domain_of_caller(caller).is_ok_and(|own| own.path == cgroup.path);
        if is_own {
            return Ok(());
        }
        let (target, about) = self.target(caller, cgroup);
        self.permit(caller, &Request::new(Action::Read, Resource::Cpu, target, about))
    }

    /// What a domain is promised now.
    fn promised(&mut self, cgroup: &Cgroup) -> Promised {
        let reserved = self.domains.held(&cgroup.path).and_then(|held| held.settings.cpu.reserved);
        if reserved.is_none_or(|reserved| reserved <= 0.0) {
            return Promised::Nothing;
        }
        let mechanism =
            self.cpu.mechanism.as_mut().filter(|mechanism| mechanism.kind() == MechanismKind::SchedExt);
        let Some(records) = mechanism.and_then(|mechanism| mechanism.domains().ok()) else {
            return Promised::NotInForce;
        };
        let own = records.iter().find(|record| record.cgroup_id == cgroup.id);
        let fraction = Family::of(&records).reserved_of_machine(cgroup.id);
        match own {
            Some(own) if own.policy.reserved > 0.0 && fraction <= 0.0 => Promised::Above,
            Some(_) if fraction > 0.0 => Promised::Fraction {
                fraction,
                cpus: self.online_cpu_count(),
                service_cycle_ns: self.best_effort().service_cycle_ns,
                waiting_domains: records.iter().filter(|record| record.runnable > 0).count(),
            },
            _ => Promised::NotInForce,
        }
    }
}

fn span((span, tally): &(Span, Tally)) -> api::AuditedSpan {
    let Tally { seen_ns, promised_ns, wanted_ns, received_ns, waited_ns, seconds, broken, worst_missing_ns } =
        *tally;
    api::AuditedSpan {
        span: span.name().to_owned(),
        seen_ns,
        promised_ns,
        wanted_ns,
        received_ns,
        waited_ns,
        seconds,
        broken,
        worst_missing_ns,
    }
}

//! Was what a domain was promised of the memory kept, and by whom was it broken? Everybody may ask for the domain that
//! they are in; for others by the rules, which also say whose names they are told.

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request, Target};
use steward_core::memory::audit::text::{Kept, Named, Promised, explain};
use steward_core::memory::audit::{Blame, Tally, culprit_of};
use steward_core::record::{Counted, Span};
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;
use crate::files::record::since_boot_s;
use crate::server::peer::Caller;

impl Daemon {
    /// The record of what a domain was promised of the memory, in figures and in sentences; `None` where there is none,
    /// or the caller may not see it.
    ///
    /// # Errors
    /// While it is being asked whether the caller may.
    pub(crate) fn memory_record(
        &mut self,
        caller: &Caller,
        cgroup: &Cgroup,
    ) -> Result<Option<(Vec<api::AuditedMemory>, String)>, ApiError> {
        let promised = self.promised_memory(cgroup);
        let kept: Vec<(Span, Tally)> = Span::ALL.map(|span| (span, self.kept_memory(cgroup, span))).to_vec();
        let is_kept = kept.iter().any(|(_, tally)| tally.seen_ns > 0);
        if promised.is_nothing() && !is_kept {
            return Ok(None);
        }
        if let Err(denied) = self.permit_memory_record(caller, cgroup) {
            return if self.polkit.is_waiting(caller.id) { Err(denied) } else { Ok(None) };
        }
        let kept: Vec<Kept> = kept
            .into_iter()
            .map(|(span, tally)| Kept { span, tally, culprits: self.culprits(caller, cgroup, span) })
            .collect();
        let text = explain(&self.domains.names().name_of(&cgroup.path), &promised, &kept);
        Ok(Some((kept.into_iter().map(audited).collect(), text)))
    }

    fn permit_memory_record(&mut self, caller: &Caller, cgroup: &Cgroup) -> Result<(), ApiError> {
        if self.is_own_domain(caller, cgroup) {
            return Ok(());
        }
        let (target, about) = self.target(caller, cgroup);
        self.permit(caller, &Request::new(Action::Read, Resource::Memory, target, about))
    }

    /// What a domain is promised of the memory now.
    pub(crate) fn promised_memory(&self, cgroup: &Cgroup) -> Promised {
        let held = self.domains.held(&cgroup.path).filter(|held| held.cgroup_id == cgroup.id);
        let settings = held.map(|held| held.settings.clone()).unwrap_or_default();
        let mut promised = Promised {
            min_bytes: settings.memory.min_bytes.unwrap_or(0),
            protect_ns: settings.memory.protect_ns,
            problem: None,
            is_pressure_counted: self.counts_pressure(&cgroup.path),
        };
        if !promised.is_nothing() {
            promised.problem = self.domains.memory_problem(&cgroup.path, &settings);
        }
        promised
    }

    fn counts_pressure(&self, path: &str) -> bool {
        let counters = self.domains.cgroups().ok().and_then(|cgroups| cgroups.memory_counters(path));
        // Of one whose memory nobody counts, that is said elsewhere.
        counters.is_none_or(|counters| counters.stalled.is_some())
    }

    fn kept_memory(&self, cgroup: &Cgroup, span: Span) -> Tally {
        let audit = &self.memory.audit;
        let record = audit.kept.get(&cgroup.path, self.domains.user_of(cgroup));
        record.map(|record| record.sum(span, audit.kept.now_s(since_boot_s()))).unwrap_or_default()
    }

    /// Who broke the promise to a domain within a span, most often first; all whom the caller may not see are one.
    fn culprits(&self, caller: &Caller, cgroup: &Cgroup, span: Span) -> Vec<Named> {
        let user = self.domains.user_of(cgroup);
        let blamed = &self.memory.audit.blamed;
        let now_s = blamed.now_s(since_boot_s());
        let of_domain = blamed.records.iter().filter_map(|(key, record)| {
            let culprit = culprit_of(key, &cgroup.path).filter(|_| record.user == user)?;
            Some((culprit.to_owned(), record.sum(span, now_s)))
        });
        let found: Vec<(String, Blame)> = of_domain.filter(|(_, blame)| blame.seconds > 0).collect();
        let (mut named, mut others) = (Vec::new(), Blame::default());
        for (path, blame) in found {
            match self.may_see(caller, &path) {
                true => named.push(Named { name: Some(self.domains.names().name_of(&path)), blame }),
                false => others.add(&blame),
            }
        }
        named.extend((others.seconds > 0).then_some(Named { name: None, blame: others }));
        named.sort_by_key(|named| std::cmp::Reverse((named.blame.seconds, named.blame.taken_bytes)));
        named
    }

    /// Whether a caller may see what a domain uses, without anybody being asked. Of one that has gone nobody knows
    /// whose it was.
    pub(crate) fn may_see(&self, caller: &Caller, path: &str) -> bool {
        let cgroup = self.domains.cgroups().ok().and_then(|cgroups| cgroups.find(path).ok());
        let (target, about) = match &cgroup {
            Some(cgroup) if self.is_own_domain(caller, cgroup) => return true,
            Some(cgroup) => self.target(caller, cgroup),
            None => (Target::Others, path.to_owned()),
        };
        self.is_permitted(caller, &Request::new(Action::Read, Resource::Memory, target, about))
    }
}

fn audited(kept: Kept) -> api::AuditedMemory {
    let Tally { seen_ns, in_force_ns, stalled_ns, stopped_ns, refaults, .. } = kept.tally;
    let Tally { major_faults, seconds, broken, worst_stalled_ns, .. } = kept.tally;
    let culprit = |named: Named| api::Culprit {
        domain: named.name,
        seconds: named.blame.seconds,
        taken: named.blame.taken_bytes,
    };
    api::AuditedMemory {
        span: kept.span.name().to_owned(),
        seen_ns,
        in_force_ns,
        stalled_ns,
        stopped_ns,
        refaults,
        major_faults,
        seconds,
        broken,
        worst_stalled_ns,
        culprits: kept.culprits.into_iter().map(culprit).collect(),
    }
}

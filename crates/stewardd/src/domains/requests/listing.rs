//! The list of all domains, made in pieces: there may be thousands, and each is shown from some ten files.
//!
//! First the tree is looked at until all is known that was changed before the list was asked for, then it is read what
//! each uses of the memory, and only then can it be said what each may use. It tells of the domains that there were
//! when the tree was known; who watches domains from then on is told of what became of them meanwhile at its end. How
//! much memory a domain may use is in the list for who may know that; who watches domains is not told of it, which
//! changes without an end.

use std::sync::Arc;

use libsteward::api::{self, ApiError, Method};
use libsteward::wire;
use steward_kernel::cgroup::reading::MemoryUse;

use crate::daemon::Daemon;
use crate::domains::reading::Group;
use crate::domains::view::{Figures, Records};
use crate::memory::usage::without_availability;
use crate::server::peer::Caller;
use crate::server::pieces::Unfinished;
use crate::server::sight::{AvailabilitySight, Sight, Whose};
use crate::server::texts::Key;
use crate::server::{Answer, Topic, report};
use crate::turn::clock::{cpu_time_ns, now_ns};

/// How long a piece goes on, in nanoseconds; the domain that is in hand then is finished.
const PIECE_NS: u64 = 2_000_000;
/// How many domains a piece is about at least.
const PIECE_DOMAINS_MIN: usize = 4;

/// What the list is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Purpose {
    /// To be the answer to somebody who may know of these how much memory they may use.
    List(AvailabilitySight),
    /// To be what somebody who watches is told first, as far as they may see it.
    Present(Sight),
}

/// A list that is not whole yet.
pub(crate) struct Listing {
    purpose: Purpose,
    /// What was changed before this is in it, in nanoseconds of `CLOCK_MONOTONIC`.
    since_ns: u64,
    /// What CPU time was taken for it, in nanoseconds.
    cost_ns: u64,
    stage: Stage,
    /// Leave to make it.
    leave: Option<Arc<()>>,
}

enum Stage {
    /// The tree is looked at.
    Looking,
    /// What each uses of the memory is read.
    Reading { groups: Arc<Vec<Group>>, used: Vec<Option<MemoryUse>>, told: u64 },
    /// They are written.
    Writing(Box<Writing>),
}

/// A list of which all is known that has to be known of all.
struct Writing {
    groups: Arc<Vec<Group>>,
    figures: Figures,
    records: Records,
    /// How many were written.
    done: usize,
    text: String,
    /// How many decisions there were before they were listed.
    told: u64,
}

impl From<Box<Listing>> for Unfinished {
    fn from(listing: Box<Listing>) -> Self {
        let (held_bytes, is_begun) = match &listing.stage {
            Stage::Looking => (0, false),
            Stage::Reading { used, .. } => (used.capacity() * size_of::<Option<MemoryUse>>(), true),
            Stage::Writing(writing) => (writing.text.capacity() + writing.figures.held_bytes(), true),
        };
        Unfinished::new(listing, held_bytes, is_begun)
    }
}

impl Daemon {
    /// The list of all domains, or the first piece of it.
    pub(super) fn begin_listing(&mut self, caller: &Caller, purpose: Purpose) -> Result<Answer, ApiError> {
        self.domains.cgroups()?;
        let since_ns = now_ns();
        let listing = Listing { purpose, since_ns, cost_ns: 0, stage: Stage::Looking, leave: None };
        self.go_on_listing(caller, Box::new(listing))
    }

    /// Makes one piece more of it.
    pub(crate) fn go_on_listing(
        &mut self,
        caller: &Caller,
        mut listing: Box<Listing>,
    ) -> Result<Answer, ApiError> {
        if matches!(listing.stage, Stage::Looking)
            && let Some(text) = self.recent_listing(&listing.purpose)
        {
            return self.answer_listed(caller, &listing.purpose, text);
        }
        let begun_ns = cpu_time_ns();
        let until_ns = now_ns() + PIECE_NS;
        while let Some(stage) = self.next_stage(caller, &mut listing, until_ns)? {
            listing.stage = stage;
            if let Stage::Writing(writing) = &mut listing.stage
                && writing.done >= writing.groups.len()
            {
                let text = self.finish_listing(writing, &listing.purpose);
                listing.cost_ns += cpu_time_ns().saturating_sub(begun_ns);
                self.keep_listing(&listing.purpose, &text, listing.cost_ns);
                return self.answer_listed(caller, &listing.purpose, text);
            }
            if now_ns() >= until_ns {
                break;
            }
        }
        listing.cost_ns += cpu_time_ns().saturating_sub(begun_ns);
        Ok(Answer::Again(listing.into()))
    }

    /// Goes on in the stage that it is in; `None` where it has to wait for its next turn.
    fn next_stage(
        &mut self,
        caller: &Caller,
        listing: &mut Listing,
        until_ns: u64,
    ) -> Result<Option<Stage>, ApiError> {
        Ok(match std::mem::replace(&mut listing.stage, Stage::Looking) {
            Stage::Looking => {
                let groups = &mut self.cpu.sampler.groups;
                if !groups.look_until_whole(&self.domains, listing.since_ns) {
                    return Ok(None);
                }
                groups.take_over(&self.domains, now_ns());
                let groups = groups.shared();
                listing.leave = self.cpu.sampler.may_make(caller.payer);
                if listing.leave.is_none() {
                    return Ok(None);
                }
                let used = Vec::with_capacity(groups.len());
                Some(Stage::Reading { groups, used, told: self.history.noted() })
            }
            Stage::Reading { groups, mut used, told } => {
                let cgroups = self.domains.cgroups()?;
                let least = used.len() + PIECE_DOMAINS_MIN;
                while used.len() < groups.len() && (used.len() < least || now_ns() < until_ns) {
                    used.push(cgroups.memory_use(&groups[used.len()].about.path));
                }
                if used.len() < groups.len() {
                    return Ok(Some(Stage::Reading { groups, used, told }));
                }
                let (figures, records) = (self.domains.figures(&groups, used), self.domain_records());
                let text = listing.purpose.begin();
                Some(Stage::Writing(Box::new(Writing { groups, figures, records, done: 0, text, told })))
            }
            Stage::Writing(mut writing) => {
                let least = writing.done + PIECE_DOMAINS_MIN;
                while writing.done < writing.groups.len() && (writing.done < least || now_ns() < until_ns) {
                    self.write_listed(&mut writing, &listing.purpose);
                    writing.done += 1;
                }
                Some(Stage::Writing(writing))
            }
        })
    }

    fn write_listed(&self, writing: &mut Writing, purpose: &Purpose) {
        let Writing { groups, figures, records, done, text, .. } = writing;
        let group = &groups[*done];
        if let Purpose::Present(sight) = purpose
            && !sight.sees(&group.whose())
        {
            return;
        }
        let Some(domain) = self.domains.listed(groups, *done, figures, records) else { return };
        match purpose {
            Purpose::List(sight) => {
                let is_told = sight.sees(&group.about.path, &group.whose());
                let domain = if is_told { domain } else { without_availability(domain) };
                let separator = if text.ends_with('[') { "" } else { "," };
                text.extend([separator, &*report::json(&domain)]);
            }
            Purpose::Present(_) => {
                let domain = Some(without_availability(domain));
                push_watched(text, api::DomainWatched { domain, ..Default::default() });
            }
        }
    }

    fn finish_listing(&mut self, writing: &mut Writing, purpose: &Purpose) -> Arc<str> {
        let mut text = std::mem::take(&mut writing.text);
        match purpose {
            Purpose::List(_) => {
                let settings = self.best_effort();
                let best_effort = api::BestEffort {
                    order: settings.order.to_string(),
                    service_cycle_ns: settings.service_cycle_ns,
                    preemption_interval_ns: settings.preemption_interval_ns,
                };
                text.extend(["],\"best_effort\":", &*report::json(&best_effort), "}"]);
            }
            Purpose::Present(sight) => {
                for event in self.history.since(writing.told, *sight) {
                    let name = event.domain.as_ref().map(|domain| domain.name.clone());
                    if !report::changes_domain(event.kind) {
                        continue;
                    }
                    let found = name.and_then(|name| self.domains.resolve(&name).ok());
                    let domain = found.and_then(|cgroup| self.domains.view(&cgroup.path, None));
                    let domain = domain.map(without_availability);
                    push_watched(&mut text, api::DomainWatched { event: Some(event), domain, lost: 0 });
                }
            }
        }
        text.into()
    }

    fn answer_listed(
        &mut self,
        caller: &Caller,
        purpose: &Purpose,
        text: Arc<str>,
    ) -> Result<Answer, ApiError> {
        // The rules may have changed while it was made.
        match purpose {
            Purpose::List(sight) => match self.availability_sight(caller) {
                same if same == *sight => Ok(Answer::Text(text)),
                other => self.begin_listing(caller, Purpose::List(other)),
            },
            Purpose::Present(sight) => match self.permit_listening(caller, *sight)? {
                same if same == *sight => Ok(Answer::Stream(Topic::Domains, *sight, vec![text])),
                other => self.begin_listing(caller, Purpose::Present(other)),
            },
        }
    }

    fn recent_listing(&mut self, purpose: &Purpose) -> Option<Arc<str>> {
        self.texts.recent(purpose.kept_as()?, now_ns())
    }

    fn keep_listing(&mut self, purpose: &Purpose, text: &Arc<str>, cost_ns: u64) {
        let done_ns = now_ns();
        if let Some(kept_as) = purpose.kept_as() {
            self.texts.keep(kept_as, text, done_ns.saturating_sub(cost_ns), done_ns);
        }
    }
}

impl Purpose {
    fn begin(&self) -> String {
        match self {
            Purpose::List(_) => "{\"domains\":[".to_owned(),
            Purpose::Present(_) => String::new(),
        }
    }

    /// Under what its text serves others, too, where it is the same for all who may have it.
    fn kept_as(&self) -> Option<Key> {
        match self {
            Purpose::List(sight) => Some(Key::new(api::ListDomains::NAME, sight)),
            Purpose::Present(Sight::ALL) => Some(api::WatchDomains::NAME.into()),
            Purpose::Present(_) => None,
        }
    }
}

/// One reply to somebody who watches domains, as it travels.
fn push_watched(text: &mut String, watched: api::DomainWatched) {
    let (before, after) = wire::around_reply(true);
    text.extend([before, &*report::json(&watched), after]);
}

impl Group {
    /// Whose it is, for who is to be told of it.
    fn whose(&self) -> Whose {
        let mut users = self.users().iter().copied();
        Whose { user: users.next(), above: users.collect() }
    }
}

//! Who is told how much memory a domain may use, and when again.
//!
//! A process is always told about the domain that it is in and about those below it: that is its own business. The
//! rules say who may know that of others (`read-availability`), here and wherever else it would be told. What is told
//! may be about a domain above the one that was asked about, where that one's memory is not counted: it lives on what
//! that one has.

mod audit;
mod explain;
mod pressure;
pub(crate) mod set;

use libsteward::api::{self, ApiError};
use steward_core::authority::Request;
use steward_core::memory::availability::is_news;
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;
use crate::memory::looks::Amounts;
use crate::server::access::{Access, Handler};
use crate::server::peer::Caller;
use crate::server::sight::{AvailabilitySight, Sight, is_within};
use crate::server::watch::{AvailabilityWatch, NamedDomain, Next, NextReply, Watch, Watched};
use crate::server::{Answer, report};
use crate::turn::clock::now_ns;

/// Time between two looks for one who watches, in nanoseconds: a change is told in less than 300 ms.
const LOOK_EVERY_NS: u64 = 250_000_000;

impl Handler for api::WatchAvailability {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        let named = self.domain.map(|name| daemon.permit_availability(caller, name)).transpose()?;
        let about = Watched::Availability(AvailabilityWatch { named, told: None });
        Ok(Answer::Watch(Watch { about, every_ns: LOOK_EVERY_NS }))
    }
}

impl Daemon {
    fn permit_availability(&mut self, caller: &Caller, name: String) -> Result<NamedDomain, ApiError> {
        let cgroup = self.domains.resolve(&name)?;
        let is_own = self.is_own_domain(caller, &cgroup);
        if !is_own {
            let (target, about) = self.target(caller, &cgroup);
            self.permit(caller, &Request::of_availability(target, about))?;
        }
        Ok(NamedDomain { name, cgroup_id: cgroup.id, granted: !is_own })
    }

    /// Whether a process is in a domain, or in one above it. Below the root is everything, and nothing one's own.
    pub(crate) fn is_own_domain(&self, caller: &Caller, cgroup: &Cgroup) -> bool {
        self.domain_of_caller(caller).is_ok_and(|own| is_within(&own.path, &cgroup.path))
    }

    /// Whether a caller may know how much memory a domain may use, without anybody being asked.
    pub(crate) fn may_read_availability(&self, caller: &Caller, cgroup: &Cgroup) -> bool {
        let (target, about) = self.target(caller, cgroup);
        self.is_permitted(caller, &Request::of_availability(target, about))
            || self.is_own_domain(caller, cgroup)
    }

    /// Of which domains a caller may know how much memory they may use, without anybody being asked.
    pub(crate) fn availability_sight(&self, caller: &Caller) -> AvailabilitySight {
        let may = |target| self.is_permitted(caller, &Request::of_availability(target, "domains"));
        match Sight::of(caller.uid, may) {
            Some(Sight::ALL) => AvailabilitySight::ALL,
            part => {
                let inside = self.domain_of_caller(caller).ok().map(|cgroup| cgroup.path);
                AvailabilitySight::of(part.unwrap_or(Sight::none_of(caller.uid)), inside)
            }
        }
    }

    /// The next reply to somebody who watches; none when nothing has changed that is worth telling.
    pub(crate) fn availability_of_watch(
        &mut self,
        caller: &Caller,
        watch: &mut AvailabilityWatch,
    ) -> NextReply {
        let cgroup = match &watch.named {
            None => self.domain_of_caller(caller)?,
            Some(named) => self.watched_domain(caller, named)?,
        };
        let now_ns = now_ns();
        let figures = self.availability(&cgroup.path, caller.payer, now_ns)?;
        if watch.named.is_none() && !figures.path.is_empty() {
            self.domains.note_adapting(&figures.path, now_ns, self.settings.config.memory.reserve_bytes);
        }
        let domain = self.domains.names().name_of(&figures.path);
        let now = figures.amounts;
        let is_told = |(about, told): &(String, Amounts)| {
            *about == domain
                && !is_news(told.available_bytes, now.available_bytes)
                && !is_news(told.at_once_bytes, now.at_once_bytes)
        };
        if watch.told.as_ref().is_some_and(is_told) {
            return Ok(Next::Nothing);
        }
        watch.told = Some((domain.clone(), now));
        let reply = api::Availability {
            domain,
            at_ns: figures.at_ns,
            used: now.used_bytes,
            available: now.available_bytes,
            available_at_once: now.at_once_bytes,
            time_to_free_ns: now.time_to_free_ns,
        };
        Ok(Next::Reply(report::json(&reply)))
    }

    /// The domain that somebody asked about, if it is still that one, and still the caller's own or allowed.
    fn watched_domain(&self, caller: &Caller, named: &NamedDomain) -> Result<Cgroup, ApiError> {
        let cgroup = self.domains.resolve(&named.name)?;
        if cgroup.id != named.cgroup_id {
            return Err(ApiError::NoSuchDomain { domain: named.name.clone() });
        }
        if self.is_own_domain(caller, &cgroup) {
            return Ok(cgroup);
        }
        if !named.granted {
            let reason = format!(
                "{} is no longer the domain of process {}, nor below it; ask again",
                named.name, caller.pid
            );
            return Err(ApiError::PermissionDenied { reason });
        }
        // The rules may have changed since, or whose the domain is.
        let (target, about) = self.target(caller, &cgroup);
        self.permit_still(caller, &Request::of_availability(target, about))?;
        Ok(cgroup)
    }
}

//! What clients may ask about domains.
//!
//! Making a domain and giving one more than it has takes from its siblings, and is a request to reserve. Taking less,
//! dividing one's own, moving one's own processes into a domain of one's own, and removing that domain are requests to
//! limit. Below a domain of one's own everything is paid out of it, which the rules know as `below-own`; but for the
//! protection of pages and having disk requests served before all others, which are requests to reserve wherever the
//! domain is.

pub(crate) mod listing;
pub(crate) mod removing;
mod slowed;
pub(crate) mod walk;

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request, Target};
use steward_core::domain::settings::CommonChange;
use steward_core::domain::{Change, Setting, Settings, name};
use steward_core::resource::Resource;
use steward_core::{cpu, disk, memory};
use steward_kernel::cgroup::tree::Cgroup;
use steward_kernel::process::{self, Pidfd};

use self::listing::Purpose;
use crate::daemon::Daemon;
use crate::domains::view::Records;
use crate::domains::{Asker, Given};
use crate::memory::usage::without_availability;
use crate::server::access::{Access, Handler, PROMISED, reply};
use crate::server::peer::Caller;
use crate::server::report::invalid;
use crate::server::target::{for_process, kernel_error};
use crate::server::{Answer, Topic};
use crate::turn::clock::now_ns;

/// How much a process can complain of at once.
const MISSED_MAX: u64 = 1_000_000;

impl Handler for api::ListDomains {
    const ACCESS: Access = PROMISED;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.disk.counting.ask(now_ns());
        let sight = daemon.availability_sight(caller);
        daemon.begin_listing(caller, Purpose::List(sight))
    }
}

impl Handler for api::ShowDomain {
    const ACCESS: Access = PROMISED;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.disk.counting.ask(now_ns());
        reply(daemon.show_domain(caller, &self))
    }
}

impl Handler for api::CreateDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.create_domain(caller, &self))
    }
}

impl Handler for api::SetDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.set_domain(caller, &self))
    }
}

impl Handler for api::RemoveDomain {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.begin_removing(caller, &self)
    }
}

impl Handler for api::MoveProcess {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.move_process(caller, &self))
    }
}

impl Handler for api::WatchDomains {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        let sight = daemon.permit_decisions(caller)?;
        match self.present {
            // Without domains there are none present.
            Some(true) if daemon.domains.cgroups().is_ok() => {
                daemon.begin_listing(caller, Purpose::Present(sight))
            }
            _ => Ok(Answer::Stream(Topic::Domains, sight, Vec::new())),
        }
    }
}

impl Handler for api::Complain {
    const ACCESS: Access =
        Access::Open("a process says of itself that it was late, which is counted and nothing else");
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        reply(daemon.complain(caller, &self))
    }
}

impl Daemon {
    /// What the mechanism counts; nothing where it counts nothing.
    fn domain_records(&mut self) -> Records {
        let records =
            self.cpu.mechanism.as_mut().and_then(|mechanism| mechanism.domains().ok()).unwrap_or_default();
        records.into_iter().map(|record| (record.cgroup_id, record)).collect()
    }

    pub(crate) fn show_domain(
        &mut self,
        caller: &Caller,
        request: &api::ShowDomain,
    ) -> Result<api::DomainShown, ApiError> {
        let cgroup = match (&request.domain, request.pid) {
            (Some(_), Some(_)) => return Err(invalid("pid", "give a domain or a process, not both")),
            (Some(domain), None) => self.domains.resolve(domain)?,
            (None, Some(pid)) => self.domains.of_process(pid)?,
            (None, None) => self.domain_of_caller(caller)?,
        };
        let processes = self.domains.processes(&cgroup.path)?;
        Ok(api::DomainShown { domain: self.shown(caller, &cgroup)?, processes })
    }

    /// The domain that a process is in, without how much memory it may use; `None` when either has gone, or domains are
    /// not to be had.
    pub(crate) fn domain_of_process(&mut self, pid: i32) -> Option<api::Domain> {
        let cgroup = self.domains.of_process(pid).ok()?;
        self.view(&cgroup).ok().map(without_availability)
    }

    pub(crate) fn domain_of_caller(&self, caller: &Caller) -> Result<Cgroup, ApiError> {
        let cgroup = self.domains.of_process(caller.pid)?;
        // Only while it runs does the pid mean the caller.
        if caller.is_alive() { Ok(cgroup) } else { Err(ApiError::NoSuchTask { pid: caller.pid }) }
    }

    fn view(&mut self, cgroup: &Cgroup) -> Result<api::Domain, ApiError> {
        let records = self.domain_records();
        let gone = || ApiError::NoSuchDomain { domain: self.domains.names().name_of(&cgroup.path) };
        self.domains.view(&cgroup.path, Some(&records)).ok_or_else(gone)
    }

    /// A domain as the caller may see it.
    fn shown(&mut self, caller: &Caller, cgroup: &Cgroup) -> Result<api::Domain, ApiError> {
        let domain = self.view(cgroup)?;
        let is_told = domain.memory.is_none() || self.may_read_availability(caller, cgroup);
        Ok(if is_told { domain } else { without_availability(domain) })
    }

    pub(crate) fn create_domain(
        &mut self,
        caller: &Caller,
        request: &api::CreateDomain,
    ) -> Result<api::DomainState, ApiError> {
        let change = change(&request.settings)?;
        let path = self.domains.path_to_make(&request.domain)?;
        self.make_domain(caller, &path, &change, Given { user: request.user, keep: request.keep })?;
        let cgroup = self.domains.resolve(&request.domain)?;
        Ok(api::DomainState { domain: self.shown(caller, &cgroup)? })
    }

    /// Makes a domain at this path, if the caller may have it.
    pub(crate) fn make_domain(
        &mut self,
        caller: &Caller,
        path: &str,
        change: &Change,
        given: Given,
    ) -> Result<(), ApiError> {
        let target = Target::of_domain(caller.uid, None, self.domains.users_above(path));
        let about = format!("a new domain {}", self.domains.names().name_of(path));
        self.permit(caller, &with_place(request_about(Action::Reserve, change, target, about)))?;
        let user = given.user.unwrap_or(caller.uid);
        if change.memory.protect_ns.is_some() {
            self.permit_protection(caller, path, user)?;
        }
        if change.disk.class == Some(disk::Class::Interactive) {
            self.permit_first(caller, path, user)?;
        }
        self.domains.create(path, change, given, asker(caller), &mut self.cpu.mechanism)?;
        self.settle_memory();
        if let Err(error) = self.domains.memory_failure(path) {
            self.domains.remove(path, false, asker(caller), &mut self.cpu.mechanism)?;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn set_domain(
        &mut self,
        caller: &Caller,
        request: &api::SetDomain,
    ) -> Result<api::DomainState, ApiError> {
        let change = change(&request.settings)?;
        let cgroup = self.domains.resolve(&request.domain)?;
        self.change_domain(caller, &cgroup, &change, Given { user: request.user, keep: request.keep })?;
        Ok(api::DomainState { domain: self.shown(caller, &cgroup)? })
    }

    /// Changes what a domain has, if the caller may.
    pub(crate) fn change_domain(
        &mut self,
        caller: &Caller,
        cgroup: &Cgroup,
        change: &Change,
        given: Given,
    ) -> Result<(), ApiError> {
        let before = self.domains.held(&cgroup.path).map(|held| held.settings.clone()).unwrap_or_default();
        let (target, about) = self.target(caller, cgroup);
        let after = match change.apply(&before) {
            Ok(after) => after,
            Err(fault) => {
                // What is wrong with it may tell what the domain has.
                self.permit(caller, &request_about(Action::Limit, change, target, about))?;
                return Err(invalid(fault.setting.name(), fault.reason));
            }
        };
        let is_less = after.takes_no_more_than(&before, self.domains.kernel_weight(&cgroup.path));
        let gives_away = given.user.is_some_and(|user| user != self.domains.user_of(cgroup));
        let action = if is_less && !gives_away { Action::Limit } else { Action::Reserve };
        let asked = request_about(action, change, target, about);
        // Who gives a domain away gives its place away, too.
        self.permit(caller, &if gives_away { with_place(asked) } else { asked })?;
        if after.memory.protects_more_than(&before.memory) {
            self.permit_protection(caller, &cgroup.path, self.domains.user_of(cgroup))?;
        }
        if after.disk.is_served_sooner_than(&before.disk) {
            self.permit_first(caller, &cgroup.path, self.domains.user_of(cgroup))?;
        }
        let had = self
            .domains
            .held(&cgroup.path)
            .map(|held| Given { user: Some(held.user), keep: Some(held.keep) });
        self.domains.set(cgroup, change, given, asker(caller), &mut self.cpu.mechanism)?;
        self.settle_memory();
        if let Err(error) = self.domains.memory_failure(&cgroup.path) {
            let back = Change::to(&before);
            self.domains.set(
                cgroup,
                &back,
                had.unwrap_or_default(),
                asker(caller),
                &mut self.cpu.mechanism,
            )?;
            return Err(error);
        }
        Ok(())
    }

    /// The pages of a protected domain are kept at the cost of all others, and not of the domain above it: that it is
    /// below one of the caller's own counts for nothing.
    pub(crate) fn permit_protection(
        &mut self,
        caller: &Caller,
        path: &str,
        user: u32,
    ) -> Result<(), ApiError> {
        let target = Target::of_domain(caller.uid, Some(user), []);
        let about =
            format!("{}, whose pages all others would go without", self.domains.names().name_of(path));
        self.permit(caller, &Request::new(Action::Reserve, Resource::Memory, target, about))
    }

    /// The requests of an interactive domain are served before those of all others, and not only of the domain above
    /// it: that it is below one of the caller's own counts for nothing.
    fn permit_first(&mut self, caller: &Caller, path: &str, user: u32) -> Result<(), ApiError> {
        let target = Target::of_domain(caller.uid, Some(user), []);
        let about = format!(
            "{}, whose disk requests would be served before all others",
            self.domains.names().name_of(path)
        );
        self.permit(caller, &Request::new(Action::Reserve, Resource::Disk, target, about))
    }

    /// Whose a domain is, seen from the caller, and what it is called in a refusal.
    pub(crate) fn target(&self, caller: &Caller, cgroup: &Cgroup) -> (Target, String) {
        let user = self.domains.user_of(cgroup);
        let above = self.domains.users_above(&cgroup.path);
        let about = format!("the domain {} of user {user}", self.domains.names().name_of(&cgroup.path));
        (Target::of_domain(caller.uid, Some(user), above), about)
    }

    pub(crate) fn move_process(
        &mut self,
        caller: &Caller,
        request: &api::MoveProcess,
    ) -> Result<api::Moved, ApiError> {
        let pid = request.pid.unwrap_or(caller.pid);
        let process = self.take_hold(pid)?;
        if request.pid.is_none() && !caller.is_alive() {
            return Err(ApiError::NoSuchTask { pid });
        }
        let user = process.user(&self.options.roots).map_err(|error| kernel_error(pid, &error))?;
        let cgroup = self.domains.resolve(&request.domain)?;
        self.permit(caller, &for_process(Action::Limit, caller, pid, user))?;
        let from = self.domains.cgroups()?.path_of(pid).map_err(|error| kernel_error(pid, &error))?;
        self.permit_leaving(caller, &from, &cgroup.path)?;
        let (target, about) = self.target(caller, &cgroup);
        self.permit(caller, &Request::new(Action::Limit, Resource::Cpu, target, about))?;
        self.domains.enter(pid, &cgroup.path)?;
        self.has_moved(&process, user, &from, &cgroup)?;
        let names = self.domains.names();
        let left = self.domains.left_behind(&cgroup.path).into_iter().filter(|(of, ..)| *of == pid);
        let left_bytes = left.map(|(.., bytes)| bytes).fold(0, u64::saturating_add);
        let moved = api::Moved {
            from: names.name_of(name::domain_of(&from)),
            domain: names.name_of(&cgroup.path),
            left_bytes: Some(left_bytes).filter(|bytes| *bytes > 0),
        };
        tracing::info!(
            decision = "moved",
            pid,
            domain = moved.domain,
            from = moved.from,
            uid = caller.uid,
            "asked for by process {}",
            caller.pid
        );
        Ok(moved)
    }

    /// A process that is held was moved. It is put back if it became another user's meanwhile, or the cgroup another
    /// one; and so is who was moved in place of one that had ended, if anybody was.
    pub(crate) fn has_moved(
        &mut self,
        process: &Pidfd,
        user: Option<u32>,
        from: &str,
        to: &Cgroup,
    ) -> Result<(), ApiError> {
        self.disk.note_moved();
        let entered = self.still_of(process, user).and_then(|()| self.still_there(to));
        if entered.is_err() {
            let pid = process.id().tid;
            if process.is_alive() {
                self.put_back(pid, from);
            } else {
                self.put_stranger_back(pid, &to.path);
            }
        }
        entered
    }

    /// Whoever put a process into a domain may have done so to limit it: out of a domain of somebody else it is not
    /// moved. The root of the tree limits nobody. A user's slice belongs to the user, but its limits are the machine's;
    /// and so are those of a cgroup that its manager has left to a user to divide (systemd's `Delegate=`): the kernel
    /// lets that user move nothing out of it.
    pub(crate) fn permit_leaving(&mut self, caller: &Caller, from: &str, to: &str) -> Result<(), ApiError> {
        let from = name::domain_of(from);
        if from.is_empty() {
            return Ok(());
        }
        let left_slice = name::slice_of_user(from).filter(|slice| !name::is_at_or_below(to, slice));
        if let Some(slice) = left_slice {
            let about = format!("{}, whose limits it would leave", self.domains.names().name_of(slice));
            return self.permit(caller, &Request::new(Action::Limit, Resource::Cpu, Target::Others, about));
        }
        let cgroup = self.domains.cgroups()?.find(from);
        let cgroup =
            cgroup.map_err(|_| ApiError::NoSuchDomain { domain: self.domains.names().name_of(from) })?;
        let (target, about) = match self.target(caller, &cgroup) {
            (Target::Own | Target::BelowOwn, _) if !self.domains.is_within_made(from) => {
                let name = self.domains.names().name_of(from);
                (Target::Others, format!("{name}, whose limits are its manager's"))
            }
            (target, about) => (target, format!("{about}, which it is in")),
        };
        self.permit(caller, &Request::new(Action::Limit, Resource::Cpu, target, about))
    }

    /// Whether the cgroup that was decided about is still the one at its path, after acting on it.
    pub(crate) fn still_there(&self, cgroup: &Cgroup) -> Result<(), ApiError> {
        let found = self.domains.cgroups()?.find(&cgroup.path).map(|found| found.id);
        let gone = || ApiError::NoSuchDomain { domain: self.domains.names().name_of(&cgroup.path) };
        if found.is_ok_and(|id| id == cgroup.id) { Ok(()) } else { Err(gone()) }
    }

    /// The process that was to be moved had ended. If its pid was given out again before the move, another process was
    /// moved in its place: that one goes where its parent is, which is where it was born.
    fn put_stranger_back(&self, pid: i32, moved_to: &str) {
        let roots = &self.options.roots;
        let Ok(cgroups) = self.domains.cgroups() else { return };
        let is_here = cgroups.path_of(pid).is_ok_and(|path| name::domain_of(&path) == moved_to);
        let parent = process::stat(pid, roots).map(|stat| stat.parent);
        if let (true, Ok(parent)) = (is_here, parent)
            && let Ok(path) = cgroups.path_of(parent)
        {
            self.put_back(pid, &path);
        }
    }

    pub(crate) fn put_back(&self, pid: i32, path: &str) {
        let back = self.domains.cgroups().map(|cgroups| cgroups.move_process(pid, path));
        if let Ok(Err(error)) = back {
            tracing::warn!(pid, %error, "a process is not moved back to where it was");
        }
    }

    /// `steward run --memory-min`, `--io` and their like: makes a domain for the caller, below the one that it
    /// names, and moves it there. When the rest is refused, the domain goes again.
    pub(crate) fn run_limited(&mut self, caller: &Caller, mut rest: api::Run) -> Result<api::Ran, ApiError> {
        if rest.cpu.is_some() {
            // Before anything is changed, since polkit may have to be asked.
            self.permit_run(caller, &rest)?;
        }
        let own = format!("run-{}", caller.pid);
        let domain = rest.domain.take().map_or_else(|| own.clone(), |parent| format!("{parent}/{own}"));
        let settings = api::DomainSettings {
            memory_min: rest.memory_min.take(),
            memory_max: rest.memory_max.take(),
            protect: rest.protect.take(),
            io: rest.io.take(),
            disk: rest.disk.take(),
            io_max_bytes: rest.io_max_bytes.take(),
            io_max_requests: rest.io_max_requests.take(),
            ..api::DomainSettings::default()
        };
        let create = api::CreateDomain { domain: domain.clone(), settings, ..api::CreateDomain::default() };
        self.create_domain(caller, &create)?;
        let outcome = self.run_in_domain(caller, &domain, rest);
        if outcome.is_err()
            && let Ok(cgroup) = self.domains.resolve(&domain)
        {
            self.domains.remove(&cgroup.path, false, asker(caller), &mut self.cpu.mechanism)?;
        }
        outcome.map(|ran| api::Ran { domain: Some(domain), ..ran })
    }

    /// `steward run --domain`: moves the caller first. When the rest is refused, it is moved back.
    pub(crate) fn run_in_domain(
        &mut self,
        caller: &Caller,
        domain: &str,
        rest: api::Run,
    ) -> Result<api::Ran, ApiError> {
        let from = self.domains.cgroups()?.path_of(caller.pid);
        let from = from.map_err(|error| kernel_error(caller.pid, &error))?;
        if rest.cpu.is_some() {
            // Before anything is changed, since polkit may have to be asked.
            self.permit_run(caller, &rest)?;
        }
        self.move_process(caller, &api::MoveProcess { pid: None, domain: domain.to_owned() })?;
        let outcome = if rest.cpu.is_some() { self.run(caller, rest) } else { Ok(api::Ran::default()) };
        if outcome.is_err() && caller.is_alive() {
            self.put_back(caller.pid, &from);
        }
        outcome.map(|ran| api::Ran { served_first: self.is_served_first(domain).then_some(true), ..ran })
    }

    pub(crate) fn complain(
        &mut self,
        caller: &Caller,
        request: &api::Complain,
    ) -> Result<api::Complaints, ApiError> {
        if request.missed == 0 || request.missed > MISSED_MAX {
            let reason = format!("{} is no number of misses; give 1 to {MISSED_MAX}", request.missed);
            return Err(invalid("missed", reason));
        }
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let id = process::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        if !caller.is_alive() {
            return Err(gone());
        }
        let complaints = self.complaints.note(id, caller.payer, request.missed);
        if let Ok(cgroup) = self.domains.of_process(caller.pid) {
            self.domains.complain(&cgroup.path, request.missed);
        }
        let of = request.of.as_deref().map(|of| of.escape_debug().to_string());
        tracing::debug!(decision = "complaint", pid = caller.pid, missed = request.missed, of);
        Ok(api::Complaints { complaints })
    }
}

pub(crate) fn asker(caller: &Caller) -> Asker {
    Asker { pid: caller.pid, uid: caller.uid }
}

/// A request about the resources that a change is about; one about none of them is about the CPU.
pub(crate) fn request_about(action: Action, change: &Change, target: Target, about: String) -> Request {
    Request { action, resources: change.resources(), target, about, amount: None }
}

/// The same request about a place among siblings, too, which is one for the CPU: whoever comes there takes a share from
/// the others.
pub(crate) fn with_place(mut request: Request) -> Request {
    if !request.resources.contains(&Resource::Cpu) {
        request.resources.insert(0, Resource::Cpu);
    }
    request
}

/// A class as steward-core has it.
fn class(class: api::IoClass) -> disk::Class {
    match class {
        api::IoClass::Interactive => disk::Class::Interactive,
        api::IoClass::Normal => disk::Class::Normal,
        api::IoClass::Background => disk::Class::Background,
    }
}

/// What is to be changed, checked as far as that is possible without knowing the domain.
pub(crate) fn change(asked: &api::DomainSettings) -> Result<Change, ApiError> {
    let setting = |name: &String| {
        let known: Vec<&str> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        Setting::by_name(name).ok_or_else(|| {
            invalid("reset", format!("there is no setting {name:?}; there are {}", known.join(", ")))
        })
    };
    let change = Change {
        common: CommonChange {
            priority: asked.priority,
            weight: asked.weight,
            own_priority: asked.own_priority,
            own_weight: asked.own_weight,
        },
        cpu: cpu::settings::Change { reserved: asked.cpu, reservable: asked.cpu_reservable },
        memory: memory::settings::Change {
            min_bytes: asked.memory_min,
            max_bytes: asked.memory_max,
            protect_ns: asked.protect,
        },
        disk: disk::settings::Change {
            class: asked.io.map(class),
            reserved: asked.disk,
            max_bytes_per_second: asked.io_max_bytes,
            max_requests_per_second: asked.io_max_requests,
        },
        reset: asked.reset.iter().map(setting).collect::<Result<_, _>>()?,
    };
    change.apply(&Settings::default()).map_err(|fault| invalid(fault.setting.name(), fault.reason))?;
    Ok(change)
}

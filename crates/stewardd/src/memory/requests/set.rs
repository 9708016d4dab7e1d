//! `steward set PID --memory-min` and its like: memory of a program that runs, with all that it has started.
//!
//! What it has is charged to its cgroup. Where that is a domain that it shares with nobody, the domain has what is
//! asked. Else it is moved to one of its own, as `steward run --memory-min` would have made one: below the root or a
//! domain that Steward made in a domain, out of a unit of systemd's in a scope that systemd is asked for, in the same
//! slice. Out of what any other manager made nobody is moved.
//!
//! The process goes first: what it starts from then on is in the domain with it. Then go those that descend from it
//! and are in the cgroup that it was in; the cgroup is listed again until none of them is found there any more, so that
//! none is missed that was begun meanwhile. All of it is made in pieces: there may be thousands of them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request, Target};
use steward_core::domain::{Change, Setting as Name, name};
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;
use steward_kernel::process::family::Family;
use steward_kernel::process::{self, Pidfd};

use crate::daemon::Daemon;
use crate::domains::requests::walk::{Step, Walk};
use crate::domains::requests::{asker, change, request_about, with_place};
use crate::domains::{Given, kernel_failed};
use crate::memory::scopes::Placeholder;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply};
use crate::server::peer::Caller;
use crate::server::pieces::Unfinished;
use crate::server::report::invalid;
use crate::server::target::{for_process, kernel_error};
use crate::turn::clock::now_ns;

/// How many processes are looked at, or moved, in one piece, at least and at most.
const PIECE_LOOKS: RangeInclusive<usize> = 4..=64;
/// How long that goes on, in nanoseconds, where it is more than the least.
const PIECE_NS: u64 = 2_000_000;
/// For how long those are moved that descend from it, in nanoseconds: they may begin others faster than they can be
/// moved.
const MOVING_NS: u64 = 10_000_000_000;

/// A request that is under way.
pub(crate) struct Setting {
    process: Pidfd,
    user: Option<u32>,
    settings: api::DomainSettings,
    /// What was permitted so far, and must be still.
    permitted: Vec<Request>,
    family: Family,
    stage: Stage,
}

enum Stage {
    /// It is looked whether others are in its domain.
    Looking { cgroup: Cgroup, walk: Walk },
    /// systemd is asked for a scope.
    Asking,
    /// Those that descend from it are moved.
    Moving(Box<Moving>),
}

/// Where they are moved to, and what was done so far.
struct Moving {
    cgroup: Cgroup,
    /// The cgroup that they are in.
    from: String,
    /// What is left of it in this pass.
    walk: Walk,
    moved_in_pass: u64,
    stayed: BTreeSet<i32>,
    until_ns: u64,
    done: api::MemorySet,
}

/// What a cgroup is of which it is asked whether others are in it.
enum Kind {
    /// A domain of Steward's, or a scope that systemd made for it.
    Held,
    /// Such a scope that a daemon asked for which ended before it had noted that.
    LeftScope,
    /// Such a domain.
    LeftDomain,
    /// Another manager's, or the root.
    Others,
}

impl From<Box<Setting>> for Unfinished {
    fn from(setting: Box<Setting>) -> Self {
        let walk = match &setting.stage {
            Stage::Looking { walk, .. } => walk.held_bytes(),
            Stage::Asking => 0,
            Stage::Moving(moving) => {
                moving.walk.held_bytes() + moving.stayed.len() * size_of::<(i32, [usize; 2])>()
            }
        };
        let held_bytes = size_of::<Setting>() + walk + setting.family.held_bytes();
        // Whoever has begun is finished before others begin, so that few lists are open.
        Unfinished::new(setting, held_bytes, true)
    }
}

impl Handler for api::SetMemory {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.begin_setting(caller, self)
    }
}

impl Daemon {
    fn begin_setting(&mut self, caller: &Caller, request: api::SetMemory) -> Result<Answer, ApiError> {
        let settings = settings(&request)?;
        let pid = request.pid;
        let (process, task) = self.take_hold_of_task(pid)?;
        if task != process.id() {
            let of = process.id().tid;
            return Err(invalid(
                "pid",
                format!(
                    "{pid} is a thread of process {of}, with whose others it shares its memory: name {of}"
                ),
            ));
        }
        let user = process.user(&self.options.roots).map_err(|error| kernel_error(pid, &error))?;
        let limit = for_process(Action::Limit, caller, pid, user);
        self.permit(caller, &limit)?;
        let stat = process::stat(pid, &self.options.roots).map_err(|error| kernel_error(pid, &error))?;
        if stat.is_kernel_thread() {
            return Err(invalid(
                "pid",
                format!(
                    "process {pid} is a thread of the kernel, which has no memory that could be promised or limited"
                ),
            ));
        }
        if pid == 1 {
            return Err(invalid("pid", "from process 1 all others descend: name the one that is meant"));
        }
        if pid == own_pid() {
            return Err(invalid("pid", "that is stewardd itself, which keeps its own memory"));
        }
        let cgroup = self.domains.of_process(pid)?;
        let family = Family::of(process.id());
        let begin =
            |stage| Box::new(Setting { process, user, settings, permitted: vec![limit], family, stage });
        if matches!(self.kind_of(&cgroup, pid), Kind::Others) {
            return self.give_own(caller, begin(Stage::Asking), &cgroup);
        }
        let walk = Walk::below(&cgroup.path);
        self.go_on_setting(caller, begin(Stage::Looking { cgroup, walk }))
    }

    /// Makes one piece more of it.
    pub(crate) fn go_on_setting(
        &mut self,
        caller: &Caller,
        mut setting: Box<Setting>,
    ) -> Result<Answer, ApiError> {
        self.texts.forget();
        self.cpu.sampler.invalidate();
        if !matches!(setting.stage, Stage::Moving(_)) {
            self.still_of(&setting.process, setting.user)?;
            setting.permitted.iter().try_for_each(|request| self.permit_still(caller, request))?;
        }
        match &setting.stage {
            Stage::Looking { cgroup, .. } => {
                let cgroup = cgroup.clone();
                match self.look_who_is_there(&mut setting)? {
                    Some(true) => reply(self.set_in_place(caller, &setting, &cgroup)),
                    Some(false) => self.give_own(caller, setting, &cgroup),
                    None => Ok(Answer::Again(setting.into())),
                }
            }
            Stage::Asking => match self.memory.scopes.take_answer(setting.process.id()) {
                Some(Ok(placeholder)) => self.enter_own_scope(caller, setting, &placeholder),
                Some(Err(why)) => {
                    Err(ApiError::MechanismFailed { reason: no_scope(setting.process.id().tid, &why) })
                }
                None => Ok(Answer::Later(setting.into())),
            },
            Stage::Moving(_) => self.move_some(caller, setting),
        }
    }

    fn kind_of(&self, cgroup: &Cgroup, pid: i32) -> Kind {
        let path = cgroup.path.as_str();
        let held = self.domains.held(path).filter(|held| held.cgroup_id == cgroup.id);
        if held.is_some_and(|held| held.made || held.scope) {
            return Kind::Held;
        }
        if name::is_scope_of_program(path, pid) {
            return Kind::LeftScope;
        }
        let parent = name::parent_of(path).unwrap_or("");
        let last = path.rsplit('/').next().unwrap_or(path);
        let is_named_so = match parent {
            "" => path == format!("{}{}", self.domains.names().prefix(), domain_of_program(pid)),
            _ => last == domain_of_program(pid) && self.domains.is_within_made(parent),
        };
        // Nobody else's, whatever it is called.
        if is_named_so && cgroup.uid == 0 { Kind::LeftDomain } else { Kind::Others }
    }

    /// Looks at some more of the processes in its domain. Returns whether all are its own, once that is known.
    fn look_who_is_there(&mut self, setting: &mut Setting) -> Result<Option<bool>, ApiError> {
        let Setting { family, stage: Stage::Looking { walk, .. }, .. } = setting else { return Ok(None) };
        let (roots, until_ns) = (&self.options.roots, now_ns() + PIECE_NS);
        for looked_at in 0..*PIECE_LOOKS.end() {
            if looked_at >= *PIECE_LOOKS.start() && now_ns() >= until_ns {
                break;
            }
            match walk.step(&self.domains)? {
                Step::Process(pid) if family.member(pid, roots).is_some() => {}
                // Whoever has ended meanwhile is nobody.
                Step::Process(pid) if process::stat(pid, roots).is_err_and(|error| error.is_absent()) => {}
                Step::Process(_) => return Ok(Some(false)),
                Step::On => {}
                Step::End => return Ok(Some(true)),
            }
        }
        Ok(None)
    }

    /// Gives it to the domain that it is in, which is its own.
    fn set_in_place(
        &mut self,
        caller: &Caller,
        setting: &Setting,
        cgroup: &Cgroup,
    ) -> Result<api::MemorySet, ApiError> {
        let pid = setting.process.id().tid;
        let wanted = change(&setting.settings)?;
        let kind = self.kind_of(cgroup, pid);
        match kind {
            Kind::Held => {
                self.change_domain(caller, cgroup, &wanted, Given::default())?;
            }
            _ if is_nothing(&wanted) => {}
            Kind::LeftDomain => {
                self.make_domain(caller, &cgroup.path, &wanted, given(caller, setting.user))?
            }
            Kind::LeftScope => {
                self.permit_scope(caller, pid, &cgroup.path, &wanted, setting.user)?;
                self.set_scope(caller, cgroup, &wanted, setting.user)?;
            }
            Kind::Others => return Err(self.managed(pid, &cgroup.path)),
        }
        let domain = self.domains.names().name_of(&cgroup.path);
        Ok(api::MemorySet { domain, whole: true, ..api::MemorySet::default() })
    }

    /// Gives it a domain of its own, out of this one.
    fn give_own(
        &mut self,
        caller: &Caller,
        mut setting: Box<Setting>,
        shared: &Cgroup,
    ) -> Result<Answer, ApiError> {
        let (pid, user) = (setting.process.id().tid, setting.user);
        let wanted = change(&setting.settings)?;
        let path = shared.path.as_str();
        if is_nothing(&wanted) {
            // It has nothing that could be taken back.
            let domain = self.domains.names().name_of(path);
            return reply(Ok(api::MemorySet { domain, whole: true, ..api::MemorySet::default() }));
        }
        let is_made = self.domains.held(path).is_some_and(|held| held.made);
        if !path.is_empty() && !is_made {
            let slice = name::slice_of_unit(path).filter(|_| self.memory.scopes.can_ask());
            let Some(slice) = slice.map(str::to_owned) else { return Err(self.managed(pid, path)) };
            let scope = format!("{}/{}", name::slices_above(path), name::scope_of_program(pid));
            self.permit_leaving(caller, path, &scope)?;
            setting.permitted.push(self.permit_scope(caller, pid, &scope, &wanted, user)?);
            let asked = self.memory.scopes.ask_by_hand(setting.process.id(), caller.id, slice);
            asked.map_err(|why| ApiError::MechanismFailed { reason: no_scope(pid, &why) })?;
            setting.stage = Stage::Asking;
            return Ok(Answer::Later(setting.into()));
        }
        let to = self.path_of_own(&setting, path)?;
        self.permit_leaving(caller, path, &to)?;
        self.make_domain(caller, &to, &wanted, given(caller, user))?;
        let moved = self.move_first(caller, &setting, &to);
        if moved.is_err() {
            self.domains.remove(&to, false, asker(caller), &mut self.cpu.mechanism)?;
        }
        setting.stage = Stage::Moving(moved?);
        self.move_some(caller, setting)
    }

    /// The path of a domain for it, below this one. An earlier process with its id may have left one of that name.
    fn path_of_own(&self, setting: &Setting, parent: &str) -> Result<String, ApiError> {
        let id = setting.process.id();
        let parent =
            if parent.is_empty() { String::new() } else { self.domains.names().name_of(parent) + "/" };
        let own = format!("{parent}{}", domain_of_program(id.tid));
        match self.domains.path_to_make(&own) {
            Err(ApiError::DomainExists { .. }) => {
                self.domains.path_to_make(&format!("{own}-{}", id.started_ticks))
            }
            path => path,
        }
    }

    /// Puts it into the scope that systemd has made for it.
    fn enter_own_scope(
        &mut self,
        caller: &Caller,
        mut setting: Box<Setting>,
        placeholder: &Placeholder,
    ) -> Result<Answer, ApiError> {
        let pid = setting.process.id().tid;
        let cgroup = self.domains.of_process(placeholder.pid())?;
        if !name::is_scope_of_program(&cgroup.path, pid) {
            let reason = no_scope(pid, &format!("what it made is {} and no scope", cgroup.path));
            return Err(ApiError::MechanismFailed { reason });
        }
        let wanted = change(&setting.settings)?;
        self.set_scope(caller, &cgroup, &wanted, setting.user)?;
        let moved = self.move_first(caller, &setting, &cgroup.path);
        if moved.is_err() {
            self.domains.remove(&cgroup.path, false, asker(caller), &mut self.cpu.mechanism)?;
        }
        setting.stage = Stage::Moving(moved?);
        self.move_some(caller, setting)
    }

    /// What a scope is promised is the machine's to give: that it is in the slice of the caller's counts for nothing.
    fn permit_scope(
        &mut self,
        caller: &Caller,
        pid: i32,
        path: &str,
        wanted: &Change,
        user: Option<u32>,
    ) -> Result<Request, ApiError> {
        let target = Target::of_domain(caller.uid, None, []);
        let about = format!("a scope of its own for process {pid}");
        let request = with_place(request_about(Action::Reserve, wanted, target, about));
        self.permit(caller, &request)?;
        if wanted.memory.protect_ns.is_some() {
            self.permit_protection(caller, path, user.unwrap_or(caller.uid))?;
        }
        Ok(request)
    }

    /// Gives a scope what is asked. Nothing is held of it when any part is refused.
    fn set_scope(
        &mut self,
        caller: &Caller,
        cgroup: &Cgroup,
        wanted: &Change,
        user: Option<u32>,
    ) -> Result<(), ApiError> {
        self.domains.take_scope(cgroup, user.unwrap_or(caller.uid));
        let set = self.domains.set(cgroup, wanted, Given::default(), asker(caller), &mut self.cpu.mechanism);
        self.settle_memory();
        let outcome = set.and_then(|()| self.domains.memory_failure(&cgroup.path));
        if outcome.is_err() {
            self.domains.remove(&cgroup.path, false, asker(caller), &mut self.cpu.mechanism)?;
        }
        outcome
    }

    /// Moves the process itself, and begins with those that descend from it.
    fn move_first(&mut self, caller: &Caller, setting: &Setting, to: &str) -> Result<Box<Moving>, ApiError> {
        let pid = setting.process.id().tid;
        // Its domain may have got children by this, and it a place in a leaf.
        let from = self.domains.cgroups()?.path_of(pid).map_err(|error| kernel_error(pid, &error))?;
        let cgroup = self.domains.cgroups()?.find(to).map_err(|error| kernel_failed(&error))?;
        let list = self.domains.cgroups()?.list_processes(&from).map_err(|error| kernel_failed(&error))?;
        self.move_held(&setting.process, setting.user, &from, &cgroup)?;
        let names = self.domains.names();
        let (domain, was_in) = (names.name_of(to), names.name_of(name::domain_of(&from)));
        tracing::info!(
            decision = "moved",
            pid,
            domain,
            from = was_in,
            uid = caller.uid,
            "for its memory, asked for by process {}",
            caller.pid
        );
        let done = api::MemorySet { domain, from: Some(was_in), moved: 1, whole: true, ..Default::default() };
        Ok(Box::new(Moving {
            cgroup,
            from,
            walk: Walk::of(list),
            moved_in_pass: 1,
            stayed: BTreeSet::new(),
            until_ns: now_ns() + MOVING_NS,
            done,
        }))
    }

    /// Moves a process that is held.
    fn move_held(
        &mut self,
        process: &Pidfd,
        user: Option<u32>,
        from: &str,
        to: &Cgroup,
    ) -> Result<(), ApiError> {
        let pid = process.id().tid;
        match self.domains.is_scope(&to.path) {
            true => self.domains.enter_scope(pid, &to.path)?,
            false => self.domains.enter(pid, &to.path)?,
        }
        self.has_moved(process, user, from, to)
    }

    /// Moves some more of those that descend from it.
    fn move_some(&mut self, caller: &Caller, mut setting: Box<Setting>) -> Result<Answer, ApiError> {
        if !self.move_piece(caller, &mut setting)? {
            return Ok(Answer::Again(setting.into()));
        }
        let Stage::Moving(moving) = setting.stage else { unreachable!("they are moved") };
        let left = self.domains.left_behind(&moving.cgroup.path).into_iter();
        let left_bytes = left.map(|(.., bytes)| bytes).fold(0, u64::saturating_add);
        let left_bytes = Some(left_bytes).filter(|bytes| *bytes > 0);
        reply(Ok(api::MemorySet { stayed: moving.stayed.len() as u64, left_bytes, ..moving.done }))
    }

    /// Returns whether that were all.
    fn move_piece(&mut self, caller: &Caller, setting: &mut Setting) -> Result<bool, ApiError> {
        let Setting { family, stage: Stage::Moving(moving), .. } = setting else { return Ok(true) };
        let until_ns = now_ns() + PIECE_NS;
        for looked_at in 0..*PIECE_LOOKS.end() {
            if looked_at >= *PIECE_LOOKS.start() && now_ns() >= until_ns {
                break;
            }
            match moving.walk.step(&self.domains)? {
                Step::Process(pid) if moving.stayed.contains(&pid) => {}
                Step::Process(pid) => {
                    if let Some(task) = family.member(pid, &self.options.roots)
                        && let Ok(process) = Pidfd::open_exactly(task, &self.options.roots)
                    {
                        self.move_one(caller, &process, moving)?;
                    }
                }
                Step::On => {}
                Step::End if moving.moved_in_pass == 0 => return Ok(true),
                Step::End if now_ns() >= moving.until_ns => {
                    moving.done.whole = false;
                    return Ok(true);
                }
                Step::End => {
                    family.forget_strangers();
                    moving.moved_in_pass = 0;
                    moving.walk = match self.domains.cgroups()?.list_processes(&moving.from) {
                        Ok(list) => Walk::of(list),
                        // It went with its last process.
                        Err(error) if error.is_absent() => return Ok(true),
                        Err(error) => return Err(kernel_failed(&error)),
                    };
                }
            }
        }
        Ok(false)
    }

    /// Moves one that descends from it, if the caller may move that.
    fn move_one(&mut self, caller: &Caller, process: &Pidfd, moving: &mut Moving) -> Result<(), ApiError> {
        let pid = process.id().tid;
        // The list was read a moment ago: somebody may have moved it elsewhere since.
        let is_here = self.domains.cgroups()?.path_of(pid).is_ok_and(|path| path == moving.from);
        let Some(user) = process.user(&self.options.roots).ok().filter(|_| is_here) else { return Ok(()) };
        let request = for_process(Action::Limit, caller, pid, user);
        // Nobody else is asked: that was done for what they descend from.
        if pid == own_pid() || !self.is_permitted(caller, &request) {
            moving.stayed.insert(pid);
            return Ok(());
        }
        match self.move_held(process, user, &moving.from, &moving.cgroup) {
            Ok(()) => {
                moving.done.moved += 1;
                moving.moved_in_pass += 1;
            }
            // It has ended.
            Err(ApiError::NoSuchTask { .. }) => {}
            Err(error) => {
                self.still_there(&moving.cgroup)?;
                tracing::debug!(pid, %error, "a process stays where it was");
                moving.stayed.insert(pid);
            }
        }
        Ok(())
    }

    fn managed(&self, pid: i32, path: &str) -> ApiError {
        let name = self.domains.names().name_of(path);
        let no_systemd = match name::slice_of_unit(path) {
            Some(_) if !self.memory.scopes.can_ask() => " (systemd, which made it, does not run here)",
            _ => "",
        };
        invalid(
            "pid",
            format!(
                "process {pid} is in {name}{no_systemd}, whose processes are its manager's business, and shares what it has with whoever else is \
                 there: start it with steward run --memory-min, or give it to a domain of Steward's first (steward domain create, steward \
                 domain move {pid})"
            ),
        )
    }
}

/// What is asked, as a domain has it.
fn settings(request: &api::SetMemory) -> Result<api::DomainSettings, ApiError> {
    let of_memory = || Name::ALL.into_iter().filter(|name| name.resource() == Resource::Memory);
    if let Some(other) = request.reset.iter().find(|name| !of_memory().any(|known| known.name() == **name)) {
        let known: Vec<&str> = of_memory().map(Name::name).collect();
        return Err(invalid(
            "reset",
            format!("{other:?} is nothing of the memory; there are {}", known.join(", ")),
        ));
    }
    let settings = api::DomainSettings {
        memory_min: request.memory_min,
        memory_max: request.memory_max,
        protect: request.protect,
        reset: request.reset.clone(),
        ..api::DomainSettings::default()
    };
    if settings == api::DomainSettings::default() {
        return Err(invalid(
            "memory_min",
            "say what is asked: memory_min, memory_max or protect, or what is taken back in reset",
        ));
    }
    change(&settings)?;
    Ok(settings)
}

/// Whether nothing is asked for, but at most something taken back.
fn is_nothing(change: &Change) -> bool {
    change.memory == steward_core::memory::settings::Change::default()
}

fn given(caller: &Caller, user: Option<u32>) -> Given {
    Given { user: Some(user.unwrap_or(caller.uid)), keep: None }
}

/// What the domain of a program is called that was given one while it ran.
fn domain_of_program(pid: i32) -> String {
    format!("program-{pid}")
}

fn no_scope(pid: i32, why: &str) -> String {
    format!("systemd gives process {pid} no scope of its own, so it stays where it is (systemd-run: {why})")
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

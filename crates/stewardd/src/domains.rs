//! The domains that the daemon keeps: their cgroups, their settings, and what the mechanism is told of them.
//!
//! Everything that is decided about them (admission, guarantees, what the mechanism is told) is decided in
//! `steward_core::domain`; here it is carried out. A domain of another manager (systemd's slices, services, scopes) is
//! never written to: what it was given is told to the scheduler only, and is gone with it. [`lifetime`] ends domains
//! whose last process has gone, [`declared`] has those that files declare, [`making`] makes and removes their cgroups,
//! [`lowered`] has those that come last for now, `admitting` holds what they are to have against what there is,
//! `promisable` knows how much that is, `disk` what they were given of the disk, `processes` who is in them, `left`
//! what these left elsewhere, `scopes` those that systemd makes for Steward, [`view`] shows them.

mod admitting;
pub mod cgroups;
pub mod declared;
mod disk;
mod left;
pub mod lifetime;
pub mod lowered;
pub mod making;
mod populated;
mod processes;
mod promisable;
pub(crate) mod reading;
pub mod requests;
mod scopes;
mod survey;
pub mod view;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use libsteward::api::{self, ApiError};
use serde::{Deserialize, Serialize};
use steward_core::cpu::audit::Promise;
use steward_core::cpu::mechanism::MechanismError;
use steward_core::cpu::policies;
use steward_core::cpu::policy::DomainPolicy;
use steward_core::disk::explain::Lately;
use steward_core::domain::declared::Declared;
use steward_core::domain::name::{self, Names};
use steward_core::domain::{Change, Machine, Node, OWN_LEAF, Settings, Tree};
use steward_core::memory::audit;
use steward_core::memory::limits::{Lessened, limits};
use steward_core::resource::Resource;
use steward_kernel::KernelError;
use steward_kernel::cgroup::tree::Cgroup;

use crate::cpu::lowered::AllLowered;
use crate::cpu::mechanisms::InForce;
use crate::domains::cgroups::Cgroups;
use crate::files::state::Kept;
use crate::health::Topic;
use crate::memory::activity::{Known, Watched};
use crate::memory::cared::Cared;
use crate::memory::limits::Limits;
use crate::memory::manager::Ordered;
use crate::memory::usage::without_availability;
use crate::server::report;
use crate::server::sight::About;
use crate::turn::clock::now_ns;
use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;
use crate::turn::worker::Job;

/// How many domains Steward makes at most.
pub const DOMAINS_MAX: usize = 4096;
/// How many domains there are at most in one that is not in another, so that whoever may divide one of their own
/// leaves room for others.
pub const DOMAINS_IN_ONE_MAX: usize = 1024;
/// How many domains are named in a sentence.
const NAMED_MAX: usize = 3;
/// How many changes wait at most to be told.
const TOLD_MAX: usize = 65_536;

/// What a process has of memory that is charged elsewhere than where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// When the process started, in ticks since boot.
    pub started_ticks: u64,
    /// The paths of the cgroups that it was in, and how many bytes were charged there for it when it left.
    pub charged: Vec<(String, u64)>,
}

/// A domain that was made by Steward, or given something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The cgroup's path, without a leading slash.
    pub path: String,
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// Whether Steward made the cgroup.
    pub made: bool,
    /// Whether it stays when its last process has gone.
    pub keep: bool,
    /// The user it belongs to.
    pub user: u32,
    /// What it was given.
    pub settings: Settings,
    /// Whether its own processes are in a leaf, because it hands the CPU out to children.
    pub leaf: bool,
    /// Whether a process was ever in it.
    pub used: bool,
    /// When it was made, in nanoseconds of `CLOCK_MONOTONIC`.
    pub made_at_ns: u64,
    /// What a file declares of it, as it was put in force.
    #[serde(default)]
    pub declared: Option<Declared>,
    /// Whether its cgroup is a scope that systemd has made because Steward asked.
    #[serde(default)]
    pub scope: bool,
    /// What processes in it have that is charged elsewhere, by process.
    #[serde(default)]
    pub left: BTreeMap<i32, Left>,
}

impl Kept for Held {
    const FILE_NAME: &'static str = "domains.json";
    const REMEDY: &'static str = "what domains lack (steward domain) must be given again";
    const TOPIC: Topic = Topic::SaveDomains;
    const OTHERWISE: &'static str = "after a restart, domains will be lost";
}

/// A change among domains, to be logged, remembered and told to who watches.
#[derive(Clone, Debug)]
pub struct Told {
    /// The change.
    pub event: api::Event,
    /// The domain after it.
    pub domain: Option<api::Domain>,
    /// Whose it is, and whom else it names.
    pub about: About,
}

impl Told {
    /// Whether it is about a domain rather than a task.
    pub fn is_of_domain(&self) -> bool {
        report::is_of_domain(self.event.kind)
    }
}

/// Who asked for a change: the process (0: nobody) and the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// The process.
    pub pid: i32,
    /// The user.
    pub uid: u32,
}

/// All of it.
pub struct Domains {
    cgroups: Result<Box<dyn Cgroups>, String>,
    names: Names,
    machine: Machine,
    held: BTreeMap<String, Held>,
    /// What the mechanism was told, by path.
    applied: BTreeMap<String, (u64, DomainPolicy)>,
    /// Why settings are not in force, by path.
    problems: BTreeMap<String, String>,
    /// What they have of the memory.
    memory: Limits,
    /// The maxima of others' cgroups above scopes that are promised memory, as they were read last, by path.
    maxima: BTreeMap<String, u64>,
    /// Which of those are told less than they are promised, by path.
    lessened: BTreeMap<String, Lessened>,
    /// What the memory loop does for them, and takes from them.
    cared: Cared,
    /// Whether those that are protected are in use, by path.
    activity: BTreeMap<String, Known>,
    /// Why what they were given of the disk is not in force: the disk cannot be handed out, or the worker failed.
    pub(crate) disk_problem: Option<String>,
    pub(crate) disk_failure: Option<String>,
    /// What requests of each took lately, with all below it, by path.
    pub(crate) disk_lately: BTreeMap<std::sync::Arc<str>, Lately>,
    told: VecDeque<Told>,
    /// What comes last for now.
    lowered: AllLowered,
    /// Complaints by path.
    complaints: BTreeMap<String, u64>,
    /// Whether what is held has changed since it was saved.
    pub(crate) changed: bool,
    /// Whether the root hands out the CPU because of us.
    root_hands_out: bool,
    check_at_ns: u64,
    /// When it was looked which domains have changed.
    looked_at_ns: u64,
    /// Which of them are known to have processes.
    populated: RefCell<populated::Populated>,
    /// The last path that was looked at whether it is still there.
    checked: String,
}

impl Part for Domains {
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        let changes = self.cgroups.as_ref().ok().and_then(|cgroups| cgroups.descriptor());
        changes.map(|changes| Wait::readable(Source::Domains, changes)).into_iter().collect()
    }
}

impl Domains {
    /// None yet, on these cgroups (or the reason why there are none). Those that Steward makes are called by
    /// `names`; the domains may reserve that much of the machine together.
    pub fn new(cgroups: Result<Box<dyn Cgroups>, String>, names: Names, machine: Machine) -> Self {
        Domains {
            cgroups,
            names,
            machine,
            held: BTreeMap::new(),
            applied: BTreeMap::new(),
            problems: BTreeMap::new(),
            memory: Limits::default(),
            maxima: BTreeMap::new(),
            lessened: BTreeMap::new(),
            cared: Cared::default(),
            activity: BTreeMap::new(),
            disk_problem: None,
            disk_failure: None,
            disk_lately: BTreeMap::new(),
            told: VecDeque::new(),
            lowered: BTreeMap::new(),
            complaints: BTreeMap::new(),
            changed: false,
            root_hands_out: false,
            check_at_ns: 0,
            looked_at_ns: 0,
            populated: RefCell::default(),
            checked: String::new(),
        }
    }

    /// How domains are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The tree of cgroups.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] on a machine without it.
    pub fn cgroups(&self) -> Result<&dyn Cgroups, ApiError> {
        match &self.cgroups {
            Ok(cgroups) => Ok(cgroups.as_ref()),
            Err(reason) => {
                Err(ApiError::MechanismFailed { reason: format!("there are no domains here: {reason}") })
            }
        }
    }

    /// What is kept of a domain, if it was made or given something.
    pub fn held(&self, path: &str) -> Option<&Held> {
        self.held.get(path)
    }

    /// All that is kept, to be saved.
    pub fn all_held(&self) -> Vec<Held> {
        self.held.values().cloned().collect()
    }

    /// Those that have something reserved of the CPU, for the record of promises.
    pub fn promises(&self) -> Vec<Promise> {
        let reserved =
            self.held.values().filter(|held| held.settings.cpu.reserved.is_some_and(|cpu| cpu > 0.0));
        let promise =
            |held: &Held| Promise { path: held.path.clone(), cgroup_id: held.cgroup_id, user: held.user };
        reserved.map(promise).collect()
    }

    /// Those that are promised memory, for the record of promises.
    pub(crate) fn memory_promises(&self) -> Vec<audit::Promise> {
        let promise = |held: &Held| audit::Promise {
            path: held.path.clone(),
            cgroup_id: held.cgroup_id,
            user: held.user,
            min_bytes: held.settings.memory.min_bytes.unwrap_or(0),
            is_protected: held.settings.memory.protect_ns.is_some(),
            is_in_force: self.memory_problem(&held.path, &held.settings).is_none(),
        };
        let all = self.held.values().map(promise);
        all.filter(|promise| promise.min_bytes > 0 || promise.is_protected).collect()
    }

    /// Why not all that a domain is promised of the memory is in force, as a part of a sentence.
    pub(crate) fn memory_problem(&self, path: &str, settings: &Settings) -> Option<String> {
        let own = format!("{path}/{OWN_LEAF}");
        let problem = self.memory.problem(path).or_else(|| self.memory.problem(&own));
        if let Some(problem) = problem.map(str::to_owned).or_else(|| self.told_less(path)) {
            return Some(problem);
        }
        match settings.memory.protect_ns.map(|_| self.cared.kept(path)) {
            Some(Some(0)) => {
                Some("too much is protected, or too little is left for others (steward events)".to_owned())
            }
            Some(None) => Some("nobody has looked at it yet".to_owned()),
            Some(Some(_)) | None => None,
        }
    }

    /// What these cgroups are called, as part of a sentence; the first few of them.
    pub(crate) fn names_of<'path>(&self, paths: impl Iterator<Item = &'path str>) -> String {
        let domains: BTreeSet<&str> = paths.map(name::domain_of).collect();
        let named: Vec<String> =
            domains.iter().take(NAMED_MAX).map(|path| self.names.name_of(path)).collect();
        match domains.len() - named.len() {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }

    /// What the memory loop does for whom, as it was last told.
    pub(crate) fn cared(&self) -> &Cared {
        &self.cared
    }

    /// The root, and all that were made by Steward or given something, by path and id: few enough for metrics.
    pub fn places(&self) -> Vec<(String, u64)> {
        let root = self.cgroups().ok().and_then(|cgroups| cgroups.find("").ok());
        let held = self.held.values().filter(|held| !held.path.is_empty());
        let held = held.map(|held| (held.path.clone(), held.cgroup_id));
        root.map(|root| (root.path, root.id)).into_iter().chain(held).collect()
    }

    /// Changes since the last call.
    pub fn take_told(&mut self) -> Vec<Told> {
        self.told.drain(..).collect()
    }

    /// The cgroup that a name means.
    ///
    /// # Errors
    /// [`ApiError::InvalidParameter`] when it is no name, [`ApiError::NoSuchDomain`].
    pub fn resolve(&self, name: &str) -> Result<Cgroup, ApiError> {
        let candidates = self.names.candidates(name).map_err(invalid_name)?;
        let cgroups = self.cgroups()?;
        for path in candidates {
            match cgroups.find(name::domain_of(&path)) {
                Ok(cgroup) => return Ok(cgroup),
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(kernel_failed(&error)),
            }
        }
        Err(ApiError::NoSuchDomain { domain: name.to_owned() })
    }

    /// The domain that a process is in.
    ///
    /// # Errors
    /// [`ApiError::NoSuchTask`] when it has ended.
    pub fn of_process(&self, pid: i32) -> Result<Cgroup, ApiError> {
        let cgroups = self.cgroups()?;
        let path = cgroups.path_of(pid).map_err(|_| ApiError::NoSuchTask { pid })?;
        cgroups.find(name::domain_of(&path)).map_err(|_| ApiError::NoSuchTask { pid })
    }

    /// The user that a domain belongs to: as it was given, or the user of the slice it is in, or the owner of its
    /// directory.
    pub fn user_of(&self, cgroup: &Cgroup) -> u32 {
        let given =
            self.held.get(&cgroup.path).filter(|held| held.cgroup_id == cgroup.id).map(|held| held.user);
        given.or_else(|| name::user_of_slice(&cgroup.path)).unwrap_or(cgroup.uid)
    }

    /// The users of all domains above one that it is a part of, nearest first: none of a scope, which the machine pays
    /// for, so that nobody may give it more for being the user of the slice.
    pub fn users_above(&self, path: &str) -> Vec<Option<u32>> {
        let mut users = Vec::new();
        if self.is_scope(path) {
            return users;
        }
        let mut above = name::parent_of(path);
        while let Some(path) = above.filter(|path| !path.is_empty()) {
            let cgroup = self.cgroups().ok().and_then(|cgroups| cgroups.find(path).ok());
            users.push(cgroup.map(|cgroup| self.user_of(&cgroup)));
            above = name::parent_of(path);
        }
        users
    }

    /// `cpu.weight` of a cgroup, which counts where its settings have no weight.
    pub fn kernel_weight(&self, path: &str) -> u32 {
        self.cgroups().ok().and_then(|cgroups| cgroups.weight(path)).unwrap_or(100)
    }

    /// Changes what a domain has. Nothing is changed when any of it is refused.
    ///
    /// # Errors
    /// [`ApiError::InvalidParameter`], [`ApiError::Overcommitted`], or why the mechanism cannot do it.
    pub fn set(
        &mut self,
        cgroup: &Cgroup,
        change: &Change,
        given: Given,
        asker: Asker,
        mechanism: &mut InForce,
    ) -> Result<(), ApiError> {
        let path = cgroup.path.as_str();
        let before = self.held.get(path).cloned();
        let known = before.clone().unwrap_or_else(|| self.foreign(cgroup));
        let settings = change.apply(&known.settings).map_err(invalid_setting)?;
        self.admit(path, &settings, asker)?;
        let keep = given.keep.unwrap_or(known.keep);
        let user = given.user.unwrap_or(known.user);
        let after = Held { settings, keep, user, ..known };
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        self.hold(after);
        self.apply(mechanism);
        if let Err(error) = self.outcome(path, mechanism) {
            self.give_back(path, before, mechanism);
            return Err(error);
        }
        self.tell(api::EventKind::DomainChanged, path, asker, None);
        Ok(())
    }

    /// A domain that nobody gave anything yet.
    fn foreign(&self, cgroup: &Cgroup) -> Held {
        Held {
            path: cgroup.path.clone(),
            cgroup_id: cgroup.id,
            made: false,
            keep: false,
            user: self.user_of(cgroup),
            settings: Settings::default(),
            leaf: false,
            used: true,
            made_at_ns: 0,
            declared: None,
            scope: false,
            left: BTreeMap::new(),
        }
    }

    fn hold(&mut self, held: Held) {
        self.changed = true;
        if held.made || held.scope || held.settings != Settings::default() {
            self.held.insert(held.path.clone(), held);
        } else {
            self.held.remove(&held.path);
        }
    }

    fn give_back(&mut self, path: &str, before: Option<Held>, mechanism: &mut InForce) {
        match before {
            Some(before) => self.hold(before),
            None => _ = self.held.remove(path),
        }
        self.apply(mechanism);
    }

    /// A tree of the domains at these paths and above them.
    fn tree_of<'path>(&self, paths: impl Iterator<Item = &'path str>) -> Tree {
        let mut tree = Tree::new(self.names.clone(), self.machine);
        if self.held.contains_key("") {
            tree.insert("", self.node(""));
        }
        for path in paths.filter(|path| name::domain_of(path) == *path && !path.is_empty()) {
            let mut missing = Some(path);
            while let Some(path) = missing.filter(|path| tree.get(path).is_none()) {
                tree.insert(path, self.node(path));
                missing = name::parent_of(path);
            }
        }
        tree
    }

    fn node(&self, path: &str) -> Node {
        self.node_with(path, || self.cgroups().ok().and_then(|cgroups| cgroups.weight(path)))
    }

    /// As [`Domains::node`], with the weight that the kernel's file says.
    fn node_with(&self, path: &str, kernel_weight: impl FnOnce() -> Option<u32>) -> Node {
        let held = self.held.get(path);
        let kernel_weight = match held {
            // Nobody but Steward sets weights there, and Steward sets none.
            Some(held) if held.made => None,
            _ => kernel_weight(),
        };
        Node {
            settings: held.map(|held| held.settings.clone()).unwrap_or_default(),
            kernel_weight: kernel_weight.unwrap_or(100),
            has_own_tasks: path.is_empty() || held.is_some_and(|held| held.leaf),
        }
    }

    /// Tells the mechanism, and the kernel, what has changed since they were told last.
    pub fn apply(&mut self, mechanism: &mut InForce) {
        self.apply_memory();
        self.apply_cpu(mechanism);
    }

    /// What is to be done for it is done by the worker: [`Domains::take_jobs`].
    fn apply_memory(&mut self) {
        self.maxima = self.maxima_above_scopes();
        let Ok(cgroups) = &self.cgroups else { return };
        let is_made = |path: &str| self.held.get(path).is_some_and(|held| held.made || held.scope);
        let has_leaf = |path: &str| self.held.get(path).is_some_and(|held| held.leaf);
        let tree = self.tree_of(self.held.keys().map(String::as_str));
        let mut wanted = limits(&tree, &is_made, &has_leaf, &self.cared.minimum_bytes, &self.maxima);
        wanted.slow_above(&self.cared.ceilings);
        let id_of = |path: &str| match self.held.get(path) {
            Some(held) => Some(held.cgroup_id),
            None => cgroups.find(path).ok().map(|cgroup| cgroup.id),
        };
        self.memory.want(cgroups.as_ref(), &wanted, &id_of);
        self.lessened = wanted.lessened;
    }

    /// What they were given of the memory, for the memory loop, in the order of their paths; nothing where there are no
    /// domains.
    pub(crate) fn memory_orders(&self) -> impl Iterator<Item = (&str, Ordered)> {
        let held = self.held.iter().filter(|_| self.cgroups.is_ok());
        held.map(|(path, held)| (path.as_str(), self.memory_order(path, held)))
    }

    fn memory_order(&self, path: &str, held: &Held) -> Ordered {
        let mut ordered = Ordered { user: held.user, ..Ordered::from(&held.settings) };
        if let Some(Known { standing, .. }) = self.activity_of(path, held.cgroup_id) {
            let period_ns = held.settings.memory.protect_ns.unwrap_or(0);
            let until_ns = |returned_at_ns: u64| returned_at_ns.saturating_add(period_ns);
            ordered.is_lapsed = standing.is_lapsed;
            ordered.all_used_until_ns = standing.returned_at_ns.map_or(0, until_ns);
        }
        ordered
    }

    /// Those that are protected, to be watched whether they are in use.
    pub(crate) fn to_watch(&self) -> impl Iterator<Item = Watched<'_>> {
        let protected = self.held.values().filter(|held| held.settings.memory.protect_ns.is_some());
        let there = protected.filter(|_| self.cgroups.is_ok());
        there.map(|held| Watched { path: &held.path, id: held.cgroup_id, user: held.user })
    }

    /// Takes in whether they are in use.
    pub(crate) fn note_activity(&mut self, activity: BTreeMap<String, Known>) {
        self.activity = activity;
    }

    /// How many of those that are protected nobody uses.
    pub(crate) fn lapsed(&self) -> usize {
        self.activity.values().filter(|known| known.standing.is_lapsed).count()
    }

    /// Whether a protected domain is in use; `None` while that is not known.
    pub(crate) fn activity_of(&self, path: &str, cgroup_id: u64) -> Option<&Known> {
        self.activity.get(path).filter(|known| known.standing.id == cgroup_id)
    }

    /// A program has looked how much its own domain may use, which is told to it without this reserve.
    pub(crate) fn note_adapting(&mut self, path: &str, now_ns: u64, reserve_bytes: u64) {
        self.cared.note_adapting(path, now_ns, reserve_bytes);
    }

    /// Takes in what the memory loop does for whom.
    pub(crate) fn care(&mut self, cared: Cared) {
        let tells_the_same = cared.tells_the_same(&self.cared);
        self.cared = cared;
        if !tells_the_same {
            self.apply_memory();
        }
    }

    /// Whether the cgroup at a path is still this one, as far as that is known.
    pub(crate) fn is_same(&self, path: &str, cgroup_id: u64) -> bool {
        self.held.get(path).is_none_or(|held| held.cgroup_id == cgroup_id)
    }

    /// What the worker has to do for domains.
    pub(crate) fn take_jobs(&mut self) -> Vec<Job> {
        self.memory.take_jobs().collect()
    }

    /// Whether the worker has not done all of it yet.
    pub(crate) fn awaits_worker(&self) -> bool {
        self.memory.is_pending()
    }

    /// Takes in what became of what the worker was given about the memory of a cgroup.
    pub(crate) fn note_memory(&mut self, path: &str, goes_on: bool, failure: Option<String>) {
        let Ok(cgroups) = &self.cgroups else { return };
        self.memory.note(cgroups.as_ref(), path, goes_on, failure);
    }

    fn apply_cpu(&mut self, mechanism: &mut InForce) {
        let Some(mechanism) = mechanism.as_mut() else {
            self.applied.clear();
            return;
        };
        let has_leaf = |path: &str| self.held.get(path).is_some_and(|held| held.leaf);
        let mut wanted = policies::policies(&self.tree_of(self.held.keys().map(String::as_str)), &has_leaf);
        policies::lower(&mut wanted, self.lowered.keys(), mechanism.kind());
        let given_up: Vec<String> =
            self.applied.keys().filter(|path| !wanted.contains_key(*path)).cloned().collect();
        for path in given_up {
            // Where it is gone or cannot be told, it has nothing either.
            if let Some((id, _)) = self.applied.remove(&path) {
                let _ = mechanism.set_domain(id, None);
            }
        }
        self.problems.clear();
        // What gives up something makes room for who gets more.
        let mut wanted: Vec<(String, DomainPolicy)> = wanted.into_iter().collect();
        let reserved = |path: &str| self.applied.get(path).map_or(0.0, |(_, policy)| policy.reserved);
        wanted.sort_by(|one, other| {
            (one.1.reserved - reserved(&one.0)).total_cmp(&(other.1.reserved - reserved(&other.0)))
        });
        for (path, policy) in wanted {
            let Some(id) = self.id_of(&path) else { continue };
            if self.applied.get(&path) == Some(&(id, policy)) {
                continue;
            }
            match mechanism.set_domain(id, Some(policy)) {
                Ok(()) => _ = self.applied.insert(path, (id, policy)),
                Err(error) => {
                    let domain = name::domain_of(&path).to_owned();
                    self.problems.insert(domain, not_in_force(&error));
                }
            }
        }
    }

    fn id_of(&self, path: &str) -> Option<u64> {
        match (self.held.get(path), self.lowered.get(path)) {
            (Some(held), _) => Some(held.cgroup_id),
            (None, Some(lowered)) => Some(lowered.cgroup_id),
            (None, None) => Some(self.cgroups().ok()?.find(path).ok()?.id),
        }
    }

    /// Whether what a domain was given came into force.
    fn outcome(&self, path: &str, mechanism: &InForce) -> Result<(), ApiError> {
        self.outcome_of_memory(path)?;
        self.outcome_of_disk(path)?;
        let needs_none =
            self.held.get(path).is_none_or(|held| held.settings.policy() == DomainPolicy::default());
        if needs_none {
            return Ok(());
        }
        if mechanism.is_none() {
            let reason = "no scheduler is loaded; steward status says why".to_owned();
            return Err(ApiError::MechanismGone { reason });
        }
        match self.problems.get(path) {
            Some(problem) => Err(ApiError::MechanismFailed { reason: problem.clone() }),
            None => Ok(()),
        }
    }

    fn outcome_of_memory(&self, path: &str) -> Result<(), ApiError> {
        let Some(held) = self.held.get(path).filter(|held| !held.settings.memory.is_default()) else {
            return Ok(());
        };
        if !held.made && !held.scope {
            let reason = format!(
                "{} was not made by Steward, and its memory is its manager's business: make a domain of your own (steward domain \
                 create), or ask systemd (systemctl set-property UNIT MemoryMin=... MemoryMax=...)",
                self.names.name_of(path)
            );
            return Err(ApiError::InvalidParameter { parameter: "memory".into(), reason });
        }
        self.memory_failure(path)
    }

    /// Whether what a domain was given of the memory could not be put in force.
    ///
    /// # Errors
    /// [`ApiError::MechanismFailed`] with what the kernel said.
    pub(crate) fn memory_failure(&self, path: &str) -> Result<(), ApiError> {
        let failed = self.memory.failures().find(|(failed, _)| *failed == path);
        failed.map_or(Ok(()), |(_, reason)| Err(ApiError::MechanismFailed { reason: reason.clone() }))
    }

    /// A fresh mechanism knows nothing yet.
    pub fn forget_applied(&mut self) {
        self.applied.clear();
    }

    /// Why settings are not in force, in sentences.
    pub fn problem_sentences(&self) -> Vec<String> {
        let sentence =
            |(path, why): (&String, &String)| format!("domain {}: {why}", self.names.name_of(path));
        let less = self.lessened.keys().filter_map(|path| Some((path.clone(), self.told_less(path)?)));
        let less: Vec<(String, String)> = less.collect();
        let less = less.iter().map(|(path, why)| (path, why));
        self.problems.iter().chain(self.memory.failures()).chain(less).map(sentence).collect()
    }

    /// Why what a domain was given is not in force.
    pub(super) fn problem(&self, path: &str) -> Option<String> {
        let own = format!("{path}/{OWN_LEAF}");
        let memory = self.memory.problem(path).or_else(|| self.memory.problem(&own));
        let own = self.problems.get(path).map(String::as_str);
        let problem = own.or(memory).or_else(|| self.disk_trouble(path)).map(str::to_owned);
        problem.or_else(|| self.told_less(path))
    }

    /// Counts a complaint of a process for its domain.
    pub fn complain(&mut self, path: &str, missed: u64) {
        let known = self.complaints.contains_key(path);
        if known || self.complaints.len() < DOMAINS_MAX {
            let count = self.complaints.entry(path.to_owned()).or_default();
            *count = count.saturating_add(missed);
        }
    }

    fn event(&self, path: &str, asker: Asker) -> api::Event {
        let accounted = self.accounted(path);
        let tree = self.level_of(accounted);
        let settings = self.held.get(path).map(|held| held.settings.clone()).unwrap_or_default();
        let payer = name::parent_of(accounted).unwrap_or("");
        let reserved = settings.cpu.reserved.unwrap_or(0.0);
        let promised = settings.memory.min_bytes.unwrap_or(0);
        api::Event {
            at_ns: now_ns(),
            kind: api::EventKind::DomainChanged,
            task: None,
            domain: Some(api::EventDomain { name: self.names.name_of(path), asked_by: asker.pid, by: None }),
            cpu: Some(api::CpuFigures {
                cpu: None,
                load: (tree.reserved_below(payer, Resource::Cpu) - reserved).max(0.0),
                bandwidth: reserved,
                threshold: tree.limit(payer, Resource::Cpu),
            }),
            memory: (!settings.memory.is_default()).then(|| api::MemoryFigures {
                beside: (tree.reserved_below(payer, Resource::Memory) as u64).saturating_sub(promised),
                asked: promised,
                limit: tree.limit(payer, Resource::Memory) as u64,
                stalled_ns: None,
            }),
            reason: None,
            text: String::new(),
        }
    }

    /// Tells of a change; `why` goes into the sentence.
    fn tell(&mut self, kind: api::EventKind, path: &str, asker: Asker, why: Option<&str>) {
        let event = api::Event { kind, ..self.event(path, asker) };
        let protect_ns = self.held.get(path).and_then(|held| held.settings.memory.protect_ns);
        let text = report::domain_sentence(&event, asker.uid, why, protect_ns);
        let gone = matches!(kind, api::EventKind::DomainRemoved | api::EventKind::DomainVanished);
        // It is sent to many who may not all know how much memory the domain may use, and is of that moment.
        let domain = if gone { None } else { self.view(path, None).map(without_availability) };
        let about = About::of(self.whose(path));
        self.push(Told { event: api::Event { text, ..event }, domain, about });
    }

    pub(crate) fn push(&mut self, told: Told) {
        if self.told.len() < TOLD_MAX {
            self.told.push_back(told);
        }
    }
}

/// What can be given to a domain beside its settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// The user it is to belong to.
    pub user: Option<u32>,
    /// Whether it is to stay when its last process has gone.
    pub keep: Option<bool>,
}

/// Where a domain's own processes are.
fn place(held: &Held) -> String {
    if held.leaf { format!("{}/{OWN_LEAF}", held.path) } else { held.path.clone() }
}

fn not_in_force(error: &MechanismError) -> String {
    match error {
        MechanismError::NoSuchDomain { .. } => {
            "the scheduler does not see this cgroup, because the one above does \
            not hand out the CPU (cgroup.subtree_control has no cpu); of a unit of systemd, say systemctl \
            set-property --runtime UNIT CPUWeight=100 once"
                .to_owned()
        }
        MechanismError::Unsupported { .. } => {
            format!("{error}: that needs Steward's own scheduler, through sched_ext (steward doctor)")
        }
        other => other.to_string(),
    }
}

fn invalid_name(reason: String) -> ApiError {
    ApiError::InvalidParameter { parameter: "domain".into(), reason }
}

fn invalid_setting(fault: steward_core::domain::Fault) -> ApiError {
    ApiError::InvalidParameter { parameter: fault.setting.name().into(), reason: fault.reason }
}

pub(crate) fn kernel_failed(error: &KernelError) -> ApiError {
    ApiError::MechanismFailed { reason: error.to_string() }
}

//! The memory and the disk time of programs: what a specification promises to a process, or allows it at most, is that
//! of a domain of its own, which goes with it.
//!
//! From the root, and from domains that Steward made, a process is taken into a domain below it. One that systemd has
//! put into a service or a scope goes into a scope of its own in the same slice, for which systemd is asked: there the
//! limits of the slice hold on, and its memory is Steward's to promise and to limit. Out of what any other manager made
//! no process is taken: it has put it there, with limits that are its own to keep.

use libsteward::ApiError;
use steward_core::domain::{Change, Setting, name};
use steward_core::resource::Resource;
use steward_kernel::cgroup::tree::Cgroup;

use crate::daemon::Daemon;
use crate::domains::{Asker, Given};
use crate::memory::placed::{
    Placed, asks_of_disk, asks_of_memory, change_of, memory_change_of, needs_domain,
};
use crate::memory::scopes::Placeholder;
use crate::programs::running::Matched;

/// What is said while systemd has not answered.
const ASKED: &str = "systemd is being asked for a scope of its own for it";

/// Where a process is to have what its specification says.
enum Place {
    /// There already.
    There(Placed),
    /// In a scope that systemd is asked for, in this slice.
    Scope(String),
}

impl Daemon {
    /// Takes in what systemd answered about scopes for programs.
    pub(crate) fn tick_scopes(&mut self, now_ns: u64) {
        for (matched, answer) in self.memory.scopes.take_in(now_ns) {
            let placed = self.place_in_scope(&matched, answer);
            // It may have ended meanwhile, and its specification may have gone.
            if self.memory.programs.placed.contains_key(&matched.process.tid) {
                self.note_placed(&matched, placed);
            }
        }
    }

    /// Has a process have the domain that its specification asks for, if it asks for one.
    pub(crate) fn give_domain(&mut self, matched: Matched) {
        if !self.loaded.by_name(&matched.spec).is_some_and(needs_domain) {
            return self.forget_domain(&matched);
        }
        match self.place_program(&matched) {
            Ok(Place::There(placed)) => self.note_placed(&matched, Ok(placed)),
            Ok(Place::Scope(slice)) => {
                let pid = matched.process.tid;
                self.memory.programs.placed.insert(pid, Err(ASKED.to_owned()));
                self.memory.scopes.ask(matched, slice);
            }
            Err(why) => self.note_placed(&matched, Err(why)),
        }
    }

    /// It has ended, or its specification asks for no domain.
    pub(crate) fn forget_domain(&mut self, matched: &Matched) {
        self.memory.programs.placed.remove(&matched.process.tid);
    }

    fn note_placed(&mut self, matched: &Matched, placed: Result<Placed, String>) {
        let (pid, spec) = (matched.process.tid, &matched.spec);
        match &placed {
            Ok(Placed { lacks: None, .. }) => {}
            Ok(Placed { lacks: Some(why), .. }) | Err(why) => {
                tracing::warn!(decision = "memory-not-promised", pid, spec, "{why}");
            }
        }
        self.memory.programs.placed.insert(pid, placed);
    }

    /// Gives a process a domain of its own, below the one that it is in, or says which slice a scope for it is to be
    /// in.
    fn place_program(&mut self, matched: &Matched) -> Result<Place, String> {
        let Some(spec) = self.loaded.by_name(&matched.spec) else {
            return Err("its specification has gone".to_owned());
        };
        let pid = matched.process.tid;
        let cgroup = self.domains.of_process(pid).map_err(said)?;
        let parent = self.domains.names().name_of(&cgroup.path);
        if name::is_scope_of_program(&cgroup.path, pid) {
            // From before a restart or a change of the specification.
            self.domains.take_scope(&cgroup, matched.user);
            return self.set_anew(&cgroup, memory_change_of(spec)).map(|()| self.in_scope(matched, &cgroup));
        }
        let is_own = self.domains.held(&cgroup.path).is_some_and(|held| held.made);
        if !cgroup.path.is_empty() && !is_own {
            let slice = name::slice_of_unit(&cgroup.path).filter(|_| asks_of_memory(spec));
            return match slice.filter(|_| self.memory.scopes.can_ask()) {
                Some(slice) => Ok(Place::Scope(slice.to_owned())),
                None => Err(format!(
                    "it is in {parent}, whose processes are its manager's business: start it with steward run --memory-min, --protect or \
                     --io-fraction, or give it to a domain of Steward's first"
                )),
            };
        }
        let own = format!("program-{pid}");
        if parent == own || parent.ends_with(&format!("/{own}")) {
            // From before a restart or a change of the specification.
            return self.set_anew(&cgroup, change_of(spec)).map(|()| Place::There(Placed::whole(parent)));
        }
        let change = change_of(spec);
        let domain = if cgroup.path.is_empty() { own } else { format!("{parent}/{own}") };
        let path = self.domains.path_to_make(&domain).map_err(said)?;
        let given = Given { user: Some(matched.user), keep: None };
        self.domains
            .create(&path, &change, given, Asker::default(), &mut self.cpu.mechanism)
            .map_err(said)?;
        self.settle_memory();
        let outcome = self.domains.memory_failure(&path).and_then(|()| self.domains.enter(pid, &path));
        // The pid meant the process throughout only if it still runs; another one is moved nowhere.
        if !steward_kernel::process::is_alive(matched.process, &self.options.roots) || outcome.is_err() {
            let removed = self.domains.remove(&path, false, Asker::default(), &mut self.cpu.mechanism);
            removed.map_err(said)?;
        }
        outcome.map_err(said)?;
        let domain = self.domains.names().name_of(name::domain_of(&path));
        Ok(Place::There(Placed::whole(domain)))
    }

    /// Gives what the specification says now, and nothing that it said before.
    fn set_anew(&mut self, cgroup: &Cgroup, change: Change) -> Result<(), String> {
        let of_specifications = |setting: &Setting| setting.resource() != Resource::Cpu;
        let reset = Setting::ALL.into_iter().filter(of_specifications).collect();
        let change = Change { reset, ..change };
        let mechanism = &mut self.cpu.mechanism;
        self.domains.set(cgroup, &change, Given::default(), Asker::default(), mechanism).map_err(said)
    }

    fn in_scope(&self, matched: &Matched, cgroup: &Cgroup) -> Place {
        Place::There(self.placed_in_scope(matched, cgroup))
    }

    /// In a scope there is nothing of the disk: systemd has the slices above hand it out, or does not.
    fn placed_in_scope(&self, matched: &Matched, cgroup: &Cgroup) -> Placed {
        let domain = self.domains.names().name_of(&cgroup.path);
        let lacks = self.loaded.by_name(&matched.spec).filter(|spec| asks_of_disk(spec)).map(|_| {
            format!("what it says of the disk is not in force in {domain}, a scope of systemd's: start it with steward run")
        });
        Placed { domain, lacks }
    }

    /// Puts a process into the scope that systemd has made for it.
    fn place_in_scope(
        &mut self,
        matched: &Matched,
        answer: Result<Placeholder, String>,
    ) -> Result<Placed, String> {
        let refused = |why: String| {
            format!("systemd gives it no scope of its own, so it stays where it is (systemd-run: {why})")
        };
        let placeholder = answer.map_err(refused)?;
        let Some(change) = self.loaded.by_name(&matched.spec).map(memory_change_of) else {
            return Err("its specification has gone".to_owned());
        };
        let pid = matched.process.tid;
        let from = self.domains.cgroups().map_err(said)?.path_of(pid).map_err(|error| error.to_string())?;
        let cgroup = self.domains.of_process(placeholder.pid()).map_err(said)?;
        if !name::is_scope_of_program(&cgroup.path, pid) {
            return Err(refused(format!("it is in {} and not in a scope", cgroup.path)));
        }
        self.domains.take_scope(&cgroup, matched.user);
        let set = self.set_anew(&cgroup, change);
        self.settle_memory();
        let entered = set.and_then(|()| {
            self.domains.memory_failure(&cgroup.path).map_err(said)?;
            self.domains.enter_scope(pid, &cgroup.path).map_err(said)
        });
        let is_alive = steward_kernel::process::is_alive(matched.process, &self.options.roots);
        if entered.is_ok() && is_alive {
            return Ok(self.placed_in_scope(matched, &cgroup));
        }
        if entered.is_ok() {
            // Its pid may mean another one by now.
            self.put_back(pid, &from);
        }
        let removed =
            self.domains.remove(&cgroup.path, false, Asker::default(), &mut self.cpu.mechanism).map_err(said);
        removed.and(entered).and_then(|()| Err("it has ended".to_owned()))
    }
}

fn said(error: ApiError) -> String {
    error.to_string()
}

//! The memory and the disk time of programs: what a specification promises to a process, or allows it at most, is that
//! of a domain of its own, which goes with it.
//!
//! A process is taken out of no cgroup whose manager is somebody else: systemd has put it there, with limits that are
//! its own to keep. It is taken from the root, and from domains that Steward made.

use libsteward::ApiError;
use steward_core::domain::{Change, Setting, name};

use crate::daemon::Daemon;
use crate::domains::{Asker, Given};
use crate::memory::placed::{change_of, needs_domain};
use crate::programs::running::{self, Matched};

impl Daemon {
    /// Takes in which programs began and ended, and does for their memory what specifications say.
    pub(crate) fn tick_programs(&mut self, now_ns: u64) {
        let loaded = &self.loaded;
        let cares = |name: &str| loaded.by_name(name).is_some_and(needs_domain);
        for change in self.running.take(now_ns, &self.options.roots, &loaded.table, &cares) {
            match change {
                running::Change::Began(matched) => {
                    let placed = self.place_program(&matched);
                    if let Err(why) = &placed {
                        let (pid, spec) = (matched.process.tid, &matched.spec);
                        tracing::warn!(decision = "memory-not-promised", pid, spec, "{why}");
                    }
                    self.memory.programs.placed.insert(matched.process.tid, placed);
                }
                running::Change::Ended(matched) => {
                    _ = self.memory.programs.placed.remove(&matched.process.tid)
                }
            }
        }
    }

    /// Whether any specification is about the memory of a program, or its disk time.
    pub(crate) fn specs_are_about_memory(&self) -> bool {
        self.loaded.specs.iter().any(needs_domain)
    }

    /// Gives a process a domain of its own, below the one that it is in. Returns what it is called.
    fn place_program(&mut self, matched: &Matched) -> Result<String, String> {
        let said = |error: ApiError| error.to_string();
        let Some(spec) = self.loaded.by_name(&matched.spec) else {
            return Err("its specification has gone".to_owned());
        };
        let pid = matched.process.tid;
        let cgroup = self.domains.of_process(pid).map_err(said)?;
        let parent = self.domains.names().name_of(&cgroup.path);
        let is_own = self.domains.held(&cgroup.path).is_some_and(|held| held.made);
        if !cgroup.path.is_empty() && !is_own {
            return Err(format!(
                "it is in {parent}, whose processes are its manager's business: start it with steward run --memory-min, --protect or --io-fraction, or give it to \
                 a domain of Steward's first"
            ));
        }
        let change = change_of(spec);
        let own = format!("program-{pid}");
        if parent == own || parent.ends_with(&format!("/{own}")) {
            // From before a restart or a change of the specification.
            let reset = vec![
                Setting::MemoryMin,
                Setting::MemoryMax,
                Setting::Protect,
                Setting::Io,
                Setting::Disk,
                Setting::IoMaxBytes,
                Setting::IoMaxRequests,
            ];
            let change = Change { reset, ..change };
            let mechanism = &mut self.cpu.mechanism;
            self.domains
                .set(&cgroup, &change, Given::default(), Asker::default(), mechanism)
                .map_err(said)?;
            return Ok(parent);
        }
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
        Ok(self.domains.names().name_of(name::domain_of(&path)))
    }
}

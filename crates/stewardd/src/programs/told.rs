//! Which rooms are told that a program runs that a specification names: the memory's, which gives it a domain of its
//! own, and the disk's, where it is in the background.

use steward_core::spec::Spec;

use super::running::Change;
use crate::daemon::Daemon;
use crate::disk::programs::is_in_background;
use crate::memory::placed::needs_domain;

/// Whether any room does something for programs of this specification once they run.
fn is_about_programs(spec: &Spec) -> bool {
    needs_domain(spec) || is_in_background(spec)
}

impl Daemon {
    /// Whether any specification is about what is done for a program once it runs.
    pub(crate) fn specs_are_about_programs(&self) -> bool {
        self.loaded.specs.iter().any(is_about_programs)
    }

    /// Takes in which programs began and ended, and tells the rooms.
    pub(crate) fn tick_programs(&mut self, now_ns: u64) {
        let loaded = &self.loaded;
        let cares = |name: &str| loaded.by_name(name).is_some_and(is_about_programs);
        for change in self.running.take(now_ns, &self.options.roots, &loaded.table, &cares) {
            match change {
                Change::Began(matched) => {
                    self.note_background(&matched);
                    self.give_domain(matched);
                }
                Change::Ended(matched) => {
                    self.disk.note_background(matched.process, None);
                    self.forget_domain(&matched);
                }
            }
        }
        self.tick_scopes(now_ns);
    }
}

//! Scopes that systemd has made because Steward asked: their memory is Steward's to promise and to limit, while systemd
//! removes them with their last process. What they are promised is paid for by the machine, since the slices that they
//! are in are promised nothing.

use libsteward::ApiError;
use steward_core::domain::{Node, Settings, Tree, name};
use steward_kernel::cgroup::tree::Cgroup;

use super::{Domains, Held};

impl Domains {
    /// Whether a cgroup is such a scope.
    pub(crate) fn is_scope(&self, path: &str) -> bool {
        self.held.get(path).is_some_and(|held| held.scope)
    }

    /// From now on this is such a scope, for a process of this user.
    pub(crate) fn take_scope(&mut self, cgroup: &Cgroup, user: u32) {
        if !self.held.get(&cgroup.path).is_some_and(|held| held.scope && held.cgroup_id == cgroup.id) {
            self.hold(Held { scope: true, user, ..self.foreign(cgroup) });
        }
    }

    /// Moves the process into a scope that it is for.
    ///
    /// # Errors
    /// [`ApiError::NoSuchTask`] when it has ended; what the kernel says.
    pub(crate) fn enter_scope(&mut self, pid: i32, path: &str) -> Result<(), ApiError> {
        self.move_noting(pid, path, path)
    }

    /// A domain as it is admitted: a scope stands at the top of the machine, as who pays for it.
    pub(super) fn accounted<'path>(&self, path: &'path str) -> &'path str {
        if self.is_scope(path) { path.rsplit('/').next().unwrap_or(path) } else { path }
    }

    /// Puts what scopes are promised beside the domains at the top.
    pub(super) fn insert_scopes(&self, tree: &mut Tree) {
        let promised =
            self.held.values().filter(|held| held.scope && held.settings.memory.min_bytes.is_some());
        for held in promised {
            let settings = Settings { memory: held.settings.memory, ..Settings::default() };
            tree.insert(self.accounted(&held.path), Node { settings, ..Node::default() });
        }
    }

    /// Has what was told of cgroups in systemd's tree be told again where systemd has written its own since.
    pub(super) fn look_again_at_others(&mut self) {
        let Ok(cgroups) = &self.cgroups else { return };
        if !self.held.values().any(|held| held.scope) {
            return;
        }
        let is_ours = |path: &str| self.held.get(name::top_of(path)).is_some_and(|held| held.made);
        self.memory.look_again(cgroups.as_ref(), &|path| !is_ours(path));
    }
}

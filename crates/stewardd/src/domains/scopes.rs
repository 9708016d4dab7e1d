//! Scopes that systemd has made because Steward asked: their memory is Steward's to promise and to limit, while systemd
//! removes them with their last process. What they are promised is paid for by the machine, since the slices that they
//! are in are promised nothing.

use std::collections::{BTreeMap, BTreeSet};

use libsteward::ApiError;
use steward_core::domain::{Node, Refusal, Settings, Tree, name};
use steward_core::quantity::format_size;
use steward_core::resource::Resource;
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
        if self.maxima != self.maxima_above_scopes() {
            self.apply_memory();
        }
    }

    /// What scopes are promised, by path.
    fn promised_to_scopes(&self) -> impl Iterator<Item = (&str, u64)> {
        let scopes = self.held.values().filter(|held| held.scope);
        scopes.filter_map(|held| Some((held.path.as_str(), held.settings.memory.min_bytes?)))
    }

    /// The maxima of the cgroups above scopes that are promised memory, by path, in bytes; those are others'.
    pub(super) fn maxima_above_scopes(&self) -> BTreeMap<String, u64> {
        let above: BTreeSet<&str> =
            self.promised_to_scopes().flat_map(|(path, _)| name::upwards(path).skip(1)).collect();
        above.into_iter().filter_map(|path| Some((path.to_owned(), self.maximum_of_others(path)?))).collect()
    }

    /// What somebody else lets a cgroup use at most, in bytes; `None` for all there is.
    fn maximum_of_others(&self, path: &str) -> Option<u64> {
        let cgroups = self.cgroups().ok().filter(|_| !path.is_empty())?;
        cgroups.memory_bounds(path)?.max.limit_bytes()
    }

    /// Holds what a scope is to be promised against the maxima of those above it, with what others below these are
    /// promised: where all that may be there were kept, the kernel would have nothing to take, and end somebody.
    pub(super) fn hold_against_maxima(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        let promised = |held: &Held| held.settings.memory.min_bytes;
        let (asked, before) =
            (settings.memory.min_bytes.unwrap_or(0), self.held.get(path).and_then(promised).unwrap_or(0));
        if asked <= before {
            return Ok(());
        }
        for above in name::upwards(path).skip(1) {
            let Some(limit) = self.maximum_of_others(above) else { continue };
            let others = self.promised_to_scopes().filter(|(other, _)| *other != path);
            let beside = others.filter(|(other, _)| name::is_at_or_below(other, above));
            let reserved = beside.map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
            if asked.saturating_add(reserved) <= limit {
                continue;
            }
            let others = match reserved {
                0 => String::new(),
                _ => format!(", of which others there are promised {}", format_size(reserved)),
            };
            let (name, unit) = (self.names.name_of(above), above.rsplit('/').next().unwrap_or(above));
            let reason = format!(
                "{} cannot have {} of the memory: {name}, which it is in, may use at most {} with all below it (memory.max){others}; ask for \
                 less, or raise that (systemctl set-property {unit} MemoryMax=...)",
                self.names.name_of(path),
                format_size(asked),
                format_size(limit),
            );
            let [asked, reserved, limit] = [asked, reserved, limit].map(|bytes| bytes as f64);
            return Err(Refusal { resource: Resource::Memory, reason, asked, reserved, limit });
        }
        Ok(())
    }

    /// Why a scope is told less than it is promised, as a part of a sentence.
    pub(super) fn told_less(&self, path: &str) -> Option<String> {
        let lessened = self.lessened.get(path)?;
        let promised = self.held.get(path).and_then(|held| held.settings.memory.min_bytes).unwrap_or(0);
        Some(format!(
            "{} may use at most {} with all below it by now (memory.max), so of the {} that are promised {} are kept",
            self.names.name_of(&lessened.above),
            format_size(lessened.max_bytes),
            format_size(promised),
            format_size(lessened.min_bytes)
        ))
    }
}

//! What processes left behind when they were moved: the kernel goes on charging it to the cgroup that they were in.
//!
//! No domain that they are in now keeps or limits that, so it is said wherever the domain's memory is explained.

use libsteward::ApiError;

use super::{Domains, Held, Left, kernel_failed};

/// Less than this is not worth a word: every program has so much when it is moved as it starts, in bytes.
const WORTH_TELLING_BYTES: u64 = 1 << 20;

impl Domains {
    /// Moves a process to a place of the domain at `path`, and notes there what stays charged where it was.
    pub(super) fn move_noting(&mut self, pid: i32, path: &str, place: &str) -> Result<(), ApiError> {
        let cgroups = self.cgroups()?;
        let from = cgroups.path_of(pid).map_err(|_| ApiError::NoSuchTask { pid })?;
        let private = cgroups.private(pid);
        cgroups.move_process(pid, place).map_err(|error| match error.errno() {
            Some(libc::ESRCH) => ApiError::NoSuchTask { pid },
            _ => kernel_failed(&error),
        })?;
        let before = self.forget_left(pid);
        let Some(private) = private.filter(|_| from != place) else { return Ok(()) };
        let mut left = before.filter(|left| left.started_ticks == private.started_ticks).unwrap_or_default();
        left.started_ticks = private.started_ticks;
        let elsewhere: u64 = left.charged.iter().map(|(_, bytes)| *bytes).sum();
        let here = private.bytes.saturating_sub(elsewhere);
        left.charged.push((from, here));
        // What is charged to the cgroup that it comes to is at home again. Nearly all are moved as they start, and are
        // not looked at again and again for what nobody is told of.
        left.charged.retain(|(charged_to, bytes)| charged_to != place && *bytes >= WORTH_TELLING_BYTES);
        if let Some(held) = self.held.get_mut(path).filter(|_| !left.charged.is_empty()) {
            held.left.insert(pid, left);
            self.changed = true;
        }
        Ok(())
    }

    /// What was noted of a process, wherever it was. It is noted no more.
    fn forget_left(&mut self, pid: i32) -> Option<Left> {
        let held = self.held.values_mut().find(|held| held.left.contains_key(&pid))?;
        self.changed = true;
        held.left.remove(&pid)
    }

    /// What processes of a domain have that is charged elsewhere: how many bytes at most, by the process and the
    /// domain that is charged. They may have freed some since.
    pub(crate) fn left_behind(&self, path: &str) -> Vec<(i32, String, u64)> {
        let (Some(held), Ok(cgroups)) = (self.held.get(path), self.cgroups()) else { return Vec::new() };
        let mut found = Vec::new();
        for (pid, left) in &held.left {
            let private = cgroups.private(*pid).filter(|now| now.started_ticks == left.started_ticks);
            let mut has_bytes = private.map_or(0, |private| private.bytes);
            for (charged_to, bytes) in &left.charged {
                let bytes = has_bytes.min(*bytes);
                has_bytes -= bytes;
                if bytes >= WORTH_TELLING_BYTES {
                    found.push((*pid, self.names_of(std::iter::once(charged_to.as_str())), bytes));
                }
            }
        }
        found
    }

    /// Forgets what processes left that have ended.
    pub(super) fn forget_ended(&mut self) {
        let Ok(cgroups) = &self.cgroups else { return };
        let is_there = |pid: i32, left: &Left| {
            cgroups.private(pid).is_some_and(|private| private.started_ticks == left.started_ticks)
        };
        for Held { left, .. } in self.held.values_mut().filter(|held| !held.left.is_empty()) {
            let before = left.len();
            left.retain(|pid, left| is_there(*pid, left));
            self.changed |= left.len() != before;
        }
    }
}

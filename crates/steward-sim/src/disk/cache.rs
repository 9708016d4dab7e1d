//! Pages that are written later: who writes more waits while there are too many, and a thread writes them cgroup by
//! cgroup, some requests of each at once.

use std::collections::VecDeque;

use super::scenario::CacheSettings;

/// What a group has there, in bytes and requests.
#[derive(Clone, Copy, Debug, Default)]
struct OfGroup {
    dirty_bytes: u64,
    requests: usize,
}

#[derive(Debug)]
pub(super) struct Cache {
    settings: CacheSettings,
    groups: Vec<OfGroup>,
    /// What is dirty or being written.
    total_bytes: u64,
    /// Who waits to write more, and how much.
    blocked: VecDeque<(usize, usize, u64)>,
    is_forced: bool,
}

impl Cache {
    pub(super) fn new(settings: CacheSettings, groups: usize) -> Self {
        Cache {
            settings,
            groups: vec![OfGroup::default(); groups],
            total_bytes: 0,
            blocked: VecDeque::new(),
            is_forced: false,
        }
    }

    /// A program of a group writes; `false`: it waits until it has, and is then among those of [`Cache::written`].
    pub(super) fn write(&mut self, program: usize, group: usize, bytes: u64) -> bool {
        if self.total_bytes + bytes > self.settings.dirty_bytes_max {
            self.blocked.push_back((program, group, bytes));
            return false;
        }
        self.total_bytes += bytes;
        self.groups[group].dirty_bytes += bytes;
        true
    }

    /// Has all that is there by now be written.
    pub(super) fn force(&mut self) {
        self.is_forced = true;
    }

    /// What is to be written now: groups, and how much of each, in requests of at most so many bytes.
    pub(super) fn take(&mut self, request_bytes_max: u64) -> Vec<(usize, u64)> {
        let mut requests = Vec::new();
        if !self.is_forced && self.total_bytes * 2 < self.settings.dirty_bytes_max {
            return requests;
        }
        for (place, group) in self.groups.iter_mut().enumerate() {
            while group.dirty_bytes > 0 && group.requests < self.settings.flusher_requests {
                let bytes = group.dirty_bytes.min(request_bytes_max);
                group.dirty_bytes -= bytes;
                group.requests += 1;
                requests.push((place, bytes));
            }
        }
        self.is_forced &= self.groups.iter().any(|group| group.dirty_bytes > 0);
        requests
    }

    /// A request of a group's is on the disk; returns the programs that have written what they waited to write.
    pub(super) fn written(&mut self, group: usize, bytes: u64) -> Vec<usize> {
        self.total_bytes -= bytes;
        self.groups[group].requests -= 1;
        let mut programs = Vec::new();
        while let Some((program, group, bytes)) = self.blocked.front().copied() {
            if self.total_bytes + bytes > self.settings.dirty_bytes_max {
                break;
            }
            self.blocked.pop_front();
            self.total_bytes += bytes;
            self.groups[group].dirty_bytes += bytes;
            programs.push(program);
        }
        programs
    }
}

//! The processes at or below cgroups, some at a time: there may be any number of them.

use libsteward::api::ApiError;
use steward_kernel::cgroup::processes::Processes;

use crate::domains::{Domains, kernel_failed};

/// What a list that is being read takes of memory, in bytes: an open file with what the kernel keeps beside it.
const LIST_BYTES: usize = 8 * 1024;

/// What is to be looked at: these processes, those that these lists have left, and those of these cgroups and below.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    processes: Vec<i32>,
    lists: Vec<Processes>,
    cgroups: Vec<String>,
}

/// What one step of a walk comes to.
pub(crate) enum Step {
    /// The next process.
    Process(i32),
    /// Nothing but what leads to the next one.
    On,
    /// There are no more.
    End,
}

impl Walk {
    /// Through the processes in a cgroup, and in all cgroups below it.
    pub(crate) fn below(path: &str) -> Self {
        Walk { cgroups: vec![path.to_owned()], ..Walk::default() }
    }

    /// Through the processes of one list.
    pub(crate) fn of(list: Processes) -> Self {
        Walk { lists: vec![list], ..Walk::default() }
    }

    /// The next process, or a step towards it.
    ///
    /// # Errors
    /// What the kernel says; not of a cgroup that has gone meanwhile.
    pub(crate) fn step(&mut self, domains: &Domains) -> Result<Step, ApiError> {
        if let Some(pid) = self.processes.pop() {
            return Ok(Step::Process(pid));
        }
        if let Some(list) = self.lists.last_mut() {
            match list.some() {
                Ok(Some(some)) => self.processes.extend(some),
                Ok(None) => drop(self.lists.pop()),
                // Its cgroup has gone meanwhile.
                Err(error) if error.is_absent() => drop(self.lists.pop()),
                Err(error) => return Err(kernel_failed(&error)),
            }
            return Ok(Step::On);
        }
        let Some(path) = self.cgroups.pop() else { return Ok(Step::End) };
        // One that has gone meanwhile has neither.
        match domains.cgroups()?.list_processes(&path) {
            Ok(list) => self.lists.push(list),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(kernel_failed(&error)),
        }
        match domains.cgroups()?.children(&path) {
            Ok(below) => self.cgroups.extend(below.into_iter().map(|cgroup| cgroup.path)),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(kernel_failed(&error)),
        }
        Ok(Step::On)
    }

    /// What it takes of memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let paths: usize = self.cgroups.iter().map(|path| size_of::<String>() + path.capacity()).sum();
        paths + self.processes.capacity() * size_of::<i32>() + self.lists.len() * LIST_BYTES
    }
}

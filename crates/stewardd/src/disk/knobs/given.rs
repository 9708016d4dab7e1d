//! The priorities that tasks are given, and that are taken from them and from those whom they have handed them on to.

use steward_core::disk::priority::{Mark, Priority};
use steward_core::process::TaskId;
use steward_kernel::disk::priority::{self, Given};
use steward_kernel::journal::JournalError;

use super::{Has, State, Wanted, Work};

impl Work<'_> {
    /// Whoever is to have one of their own is given it, whatever they were born with.
    pub(super) fn disinherit(&mut self, state: &State, wanted: &Wanted) {
        let is_to_have = |task: &TaskId| {
            let has_record = state.given.get(task).is_some_and(|has| has.changed.is_some());
            has_record || wanted.priorities.contains_key(task)
        };
        for task in wanted.heirs.iter().filter(|task| !is_to_have(task)) {
            self.put_away(*task, Priority::Unset);
        }
        for (task, inherited) in wanted.left.iter().filter(|(task, _)| !is_to_have(task)) {
            self.put_away(*task, *inherited);
            if let Some(other) = inherited.other_way() {
                self.put_away(*task, other);
            }
        }
    }

    /// The same of all tasks there are: those are to have theirs that are wanted to, and other threads of a process
    /// whose first one is.
    pub(super) fn disinherit_all(&mut self, wanted: &Wanted) {
        let is_to_have = |pid: i32, task: TaskId| {
            let mut first = wanted.priorities.range(TaskId { tid: pid, started_ticks: 0 }..);
            wanted.priorities.contains_key(&task) || first.next().is_some_and(|(first, _)| first.tid == pid)
        };
        let outcome = priority::take_from_all(&is_to_have, self.roots);
        self.faults.extend(outcome.err().map(|error| error.to_string()));
    }

    pub(super) fn take_back(&mut self, state: &mut State, wanted: &Wanted) {
        let is_wanted = |task: &TaskId, has: &Has| wanted.priorities.get(task) == Some(&has.priority);
        let given = state.given.iter();
        let gone: Vec<TaskId> =
            given.filter(|(task, has)| !is_wanted(task, has)).map(|(task, _)| *task).collect();
        for task in gone {
            let Some(has) = state.given.remove(&task) else { continue };
            let Some((number, _)) = has.changed else {
                // It has it from who started it, or what it has chosen itself. Is it to have another one, a kernel
                // without marks would leave it to its choice.
                if wanted.priorities.contains_key(&task) != priority::knows_marks() {
                    self.put_away(task, has.priority);
                }
                continue;
            };
            self.put_back(number);
            // Threads that are not to have one of their own have that of whoever began them.
            let keeps = |thread| thread == task || wanted.priorities.contains_key(&thread);
            let outcome = priority::take_from_threads(task.tid, &keeps, self.roots);
            self.faults.extend(outcome.err().map(|error| error.to_string()));
        }
    }

    /// Takes a priority from a task that has it from who started it.
    fn put_away(&mut self, task: TaskId, inherited: Priority) {
        let outcome = priority::disinherit(task, inherited, self.roots);
        self.faults.extend(outcome.err().map(|error| error.to_string()));
    }

    /// Gives tasks what they are to have, so many of them; those who come first sooner than others.
    pub(super) fn give(&mut self, state: &mut State, wanted: &Wanted, at_most: usize) {
        let mut to_be_given: Vec<(&TaskId, &Priority)> =
            wanted.priorities.iter().filter(|(task, _)| !state.given.contains_key(task)).collect();
        to_be_given.sort_by_key(|(_, wished)| **wished);
        for (task, wished) in to_be_given.into_iter().take(at_most) {
            match self.give_one(wanted, *task, *wished) {
                Ok(Given::Changed { number, old }) => {
                    state.given.insert(*task, Has { priority: *wished, changed: Some((number, old)) });
                }
                // It is not asked again whether it still has what it chose.
                Ok(Given::Had | Given::Chosen(_)) => {
                    state.given.insert(*task, Has { priority: *wished, changed: None });
                }
                Err(JournalError::Kernel(error)) if error.is_absent() => {}
                Err(error) => self.fail(error),
            }
        }
    }

    /// In a domain that comes first, what it was born with when that was so in the other way is not its own choice. A
    /// kernel without marks does not tell it from one.
    fn give_one(&mut self, wanted: &Wanted, task: TaskId, wished: Priority) -> Result<Given, JournalError> {
        let is_of_domain = wanted.of_domains.contains(&task);
        let mark = match wished == Priority::LAST || is_of_domain {
            true => Mark::WithChildren,
            false => Mark::Alone,
        };
        let give = || priority::give(self.journal, task, wished, mark, self.roots);
        match (give()?, wished.other_way()) {
            (Given::Chosen(had), Some(other)) if had == other && is_of_domain && !priority::knows_marks() => {
                priority::disinherit(task, other, self.roots)?;
                give()
            }
            (given, _) => Ok(given),
        }
    }
}

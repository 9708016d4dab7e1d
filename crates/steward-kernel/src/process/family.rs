//! A process with all that descend from it: those that it started, those that these started, and so on.
//!
//! Who descends from whom is what the kernel says of parents now. A process whose parent has ended is its parent's
//! child no more, but that of whoever takes in orphans; one that was seen to descend before goes on to.

use std::collections::HashMap;

use steward_core::process::TaskId;

use super::{TaskStat, stat};
use crate::roots::Roots;

/// How many parents are looked at above a process.
const ABOVE_MAX: usize = 4096;

/// Who is known to descend from one process, and who not.
#[derive(Debug)]
pub struct Family {
    /// By process id: when the one that was looked at under it started.
    members: HashMap<i32, u64>,
    strangers: HashMap<i32, u64>,
}

impl Family {
    /// Of this process, which is one of them.
    pub fn of(first: TaskId) -> Self {
        Family { members: HashMap::from([(first.tid, first.started_ticks)]), strangers: HashMap::new() }
    }

    /// Which of them has this process id now; `None` when that process is none of them, or has ended.
    pub fn member(&mut self, pid: i32, roots: &Roots) -> Option<TaskId> {
        let first = stat(pid, roots).ok()?;
        let task = first.id;
        let mut looked_at: Vec<TaskId> = Vec::new();
        let mut next = first;
        let is_member = loop {
            let TaskStat { id, parent, .. } = next;
            if self.members.get(&id.tid) == Some(&id.started_ticks) {
                break true;
            }
            looked_at.push(id);
            if parent <= 0
                || looked_at.len() > ABOVE_MAX
                || self.strangers.get(&id.tid) == Some(&id.started_ticks)
            {
                break false;
            }
            match stat(parent, roots) {
                // No parent is younger than its child: another process has got the id of one that has ended.
                Ok(above) if above.id.started_ticks <= id.started_ticks => next = above,
                _ => return None,
            }
        };
        let known = if is_member { &mut self.members } else { &mut self.strangers };
        known.extend(looked_at.into_iter().map(|id| (id.tid, id.started_ticks)));
        is_member.then_some(task)
    }

    /// Looks anew at those who were none of them.
    pub fn forget_strangers(&mut self) {
        self.strangers.clear();
    }

    /// What is kept, in bytes.
    pub fn held_bytes(&self) -> usize {
        (self.members.capacity() + self.strangers.capacity()) * size_of::<(i32, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::roots::with_files;

    fn line(pid: i32, parent: i32, started_ticks: u64) -> String {
        format!(
            "{pid} (a) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started_ticks} 0 0 {}\n",
            "0 ".repeat(30)
        )
    }

    #[test]
    fn all_that_descend_are_found_however_far_below_and_no_others() {
        let lines = [
            (1, 0, 1),
            (7, 1, 70),
            (8, 7, 80),
            (9, 8, 90),
            (20, 1, 20),
            // Its parent has ended, and another process has got that one's id.
            (30, 31, 50),
            (31, 7, 100),
            // Its parent has ended.
            (40, 41, 60),
        ];
        let files: Vec<(String, String)> = lines
            .iter()
            .map(|(pid, parent, ticks)| (format!("proc/{pid}/stat"), line(*pid, *parent, *ticks)))
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_keep, roots) = with_files(&files);
        let mut family = Family::of(TaskId { tid: 7, started_ticks: 70 });
        let members = |family: &mut Family| {
            [1, 7, 8, 9, 20, 30, 31, 40, 99].map(|pid| family.member(pid, &roots).is_some())
        };
        let expected = [false, true, true, true, false, false, true, false, false];
        assert_eq!(members(&mut family), expected);
        // 8 has ended: who was seen to descend by it goes on to, and who gets its id does not.
        fs::write(roots.proc.join("9/stat"), line(9, 1, 90)).expect("written");
        fs::write(roots.proc.join("8/stat"), line(8, 1, 200)).expect("written");
        let expected = [false, true, false, true, false, false, true, false, false];
        assert_eq!(members(&mut family), expected);
        family.forget_strangers();
        assert_eq!(members(&mut family), expected);
        // The first one has ended, and another one has got its id.
        let mut family = Family::of(TaskId { tid: 7, started_ticks: 69 });
        assert_eq!(members(&mut family), [false; 9]);
    }
}

//! Which process gets which specification, found out by looking at all processes again and again.
//!
//! Without sched_ext nobody tells user space about `exec` in time, so the rules of Yang 2009, section 7.2.1, are
//! applied to what changed between two looks:
//!
//! - a program with a specification gets it if an interactive task started it (directly, or through a fork that did
//!   not inherit), and never if a best-effort task did;
//! - a fork, and a program without a specification of its own, has its parent's if that one is inheritable;
//! - a program whose specification says best-effort has nothing, whoever started it;
//! - a task that was given a grant for good (`steward run --cpu`) keeps it, whatever it executes.
//!
//! Where the kernel tells of each fork, parents are known exactly. Otherwise a parent that came and went between two
//! looks is not seen, and its child counts as a child of whoever took it up: that is where this falls short of rules
//! applied in the kernel.
//!
//! Nothing in this file touches the kernel.

use std::collections::{HashMap, HashSet};

use steward_core::cpu::reservation::Grant;
use steward_core::process::FileIdentity;

use steward_core::process::{Process, TaskId};

/// What a process may do, by its ancestors and programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rights {
    /// What it was given.
    grant: Option<Grant>,
    /// It has no grant, but stands between an interactive parent and a program that may be interactive.
    may_start_interactive: bool,
}

impl Rights {
    fn after_fork(self) -> Self {
        Rights {
            grant: self.grant.filter(|grant| grant.inherit),
            may_start_interactive: self.may_start_interactive || self.grant.is_some(),
        }
    }

    /// `own` is the program's specification, if it has one; `Some(None)` is one that says best-effort.
    fn after_exec(self, own: Option<Option<Grant>>) -> Self {
        let kept = self.grant.filter(|grant| grant.keep_over_exec);
        let may_be_interactive = self.may_start_interactive || self.grant.is_some();
        let grant = match own {
            _ if kept.is_some() => kept,
            Some(own) if may_be_interactive => own,
            Some(_) => None,
            None => self.grant.filter(|grant| grant.inherit),
        };
        Rights { grant, may_start_interactive: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: TaskId,
    executable: Option<FileIdentity>,
    forked_without_exec: bool,
    rights: Rights,
}

impl Known {
    fn is_unchanged(&self, process: &Process) -> bool {
        self.id == process.id
            && self.forked_without_exec == process.forked_without_exec
            && (self.executable == process.executable
                || (self.executable.is_none() && self.forked_without_exec))
    }
}

/// What all processes were at the last look.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    by_pid: HashMap<i32, Known>,
    allowed: HashSet<TaskId>,
    has_looked: bool,
}

impl Lineage {
    /// Lets a task take up the specification of the next program that it executes.
    pub(super) fn allow(&mut self, task: TaskId) {
        self.allowed.insert(task);
    }

    /// Notes what a process was given by request.
    pub(super) fn set(&mut self, process: &Process, grant: Option<Grant>) {
        let rights = Rights { grant, may_start_interactive: false };
        self.by_pid.insert(process.id.tid, known(process, rights));
    }

    /// What a process may have now, as of the last look.
    pub(super) fn grant_of(&self, process: TaskId) -> Option<Grant> {
        self.by_pid.get(&process.tid).filter(|known| known.id == process)?.rights.grant
    }

    /// Looks at all processes and returns those that started or executed a program since, with what they get.
    ///
    /// At the first look every program with a specification gets it: the machine ran before Steward did.
    pub(super) fn look(
        &mut self,
        processes: &[Process],
        table: &HashMap<FileIdentity, Option<Grant>>,
    ) -> Vec<(TaskId, Option<Grant>)> {
        // Parents start before their children, so their rights are known when the child's are worked out.
        let mut by_age: Vec<&Process> = processes.iter().filter(|process| !process.kernel_thread).collect();
        by_age.sort_by_key(|process| (process.id.started_ticks, process.id.tid));
        let mut before = std::mem::take(&mut self.by_pid);
        let mut changes = Vec::new();
        for process in by_age {
            let known_before = before.remove(&process.id.tid);
            if let Some(grant) = self.look_at(process, known_before, table) {
                changes.push((process.id, grant));
            }
        }
        self.forget_allowed();
        self.has_looked = true;
        changes
    }

    /// Forgets whom nobody knows of those that may take up a specification, once all were looked at.
    pub(super) fn forget_allowed(&mut self) {
        self.allowed.retain(|task| self.by_pid.get(&task.tid).is_some_and(|known| known.id == *task));
    }

    /// Looks at one process that started or executed a program; `None` when it did neither since the last look.
    pub(super) fn look_at_one(
        &mut self,
        process: &Process,
        table: &HashMap<FileIdentity, Option<Grant>>,
    ) -> Option<Option<Grant>> {
        let before = self.by_pid.remove(&process.id.tid);
        self.look_at(process, before, table)
    }

    /// Notes a fork, and returns what the child gets. The child may have executed a program meanwhile, so it stays
    /// open which program it runs.
    pub(super) fn forked(&mut self, parent: i32, child: TaskId) -> Option<Grant> {
        let rights = self.rights_after_fork(parent);
        let known = Known { id: child, executable: None, forked_without_exec: true, rights };
        self.by_pid.insert(child.tid, known);
        rights.grant
    }

    /// Whether a fork of this process is worth a note: one of a best-effort process is best-effort, noted or not.
    pub(super) fn passes_something_on(&self, parent: i32) -> bool {
        self.rights_after_fork(parent) != Rights::default()
    }

    /// Whether all processes were looked at, so that what is not known is best-effort.
    pub(super) fn has_looked(&self) -> bool {
        self.has_looked
    }

    /// The numbers of all that are known.
    pub(super) fn processes(&self) -> impl Iterator<Item = i32> {
        self.by_pid.keys().copied()
    }

    /// Whether this process was looked at or noted before.
    pub(super) fn is_known(&self, process: TaskId) -> bool {
        self.by_pid.get(&process.tid).is_some_and(|known| known.id == process)
    }

    /// Drops a process that has ended.
    pub(super) fn forget(&mut self, pid: i32) {
        self.by_pid.remove(&pid);
    }

    fn rights_after_fork(&self, parent: i32) -> Rights {
        self.by_pid.get(&parent).map(|known| known.rights.after_fork()).unwrap_or_default()
    }

    /// What the process gets if it is new or executes another program than before.
    fn look_at(
        &mut self,
        process: &Process,
        before: Option<Known>,
        table: &HashMap<FileIdentity, Option<Grant>>,
    ) -> Option<Option<Grant>> {
        let before = before.filter(|known| known.id == process.id);
        let unchanged = before.filter(|known| known.is_unchanged(process));
        let rights = match unchanged {
            Some(known) => known.rights,
            None => self.rights_of(process, before, table),
        };
        self.by_pid.insert(process.id.tid, known(process, rights));
        unchanged.is_none().then_some(rights.grant)
    }

    fn rights_of(
        &mut self,
        process: &Process,
        before: Option<Known>,
        table: &HashMap<FileIdentity, Option<Grant>>,
    ) -> Rights {
        let mut rights = match before {
            Some(known) => known.rights,
            None => self.rights_after_fork(process.parent),
        };
        if process.forked_without_exec && (self.has_looked || self.parent_runs_the_same(process)) {
            return rights;
        }
        rights.may_start_interactive |= !self.has_looked || self.allowed.remove(&process.id);
        rights.after_exec(process.executable.and_then(|file| table.get(&file).copied()))
    }

    /// At the first look, a fork whose parent runs another program is a daemon that left its parent behind.
    fn parent_runs_the_same(&self, process: &Process) -> bool {
        self.by_pid.get(&process.parent).is_some_and(|parent| parent.executable == process.executable)
    }
}

fn known(process: &Process, rights: Rights) -> Known {
    Known {
        id: process.id,
        executable: process.executable,
        forked_without_exec: process.forked_without_exec,
        rights,
    }
}

#[cfg(test)]
mod tests {
    use steward_core::cpu::reservation::Reservation;

    use super::*;

    const SHELL: FileIdentity = FileIdentity { device: 1, inode: 1 };
    const EDITOR: FileIdentity = FileIdentity { device: 1, inode: 2 };
    const COMPILER: FileIdentity = FileIdentity { device: 1, inode: 3 };
    const SERVER: FileIdentity = FileIdentity { device: 1, inode: 4 };
    const INDEXER: FileIdentity = FileIdentity { device: 1, inode: 5 };

    fn grant(spec_id: u32, inherit: bool) -> Grant {
        let reservation = Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 };
        let irrevocable_for = steward_core::cpu::reservation::IrrevocableFor::Root;
        Grant {
            reservation,
            inherit,
            revocable: true,
            irrevocable_for,
            keep_over_exec: false,
            spec_id,
            requests_at: None,
        }
    }

    fn table() -> HashMap<FileIdentity, Option<Grant>> {
        let best_effort = (INDEXER, None);
        let interactive = [(SHELL, grant(1, false)), (EDITOR, grant(2, false)), (SERVER, grant(4, true))];
        interactive.map(|(file, grant)| (file, Some(grant))).into_iter().chain([best_effort]).collect()
    }

    fn process(pid: i32, parent: i32, executable: FileIdentity) -> Process {
        Process {
            id: TaskId { tid: pid, started_ticks: u64::try_from(pid).expect("a pid") },
            parent,
            uid: 1000,
            name: "test".into(),
            kernel_thread: false,
            forked_without_exec: false,
            executable: Some(executable),
            threads: Vec::new(),
        }
    }

    fn forked(pid: i32, parent: i32, executable: FileIdentity) -> Process {
        Process { forked_without_exec: true, ..process(pid, parent, executable) }
    }

    /// The numbers of the specifications that changed processes get, by pid.
    fn look(lineage: &mut Lineage, processes: &[Process]) -> Vec<(i32, Option<u32>)> {
        let changes = lineage.look(processes, &table());
        changes.iter().map(|(id, grant)| (id.tid, grant.map(|grant| grant.spec_id))).collect()
    }

    #[test]
    fn running_programs_get_their_specification_at_the_first_look() {
        let mut lineage = Lineage::default();
        let all = [process(1, 0, COMPILER), process(2, 1, EDITOR)];
        assert_eq!(look(&mut lineage, &all), vec![(1, None), (2, Some(2))]);
        assert_eq!(look(&mut lineage, &all), vec![]);
    }

    #[test]
    fn a_daemon_gets_its_specification_at_the_first_look_and_its_workers_do_not() {
        let mut lineage = Lineage::default();
        let all = [process(1, 0, COMPILER), forked(2, 1, EDITOR), forked(3, 2, EDITOR)];
        assert_eq!(look(&mut lineage, &all), vec![(1, None), (2, Some(2)), (3, None)]);
    }

    #[test]
    fn an_interactive_shell_starts_an_interactive_editor() {
        let mut lineage = Lineage::default();
        let shell = process(10, 1, SHELL);
        look(&mut lineage, std::slice::from_ref(&shell));
        assert_eq!(look(&mut lineage, &[shell.clone(), process(11, 10, EDITOR)]), vec![(11, Some(2))]);
        assert_eq!(look(&mut lineage, &[shell, process(12, 10, COMPILER)]), vec![(12, None)]);
    }

    #[test]
    fn a_fork_that_is_seen_before_its_exec_ends_up_the_same() {
        let mut lineage = Lineage::default();
        let shell = process(10, 1, SHELL);
        look(&mut lineage, std::slice::from_ref(&shell));
        assert_eq!(look(&mut lineage, &[shell.clone(), forked(11, 10, SHELL)]), vec![(11, None)]);
        assert_eq!(look(&mut lineage, &[shell, process(11, 10, EDITOR)]), vec![(11, Some(2))]);
    }

    #[test]
    fn a_best_effort_task_starts_nothing_interactive_unless_it_was_allowed_to() {
        let mut lineage = Lineage::default();
        let compiler = process(10, 1, COMPILER);
        look(&mut lineage, std::slice::from_ref(&compiler));
        let child = process(11, 10, EDITOR);
        assert_eq!(look(&mut lineage, &[compiler.clone(), child]), vec![(11, None)]);
        let runner = process(12, 10, COMPILER);
        assert_eq!(look(&mut lineage, &[compiler.clone(), runner.clone()]), vec![(12, None)]);
        lineage.allow(runner.id);
        assert_eq!(look(&mut lineage, &[compiler.clone(), process(12, 10, EDITOR)]), vec![(12, Some(2))]);
        let again = [compiler, process(12, 10, COMPILER)];
        assert_eq!(look(&mut lineage, &again), vec![(12, None)]);
    }

    #[test]
    fn an_inheritable_specification_goes_to_forks_and_to_programs_without_their_own() {
        let mut lineage = Lineage::default();
        let server = process(10, 1, SERVER);
        look(&mut lineage, std::slice::from_ref(&server));
        let children = [server, forked(11, 10, SERVER), process(12, 10, COMPILER), process(13, 10, EDITOR)];
        assert_eq!(look(&mut lineage, &children), vec![(11, Some(4)), (12, Some(4)), (13, Some(2))]);
    }

    #[test]
    fn a_program_that_is_best_effort_by_specification_drops_what_it_would_inherit() {
        let mut lineage = Lineage::default();
        let server = process(10, 1, SERVER);
        look(&mut lineage, std::slice::from_ref(&server));
        let children = [server, process(11, 10, INDEXER), process(12, 11, COMPILER), process(13, 11, EDITOR)];
        assert_eq!(look(&mut lineage, &children), vec![(11, None), (12, None), (13, None)]);
    }

    #[test]
    fn a_fork_that_is_told_of_needs_no_parent_to_be_there_later() {
        let mut lineage = Lineage::default();
        let shell = process(10, 1, SHELL);
        look(&mut lineage, &[process(1, 0, COMPILER), shell.clone()]);
        assert!(lineage.passes_something_on(10) && !lineage.passes_something_on(1));
        // A shell's child forks, ends, and leaves its own child to the first process, which is best-effort.
        assert_eq!(lineage.forked(10, process(11, 10, SHELL).id), None);
        assert_eq!(lineage.forked(11, process(12, 11, SHELL).id), None);
        lineage.forget(11);
        let editor = process(12, 1, EDITOR);
        let given = lineage.look_at_one(&editor, &table()).expect("it executed a program");
        assert_eq!(given.map(|grant| grant.spec_id), Some(2));
        assert_eq!(lineage.look_at_one(&editor, &table()), None);
    }

    #[test]
    fn a_fork_that_is_told_of_is_no_change_at_the_next_look() {
        let mut lineage = Lineage::default();
        let server = process(10, 1, SERVER);
        look(&mut lineage, std::slice::from_ref(&server));
        let worker = forked(11, 10, SERVER);
        assert_eq!(lineage.forked(10, worker.id).map(|grant| grant.spec_id), Some(4));
        assert_eq!(look(&mut lineage, &[server, worker]), vec![]);
    }

    #[test]
    fn a_grant_given_for_good_survives_exec() {
        let mut lineage = Lineage::default();
        let runner = process(10, 1, COMPILER);
        look(&mut lineage, std::slice::from_ref(&runner));
        lineage.set(&runner, Some(Grant { keep_over_exec: true, ..grant(9, false) }));
        let editor = process(10, 1, EDITOR);
        assert_eq!(look(&mut lineage, std::slice::from_ref(&editor)), vec![(10, Some(9))]);
        assert_eq!(lineage.grant_of(editor.id).map(|grant| grant.spec_id), Some(9));
    }

    #[test]
    fn a_pid_that_is_given_out_again_is_a_new_process() {
        let mut lineage = Lineage::default();
        let shell = process(1, 0, SHELL);
        let editor = process(10, 1, EDITOR);
        look(&mut lineage, &[shell.clone(), editor.clone()]);
        let id = TaskId { tid: 10, started_ticks: 99 };
        let other = Process { id, ..forked(10, 1, SHELL) };
        assert_eq!(look(&mut lineage, &[shell, other]), vec![(10, None)]);
        assert_eq!(lineage.grant_of(editor.id), None);
    }
}

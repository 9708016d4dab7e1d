//! What goes on between scans: processes that start and end, as the kernel tells of them, and once a second what
//! admitted tasks used.

use steward_core::cpu::event::EventKind;
use steward_core::cpu::mechanism::{MechanismError, Standing};

use super::account;
use super::follower::MEASURE_EVERY;
use super::state::{DeadlineMechanism, Managed};
use crate::clock::now_ns;
use crate::cpu::rescheduling::{self, Real};
use crate::cpu::scheduling::{self, Scheduling};
use crate::mounts::MountTable;
use crate::process;
use crate::process::events::{ProcessEvent, ProcessEvents};
use crate::process::pieces::Pieces;

/// How many of those who started a process, and are not known, are looked at for it.
const ANCESTORS_MAX: usize = 64;

/// How many events are acted on before the daemon gets to do something else; the rest stays readable.
const EVENTS_AT_ONCE_MAX: usize = 4096;

impl DeadlineMechanism {
    /// Acts on all news of processes, and measures if it is time to.
    pub(super) fn follow(&mut self) -> Result<(), MechanismError> {
        let mut first_failure = self.follower.failure.take().map_or(Ok(()), Err);
        for _ in 0..EVENTS_AT_ONCE_MAX {
            let Some(event) = self.follower.events.as_mut().and_then(ProcessEvents::next_event) else {
                break;
            };
            // Before the first scan nobody knows who is who.
            if self.lineage.has_looked() {
                let done = self.process_event(event);
                first_failure = first_failure.and(done);
            }
        }
        let looked = self.look_on();
        first_failure = first_failure.and(looked);
        let now_ns = now_ns();
        if self.follower.measure_at_ns <= now_ns {
            self.follower.measure_at_ns = now_ns + MEASURE_EVERY.as_nanos() as u64;
            self.measure(now_ns);
            let reactivated = self.reactivate_one();
            first_failure = first_failure.and(reactivated);
        }
        self.follower.set_timer(!self.tasks.is_empty());
        first_failure
    }

    fn process_event(&mut self, event: ProcessEvent) -> Result<(), MechanismError> {
        match event {
            ProcessEvent::Forked { parent, process } => self.process_forked(parent, process),
            ProcessEvent::NewThread { process, tid } => self.thread_started(process, tid),
            ProcessEvent::Executed { process } => self.process_executed(process),
            ProcessEvent::Ended { process, tid } => self.thread_ended(process, tid),
            ProcessEvent::Lost => {
                self.begin_look();
                Ok(())
            }
        }
    }

    /// Looks at all processes by and by: what was not told may have been about any of them.
    pub(super) fn begin_look(&mut self) {
        if let Some(look) = &mut self.follower.look {
            look.repeat();
            return;
        }
        // Ids of mounts are given out again, so what is known of them is not kept for ever.
        self.follower.mounts = MountTable::default();
        self.follower.look = Pieces::begin(&self.roots, self.lineage.processes()).ok();
    }

    /// Goes on with that for a while.
    pub(super) fn look_on(&mut self) -> Result<(), MechanismError> {
        let Some(mut look) = self.follower.look.take() else { return Ok(()) };
        let mut first_failure = Ok(());
        let are_left = look.go_on(|pid| {
            let done = self.look_at(pid);
            if first_failure.is_ok() {
                first_failure = done;
            }
        });
        if are_left {
            self.follower.look = Some(look);
            return first_failure;
        }
        self.lineage.forget_allowed();
        let forgotten = self.forget_ended(&[]);
        if look.is_to_be_repeated() {
            self.begin_look();
        }
        first_failure.and(forgotten)
    }

    /// Looks at one process. Whoever started it is looked at before: its rights depend on theirs.
    pub(super) fn look_at(&mut self, pid: i32) -> Result<(), MechanismError> {
        let Some(process) = process::look_at_first_thread(pid, &self.roots, &mut self.follower.mounts) else {
            self.lineage.forget(pid);
            return Ok(());
        };
        if process.kernel_thread {
            return Ok(());
        }
        let mut line = vec![process];
        while let Some(parent) = line.last().map(|process| process.parent)
            && line.len() < ANCESTORS_MAX
            && let Ok(stat) = process::stat(parent, &self.roots)
            && !stat.is_kernel_thread()
            && !self.lineage.is_known(stat.id)
            && let Some(unknown) =
                process::look_at_first_thread(parent, &self.roots, &mut self.follower.mounts)
        {
            line.push(unknown);
        }
        let mut first_failure = Ok(());
        for process in line.iter().rev() {
            let changed = self.lineage.look_at_one(process, &self.table);
            let done = changed.map_or(Ok(()), |grant| self.process_changed(process, grant));
            let threads = self.give_to_new_threads(process.id);
            first_failure = first_failure.and(done).and(threads);
        }
        first_failure
    }

    fn process_forked(&mut self, parent: i32, pid: i32) -> Result<(), MechanismError> {
        if !self.lineage.passes_something_on(parent) {
            return Ok(());
        }
        let Ok(stat) = process::stat(pid, &self.roots) else { return Ok(()) };
        if self.lineage.is_known(stat.id) {
            return Ok(());
        }
        match self.lineage.forked(parent, stat.id) {
            None => Ok(()),
            grant => self.give_unless_gone(pid, pid, grant),
        }
    }

    fn thread_started(&mut self, pid: i32, tid: i32) -> Result<(), MechanismError> {
        if !self.tasks.contains_key(&pid) || self.tasks.contains_key(&tid) {
            return Ok(());
        }
        let Ok(first) = process::stat(pid, &self.roots) else { return Ok(()) };
        match self.lineage.grant_of(first.id).filter(|grant| grant.inherit) {
            None => Ok(()),
            grant => self.give_unless_gone(tid, pid, grant),
        }
    }

    fn process_executed(&mut self, pid: i32) -> Result<(), MechanismError> {
        // A mount that was not there at the last scan is looked for by the table itself.
        let found = process::look_at(pid, &self.roots, &mut self.follower.mounts);
        let Some(process) = found else { return Ok(()) };
        match self.lineage.look_at_one(&process, &self.table) {
            Some(grant) => self.process_changed(&process, grant),
            None => Ok(()),
        }
    }

    fn thread_ended(&mut self, pid: i32, tid: i32) -> Result<(), MechanismError> {
        // The id may have been given out again since.
        if self.tasks.get(&tid).is_some_and(|task| !process::is_alive(task.id, &self.roots)) {
            self.forget(tid)?;
        }
        if pid == tid && !process::stat(pid, &self.roots).is_ok_and(|stat| !stat.has_ended()) {
            self.lineage.forget(pid);
        }
        Ok(())
    }

    /// Measures what each admitted task used since the last time, and holds those to their reservation that used
    /// more while others waited.
    fn measure(&mut self, now_ns: u64) {
        self.crowd.sample(account::runnable_tasks(&self.roots).unwrap_or(0), self.cpu_count);
        let mut used_ns = 0;
        for task in self.tasks.values_mut().filter(|task| task.standing == Standing::Admitted) {
            let Some(usage) = task.account.measure(task.id.tid, now_ns, &self.roots) else { continue };
            used_ns += usage.run_ns;
            let used_more = usage.fraction() > task.grant.reservation.bandwidth();
            let reclaim = self.crowd.may_reclaim(task.account.reclaims, used_more);
            if reclaim != task.account.reclaims {
                let reservation = task.grant.reservation;
                let wanted = Scheduling::deadline(reservation.budget_ns, reservation.period_ns, reclaim);
                // What somebody else has given it since is theirs.
                let is_ours = scheduling::read(task.id.tid).is_ok_and(|now| now.is_same_choice(&wanted));
                // The undo record stays right: it tells our reservation by budget and period.
                if is_ours && rescheduling::change(&Real(&self.roots), task.id, &wanted).is_ok() {
                    task.account.reclaims = reclaim;
                }
            }
        }
        self.load.sample(used_ns, now_ns, self.cpu_count);
    }

    /// Takes back the task that waits longest and fits now: one a second, and only when the load was low in the whole
    /// window, so that a burst of them does not overload the machine at once (Yang 2009, section 8.1.2).
    fn reactivate_one(&mut self) -> Result<(), MechanismError> {
        if self.only_nice || self.load.window.iter().any(|load| *load >= self.thresholds.reactivate_below) {
            return Ok(());
        }
        let room = self.thresholds.admit_below - self.reserved_per_cpu();
        let cpus = f64::from(self.cpu_count);
        let fits = |task: &&Managed| {
            task.standing != Standing::Admitted
                && task.change.is_none()
                && task.grant.reservation.bandwidth() / cpus < room
        };
        let Some(tid) = self
            .tasks
            .values()
            .filter(fits)
            .min_by_key(|task| task.account.last_tried_ns)
            .map(|task| task.id.tid)
        else {
            return Ok(());
        };
        let Some(mut task) = self.tasks.remove(&tid) else { return Ok(()) };
        task.account.last_tried_ns = now_ns();
        match self.admit(&mut task, EventKind::Reactivated) {
            Ok(kind) => {
                if kind == EventKind::Reactivated {
                    self.tell(kind, &task);
                }
                self.tasks.insert(tid, task);
                Ok(())
            }
            Err(MechanismError::NoSuchTask { .. }) => Ok(()),
            Err(error) => {
                self.tasks.insert(tid, task);
                Err(error)
            }
        }
    }
}

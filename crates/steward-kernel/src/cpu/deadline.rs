//! Reservations through SCHED_DEADLINE, for kernels on which no sched_ext scheduler can be loaded.
//!
//! What it does as Steward's own scheduler would: a task with `C:T` gets `C` ns of CPU in every `T` ns, whatever
//! else runs, and a task that the machine has no room for is refused. What it does not do, and says so:
//!
//! - There is no hook at `exec`. Where the kernel tells of processes as they start
//!   ([process events](crate::process::events)), a program waits a few milliseconds for its reservation; elsewhere
//!   up to one [`DeadlineMechanism::scan_interval`], after which the daemon passes all processes to
//!   [`DeadlineMechanism::scan`].
//! - A task that has used its budget can not compete as best-effort until its next period: SCHED_DEADLINE either
//!   stops it or lets it go on ahead of best-effort work with bandwidth that nobody reserved (`SCHED_FLAG_RECLAIM`).
//!   Being stopped on an idle machine would make a program slower than without Steward, and going on without an
//!   end would starve the rest. So a task may reclaim as long as it does not use more than it was promised while
//!   others wait for the CPU; then it is held to its reservation until nobody waits any more. One that starts while
//!   others wait is held from the start.
//! - Reservations are placed by the kernel on any CPU, so loads are averages over all CPUs.
//! - A task that is confined to some of the CPUs cannot be in SCHED_DEADLINE, and a thread of the kernel is not put
//!   there (`placing.rs` says why). Such a task gets a better nice value in place of a promise.
//! - With [`DeadlineMechanism::with_nice_values_only`] every task gets that, and nothing is reserved. It is what is
//!   left when the kernel has taken Steward's own scheduler out several times: then what is put in its place must not
//!   be able to do harm. In a real-time class it could, on a machine whose trouble nobody knows yet.
//! - A suspended domain is frozen (`cgroup.freeze`), its reservations with it.
//! - Of domains it knows weights only, through `cpu.weight`, and only in cgroups that Steward made.
//! - A task that chose a real-time policy or SCHED_DEADLINE itself is left alone: it has an owner.
//!
//! Every task carries SCHED_FLAG_RESET_ON_FORK, without which the kernel would forbid it to fork, so that children
//! are ordinary until the next scan.

mod account;
mod follow;
mod follower;
mod lineage;
mod placing;
mod records;
mod state;
mod suspension;
mod weights;

pub use state::{DeadlineMechanism, Watchdog};

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::RawFd;
use std::time::Duration;

use steward_core::cpu::event::{Event, EventKind, Reason, Rule};
use steward_core::cpu::mechanism::{Mechanism, MechanismError, MechanismKind, Snapshot, Standing};
use steward_core::cpu::policy::DomainPolicy;
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::thresholds::Thresholds;
use steward_core::process::{FileIdentity, Process, TaskId};

use crate::clock::now_ns;
use crate::cpu::rescheduling::{self, Real};
use crate::cpu::scheduling::{self, POLICY_DEADLINE, POLICY_FIFO, POLICY_ROUND_ROBIN, Scheduling};
use crate::error::KernelError;
use crate::journal::{Change, SharedJournal};
use crate::mounts::MountTable;
use crate::process;
use crate::roots::Roots;
use account::{Account, Crowd, LoadWindow};
use follower::Follower;
use lineage::Lineage;
use placing::{Placing, placing};
use state::{Frozen, Managed, Weights, journal_failed};

/// How many tasks with a specification there may be, as in Steward's own scheduler.
const TASKS_MAX: usize = 8192;
/// How many events wait for a reader before the oldest is lost.
const EVENTS_MAX: usize = 4096;
/// The nice value of a task that deserves a reservation but can not have one: about nine times the weight of an
/// ordinary task.
const CONFINED_NICE: i32 = -10;

/// What the kernel said to a request for a reservation.
enum Answer {
    Admitted(u64),
    /// Given a better nice value instead.
    Confined(u64),
    /// By which rule, with its amount.
    Refused(Rule, f64),
}

impl DeadlineMechanism {
    /// A mechanism with an empty table. What `journal` says an earlier daemon left behind should have been put back
    /// before, with [`journal::revert`].
    ///
    /// # Errors
    /// [`KernelError`] when the CPUs that are online can not be read.
    pub fn new(roots: Roots, journal: impl Into<SharedJournal>) -> Result<Self, KernelError> {
        let cpu_count = account::online_cpus(&roots)?.len();
        Ok(DeadlineMechanism {
            cpu_count: u32::try_from(cpu_count).unwrap_or(1).max(1),
            roots,
            journal: journal.into(),
            only_nice: false,
            table: HashMap::new(),
            thresholds: Thresholds::default(),
            tasks: BTreeMap::new(),
            exempt: HashSet::new(),
            lineage: Lineage::default(),
            follower: Follower::new(),
            load: LoadWindow::default(),
            crowd: Crowd::default(),
            weights: Weights::default(),
            frozen: Frozen::default(),
            events: VecDeque::new(),
            events_lost: 0,
        })
    }

    /// The same, but nothing is reserved: who would have a reservation gets a better nice value.
    ///
    /// # Errors
    /// As [`DeadlineMechanism::new`].
    pub fn with_nice_values_only(
        roots: Roots,
        journal: impl Into<SharedJournal>,
    ) -> Result<Self, KernelError> {
        let mut mechanism = DeadlineMechanism::new(roots, journal)?;
        mechanism.only_nice = true;
        Ok(mechanism)
    }

    /// How often to call [`DeadlineMechanism::scan`]. Seldom where the kernel tells of each process as it starts:
    /// then a scan only makes up for what may have been missed. Elsewhere it is a compromise between the wait of a
    /// new program and the cost of listing 1,000 processes (about 20 ms of CPU).
    pub fn scan_interval(&self) -> Duration {
        if self.follower.is_told_of_processes() { Duration::from_secs(30) } else { Duration::from_secs(1) }
    }

    /// Whether [`DeadlineMechanism::scan`] needs all processes: at first, and where the kernel does not tell of each as
    /// it starts.
    pub fn needs_all_processes(&self) -> bool {
        !self.follower.is_told_of_processes() || !self.lineage.has_looked()
    }

    /// Applies the table to what started, executed a program or ended since the last call, given all processes
    /// (from [`process::list_first_threads`]), and takes back at most one task for which there was no room before.
    /// Where [they are not needed](DeadlineMechanism::needs_all_processes) they are looked at by and by, as events are
    /// taken.
    ///
    /// # Errors
    /// [`MechanismError::Kernel`] with the first failure since the last scan: the undo journal can not be written, the
    /// kernel does not take a specification's numbers, or the caller has no right to give reservations. All other tasks
    /// are done.
    pub fn scan(&mut self, processes: &[Process]) -> Result<(), MechanismError> {
        if let Ok(online) = account::online_cpus(&self.roots) {
            self.cpu_count = u32::try_from(online.len()).unwrap_or(1).max(1);
        }
        if !self.needs_all_processes() {
            self.begin_look();
            return self.follow();
        }
        // Ids of mounts are given out again, so what is known of them is not kept for ever.
        self.follower.mounts = MountTable::default();
        let listed = self.scan_list(processes);
        let followed = self.follow();
        listed.and(followed)
    }

    fn scan_list(&mut self, processes: &[Process]) -> Result<(), MechanismError> {
        let mut first_failure = self.forget_ended(processes);
        let by_id: HashMap<TaskId, &Process> =
            processes.iter().map(|process| (process.id, process)).collect();
        for (id, grant) in self.lineage.look(processes, &self.table) {
            let done = by_id.get(&id).map_or(Ok(()), |process| self.process_changed(process, grant));
            first_failure = first_failure.and(done);
        }
        for process in processes {
            let done = self.give_to_new_threads(process.id);
            first_failure = first_failure.and(done);
        }
        first_failure
    }

    fn forget_ended(&mut self, processes: &[Process]) -> Result<(), MechanismError> {
        let alive: HashSet<TaskId> =
            processes.iter().flat_map(|process| &process.threads).map(|thread| thread.id).collect();
        // What is not in the list may have started after it was made.
        let has_ended =
            |task: &&Managed| !alive.contains(&task.id) && !process::is_alive(task.id, &self.roots);
        let ended: Vec<i32> = self.tasks.values().filter(has_ended).map(|task| task.id.tid).collect();
        for tid in ended {
            self.forget(tid)?;
        }
        self.exempt.retain(|task| alive.contains(task) || process::is_alive(*task, &self.roots));
        Ok(())
    }

    /// Drops a task that has ended: there is nothing to put back.
    fn forget(&mut self, tid: i32) -> Result<(), MechanismError> {
        let Some(task) = self.tasks.remove(&tid) else { return Ok(()) };
        self.close(task.change);
        self.tell(EventKind::Released, &task);
        Ok(())
    }

    fn process_changed(&mut self, process: &Process, grant: Option<Grant>) -> Result<(), MechanismError> {
        let tid = process.id.tid;
        let has = self.tasks.get(&tid).filter(|task| task.id == process.id).map(|task| task.grant);
        if has == grant {
            return Ok(());
        }
        self.give_unless_gone(tid, tid, grant)
    }

    /// As [`Self::give`]; that the task has ended since it was seen, or that the table is full, is no failure.
    fn give_unless_gone(&mut self, tid: i32, pid: i32, grant: Option<Grant>) -> Result<(), MechanismError> {
        match self.give(tid, pid, grant) {
            Err(MechanismError::NoSuchTask { .. } | MechanismError::Full { .. }) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// A thread is a fork of its process's first thread: it has the grant if that is inheritable.
    fn give_to_new_threads(&mut self, process: TaskId) -> Result<(), MechanismError> {
        let Some(grant) = self.lineage.grant_of(process).filter(|grant| grant.inherit) else {
            return Ok(());
        };
        let threads = process::threads_of(process.tid, &self.roots);
        for thread in threads.iter().filter(|thread| thread.id.tid != process.tid) {
            let has_one = self.tasks.get(&thread.id.tid).is_some_and(|task| task.id == thread.id);
            if has_one || self.exempt.contains(&thread.id) {
                continue;
            }
            self.give_unless_gone(thread.id.tid, process.tid, Some(grant))?;
        }
        Ok(())
    }

    /// Gives a task `grant` in place of what it has, and tells.
    fn give(&mut self, tid: i32, pid: i32, grant: Option<Grant>) -> Result<Option<Standing>, MechanismError> {
        let stat = process::stat(tid, &self.roots).map_err(|_| MechanismError::NoSuchTask { tid })?;
        if self.tasks.get(&tid).is_some_and(|task| task.id != stat.id) {
            self.forget(tid)?;
        }
        if grant.is_some() && !self.tasks.contains_key(&tid) && self.tasks.len() >= TASKS_MAX {
            return Err(MechanismError::Full {
                what: "the table of tasks with a specification",
                capacity: TASKS_MAX,
            });
        }
        let taken = self.take_away(tid)?;
        let Some(grant) = grant else {
            taken.iter().for_each(|task| self.tell(EventKind::Released, task));
            return Ok(None);
        };
        let mut task = Managed {
            id: stat.id,
            pid,
            name: stat.name,
            grant,
            standing: Standing::Refused,
            change: None,
            refused_because: None,
            account: Account::open(tid, !self.crowd.is_here(), &self.roots),
        };
        let kind = self.admit(&mut task, EventKind::Admitted)?;
        self.tell(kind, &task);
        let standing = task.standing;
        self.tasks.insert(tid, task);
        Ok(Some(standing))
    }

    /// Puts a task back to what it was before it was given anything.
    fn take_away(&mut self, tid: i32) -> Result<Option<Managed>, MechanismError> {
        let Some(task) = self.tasks.remove(&tid) else { return Ok(None) };
        if let Some(number) = task.change {
            let undone = self.journal.undo(number, &self.roots);
            undone.map_err(|error| refused_by_kernel(error, RESTORE_ADVICE))?;
        }
        self.close(task.change);
        Ok(Some(task))
    }

    /// Tries to bring a task that has nothing in force into the interactive class; returns what to tell.
    fn admit(&mut self, task: &mut Managed, success: EventKind) -> Result<EventKind, MechanismError> {
        let reserved = self.reserved_per_cpu();
        let load_with_it = reserved + task.grant.reservation.bandwidth() / f64::from(self.cpu_count);
        // A nice value takes nothing that could run out.
        let has_room = self.only_nice || load_with_it < self.thresholds.admit_below;
        let answer = if has_room { self.ask_kernel(task)? } else { Answer::Refused(Rule::Load, reserved) };
        task.account.settle(task.id.tid, task.standing, &self.roots);
        let (standing, change, why) = match answer {
            Answer::Admitted(change) => (Standing::Admitted, Some(change), None),
            Answer::Confined(change) => {
                (Standing::Refused, Some(change), Some((Rule::Confined, f64::from(CONFINED_NICE))))
            }
            Answer::Refused(rule, amount) => (Standing::Refused, None, Some((rule, amount))),
        };
        (task.standing, task.change) = (standing, change);
        task.refused_because = why.filter(|_| !self.only_nice).map(|(rule, amount)| Reason {
            rule,
            uid: process::user(task.pid, &self.roots).ok().flatten().unwrap_or_default(),
            amount,
            limit: if rule == Rule::Load { self.thresholds.admit_below } else { 0.0 },
        });
        Ok(if standing == Standing::Admitted { success } else { EventKind::Refused })
    }

    fn ask_kernel(&mut self, task: &Managed) -> Result<Answer, MechanismError> {
        let tid = task.id.tid;
        let gone = || MechanismError::NoSuchTask { tid };
        let Ok(old) = scheduling::read(tid) else { return Err(gone()) };
        if [POLICY_FIFO, POLICY_ROUND_ROBIN, POLICY_DEADLINE].contains(&old.policy) {
            return Ok(Answer::Refused(Rule::OwnPolicy, 0.0));
        }
        match self.placing(task.id)? {
            Placing::Confined => return self.nice_instead(task.id, old, None),
            Placing::Away => return Ok(Answer::Refused(Rule::Away, 0.0)),
            Placing::Free => {}
        }
        let reservation = task.grant.reservation;
        let wanted =
            Scheduling::deadline(reservation.budget_ns, reservation.period_ns, task.account.reclaims);
        match self.change(task.id, old, wanted)? {
            Ok(number) => Ok(Answer::Admitted(number)),
            Err(error) => match error.errno() {
                Some(libc::ESRCH) => Err(gone()),
                Some(libc::EBUSY) => Ok(Answer::Refused(Rule::KernelFull, 0.0)),
                Some(libc::EPERM) => self.nice_instead(task.id, old, Some(error)),
                Some(libc::EINVAL) => Err(refused_by_kernel(error, RANGE_ADVICE)),
                _ => Err(refused_by_kernel(error, PERMISSION_ADVICE)),
            },
        }
    }

    fn placing(&self, task: TaskId) -> Result<Placing, MechanismError> {
        if self.only_nice {
            return Ok(Placing::Confined);
        }
        let stat = process::stat(task.tid, &self.roots).ok().filter(|stat| stat.id == task);
        let placing = stat.map(|stat| placing(&stat, &self.roots));
        match placing {
            Some(Ok(placing)) => Ok(placing),
            Some(Err(error)) if !error.is_absent() => Err(refused_by_kernel(error, PLACING_ADVICE)),
            _ => Err(MechanismError::NoSuchTask { tid: task.tid }),
        }
    }

    /// Instead of a reservation, which the kernel may have `denied`: it says `EPERM` both to a caller without the right
    /// and for a task that may not run everywhere.
    fn nice_instead(
        &mut self,
        task: TaskId,
        old: Scheduling,
        denied: Option<KernelError>,
    ) -> Result<Answer, MechanismError> {
        if old.nice <= CONFINED_NICE {
            return Ok(Answer::Refused(Rule::Confined, f64::from(old.nice)));
        }
        match self.change(task, old, old.with_nice(CONFINED_NICE))? {
            Ok(change) => Ok(Answer::Confined(change)),
            Err(error) if error.is_absent() => Err(MechanismError::NoSuchTask { tid: task.tid }),
            Err(error) => Err(refused_by_kernel(denied.unwrap_or(error), PERMISSION_ADVICE)),
        }
    }

    /// Makes one change after recording it; the outer error is the journal's, the inner one the kernel's.
    fn change(
        &mut self,
        task: TaskId,
        old: Scheduling,
        new: Scheduling,
    ) -> Result<Result<u64, KernelError>, MechanismError> {
        let number = self.journal.record(Change::Task { task, old, new }).map_err(journal_failed)?;
        match rescheduling::change(&Real(&self.roots), task, &new) {
            Ok(()) => Ok(Ok(number)),
            Err(error) => {
                self.close(Some(number));
                Ok(Err(error))
            }
        }
    }

    /// Where the disk takes nothing the record stays open. What it says is undone all the same, and no reason to fail.
    fn close(&mut self, change: Option<u64>) {
        if let Some(number) = change {
            let _ = self.journal.close(number);
        }
    }

    /// `Sload`, averaged over all CPUs: what is promised, as a fraction of one CPU.
    fn reserved_per_cpu(&self) -> f64 {
        if self.only_nice {
            return 0.0;
        }
        self.tasks.values().map(Managed::bandwidth_taken).fold(0.0, |sum, bandwidth| sum + bandwidth)
            / f64::from(self.cpu_count)
    }

    fn tell(&mut self, kind: EventKind, task: &Managed) {
        // Nobody was admitted or refused.
        if self.only_nice {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.events_lost += 1;
        }
        self.events.push_back(Event {
            at_ns: now_ns(),
            tid: task.id.tid,
            pid: task.pid,
            user: process::user(task.pid, &self.roots).ok().flatten(),
            name: task.name.clone(),
            cpu: process::stat(task.id.tid, &self.roots).map_or(0, |stat| stat.cpu),
            kind,
            load: self.reserved_per_cpu().max(self.load.window[0]),
            bandwidth: task.grant.reservation.bandwidth(),
            threshold: self.thresholds.admit_below,
            reason: task.refused_because,
        });
    }

    /// Gives or takes, for a thread that was just seen to be one of the process `pid`.
    fn assign_of(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        let standing = self.give(tid, pid, grant)?;
        let stat = process::stat(tid, &self.roots).map_err(|_| MechanismError::NoSuchTask { tid })?;
        if tid != pid {
            if grant.is_none() {
                self.exempt.insert(stat.id)
            } else {
                self.exempt.remove(&stat.id)
            };
        } else if let Ok(Some(process)) = process::find(pid, &self.roots) {
            self.lineage.set(&process, grant);
        }
        Ok(standing)
    }
}

impl Mechanism for DeadlineMechanism {
    fn kind(&self) -> MechanismKind {
        if self.only_nice { MechanismKind::Nice } else { MechanismKind::Deadline }
    }

    /// In force from the next [`DeadlineMechanism::scan`] on.
    fn set_exec_table(&mut self, entries: &[(FileIdentity, Option<Grant>)]) -> Result<(), MechanismError> {
        self.table = entries.iter().copied().collect();
        Ok(())
    }

    fn assign(&mut self, tid: i32, grant: Option<Grant>) -> Result<Option<Standing>, MechanismError> {
        let pid = process::process_of(tid, &self.roots).map_err(|_| MechanismError::NoSuchTask { tid })?;
        self.assign_of(pid, tid, grant)
    }

    fn assign_thread(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        if process::process_of(tid, &self.roots).ok() != Some(pid) {
            return Err(MechanismError::NoSuchTask { tid });
        }
        self.assign_of(pid, tid, grant)
    }

    fn allow_interactive_exec(&mut self, tid: i32) -> Result<(), MechanismError> {
        let stat = process::stat(tid, &self.roots).map_err(|_| MechanismError::NoSuchTask { tid })?;
        self.lineage.allow(stat.id);
        Ok(())
    }

    fn set_thresholds(&mut self, thresholds: Thresholds) -> Result<(), MechanismError> {
        self.thresholds = thresholds;
        // What was refused may fit now.
        self.follower.measure_at_ns = 0;
        Ok(())
    }

    /// Only weights, and only of cgroups that Steward made.
    fn set_domain(&mut self, cgroup_id: u64, policy: Option<DomainPolicy>) -> Result<(), MechanismError> {
        self.set_weight(cgroup_id, policy)
    }

    /// Through `cgroup.freeze`.
    fn suspend_domain(&mut self, cgroup_id: u64, path: &str, suspended: bool) -> Result<(), MechanismError> {
        self.set_frozen(cgroup_id, path, suspended)
    }

    /// SCHED_DEADLINE keeps no counts: `periods`, `deadlines_missed`, `budgets_exhausted` and `overrun_max_ns` are 0.
    fn snapshot(&mut self) -> Result<Snapshot, MechanismError> {
        let at_ns = now_ns();
        let tasks: Vec<_> = self.tasks.values().map(|task| records::task_record(task, &self.roots)).collect();
        let online = account::online_cpus(&self.roots).unwrap_or_default();
        let reserved = self.reserved_per_cpu();
        let cpus = online.iter().map(|cpu| records::cpu_record(*cpu, reserved, &self.load, &tasks)).collect();
        Ok(Snapshot { at_ns, tasks, cpus })
    }

    fn reservations_in_force(&mut self) -> Result<Vec<(i32, f64)>, MechanismError> {
        let admitted = self.tasks.values().filter(|task| task.standing == Standing::Admitted);
        Ok(admitted.map(|task| (task.id.tid, task.grant.reservation.bandwidth())).collect())
    }

    /// Acts first on what became of processes meanwhile.
    fn take_events(&mut self, sink: &mut dyn FnMut(Event)) -> u64 {
        let followed = self.follow();
        self.follower.note_failure(followed);
        self.events.drain(..).for_each(sink);
        std::mem::take(&mut self.events_lost)
    }

    fn event_descriptor(&self) -> Option<RawFd> {
        self.follower.descriptor()
    }

    fn exit_reason(&self) -> Option<String> {
        None
    }
}

impl Drop for DeadlineMechanism {
    /// Puts every task back to what it was. What can not be put back stays in the journal.
    fn drop(&mut self) {
        self.thaw_all();
        self.undo_weights();
        let numbers: Vec<u64> = self.tasks.values().filter_map(|task| task.change).collect();
        for number in numbers {
            if self.journal.undo(number, &self.roots).is_ok() {
                let _ = self.journal.close(number);
            }
        }
    }
}

const RESTORE_ADVICE: &str = "run `steward revert` to put back what is left";
const PLACING_ADVICE: &str = "the task stays as it is";
const PERMISSION_ADVICE: &str = "give the daemon CAP_SYS_NICE, for example by starting it as root";
const RANGE_ADVICE: &str = "this kernel takes budgets of at least 1024 ns, and periods between \
    /proc/sys/kernel/sched_deadline_period_min_us and sched_deadline_period_max_us";

fn refused_by_kernel(error: KernelError, advice: &str) -> MechanismError {
    let source = std::io::Error::from_raw_os_error(error.errno().unwrap_or(libc::EIO));
    let action = match error {
        KernelError::Task { tid, action, .. } => format!("{action} of task {tid} failed"),
        other => other.to_string(),
    };
    MechanismError::Kernel { action, source, advice: advice.into() }
}

#[cfg(test)]
mod tests;

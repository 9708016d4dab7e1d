//! What a process has and why, in sentences.

use libsteward::{ApiError, api};
use steward_core::cpu::explain::{RealTimeTask, explain_domain, explain_earlier_version, explain_task};
use steward_core::cpu::mechanism::{CpuRecord, MechanismKind, TaskRecord};
use steward_core::process::Process;
use steward_core::spec::{About, Mistake, SpecPath, TargetFacts};
use steward_kernel::process::{self, executable};

use crate::cpu::real_time::policy_of;
use crate::cpu::reply;
use crate::daemon::Daemon;
use crate::memory::placed::Placed;
use crate::server::Answer;
use crate::server::access::{Access, Handler, PROMISED, reply as answer};
use crate::server::peer::Caller;
use crate::server::target::kernel_error;
use crate::turn::clock::now_ns;

impl Handler for api::Explain {
    const ACCESS: Access = PROMISED;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        answer(daemon.explain(caller, self.pid))
    }
}

impl Daemon {
    pub(crate) fn reported_task(&self, task: &TaskRecord) -> api::Task {
        reply::task(task, &self.ids, self.complaints.of(task.pid))
    }

    pub(crate) fn explain(&mut self, caller: &Caller, tid: i32) -> Result<api::Explanation, ApiError> {
        let roots = &self.options.roots;
        let pid = process::process_of(tid, roots).map_err(|error| kernel_error(tid, &error))?;
        let name = process::stat(pid, roots).map_err(|error| kernel_error(tid, &error))?.name;
        let snapshot = self.snapshot().map_err(reply::mechanism_error)?;
        let tasks: Vec<&TaskRecord> = snapshot.tasks.iter().filter(|task| task.pid == pid).collect();
        let real_time = self.real_time(&snapshot.tasks);
        let paragraphs: Vec<String> =
            tasks.iter().map(|task| self.explain_record(task, &snapshot.cpus, &real_time)).collect();
        let about_tasks =
            if paragraphs.is_empty() { self.explain_nothing(pid, &name) } else { paragraphs.join("\n") };
        Ok(api::Explanation {
            text: about_tasks
                + &self.explain_memory_of(pid)
                + &self.explain_domain_of(pid)
                + &self.explain_memory_around(pid)
                + &self.explain_disk_of(caller, pid),
            disk_waits: self.disk_waits_of(caller, pid),
            tasks: tasks.into_iter().map(|task| self.reported_task(task)).collect(),
            events: self.history.events().filter(|event| event.pid() == Some(pid)).cloned().collect(),
        })
    }

    /// What became of what a specification says of a process' memory; nothing where none says anything.
    fn explain_memory_of(&self, pid: i32) -> String {
        match self.memory.programs.of(pid) {
            None => String::new(),
            Some(Ok(Placed { domain, lacks })) => {
                let lacks = lacks.as_ref().map_or_else(String::new, |why| format!(" But {why}."));
                format!(
                    "What its specification says of its memory is in force in a domain of its own, {domain}.{lacks}\n"
                )
            }
            Some(Err(why)) => format!("What its specification says of its memory is not in force: {why}.\n"),
        }
    }

    /// What the domain of a process has of the memory, and why; nothing where it is in the root.
    fn explain_memory_around(&self, pid: i32) -> String {
        let cgroup = self.domains.of_process(pid).ok().filter(|cgroup| !cgroup.path.is_empty());
        // Who may ask this may read what is promised to anybody.
        cgroup.map_or_else(String::new, |cgroup| self.explain_memory(&cgroup, &|_| true))
    }

    /// Where a process is, in a sentence; nothing where that cannot be told, because it explains only.
    fn explain_domain_of(&mut self, pid: i32) -> String {
        self.domain_of_process(pid).map_or_else(String::new, |domain| {
            explain_domain(&domain.name, domain.cpu, domain.usage.map(|usage| usage.share))
        })
    }

    /// Real-time tasks that took time lately, without those that Steward made so. At rest tasks may not be read at all:
    /// somebody wants to know now.
    pub(crate) fn real_time(&mut self, promised: &[TaskRecord]) -> Vec<RealTimeTask> {
        self.refresh(now_ns());
        let promised = promised.iter().map(|task| task.tid).collect();
        self.cpu.sampler.real_time.tasks(&self.options.roots, &promised)
    }

    fn explain_record(&self, task: &TaskRecord, cpus: &[CpuRecord], real_time: &[RealTimeTask]) -> String {
        let spec = self.ids.name(task.grant.spec_id).and_then(|name| self.loaded.by_name(name));
        let thresholds = &self.settings.config.cpu.thresholds;
        if self.cpu.mechanism.as_ref().is_some_and(|mechanism| mechanism.kind() == MechanismKind::Nice) {
            let TaskRecord { name, tid, .. } = task;
            return format!("{name} (thread {tid}) has a better nice value: {}.\n", self.gone_reason());
        }
        let text = match cpus.iter().find(|cpu| cpu.cpu == task.cpu) {
            Some(cpu) => explain_task(task, cpu, spec, thresholds, real_time),
            None => format!("{} is on CPU {}, which has gone.\n", task.name, task.cpu),
        };
        let mistake = spec.and_then(|spec| self.loaded.mistake_that_keeps(&spec.path));
        let own_choice = policy_of(task.tid).filter(|policy| *policy != "SCHED_DEADLINE");
        let own_choice = own_choice.map_or_else(String::new, |policy| {
            format!("It has {policy} of its own choice: the kernel runs it before all promises, and its own is not used.\n")
        });
        text + &own_choice + &mistake.map_or_else(String::new, explain_earlier_version)
    }

    /// The mistake because of which the program of a process may have no specification, in a sentence.
    fn explain_mistake(&self, process: Option<&Process>) -> Option<String> {
        let executable = process.and_then(|process| process.executable);
        let names_it = |path: &SpecPath| match path {
            SpecPath::Executable(path) => {
                let facts = executable::identify(path, &self.options.roots).ok();
                let identity = |facts| match facts {
                    TargetFacts::Executable { identity } => Some(identity),
                    _ => None,
                };
                executable.is_some() && facts.and_then(identity) == executable
            }
            SpecPath::KernelThread(_) => {
                process.is_some_and(|process| path.matches_kernel_thread(&process.name))
            }
        };
        let mistakes = &self.loaded.mistakes;
        let own =
            mistakes.iter().find(|mistake| matches!(&mistake.about, About::Row(path) if names_it(path)));
        let any = mistakes.iter().find(|mistake| !matches!(mistake.about, About::Row(_)));
        let about = |mistake: &Mistake<SpecPath>, what: &str| format!("{what}: {}.", mistake.problem);
        own.map(|mistake| about(mistake, "There is a row for it, which has a mistake in it"))
            .or(any.map(|mistake| about(mistake, "A row for it may be where there is a mistake")))
    }

    /// Why a process has nothing.
    fn explain_nothing(&self, pid: i32, name: &str) -> String {
        let by_hand = self.cpu.by_hand.iter().any(|hand| hand.process.tid == pid && hand.grant.is_none());
        let process = process::find(pid, &self.options.roots).ok().flatten();
        let entry = process.as_ref().and_then(|process| self.loaded.table.entry_for(process));
        let why = match entry {
            _ if by_hand => "Its reservation was taken from it by hand (`steward set --release`).".to_owned(),
            Some(entry) => match entry.grant {
                Some(grant) => format!(
                    "There is a specification for it ({}), but a best-effort program started it, and such a \
                     program starts no interactive ones: start it with `steward run`, or give it {} with \
                     `steward set`.",
                    entry.name, grant.reservation
                ),
                None => format!("Its specification ({}) says so.", entry.name),
            },
            None => {
                let mistake = self.explain_mistake(process.as_ref()).map(|sentence| format!(" {sentence}"));
                format!(
                    "No specification names its program, and it inherited none.{} Write one (`steward spec check` \
                     helps), or give it a reservation with `steward set`.",
                    mistake.unwrap_or_default()
                )
            }
        };
        if let Some(policy) = policy_of(pid) {
            return format!(
                "{name} (process {pid}) is a real-time task ({policy}): the kernel runs it before everything that Steward \
                 promises, and no specification changes that.\n"
            );
        }
        format!("{name} (process {pid}) is best-effort: it shares what reservations leave.\n{why}\n")
    }
}

/// Which fraction of a CPU real-time tasks took.
pub(crate) fn taken(real_time: &[RealTimeTask], cpu: u32) -> f64 {
    let here = real_time.iter().filter(|task| task.cpu == cpu);
    here.fold(0.0, |sum: f64, task| sum + task.share).min(1.0)
}

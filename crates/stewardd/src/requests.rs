//! What clients may ask, and who may ask it.
//!
//! Every request is decided by who the kernel says the caller is ([`crate::permission`]), before anything is changed. A
//! request about a process holds on to that process while it acts, so that a pid which is given to another process
//! meanwhile, or a process that becomes another user's by executing a set-user-ID program, is noticed and the change
//! taken back.

use libsteward::ApiError;
use libsteward::api::{self, Method};
use libsteward::wire::Call;
use serde_json::{Map, Value, json};
use steward_core::authority::{Action, Amount, Request as Wish, Resource, Target};
use steward_core::explain::{RealTimeTask, explain_domain, explain_earlier_version, explain_task};
use steward_core::mechanism::{
    CpuRecord, Grant, IrrevocableFor, MechanismKind, Reservation, Standing, TaskRecord,
};
use steward_core::spec::{About, Mistake, SpecPath, TargetFacts};
use steward_kernel::KernelError;
use steward_kernel::executable;
use steward_kernel::processes::{self, Pidfd, Process, TaskId};

mod audit;
mod domains;
mod forecast_text;
mod forecasts;
mod slowed;
mod suspension;

use crate::daemon::Daemon;
use crate::event_loop::now_ns;
use crate::peer::Caller;
use crate::plan::ByHand;
use crate::real_time::policy_of;
use crate::report;
use crate::server::{Answer, Topic};

/// What is given by hand, checked.
struct Request {
    grant: Grant,
    keep_if_refused: bool,
}

impl Daemon {
    /// Answers one call.
    pub fn answer(&mut self, caller: &Caller, call: Call) -> Answer {
        let answer = match self.reply_to(caller, call) {
            // While polkit is asked about it, it is not refused yet.
            Err(_) if self.polkit.is_waiting(caller.id) => return Answer::Wait,
            Ok(answer) => answer,
            Err(error) => {
                if let ApiError::PermissionDenied { reason } = &error {
                    tracing::warn!(decision = "denied", uid = caller.uid, pid = caller.pid, "{reason}");
                }
                Answer::Error(error)
            }
        };
        // What polkit said was about this call and no other.
        self.polkit.forget(caller.id);
        answer
    }

    fn reply_to(&mut self, caller: &Caller, call: Call) -> Result<Answer, ApiError> {
        if READING.contains(&call.method.as_str()) {
            let wish = Wish::of_all(Action::Read, Target::Others, "what is promised to whom");
            self.permit(caller, &wish)?;
        }
        let changes = CHANGING.contains(&call.method.as_str());
        let parameters = call.parameters;
        let result = match call.method.as_str() {
            api::Run::NAME => self.method::<api::Run>(parameters, |it, request| it.run(caller, request)),
            api::Set::NAME => self.method::<api::Set>(parameters, |it, request| it.set(caller, request)),
            api::Release::NAME => {
                self.method::<api::Release>(parameters, |it, request| it.release(caller, request.pid))
            }
            api::Status::NAME => {
                return self.shared::<api::Status>(parameters, |it| Ok(it.status()));
            }
            api::ListSpecs::NAME => {
                return self.shared::<api::ListSpecs>(parameters, |it| Ok(it.list_specs()));
            }
            api::Explain::NAME => {
                self.method::<api::Explain>(parameters, |it, request| it.explain(request.pid))
            }
            api::Reload::NAME => self.method::<api::Reload>(parameters, |it, _| it.reload_for(caller)),
            api::ListDomains::NAME => return self.shared::<api::ListDomains>(parameters, Self::list_domains),
            api::ShowDomain::NAME => {
                self.method::<api::ShowDomain>(parameters, |it, request| it.show_domain(caller, &request))
            }
            api::CreateDomain::NAME => {
                self.method::<api::CreateDomain>(parameters, |it, request| it.create_domain(caller, &request))
            }
            api::SetDomain::NAME => {
                self.method::<api::SetDomain>(parameters, |it, request| it.set_domain(caller, &request))
            }
            api::RemoveDomain::NAME => {
                self.method::<api::RemoveDomain>(parameters, |it, request| it.remove_domain(caller, &request))
            }
            api::MoveProcess::NAME => {
                self.method::<api::MoveProcess>(parameters, |it, request| it.move_process(caller, &request))
            }
            api::AuditDomain::NAME => {
                self.method::<api::AuditDomain>(parameters, |it, request| it.audit_domain(caller, &request))
            }
            api::SuspendDomain::NAME => self
                .method::<api::SuspendDomain>(parameters, |it, request| it.suspend_domain(caller, &request)),
            api::LowerDomain::NAME => {
                self.method::<api::LowerDomain>(parameters, |it, request| it.lower_domain(caller, &request))
            }
            api::Complain::NAME => {
                self.method::<api::Complain>(parameters, |it, request| it.complain(caller, &request))
            }
            api::WatchDomains::NAME => {
                let request = parse::<api::WatchDomains>(parameters)?;
                let present = self.present_domains(request.present == Some(true));
                return Ok(Answer::Stream(Topic::Domains, present));
            }
            api::ListForecasts::NAME => return self.list_forecasts(caller, parse(parameters)?),
            api::WatchForecasts::NAME => return self.watch_forecasts(caller, parse(parameters)?),
            api::ListEvents::NAME => {
                parse::<api::ListEvents>(parameters)?;
                return Ok(Answer::Text(self.history.list(self.events_lost)));
            }
            api::Monitor::NAME => {
                let wants_history = parse::<api::Monitor>(parameters)?.history == Some(true);
                let first = if wants_history { self.history.stream() } else { "".into() };
                return Ok(Answer::Stream(Topic::Decisions, first));
            }
            "org.varlink.service.GetInfo" => Ok(service_info()),
            "org.varlink.service.GetInterfaceDescription" => describe(&parameters),
            _ => Err(ApiError::MethodNotFound { method: call.method }),
        };
        if changes {
            self.texts.forget();
        }
        if changes && result.is_ok() {
            self.sampler.invalidate();
        }
        result.map(Answer::Reply)
    }

    fn method<M: Method>(
        &mut self,
        parameters: Map<String, Value>,
        act: impl FnOnce(&mut Self, M) -> Result<M::Reply, ApiError>,
    ) -> Result<Map<String, Value>, ApiError> {
        let reply = act(self, parse(parameters)?)?;
        Ok(report::parameters(&reply))
    }

    /// A reply that is the same for all who may have it, made anew unless that was costly and is a moment ago.
    fn shared<M: Method>(
        &mut self,
        parameters: Map<String, Value>,
        make: impl FnOnce(&mut Self) -> Result<M::Reply, ApiError>,
    ) -> Result<Answer, ApiError> {
        parse::<M>(parameters)?;
        let begun_ns = now_ns();
        if let Some(text) = self.texts.recent(M::NAME, begun_ns) {
            return Ok(Answer::Text(text));
        }
        let text = report::json(&make(self)?);
        self.texts.keep(M::NAME, &text, begun_ns, now_ns());
        Ok(Answer::Text(text))
    }

    fn run(&mut self, caller: &Caller, mut request: api::Run) -> Result<api::Standings, ApiError> {
        if let Some(domain) = request.domain.take() {
            return self.run_in_domain(caller, &domain, request);
        }
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let (asked, user) = self.permit_run(caller, &request)?;
        let Some(request) = asked else {
            let reason = self.gone_reason();
            let mechanism = self.mechanism.as_mut().ok_or(ApiError::MechanismGone { reason })?;
            mechanism.allow_interactive_exec(caller.pid).map_err(report::mechanism_error)?;
            tracing::info!(decision = "allowed-exec", pid = caller.pid, uid = caller.uid, "by steward run");
            return Ok(api::Standings { standing: None });
        };
        let id = processes::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        let given = self.give(id, &[caller.pid], &request);
        // The pid meant the caller throughout only if the caller still runs.
        if !caller.is_alive() {
            let _ = self.assign(caller.pid, None);
            return Err(gone());
        }
        if processes::user(caller.pid, &self.options.roots).ok().flatten() != user {
            let _ = self.assign(caller.pid, None);
            return Err(became_anothers(caller.pid));
        }
        self.given(id, &request, given, caller)
    }

    /// May the caller reserve that for itself? The user who asks is the one who connected; the process may have executed a
    /// set-user-ID program since, and is then nobody's own. Returns what it asks for, checked, and whose it is now; `None` stands
    /// for what the specifications give to the program that it executes, of which somebody with the right to write them has
    /// decided how much it is.
    fn permit_run(
        &mut self,
        caller: &Caller,
        run: &api::Run,
    ) -> Result<(Option<Request>, Option<u32>), ApiError> {
        let check = |cpu| check(cpu, run.inherit, run.revocable, run.keep_if_refused, true);
        let asked = run.cpu.map(check).transpose()?;
        let user = processes::user(caller.pid, &self.options.roots);
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let id = processes::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        if !caller.is_alive() {
            return Err(gone());
        }
        let user = user.ok().flatten();
        let of_specifications = Amount { asked: 0.0, held: 0.0, inherit: false, revocable: true };
        let amount =
            asked.as_ref().map_or(of_specifications, |request| self.amount(caller, id, &request.grant));
        let wish = for_process(Action::Reserve, caller, caller.pid, user);
        self.permit(caller, &wish.for_amount(amount))?;
        Ok((asked, user))
    }

    fn set(&mut self, caller: &Caller, request: api::Set) -> Result<api::Standings, ApiError> {
        let number = request.pid;
        let request = check(request.cpu, request.inherit, request.revocable, request.keep_if_refused, false)?;
        let (held, first) = self.take_hold_of_task(number)?;
        let user = held.user(&self.options.roots).map_err(|error| kernel_error(number, &error))?;
        let amount = self.amount(caller, held.id(), &request.grant);
        let wish = for_process(Action::Reserve, caller, held.id().tid, user).for_amount(amount);
        self.permit(caller, &wish)?;
        let is_process = first == held.id();
        let tids: Vec<i32> = if request.grant.inherit && is_process {
            // The main thread first: its standing is the answer.
            let threads = processes::threads_of(number, &self.options.roots);
            let others = threads.iter().map(|thread| thread.id.tid).filter(|tid| *tid != number);
            std::iter::once(number).chain(others).collect()
        } else {
            vec![number]
        };
        let given = self.give(first, &tids, &request);
        if let Err(error) = self.still_of(&held, user).and_then(|()| self.still_runs(first)) {
            for tid in tids {
                let _ = self.assign(tid, None);
            }
            return Err(error);
        }
        if is_process && request.grant.inherit {
            self.forget_threads(held.id());
        }
        self.given(first, &request, given, caller)
    }

    /// Whether the thread that was decided about is still the one with its number, after acting on it.
    fn still_runs(&self, thread: TaskId) -> Result<(), ApiError> {
        let runs = processes::is_alive(thread, &self.options.roots);
        if runs { Ok(()) } else { Err(ApiError::NoSuchTask { pid: thread.tid }) }
    }

    /// What was decided by hand about single threads of a process counts no more once it is decided about all of it.
    fn forget_threads(&mut self, process: TaskId) {
        let threads = processes::threads_of(process.tid, &self.options.roots);
        let is_thread = |task: TaskId| task != process && threads.iter().any(|thread| thread.id == task);
        self.by_hand.retain(|hand| !is_thread(hand.process));
    }

    /// Gives to all these threads of a process. When the first is refused and is not to wait for room, it and the
    /// others are left as they were: best-effort.
    fn give(
        &mut self,
        process: TaskId,
        tids: &[i32],
        request: &Request,
    ) -> Result<Option<Standing>, ApiError> {
        let first = self.assign(process.tid, Some(request.grant)).map_err(report::mechanism_error)?;
        if first == Some(Standing::Refused) && !request.keep_if_refused {
            let _ = self.assign(process.tid, None);
            return Err(self.admission_refused(&request.grant));
        }
        for tid in tids.iter().filter(|tid| **tid != process.tid) {
            // A thread that ended meanwhile needs nothing, and the promise to the process stands without it.
            if let Err(error) = self.assign(*tid, Some(request.grant)) {
                tracing::debug!(tid, %error, "a thread got nothing");
            }
        }
        Ok(first)
    }

    fn given(
        &mut self,
        process: TaskId,
        request: &Request,
        given: Result<Option<Standing>, ApiError>,
        caller: &Caller,
    ) -> Result<api::Standings, ApiError> {
        let standing = given?;
        tracing::info!(
            decision = "given-by-hand",
            pid = process.tid,
            cpu = %request.grant.reservation,
            standing = standing.map(|standing| standing.to_string()),
            uid = caller.uid,
            "asked for by process {}",
            caller.pid
        );
        self.remember(ByHand { process, grant: Some(request.grant), user: caller.uid });
        Ok(api::Standings { standing: standing.map(report::standing) })
    }

    fn admission_refused(&mut self, grant: &Grant) -> ApiError {
        let admit_below = self.settings.config.thresholds.admit_below;
        let bandwidth = grant.reservation.bandwidth();
        let cpus = self.snapshot().map(|snapshot| snapshot.cpus).unwrap_or_default();
        let load = |cpu: &CpuRecord| cpu.measured_load.max(cpu.projected_load);
        let least =
            cpus.iter().filter(|cpu| cpu.online).min_by(|one, other| load(one).total_cmp(&load(other)));
        let fullness = match least {
            Some(cpu) => format!("the least loaded CPU, {}, is at {:.0} %", cpu.cpu, load(cpu) * 100.0),
            None => "no CPU has room".to_owned(),
        };
        let reason = format!(
            "there is no room for {} ({:.1} % of a CPU): {fullness} and admission stops at {:.0} %; ask for less, \
             or end or shrink another reservation (steward status lists them)",
            grant.reservation,
            bandwidth * 100.0,
            admit_below * 100.0
        );
        ApiError::AdmissionRefused { reason, bandwidth, admit_below }
    }

    fn take_hold(&self, pid: i32) -> Result<Pidfd, ApiError> {
        Pidfd::open(pid, &self.options.roots).map_err(|error| kernel_error(pid, &error))
    }

    /// As [`Daemon::take_hold`], by the number of the process or of one of its threads: with the task that is meant.
    fn take_hold_of_task(&self, number: i32) -> Result<(Pidfd, TaskId), ApiError> {
        let no_process = match self.take_hold(number) {
            Ok(held) => {
                let task = held.id();
                return Ok((held, task));
            }
            Err(error) => error,
        };
        let roots = &self.options.roots;
        let pid = processes::process_of(number, roots).ok().filter(|pid| *pid != number);
        let held = self.take_hold(pid.ok_or(no_process)?)?;
        let threads = processes::threads_of(held.id().tid, roots);
        let thread = threads.iter().find(|thread| thread.id.tid == number).map(|thread| thread.id);
        Ok((held, thread.ok_or(ApiError::NoSuchTask { pid: number })?))
    }

    /// Whether the process that was decided about is still that user's, after acting on it.
    fn still_of(&self, held: &Pidfd, user: Option<u32>) -> Result<(), ApiError> {
        let pid = held.id().tid;
        match held.user(&self.options.roots) {
            Ok(now) if now == user => Ok(()),
            // A set-user-ID program: to the caller it is another process.
            Ok(_) => Err(became_anothers(pid)),
            Err(error) => Err(kernel_error(pid, &error)),
        }
    }

    fn release(&mut self, caller: &Caller, number: i32) -> Result<api::Released, ApiError> {
        let (held, first) = self.take_hold_of_task(number)?;
        let (pid, is_process) = (held.id().tid, first == held.id());
        let user = held.user(&self.options.roots).map_err(|error| kernel_error(pid, &error))?;
        self.permit(caller, &for_process(Action::Limit, caller, pid, user))?;
        let tasks = self.snapshot().map_err(report::mechanism_error)?.tasks;
        let is_meant = |task: &TaskRecord| task.pid == pid && (is_process || task.tid == number);
        let tasks: Vec<TaskRecord> = tasks.into_iter().filter(is_meant).collect();
        let mut released = 0;
        for task in &tasks {
            match self.assign(task.tid, None) {
                Ok(_) => released += 1,
                Err(error) => tracing::debug!(tid = task.tid, %error, "a thread was not released"),
            }
        }
        if let Err(error) = self.still_of(&held, user) {
            for task in &tasks {
                let _ = self.assign(task.tid, Some(task.grant));
            }
            return Err(error);
        }
        // Whoever may say this of their own processes can say it without end.
        if released > 0 {
            tracing::info!(
                decision = "released-by-hand",
                pid = number,
                uid = caller.uid,
                released,
                "by process {}",
                caller.pid
            );
        }
        if is_process {
            self.forget_threads(held.id());
        }
        self.remember(ByHand { process: first, grant: None, user: caller.uid });
        Ok(api::Released { released })
    }

    fn reload_for(&mut self, caller: &Caller) -> Result<api::Reloaded, ApiError> {
        let wish = Wish::of_all(Action::Administer, Target::Others, "how the machine is divided");
        self.permit(caller, &wish)?;
        let applied = self.reload();
        Ok(api::Reloaded {
            specs: self.loaded.specs.len() as u64,
            assigned: applied.assigned,
            released: applied.released,
            problems: self.reported_problems(),
        })
    }

    fn reported_problems(&self) -> Vec<api::Problem> {
        let troubles = self.troubles.all().map(|sentence| report::trouble(sentence));
        self.problems().map(report::problem).chain(troubles).collect()
    }

    fn status(&mut self) -> api::StatusReply {
        self.note_cgroups();
        let snapshot = self.snapshot().unwrap_or_default();
        let real_time = self.real_time(&snapshot.tasks);
        let kind = self.mechanism.as_ref().map(|mechanism| report::mechanism_kind(mechanism.kind()));
        api::StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            mechanism: api::MechanismState {
                kind,
                note: self.health.note.clone(),
                exit_reason: self.health.exit_reason.clone(),
                restarts: self.health.restarts,
            },
            thresholds: report::thresholds(&self.settings.config.thresholds),
            owner: self.settings.policy.owner_uid.map(|uid| uid.to_string()),
            specs: self.loaded.specs.len() as u64,
            events_lost: self.events_lost,
            cpus: snapshot.cpus.iter().map(|cpu| report::cpu(cpu, taken(&real_time, cpu.cpu))).collect(),
            tasks: snapshot.tasks.iter().map(|task| self.reported_task(task)).collect(),
            problems: self.reported_problems(),
        }
    }

    fn reported_task(&self, task: &TaskRecord) -> api::Task {
        report::task(task, &self.ids, self.complaints.of(task.pid))
    }

    fn list_specs(&self) -> api::SpecList {
        let specs = self.loaded.table.entries.iter().filter_map(|entry| {
            let spec = self.loaded.by_name(&entry.name)?;
            Some(api::Spec {
                name: entry.name.clone(),
                grant: entry.grant.map(|grant| report::grant(&grant, &self.ids)),
                file: spec.origin.file.display().to_string(),
                line: (spec.origin.line > 0).then_some(u64::from(spec.origin.line)),
                resolved: !matches!(entry.subject, crate::plan::Subject::Executable(None)),
            })
        });
        let mut specs: Vec<api::Spec> = specs.collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        api::SpecList { specs, problems: self.reported_problems() }
    }

    fn explain(&mut self, tid: i32) -> Result<api::Explanation, ApiError> {
        let roots = &self.options.roots;
        let pid = processes::process_of(tid, roots).map_err(|error| kernel_error(tid, &error))?;
        let name = processes::stat(pid, roots).map_err(|error| kernel_error(tid, &error))?.name;
        let snapshot = self.snapshot().map_err(report::mechanism_error)?;
        let tasks: Vec<&TaskRecord> = snapshot.tasks.iter().filter(|task| task.pid == pid).collect();
        let real_time = self.real_time(&snapshot.tasks);
        let paragraphs: Vec<String> =
            tasks.iter().map(|task| self.explain_record(task, &snapshot.cpus, &real_time)).collect();
        let about_tasks =
            if paragraphs.is_empty() { self.explain_nothing(pid, &name) } else { paragraphs.join("\n") };
        Ok(api::Explanation {
            text: about_tasks + &self.explain_domain_of(pid),
            tasks: tasks.into_iter().map(|task| self.reported_task(task)).collect(),
            events: self.history.events().filter(|event| event.pid == pid).cloned().collect(),
        })
    }

    /// Where a process is, in a sentence; nothing where that cannot be told, because it explains only.
    fn explain_domain_of(&mut self, pid: i32) -> String {
        self.domain_of_process(pid).map_or_else(String::new, |domain| {
            explain_domain(&domain.name, domain.cpu, domain.usage.map(|usage| usage.share))
        })
    }

    /// Real-time tasks that took time lately, without those that Steward made so. At rest tasks may not be read at all: somebody
    /// wants to know now.
    fn real_time(&mut self, promised: &[TaskRecord]) -> Vec<RealTimeTask> {
        self.refresh(crate::event_loop::now_ns());
        let promised = promised.iter().map(|task| task.tid).collect();
        self.sampler.real_time.tasks(&self.options.roots, &promised)
    }

    fn explain_record(&self, task: &TaskRecord, cpus: &[CpuRecord], real_time: &[RealTimeTask]) -> String {
        let spec = self.ids.name(task.grant.spec_id).and_then(|name| self.loaded.by_name(name));
        let thresholds = &self.settings.config.thresholds;
        if self.mechanism.as_ref().is_some_and(|mechanism| mechanism.kind() == MechanismKind::Nice) {
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
        let by_hand = self.by_hand.iter().any(|hand| hand.process.tid == pid && hand.grant.is_none());
        let process = processes::find(pid, &self.options.roots).ok().flatten();
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
fn taken(real_time: &[RealTimeTask], cpu: u32) -> f64 {
    let here = real_time.iter().filter(|task| task.cpu == cpu);
    here.fold(0.0, |sum: f64, task| sum + task.share).min(1.0)
}

fn parse<M: Method>(parameters: Map<String, Value>) -> Result<M, ApiError> {
    serde_json::from_value(Value::Object(parameters)).map_err(|error| ApiError::InvalidParameter {
        parameter: "parameters".to_owned(),
        reason: format!("{error}; see the description of {} (GetInterfaceDescription)", M::NAME),
    })
}

fn check(
    cpu: api::Reservation,
    inherit: Option<bool>,
    revocable: Option<bool>,
    keep_if_refused: Option<bool>,
    keep_over_exec: bool,
) -> Result<Request, ApiError> {
    let reservation = Reservation { budget_ns: cpu.budget_ns, period_ns: cpu.period_ns };
    reservation.validate().map_err(|fault| ApiError::InvalidParameter {
        parameter: "cpu".to_owned(),
        reason: fault.to_string(),
    })?;
    let grant = Grant {
        reservation,
        inherit: inherit.unwrap_or(false),
        revocable: revocable.unwrap_or(true),
        // Whoever may ask for it was looked at already.
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec,
        spec_id: 0,
    };
    Ok(Request { grant, keep_if_refused: keep_if_refused.unwrap_or(false) })
}

fn became_anothers(pid: i32) -> ApiError {
    let reason = format!("process {pid} became another user's meanwhile; nothing was changed");
    ApiError::PermissionDenied { reason }
}

/// A wish for CPU time about a process that belongs to `user` (see [`Pidfd::user`]).
fn for_process(action: Action, caller: &Caller, pid: i32, user: Option<u32>) -> Wish {
    let target = Target::of_process(caller.uid, user);
    let whose = match user {
        Some(uid) => format!("process {pid} of user {uid}"),
        None => format!("process {pid}, which has the rights of several users"),
    };
    Wish::new(action, Resource::Cpu, target, whose)
}

/// Calls that say what is promised to whom.
const READING: [&str; 8] = [
    api::Status::NAME,
    api::ListSpecs::NAME,
    api::Explain::NAME,
    api::ListEvents::NAME,
    api::Monitor::NAME,
    api::ListDomains::NAME,
    api::ShowDomain::NAME,
    api::WatchDomains::NAME,
];

/// Calls after which forecasts are others than before.
const CHANGING: [&str; 9] = [
    api::Run::NAME,
    api::Set::NAME,
    api::Release::NAME,
    api::CreateDomain::NAME,
    api::SetDomain::NAME,
    api::RemoveDomain::NAME,
    api::MoveProcess::NAME,
    api::SuspendDomain::NAME,
    api::LowerDomain::NAME,
];

fn invalid(parameter: &str, reason: impl Into<String>) -> ApiError {
    ApiError::InvalidParameter { parameter: parameter.to_owned(), reason: reason.into() }
}

fn kernel_error(pid: i32, error: &KernelError) -> ApiError {
    if error.is_denied() {
        ApiError::MechanismFailed { reason: error.to_string() }
    } else {
        ApiError::NoSuchTask { pid }
    }
}

fn service_info() -> Map<String, Value> {
    let info = json!({
        "vendor": "Steward",
        "product": "stewardd",
        "version": env!("CARGO_PKG_VERSION"),
        "url": "",
        "interfaces": [api::INTERFACE, "org.varlink.service"],
    });
    report::parameters(&info)
}

fn describe(parameters: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let interface = parameters.get("interface").and_then(Value::as_str).unwrap_or_default();
    let description = match interface {
        api::INTERFACE => libsteward::INTERFACE_DESCRIPTION,
        "org.varlink.service" => libsteward::SERVICE_DESCRIPTION,
        _ => {
            let parameters = json!({ "interface": interface }).to_string();
            return Err(ApiError::Other { name: "org.varlink.service.InterfaceNotFound".into(), parameters });
        }
    };
    Ok(report::parameters(&json!({ "description": description })))
}

//! Requests about the CPU: what a process is given or loses by hand.

use libsteward::{ApiError, api};
use steward_core::authority::{Action, Amount};
use steward_core::cpu::explain::explain_refusal;
use steward_core::cpu::mechanism::{CpuRecord, MechanismKind, Standing, TaskRecord};
use steward_core::cpu::plan::ByHand;
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_core::process::{Executed, TaskId};
use steward_kernel::process;

use super::reply;
use crate::daemon::Daemon;
use crate::server::Answer;
use crate::server::access::{Access, Handler, reply as answer};
use crate::server::peer::Caller;
use crate::server::target::{became_anothers, for_process, kernel_error};

mod audit;
mod explain;
mod forecast_text;
mod forecasts;
mod making;
mod suspension;

pub(crate) use explain::taken;
pub(crate) use forecasts::Sight;

/// What is given by hand, checked.
pub(crate) struct Asked {
    grant: Grant,
    keep_if_refused: bool,
    /// As [`ByHand::program`].
    program: Option<Executed>,
}

impl Handler for api::Run {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        let listens = self.memory_pressure == Some(true);
        let ran = daemon.run(caller, self)?;
        let memory_pressure = if listens { daemon.listen_to_pressure(caller)? } else { None };
        answer(Ok(api::Ran { memory_pressure, ..ran }))
    }
}

impl Handler for api::Set {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        answer(daemon.set(caller, self))
    }
}

impl Handler for api::Release {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = true;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        answer(daemon.release(caller, self.pid))
    }
}

impl Daemon {
    pub(crate) fn run(&mut self, caller: &Caller, mut request: api::Run) -> Result<api::Ran, ApiError> {
        if request.needs_domain() {
            return self.run_limited(caller, request);
        }
        if let Some(domain) = request.domain.take() {
            return self.run_in_domain(caller, &domain, request);
        }
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let (asked, user) = self.permit_run(caller, &request)?;
        let Some(request) = asked else {
            let reason = self.gone_reason();
            let mechanism = self.cpu.mechanism.as_mut().ok_or(ApiError::MechanismGone { reason })?;
            mechanism.allow_interactive_exec(caller.pid).map_err(reply::mechanism_error)?;
            tracing::info!(decision = "allowed-exec", pid = caller.pid, uid = caller.uid, "by steward run");
            return Ok(api::Ran::default());
        };
        let id = process::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        let given = self.give(caller.pid, id, &[caller.pid], &request);
        // The pid meant the caller throughout only if the caller still runs.
        if !caller.is_alive() {
            let _ = self.assign_thread(caller.pid, caller.pid, None);
            return Err(gone());
        }
        if process::user(caller.pid, &self.options.roots).ok().flatten() != user {
            let _ = self.assign_thread(caller.pid, caller.pid, None);
            return Err(became_anothers(caller.pid));
        }
        let api::Standings { standing, .. } = self.given(id, &request, given, caller)?;
        Ok(api::Ran { standing, ..api::Ran::default() })
    }

    /// May the caller reserve that for itself? The user who asks is the one who connected; the process may have
    /// executed a set-user-ID program since, and is then nobody's own. Returns what it asks for, checked, and whose it
    /// is now; `None` stands for what the specifications give to the program that it executes, of which somebody with
    /// the right to write them has decided how much it is.
    pub(crate) fn permit_run(
        &mut self,
        caller: &Caller,
        run: &api::Run,
    ) -> Result<(Option<Asked>, Option<u32>), ApiError> {
        let check = |cpu| check(cpu, run.inherit, run.revocable, run.keep_if_refused, true);
        let asked = run.cpu.map(check).transpose()?;
        let user = process::user(caller.pid, &self.options.roots);
        let gone = || ApiError::NoSuchTask { pid: caller.pid };
        let id = process::stat(caller.pid, &self.options.roots).map_err(|_| gone())?.id;
        if !caller.is_alive() {
            return Err(gone());
        }
        let user = user.ok().flatten();
        let of_specifications = Amount { asked: 0.0, held: 0.0, inherit: false, revocable: true };
        let amount =
            asked.as_ref().map_or(of_specifications, |request| self.amount(caller, id, &request.grant));
        let request = for_process(Action::Reserve, caller, caller.pid, user);
        self.permit(caller, &request.for_amount(amount))?;
        Ok((asked, user))
    }

    pub(crate) fn set(&mut self, caller: &Caller, request: api::Set) -> Result<api::Standings, ApiError> {
        let (number, requests_at) = (request.pid, request.requests_at);
        let mut request =
            check(request.cpu, request.inherit, request.revocable, request.keep_if_refused, false)?;
        request.grant.requests_at = check_requests_at(requests_at, request.grant.inherit)?;
        let (held, first) = self.take_hold_of_task(number)?;
        // Before it gets anything: if it executes another program now, that one is not what it was given to.
        request.program = process::executed(held.id().tid, &self.options.roots);
        let user = held.user(&self.options.roots).map_err(|error| kernel_error(number, &error))?;
        let amount = self.amount(caller, held.id(), &request.grant);
        let asked = for_process(Action::Reserve, caller, held.id().tid, user).for_amount(amount);
        self.permit(caller, &asked)?;
        let is_process = first == held.id();
        let tids: Vec<i32> = if request.grant.inherit && is_process {
            // The main thread first: its standing is the answer.
            let threads = process::threads_of(number, &self.options.roots);
            let others = threads.iter().map(|thread| thread.id.tid).filter(|tid| *tid != number);
            std::iter::once(number).chain(others).collect()
        } else {
            vec![number]
        };
        let pid = held.id().tid;
        let given = self.give(pid, first, &tids, &request);
        if let Err(error) = self.still_of(&held, user).and_then(|()| self.still_runs(first)) {
            for tid in tids {
                let _ = self.assign_thread(pid, tid, None);
            }
            return Err(error);
        }
        if is_process && request.grant.inherit {
            self.forget_threads(held.id());
        }
        let mut given = self.given(first, &request, given, caller)?;
        let reads =
            self.cpu.mechanism.as_ref().is_some_and(|mechanism| mechanism.kind() == MechanismKind::SchedExt);
        given.reads_requests = requests_at.map(|_| reads);
        Ok(given)
    }

    /// What was decided by hand about single threads of a process counts no more once it is decided about all of it.
    fn forget_threads(&mut self, process: TaskId) {
        let threads = process::threads_of(process.tid, &self.options.roots);
        let is_thread = |task: TaskId| task != process && threads.iter().any(|thread| thread.id == task);
        self.cpu.by_hand.retain(|hand| !is_thread(hand.process));
    }

    /// Gives to all these threads of the process `pid`. When the first is refused and is not to wait for room, it and
    /// the others are left as they were: best-effort.
    fn give(
        &mut self,
        pid: i32,
        first: TaskId,
        tids: &[i32],
        request: &Asked,
    ) -> Result<Option<Standing>, ApiError> {
        let grant = Some(request.grant);
        let standing = self.assign_thread(pid, first.tid, grant).map_err(reply::mechanism_error)?;
        if standing == Some(Standing::Refused) && !request.keep_if_refused {
            let refused = self.admission_refused(first.tid, &request.grant);
            let _ = self.assign_thread(pid, first.tid, None);
            return Err(refused);
        }
        for tid in tids.iter().filter(|tid| **tid != first.tid) {
            // A thread that ended meanwhile needs nothing, and the promise to the process stands without it. Its id may
            // be that of somebody else's process by now.
            if let Err(error) = self.assign_thread(pid, *tid, grant) {
                tracing::debug!(tid, %error, "a thread got nothing");
            }
        }
        Ok(standing)
    }

    fn given(
        &mut self,
        process: TaskId,
        request: &Asked,
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
        let (grant, program) = (Some(request.grant), request.program);
        self.remember(ByHand { process, grant, user: caller.uid, program });
        Ok(api::Standings { standing: standing.map(reply::standing), reads_requests: None })
    }

    /// That the thread `tid`, which still has its record, was refused `grant`.
    fn admission_refused(&mut self, tid: i32, grant: &Grant) -> ApiError {
        let admit_below = self.settings.config.cpu.thresholds.admit_below;
        let bandwidth = grant.reservation.bandwidth();
        let (tasks, cpus) =
            self.snapshot().map(|snapshot| (snapshot.tasks, snapshot.cpus)).unwrap_or_default();
        let by_rule = tasks.iter().find(|task| task.tid == tid).and_then(explain_refusal);
        if let Some(why) = by_rule {
            let reason =
                format!("{} ({:.1} % of a CPU) is refused: {why}", grant.reservation, bandwidth * 100.0);
            return ApiError::AdmissionRefused { reason, bandwidth, admit_below };
        }
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

    pub(crate) fn release(&mut self, caller: &Caller, number: i32) -> Result<api::Released, ApiError> {
        let (held, first) = self.take_hold_of_task(number)?;
        let (pid, is_process) = (held.id().tid, first == held.id());
        let user = held.user(&self.options.roots).map_err(|error| kernel_error(pid, &error))?;
        self.permit(caller, &for_process(Action::Limit, caller, pid, user))?;
        let tasks = self.snapshot().map_err(reply::mechanism_error)?.tasks;
        let is_meant = |task: &TaskRecord| task.pid == pid && (is_process || task.tid == number);
        let tasks: Vec<TaskRecord> = tasks.into_iter().filter(is_meant).collect();
        let mut released = 0;
        for task in &tasks {
            match self.assign_thread(pid, task.tid, None) {
                Ok(_) => released += 1,
                Err(error) => tracing::debug!(tid = task.tid, %error, "a thread was not released"),
            }
        }
        if let Err(error) = self.still_of(&held, user) {
            for task in &tasks {
                let _ = self.assign_thread(pid, task.tid, Some(task.grant));
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
        self.remember(ByHand { process: first, grant: None, user: caller.uid, program: None });
        Ok(api::Released { released })
    }
}

/// Where a thread announces its requests, checked: one number is one thread's.
fn check_requests_at(address: Option<u64>, inherit: bool) -> Result<Option<u64>, ApiError> {
    let refused = |reason: &str| {
        Err(ApiError::InvalidParameter { parameter: "requests_at".to_owned(), reason: reason.to_owned() })
    };
    match address {
        Some(0) => refused("0 is no address: leave it out where no requests are announced"),
        Some(address) if !address.is_multiple_of(4) => {
            refused("it must be a multiple of 4: the address of a number of 32 bits")
        }
        Some(_) if inherit => {
            refused("it is the number of one thread's requests: ask for each thread alone, without inherit")
        }
        address => Ok(address),
    }
}

fn check(
    cpu: api::Reservation,
    inherit: Option<bool>,
    revocable: Option<bool>,
    keep_if_refused: Option<bool>,
    keep_over_exec: bool,
) -> Result<Asked, ApiError> {
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
        requests_at: None,
    };
    Ok(Asked { grant, keep_if_refused: keep_if_refused.unwrap_or(false), program: None })
}

//! Requests about forecasts.
//!
//! Everybody sees the forecasts of their own tasks, and of tasks in domains that are theirs; the rules say who may see
//! those of others (`read`). What may not be seen is counted, and is in the sums.

use std::sync::Arc;

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request, Target};
use steward_core::cpu::forecast::{Model, TaskSample};
use steward_kernel::process;

use super::forecast_text::TaskTexts;
use super::making::{Making, PIECE_DOMAINS, PIECE_TASKS};
use crate::cpu::herald::{Outlook, OutlookAsked};
use crate::cpu::reply::forecast;
use crate::daemon::Daemon;
use crate::domains::reading::Group;
use crate::server::Answer;
use crate::server::access::{Access, Handler};
use crate::server::peer::Caller;
use crate::server::pieces::Unfinished;
use crate::server::report::invalid;
use crate::server::watch::{ForecastWatch, Next, NextReply, Watch, Watched};
use crate::turn::clock::{cpu_time_ns, now_ns};

/// Time between two replies to a watcher, in milliseconds, unless said.
const EVERY_MS: u64 = 100;

/// What is asked for.
enum Sought {
    /// Everything.
    Machine,
    /// The cgroup with this id, and all below it.
    Domain(u64),
    /// A process.
    Process(i32),
}

/// What is asked for, found among what was read last.
enum Subject {
    /// Everything.
    Machine,
    /// The cgroup with this index, and all below it.
    Domain(usize),
    /// A process.
    Process(i32),
}

/// How far a reply is.
enum Progress {
    /// It is whole: its text, and when the tasks in it were seen.
    Made(u64, Arc<str>),
    /// More of it is to be made.
    Going(Box<Making>),
    /// Another one is made for the same user, and this one after it; or the tree of cgroups is to be looked at first.
    Behind,
}

/// What a call goes on with in the next turn.
enum Unmade {
    /// It may be asked, and tasks were read for it; `granted` says that all may be seen.
    /// How many pieces of the tree of cgroups were looked at for it is counted, too.
    Asked { request: api::WatchForecasts, granted: bool, pieces: usize },
    /// It is begun.
    Begun(Box<Making>),
}

/// What a caller may see.
pub(crate) struct Sight {
    pub(crate) uid: u32,
    /// Everything that was asked for.
    pub(crate) all: bool,
}

impl Handler for api::ListForecasts {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.list_forecasts(caller, self)
    }
}

impl Handler for api::WatchForecasts {
    const ACCESS: Access = Access::OfTarget;
    const CHANGES_FORECASTS: bool = false;

    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError> {
        daemon.watch_forecasts(caller, self)
    }
}

impl Daemon {
    pub(crate) fn list_forecasts(
        &mut self,
        caller: &Caller,
        request: api::ListForecasts,
    ) -> Result<Answer, ApiError> {
        let api::ListForecasts { domain, pid, domains_only } = request;
        let request = api::WatchForecasts { domain, pid, domains_only, every_ms: None, slowed: None };
        let (granted, were_read) = self.permit_forecasts(caller, &request)?;
        if were_read && self.is_long(&request) {
            return Ok(Answer::Again(Unmade::Asked { request, granted, pieces: 0 }.into()));
        }
        self.answer_with_forecasts(caller, request, granted, 0)
    }

    /// Whether there are so many tasks or domains that what is said of all of them is made in pieces.
    fn is_crowded(&self) -> bool {
        self.has_many_tasks() || self.has_many_domains()
    }

    /// Whether so much is to be told that even the first piece of it is not made in the turn in which tasks were read
    /// for it. What one process or a few domains get is short, however many tasks there are.
    fn is_long(&self, request: &api::WatchForecasts) -> bool {
        let tells_of_tasks = request.domains_only != Some(true);
        request.pid.is_none() && (self.has_many_domains() || tells_of_tasks && self.has_many_tasks())
    }

    fn has_many_tasks(&self) -> bool {
        self.cpu.sampler.herald.tasks().len() > PIECE_TASKS
    }

    fn has_many_domains(&self) -> bool {
        self.cpu.sampler.groups.all().len() > PIECE_DOMAINS
    }

    fn answer_with_forecasts(
        &mut self,
        caller: &Caller,
        request: api::WatchForecasts,
        granted: bool,
        pieces: usize,
    ) -> Result<Answer, ApiError> {
        Ok(match self.forecasts(caller, &request, granted, pieces)? {
            Progress::Made(_, text) => Answer::Text(text),
            Progress::Going(making) => Answer::Again(making.into()),
            Progress::Behind => Answer::Again(Unmade::Asked { request, granted, pieces: pieces + 1 }.into()),
        })
    }

    /// Goes on with an answer about forecasts.
    pub(crate) fn go_on_with_forecasts(
        &mut self,
        caller: &Caller,
        made: Unfinished,
    ) -> Result<Answer, ApiError> {
        match made.into_work().expect("it is about forecasts") {
            Unmade::Asked { request, granted, pieces } => {
                self.answer_with_forecasts(caller, request, granted, pieces)
            }
            Unmade::Begun(making) => Ok(match self.go_on(making) {
                Progress::Made(_, text) => Answer::Text(text),
                Progress::Going(making) => Answer::Again(making.into()),
                Progress::Behind => unreachable!("it was begun"),
            }),
        }
    }

    pub(crate) fn watch_forecasts(
        &mut self,
        caller: &Caller,
        request: api::WatchForecasts,
    ) -> Result<Answer, ApiError> {
        let every_ms = request.every_ms.unwrap_or(EVERY_MS);
        if !api::FORECAST_EVERY_MS.contains(&every_ms) {
            let (least, most) = (api::FORECAST_EVERY_MS.start(), api::FORECAST_EVERY_MS.end());
            let reason = format!("{every_ms} ms is not possible; give {least} to {most}");
            return Err(invalid("every_ms", reason));
        }
        if request.slowed == Some(true) && request.domain.is_none() {
            return Err(invalid("slowed", "it is about those outside of a domain; give a domain"));
        }
        let (granted, _) = self.permit_forecasts(caller, &request)?;
        let about = Watched::Forecasts(ForecastWatch::new(request, granted));
        Ok(Answer::Watch(Watch { about, every_ns: every_ms * 1_000_000 }))
    }

    /// Whether somebody may see all of what they ask for, though it is not theirs; what is theirs is found anew for
    /// each reply. A person is asked only for what is named: in a list of everything, what may not be seen is left out.
    /// Tasks are read unless that was done a moment ago; returns whether they were, too.
    fn permit_forecasts(
        &mut self,
        caller: &Caller,
        request: &api::WatchForecasts,
    ) -> Result<(bool, bool), ApiError> {
        let were_read = self.refresh(now_ns());
        Ok((self.may_see_forecasts(caller, request)?, were_read))
    }

    fn may_see_forecasts(
        &mut self,
        caller: &Caller,
        request: &api::WatchForecasts,
    ) -> Result<bool, ApiError> {
        let sees_all = self.sees_all(caller);
        let now_ns = now_ns();
        let sought = self.look_for(request, now_ns)?;
        let subject = self.subject(&sought, request)?;
        let (owner, about) = match subject {
            Subject::Machine => return Ok(sees_all),
            _ if sees_all => return Ok(true),
            Subject::Domain(index) => {
                let group = &self.cpu.sampler.groups.all()[index];
                if group.belongs_to(caller.uid) {
                    return Ok(false);
                }
                (group.user(), format!("the forecast of the domain {}", group.about.name))
            }
            Subject::Process(pid) => {
                let task = self.cpu.sampler.herald.tasks().iter().find(|task| task.pid == pid);
                let sight = Sight { uid: caller.uid, all: false };
                let groups = &self.cpu.sampler.groups;
                let group = |task: &TaskSample| &groups.all()[groups.index(task.cgroup_id).unwrap_or(0)];
                if task.is_some_and(|task| sight.has_task(task, group(task))) {
                    return Ok(false);
                }
                (task.map(|task| task.uid), format!("the forecast of process {pid}"))
            }
        };
        let about = owner.map_or(about.clone(), |owner| format!("{about} of user {owner}"));
        self.permit(caller, &Request::of_all(Action::Read, Target::Others, about))?;
        Ok(true)
    }

    fn sees_all(&self, caller: &Caller) -> bool {
        let machine = Request::of_all(Action::Read, Target::Others, "the forecasts of other users' tasks");
        self.settings.policy.permit(&caller.identity(), &machine).is_ok()
    }

    /// What is asked for. Reads again what it would be missing from: it may have come after the last look.
    fn look_for(&mut self, request: &api::WatchForecasts, now_ns: u64) -> Result<Sought, ApiError> {
        match (&request.domain, request.pid) {
            (Some(_), Some(_)) => Err(invalid("pid", "give a domain or a process, not both")),
            (None, None) => Ok(Sought::Machine),
            (Some(domain), None) => {
                let cgroup = self.domains.resolve(domain)?;
                self.cpu.sampler.groups.ensure(&cgroup, &self.domains, now_ns);
                Ok(Sought::Domain(cgroup.id))
            }
            (None, Some(pid)) => {
                if !self.has_process(pid) && process::stat(pid, &self.options.roots).is_ok() {
                    self.sample(now_ns);
                }
                Ok(Sought::Process(pid))
            }
        }
    }

    /// The same among what was read last.
    fn subject(&self, sought: &Sought, request: &api::WatchForecasts) -> Result<Subject, ApiError> {
        match *sought {
            Sought::Machine => Ok(Subject::Machine),
            Sought::Domain(cgroup_id) => {
                let gone = || ApiError::NoSuchDomain { domain: request.domain.clone().unwrap_or_default() };
                Ok(Subject::Domain(self.cpu.sampler.groups.index(cgroup_id).ok_or_else(gone)?))
            }
            Sought::Process(pid) if self.has_process(pid) => Ok(Subject::Process(pid)),
            Sought::Process(pid) => Err(ApiError::NoSuchTask { pid }),
        }
    }

    fn has_process(&self, pid: i32) -> bool {
        let tasks = self.cpu.sampler.herald.tasks();
        // The first of its threads has the same number, unless it has ended before the others.
        tasks.binary_search_by_key(&pid, |task| task.tid).is_ok_and(|place| tasks[place].pid == pid)
            || tasks.iter().any(|task| task.pid == pid)
    }

    /// The next reply to somebody who watches; none when all that is known was told before.
    pub(crate) fn forecasts_of_watch(&mut self, caller: &Caller, watch: &mut ForecastWatch) -> NextReply {
        let mut pieces = 0;
        let progress = match watch.made.take().and_then(Unfinished::into_work::<Unmade>) {
            Some(Unmade::Begun(making)) => self.go_on(making),
            // Read for it already: whoever comes to his turn seldom would have them read each time.
            Some(Unmade::Asked { pieces: looked, .. }) => {
                pieces = looked;
                self.forecasts(caller, &watch.request, watch.granted, looked)?
            }
            None => {
                if self.sample_if_old(now_ns()) && self.is_long(&watch.request) {
                    watch.made = Some(Unmade::asked_by(watch, 0).into());
                    return Ok(Next::Again);
                }
                if self.cpu.sampler.herald.at_ns() == Some(watch.told_at_ns) {
                    return Ok(Next::Nothing);
                }
                self.forecasts(caller, &watch.request, watch.granted, 0)?
            }
        };
        Ok(match progress {
            Progress::Made(at_ns, text) => {
                watch.told_at_ns = at_ns;
                Next::Reply(text)
            }
            Progress::Going(making) => {
                watch.made = Some(making.into());
                Next::Again
            }
            Progress::Behind => {
                watch.made = Some(Unmade::asked_by(watch, pieces + 1).into());
                Next::Again
            }
        })
    }

    /// The reply from what was read last, or the first piece of it. `granted` says that the caller may see all of what
    /// is asked for, and `pieces` counts how often this was called for it. Those who ask the same and may see the same
    /// are given the same text.
    fn forecasts(
        &mut self,
        caller: &Caller,
        request: &api::WatchForecasts,
        granted: bool,
        pieces: usize,
    ) -> Result<Progress, ApiError> {
        if !self.cpu.sampler.groups.look(&self.domains, pieces) {
            return Ok(Progress::Behind);
        }
        let now_ns = now_ns();
        let sought = self.look_for(request, now_ns)?;
        let outlook = self.outlook_of_last_read(now_ns);
        let asked = OutlookAsked {
            request: api::WatchForecasts { every_ms: None, ..request.clone() },
            only_of: (!granted).then_some(caller.uid),
        };
        let sees_all = request.slowed == Some(true) && self.sees_all(caller);
        // Who may see what is asked for, but not all that is outside of it, is given a text of one's own.
        let is_shared = request.slowed != Some(true) || granted == sees_all;
        if let Some(text) = self.cpu.sampler.text(&asked).filter(|_| is_shared) {
            return Ok(Progress::Made(outlook.report.at_ns, text));
        }
        let leave = self.is_crowded().then(|| self.cpu.sampler.may_make(caller.payer));
        if leave == Some(None) {
            return Ok(Progress::Behind);
        }
        // Only now: places among groups and tasks are those of the outlook.
        let subject = self.subject(&sought, request)?;
        let sight = Sight { uid: caller.uid, all: granted };
        let begun_ns = cpu_time_ns();
        let (mut reply, places, domains) =
            self.reported(&outlook, &subject, &sight, request.domains_only == Some(true));
        if let (Subject::Domain(domain), Some(true)) = (&subject, request.slowed) {
            let sight = Sight { uid: caller.uid, all: sees_all };
            self.add_slowed(&mut reply, &outlook, *domain, &sight);
        }
        let making = Box::new(Making {
            asked: is_shared.then_some(asked),
            outlook,
            groups: self.cpu.sampler.groups.shared(),
            domains,
            places,
            done: 0,
            texts: TaskTexts::begin(&reply),
            _leave: leave.flatten(),
        });
        self.cpu.sampler.note_reply(cpu_time_ns().saturating_sub(begun_ns));
        Ok(self.go_on(making))
    }

    /// Makes one piece more of a reply.
    fn go_on(&mut self, mut making: Box<Making>) -> Progress {
        let begun_ns = cpu_time_ns();
        let is_whole = making.go_on();
        let progress = if is_whole {
            let Making { asked, outlook, texts, .. } = *making;
            let text: Arc<str> = texts.into_reply().into();
            if let Some(asked) = asked {
                self.cpu.sampler.keep_text(&outlook, asked, &text);
            }
            Progress::Made(outlook.report.at_ns, text)
        } else {
            Progress::Going(making)
        };
        self.cpu.sampler.note_reply(cpu_time_ns().saturating_sub(begun_ns));
        progress
    }

    /// The reply without its tasks and domains, and the places of these.
    fn reported(
        &self,
        outlook: &Outlook,
        subject: &Subject,
        sight: &Sight,
        domains_only: bool,
    ) -> (api::Forecasts, Vec<u32>, Vec<u32>) {
        let report = &outlook.report;
        let samples = report.samples();
        let meant: Vec<usize> = match subject {
            Subject::Machine => (0..samples.len()).collect(),
            Subject::Domain(domain) => {
                let is_member = report.members(*domain);
                (0..samples.len()).filter(|place| is_member(*place)).collect()
            }
            Subject::Process(pid) => {
                let places = samples.iter().enumerate().filter(|(_, sample)| sample.pid == *pid);
                places.map(|(place, _)| place).collect()
            }
        };
        let mut hidden = 0;
        let mut shown = Vec::new();
        let groups = self.cpu.sampler.groups.all();
        for &place in &meant {
            if !sight.has_task(&samples[place], &groups[report.home(place).unwrap_or(0)]) {
                hidden += 1;
            } else if !domains_only {
                shown.push(place as u32);
            }
        }
        let others = match subject {
            Subject::Machine => report.machine,
            _ => report.sum(|place| meant.binary_search(&place).is_err()),
        };
        let reply = api::Forecasts {
            at_ns: report.at_ns,
            window_ns: report.window_ns,
            model: match outlook.model {
                Model::Steward => "steward".to_owned(),
                Model::ProportionalShare => "proportional-share".to_owned(),
            },
            source: self.cpu.sampler.source_name().to_owned(),
            cpus: outlook.cpus,
            hidden,
            machine: forecast(&report.machine),
            others: forecast(&others),
            domains: Vec::new(),
            slowed: Vec::new(),
            tasks: Vec::new(),
        };
        (reply, shown, self.domains_meant(subject, sight))
    }

    /// The places of the domains that are asked for and may be seen.
    fn domains_meant(&self, subject: &Subject, sight: &Sight) -> Vec<u32> {
        let groups = self.cpu.sampler.groups.all();
        let mut is_meant = vec![matches!(subject, Subject::Machine); groups.len()];
        if let Subject::Domain(domain) = subject {
            // Parents are before their children.
            for index in *domain..groups.len() {
                is_meant[index] =
                    index == *domain || groups[index].parent.is_some_and(|above| is_meant[above]);
            }
        }
        let is_shown = |index: &usize| {
            is_meant[*index] && groups[*index].about.is_domain && sight.has_domain(&groups[*index])
        };
        (0..groups.len()).filter(is_shown).map(|index| index as u32).collect()
    }
}

impl Unmade {
    fn asked_by(watch: &ForecastWatch, pieces: usize) -> Self {
        Unmade::Asked { request: watch.request.clone(), granted: watch.granted, pieces }
    }
}

impl From<Unmade> for Unfinished {
    fn from(unmade: Unmade) -> Self {
        match unmade {
            Unmade::Asked { .. } => Unfinished::new(unmade, 0, false),
            Unmade::Begun(making) => making.into(),
        }
    }
}

impl From<Box<Making>> for Unfinished {
    fn from(making: Box<Making>) -> Self {
        let held_bytes = making.held_bytes();
        Unfinished::new(Unmade::Begun(making), held_bytes, true)
    }
}

impl Sight {
    pub(crate) fn has_task(&self, task: &TaskSample, group: &Group) -> bool {
        self.all || task.uid == self.uid || self.has_domain(group)
    }

    pub(crate) fn has_domain(&self, group: &Group) -> bool {
        self.all || group.belongs_to(self.uid)
    }
}

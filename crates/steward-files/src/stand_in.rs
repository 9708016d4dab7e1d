//! A daemon in memory for tests: it keeps domains, and refuses as the real one does, only simpler.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use libsteward::ApiError;
use libsteward::api::{self, Domain, Method};
use libsteward::wire::Call;
use serde_json::{Map, Value as Json};

use crate::caller::{Asker, Credentials};
use crate::requests::Backend;

/// The user that may reserve.
pub(crate) const OWNER: u32 = 0;

/// The domains by name, and what was asked last.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) domains: BTreeMap<String, (Domain, Vec<i32>)>,
    /// How many calls came that change something.
    pub(crate) changes: usize,
    /// Where the caller's process is.
    pub(crate) own: String,
    /// What each domain may use of the memory; who is not the owner is not told.
    pub(crate) available: Option<u64>,
}

/// A handle on it, and how many calls have come, answered or not.
#[derive(Clone, Default)]
pub(crate) struct StandIn(Arc<Mutex<State>>, Arc<AtomicUsize>);

impl StandIn {
    /// The root and a domain of somebody else, `system.slice`.
    pub(crate) fn new() -> Self {
        let stand_in = StandIn::default();
        for (name, parent) in [("/", None), ("system.slice", Some("/"))] {
            stand_in.state().add(name, parent, false);
        }
        stand_in.state().own = "/".to_owned();
        stand_in
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panicked with it")
    }

    /// How many calls have come.
    pub(crate) fn calls(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

impl State {
    fn add(&mut self, name: &str, parent: Option<&str>, made: bool) {
        let domain = Domain {
            name: name.to_owned(),
            path: format!("/{name}"),
            parent: parent.map(str::to_owned),
            made,
            weight: 100,
            priority: 4,
            cpu_reservable: 0.95,
            disk_reservable: 1.0,
            ..Domain::default()
        };
        self.domains.insert(name.to_owned(), (domain, Vec::new()));
    }

    /// A domain by its name, or by the path of its cgroup.
    fn find(&mut self, name: &str) -> Result<&mut (Domain, Vec<i32>), ApiError> {
        let name = name.strip_prefix("steward.").unwrap_or(name);
        self.domains.get_mut(name).ok_or_else(|| ApiError::NoSuchDomain { domain: name.to_owned() })
    }

    fn shown(&mut self, name: &str) -> Result<api::DomainShown, ApiError> {
        let cpu_sum = self.children_of(name).filter_map(|domain| domain.cpu).sum();
        let (domain, processes) = self.find(name)?.clone();
        Ok(api::DomainShown { domain: Domain { cpu_sum, ..domain }, processes })
    }

    fn children_of(&self, name: &str) -> impl Iterator<Item = &Domain> {
        let all = self.domains.values().map(|(domain, _)| domain);
        all.filter(move |domain| domain.parent.as_deref() == Some(name))
    }

    /// One task in each domain.
    fn forecasts(&mut self, request: &api::ListForecasts) -> Result<api::Forecasts, ApiError> {
        let only = request.domain.as_ref().map(|name| self.find(name).map(|(domain, _)| domain.name.clone()));
        let only = only.transpose()?;
        let names: Vec<&String> =
            self.domains.keys().filter(|name| only.as_ref().is_none_or(|only| only == *name)).collect();
        let domain = |name: &&String| api::DomainForecast { name: (*name).clone(), ..Default::default() };
        let task = |(index, name): (usize, &&String)| api::TaskForecast {
            tid: index as i32 + 1,
            domain: (*name).clone(),
            ..Default::default()
        };
        Ok(api::Forecasts {
            domains: names.iter().map(domain).collect(),
            tasks: names.iter().enumerate().map(task).collect(),
            ..api::Forecasts::default()
        })
    }

    fn create(&mut self, request: &api::CreateDomain) -> Result<api::DomainState, ApiError> {
        if self.domains.contains_key(&request.domain) {
            return Err(ApiError::DomainExists { domain: request.domain.clone() });
        }
        let parent = request.domain.rsplit_once('/').map_or("/", |(parent, _)| parent);
        self.find(parent)?;
        self.add(&request.domain, Some(parent), true);
        Ok(api::DomainState::default())
    }

    fn set(&mut self, request: &api::SetDomain) -> Result<api::DomainState, ApiError> {
        let level = self.find(&request.domain)?.0.parent.clone().unwrap_or_default();
        let siblings = self.children_of(&level).filter(|domain| domain.name != request.domain);
        let reserved: f64 = siblings.filter_map(|domain| domain.cpu).sum();
        let (settings, limit) = (&request.settings, 0.95);
        if let Some(asked) = settings.cpu.filter(|asked| reserved + asked > limit) {
            let reason = format!("{reserved} is reserved, {asked} was asked, {limit} is all");
            return Err(ApiError::Overcommitted { resource: "cpu".into(), reason, asked, reserved, limit });
        }
        let domain = &mut self.find(&request.domain)?.0;
        for name in &settings.reset {
            match name.as_str() {
                "cpu" => domain.cpu = None,
                "io" => domain.io = None,
                "disk" => domain.disk = None,
                "io_max_bytes" => domain.io_max_bytes = None,
                "io_max_requests" => domain.io_max_requests = None,
                "memory_min" => domain.memory_min = None,
                "protect" => domain.protect = None,
                _ => domain.weight = 100,
            }
        }
        domain.cpu = settings.cpu.or(domain.cpu);
        domain.io = settings.io.or(domain.io);
        domain.disk = settings.disk.or(domain.disk);
        domain.io_max_bytes = settings.io_max_bytes.map(|bytes| bytes as u64).or(domain.io_max_bytes);
        domain.io_max_requests =
            settings.io_max_requests.map(|number| number as u64).or(domain.io_max_requests);
        domain.memory_min = settings.memory_min.map(|bytes| bytes as u64).or(domain.memory_min);
        domain.protect = settings.protect.map(|period_ns| period_ns as u64).or(domain.protect);
        domain.weight = settings.weight.map_or(domain.weight, |weight| weight as u32);
        domain.priority = settings.priority.map_or(domain.priority, |priority| priority as u8);
        Ok(api::DomainState::default())
    }

    fn answer(&mut self, caller: &Credentials, call: Call) -> Result<Map<String, Json>, ApiError> {
        let input = Json::Object(call.parameters);
        let method = call.method.as_str();
        match method {
            api::ShowDomain::NAME => {
                let name = read::<api::ShowDomain>(input)?.domain.unwrap_or_else(|| self.own.clone());
                let mut shown = self.shown(&name)?;
                let available = self.available.filter(|_| caller.uid == OWNER);
                let memory = api::DomainMemory { available, ..api::DomainMemory::default() };
                shown.domain.memory = self.available.map(|_| memory);
                return Ok(write(&shown));
            }
            api::WatchAvailability::NAME if caller.uid == OWNER => return Err(ApiError::ExpectedMore),
            api::ListDomains::NAME => {
                let names: Vec<String> = self.domains.keys().cloned().collect();
                let domains = names.iter().filter_map(|name| Some(self.shown(name).ok()?.domain)).collect();
                let best_effort = api::BestEffort { order: "virtual-time".into(), ..Default::default() };
                return Ok(write(&api::DomainList { domains, best_effort }));
            }
            api::ListForecasts::NAME => return Ok(write(&self.forecasts(&read(input)?)?)),
            _ => self.changes += 1,
        }
        if caller.uid != OWNER {
            let reason = format!("user {} may not", caller.uid);
            return Err(ApiError::PermissionDenied { reason });
        }
        match method {
            api::CreateDomain::NAME => Ok(write(&self.create(&read(input)?)?)),
            api::SetDomain::NAME => Ok(write(&self.set(&read(input)?)?)),
            api::RemoveDomain::NAME => {
                let name = read::<api::RemoveDomain>(input)?.domain;
                self.domains.remove(&name).ok_or(ApiError::NoSuchDomain { domain: name })?;
                Ok(write(&api::DomainRemoved::default()))
            }
            api::MoveProcess::NAME => {
                let request: api::MoveProcess = read(input)?;
                let pid = request.pid.unwrap_or(caller.pid);
                self.find(&request.domain)?.1.push(pid);
                Ok(write(&api::Moved::default()))
            }
            _ => Err(ApiError::MethodNotFound { method: method.to_owned() }),
        }
    }
}

impl Backend for StandIn {
    fn call(&self, caller: Credentials, call: Call) -> Result<Map<String, Json>, ApiError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.state().answer(&caller, call)
    }
}

fn read<T: serde::de::DeserializeOwned>(input: Json) -> Result<T, ApiError> {
    serde_json::from_value(input).map_err(|error| ApiError::InvalidParameter {
        parameter: "parameters".into(),
        reason: error.to_string(),
    })
}

fn write<T: serde::Serialize>(output: &T) -> Map<String, Json> {
    match serde_json::to_value(output) {
        Ok(Json::Object(map)) => map,
        _ => unreachable!("replies are structs"),
    }
}

/// This thread, as that user.
pub(crate) fn asker(uid: u32) -> Asker {
    Asker { tid: rustix::thread::gettid().as_raw_nonzero().get(), uid, gid: uid, can_wait: false }
}

//! What the control files ask the daemon: the calls of the interface `io.steward`, made with the rights of whoever
//! touched the file. The file system decides nothing itself.

use libsteward::ApiError;
use libsteward::api::{self, Domain, DomainShown, Forecasts, Method};
use libsteward::wire::Call;
use rustix::io::Errno;
use serde_json::{Map, Value as Json};

use crate::caller::{Asker, Credentials};
use crate::errno::Failure;
use crate::value::Value;

/// Whoever answers calls: the daemon's loop, or a stand-in in tests.
pub trait Backend: Send + Sync + 'static {
    /// Answers one call, made by these credentials. May wait.
    ///
    /// # Errors
    /// What the daemon answers instead of a reply.
    fn call(&self, caller: Credentials, call: Call) -> Result<Map<String, Json>, ApiError>;
}

/// Calls made for one asker.
pub(crate) struct Requests<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) asker: Asker,
}

/// What the API calls the root of all domains, which has no name in the tree.
const ROOT: &str = "/";

/// The API's name of a domain in the tree.
fn api_name(name: &str) -> String {
    if name.is_empty() { ROOT.to_owned() } else { name.to_owned() }
}

/// The tree's name of a domain.
fn tree_name(name: String) -> String {
    if name == ROOT { String::new() } else { name }
}

impl Requests<'_> {
    fn call<M: Method>(&self, method: &M) -> Result<M::Reply, Failure> {
        let Ok(Json::Object(parameters)) = serde_json::to_value(method) else {
            unreachable!("parameters are structs with named fields")
        };
        let caller = Credentials::of(self.asker);
        let call = Call { method: M::NAME.to_owned(), parameters, ..Call::default() };
        let reply = self.backend.call(caller, call)?;
        serde_json::from_value(Json::Object(reply)).map_err(|error| {
            Failure::new(Errno::IO, format!("stewardd answered {} with something else: {error}", M::NAME))
        })
    }

    /// A domain and the processes in it.
    pub(crate) fn show(&self, name: &str) -> Result<DomainShown, Failure> {
        self.call(&api::ShowDomain { domain: Some(api_name(name)), pid: None })
    }

    /// How much memory a domain may use now, in bytes; `None` where nobody counts it.
    pub(crate) fn available(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(memory) = self.show(name)?.domain.memory else { return Ok(None) };
        memory.available.map_or_else(|| Err(self.refusal_of_availability(name)), |bytes| Ok(Some(bytes)))
    }

    /// Why that is not told. The daemon is asked to tell, so that it says which rule is against it, and logs that.
    fn refusal_of_availability(&self, name: &str) -> Failure {
        match self.call(&api::WatchAvailability { domain: Some(api_name(name)) }) {
            Err(refusal) if refusal.errno == Errno::ACCESS => refusal,
            // Since a moment ago it would be told.
            _ => Failure::new(Errno::ACCESS, "it was not to be told how much memory this domain may use"),
        }
    }

    /// What a domain is called that may also be reached by another name.
    pub(crate) fn name_of(&self, name: &str) -> Result<String, Failure> {
        Ok(tree_name(self.show(name)?.domain.name))
    }

    /// The domain that pays for this one; `None` for the root.
    pub(crate) fn parent(&self, domain: &Domain) -> Result<Option<Domain>, Failure> {
        let Some(parent) = &domain.parent else { return Ok(None) };
        Ok(Some(self.call(&api::ShowDomain { domain: Some(parent.clone()), pid: None })?.domain))
    }

    /// The name of the asker's own domain.
    pub(crate) fn own(&self) -> Result<String, Failure> {
        Ok(tree_name(self.call(&api::ShowDomain::default())?.domain.name))
    }

    /// The last parts of the names of a domain's children.
    pub(crate) fn children(&self, name: &str) -> Result<Vec<String>, Failure> {
        let all = self.call(&api::ListDomains {})?.domains;
        if !all.iter().any(|domain| domain.name == api_name(name)) {
            return Err(ApiError::NoSuchDomain { domain: name.to_owned() }.into());
        }
        let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
        let below = all.iter().filter_map(|domain| domain.name.strip_prefix(&prefix));
        Ok(below.filter(|rest| !rest.is_empty() && !rest.contains('/')).map(str::to_owned).collect())
    }

    /// The order among domains that is in force.
    pub(crate) fn order(&self) -> Result<String, Failure> {
        Ok(self.call(&api::ListDomains {})?.best_effort.order)
    }

    /// The forecasts of all tasks, or of a domain's.
    pub(crate) fn forecasts(&self, domain: Option<&str>) -> Result<Forecasts, Failure> {
        self.call(&api::ListForecasts { domain: domain.map(api_name), ..api::ListForecasts::default() })
    }

    /// Carries out what was written.
    pub(crate) fn change(&self, name: &str, value: Value) -> Result<(), Failure> {
        let mut settings = api::DomainSettings::default();
        let reset = match value {
            Value::Member(pid) => {
                let moving = api::MoveProcess { pid: Some(pid), domain: api_name(name) };
                return self.call(&moving).map(drop);
            }
            Value::Cpu(cpu) => {
                settings.cpu = cpu;
                cpu.is_none().then_some("cpu")
            }
            Value::Weight(weight) => {
                settings.weight = weight.map(i64::from);
                weight.is_none().then_some("weight")
            }
            Value::Priority(priority) => {
                settings.priority = Some(i64::from(priority));
                None
            }
            Value::Io(disk) => {
                settings.disk = disk;
                disk.is_none().then_some("disk")
            }
            Value::IoClass(class) => {
                settings.io = class;
                class.is_none().then_some("io")
            }
            Value::IoMax(limit) => {
                let asked = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
                settings.io_max_bytes = asked(limit.bytes_per_second);
                settings.io_max_requests = asked(limit.requests_per_second);
                // The file has both: what is not written is not limited any more.
                settings.reset = ["io_max_bytes", "io_max_requests"].map(str::to_owned).to_vec();
                None
            }
            Value::Memory(bytes) => {
                settings.memory_min = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                bytes.is_none().then_some("memory_min")
            }
            Value::MemoryMax(bytes) => {
                settings.memory_max = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                bytes.is_none().then_some("memory_max")
            }
            Value::Protect(period_ns) => {
                settings.protect = period_ns.and_then(|period_ns| i64::try_from(period_ns).ok());
                period_ns.is_none().then_some("protect")
            }
        };
        settings.reset.extend(reset.map(str::to_owned));
        let change = api::SetDomain { domain: api_name(name), settings, ..api::SetDomain::default() };
        self.call(&change).map(drop)
    }

    /// Makes a domain.
    pub(crate) fn create(&self, name: &str) -> Result<(), Failure> {
        let new = api::CreateDomain { domain: name.to_owned(), ..Default::default() };
        self.call(&new).map(drop)
    }

    /// Removes a domain in which nothing is any more.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Failure> {
        let shown = self.show(name)?;
        if !shown.domain.made {
            let sentence = format!("Steward did not make {name}; whoever did removes it");
            return Err(Failure::new(Errno::PERM, sentence));
        }
        if !shown.processes.is_empty() || !self.children(name)?.is_empty() {
            let sentence = format!(
                "there are processes or domains in {name}; move or remove them first, or use steward domain remove {name}"
            );
            return Err(Failure::new(Errno::NOTEMPTY, sentence));
        }
        self.call(&api::RemoveDomain { domain: name.to_owned(), kill: None }).map(drop)
    }
}

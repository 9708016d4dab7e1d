//! What clients may ask, and who may ask it.
//!
//! Every request is decided by who the kernel says the caller is ([`super::permission`]), before anything is changed;
//! each states who may make it ([`super::access`]). What each room answers is beside that room:
//! [`crate::cpu::requests`], `crate::memory::requests`, [`crate::domains::requests`], [`super::requests`].

use libsteward::ApiError;
use libsteward::api::{self, Method};
use libsteward::wire::Call;
use serde_json::{Map, Value};
use steward_core::authority::{Request, Target};

use crate::daemon::Daemon;
use crate::domains::requests::listing::Listing;
use crate::domains::requests::removing::Removing;
use crate::memory::requests::set::Setting;
use crate::server::access::{Access, Handler};
use crate::server::history::Telling;
use crate::server::peer::Caller;
use crate::server::pieces::{Put, Unfinished};
use crate::server::service::{GetInfo, GetInterfaceDescription};
use crate::server::watch::{NextReply, Watch, Watched};
use crate::server::{Answer, report};
use crate::turn::clock::now_ns;

impl Daemon {
    /// Answers one call, or makes more of an answer that was begun: who may have it was decided then.
    pub fn answer(&mut self, caller: &Caller, put: impl Into<Put>) -> Answer {
        let Put { call, made } = put.into();
        let outcome = match made {
            None => handle(self, caller, call),
            Some(made) => self.go_on_with(caller, made),
        };
        let answer = match outcome {
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
        // What polkit said was about this call and no other, for as long as it is answered.
        if !matches!(answer, Answer::Again(_) | Answer::Later(_)) {
            self.polkit.forget(caller.id);
        }
        answer
    }

    /// Makes more of an answer that was begun.
    fn go_on_with(&mut self, caller: &Caller, made: Unfinished) -> Result<Answer, ApiError> {
        if made.is_of::<Box<Listing>>() {
            let listing = made.into_work().expect("it is a list of domains");
            return self.go_on_listing(caller, listing);
        }
        if made.is_of::<Box<Removing>>() {
            let removing = made.into_work().expect("it is a removal");
            return self.go_on_removing(caller, removing);
        }
        if made.is_of::<Box<Setting>>() {
            let setting = made.into_work().expect("it is about the memory of a program");
            return self.go_on_setting(caller, setting);
        }
        if made.is_of::<Telling>() {
            let telling = made.into_work().expect("it is the decisions");
            return self.go_on_telling(caller, telling);
        }
        self.go_on_with_forecasts(caller, made)
    }

    /// The next reply to somebody who watches; none when all that is known was told before.
    pub(crate) fn next_reply(&mut self, caller: &Caller, watch: &mut Watch) -> NextReply {
        match &mut watch.about {
            Watched::Forecasts(watch) => self.forecasts_of_watch(caller, watch),
            Watched::Availability(watch) => self.availability_of_watch(caller, watch),
        }
    }

    /// A reply that is the same for all who may have it, made anew unless that was costly and is a moment ago.
    pub(crate) fn shared<M: Method>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<M::Reply, ApiError>,
    ) -> Result<Answer, ApiError> {
        let begun_ns = now_ns();
        if let Some(text) = self.texts.recent(M::NAME, begun_ns) {
            return Ok(Answer::Text(text));
        }
        let text = report::json(&make(self)?);
        self.texts.keep(M::NAME, &text, begun_ns, now_ns());
        Ok(Answer::Text(text))
    }
}

/// Puts a request to its handler, if the caller may make it.
fn put<M: Handler>(
    daemon: &mut Daemon,
    caller: &Caller,
    parameters: Map<String, Value>,
) -> Result<Answer, ApiError> {
    if let Access::All(action, about) = M::ACCESS {
        daemon.permit(caller, &Request::of_all(action, Target::Others, about))?;
    }
    let answer = parse::<M>(parameters).and_then(|request| request.handle(daemon, caller));
    if M::CHANGES_FORECASTS {
        daemon.texts.forget();
        if answer.is_ok() {
            daemon.cpu.sampler.invalidate();
        }
    }
    answer
}

fn parse<M: Method>(parameters: Map<String, Value>) -> Result<M, ApiError> {
    serde_json::from_value(Value::Object(parameters)).map_err(|error| ApiError::InvalidParameter {
        parameter: "parameters".to_owned(),
        reason: format!("{error}; see the description of {} (GetInterfaceDescription)", M::NAME),
    })
}

/// Makes the list of all requests and what puts each to its handler of one and the same enumeration.
macro_rules! handlers {
    ($($request:ty),+ $(,)?) => {
        /// Every method that is answered, with who may call it.
        pub const METHODS: &[(&str, Access)] =
            &[$((<$request as Method>::NAME, <$request as Handler>::ACCESS)),+];

        fn handle(daemon: &mut Daemon, caller: &Caller, call: Call) -> Result<Answer, ApiError> {
            match call.method.as_str() {
                $(<$request as Method>::NAME => put::<$request>(daemon, caller, call.parameters),)+
                _ => Err(ApiError::MethodNotFound { method: call.method }),
            }
        }
    };
}

handlers![
    api::Run,
    api::Set,
    api::Release,
    api::Status,
    api::ListSpecs,
    api::Explain,
    api::Reload,
    api::ListEvents,
    api::Monitor,
    api::ListDomains,
    api::ShowDomain,
    api::CreateDomain,
    api::SetDomain,
    api::RemoveDomain,
    api::MoveProcess,
    api::SetMemory,
    api::WatchDomains,
    api::Complain,
    api::ListForecasts,
    api::WatchForecasts,
    api::SuspendDomain,
    api::LowerDomain,
    api::AuditDomain,
    api::WatchAvailability,
    api::ExplainDomain,
    GetInfo,
    GetInterfaceDescription,
];

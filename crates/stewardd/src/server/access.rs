//! What each request's handler states: who may make the request, and what it changes.

use libsteward::ApiError;
use libsteward::api::Method;
use serde::Serialize;
use steward_core::authority::Action;

use super::peer::Caller;
use super::{Answer, report};
use crate::daemon::Daemon;

/// Who may make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever connects; why that does no harm.
    Open(&'static str),
    /// Whoever may do this about what is others', which is what the words name. It is asked before the request is
    /// looked at.
    All(Action, &'static str),
    /// That depends on what it is about: its handler asks, before it changes or says anything.
    OfTarget,
}

/// A request that the daemon answers. Neither constant has a default: whoever adds a request says both.
pub trait Handler: Method {
    /// Who may make it.
    const ACCESS: Access;
    /// Whether forecasts are others after it.
    const CHANGES_FORECASTS: bool;

    /// Answers it.
    ///
    /// # Errors
    /// What the caller is told instead.
    fn handle(self, daemon: &mut Daemon, caller: &Caller) -> Result<Answer, ApiError>;
}

/// What is promised, in the words of a refusal.
pub(crate) const PROMISES: &str = "what is promised to whom";
/// What the rules call what is promised, whoever it is promised to.
pub(crate) const PROMISED: Access = Access::All(Action::Read, PROMISES);

/// One reply.
pub(crate) fn reply<T: Serialize>(outcome: Result<T, ApiError>) -> Result<Answer, ApiError> {
    outcome.map(|reply| Answer::Reply(report::parameters(&reply)))
}

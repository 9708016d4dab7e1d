//! May this caller have that? Asks the rules, and polkit where they say so.

use libsteward::ApiError;
use steward_core::authority::{self, Identity, Refusal, Request, Verdict};
use steward_kernel::process::sessions;

use crate::daemon::Daemon;
use crate::server::peer::Caller;
use crate::turn::clock::now_ns;

impl Daemon {
    /// Decides a request by the rules, and asks polkit where they say so. While its answer is not there this refuses
    /// too, and the whole call is put again later (`Answer::Wait`): so every permission that a call needs is asked for
    /// before it changes anything.
    ///
    /// # Errors
    /// [`ApiError::PermissionDenied`] with the rule.
    pub(crate) fn permit(&mut self, caller: &Caller, request: &Request) -> Result<(), ApiError> {
        match authority::decide(&self.settings.policy, &self.identity(caller, request), request) {
            Verdict::Allow { .. } => Ok(()),
            Verdict::Deny(refusal) => Err(denied(refusal)),
            Verdict::Ask { refusal, .. } if !caller.can_wait => Err(denied(
                refusal.because("; a person is asked only for a change, or for a call through the socket"),
            )),
            Verdict::Ask { polkit_action, refusal, .. } => {
                match self.polkit.ask(caller, polkit_action, &request.words(), now_ns()) {
                    Some(Ok(())) => {
                        let (uid, pid, words) = (caller.uid, caller.pid, request.words());
                        tracing::info!(decision = "authorized", uid, pid, "polkit lets user {uid} {words}");
                        Ok(())
                    }
                    Some(Err(why)) => Err(denied(refusal.because(&format!(", and {why}")))),
                    None => Err(denied(refusal.because(", and its answer is not there yet"))),
                }
            }
        }
    }
}

impl Daemon {
    /// Whether the rules allow a request without anybody being asked.
    pub(crate) fn is_permitted(&self, caller: &Caller, request: &Request) -> bool {
        let identity = self.identity(caller, request);
        matches!(authority::decide(&self.settings.policy, &identity, request), Verdict::Allow { .. })
    }

    fn identity(&self, caller: &Caller, request: &Request) -> Identity {
        let counts = self.settings.policy.matrix.asks_for_session(request.action);
        let active_session = counts && sessions::has_active_local(caller.uid, &self.options.roots);
        Identity { active_session, ..caller.identity() }
    }
}

fn denied(refusal: Refusal) -> ApiError {
    ApiError::PermissionDenied { reason: refusal.to_string() }
}

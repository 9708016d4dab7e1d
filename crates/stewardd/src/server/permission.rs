//! May this caller have that? Asks the rules, and polkit where they say so.

use libsteward::ApiError;
use steward_core::authority::{self, Action, Identity, Refusal, Request, Target, Verdict};
use steward_kernel::process::sessions;

use crate::daemon::Daemon;
use crate::server::access::PROMISES;
use crate::server::peer::Caller;
use crate::server::sight::Sight;
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
    /// What of decisions the caller may see: all, or what is about their own.
    ///
    /// # Errors
    /// [`ApiError::PermissionDenied`] with the rule when that is nothing, or while polkit is asked.
    pub(crate) fn permit_decisions(&mut self, caller: &Caller) -> Result<Sight, ApiError> {
        let mut granted = Vec::new();
        let mut refused = None;
        // What is others' first: that refusal is told.
        for target in [Target::Others, Target::BelowOwn, Target::Own] {
            match self.permit(caller, &Request::of_all(Action::Read, target, PROMISES)) {
                Ok(()) => granted.push(target),
                Err(denied) if self.polkit.is_waiting(caller.id) => return Err(denied),
                Err(denied) => refused = refused.or(Some(denied)),
            }
        }
        match (Sight::of(caller.uid, |target| granted.contains(&target)), refused) {
            (None, Some(denied)) => Err(denied),
            (sight, _) => Ok(sight.unwrap_or(Sight::ALL)),
        }
    }

    /// What somebody may go on to see who listens already, by the rules as they are now. What polkit has allowed stays
    /// so as long as the rules ask it.
    ///
    /// # Errors
    /// [`ApiError::PermissionDenied`] with the rule when that is nothing any more.
    pub(crate) fn permit_listening(&self, caller: &Caller, until_now: Sight) -> Result<Sight, ApiError> {
        let request = |target| Request::of_all(Action::Read, target, PROMISES);
        let verdict = |target| {
            let request = request(target);
            authority::decide(&self.settings.policy, &self.identity(caller, &request), &request)
        };
        let may = |target| match verdict(target) {
            Verdict::Allow { .. } => true,
            Verdict::Ask { .. } => until_now.has(target),
            Verdict::Deny(_) => false,
        };
        match (Sight::of(caller.uid, may), verdict(Target::Others)) {
            (Some(sight), _) => Ok(sight),
            (None, Verdict::Deny(refusal) | Verdict::Ask { refusal, .. }) => Err(denied(refusal)),
            (None, Verdict::Allow { .. }) => unreachable!("what is allowed is seen"),
        }
    }

    /// What the rules let the caller see of decisions without anybody being asked; `None` when that is nothing.
    pub(crate) fn sight(&self, caller: &Caller) -> Option<Sight> {
        Sight::of(caller.uid, |target| {
            self.is_permitted(caller, &Request::of_all(Action::Read, target, PROMISES))
        })
    }

    /// Holds what was permitted before, and goes on, against the rules as they are now. What polkit has allowed stays
    /// so as long as the rules ask it.
    ///
    /// # Errors
    /// [`ApiError::PermissionDenied`] with the rule.
    pub(crate) fn permit_still(&self, caller: &Caller, request: &Request) -> Result<(), ApiError> {
        match authority::decide(&self.settings.policy, &self.identity(caller, request), request) {
            Verdict::Allow { .. } | Verdict::Ask { .. } => Ok(()),
            Verdict::Deny(refusal) => Err(denied(refusal)),
        }
    }

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

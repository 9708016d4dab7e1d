//! Who may ask for what.
//!
//! A matrix of rules says it (Edwards & Cao 1997, section 2.2: users are rows, kinds of process are columns, allowed
//! requests are the elements). Without files the rules are the paper's: the owner of the machine divides it, every
//! other user may only take less for what is their own. One kind of target is added to the paper's two: what lies
//! below a domain of one's own, because dividing what one has takes from nobody.
//!
//! The caller's user and groups come from the kernel (the socket's credentials), never from what the caller says.
//! [`decide`] is pure; reading the files and asking polkit is the daemon's part.

mod matrix;
mod request;
mod rule;
#[cfg(test)]
mod tests;
mod toml_form;

use serde::{Deserialize, Serialize};

pub use matrix::Matrix;
pub use request::{Action, Amount, Identity, Request, Target};
pub use rule::{Effect, Rule, RuleName, Who};
pub use toml_form::{ParsedRules, parse_rules};

use matrix::Judgement;

/// The name of the shipped file of rules: one of this name in a directory of higher precedence replaces it.
pub const DEFAULT_FILE_NAME: &str = "default.toml";

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow {
        /// The rule that allows it.
        rule: RuleName,
    },
    /// It may be done if polkit says so.
    Ask {
        /// The rule that says to ask.
        rule: RuleName,
        /// What to ask polkit for.
        polkit_action: &'static str,
        /// What to answer when there is no polkit, or it says no: to be completed with [`Refusal::because`].
        refusal: Refusal,
    },
    /// It may not be done.
    Deny(Refusal),
}

/// Whom this machine belongs to, and the rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The user whom the rules call the owner; `None` when none is named.
    pub owner_uid: Option<u32>,
    /// The rules.
    pub matrix: Matrix,
}

/// Why a request was turned down: the rule and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}; {advice}")]
pub struct Refusal {
    /// Who asked for what, and the rule against it.
    pub reason: String,
    /// What the person can do.
    pub advice: String,
}

impl Refusal {
    /// The same refusal with something added to its reason.
    pub fn because(self, more: &str) -> Self {
        Refusal { reason: format!("{}{more}", self.reason), advice: self.advice }
    }
}

/// Decides a request: of the rules that match, the strictest counts (deny, ask, allow); what no rule allows is denied.
/// Where a request is about several resources, each must be allowed. While a file of rules has a mistake in it, nobody
/// may do more than by the shipped rules.
pub fn decide(policy: &Policy, caller: &Identity, request: &Request) -> Verdict {
    let judgement = policy.matrix.judge(policy.owner_uid, caller, request);
    if let Some(mistake) = policy.matrix.mistake() {
        let shipped = Matrix::shipped().judge(policy.owner_uid, caller, request);
        if shipped.strictness() > judgement.strictness() {
            let why = format!(
                "{} allows it only together with a file that has a mistake in it ({}), and until that is corrected \
                 nobody may do more than the shipped rules say",
                judgement.words(),
                mistake.origin
            );
            return Verdict::Deny(refusal(policy, caller, request, &why));
        }
    }
    match judgement {
        Judgement::Allowed(rule) => Verdict::Allow { rule: rule.name.clone() },
        Judgement::Asked(rule) => Verdict::Ask {
            rule: rule.name.clone(),
            polkit_action: request.action.polkit_action(),
            refusal: refusal(policy, caller, request, &format!("{} says to ask polkit", rule.name)),
        },
        Judgement::NoRule => {
            Verdict::Deny(refusal(policy, caller, request, &policy.without_rule(caller, request)))
        }
        Judgement::Beyond(rule, why) => {
            Verdict::Deny(refusal(policy, caller, request, &format!("{} allows {why}", rule.name)))
        }
        Judgement::Denied(rule) => {
            Verdict::Deny(refusal(policy, caller, request, &format!("{} denies it", rule.name)))
        }
    }
}

fn refusal(policy: &Policy, caller: &Identity, request: &Request, why: &str) -> Refusal {
    let allowed = policy.matrix.allowed(request);
    let mut who: Vec<String> = allowed.map(|who| who.words(policy.owner_uid)).collect();
    who.dedup();
    let ask = if who.is_empty() { String::new() } else { format!("ask {}, or ", who.join(" or ")) };
    Refusal {
        reason: format!("user {} may not {}: {why}", caller.uid, request.words()),
        advice: format!("{ask}have a rule written in /etc/steward/authority"),
    }
}

impl Policy {
    /// Why nothing allows it: what the rules do let this user do.
    fn without_rule(&self, caller: &Identity, request: &Request) -> String {
        let near = self.matrix.near(self.owner_uid, caller, request.action);
        let near: Vec<String> =
            near.map(|rule| format!("{} is for {}", rule.name, rule.of_words())).collect();
        if near.is_empty() {
            let action = request.action.name();
            return format!("no rule lets user {} {action} anything", caller.uid);
        }
        format!("no rule allows it ({})", near.join(", "))
    }

    /// As [`decide`], for whoever cannot ask polkit: what is to be asked is refused.
    ///
    /// # Errors
    /// [`Refusal`] with the rule.
    pub fn permit(&self, caller: &Identity, request: &Request) -> Result<RuleName, Refusal> {
        match decide(self, caller, request) {
            Verdict::Allow { rule } => Ok(rule),
            Verdict::Ask { refusal, .. } => Err(refusal.because(", and it cannot be asked here")),
            Verdict::Deny(refusal) => Err(refusal),
        }
    }
}

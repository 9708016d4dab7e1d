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
#[cfg(test)]
mod tests;
mod toml_form;

use serde::{Deserialize, Serialize};

pub use matrix::{Effect, Matrix, Rule, RuleName, Who};
pub use toml_form::{ParsedRules, parse_rules};

use crate::quantity::percent;
use crate::resource::Resource;
use matrix::Judgement;

/// The name of the shipped file of rules: one of this name in a directory of higher precedence replaces it.
pub const DEFAULT_FILE_NAME: &str = "default.toml";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// See what is promised to whom, and what they use.
    Read,
    /// Take less: lower or give up a reservation, set an upper limit, move into a domain that one has already.
    Limit,
    /// Get more: a reservation, a weight, a priority. It takes from others.
    Reserve,
    /// Change the daemon itself: have it read its files again, for example.
    Administer,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 4] = [Action::Read, Action::Limit, Action::Reserve, Action::Administer];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Limit => "limit",
            Action::Reserve => "reserve",
            Action::Administer => "administer",
        }
    }

    /// What polkit knows it by; `io.steward.policy` describes each.
    pub fn polkit_action(self) -> &'static str {
        match self {
            Action::Read => "io.steward.read",
            Action::Limit => "io.steward.limit",
            Action::Reserve => "io.steward.reserve",
            Action::Administer => "io.steward.administer",
        }
    }
}

/// Whose it is that something is wanted for, seen from who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A process of the caller's user, or a domain that belongs to that user.
    Own,
    /// A domain with a domain of the caller's user above it: what it gets is paid out of that one's own.
    BelowOwn,
    /// Everything else, and the machine as a whole.
    Others,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 3] = [Target::Own, Target::BelowOwn, Target::Others];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Target::Own => "own",
            Target::BelowOwn => "below-own",
            Target::Others => "others",
        }
    }

    /// What a process is to `caller_uid`. `process_uid` is `None` for a process whose real, effective and saved user
    /// are not one (a set-user-ID program): such a process is nobody's own.
    pub fn of_process(caller_uid: u32, process_uid: Option<u32>) -> Self {
        if process_uid == Some(caller_uid) { Target::Own } else { Target::Others }
    }

    /// What a domain is to `caller_uid`. `domain_uid` is the user that it belongs to, `None` when that is not known
    /// (or when it is yet to be made: then only what is above it counts); `above` are the users of the domains above
    /// it, in any order.
    pub fn of_domain(
        caller_uid: u32,
        domain_uid: Option<u32>,
        above: impl IntoIterator<Item = Option<u32>>,
    ) -> Self {
        if above.into_iter().any(|uid| uid == Some(caller_uid)) {
            Target::BelowOwn
        } else {
            Target::of_process(caller_uid, domain_uid)
        }
    }
}

/// Who asks, as the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The effective user.
    pub uid: u32,
    /// The effective group and all supplementary ones.
    pub gids: Vec<u32>,
    /// Whether that user sits at the machine: has an active session on one of its seats.
    pub active_session: bool,
}

impl Identity {
    /// A user without any group.
    pub fn of_user(uid: u32) -> Self {
        Identity { uid, gids: Vec::new(), active_session: false }
    }
}

/// How much is asked for, where that is an amount: for rules that set a limit to it ([`Rule::at_most`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// What is asked for, as a fraction of one CPU.
    pub asked: f64,
    /// What the caller's user has reserved by hand already, beside what the request replaces.
    pub held: f64,
    /// Whether children are to get the same, so that it is no amount but one for each of them.
    pub inherit: bool,
    /// Whether it may be revoked under overload.
    pub revocable: bool,
}

impl Amount {
    /// What each reservation counts as at least, so that nobody has any number of tiny ones.
    pub const LEAST: f64 = 0.01;

    /// What counts of one reservation.
    pub fn counted(bandwidth: f64) -> f64 {
        bandwidth.max(Self::LEAST)
    }

    /// Why a rule that allows up to `limit` in all does not allow this; `None` if it does.
    fn beyond(&self, limit: f64) -> Option<String> {
        // Room for the last bit: a sum of fractions is rarely exact.
        const SLACK: f64 = 1e-9;
        if self.inherit {
            return Some(
                "and each child that inherits would have as much again: ask without inherit".to_owned(),
            );
        }
        if !self.revocable {
            return Some("and only what may be revoked: ask for no irrevocable one".to_owned());
        }
        (self.held + self.asked > limit + SLACK).then(|| {
            format!(
                "of which {} is reserved by hand already, and {} more was asked",
                percent(self.held),
                percent(self.asked)
            )
        })
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is to be done.
    pub action: Action,
    /// To which resources; none stands for all of them.
    pub resources: Vec<Resource>,
    /// Whose the target is.
    pub target: Target,
    /// The target in words, for the refusal: `a process of user 1002`, `the domain batch`.
    pub about: String,
    /// How much, where it is an amount.
    pub amount: Option<Amount>,
}

impl Request {
    /// A request about one resource.
    pub fn new(action: Action, resource: Resource, target: Target, about: impl Into<String>) -> Self {
        Request { action, resources: vec![resource], target, about: about.into(), amount: None }
    }

    /// A request about all resources.
    pub fn of_all(action: Action, target: Target, about: impl Into<String>) -> Self {
        Request { action, resources: Resource::ALL.to_vec(), target, about: about.into(), amount: None }
    }

    /// The same request for this much.
    pub fn for_amount(self, amount: Amount) -> Self {
        Request { amount: Some(amount), ..self }
    }

    /// The resources that count: all when none is named.
    pub(crate) fn resources(&self) -> &[Resource] {
        if self.resources.is_empty() { &Resource::ALL } else { &self.resources }
    }

    /// What is asked for, in words that go after "may" or "may not".
    pub fn words(&self) -> String {
        let resources: Vec<&str> = self.resources().iter().map(|resource| resource.words()).collect();
        let resources = resources.join(" and ");
        match self.action {
            Action::Read => format!("read {}", self.about),
            Action::Limit => format!("limit {resources} of {}", self.about),
            Action::Reserve => format!("reserve {resources} for {}", self.about),
            Action::Administer => format!("change {}", self.about),
        }
    }
}

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

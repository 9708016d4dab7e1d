//! What is asked for, by whom, and whose it is.

use crate::quantity::percent;
use crate::resource::Resource;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// See what is promised to whom, and what they use.
    Read,
    /// See how much memory a domain may use.
    ReadAvailability,
    /// Take less: lower or give up a reservation, set an upper limit, move into a domain that one has already.
    Limit,
    /// Get more: a reservation, a weight, a priority. It takes from others.
    Reserve,
    /// Change the daemon itself: have it read its files again, for example.
    Administer,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 5] =
        [Action::Read, Action::ReadAvailability, Action::Limit, Action::Reserve, Action::Administer];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::ReadAvailability => "read-availability",
            Action::Limit => "limit",
            Action::Reserve => "reserve",
            Action::Administer => "administer",
        }
    }

    /// What polkit knows it by; `io.steward.policy` describes each.
    pub fn polkit_action(self) -> &'static str {
        match self {
            Action::Read => "io.steward.read",
            Action::ReadAvailability => "io.steward.read-availability",
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

/// How much is asked for, where that is an amount: for rules that set a limit to it
/// ([`at_most`](super::Rule::at_most)).
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
    pub(super) fn beyond(&self, limit: f64) -> Option<String> {
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

    /// A request to know how much memory a domain may use.
    pub fn of_availability(target: Target, about: impl Into<String>) -> Self {
        Request::new(Action::ReadAvailability, Resource::Memory, target, about)
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
            Action::ReadAvailability => format!("read how much memory {} may use", self.about),
            Action::Limit => format!("limit {resources} of {}", self.about),
            Action::Reserve => format!("reserve {resources} for {}", self.about),
            Action::Administer => format!("change {}", self.about),
        }
    }
}

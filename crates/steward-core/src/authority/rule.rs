//! One rule: about whom it is, about what, and what it says.

use std::fmt;

use super::request::{Action, Identity, Request, Target};
use crate::problem::Origin;
use crate::quantity::percent;
use crate::resource::Resource;

/// Stands for a file in the origin of the rules that are built in.
pub(super) const BUILT_IN: &str = "built-in rules";

/// Whom a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// User 0.
    Root,
    /// The user that the daemon's configuration names as the owner; nobody when it names none.
    Owner,
    /// The user with this number.
    User(u32),
    /// Everyone in the group with this number.
    Group(u32),
    /// Whoever sits at the machine: the user of an active session on one of its seats.
    ActiveSession,
    /// Every user, root and the owner too.
    Everyone,
}

impl Who {
    pub(super) fn is(self, owner_uid: Option<u32>, caller: &Identity) -> bool {
        match self {
            Who::Root => caller.uid == 0,
            Who::Owner => owner_uid == Some(caller.uid),
            Who::User(uid) => caller.uid == uid,
            Who::Group(gid) => caller.gids.contains(&gid),
            Who::ActiveSession => caller.active_session,
            Who::Everyone => true,
        }
    }

    /// In words, for a refusal.
    pub(crate) fn words(self, owner_uid: Option<u32>) -> String {
        match self {
            Who::Root => "root".to_owned(),
            Who::Owner => match owner_uid {
                Some(uid) => format!("the owner (user {uid})"),
                None => "the owner (no owner is set in /etc/steward/steward.toml)".to_owned(),
            },
            Who::User(uid) => format!("user {uid}"),
            Who::Group(gid) => format!("someone in group {gid}"),
            Who::ActiveSession => "who sits at the machine".to_owned(),
            Who::Everyone => "anyone".to_owned(),
        }
    }
}

/// What a rule says; ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// It may be done.
    Allow,
    /// It may be done if polkit says so.
    Ask,
    /// It may not be done.
    Deny,
}

impl Effect {
    /// All of them.
    pub const ALL: [Effect; 3] = [Effect::Allow, Effect::Ask, Effect::Deny];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Ask => "ask",
            Effect::Deny => "deny",
        }
    }
}

/// What a rule is called in a refusal: its file and line, or its number among those that are built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// Where it was written.
    pub origin: Origin,
    /// Its place in the file, counted from 1.
    pub number: u32,
}

impl fmt::Display for RuleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin.file.as_os_str() == BUILT_IN {
            write!(formatter, "default rule {}", self.number)
        } else {
            write!(formatter, "the rule at {}", self.origin)
        }
    }
}

/// One row of the matrix. It matches a request when one of each list does.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What it is called.
    pub name: RuleName,
    /// About whom.
    pub who: Vec<Who>,
    /// What they want to do.
    pub actions: Vec<Action>,
    /// To which resources.
    pub resources: Vec<Resource>,
    /// Of whom.
    pub of: Vec<Target>,
    /// What it says to that.
    pub verdict: Effect,
    /// The most that one user may have reserved by hand for it to allow more, as a fraction of one CPU. Such a rule is
    /// about amounts only, of what is neither inherited nor irrevocable.
    pub at_most: Option<f64>,
}

impl Rule {
    pub(super) fn covers(&self, action: Action, resource: Resource, target: Target) -> bool {
        self.actions.contains(&action) && self.resources.contains(&resource) && self.of.contains(&target)
    }

    pub(super) fn is_about(&self, owner_uid: Option<u32>, caller: &Identity) -> bool {
        self.who.iter().any(|who| who.is(owner_uid, caller))
    }

    /// Why its limit keeps it from being about a request; `None` if it has none or the request is within.
    pub(super) fn beyond(&self, request: &Request) -> Option<String> {
        let limit = self.at_most?;
        let at_most = format!("at most {} of one CPU in all", percent(limit));
        match request.amount {
            Some(amount) => amount.beyond(limit).map(|why| format!("{at_most}, {why}")),
            None => Some(format!("{at_most} for processes, and nothing else")),
        }
    }

    /// What it is for, in the words of the file.
    pub(crate) fn of_words(&self) -> String {
        let names = |names: Vec<&str>| names.join(" and ");
        let resources = match self.resources.len() {
            3 => String::new(),
            _ => format!("{} ", names(self.resources.iter().map(|resource| resource.name()).collect())),
        };
        format!("{resources}{} targets", names(self.of.iter().map(|target| target.name()).collect()))
    }
}

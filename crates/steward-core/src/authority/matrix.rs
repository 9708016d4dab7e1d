//! The rules and how they add up.
//!
//! The strictest rule that matches counts. So the order of rules and files means nothing, and a rule that denies
//! can only take away.

use std::fmt;
use std::sync::LazyLock;

use super::toml_form::parse_rules;
use super::{Action, Identity, ParsedRules, Request, Target};
use crate::accounts::NoAccounts;
use crate::problem::{Origin, Problem};
use crate::quantity::percent;
use crate::resource::Resource;

/// Stands for a file in the origin of the rules that are built in.
const BUILT_IN: &str = "built-in rules";

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
    fn is(self, owner_uid: Option<u32>, caller: &Identity) -> bool {
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
    fn covers(&self, action: Action, resource: Resource, target: Target) -> bool {
        self.actions.contains(&action) && self.resources.contains(&resource) && self.of.contains(&target)
    }

    fn is_about(&self, owner_uid: Option<u32>, caller: &Identity) -> bool {
        self.who.iter().any(|who| who.is(owner_uid, caller))
    }

    /// Why its limit keeps it from being about a request; `None` if it has none or the request is within.
    fn beyond(&self, request: &Request) -> Option<String> {
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

/// What the rules say to a request, strictest last.
#[derive(Clone, Debug)]
pub(super) enum Judgement<'a> {
    Allowed(&'a Rule),
    Asked(&'a Rule),
    NoRule,
    /// A rule would allow less, and this.
    Beyond(&'a Rule, String),
    Denied(&'a Rule),
}

impl Judgement<'_> {
    pub(super) fn strictness(&self) -> u8 {
        match self {
            Judgement::Allowed(_) => 0,
            Judgement::Asked(_) => 1,
            // All are a refusal.
            Judgement::NoRule | Judgement::Beyond(..) | Judgement::Denied(_) => 2,
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Judgement::Allowed(rule)
            | Judgement::Asked(rule)
            | Judgement::Beyond(rule, _)
            | Judgement::Denied(rule) => rule.name.to_string(),
            Judgement::NoRule => "no rule".to_owned(),
        }
    }
}

/// All rules that are in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rules: Vec<Rule>,
    /// The first thing that is wrong in any file: a rule that was left out might have denied.
    mistake: Option<Problem>,
}

impl Default for Matrix {
    /// The shipped rules.
    fn default() -> Self {
        Matrix::shipped().clone()
    }
}

impl Matrix {
    /// The rules that are shipped: the paper's (Edwards & Cao 1997, section 2.2), and dividing one's own.
    pub fn shipped() -> &'static Matrix {
        static SHIPPED: LazyLock<Matrix> = LazyLock::new(|| {
            let text = include_str!("default.toml");
            Matrix::of(vec![parse_rules(BUILT_IN.as_ref(), text, &NoAccounts)])
        });
        &SHIPPED
    }

    /// The rules of these files and nothing else. With a problem in any of them, nobody may do more than by
    /// [`Matrix::shipped`].
    pub fn of(files: Vec<ParsedRules>) -> Self {
        let mut rules = Vec::new();
        let mut mistake = None;
        for file in files {
            rules.extend(file.rules);
            mistake = mistake.or(file.problems.into_iter().next());
        }
        Matrix { rules, mistake }
    }

    /// The rules in force.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether any rule about this action asks who sits at the machine.
    pub fn asks_for_session(&self, action: Action) -> bool {
        let asks_in = |rule: &Rule| rule.who.contains(&Who::ActiveSession) && rule.actions.contains(&action);
        let asks = |rules: &[Rule]| rules.iter().any(asks_in);
        // With a mistake, the shipped rules count too.
        asks(&self.rules) || (self.mistake.is_some() && asks(&Matrix::shipped().rules))
    }

    /// What is wrong in a file, if anything is.
    pub fn mistake(&self) -> Option<&Problem> {
        self.mistake.as_ref()
    }

    /// The strictest of what the rules say about each resource.
    pub(super) fn judge(
        &self,
        owner_uid: Option<u32>,
        caller: &Identity,
        request: &Request,
    ) -> Judgement<'_> {
        let each = request.resources().iter().map(|resource| {
            let matching = self.rules.iter().filter(|rule| {
                rule.covers(request.action, *resource, request.target) && rule.is_about(owner_uid, caller)
            });
            let (within, beyond): (Vec<&Rule>, Vec<&Rule>) =
                matching.partition(|rule| rule.beyond(request).is_none());
            match within.into_iter().max_by_key(|rule| rule.verdict) {
                None => beyond.first().map_or(Judgement::NoRule, |rule| {
                    Judgement::Beyond(rule, rule.beyond(request).unwrap_or_default())
                }),
                Some(rule) => match rule.verdict {
                    Effect::Allow => Judgement::Allowed(rule),
                    Effect::Ask => Judgement::Asked(rule),
                    Effect::Deny => Judgement::Denied(rule),
                },
            }
        });
        each.max_by_key(Judgement::strictness).unwrap_or(Judgement::NoRule)
    }

    /// Who may do this for anyone, as far as some rule allows it and whatever others deny.
    pub(super) fn allowed<'a>(&'a self, request: &'a Request) -> impl Iterator<Item = Who> + 'a {
        let allowing = self.rules.iter().filter(|rule| {
            let covers = |resource: &Resource| rule.covers(request.action, *resource, Target::Others);
            rule.verdict == Effect::Allow && request.resources().iter().all(covers)
        });
        let helpful = |who: &Who| !matches!(who, Who::Everyone | Who::ActiveSession);
        allowing.flat_map(|rule| rule.who.iter().copied()).filter(helpful)
    }

    /// The rules that let this caller do `action` to something.
    pub(super) fn near<'a>(
        &'a self,
        owner_uid: Option<u32>,
        caller: &'a Identity,
        action: Action,
    ) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |rule| {
            rule.verdict != Effect::Deny && rule.actions.contains(&action) && rule.is_about(owner_uid, caller)
        })
    }
}

//! How rules add up.
//!
//! The strictest rule that matches counts. So the order of rules and files means nothing, and a rule that denies
//! can only take away.

use std::sync::LazyLock;

use super::request::{Action, Identity, Request, Target};
use super::rule::{BUILT_IN, Effect, Rule, Who};
use super::toml_form::{ParsedRules, parse_rules};
use crate::accounts::NoAccounts;
use crate::problem::Problem;
use crate::resource::Resource;

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

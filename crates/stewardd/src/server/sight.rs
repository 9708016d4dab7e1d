//! Who is told of which decision. The rules say it (`read`), by whose it is that the decision is about: what is one's
//! own, what is below a domain of one's own, and what is others'. A decision about one's own that names somebody else
//! is told without that name to whom the other's is not to be seen.
//!
//! Whose it is is noted beside the decision when it is taken: the domain or the process may be gone when it is listed.

use libsteward::api;
use steward_core::authority::Target;
use steward_core::domain::name;

/// Whose a domain or a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    /// The user; `None` where that is not known, or several have rights in it.
    pub user: Option<u32>,
    /// The users of the domains above it.
    pub above: Vec<u32>,
}

impl Whose {
    /// What belongs to this user alone.
    pub fn of_user(user: Option<u32>) -> Self {
        Whose { user, above: Vec::new() }
    }
}

/// Who is concerned by a decision.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Whose it is; without any it is about others to everybody.
    pub whose: Vec<Whose>,
    /// What it says of others than these, if it does.
    pub naming: Option<Naming>,
}

/// That a decision names others than those whose it is.
#[derive(Clone, Debug)]
pub struct Naming {
    /// Whose the named are, each once.
    pub named: Vec<Whose>,
    /// The same decision without their names.
    pub bare: Box<api::Event>,
}

impl About {
    /// A decision about one thing, which names nothing else.
    pub fn of(whose: Whose) -> Self {
        About { whose: vec![whose], naming: None }
    }

    /// The same, and it names these others; `bare` is it without their names.
    pub fn naming(self, mut named: Vec<Whose>, bare: api::Event) -> Self {
        named.sort_unstable();
        named.dedup();
        About { naming: Some(Naming { named, bare: Box::new(bare) }), ..self }
    }
}

/// How much of a decision somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of it.
    Whole,
    /// It without the names of others.
    Bare,
    /// Nothing.
    Nothing,
}

/// What of decisions a user may see by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The user; `None` for who may see everything, whoever that is: all of them see the same.
    uid: Option<u32>,
    own: bool,
    below_own: bool,
    others: bool,
}

impl Sight {
    /// Who sees everything.
    pub const ALL: Sight = Sight { uid: None, own: true, below_own: true, others: true };

    /// What this user may see, by whose it is; `None` when that is nothing.
    pub fn of(uid: u32, may: impl Fn(Target) -> bool) -> Option<Self> {
        let [own, below_own, others] = [Target::Own, Target::BelowOwn, Target::Others].map(may);
        match (own, below_own, others) {
            (false, false, false) => None,
            (true, true, true) => Some(Self::ALL),
            _ => Some(Sight { uid: Some(uid), own, below_own, others }),
        }
    }

    /// Somebody who may see nothing by the rules.
    pub const fn none_of(uid: u32) -> Self {
        Sight { uid: Some(uid), own: false, below_own: false, others: false }
    }

    /// Whether it has what is of this kind.
    pub fn has(self, target: Target) -> bool {
        match target {
            Target::Own => self.own,
            Target::BelowOwn => self.below_own,
            Target::Others => self.others,
        }
    }

    /// Whether something that belongs to these is seen.
    pub fn sees(self, whose: &Whose) -> bool {
        let Some(uid) = self.uid else { return true };
        self.has(Target::of_domain(uid, whose.user, whose.above.iter().copied().map(Some)))
    }

    /// How much is told of a decision about this.
    pub fn view(self, about: &About) -> View {
        let concerns = if about.whose.is_empty() {
            self.others
        } else {
            about.whose.iter().any(|whose| self.sees(whose))
        };
        if concerns { self.naming(about) } else { View::Nothing }
    }

    /// How much is told of a decision that concerns one: the names of others by whose they are.
    pub fn naming(self, about: &About) -> View {
        let is_seen = |naming: &Naming| naming.named.iter().all(|whose| self.sees(whose));
        if about.naming.as_ref().is_none_or(is_seen) { View::Whole } else { View::Bare }
    }
}

/// Of which domains somebody may know how much memory they may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailabilitySight {
    /// Of which by the rules.
    rules: Sight,
    /// The path of the domain that they are in; `None` where that is not known, or the rules let them know all.
    inside: Option<String>,
}

impl AvailabilitySight {
    /// Who may know that of all domains: all who may know the same.
    pub const ALL: AvailabilitySight = AvailabilitySight { rules: Sight::ALL, inside: None };

    /// Somebody in the domain `inside`, and what the rules let them know.
    pub fn of(rules: Sight, inside: Option<String>) -> Self {
        if rules == Sight::ALL { Self::ALL } else { AvailabilitySight { rules, inside } }
    }

    /// Whether it is told of a domain at this path that belongs to these.
    pub fn sees(&self, path: &str, whose: &Whose) -> bool {
        self.inside.as_deref().is_some_and(|inside| is_within(inside, path)) || self.rules.sees(whose)
    }
}

/// Whether the domain at `path` is `inside`, which a process is in, or below that. Below the root is everything, and
/// nothing one's own.
pub fn is_within(inside: &str, path: &str) -> bool {
    path == inside || (!inside.is_empty() && name::is_at_or_below(path, inside))
}

/// What a client that called with "more" hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Every decision.
    Decisions,
    /// Changes among domains.
    Domains,
}

/// What somebody listens to.
#[derive(Clone, Copy)]
pub(super) struct Listening {
    pub(super) topic: Topic,
    /// What of it may be seen.
    pub(super) sight: Sight,
    /// How many of those broadcasts were lost since the last that was sent.
    pub(super) lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn availability_is_told_of_what_one_is_in_and_of_what_is_below_that_whatever_the_rules_say() {
        let of_8 = Whose::of_user(Some(8));
        let sees = |rules, inside: Option<&str>, path| {
            AvailabilitySight::of(rules, inside.map(str::to_owned)).sees(path, &of_8)
        };
        let cases =
            [("a/b", true), ("a/b/c", true), ("a", false), ("a/bc", false), ("b", false), ("", false)];
        for (path, seen) in cases {
            assert_eq!(sees(Sight::none_of(7), Some("a/b"), path), seen, "{path}");
            assert!(!sees(Sight::none_of(7), None, path) && sees(Sight::none_of(8), Some(path), path));
            assert!(sees(Sight::ALL, None, path));
        }
        assert!(!sees(Sight::none_of(7), Some(""), "a"), "whoever is in the root is not above everybody");
        let own = Sight::of(8, |target| target == Target::Own).expect("something");
        assert!(sees(own, Some("a/b"), "elsewhere"), "by the rules it is theirs");
        assert_eq!(AvailabilitySight::of(Sight::ALL, Some("a".into())), AvailabilitySight::ALL);
    }

    fn event(text: &str) -> api::Event {
        let (kind, text) = (api::EventKind::MemoryStalled, text.to_owned());
        api::Event { at_ns: 1, kind, task: None, domain: None, cpu: None, memory: None, reason: None, text }
    }

    #[test]
    fn what_is_seen_goes_by_whose_it_is_and_names_by_whose_the_named_are() {
        let whose = |user, above: &[u32]| Whose { user: Some(user), above: above.to_vec() };
        let only_own = Sight::of(7, |target| target == Target::Own).expect("something");
        let all_own = Sight::of(7, |target| target != Target::Others).expect("something");
        assert_eq!(Sight::of(7, |_| true), Some(Sight::ALL));
        assert_eq!(Sight::of(7, |_| false), None);
        let cases = [
            (whose(7, &[]), [true, true]),
            (whose(8, &[]), [false, false]),
            (whose(8, &[7]), [false, true]),
            (Whose::of_user(None), [false, false]),
        ];
        for (whose, seen) in cases {
            assert_eq!([only_own.sees(&whose), all_own.sees(&whose)], seen, "{whose:?}");
            assert!(Sight::ALL.sees(&whose));
        }
        let of_8 = || vec![whose(8, &[]), whose(8, &[])];
        let own = About::of(whose(7, &[])).naming(of_8(), event("bare"));
        assert_eq!(own.naming.as_ref().map(|naming| naming.named.len()), Some(1), "each once");
        assert_eq!((only_own.view(&own), Sight::ALL.view(&own)), (View::Bare, View::Whole));
        let both_own = About::of(whose(7, &[])).naming(vec![whose(7, &[])], event("bare"));
        assert_eq!(only_own.view(&both_own), View::Whole);
        assert_eq!(
            only_own.view(&About::of(whose(8, &[])).naming(vec![whose(7, &[])], event("bare"))),
            View::Nothing
        );
        assert_eq!(
            (only_own.view(&About::default()), Sight::ALL.view(&About::default())),
            (View::Nothing, View::Whole)
        );
    }
}

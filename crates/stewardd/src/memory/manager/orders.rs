//! What the daemon tells the memory loop: what domains were given.

use std::collections::BTreeMap;

use steward_core::cpu::policy::PRIORITY_DEFAULT;
use steward_core::domain::{Settings, name};
use steward_core::memory::manager;
use steward_core::memory::source::Choice;

use crate::disk::known::Known;

/// What a domain was given, as far as its memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    /// The user that it belongs to.
    pub(crate) user: u32,
    /// Order among its siblings: a higher one comes first.
    pub(crate) priority: u8,
    /// Its part among siblings of one priority; `None` for the kernel's own weight.
    pub(crate) weight: Option<u32>,
    /// What it is promised, in bytes.
    pub(crate) min_bytes: u64,
    /// Its protection period, in nanoseconds; `None` where it is not protected itself.
    pub(crate) protect_ns: Option<u64>,
    /// Whether its protection has lapsed: nobody uses it.
    pub(crate) is_lapsed: bool,
    /// Before this moment all that it has in memory counts as used, in nanoseconds: it came back a protection period
    /// ago at most, and nobody knows yet what of it will be.
    pub(crate) all_used_until_ns: u64,
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered {
            user: 0,
            priority: PRIORITY_DEFAULT,
            weight: None,
            min_bytes: 0,
            protect_ns: None,
            is_lapsed: false,
            all_used_until_ns: 0,
        }
    }
}

impl From<&Settings> for Ordered {
    fn from(settings: &Settings) -> Self {
        Ordered {
            priority: settings.common.priority,
            weight: settings.common.weight,
            min_bytes: settings.memory.min_bytes.unwrap_or(0),
            protect_ns: settings.memory.protect_ns,
            ..Ordered::default()
        }
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Orders {
    /// By path: those that were given something.
    pub(crate) domains: BTreeMap<String, Ordered>,
    /// What is set for the machine.
    pub(crate) settings: manager::Settings,
    /// By what it is to be known what protected domains use.
    pub(crate) used_from: Choice,
    /// What is known of disks beside what they say themselves: whether they rotate.
    pub(crate) disks: Known,
    /// What the names of cgroups that Steward makes at the top begin with.
    pub(crate) prefix: String,
}

impl Default for Orders {
    fn default() -> Self {
        let settings = manager::Settings { reserve_bytes: 0, reservable: 1.0 };
        Orders {
            domains: BTreeMap::new(),
            settings,
            used_from: Choice::default(),
            disks: Known::default(),
            prefix: String::new(),
        }
    }
}

impl Orders {
    /// Whether there is nothing to do: nobody is protected.
    pub(crate) fn is_idle(&self) -> bool {
        self.domains.values().all(|ordered| ordered.protect_ns.is_none() || ordered.is_lapsed)
    }

    /// Whether they are these: by path, in order.
    pub(crate) fn are<'path>(
        &'path self,
        domains: impl Iterator<Item = (&'path str, Ordered)>,
        settings: &manager::Settings,
        used_from: Choice,
        disks: &Known,
    ) -> bool {
        self.settings == *settings
            && self.used_from == used_from
            && self.disks == *disks
            && self.domains.iter().map(|(path, ordered)| (path.as_str(), *ordered)).eq(domains)
    }

    /// Whether what the kernel is told to leave to a cgroup may be another's promise that counts: at the top, and not
    /// Steward's own, nor raised for what Steward promises below it. Below, it is paid out of what the one above it is
    /// promised.
    pub(super) fn is_promised_by_others(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let has_ours =
            || self.domains.range(below.clone()..).next().is_some_and(|(path, _)| path.starts_with(&below));
        !path.contains('/') && !path.starts_with(&self.prefix) && !has_ours()
    }

    /// What a cgroup was given.
    pub(super) fn of(&self, path: &str) -> Ordered {
        self.domains.get(path).copied().unwrap_or_default()
    }

    /// The protection period of a cgroup: its own, or that of the nearest one above it that has one; `None` also where
    /// that one's protection has lapsed.
    pub(super) fn protect_ns(&self, path: &str) -> Option<u64> {
        self.protecting(path).filter(|ordered| !ordered.is_lapsed)?.protect_ns
    }

    /// The user whose protection a cgroup has; root where it has none.
    pub(super) fn user_of(&self, path: &str) -> u32 {
        self.protecting(path).map_or(0, |ordered| ordered.user)
    }

    /// Whether all that a protected cgroup has in memory counts as used.
    pub(super) fn is_all_used(&self, path: &str, now_ns: u64) -> bool {
        self.protecting(path).is_some_and(|ordered| now_ns < ordered.all_used_until_ns)
    }

    fn protecting(&self, path: &str) -> Option<&Ordered> {
        let above = std::iter::successors(Some(path), |path| name::parent_of(path));
        above.filter_map(|path| self.domains.get(path)).find(|ordered| ordered.protect_ns.is_some())
    }
}

#[cfg(test)]
mod tests {
    use steward_core::disk::config::{Config, Order};

    use super::*;

    #[test]
    fn what_is_promised_to_a_slice_for_what_is_promised_below_it_is_no_promise_of_others() {
        let scope = "user.slice/user-1000.slice/steward-program-7.scope";
        let domains = [(scope, 1), ("steward.editor", 1)];
        let ordered = |min_bytes| Ordered { min_bytes, ..Ordered::default() };
        let domains = domains.map(|(path, min_bytes)| (path.to_owned(), ordered(min_bytes)));
        let orders =
            Orders { domains: BTreeMap::from(domains), prefix: "steward.".to_owned(), ..Orders::default() };
        let of_others = ["system.slice", "user.slice", "user", "steward.editor", "system.slice/cron.service"];
        assert_eq!(
            of_others.map(|path| orders.is_promised_by_others(path)),
            [true, false, true, false, false]
        );
    }

    #[test]
    fn orders_are_the_same_only_with_the_same_domains_that_were_given_the_same() {
        let (one, other) = (Ordered::default(), Ordered { min_bytes: 1, ..Ordered::default() });
        let orders = Orders { domains: BTreeMap::from([("a".to_owned(), one)]), ..Orders::default() };
        let are = |domains: &[(&str, Ordered)], settings| {
            orders.are(domains.iter().copied(), settings, Choice::Auto, &Known::default())
        };
        assert!(are(&[("a", one)], &orders.settings));
        for domains in [&[][..], &[("a", other)], &[("b", one)], &[("a", one), ("b", one)]] {
            assert!(!are(domains, &orders.settings), "{domains:?}");
        }
        assert!(!are(&[("a", one)], &manager::Settings { reserve_bytes: 1, ..orders.settings }));
        let same = || [("a", one)].into_iter();
        assert!(!orders.are(same(), &orders.settings, Choice::None, &Known::default()));
        let config = Config { order: Order::Keep, ..Config::default() };
        let known = Known { config, ..Known::default() };
        assert!(!orders.are(same(), &orders.settings, Choice::Auto, &known));
    }

    #[test]
    fn who_is_below_a_protected_domain_is_protected_as_it_is() {
        let protected = |seconds: u64| Ordered { protect_ns: Some(seconds), ..Ordered::default() };
        let mut orders = Orders::default();
        assert!(orders.is_idle());
        orders.domains.extend([("a".to_owned(), protected(5)), ("a/b".to_owned(), protected(7))]);
        assert!(!orders.is_idle());
        let of = |path| orders.protect_ns(path);
        assert_eq!(["a", "a/.own", "a/b/c", "ab", ""].map(of), [Some(5), Some(5), Some(7), None, None]);
    }

    #[test]
    fn one_whose_protection_has_lapsed_is_not_protected_by_what_is_above_it_either() {
        let protected = |is_lapsed| Ordered { protect_ns: Some(5), is_lapsed, ..Ordered::default() };
        let mut orders = Orders::default();
        orders.domains.extend([("a".to_owned(), protected(false)), ("a/b".to_owned(), protected(true))]);
        assert_eq!(
            ["a", "a/.own", "a/b", "a/b/c"].map(|path| orders.protect_ns(path)),
            [Some(5), Some(5), None, None]
        );
        assert!(!orders.is_idle());
        orders.domains.insert("a".to_owned(), protected(true));
        assert!(orders.is_idle(), "then nobody is protected");
    }

    #[test]
    fn one_that_came_back_counts_as_used_whole_with_all_below_it_for_a_while() {
        let returned = Ordered { protect_ns: Some(5), all_used_until_ns: 100, ..Ordered::default() };
        let mut orders = Orders::default();
        orders.domains.insert("a".to_owned(), returned);
        assert!(orders.is_all_used("a", 99) && orders.is_all_used("a/.own", 99));
        assert!(!orders.is_all_used("a", 100) && !orders.is_all_used("b", 0));
    }
}

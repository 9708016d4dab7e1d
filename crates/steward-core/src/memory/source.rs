//! By what it is known which of their memory protected domains use.
//!
//! The ages of pages say it, and cost little ([`super::ageing`]). Where the kernel has none, a little is given up at a
//! time, and refaults and the time for which tasks wait tell whether it was in use ([`super::trials`]). Where that
//! would cost whoever waits too much, nothing is known, and all that a domain has counts as used. Without ages pages of
//! files that it read once do not count as used in either case: the kernel has them on a list of their own.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// By what it is known what protected domains use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The ages of pages that the multi-generational LRU keeps.
    Mglru,
    /// What of the little that is given up at a time comes back at once, and how long tasks wait for it.
    RefaultsAndPressure,
    /// Nothing: all that a domain has counts as used but what it read once.
    #[default]
    None,
}

impl Source {
    /// As it is written in options, JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            Source::Mglru => "mglru",
            Source::RefaultsAndPressure => "refaults-and-pressure",
            Source::None => "none",
        }
    }
}

/// What may be used to find out (`memory.ages` of the configuration).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The best that there is.
    #[default]
    Auto,
    /// The ages of pages or nothing.
    Mglru,
    /// Trials, also where there are ages of pages, and where a disk is slow.
    RefaultsAndPressure,
    /// Nothing.
    None,
}

impl Choice {
    /// All of them, in the order in which they are told to people.
    pub const ALL: [Choice; 4] = [Choice::Auto, Choice::Mglru, Choice::RefaultsAndPressure, Choice::None];

    /// As it is written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Auto => "auto",
            Choice::Mglru => Source::Mglru.name(),
            Choice::RefaultsAndPressure => Source::RefaultsAndPressure.name(),
            Choice::None => Source::None.name(),
        }
    }

    /// What is used on a machine like this. `has_ages`: pages' ages can be read and made; `is_slow`: what was taken may
    /// have to come back from a disk that rotates.
    pub fn source(self, has_ages: bool, is_slow: bool) -> Source {
        match self {
            Choice::Auto | Choice::Mglru if has_ages => Source::Mglru,
            Choice::Auto if !is_slow => Source::RefaultsAndPressure,
            Choice::RefaultsAndPressure => Source::RefaultsAndPressure,
            Choice::Auto | Choice::Mglru | Choice::None => Source::None,
        }
    }
}

impl FromStr for Choice {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Choice::ALL.into_iter().find(|choice| choice.name() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_made_only_without_ages_and_on_fast_disks_unless_somebody_says_otherwise() {
        let machines = [(true, true), (true, false), (false, false), (false, true)];
        let of = |choice: Choice| machines.map(|(has_ages, is_slow)| choice.source(has_ages, is_slow));
        use Source::{Mglru, None, RefaultsAndPressure as Trials};
        assert_eq!(of(Choice::Auto), [Mglru, Mglru, Trials, None]);
        assert_eq!(of(Choice::Mglru), [Mglru, Mglru, None, None]);
        assert_eq!(of(Choice::RefaultsAndPressure), [Trials; 4]);
        assert_eq!(of(Choice::None), [None; 4]);
    }

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        assert_eq!(Choice::ALL.map(|choice| choice.name().parse()), Choice::ALL.map(Ok));
        assert_eq!("MGLRU".parse::<Choice>(), Err(()));
    }
}

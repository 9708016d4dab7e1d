//! What stays in force while a file is wrong: the last good version of each row that a mistake costs.
//!
//! Somebody who saves a typing error has not asked for a promise to be taken away. So a row that cannot be understood
//! any more counts as it was before, and so do all rows of a file with an error of syntax. What a person leaves out
//! without a mistake is gone.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// How many names a problem lists.
const NAMES_SHOWN_MAX: usize = 3;

/// Which rows of a file a mistake costs. `K` is what a row is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About<K> {
    /// The row of this one.
    Row(K),
    /// A row, or something outside of all rows, and it cannot be told whose it is.
    SomeRow,
    /// The whole file: an error of syntax, or it cannot be read.
    File,
}

/// Something wrong in a file that costs rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake<K> {
    /// Which rows.
    pub about: About<K>,
    /// What is wrong, and where.
    pub problem: Problem,
    /// The rows whose earlier version stays in force because of it.
    pub kept: Vec<K>,
}

impl<K> Mistake<K> {
    /// A mistake that keeps nothing in force yet.
    pub fn new(about: About<K>, problem: Problem) -> Self {
        Mistake { about, problem, kept: Vec::new() }
    }
}

/// Puts the rows of `before` back among `rows` that the mistakes cost: the row that a mistake is about; all that are
/// missing where it cannot be told whose row it is. The mistakes then name them, and their advice says that the
/// earlier version is in force; so does that of `problems`, which are those of the mistakes and others.
pub fn keep<K: Clone + Eq + Hash + Display, R: Clone>(
    rows: &mut Vec<R>,
    mistakes: &mut [Mistake<K>],
    problems: &mut [Problem],
    before: &[R],
    key: impl Fn(&R) -> &K,
) {
    let present: HashSet<&K> = rows.iter().map(&key).collect();
    let missing: Vec<R> = before.iter().filter(|row| !present.contains(key(row))).cloned().collect();
    let mut of_row: HashMap<&K, usize> = HashMap::new();
    for (place, mistake) in mistakes.iter().enumerate() {
        if let About::Row(row) = &mistake.about {
            of_row.entry(row).or_insert(place);
        }
    }
    let of_any = mistakes.iter().position(|mistake| !matches!(mistake.about, About::Row(_)));
    let cause = |row: &R| of_row.get(key(row)).copied().or(of_any);
    let causes: Vec<Option<usize>> = missing.iter().map(cause).collect();
    for (row, cause) in missing.into_iter().zip(causes) {
        let Some(cause) = cause else { continue };
        mistakes[cause].kept.push(key(&row).clone());
        rows.push(row);
    }
    let places = places(problems, mistakes);
    for (mistake, place) in mistakes.iter_mut().zip(places).filter(|(mistake, _)| !mistake.kept.is_empty()) {
        // What it says of the whole file being out of force is not so then.
        let advice = mistake.problem.advice.split("; until then").next().unwrap_or_default();
        let names: Vec<String> = mistake.kept.iter().take(NAMES_SHOWN_MAX).map(ToString::to_string).collect();
        let more = mistake.kept.len() - names.len();
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let advice =
            format!("{advice}; until then the earlier version of {}{more} is in force", names.join(", "));
        if let Some(place) = place {
            problems[place].advice.clone_from(&advice);
        }
        mistake.problem.advice = advice;
    }
}

/// Where among the problems that of each mistake is which keeps something; of problems that are alike, each one once.
fn places<K>(problems: &[Problem], mistakes: &[Mistake<K>]) -> Vec<Option<usize>> {
    let mut of_problem: HashMap<&Problem, Vec<usize>> = HashMap::new();
    for (place, problem) in problems.iter().enumerate().rev() {
        of_problem.entry(problem).or_default().push(place);
    }
    let mut place = |mistake: &Mistake<K>| match mistake.kept.is_empty() {
        true => None,
        false => of_problem.get_mut(&mistake.problem)?.pop(),
    };
    mistakes.iter().map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::problem::Origin;

    fn mistake(about: About<String>) -> Mistake<String> {
        Mistake::new(about, Problem::error(Origin::command_line(), "wrong", "correct it"))
    }

    fn after(
        rows: &[&str],
        abouts: Vec<About<String>>,
        before: &[&str],
    ) -> (Vec<String>, Vec<Mistake<String>>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let (mut rows, mut mistakes) = (owned(rows), abouts.into_iter().map(mistake).collect::<Vec<_>>());
        keep(&mut rows, &mut mistakes, &mut [], &owned(before), |row| row);
        (rows, mistakes)
    }

    #[test]
    fn the_row_that_is_wrong_stays_and_one_that_was_left_out_goes() {
        let (rows, mistakes) = after(&["a"], vec![About::Row("b".into())], &["a", "b", "c"]);
        assert_eq!(rows, ["a", "b"]);
        assert_eq!(mistakes[0].kept, ["b"]);
        let expected = "correct it; until then the earlier version of b is in force";
        assert_eq!(mistakes[0].problem.advice, expected);
    }

    #[test]
    fn where_it_cannot_be_told_whose_row_is_wrong_all_that_are_missing_stay() {
        for about in [About::SomeRow, About::File] {
            let (rows, mistakes) = after(&["a"], vec![about], &["a", "b", "c", "d", "e", "f"]);
            assert_eq!(rows, ["a", "b", "c", "d", "e", "f"]);
            assert!(mistakes[0].problem.advice.contains("b, c, d (and 2 more)"), "{:?}", mistakes[0]);
        }
        let (rows, mistakes) = after(&["a"], vec![About::File], &[]);
        assert_eq!((rows.len(), mistakes[0].problem.advice.as_str()), (1, "correct it"));
    }

    proptest! {
        #[test]
        fn nothing_is_in_force_that_was_neither_written_now_nor_before_and_nothing_twice(
            now in proptest::collection::btree_set(0..8_u8, 0..8),
            before in proptest::collection::btree_set(0..8_u8, 0..8),
            wrong in proptest::collection::vec(proptest::option::of(0..8_u8), 0..4),
        ) {
            let text = |number: &u8| number.to_string();
            let mut rows: Vec<String> = now.iter().map(text).collect();
            let earlier: Vec<String> = before.iter().map(text).collect();
            let about = |number: &Option<u8>| number.map_or(About::SomeRow, |number| About::Row(text(&number)));
            let mut mistakes: Vec<_> = wrong.iter().map(|number| mistake(about(number))).collect();
            keep(&mut rows, &mut mistakes, &mut [], &earlier, |row| row);
            let in_force: std::collections::BTreeSet<u8> =
                rows.iter().map(|row| row.parse().expect("a number")).collect();
            prop_assert_eq!(in_force.len(), rows.len());
            prop_assert!(in_force.is_superset(&now));
            for kept in in_force.difference(&now) {
                prop_assert!(before.contains(kept));
                prop_assert!(wrong.contains(&None) || wrong.contains(&Some(*kept)));
            }
            for number in wrong.iter().flatten().filter(|number| before.contains(number)) {
                prop_assert!(in_force.contains(number), "a mistake took {} away", number);
            }
        }
    }
}

//! What is remembered of cgroups that have gone.

use std::collections::{BTreeMap, BTreeSet};

/// Of so many cgroups that have gone it is remembered what was taken from them, and how they were held back.
const GONE_MAX: usize = 1_024;

/// Whoever makes cgroups without number has nobody's memory grow: beyond some, those that have gone are forgotten.
pub(super) fn forget_gone<T>(by_path: &mut BTreeMap<String, T>, there: &BTreeSet<String>) {
    if by_path.len() > there.len() + GONE_MAX {
        by_path.retain(|path, _| there.contains(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_cgroups_that_have_gone_no_more_than_some_are_remembered() {
        let there: BTreeSet<String> = ["steward.a".to_owned()].into();
        let mut taken_bytes = BTreeMap::from([("steward.a".to_owned(), 7)]);
        for made in 0..10 * GONE_MAX {
            taken_bytes.insert(format!("user.slice/{made}"), 1);
            forget_gone(&mut taken_bytes, &there);
            assert!(taken_bytes.len() <= GONE_MAX + 1 && taken_bytes["steward.a"] == 7);
        }
    }
}

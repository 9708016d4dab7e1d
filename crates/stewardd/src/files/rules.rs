//! Reads the directories of rules about who may ask for what.
//!
//! What a file means is decided in `steward_core::authority`, which file counts in `steward_core::spec`. A file with a
//! mistake in it counts as it was before; whatever was never read without one gives nobody more than the shipped rules
//! do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use steward_core::accounts::Accounts;
use steward_core::authority::{DEFAULT_FILE_NAME, Matrix, ParsedRules, Rule, parse_rules};
use steward_core::problem::Problem;
use steward_kernel::files;

use crate::files::directory::{files_in, name_of, unreadable_file};

/// Where rules are, lowest precedence first.
pub const DIRECTORIES: [&str; 3] =
    ["/usr/lib/steward/authority", "/run/steward/authority", "/etc/steward/authority"];
/// The rules of files that had no mistake when they were read last, by the files' names. Whole files: a rule has
/// nothing that it could be known by from one version to the next, and the others of its file may mean something else
/// without it.
pub type LastGood = BTreeMap<String, Vec<Rule>>;

/// Reads everything. The shipped rules are built in too: where no directory has a file of their name, those count. A
/// file with a mistake counts as it was in `last_good`, which is brought up to date.
pub fn load(
    directories: &[PathBuf],
    accounts: &dyn Accounts,
    last_good: &mut LastGood,
) -> (Matrix, Vec<Problem>) {
    let mut problems = Vec::new();
    let files = files_in(directories, &mut problems);
    let mut parsed: Vec<ParsedRules> = vec![ParsedRules { rules: Vec::new(), problems: problems.clone() }];
    let mut good = LastGood::new();
    if !files.iter().any(|file| name_of(file) == DEFAULT_FILE_NAME) {
        let rules = Matrix::shipped().rules().to_vec();
        good.insert(DEFAULT_FILE_NAME.to_owned(), rules.clone());
        parsed.push(ParsedRules { rules, problems: Vec::new() });
    }
    for file in &files {
        let name = name_of(file);
        let mut new = read(file, accounts);
        if !new.problems.is_empty()
            && let Some(rules) = last_good.get(&name)
        {
            problems.extend(new.problems.into_iter().map(stays_as_it_was));
            new = ParsedRules { rules: rules.clone(), problems: Vec::new() };
        }
        problems.extend(new.problems.iter().cloned());
        if new.problems.is_empty() {
            good.insert(name, new.rules.clone());
        }
        parsed.push(new);
    }
    *last_good = good;
    (Matrix::of(parsed), problems)
}

/// The problem of a file that counts as it was before.
pub(crate) fn stays_as_it_was(problem: Problem) -> Problem {
    let advice = problem.advice.split("; until then").next().unwrap_or_default();
    let advice = format!("{advice}; until then the earlier version of this file is in force");
    Problem { advice, ..problem }
}

fn read(file: &Path, accounts: &dyn Accounts) -> ParsedRules {
    match files::read_text(file) {
        Ok(text) => parse_rules(file, &text, accounts),
        Err(error) => ParsedRules { rules: Vec::new(), problems: vec![unreadable_file(&error)] },
    }
}

#[cfg(test)]
mod tests {
    use steward_core::authority::{Action, Identity, Policy, Refusal, Request, Target};

    use super::*;
    use crate::files::accounts::AccountFiles;

    const EVERYONE: &str =
        "[[rule]]\nwho = \"everyone\"\naction = \"reserve\"\nof = \"anyone\"\nverdict = \"allow\"\n";

    fn policy(directories: &[PathBuf]) -> (Policy, Vec<Problem>) {
        let (matrix, problems) = load(directories, &AccountFiles::default(), &mut LastGood::new());
        (Policy { owner_uid: None, matrix }, problems)
    }

    fn may(policy: &Policy, uid: u32, action: Action, target: Target) -> Result<(), Refusal> {
        policy.permit(&Identity::of_user(uid), &Request::of_all(action, target, "it")).map(drop)
    }

    #[test]
    fn a_file_adds_to_the_built_in_rules_and_one_of_their_name_replaces_them() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directories = ["usr", "run", "etc"].map(|name| place.path().join(name)).to_vec();
        assert_eq!(policy(&directories), (Policy::default(), vec![]));
        std::fs::create_dir(&directories[2]).expect("created");
        std::fs::write(directories[2].join("50-own.toml"), EVERYONE).expect("written");
        let (added, _) = policy(&directories);
        assert_eq!(may(&added, 1001, Action::Reserve, Target::Others), Ok(()));
        assert_eq!(may(&added, 1001, Action::Limit, Target::Own), Ok(()));
        std::fs::write(directories[2].join(DEFAULT_FILE_NAME), "").expect("written");
        let (replaced, problems) = policy(&directories);
        assert_eq!(may(&replaced, 1001, Action::Reserve, Target::Others), Ok(()));
        assert!(may(&replaced, 1001, Action::Limit, Target::Own).is_err() && problems.is_empty());
    }

    #[test]
    fn a_file_with_a_mistake_counts_as_it_was_until_it_is_corrected_or_gone() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let (directories, mut last) = ([place.path().to_owned()], LastGood::new());
        let file = place.path().join("50-own.toml");
        let mut after = |text: Option<&str>| {
            text.map_or_else(|| std::fs::remove_file(&file), |text| std::fs::write(&file, text))
                .expect("changed");
            let (matrix, problems) = load(&directories, &AccountFiles::default(), &mut last);
            let policy = Policy { owner_uid: None, matrix };
            (may(&policy, 1001, Action::Reserve, Target::Others).is_ok(), problems)
        };
        assert_eq!(after(Some(EVERYONE)), (true, vec![]));
        for wrong in [format!("{EVERYONE}verdikt = 1\n"), "[[rule".to_owned()] {
            let (allowed, problems) = after(Some(&wrong));
            assert!(allowed, "{wrong}");
            assert!(problems[0].advice.ends_with("the earlier version of this file is in force"));
        }
        let denies = EVERYONE.replace("\"allow\"", "\"deny\"");
        assert!(after(Some(&format!("{EVERYONE}{denies}verdikt = 1\n"))).0, "half of a new version counts");
        assert_eq!(after(Some(&format!("{EVERYONE}{denies}"))), (false, vec![]));
        assert_eq!(after(None), (false, vec![]));
        let (allowed, problems) = after(Some(&format!("{EVERYONE}[[rule]]\n")));
        assert!(!allowed && !problems.is_empty(), "what never was right gives nobody more");
    }

    #[test]
    fn what_cannot_be_read_gives_nobody_more() {
        let place = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(place.path().join("50-own.toml"), EVERYONE).expect("written");
        std::os::unix::fs::symlink("/no such file", place.path().join("60-lost.toml")).expect("linked");
        let (policy, problems) = policy(&[place.path().to_owned()]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("60-lost.toml: cannot be read"), "{}", problems[0]);
        assert!(may(&policy, 1001, Action::Reserve, Target::Others).is_err());
        assert_eq!(may(&policy, 0, Action::Reserve, Target::Others), Ok(()));
        assert_eq!(may(&policy, 1001, Action::Read, Target::Others), Ok(()));
    }
}

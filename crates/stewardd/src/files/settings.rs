//! The daemon's configuration file and its rules about who may ask for what, read and resolved.

use std::path::{Path, PathBuf};

use steward_core::accounts::Accounts;
use steward_core::authority::Policy;
use steward_core::config::{self, Config, Owner};
use steward_core::problem::{Origin, Problem};
use steward_kernel::files;

use crate::files::accounts::{AccountFiles, PASSWD};
use crate::files::rules::{self, stays_as_it_was};

/// What the configuration says.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// As written.
    pub config: Config,
    /// Who may do what.
    pub policy: Policy,
    /// What is wrong in the file.
    pub problems: Vec<Problem>,
}

/// What is in force of a file with a mistake in it.
#[derive(Debug, Default)]
pub struct LastGood {
    /// The configuration and the owner's number.
    configuration: Option<(Config, Option<u32>)>,
    rules: rules::LastGood,
}

/// Reads the configuration and the rules in these directories (lowest precedence first); what is not there gives the
/// defaults. A file with a mistake counts as it was in `last_good`, which is brought up to date.
pub fn load(file: &Path, rule_directories: &[PathBuf], last_good: &mut LastGood) -> Settings {
    let accounts = AccountFiles::read();
    let mut settings = load_configuration(file, &accounts);
    if settings.problems.is_empty() {
        last_good.configuration = Some((settings.config.clone(), settings.policy.owner_uid));
    } else if let Some((config, owner_uid)) = &last_good.configuration {
        settings.config = config.clone();
        settings.policy.owner_uid = *owner_uid;
        settings.problems = settings.problems.into_iter().map(stays_as_it_was).collect();
    }
    let (matrix, problems) = rules::load(rule_directories, &accounts, &mut last_good.rules);
    settings.policy.matrix = matrix;
    settings.problems.extend(problems);
    settings
}

fn load_configuration(file: &Path, accounts: &dyn Accounts) -> Settings {
    let text = match files::read_text(file) {
        Ok(text) => text,
        Err(error) if error.is_absent() => String::new(),
        Err(error) => {
            let advice = format!("{}; until then the defaults are in force", error.advice());
            let problem = Problem::error(Origin::at(file, 0), error.what(), advice);
            return Settings { problems: vec![problem], ..Settings::default() };
        }
    };
    let (config, mut problems) = config::parse_config(file, &text);
    let owner_uid = match &config.owner {
        None => None,
        Some(Owner::Uid(uid)) => Some(*uid),
        Some(Owner::Name(name)) => {
            let uid = accounts.uid_of(name);
            if uid.is_none() {
                problems.push(Problem::error(
                    Origin::at(file, 0),
                    format!("owner = \"{name}\": {PASSWD} has no such user"),
                    "correct the name, or write the user's number; until then only root may reserve",
                ));
            }
            uid
        }
    };
    Settings { config, policy: Policy { owner_uid, ..Policy::default() }, problems }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_gives_the_defaults_and_an_unknown_owner_is_a_problem() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("steward.toml");
        let load = |last: &mut LastGood| load(&file, &[], last);
        assert!(load(&mut LastGood::default()).problems.is_empty());
        std::fs::write(&file, "owner = \"no such user\"\n").expect("written");
        let settings = load(&mut LastGood::default());
        assert_eq!(settings.policy.owner_uid, None);
        assert!(settings.problems[0].to_string().contains("only root may reserve"));
    }

    #[test]
    fn a_mistake_changes_nothing_once_the_file_was_right() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("steward.toml");
        let mut last = LastGood::default();
        let mut after = |text: &str| {
            std::fs::write(&file, text).expect("written");
            let settings = load(&file, &[], &mut last);
            let limit = settings.config.cpu.reservable;
            (settings.policy.owner_uid, limit, settings.problems)
        };
        assert_eq!(after("owner = 7\n[cpu]\nreservable = 0.5\n"), (Some(7), 0.5, vec![]));
        for wrong in ["owner = 8\n[domains]\ncpu_limt = 0.6\n", "owner = \n", "owner = \"no such user\"\n"] {
            let (owner, limit, problems) = after(wrong);
            assert_eq!((owner, limit), (Some(7), 0.5), "{wrong}");
            assert!(problems[0].advice.ends_with("the earlier version of this file is in force"));
        }
        assert_eq!(after("owner = 8\n"), (Some(8), Config::default().cpu.reservable, vec![]));
    }
}

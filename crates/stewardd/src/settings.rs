//! The daemon's configuration file and its rules about who may ask for what, read and resolved.

use std::path::{Path, PathBuf};

use steward_core::authority::{Accounts, Policy};
use steward_core::config::{self, Config, Owner};
use steward_core::problem::{Origin, Problem};
use steward_kernel::files;

use crate::rules::{self, AccountFiles, PASSWD};

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

/// Reads the configuration and the rules in these directories (lowest precedence first); what is not there gives the
/// defaults.
pub fn load(file: &Path, rule_directories: &[PathBuf]) -> Settings {
    let accounts = AccountFiles::read();
    let mut settings = load_configuration(file, &accounts);
    let (matrix, problems) = rules::load(rule_directories, &accounts);
    settings.policy.matrix = matrix;
    settings.problems.extend(problems);
    settings
}

fn load_configuration(file: &Path, accounts: &dyn Accounts) -> Settings {
    let text = match files::read_text(file) {
        Ok(text) => text,
        Err(error) if error.is_absent() => String::new(),
        Err(error) => {
            let advice = format!("{}; the defaults are in force", error.advice());
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
        assert!(load(&file, &[]).problems.is_empty());
        std::fs::write(&file, "owner = \"no such user\"\n").expect("written");
        let settings = load(&file, &[]);
        assert_eq!(settings.policy.owner_uid, None);
        assert!(settings.problems[0].to_string().contains("only root may reserve"));
    }
}

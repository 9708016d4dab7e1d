//! The daemon's configuration file, read and resolved.

use std::io::ErrorKind;
use std::path::Path;

use steward_core::authority::Policy;
use steward_core::config::{self, Config, Owner};
use steward_core::problem::{Origin, Problem};

/// Where users are looked up.
const PASSWD: &str = "/etc/passwd";

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

/// Reads the configuration; a file that is not there gives the defaults.
pub fn load(file: &Path) -> Settings {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => {
            let problem = Problem::error(
                Origin::at(file, 0),
                format!("cannot be read: {error}"),
                "correct its permissions; the defaults are in force",
            );
            return Settings { problems: vec![problem], ..Settings::default() };
        }
    };
    let (config, mut problems) = config::parse_config(file, &text);
    let owner_uid = match &config.owner {
        None => None,
        Some(Owner::Uid(uid)) => Some(*uid),
        Some(Owner::Name(name)) => {
            let uid = uid_of(name, &std::fs::read_to_string(PASSWD).unwrap_or_default());
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
    Settings { config, policy: Policy { owner_uid }, problems }
}

/// The number of a user, from text in the form of passwd(5). Users of a directory service are not in that file;
/// their number can be written in the configuration.
fn uid_of(name: &str, passwd: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbroken\n";
        assert_eq!(uid_of("alice", passwd), Some(1000));
        assert_eq!(uid_of("ali", passwd), None);
        assert_eq!(uid_of("broken", passwd), None);
    }

    #[test]
    fn a_missing_file_gives_the_defaults_and_an_unknown_owner_is_a_problem() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("steward.toml");
        assert!(load(&file).problems.is_empty());
        std::fs::write(&file, "owner = \"no such user\"\n").expect("written");
        let settings = load(&file);
        assert_eq!(settings.policy.owner_uid, None);
        assert!(settings.problems[0].to_string().contains("only root may reserve"));
    }
}

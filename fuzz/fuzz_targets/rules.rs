//! Rules about who may ask for what, and the configuration: every row stands or is reported, and with anything wrong in
//! the file nobody may do more than by the shipped rules.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use steward_core::accounts::Accounts;
use steward_core::authority::{Action, Identity, Matrix, Policy, Request, Target, Verdict, decide, parse_rules};
use steward_core::config::parse_config;

struct Nobody;

impl Accounts for Nobody {
    fn uid_of(&self, _: &str) -> Option<u32> {
        None
    }
    fn gid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

fuzz_target!(|text: &str| {
    parse_config(Path::new("steward.toml"), text);
    let parsed = parse_rules(Path::new("50-fuzz.toml"), text, &Nobody);
    let is_broken = !parsed.problems.is_empty();
    let policy = |matrix| Policy { owner_uid: Some(1000), matrix };
    let (read, shipped) = (policy(Matrix::of(vec![parsed])), policy(Matrix::default()));
    for uid in [0, 1000, 1001] {
        for action in Action::ALL {
            for target in Target::ALL {
                let caller = Identity { gids: vec![uid, 29], ..Identity::of_user(uid) };
                let request = Request::of_all(action, target, "it");
                let more = !is_denied(&decide(&read, &caller, &request));
                let may_by_default = !is_denied(&decide(&shipped, &caller, &request));
                assert!(!is_broken || !more || may_by_default, "{uid} {action:?} {target:?}");
            }
        }
    }
});

fn is_denied(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Deny(_))
}

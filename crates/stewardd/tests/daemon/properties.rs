//! What holds whatever clients send: an answer to everything, no level of the tree overcommitted, and nobody but root
//! and the owner gets what others pay for. `make fuzz` looks further with the same questions.

use std::sync::atomic::Ordering;

use crate::common::{Machine, Running};
use libsteward::wire::Call;
use libsteward::{Error, api};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const METHODS: [&str; 9] = [
    "io.steward.CreateDomain",
    "io.steward.SetDomain",
    "io.steward.RemoveDomain",
    "io.steward.MoveProcess",
    "io.steward.SetMemory",
    "io.steward.ShowDomain",
    "io.steward.Run",
    "io.steward.Complain",
    "io.steward.Set",
];
const NAMES: [&str; 9] = ["a", "b", "a/b", "a/b/c", "..", "", "/", "user.slice/user-1001.slice", "a//b"];
const KEYS: [&str; 9] =
    ["domain", "settings", "cpu", "weight", "user", "keep", "kill", "budget_ns", "missed"];
const USERS: [u32; 4] = [0, 1000, 1001, 1002];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_i64..=10_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0.0..=1.2_f64).prop_map(Value::from),
        proptest::sample::select(&NAMES).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any_key(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![proptest::sample::select(&KEYS).prop_map(str::to_owned), "[a-z_]{0,8}"]
}

/// Calls that are nearly right, so that they get far.
fn any_call() -> impl Strategy<Value = Call> {
    let name = proptest::sample::select(&NAMES);
    let fraction = prop_oneof![Just(None), (0.0..=1.1_f64).prop_map(Some)];
    let user = proptest::option::of(proptest::sample::select(&USERS));
    let extra = proptest::collection::btree_map(any_key(), any_value(), 0..2);
    (proptest::sample::select(&METHODS), name, fraction, user, extra).prop_map(
        |(method, name, cpu, user, extra)| {
            let mut parameters = match json!({ "domain": name, "settings": { "cpu": cpu }, "user": user }) {
                Value::Object(parameters) => parameters,
                _ => Map::new(),
            };
            if !matches!(method, "io.steward.CreateDomain" | "io.steward.SetDomain") {
                parameters.retain(|key, _| key == "domain");
            }
            parameters.extend(extra);
            Call { method: method.to_owned(), parameters, ..Call::default() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_is_answered_and_nothing_is_overcommitted(
        calls in proptest::collection::vec((proptest::sample::select(&USERS), any_call()), 1..40)
    ) {
        let machine = Machine::new();
        let daemon = machine.start();
        for (uid, call) in calls {
            machine.caller_uid.store(uid, Ordering::SeqCst);
            let before = domains(&daemon);
            let text = format!("{uid} {call:?}");
            match daemon.client().call_by_name(&call.method, call.parameters.clone()) {
                Ok(_) | Err(Error::Api(_)) => {}
                Err(error) => prop_assert!(false, "{text}: {error}"),
            }
            let after = domains(&daemon);
            check_levels(&after)?;
            for domain in after.iter().filter(|_| uid > 1000) {
                let old = before.iter().find(|known| known.name == domain.name).and_then(|known| known.cpu);
                let paid_by_own = before.iter().any(|above| {
                    above.user == uid && domain.name.starts_with(&format!("{}/", above.name))
                });
                prop_assert!(paid_by_own || domain.cpu <= old, "{text} gave {domain:?}");
            }
        }
    }
}

fn domains(daemon: &Running) -> Vec<api::Domain> {
    daemon.client().call(&api::ListDomains {}).expect("everyone may read").domains
}

fn check_levels(domains: &[api::Domain]) -> Result<(), TestCaseError> {
    for parent in domains {
        let children = domains.iter().filter(|domain| domain.parent.as_ref() == Some(&parent.name));
        let reserved: f64 = children.filter_map(|domain| domain.cpu).sum();
        prop_assert!(
            reserved <= parent.cpu_reservable + 1e-9,
            "{} has {reserved} reserved: {domains:?}",
            parent.name
        );
    }
    Ok(())
}

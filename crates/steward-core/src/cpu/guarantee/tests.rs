//! Guarantees, by example and as properties.

use proptest::prelude::*;

use super::*;
use crate::domain::name::Names;
use crate::domain::settings::Settings;
use crate::domain::tree::Machine;

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

fn reserved(cpu: f64) -> Node {
    Node { settings: settings(|settings| settings.cpu.reserved = Some(cpu)), ..Node::default() }
}

fn weighted(weight: u32) -> Node {
    Node { settings: settings(|settings| settings.common.weight = Some(weight)), ..Node::default() }
}

fn tree(domains: &[(&str, Node)]) -> Tree {
    let mut tree = Tree::new(Names::default(), Machine::default());
    for (path, node) in domains {
        tree.insert(path, node.clone());
    }
    tree
}

#[test]
fn a_guarantee_is_the_product_of_reservations_and_shares_up_to_the_root() {
    let mut tree = tree(&[
        ("a", reserved(0.5)),
        ("b", Node::default()),
        ("a/x", weighted(300)),
        ("a/y", weighted(100)),
        ("a/x/deep", reserved(0.2)),
    ]);
    tree.insert("", Node::default());
    let guarantees = tree.guarantees();
    let about = |path: &str, expected: f64| {
        assert!((guarantees[path] - expected).abs() < 1e-9, "{path}: {guarantees:?}");
    };
    about("a", 0.75);
    about("b", 0.25);
    about("a/x", 0.75 * 0.75);
    about("a/y", 0.75 * 0.25);
    about("a/x/deep", 0.75 * 0.75);
}

#[test]
fn a_lower_priority_is_guaranteed_its_reservation_only() {
    let low = |mut node: Node| {
        node.settings.common.priority = 1;
        node
    };
    let mut tree = tree(&[("a", Node::default()), ("b", low(reserved(0.1))), ("c", low(Node::default()))]);
    tree.insert("", Node::default());
    let guarantees = tree.guarantees();
    assert!((guarantees["b"] - 0.1).abs() < 1e-9 && guarantees["c"] == 0.0, "{guarantees:?}");
    assert!((guarantees["a"] - 0.9).abs() < 1e-9);
}

#[test]
fn beside_tasks_of_the_parents_own_that_weigh_what_they_weigh_only_reservations_are_sure() {
    let mut tree = tree(&[("a", reserved(0.3)), ("b", Node::default())]);
    assert_eq!((tree.guarantees()["a"], tree.guarantees()["b"]), (0.3, 0.0));
    let settings = settings(|settings| settings.common.own_weight = Some(200));
    tree.insert("", Node { settings, has_own_tasks: true, ..Node::default() });
    let guarantees = tree.guarantees();
    assert!(
        (guarantees["a"] - 0.475).abs() < 1e-9 && (guarantees["b"] - 0.175).abs() < 1e-9,
        "{guarantees:?}"
    );
}

/// Reservations: which domain of a small tree, and what it asks for.
fn reservations() -> impl Strategy<Value = Vec<(usize, f64)>> {
    prop::collection::vec((0..PATHS.len(), 0.0001..1.0f64), 0..40)
}

const PATHS: [&str; 9] = [
    "steward.a",
    "steward.b",
    "steward.c",
    "steward.a/x",
    "steward.a/y",
    "steward.a/x/deep",
    "user.slice",
    "user.slice/user-1.slice",
    "system.slice",
];

proptest! {
    #[test]
    fn each_gets_what_it_reserved_and_nobody_what_others_are_promised(reservations in reservations()) {
        let mut tree = tree(&[]);
        for path in PATHS {
            tree.insert(path, Node::default());
        }
        for (index, cpu) in reservations {
            let settings = settings(|settings| settings.cpu.reserved = Some(cpu));
            if tree.admit(PATHS[index], &settings).is_ok() {
                tree.insert(PATHS[index], Node { settings, ..Node::default() });
            }
        }
        let guarantees = tree.guarantees();
        let factors = tree.factors();
        let paths: Vec<&String> = tree.iter().map(|(path, _)| path).collect();
        let place_of = |path: &str| paths.iter().position(|other| *other == path);
        let listed: Vec<(Option<usize>, Node)> = tree
            .iter()
            .map(|(path, node)| (name::parent_of(path).and_then(place_of), node.clone()))
            .collect();
        prop_assert_eq!(guarantees_of(&listed), guarantees.values().copied().collect::<Vec<_>>());
        for (path, node) in tree.iter().filter(|(path, _)| !path.is_empty()) {
            // Each gets at least what it reserved of whoever pays for it.
            let above = guarantees[name::parent_of(path).expect("not the root")];
            let least = above * node.settings.cpu.reserved.unwrap_or(0.0);
            prop_assert!(guarantees[path] >= least - 1e-6, "{path}: {} < {least}", guarantees[path]);
            prop_assert!(factors[path] <= 1.0 + 1e-6, "{path}: {factors:?}");
        }
        // Nobody is promised what others are promised too.
        for path in ["", "steward.a", "steward.a/x", "user.slice"] {
            let sum: f64 = tree.paid_by(path).map(|(child, _)| guarantees[child]).sum();
            prop_assert!(sum <= guarantees[path] + 1e-6, "{path}: {sum} of {}", guarantees[path]);
        }
    }

    #[test]
    fn raising_a_weight_or_a_reservation_never_lowers_the_guarantee(weights in prop::collection::vec(1u32..10_000, 3), more in 1u32..5_000) {
        let names = ["a", "b", "c"];
        let build = |weights: &[u32]| {
            let domains: Vec<(&str, Node)> =
                names.iter().zip(weights).map(|(name, weight)| (*name, weighted(*weight))).collect();
            tree(&domains).guarantees()["a"]
        };
        let mut raised = weights.clone();
        raised[0] = (raised[0] + more).min(10_000);
        prop_assert!(build(&raised) >= build(&weights) - 1e-12);
    }
}

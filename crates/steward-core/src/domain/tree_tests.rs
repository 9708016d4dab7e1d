//! Admission and guarantees, by example and as properties.

use proptest::prelude::*;

use super::super::name::Names;
use super::*;

fn reserved(cpu: f64) -> Node {
    Node { settings: Settings { cpu: Some(cpu), ..Settings::default() }, ..Node::default() }
}

fn weighted(weight: u32) -> Node {
    Node { settings: Settings { weight: Some(weight), ..Settings::default() }, ..Node::default() }
}

fn tree(domains: &[(&str, Node)]) -> Tree {
    let mut tree = Tree::new(Names::default(), ROOT_LIMIT);
    for (path, node) in domains {
        tree.insert(path, node.clone());
    }
    tree
}

fn asks(cpu: f64) -> Settings {
    Settings { cpu: Some(cpu), ..Settings::default() }
}

#[test]
fn a_level_cannot_reserve_more_than_its_parent_has() {
    let tree = tree(&[("steward.a", reserved(0.6)), ("user.slice", reserved(0.2))]);
    assert_eq!(tree.admit("steward.b", &asks(0.15)), Ok(()));
    let refusal = tree.admit("steward.b", &asks(0.2)).expect_err("only 15 % are left");
    assert!((refusal.reserved - 0.8).abs() < 1e-9 && refusal.limit == 0.95 && refusal.asked == 0.2);
    let expected = "b cannot have 20 % of the CPU of the machine: other domains have 80 % of it, at most 95 % may be \
                    reserved, so 15 % is left (a 60 %, user.slice 20 %); ask for less, or lower one of those";
    assert_eq!(refusal.reason, expected);
}

#[test]
fn what_a_domain_has_already_counts_once() {
    let tree = tree(&[("steward.a", reserved(0.6)), ("steward.b", reserved(0.3))]);
    assert_eq!(tree.admit("steward.a", &asks(0.65)), Ok(()));
    assert!(tree.admit("steward.a", &asks(0.66)).is_err());
    assert_eq!(tree.admit("steward.a", &asks(0.1)), Ok(()), "less is always admitted");
}

#[test]
fn below_a_domain_all_of_it_or_its_limit_can_be_reserved() {
    let mut tree = tree(&[("steward.a", reserved(0.5)), ("steward.a/x", reserved(0.7))]);
    assert_eq!(tree.admit("steward.a/y", &asks(0.3)), Ok(()));
    assert!(tree.admit("steward.a/y", &asks(0.31)).is_err());
    let limited = Settings { cpu_limit: Some(0.8), ..asks(0.5) };
    assert_eq!(tree.admit("steward.a", &limited), Ok(()));
    tree.insert("steward.a", Node { settings: limited, ..Node::default() });
    assert!(tree.admit("steward.a/y", &asks(0.2)).is_err());
    let too_low = Settings { cpu_limit: Some(0.6), ..asks(0.5) };
    let refusal = tree.admit("steward.a", &too_low).expect_err("70 % are reserved below");
    assert!(refusal.reason.contains("its children have reserved 70 %"), "{refusal}");
}

#[test]
fn the_disk_is_counted_by_itself() {
    let disk = |disk| Settings { disk: Some(disk), ..Settings::default() };
    let tree = tree(&[("steward.a", Node { settings: disk(0.9), ..reserved(0.0) })]);
    assert_eq!(tree.admit("steward.b", &asks(0.9)), Ok(()));
    assert!(tree.admit("steward.b", &disk(0.2)).expect_err("90 % are taken").reason.contains("disk time"));
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
    let low = |node: Node| Node { settings: Settings { priority: 1, ..node.settings }, ..node };
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
    let settings = Settings { own_weight: Some(200), ..Settings::default() };
    tree.insert("", Node { settings, has_own_tasks: true, ..Node::default() });
    let guarantees = tree.guarantees();
    assert!(
        (guarantees["a"] - 0.475).abs() < 1e-9 && (guarantees["b"] - 0.175).abs() < 1e-9,
        "{guarantees:?}"
    );
}

/// A request: which domain of a small tree, and what it asks for.
fn requests() -> impl Strategy<Value = Vec<(usize, f64, Option<f64>)>> {
    prop::collection::vec((0..PATHS.len(), 0.0001..1.0f64, prop::option::of(0.1..1.0f64)), 0..40)
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
    fn no_sequence_of_requests_overcommits_a_level(requests in requests()) {
        let mut tree = tree(&[]);
        for path in PATHS {
            tree.insert(path, Node::default());
        }
        for (index, cpu, cpu_limit) in requests {
            let settings = Settings { cpu: Some(cpu), cpu_limit, ..Settings::default() };
            let before = tree.clone();
            match tree.admit(PATHS[index], &settings) {
                Ok(()) => tree.insert(PATHS[index], Node { settings, ..Node::default() }),
                Err(refusal) => {
                    let left = refusal.limit - refusal.reserved;
                    prop_assert!(refusal.asked > left - 1e-6, "{refusal}");
                }
            }
            for path in PATHS.into_iter().chain([""]) {
                let sum = tree.reserved_below(path, Resource::Cpu);
                prop_assert!(sum <= tree.limit(path, Resource::Cpu) + 1e-6, "{path}: {sum} in {before:?}");
            }
        }
        let guarantees = tree.guarantees();
        let factors = tree.factors();
        for (path, node) in tree.iter().filter(|(path, _)| !path.is_empty()) {
            // Each gets at least what it reserved of whoever pays for it.
            let above = guarantees[name::parent_of(path).expect("not the root")];
            let least = above * node.settings.cpu.unwrap_or(0.0);
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

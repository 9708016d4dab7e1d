//! Admission, by example and as a property.

use proptest::prelude::*;

use super::super::name::Names;
use super::super::tree::{Machine, Node, ROOT_LIMIT};
use super::*;

/// A machine of which a gibibyte may be promised.
const MACHINE: Machine = Machine {
    cpu: ROOT_LIMIT,
    memory_bytes: 1 << 30,
    memory_part: 1.0,
    memory_of_others_bytes: 0,
    disk: ROOT_LIMIT,
};

fn reserved(cpu: f64) -> Node {
    Node { settings: asks(cpu), ..Node::default() }
}

fn tree(domains: &[(&str, Node)]) -> Tree {
    let mut tree = Tree::new(Names::default(), MACHINE);
    for (path, node) in domains {
        tree.insert(path, node.clone());
    }
    tree
}

fn asks(cpu: f64) -> Settings {
    let mut settings = Settings::default();
    settings.cpu.reserved = Some(cpu);
    settings
}

fn asks_memory(mib: u64) -> Settings {
    let mut settings = Settings::default();
    settings.memory.min_bytes = Some(mib << 20);
    settings
}

#[test]
fn what_others_promise_of_the_memory_is_not_promised_again_and_is_named() {
    let machine = Machine { memory_part: 0.8, ..MACHINE }.with_memory(1000 << 20, 300 << 20);
    assert_eq!(machine.memory_bytes, 500 << 20);
    let tree = Tree::new(Names::default(), machine);
    assert!(tree.admit("steward.a", &asks_memory(500)).is_ok());
    let refusal = tree.admit("steward.a", &asks_memory(501)).expect_err("there is no room");
    let expected = "at most 500M may be reserved (beside 300M that others promise with memory.min, as systemd's MemoryMin=)";
    assert!(refusal.reason.contains(expected), "{refusal}");
    let none = machine.with_memory(100 << 20, 300 << 20);
    assert_eq!(none.memory_bytes, 0);
}

fn limited(limit: f64, cpu: f64) -> Settings {
    let mut settings = asks(cpu);
    settings.cpu.reservable = Some(limit);
    settings
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
    let limit = limited(0.8, 0.5);
    assert_eq!(tree.admit("steward.a", &limit), Ok(()));
    tree.insert("steward.a", Node { settings: limit, ..Node::default() });
    assert!(tree.admit("steward.a/y", &asks(0.2)).is_err());
    let too_low = limited(0.6, 0.5);
    let refusal = tree.admit("steward.a", &too_low).expect_err("70 % are reserved below");
    assert!(refusal.reason.contains("its children have reserved 70 %"), "{refusal}");
}

#[test]
fn the_disk_is_counted_by_itself() {
    let disk = |disk| {
        let mut settings = Settings::default();
        settings.disk.reserved = Some(disk);
        settings
    };
    let tree = tree(&[("steward.a", Node { settings: disk(0.9), ..reserved(0.0) })]);
    assert_eq!(tree.admit("steward.b", &asks(0.9)), Ok(()));
    assert!(tree.admit("steward.b", &disk(0.2)).expect_err("90 % are taken").reason.contains("disk time"));
}

#[test]
fn memory_is_promised_out_of_what_the_payer_is_promised_and_the_machine_has() {
    let mut tree = tree(&[("steward.a", Node { settings: asks_memory(600), ..Node::default() })]);
    assert_eq!(tree.admit("steward.b", &asks_memory(424)), Ok(()));
    let refusal = tree.admit("steward.b", &asks_memory(425)).expect_err("424 MiB are left");
    assert_eq!((refusal.resource, refusal.limit), (Resource::Memory, (1 << 30) as f64));
    let expected = "b cannot have 425M of the memory of the machine: other domains have 600M of it, at most 1G may be \
                    reserved, so 424M is left (a 600M); ask for less, or lower one of those";
    assert_eq!(refusal.reason, expected);
    assert_eq!(tree.admit("steward.a/x", &asks_memory(600)), Ok(()));
    let refusal = tree.admit("steward.b/x", &asks_memory(1)).expect_err("b is promised nothing");
    assert!(refusal.reason.ends_with("ask for less, or promise b more first"), "{refusal}");
    tree.insert("steward.a/x", Node { settings: asks_memory(500), ..Node::default() });
    let refusal = tree.admit("steward.a", &asks_memory(400)).expect_err("500 MiB are promised below");
    assert!(refusal.reason.contains("its children are promised 500M"), "{refusal}");
    assert!(tree.admit("steward.a", &Settings::default()).is_err(), "none is less still");
}

proptest! {
    #[test]
    fn promises_of_memory_never_exceed_what_pays_for_them(
        requests in prop::collection::vec((0..PATHS.len(), prop::option::of(1..700_u64)), 0..40),
    ) {
        let mut tree = tree(&[]);
        for (place, mib) in requests {
            let settings = mib.map_or_else(Settings::default, asks_memory);
            if tree.admit(PATHS[place], &settings).is_ok() {
                tree.insert(PATHS[place], Node { settings, ..Node::default() });
            }
            let payers = PATHS.iter().copied().filter_map(name::parent_of);
            for payer in payers.filter(|payer| payer.is_empty() || tree.get(payer).is_some()) {
                let reserved = tree.reserved_below(payer, Resource::Memory);
                prop_assert!(reserved <= tree.limit(payer, Resource::Memory), "{payer}: {reserved}");
            }
        }
    }
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
        for (index, cpu, reservable) in requests {
            let mut settings = asks(cpu);
            settings.cpu.reservable = reservable;
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
    }
}

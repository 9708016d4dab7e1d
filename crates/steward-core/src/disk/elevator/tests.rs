//! Tests of the choice of an elevator, and of what is said of it.

use super::super::cost::{Lines, Way};
use super::*;

fn disk() -> Device {
    Device {
        name: "sda".to_owned(),
        rotational: true,
        queues: true,
        elevators: vec!["none".to_owned(), "mq-deadline".to_owned()],
        elevator: "none".to_owned(),
        requests: 2,
        depth: Some(1),
        ..Device::default()
    }
}

#[test]
fn a_slow_disk_gets_an_elevator_that_knows_classes_with_room_for_those_who_wait() {
    let order =
        |device: &Device| match choose(device, Need { first: First::Untold, weights: Weights::Unused }) {
            Choice::Order(order) => order,
            other => panic!("{other:?}"),
        };
    assert_eq!((order(&disk()).elevator, order(&disk()).requests), ("bfq", 128));
    assert_eq!(order(&Device { requests: 256, ..disk() }).requests, 256);
}

#[test]
fn weights_come_first_where_every_device_on_which_anything_does_knows_them() {
    let fast = |elevator: &str| Device { rotational: false, elevator: elevator.to_owned(), ..disk() };
    let lacking = || Device { lacks_by_class: true, ..disk() };
    for (devices, come_first) in [
        (vec![], false),
        (vec![disk()], true),
        (vec![fast("none")], false),
        (vec![disk(), fast("none")], true),
        (vec![disk(), fast("bfq")], false),
        (vec![Device { order: config::Order::Keep, elevator: "bfq".to_owned(), ..disk() }], false),
        (vec![disk(), fast("mq-deadline")], false),
        (vec![disk(), lacking()], false),
    ] {
        assert_eq!(weights_come_first(&devices, &BTreeSet::new()), come_first, "{devices:?}");
    }
    // Of what was ordered, or could not be, what it has counts.
    let settled = BTreeSet::from([(disk().name, disk().sequence)]);
    for (elevator, come_first) in [("bfq", true), ("mq-deadline", false), ("none", false)] {
        let ordered = Device { elevator: elevator.to_owned(), ..disk() };
        assert_eq!(weights_come_first(&[ordered], &settled), come_first, "{elevator}");
    }
}

#[test]
fn where_writes_can_be_told_apart_there_is_room_for_more_who_read_and_for_no_more_who_write() {
    let room = |requests, limits_writes, hardware_queues| {
        let device = Device { requests, limits_writes, hardware_queues, ..disk() };
        match choose(&device, Need { first: First::Told, weights: Weights::Unused }) {
            Choice::Order(order) => (order.requests, order.writes),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([room(2, true, 1), room(2, false, 1)], [(1024, Some(96)), (128, None)]);
    assert_eq!([room(256, true, 1), room(2000, true, 1)], [(1024, Some(96)), (2000, Some(96))]);
    // The room is made in each queue.
    assert_eq!([room(2, true, 4), room(256, true, 64)], [(1024, Some(96)), (256, Some(96))]);
    assert_eq!([room(2, true, 8), room(2, true, 64)], [(512, Some(96)), (128, Some(96))]);
    // A device without an elevator may take more than the kernel allows in one.
    assert_eq!([room(4096, true, 1), room(4096, false, 8)], [(2048, Some(96)), (2048, None)]);
}

#[test]
fn a_disk_is_kept_idle_for_who_is_served_first_in_moments_or_always_where_it_takes_one_request() {
    for (depth, first, is_strict) in [
        (Some(1), First::Untold, true),
        (Some(1), First::Told, true),
        (Some(1), First::Nobody, false),
        (Some(2), First::Untold, false),
        (Some(32), First::Told, true),
        (Some(32), First::Nobody, false),
        (None, First::Told, true),
    ] {
        for weights in [Weights::Unused, Weights::First, Weights::Parts, Weights::PartsOfOne] {
            let Choice::Order(order) = choose(&Device { depth, ..disk() }, Need { first, weights }) else {
                panic!("it can be ordered")
            };
            assert_eq!(order.tunables.contains(&("strict_guarantees", "1")), is_strict, "{depth:?}");
            assert_eq!(!order.moments.is_empty(), is_strict && first == First::Told, "{depth:?}");
            for moment in order.moments {
                // Both are of the journal's, and the last one is that of somebody who waits.
                let of_it = order.tunables.iter().filter(|(name, _)| *name == moment.name);
                let set: Vec<&str> = of_it.map(|(_, value)| *value).collect();
                assert_eq!(set.last(), Some(&moment.waiting));
                assert!(set.contains(&moment.otherwise));
            }
        }
    }
}

#[test]
fn a_disk_that_takes_several_requests_is_kept_idle_outside_of_moments_as_the_kernel_has_it() {
    for weights in [Weights::Unused, Weights::First, Weights::Parts] {
        let several = Device { depth: Some(32), ..disk() };
        let Choice::Order(order) = choose(&several, Need { first: First::Told, weights }) else {
            panic!("it can be ordered")
        };
        let names = |name: &str| order.tunables.iter().any(|(tunable, _)| *tunable == name);
        assert!(names("strict_guarantees") && !names("slice_idle_us"), "{:?}", order.tunables);
    }
}

#[test]
fn where_domains_have_parts_a_disk_waits_for_who_is_served_also_otherwise_unless_one_has_it_alone() {
    let need = |first, weights| Need { first, weights };
    let order = |first, weights| match choose(&disk(), need(first, weights)) {
        Choice::Order(order) => order,
        other => panic!("{other:?}"),
    };
    let otherwise = |weights| {
        let idle = |moment: &&Moment| moment.name == "slice_idle_us";
        order(First::Told, weights).moments.iter().find(idle).map(|moment| moment.otherwise)
    };
    assert_eq!((otherwise(Weights::Parts), otherwise(Weights::PartsOfOne)), (Some("2000"), Some("0")));
    // Nothing has to be noted for it where somebody is served first.
    let differ = |first, other| differ_in_moments(&disk(), need(first, Weights::Parts), need(first, other));
    assert!(differ(First::Told, Weights::PartsOfOne) && !differ(First::Told, Weights::Unused));
    assert!(order(First::Nobody, Weights::Parts).tunables.is_empty());
    assert_eq!(order(First::Nobody, Weights::PartsOfOne).tunables, NEVER_IDLE);
    assert!(!differ(First::Nobody, Weights::PartsOfOne));
}

#[test]
fn what_orders_nothing_or_everything_itself_is_left_alone_with_the_reason() {
    for (device, why) in [
        (Device { stands_for_others: true, ..disk() }, "hands its requests to others"),
        (Device { path_of: Some("dm-0".to_owned()), ..disk() }, "come from dm-0, where they are ordered"),
        (Device { queues: false, ..disk() }, "queues no requests"),
        (Device { rotational: false, depth: Some(1023), ..disk() }, "does not rotate"),
    ] {
        assert!(
            matches!(choose(&device, Need { first: First::Told, weights: Weights::Unused }), Choice::Leave(said) if said.contains(why)),
            "{why}"
        );
    }
}

#[test]
fn a_disk_that_says_wrongly_that_it_rotates_gets_no_elevator_once_it_is_calibrated() {
    let need = Need { first: First::Told, weights: Weights::Unused };
    // As a cloud's disk behind virtio: 0.1 ms for a request, four at a time.
    let said = Device { rotational: true, model: None, ..fast() };
    assert!(matches!(choose(&said, need), Choice::Order(_)));
    let found = Device { rotational: true, ..fast() };
    assert_eq!(choose(&found, need), Choice::Charge(fast().model.expect("it has one")));
    assert!(
        backend(&found, &InForce::default()).starts_with("nothing is set of it until a domain"),
        "{}",
        backend(&found, &InForce::default())
    );
    let way = Way { bytes_per_second: 290 << 20, sequential_per_second: 99, random_per_second: 99 };
    let slow = Device { model: Some(Model { read: way, write: way }), ..fast() };
    assert!(matches!(choose(&slow, need), Choice::Order(order) if order.elevator == BY_CLASS));
}

#[test]
fn what_the_owner_wants_of_a_disk_is_done_with_it() {
    let choice = |order, device: Device| choose(&Device { order, ..device }, Need::default());
    for device in [disk(), fast()] {
        let Choice::Leave(why) = choice(config::Order::Keep, device) else { panic!("it is kept") };
        assert!(why.starts_with("steward.toml has it kept as it is"), "{why}");
    }
    assert!(matches!(choice(config::Order::Elevator, fast()), Choice::Order(_)));
    let Choice::Leave(why) = choice(config::Order::Charge, disk()) else { panic!("no elevator") };
    assert!(why.starts_with("steward.toml wants no elevator for it (\"charge\"), and"), "{why}");
    assert!(matches!(choice(config::Order::Charge, fast()), Choice::Charge(_)));
}

#[test]
fn where_the_first_choice_is_missing_the_second_one_orders_by_class_without_moments() {
    let lacking = Device { lacks_by_class: true, ..disk() };
    let Choice::Order(order) = choose(&lacking, Need { first: First::Told, weights: Weights::Parts }) else {
        panic!("it can be ordered")
    };
    assert_eq!((order.elevator, order.requests), (SECOND, 128));
    assert!(order.tunables.is_empty() && order.moments.is_empty());
    let only = "interactive comes first, and nothing else counts (this kernel has no bfq)";
    let before = backend(&lacking, &InForce::default());
    assert!(before.contains("mq-deadline with 128 then: ") && before.ends_with(only), "{before}");
    let ordered = Device { elevator: SECOND.to_owned(), requests: 128, ..lacking };
    assert_eq!(backend(&ordered, &InForce::default()), format!("mq-deadline with 128 places: {only}"));
}

fn fast() -> Device {
    let way = Way { bytes_per_second: 500 << 20, sequential_per_second: 22_000, random_per_second: 20_000 };
    Device {
        rotational: false,
        depth: Some(4),
        number: "254:0".to_owned(),
        cost: Some(Lines::default()),
        model: Some(Model { read: way, write: way }),
        ..disk()
    }
}

#[test]
fn a_fast_disk_that_was_calibrated_is_charged_and_not_ordered() {
    let model = fast().model.expect("it has one");
    for weights in [Weights::Unused, Weights::First, Weights::Parts] {
        assert_eq!(choose(&fast(), Need { first: First::Told, weights }), Choice::Charge(model));
    }
    let now = backend(&fast(), &InForce::default());
    assert!(now.starts_with("nothing is set of it until a domain has a class"), "{now}");
    assert!(now.contains("reads 20000 pages a second, 22000 in order, and 500M a second"), "{now}");
    let lines = Lines { model: model.to_kernel("254:0"), quality: model.quality("254:0") };
    let in_force = backend(&Device { cost: Some(lines), ..fast() }, &InForce::default());
    assert!(in_force.starts_with("io.cost by its calibration"), "{in_force}");
}

#[test]
fn it_guesses_nothing_from_the_beginning_where_somebody_is_first() {
    let guesses_nothing = |first, weights| match choose(&disk(), Need { first, weights }) {
        Choice::Order(order) => order.guesses_nothing,
        other => panic!("{other:?}"),
    };
    assert!([First::Told, First::Untold].iter().all(|first| guesses_nothing(*first, Weights::First)));
    assert!(guesses_nothing(First::Told, Weights::Parts) && !guesses_nothing(First::Nobody, Weights::Parts));
}

#[test]
fn a_fast_disk_is_left_alone_for_each_reason_that_makes_io_cost_void() {
    let model = fast().model.expect("it has one");
    let on = "254:0 enable=1 ctrl=auto rpct=0.00".to_owned();
    let others = Lines { quality: on.clone(), ..Lines::default() };
    let own = Lines { model: model.to_kernel("254:0"), quality: model.quality("254:0") };
    let changed = Lines { model: own.model.replace("20000", "20001"), ..own };
    let off = Lines { model: changed.model.clone(), quality: String::new() };
    for (device, says) in [
        (Device { cost: None, ..fast() }, "no io.cost (CONFIG_BLK_CGROUP_IOCOST)"),
        (Device { model: None, ..fast() }, "steward disk calibrate sda"),
        (Device { depth: Some(1), ..fast() }, "one request at a time"),
        (Device { elevator: "bfq".to_owned(), ..fast() }, "somebody has given it bfq"),
        (Device { cost: Some(others), ..fast() }, "set by somebody else, whose it stays (254:0 enable=1"),
        (Device { cost: Some(changed), ..fast() }, "set by somebody else, whose it stays (254:0 enable=1"),
        (Device { cost: Some(off), ..fast() }, "whose it stays, and is off (254:0 ctrl=user"),
    ] {
        let Choice::Leave(why) = choose(&device, Need::default()) else { panic!("{says}") };
        assert!(why.contains(says), "{why}");
        assert!(
            backend(&device, &InForce::default()).contains(says) || device.elevator == "bfq",
            "{}",
            backend(&device, &InForce::default())
        );
    }
}

#[test]
fn what_stands_for_others_says_for_which() {
    let below = ["sda", "sdb", "sdc"].map(str::to_owned).to_vec();
    let device = Device { stands_for_others: true, below, ..disk() };
    assert!(
        backend(&device, &InForce::default()).starts_with("it hands its requests to sda, sdb and sdc"),
        "{}",
        backend(&device, &InForce::default())
    );
    let Choice::Leave(why) = choose(&device, Need::default()) else { panic!("others order them") };
    assert_eq!(why, "it hands its requests to sda, sdb and sdc, where they are ordered");
}

#[test]
fn what_is_memory_says_so() {
    let device = |name: &str| Device { stands_for_others: true, name: name.to_owned(), ..disk() };
    let said = |name| backend(&device(name), &InForce::default());
    assert!(
        said("zram0").starts_with("it is memory") && !said("loop0").contains("memory"),
        "{}",
        said("loop0")
    );
    // A disk of its own is none, whatever it is called.
    assert!(!Device { stands_for_others: false, ..device("ram0") }.is_memory());
}

#[test]
fn what_each_device_has_is_said_with_the_reason() {
    let with = |elevator: &str, rotational| {
        let device = Device { elevator: elevator.to_owned(), requests: 128, rotational, ..disk() };
        backend(&device, &InForce::default())
    };
    for (said, phrase) in [
        (with("bfq", false), "bfq with 128 places: classes and fractions count"),
        (with("none", true), "none with 128 places until somebody"),
        (with("none", true), "and bfq with 128 then"),
        (with("none", false), "count for nothing: it has no elevator"),
        (with("none", false), "left alone, since it does not rotate"),
        (with("mq-deadline", false), "interactive comes first, and nothing else counts"),
    ] {
        assert!(said.contains(phrase), "{said}");
    }
}

fn given() -> InForce {
    InForce { given: BTreeMap::from([("sda".to_owned(), "bfq".to_owned())]) }
}

fn with_places(elevator: &str, requests: u64) -> Device {
    Device { elevator: elevator.to_owned(), requests, ..disk() }
}

#[test]
fn what_somebody_has_chosen_in_place_of_stewards_elevator_is_said_to_stay() {
    let said = |elevator: &str| backend(&with_places(elevator, 128), &given());
    assert_eq!(said("bfq"), "bfq with 128 places: classes and fractions count");
    assert_eq!(
        said("mq-deadline"),
        "mq-deadline with 128 places: interactive comes first, and nothing else counts; somebody has chosen mq-deadline since \
         Steward gave it bfq, and it stays"
    );
    assert_eq!(
        said("none"),
        "classes and fractions count for nothing: it has no elevator: requests are served in the order in which they come; \
         somebody has chosen none since Steward gave it bfq, and it stays"
    );
}

#[test]
fn a_disk_that_is_to_be_kept_as_it_is_is_not_said_to_be_ordered_later() {
    let kept =
        |device: Device| backend(&Device { order: config::Order::Keep, ..device }, &InForce::default());
    for (elevator, count) in [
        ("bfq", "bfq with 128 places: classes and fractions count"),
        (
            "mq-deadline",
            "mq-deadline with 128 places: interactive comes first, and nothing else counts; it is left alone",
        ),
        ("none", "classes and fractions count for nothing: it has no elevator"),
    ] {
        let said = kept(with_places(elevator, 128));
        assert!(said.starts_with(count), "{said}");
        assert!(elevator == "bfq" || said.contains("kept as it is (order = \"keep\")"), "{said}");
    }
    let said = kept(fast());
    assert!(said.contains("count for nothing") && said.contains("order = \"keep\""), "{said}");
}

#[test]
fn too_little_room_in_the_elevator_is_said_wherever_it_makes_classes_void() {
    let said = backend(&with_places("bfq", 2), &given());
    assert!(said.starts_with("classes and fractions count for nothing: only 2 requests may wait"), "{said}");
    assert!(
        said.ends_with("Steward has made more room, and somebody has chosen otherwise since, which stays")
    );
    // Before anybody needs it, it is told what will be.
    let said = backend(&with_places("bfq", 2), &InForce::default());
    assert_eq!(said, "bfq with 2 places until somebody has a class or a fraction, and bfq with 128 then");
}

#[test]
fn what_makes_classes_count_for_nothing_is_said() {
    let with = |elevator: &str, requests, depth| {
        voided(&Device { elevator: elevator.to_owned(), requests, depth, ..disk() })
    };
    assert!(with("none", 128, Some(1)).is_some_and(|said| said.contains("no elevator")));
    assert!(with("kyber", 128, Some(1)).is_some_and(|said| said.contains("kyber")));
    // At depth 1 the kernel gives an elevator 2.
    assert!(with("bfq", 2, Some(1)).is_some_and(|said| said.contains("only 2 requests")));
    assert!(with("mq-deadline", 32, Some(32)).is_some_and(|said| said.contains("takes 32 at once")));
    assert_eq!(with("bfq", 128, Some(1)), None);
    assert_eq!(with("mq-deadline", 64, Some(32)), None);
}

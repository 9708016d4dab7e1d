//! The shipped rules are the paper's, rules add up as said, and mistakes are reported and give nobody more.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::accounts::Accounts;
use crate::domain;
use crate::problem::{Origin, Problem};
use crate::resource::Resource;

/// The accounts of a machine with one user and one group.
struct Few;

impl Accounts for Few {
    fn uid_of(&self, name: &str) -> Option<u32> {
        (name == "alice").then_some(1001)
    }
    fn gid_of(&self, name: &str) -> Option<u32> {
        (name == "audio").then_some(29)
    }
}

fn parse(text: &str) -> ParsedRules {
    parse_rules(Path::new("/etc/steward/authority/a.toml"), text, &Few)
}

fn problems(text: &str) -> String {
    parse(text).problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// The owner is user 1000.
fn policy(text: &str) -> Policy {
    Policy { owner_uid: Some(1000), matrix: Matrix::of(vec![parse(text)]) }
}

const OWNED: fn() -> Policy = || Policy { owner_uid: Some(1000), matrix: Matrix::default() };
const UNOWNED: fn() -> Policy = Policy::default;

fn may_reserve(caller_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    let request = Request::new(Action::Reserve, Resource::Cpu, Target::Others, "a program");
    policy.permit(&Identity::of_user(caller_uid), &request).map(drop)
}

fn may_release(caller_uid: u32, target_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    let target = Target::of_process(caller_uid, Some(target_uid));
    let request =
        Request::new(Action::Limit, Resource::Cpu, target, format!("a process of user {target_uid}"));
    policy.permit(&Identity::of_user(caller_uid), &request).map(drop)
}

fn may_administer(caller_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    let request = Request::of_all(Action::Administer, Target::Others, "how the machine is divided");
    policy.permit(&Identity::of_user(caller_uid), &request).map(drop)
}

/// 0: allowed, 1: to be asked, 2: denied.
fn strictness(policy: &Policy, caller: &Identity, request: &Request) -> u8 {
    match decide(policy, caller, request) {
        Verdict::Allow { .. } => 0,
        Verdict::Ask { .. } => 1,
        Verdict::Deny(_) => 2,
    }
}

fn refusal_of(policy: &Policy, caller: &Identity, request: &Request) -> String {
    match decide(policy, caller, request) {
        Verdict::Deny(refusal) => refusal.to_string(),
        other => panic!("denied, not {other:?}"),
    }
}

#[test]
fn the_shipped_rules_are_the_papers_matrix() {
    assert_eq!(Matrix::shipped().mistake(), None);
    // Edwards & Cao 1997, section 2.2: the owner reserves and limits everything, others limit what is theirs. Beyond
    // the paper: reading is free but for what others' domains may use of the memory, administering is the owner's, and
    // one's own may be divided.
    for action in Action::ALL {
        for target in Target::ALL {
            let request = Request::of_all(action, target, "it");
            for uid in [0, 1000] {
                assert_eq!(strictness(&OWNED(), &Identity::of_user(uid), &request), 0, "{request:?}");
            }
            let others_may = match action {
                Action::Read => true,
                Action::ReadAvailability | Action::Limit => target != Target::Others,
                Action::Reserve => target == Target::BelowOwn,
                Action::Administer => false,
            };
            let expected = if others_may { 0 } else { 2 };
            assert_eq!(strictness(&OWNED(), &Identity::of_user(1001), &request), expected, "{request:?}");
            assert_eq!(strictness(&UNOWNED(), &Identity::of_user(1000), &request), expected, "{request:?}");
        }
    }
}

#[test]
fn root_and_the_owner_may_reserve_for_anyone_and_nobody_else_may() {
    assert_eq!(may_reserve(0, &OWNED()), Ok(()));
    assert_eq!(may_reserve(1000, &OWNED()), Ok(()));
    assert_eq!(may_reserve(0, &UNOWNED()), Ok(()));
    let refusal = may_reserve(1001, &OWNED()).unwrap_err().to_string();
    assert!(refusal.contains("user 1001") && refusal.contains("owner (user 1000)"), "{refusal}");
    let refusal = may_reserve(1000, &UNOWNED()).unwrap_err().to_string();
    assert!(refusal.contains("no owner is set") && refusal.contains("steward.toml"), "{refusal}");
}

#[test]
fn others_may_give_up_only_what_their_own_processes_have() {
    assert_eq!(may_release(1001, 1001, &OWNED()), Ok(()));
    assert_eq!(may_release(1000, 1001, &OWNED()), Ok(()));
    assert_eq!(may_release(0, 1001, &UNOWNED()), Ok(()));
    let refusal = may_release(1001, 1002, &OWNED()).unwrap_err().to_string();
    assert!(refusal.contains("user 1001") && refusal.contains("user 1002"), "{refusal}");
    assert!(may_release(1001, 0, &OWNED()).is_err());
}

#[test]
fn only_root_and_the_owner_may_change_the_daemon() {
    assert_eq!(may_administer(1000, &OWNED()), Ok(()));
    assert!(may_administer(1001, &OWNED()).is_err());
}

#[test]
fn a_domain_is_below_ones_own_as_soon_as_one_above_it_is() {
    assert_eq!(Target::of_domain(1001, Some(1001), [Some(0)]), Target::Own);
    assert_eq!(Target::of_domain(1001, None, [Some(0), Some(1001)]), Target::BelowOwn);
    assert_eq!(Target::of_domain(1001, Some(1002), [Some(1001)]), Target::BelowOwn);
    assert_eq!(Target::of_domain(1001, Some(1002), [Some(0), None]), Target::Others);
    // A program whose users differ is nobody's own.
    assert_eq!(Target::of_process(1001, None), Target::Others);
}

#[test]
fn a_rule_for_a_user_a_group_and_one_resource_matches_them_alone() {
    let policy = policy(
        "[[rule]]\nwho = [\"user:alice\", \"group:audio\"]\naction = \"reserve\"\nresource = \"cpu\"\nof = \
         \"own\"\nverdict = \"allow\"\n",
    );
    let cpu = Request::new(Action::Reserve, Resource::Cpu, Target::Own, "it");
    assert_eq!(strictness(&policy, &Identity::of_user(1001), &cpu), 0);
    assert_eq!(strictness(&policy, &Identity { gids: vec![1002, 29], ..Identity::of_user(1002) }, &cpu), 0);
    assert_eq!(strictness(&policy, &Identity::of_user(1002), &cpu), 2);
    // Every resource of a request must be allowed, and none stands for all.
    let two = Request { resources: vec![Resource::Cpu, Resource::Memory], ..cpu.clone() };
    let none = Request { resources: vec![], ..cpu };
    for request in [two, none] {
        assert_eq!(strictness(&policy, &Identity::of_user(1001), &request), 2, "{request:?}");
    }
}

#[test]
fn a_rule_for_one_resource_alone_allows_what_is_asked_of_that_one_and_nothing_else() {
    let mut changes = [(); 3].map(|()| domain::Change::default());
    changes[0].cpu.reserved = Some(0.2);
    changes[1].memory.min_bytes = Some(1 << 20);
    changes[2].disk.reserved = Some(0.2);
    let both = domain::Change { disk: changes[2].disk, ..changes[1].clone() };
    let alice = Identity::of_user(1001);
    for allowed in Resource::ALL {
        let policy = policy(&format!(
            "[[rule]]\nwho = \"user:alice\"\naction = \"reserve\"\nresource = \"{}\"\nof = \"others\"\n\
             verdict = \"allow\"\n",
            allowed.name()
        ));
        let is_allowed = |change: &domain::Change| {
            let about = "a domain of user 1002".to_owned();
            let resources = change.resources();
            let request =
                Request { action: Action::Reserve, resources, target: Target::Others, about, amount: None };
            strictness(&policy, &alice, &request) == 0
        };
        for (resource, change) in Resource::ALL.into_iter().zip(&changes) {
            assert_eq!(is_allowed(change), resource == allowed, "{resource:?} by a rule for {allowed:?}");
        }
        assert!(!is_allowed(&both), "memory and disk by a rule for {allowed:?}");
    }
}

#[test]
fn a_refusal_names_who_what_the_rule_and_whom_to_ask() {
    let text = "[[rule]]\nwho = \"everyone\"\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n\
                [[rule]]\nwho = \"group:audio\"\naction = \"reserve\"\nof = \"others\"\nverdict = \"deny\"\n\
                [[rule]]\nwho = \"root\"\naction = \"reserve\"\nof = \"others\"\nverdict = \"ask\"\n";
    let denied = policy(text);
    let request = Request::new(Action::Reserve, Resource::Memory, Target::Others, "a process of user 1002");
    let in_audio = Identity { gids: vec![29], ..Identity::of_user(1001) };
    let none = Request::new(Action::Reserve, Resource::Cpu, Target::Own, "the domain batch");
    let user = Identity::of_user(1001);
    let read = Request::of_all(Action::Read, Target::Others, "what is promised");
    let available = Request::of_availability(Target::Others, "the domain web");
    let nothing = policy("");
    insta::assert_snapshot!(
        [
            refusal_of(&denied, &in_audio, &request),
            refusal_of(&OWNED(), &user, &none),
            refusal_of(&OWNED(), &user, &Request::of_all(Action::Administer, Target::Others, "thresholds")),
            refusal_of(&OWNED(), &user, &available),
            refusal_of(&nothing, &user, &read),
        ]
        .join("\n")
    );
    let Verdict::Ask { rule, polkit_action, .. } = decide(&denied, &Identity::of_user(0), &request) else {
        panic!("asked")
    };
    assert_eq!((rule.origin.line, polkit_action), (11, "io.steward.reserve"));
    let refusal = denied.permit(&Identity::of_user(0), &request).unwrap_err().to_string();
    assert!(refusal.contains("a.toml:11 says to ask polkit, and it cannot be asked here"), "{refusal}");
}

#[test]
fn each_mistake_is_reported_with_its_line_and_the_other_rows_stand() {
    let text = "who = \"root\"\n\
        [[rule]]\nwho = \"everyone\"\naction = \"read\"\nof = \"anyone\"\nverdict = \"allow\"\n\
        [[rule]]\nwho = \"bob\"\naction = [\"limt\", 3]\nof = []\nverdict = [\"allow\"]\n\
        [[rule]]\nwho = [\"user:bob\", \"group:-1\", \"user:4294967295\"]\naction = \"limit\"\nof = \"mine\"\n\
        [[rule]]\nwho = \"user:+7\"\nactions = \"limit\"\nof = \"own\"\nresource = \"net\"\nverdict = \"yes\"\n";
    assert_eq!(parse(text).rules.len(), 1);
    insta::assert_snapshot!(problems(text));
    assert!(problems("[rule]\nwho = 3\n").contains("a.toml:1: rule is not a list of rows"));
    assert!(problems("rule = [3]\n").contains("is not a table"));
    assert!(problems("[[rule]\n").contains("nothing in this file is in force"));
}

#[test]
fn a_mistake_in_a_file_gives_nobody_more_than_the_shipped_rules() {
    let generous = "[[rule]]\nwho = \"everyone\"\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";
    let reserve = Request::new(Action::Reserve, Resource::Cpu, Target::Own, "it");
    let user = Identity::of_user(1001);
    assert_eq!(strictness(&policy(generous), &user, &reserve), 0);
    let broken = policy(&format!("{generous}[[rule]]\nwho = \"user:bob\"\n"));
    let refusal = refusal_of(&broken, &user, &reserve);
    assert!(refusal.contains("a.toml:6") && refusal.contains("the shipped rules"), "{refusal}");
    let limit = Request::new(Action::Limit, Resource::Cpu, Target::Own, "it");
    assert_eq!(strictness(&broken, &user, &limit), 0);
    // What the rows that stand deny stays denied.
    let denying = policy(&format!("{}rubbish = 1\n", generous.replace("\"allow\"", "\"deny\"")));
    assert_eq!(strictness(&denying, &Identity::of_user(0), &limit), 2);
}

fn some_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    subsequence(all, 1..=all.len())
}

fn any_rule(effects: &'static [Effect]) -> impl Strategy<Value = Rule> {
    const WHO: [Who; 7] = [
        Who::Root,
        Who::Owner,
        Who::User(1001),
        Who::User(1002),
        Who::Group(29),
        Who::Group(30),
        Who::Everyone,
    ];
    let parts = (
        some_of(&WHO),
        some_of(&Action::ALL),
        some_of(&Resource::ALL),
        some_of(&Target::ALL),
        proptest::sample::select(effects),
    );
    parts.prop_map(|(who, actions, resources, of, verdict)| {
        let name = RuleName { origin: Origin::at(Path::new("rules.toml"), 1), number: 1 };
        Rule { name, who, actions, resources, of, verdict, at_most: None }
    })
}

fn any_matrix() -> impl Strategy<Value = Vec<Rule>> {
    proptest::collection::vec(any_rule(&Effect::ALL), 0..12)
}

fn any_caller() -> impl Strategy<Value = Identity> {
    let uid = proptest::sample::select(vec![0, 1000, 1001, 1002]);
    (uid, subsequence(vec![29, 30], 0..=2))
        .prop_map(|(uid, gids)| Identity { gids, ..Identity::of_user(uid) })
}

fn any_request() -> impl Strategy<Value = Request> {
    let action = proptest::sample::select(&Action::ALL);
    let target = proptest::sample::select(&Target::ALL);
    (action, subsequence(Resource::ALL.to_vec(), 0..=3), target).prop_map(|(action, resources, target)| {
        Request { resources, ..Request::new(action, Resource::Cpu, target, "it") }
    })
}

fn in_force(rules: Vec<Rule>, problems: Vec<Problem>) -> Policy {
    Policy { owner_uid: Some(1000), matrix: Matrix::of(vec![ParsedRules { rules, problems }]) }
}

fn a_mistake() -> Problem {
    Problem::error(Origin::at(Path::new("rules.toml"), 9), "wrong", "correct it")
}

/// Somebody at the machine, who wants this for a program of their own.
fn at_the_machine(amount: Option<Amount>) -> (Identity, Request) {
    let caller = Identity { active_session: true, ..Identity::of_user(1001) };
    let request = Request::new(Action::Reserve, Resource::Cpu, Target::Own, "a program");
    (caller, Request { amount, ..request })
}

fn amount(asked: f64, held: f64) -> Amount {
    Amount { asked, held, inherit: false, revocable: true }
}

#[test]
fn who_sits_at_the_machine_may_reserve_half_of_one_cpu_for_their_own_programs() {
    let (caller, request) = at_the_machine(Some(amount(0.2, 0.3)));
    assert!(UNOWNED().permit(&caller, &request).is_ok());
    assert!(UNOWNED().permit(&Identity::of_user(1001), &request).is_err(), "from elsewhere nobody may");
    let others = Request { target: Target::Others, ..request.clone() };
    assert!(UNOWNED().permit(&caller, &others).is_err(), "for others nobody may");
    let (_, more) = at_the_machine(Some(amount(0.21, 0.3)));
    let (_, inherited) = at_the_machine(Some(Amount { inherit: true, ..amount(0.1, 0.0) }));
    let (_, irrevocable) = at_the_machine(Some(Amount { revocable: false, ..amount(0.1, 0.0) }));
    let (_, no_amount) = at_the_machine(None);
    let reasons: Vec<String> = [more, inherited, irrevocable, no_amount]
        .iter()
        .map(|request| UNOWNED().permit(&caller, request).expect_err("it is too much").to_string())
        .collect();
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn a_limit_stands_only_where_all_that_counts_is_asked_for_under_it() {
    let row = |rest: &str| format!("[[rule]]\nwho = \"everyone\"\n{rest}");
    let counted = "action = \"reserve\"\nresource = \"cpu\"\nof = \"own\"\n";
    assert_eq!(problems(&row(&format!("{counted}at_most = 0.25\nverdict = \"allow\"\n"))), "");
    for (wrong, line, expected) in [
        (format!("{counted}at_most = \"50\"\nverdict = \"allow\"\n"), 6, "did you mean 50%?"),
        (format!("{counted}at_most = \"50%\"\nverdict = \"deny\"\n"), 6, "limits nothing"),
        (
            format!("{}at_most = \"50%\"\nverdict = \"allow\"\n", counted.replace("reserve", "limit")),
            6,
            "limits nothing",
        ),
        (
            format!("{}at_most = \"50%\"\nverdict = \"allow\"\n", counted.replace("own", "others")),
            6,
            "limits nothing",
        ),
        (
            format!("{}at_most = \"50%\"\nverdict = \"allow\"\n", counted.replace("cpu", "disk")),
            6,
            "limits nothing",
        ),
    ] {
        let text = problems(&row(&wrong));
        assert!(text.contains(&format!("a.toml:{line}: ")) && text.contains(expected), "{text}");
    }
}

proptest! {
    #[test]
    fn whatever_is_asked_for_in_turn_nobody_has_more_than_the_limit(
        asks in proptest::collection::vec((0.00001..1.0_f64, any::<bool>(), any::<bool>(), any::<bool>()), 0..60)
    ) {
        let mut held = Vec::new();
        for (bandwidth, inherit, revocable, gives_back) in asks {
            let asked = Amount::counted(bandwidth);
            let amount = Amount { asked, held: held.iter().sum(), inherit, revocable };
            let (caller, request) = at_the_machine(Some(amount));
            if UNOWNED().permit(&caller, &request).is_ok() {
                held.push(asked);
            } else if gives_back {
                held.pop();
            }
            prop_assert!(held.iter().sum::<f64>() <= 0.5 + 1e-6 && held.len() <= 50);
        }
    }

    #[test]
    fn a_rule_more_that_denies_never_allows_more(
        rules in any_matrix(), deny in any_rule(&[Effect::Deny]), caller in any_caller(), request in any_request()
    ) {
        let more: Vec<Rule> = rules.iter().cloned().chain([deny]).collect();
        let (before, after) = (in_force(rules, vec![]), in_force(more, vec![]));
        prop_assert!(strictness(&after, &caller, &request) >= strictness(&before, &caller, &request));
    }

    #[test]
    fn the_order_of_rules_means_nothing(
        (rules, shuffled) in any_matrix().prop_flat_map(|rules| (Just(rules.clone()), Just(rules).prop_shuffle())),
        caller in any_caller(), request in any_request()
    ) {
        let (one, other) = (in_force(rules, vec![]), in_force(shuffled, vec![]));
        prop_assert_eq!(strictness(&one, &caller, &request), strictness(&other, &caller, &request));
    }

    #[test]
    fn with_a_mistake_nobody_may_do_more_than_by_the_shipped_rules_or_by_those_that_stand(
        rules in any_matrix(), caller in any_caller(), request in any_request()
    ) {
        let broken = strictness(&in_force(rules.clone(), vec![a_mistake()]), &caller, &request);
        prop_assert!(broken >= strictness(&in_force(rules, vec![]), &caller, &request));
        prop_assert!(broken >= strictness(&OWNED(), &caller, &request));
    }

    #[test]
    fn a_request_about_more_resources_is_never_allowed_more(
        rules in any_matrix(), caller in any_caller(), request in any_request()
    ) {
        let policy = in_force(rules, vec![]);
        let all = Request { resources: Resource::ALL.to_vec(), ..request.clone() };
        prop_assert!(strictness(&policy, &caller, &all) >= strictness(&policy, &caller, &request));
    }

    #[test]
    fn no_text_makes_the_reader_panic_and_every_row_stands_or_is_reported(text in ".{0,200}") {
        parse(&text);
        let row = format!("[[rule]]\nwho = {text}\naction = \"all\"\nof = \"own\"\nverdict = \"deny\"\n");
        let parsed = parse(&row);
        prop_assert!(!parsed.rules.is_empty() || !parsed.problems.is_empty());
    }
}

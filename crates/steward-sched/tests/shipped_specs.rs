//! What the specifications that ship in `specs/` come to under admission (`src/bpf/decide/admission.h`): what an
//! ordinary user starts of them is bounded, however much of it there is and however idle it is when it starts.

mod admitted;

use std::collections::BTreeMap;
use std::path::Path;

use admitted::Admitted;
use steward_core::cpu::reservation::Grant;
use steward_core::cpu::thresholds::Thresholds;
use steward_core::spec::{Spec, User, parse_toml};
use steward_sched::decide::{
    Claim, Declared, LOAD_ONE, Load, LoadThresholds, Rule, may_be_irrevocable, named_by,
};

/// Users who are neither root nor the owner.
const USERS: [u32; 3] = [1000, 1001, 65_534];
/// How often each user starts each program.
const COPIES: usize = 20;

/// Every row that reserves CPU time.
fn reserving() -> Vec<(Spec, Grant)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs");
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("specs/ is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    let specs = paths.iter().flat_map(|path| {
        let file = parse_toml(path, &std::fs::read_to_string(path).expect("readable"));
        assert!(file.problems.is_empty(), "{:?}", file.problems);
        file.specs
    });
    let rows: Vec<(Spec, Grant)> = specs.filter_map(|spec| Some((spec.clone(), spec.grant(1)?))).collect();
    assert!(rows.len() >= 120, "{} rows", rows.len());
    rows
}

fn parts(fraction: f64) -> u32 {
    (fraction * f64::from(LOAD_ONE)).round() as u32
}

/// Those that are in force unless somebody changes them.
fn limits() -> LoadThresholds {
    let thresholds = Thresholds::default();
    LoadThresholds {
        reactivate_below: parts(thresholds.reactivate_below),
        admit_below: parts(thresholds.admit_below),
        revoke_above: parts(thresholds.revoke_above),
        irrevocable_max: parts(thresholds.irrevocable_max),
        user_max: parts(thresholds.user_max),
    }
}

/// What a task of this user asks for with this grant: as `make_claim()` in `admission.bpf.h`, where nobody is the
/// owner.
fn claim(grant: &Grant, uid: u32) -> Claim {
    Claim {
        bandwidth: parts(grant.reservation.bandwidth()),
        uid,
        limited: u32::from(uid != 0),
        irrevocable: u32::from(!grant.revocable && may_be_irrevocable(uid, named_by(grant.irrevocable_for))),
    }
}

/// Every program that ships, started by all of these in turn, as often as each of them likes, on one CPU that is idle
/// because all of them sleep. Who has what then, and what is never revoked, by user.
fn started_by(users: &[u32]) -> (Admitted, BTreeMap<u32, u32>) {
    let (rows, limits, mut admitted) = (reserving(), limits(), Admitted::default());
    for _ in 0..COPIES {
        for (_, grant) in &rows {
            for uid in users {
                let (verdict, _) = admitted.comes(&limits, claim(grant, *uid));
                let by_sums = [Rule::User as u32, Rule::Together as u32].contains(&verdict.rule);
                assert!(verdict.admits() || by_sums, "{verdict:?}");
            }
        }
    }
    let kept = |uid: u32| admitted.sum(|claim| claim.uid == uid && claim.irrevocable == 1);
    let irrevocable = users.iter().map(|uid| (*uid, kept(*uid))).collect();
    (admitted, irrevocable)
}

/// Row by row: what cannot be revoked is so for root and for whom the row names, and for nobody else.
#[test]
fn no_row_that_cannot_be_revoked_is_so_for_anybody_but_root_and_whom_it_names() {
    let mut kept = 0;
    for (spec, grant) in reserving() {
        let has = |uid: u32| claim(&grant, uid).irrevocable == 1;
        let name = format!("{} ({})", spec.path, spec.origin);
        assert_eq!(has(0), !spec.revocable, "{name}: root's");
        kept += usize::from(has(0));
        for uid in USERS {
            let named = spec.user == Some(User::Uid(uid));
            assert_eq!(has(uid), named && !spec.revocable, "{name}: user {uid}'s");
        }
    }
    assert!(kept > 0, "some are");
}

/// Any number of all of them: no more than `user_max` of all users together, all of which may be revoked. A film of
/// somebody else fits beside it, and each has a part.
#[test]
fn what_anybody_can_start_of_all_rows_together_is_bounded_and_may_be_revoked() {
    let user_max = limits().user_max;
    let (admitted, irrevocable) = started_by(&USERS);
    let together = admitted.sum(|_| true);
    assert!(together <= user_max, "{together} of {user_max}");
    assert!(together > user_max / 4 * 3, "so much was tried that it matters: {together}");
    assert!(f64::from(together) / 1e6 + 5.0 / 30.0 < 0.95, "no room for a film beside {together}");
    for uid in USERS {
        let own = admitted.sum(|claim| claim.uid == uid);
        assert!(own > user_max / USERS.len() as u32 / 2, "user {uid} has {own} of {together}");
        assert_eq!(irrevocable[&uid], 0, "never revoked of user {uid}");
    }
    assert_eq!(admitted.declared.irrevocable, 0);
}

/// Beside root, who starts as much, too.
#[test]
fn what_root_starts_of_all_rows_is_never_revoked_up_to_the_bound_and_leaves_the_others_bounded() {
    let limits = limits();
    let (Admitted { declared, .. }, irrevocable) = started_by(&[USERS[0], 0, USERS[1]]);
    assert!(declared.irrevocable <= limits.irrevocable_max, "{}", declared.irrevocable);
    assert_eq!(irrevocable, BTreeMap::from([(0, declared.irrevocable), (USERS[0], 0), (USERS[1], 0)]));
    assert!(declared.irrevocable > limits.irrevocable_max / 2, "so much was tried: {}", declared.irrevocable);
    assert!(declared.limited <= limits.user_max, "{:?}", declared.users);
}

/// Each has its place: there is none that a user could not start on an idle CPU.
#[test]
fn each_row_by_itself_fits_on_an_idle_cpu_for_any_user() {
    let refused = reserving().into_iter().filter_map(|(spec, grant)| {
        let verdict = Declared::default().judge(&Load::default(), &limits(), &claim(&grant, USERS[0]));
        (!verdict.admits()).then(|| format!("{} ({}): {verdict:?}", spec.path, spec.origin))
    });
    assert_eq!(refused.collect::<Vec<String>>(), Vec::<String>::new());
}

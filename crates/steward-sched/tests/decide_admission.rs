//! Properties of admission beside the load, of taking back, and of the bound of the interactive class
//! (`src/bpf/decide/admission.h`, `class.h`).

mod admitted;

use admitted::Admitted;
use proptest::collection::vec;
use proptest::prelude::*;
use steward_sched::decide::{
    ADMISSION_ANYBODY, ADMISSION_USERS_MAX, CLASS_BURST_NS, CLASS_GAP_NS, Claim, ClassUse, Declared,
    LOAD_ONE, Load, LoadThresholds, Rule, Verdict, WAITER_RETRY_MAX, WAITERS_MAX, Waiter, Waiters,
    absent_pages, may_be_irrevocable, retry_after,
};

const MS: u64 = 1_000_000;

const LIMITS: LoadThresholds = LoadThresholds {
    reactivate_below: 650_000,
    admit_below: 800_000,
    revoke_above: 900_000,
    irrevocable_max: 800_000,
    user_max: 750_000,
};

/// What a task does to a CPU: it comes with a claim, or one of those admitted goes.
#[derive(Debug, Clone)]
enum Step {
    Comes { bandwidth: u32, uid: u32, irrevocable: bool },
    Goes(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let comes = (1..=LOAD_ONE / 2, 0u32..5, any::<bool>())
        .prop_map(|(bandwidth, uid, irrevocable)| Step::Comes { bandwidth, uid, irrevocable });
    prop_oneof![3 => comes, 1 => any::<usize>().prop_map(Step::Goes)]
}

/// How many users have something there, this one counted in any case.
fn users_with(admitted: &Admitted, uid: u32) -> u32 {
    (1..5).filter(|other| *other == uid || admitted.sum(|claim| claim.uid == *other) > 0).count() as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// However long they sleep meanwhile: the load is that of an idle CPU each time.
    #[test]
    fn what_is_declared_stays_bounded_whatever_comes_and_goes(steps in vec(step(), 1..200)) {
        let mut admitted = Admitted::default();
        for step in steps {
            match step {
                Step::Comes { bandwidth, uid, irrevocable } => {
                    let limited = u32::from(uid != 0);
                    let claim = Claim { bandwidth, uid, limited, irrevocable: u32::from(irrevocable) };
                    let (own, together) =
                        (admitted.sum(|other| other.uid == uid), admitted.sum(|other| other.limited == 1));
                    let fits = uid == 0 || together + bandwidth <= LIMITS.user_max;
                    let (verdict, gone) = admitted.comes(&LIMITS, claim);
                    prop_assert_eq!(gone.is_empty() && verdict.admits(), fits, "{:?}", verdict);
                    if !verdict.admits() && own + bandwidth > LIMITS.user_max {
                        prop_assert_eq!((verdict.rule, verdict.amount), (Rule::User as u32, own));
                    } else if !verdict.admits() {
                        let together = admitted.sum(|other| other.limited == 1);
                        prop_assert_eq!((verdict.rule, verdict.amount), (Rule::Together as u32, together));
                    }
                    if !verdict.admits() {
                        prop_assert_eq!((verdict.limit, verdict.uid), (LIMITS.user_max, uid));
                        continue;
                    }
                    // What does not fit among the irrevocable is taken in, and may be revoked.
                    let kept = admitted.claims.last().is_some_and(|claim| claim.irrevocable == 1);
                    prop_assert_eq!(verdict.rule == Rule::Irrevocable as u32, irrevocable && !kept);
                }
                Step::Goes(which) if !admitted.claims.is_empty() => {
                    admitted.goes(which % admitted.claims.len());
                }
                Step::Goes(_) => {}
            }
            let irrevocable = admitted.sum(|claim| claim.irrevocable == 1);
            prop_assert_eq!(admitted.declared.irrevocable, irrevocable);
            prop_assert!(irrevocable <= LIMITS.irrevocable_max);
            for uid in 1..5 {
                let own = admitted.sum(|claim| claim.uid == uid);
                let entries = admitted.declared.users.iter().filter(|user| user.uid == uid && user.reserved > 0);
                let kept: Vec<u32> = entries.map(|user| user.reserved).collect();
                prop_assert_eq!(kept, if own > 0 { vec![own] } else { vec![] });
            }
            let together = admitted.sum(|claim| claim.limited == 1);
            prop_assert_eq!(admitted.declared.limited, together);
            prop_assert!(together <= LIMITS.user_max);
        }
    }

    /// As much as each other user's is anybody's, whatever those have, unless it is never to be revoked; and nobody
    /// loses any of that to somebody else.
    #[test]
    fn nobody_keeps_another_user_from_its_part(
        steps in vec(step(), 1..200),
        bandwidth in 1..=LOAD_ONE,
        uid in 1u32..5,
    ) {
        let mut admitted = Admitted::default();
        for step in steps {
            match step {
                Step::Comes { bandwidth, uid, .. } => {
                    let limited = u32::from(uid != 0);
                    admitted.comes(&LIMITS, Claim { bandwidth: bandwidth / 4 + 1, uid, limited, irrevocable: 0 });
                }
                Step::Goes(which) if !admitted.claims.is_empty() => {
                    admitted.goes(which % admitted.claims.len());
                }
                Step::Goes(_) => {}
            }
        }
        let before: Vec<u32> = (0..5).map(|other| admitted.sum(|claim| claim.uid == other)).collect();
        let part = LIMITS.user_max / users_with(&admitted, uid);
        let claim = Claim { bandwidth, uid, limited: 1, irrevocable: 0 };
        let (verdict, gone) = admitted.comes(&LIMITS, claim);
        prop_assert!(verdict.admits() || before[uid as usize] + bandwidth > part, "{verdict:?}, the part is {part}");
        prop_assert!(gone.iter().all(|claim| claim.uid != 0 && claim.uid != uid), "{gone:?}");
        for claim in gone {
            prop_assert!(before[claim.uid as usize] > part, "user {} had {:?}, the part is {part}", claim.uid, before);
        }
        if !verdict.admits() {
            let after: Vec<u32> = (0..5).map(|other| admitted.sum(|claim| claim.uid == other)).collect();
            prop_assert_eq!(before, after, "nobody gives way to one that is refused");
        }
    }

    #[test]
    fn only_root_and_who_is_named_have_what_is_never_revoked(uid: u32, named in 0..ADMISSION_ANYBODY) {
        prop_assert_eq!(may_be_irrevocable(uid, named), uid == 0 || uid == named);
        prop_assert!(may_be_irrevocable(uid, ADMISSION_ANYBODY) && may_be_irrevocable(0, named));
    }

    #[test]
    fn a_turn_tries_the_best_of_each_user_and_the_best_of_all_first(
        waiting in vec((0u32..20, 0u64..50, 0u32..4), 1..60),
    ) {
        let mut waiters = Waiters::default();
        for (index, (uid, since_ns, failures)) in waiting.iter().enumerate() {
            waiters.offer(Waiter::new(index as u32 + 1, *uid, *since_ns, *failures));
        }
        let key = |index: usize| (waiting[index].2, waiting[index].1);
        let mut best: Vec<(u32, u64)> = (0..20)
            .filter_map(|uid| (0..waiting.len()).filter(|index| waiting[*index].0 == uid).map(key).min())
            .collect();
        best.sort_unstable();
        best.truncate(WAITERS_MAX);
        let tried: Vec<(u32, u64)> =
            std::iter::from_fn(|| waiters.take_next()).map(|next| key(next.index as usize - 1)).collect();
        prop_assert_eq!(tried, best);
    }

    /// A hostile user's tasks, of which none can ever be taken back, wait since long before an honest one's.
    #[test]
    fn whoever_waits_in_vain_keeps_nobody_else_waiting(hopeless in 1usize..500, own_hopeless in 0usize..20) {
        let mut failures = vec![0u32; hopeless + own_hopeless];
        let mut retry = vec![0u32; failures.len()];
        let served = (0u32..).take(64).find(|sample| {
            let mut waiters = Waiters::default();
            for index in 0..failures.len() {
                if retry[index] <= *sample {
                    let uid = if index < hopeless { 1000 } else { 1001 };
                    waiters.offer(Waiter::new(index as u32 + 2, uid, 0, failures[index]));
                }
            }
            waiters.offer(Waiter::new(1, 1001, 1000, 0));
            while let Some(next) = waiters.take_next() {
                if next.index == 1 {
                    return true;
                }
                let index = next.index as usize - 2;
                retry[index] = sample + retry_after(failures[index]);
                failures[index] += 1;
            }
            false
        });
        // Those of its own that waited longer are tried once each before it, one a second.
        prop_assert_eq!(served, Some(own_hopeless as u32));
    }

    #[test]
    fn best_effort_work_that_waits_gets_its_twentieth_however_the_class_is_noticed(
        overruns_us in vec(0u64..8000, 1..8),
        idle_before_us in 0u64..400_000,
    ) {
        let mut class = ClassUse::default();
        let mut now_ns = idle_before_us * 1000;
        let (begin_ns, mut used_ns) = (now_ns, 0);
        for turn in 0.. {
            if now_ns - begin_ns > 3000 * MS {
                break;
            }
            if class.held(0, now_ns) {
                now_ns += CLASS_GAP_NS;
                continue;
            }
            // The class runs until a tick notices, up to so much later.
            let mut running_ns = 100_000;
            while !class.held(running_ns, now_ns + running_ns) {
                running_ns += 100_000;
            }
            running_ns += overruns_us[turn % overruns_us.len()] * 1000;
            now_ns += running_ns;
            used_ns += running_ns;
            class.used(running_ns, now_ns);
            let overrun_ns = 8 * MS + CLASS_GAP_NS;
            let allowed_ns = (now_ns - begin_ns) / 20 * 19 + CLASS_BURST_NS + overrun_ns;
            prop_assert!(used_ns <= allowed_ns, "{used_ns} of {allowed_ns} in {}", now_ns - begin_ns);
        }
    }

    #[test]
    fn a_class_that_asks_for_less_is_never_held_back(turns in vec((1u64..50_000, 0u64..3000), 1..300)) {
        let mut class = ClassUse::default();
        let mut now_ns = 0;
        for (busy_us, more_us) in turns {
            // At least a ninth of what it used goes by without it: 90 %.
            class.used(busy_us * 1000, now_ns + busy_us * 1000);
            now_ns += busy_us * 1000;
            prop_assert!(!class.held(0, now_ns), "{class:?}");
            now_ns += (busy_us / 9 + 1 + more_us) * 1000;
        }
    }
}

#[test]
fn the_refusal_names_the_rule_and_the_amounts() {
    let busy = Load { measured: 700_000, ..Load::default() };
    let claim = Claim { bandwidth: 200_000, uid: 1000, limited: 1, irrevocable: 0 };
    let verdict = Declared::default().judge(&busy, &LIMITS, &claim);
    assert_eq!((verdict.rule, verdict.amount, verdict.limit), (Rule::Use as u32, 700_000, 800_000));
    let mut declared = Declared::default();
    for uid in 1..=ADMISSION_USERS_MAX as u32 {
        let mut claim = Claim { bandwidth: 10, uid, ..claim };
        let verdict = declared.judge(&Load::default(), &LIMITS, &claim);
        declared.declare(&mut claim, &verdict);
    }
    let verdict = declared.judge(&Load::default(), &LIMITS, &claim);
    assert_eq!((verdict.rule, verdict.limit), (Rule::Users as u32, ADMISSION_USERS_MAX as u32));
    let (mut declared, own) = (Declared::default(), Claim { uid: 1, ..claim });
    for (uid, bandwidth, rule, amount) in [
        (1, 500_000, Rule::Fits, 0),
        (1, 300_000, Rule::User, 500_000),
        (2, 300_000, Rule::Together, 500_000),
    ] {
        let mut claim = Claim { bandwidth, uid, ..own };
        let verdict = declared_by(&mut declared, &mut claim);
        assert_eq!((verdict.rule, verdict.amount), (rule as u32, amount), "user {uid}");
    }
}

/// Judges a task on an idle CPU, and declares it where it is admitted.
fn declared_by(declared: &mut Declared, claim: &mut Claim) -> Verdict {
    let verdict = declared.judge(&Load::default(), &LIMITS, claim);
    if verdict.admits() {
        declared.declare(claim, &verdict);
    }
    verdict
}

#[test]
fn address_space_that_cannot_be_touched_and_what_is_resident_do_not_count() {
    let pages = |mib: u64| mib * 256;
    // A program with 300 MiB that it can write or execute, of which 120 are resident, whatever else it maps.
    let resident = [pages(100) as i64, pages(20) as i64, 0];
    assert_eq!(absent_pages(pages(250), pages(8), pages(42), resident), pages(180));
    assert_eq!(absent_pages(0, 1, 10, [20, 5, 5]), 0);
    // Counters that are near enough may be below zero.
    assert_eq!(absent_pages(10, 0, 0, [-3, 4, 0]), 6);
}

#[test]
fn who_is_tried_in_vain_is_tried_more_and_more_rarely() {
    let waits: Vec<u32> = (0..9).map(retry_after).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, WAITER_RETRY_MAX, WAITER_RETRY_MAX, WAITER_RETRY_MAX]);
}

//! Tests of [`crate::cpu::explain`]: recorded output.

use std::path::Path;

use super::*;
use crate::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use crate::spec::parse_toml;

fn task() -> TaskRecord {
    TaskRecord {
        tid: 4243,
        pid: 4242,
        name: "mplayer".into(),
        cpu: 1,
        standing: Standing::Admitted,
        grant: Grant {
            reservation: Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 },
            inherit: true,
            revocable: true,
            irrevocable_for: IrrevocableFor::Root,
            keep_over_exec: false,
            requests_at: None,
            spec_id: 7,
        },
        budget_left_ns: 1_000_000,
        deadline_ns: 99_000_000,
        periods: 1000,
        periods_announced: 0,
        deadlines_missed: 0,
        budgets_exhausted: 12,
        reserved_time_ns: 4_321_000_000,
        best_effort_time_ns: 87_000_000,
        overrun_max_ns: 123_400,
        reason: None,
    }
}

fn cpu() -> CpuRecord {
    CpuRecord {
        cpu: 1,
        online: true,
        measured_load: 0.21,
        projected_load: 0.333,
        window: [0.21, 0.2, 0.19, 0.2],
        reserved: 0.333,
        admitted: 2,
    }
}

fn mplayer() -> Spec {
    let text = "\n[[spec]]\npath = \"/usr/bin/mplayer\"\ncpu = \"5ms/30ms\"\ninherit = true\n";
    parse_toml(Path::new("/usr/lib/steward/40-players.toml"), text).specs.remove(0)
}

#[test]
fn a_promise_that_is_kept() {
    insta::assert_snapshot!(explain_task(&task(), &cpu(), Some(&mplayer()), &Thresholds::default(), &[]));
}

#[test]
fn a_promise_that_was_missed() {
    let mut task = task();
    task.deadlines_missed = 30;
    task.budgets_exhausted = 0;
    insta::assert_snapshot!(explain_task(&task, &cpu(), None, &Thresholds::default(), &[]));
}

fn burner(cpu: u32, share: f64) -> RealTimeTask {
    let (name, policy) = ("burner".to_owned(), "SCHED_FIFO".to_owned());
    RealTimeTask { tid: 77, pid: 76, name, policy, cpu, share }
}

#[test]
fn who_took_the_time_is_named_and_nobody_else_is_blamed() {
    let missed = TaskRecord { deadlines_missed: 30, budgets_exhausted: 0, ..task() };
    let explain = |task: &TaskRecord, real_time: &[RealTimeTask]| {
        explain_task(task, &cpu(), None, &Thresholds::default(), real_time)
    };
    insta::assert_snapshot!(explain(&missed, &[burner(0, 1.0), burner(1, 0.002), burner(1, 0.97)]));
    for elsewhere in [vec![], vec![burner(0, 1.0)], vec![burner(1, 0.002)]] {
        let text = explain(&missed, &elsewhere);
        assert!(!text.contains("eal-time") && text.contains("NOT kept in 30 of 1000"), "{text}");
    }
    assert!(!explain(&task(), &[burner(1, 0.97)]).contains("eal-time"), "nothing was missed");
}

#[test]
fn a_budget_that_is_too_small_is_told_with_what_would_do() {
    let reservation = Reservation { budget_ns: 5_000_000, period_ns: 100_000_000 };
    let shell = TaskRecord {
        grant: crate::cpu::reservation::Grant { reservation, ..task().grant },
        periods: 400,
        budgets_exhausted: 300,
        best_effort_time_ns: 300 * 3_950_000,
        ..task()
    };
    let explain = |task: &TaskRecord| explain_task(task, &cpu(), None, &Thresholds::default(), &[]);
    insta::assert_snapshot!(explain(&shell));
    // With no more than what a late end brings; now and then; and all that there is.
    let starved = explain(&TaskRecord { periods: 320, best_effort_time_ns: 300 * 100_000, ..shell.clone() });
    assert!(starved.contains("It mostly wants more than the 5 % promised"), "{starved}");
    assert!(!explain(&TaskRecord { budgets_exhausted: 8, ..shell.clone() }).contains("too small"));
    let all = explain(&TaskRecord { best_effort_time_ns: 300 * 90_000_000, ..shell.clone() });
    assert!(all.contains("It takes all that it gets") && !all.contains("steward set"), "{all}");
}

#[test]
fn a_budget_that_is_too_small_is_told_where_a_crowd_leaves_nothing_beyond_it() {
    let reservation = Reservation { budget_ns: 5_000_000, period_ns: 100_000_000 };
    // Woken 100 times, it used 9 ms each time: 5 in one period, and the rest in the next.
    let shell = TaskRecord {
        grant: crate::cpu::reservation::Grant { reservation, ..task().grant },
        periods: 200,
        budgets_exhausted: 100,
        reserved_time_ns: 100 * 9_000_000,
        best_effort_time_ns: 100 * 20_000,
        ..task()
    };
    let explain = |task: &TaskRecord| explain_task(task, &cpu(), None, &Thresholds::default(), &[]);
    insta::assert_snapshot!(explain(&shell));
    // One that never sleeps needs no certain amount; one whose work fits has a budget that is large enough.
    let loops = TaskRecord { periods: 101, reserved_time_ns: 100 * 5_000_000, ..shell.clone() };
    assert!(!explain(&loops).contains("too small"), "{}", explain(&loops));
    let fits = TaskRecord { budgets_exhausted: 12, reserved_time_ns: 200 * 4_000_000, ..shell };
    assert!(!explain(&fits).contains("too small"), "{}", explain(&fits));
}

#[test]
fn a_task_that_wants_more_than_it_is_promised() {
    let mut task = task();
    task.budgets_exhausted = 990;
    task.grant.keep_over_exec = true;
    task.grant.revocable = false;
    insta::assert_snapshot!(explain_task(&task, &cpu(), Some(&mplayer()), &Thresholds::default(), &[]));
}

#[test]
fn a_task_that_was_refused() {
    let mut task = task();
    task.standing = Standing::Refused;
    task.periods = 0;
    let mut cpu = cpu();
    cpu.projected_load = 0.78;
    insta::assert_snapshot!(explain_task(&task, &cpu, Some(&mplayer()), &Thresholds::default(), &[]));
}

#[test]
fn a_task_that_was_revoked() {
    let mut task = task();
    task.standing = Standing::Revoked;
    task.grant.inherit = false;
    task.grant.spec_id = 0;
    let mut cpu = cpu();
    cpu.measured_load = 0.97;
    insta::assert_snapshot!(explain_task(&task, &cpu, None, &Thresholds::default(), &[]));
}

#[test]
fn every_decision_in_a_sentence() {
    let kinds = [
        EventKind::Admitted,
        EventKind::Refused,
        EventKind::TableFull,
        EventKind::RevokedExhausted,
        EventKind::RevokedHungriest,
        EventKind::RevokedDisplaced,
        EventKind::Reactivated,
        EventKind::Released,
    ];
    let sentences: Vec<String> = kinds.into_iter().map(|kind| explain_event(&event(kind, None))).collect();
    insta::assert_snapshot!(sentences.join("\n"));
}

fn event(kind: EventKind, reason: Option<Reason>) -> Event {
    Event {
        at_ns: 1,
        tid: 4243,
        pid: 4242,
        user: Some(1000),
        name: "mplayer".into(),
        cpu: 1,
        kind,
        load: 0.7234,
        bandwidth: 1.0 / 6.0,
        threshold: 0.8,
        reason,
    }
}

#[test]
fn every_rule_in_a_sentence_with_its_amounts() {
    let reason = |rule, amount, limit| Some(Reason { rule, uid: 1000, amount, limit });
    let events = [
        (EventKind::Refused, reason(Rule::Load, 0.7234, 0.8)),
        (EventKind::Refused, reason(Rule::User, 0.7, 0.75)),
        (EventKind::Refused, reason(Rule::Users, 32.0, 32.0)),
        (EventKind::Refused, reason(Rule::Together, 0.7, 0.75)),
        (EventKind::RevokedDisplaced, reason(Rule::Part, 0.7, 0.375)),
        (EventKind::Refused, reason(Rule::NoCpu, 0.0, 0.0)),
        (EventKind::Refused, reason(Rule::Confined, -10.0, 0.0)),
        (EventKind::Refused, reason(Rule::OwnPolicy, 0.0, 0.0)),
        (EventKind::Refused, reason(Rule::KernelFull, 0.0, 0.0)),
        (EventKind::Refused, reason(Rule::Away, 0.0, 0.0)),
        (EventKind::Admitted, reason(Rule::Irrevocable, 0.75, 0.8)),
        (EventKind::Admitted, reason(Rule::NotNamed, 0.0, 0.8)),
        (EventKind::RevokedDisplaced, reason(Rule::NoCpu, 1.0, 0.0)),
        (EventKind::RevokedDisplaced, reason(Rule::NoCpu, 0.0, 0.0)),
    ];
    let mut sentences: Vec<String> =
        events.into_iter().map(|(kind, reason)| explain_event(&event(kind, reason))).collect();
    for (standing, reason) in [
        (Standing::Refused, reason(Rule::User, 0.7, 0.75)),
        (Standing::Revoked, reason(Rule::Part, 0.7, 0.375)),
        (Standing::Refused, reason(Rule::Confined, -10.0, 0.0)),
        (Standing::Revoked, reason(Rule::Memory, 1500.0 * 1048576.0, 300.0 * 1048576.0)),
        (Standing::Admitted, reason(Rule::NotNamed, 0.0, 0.8)),
    ] {
        let mut task = task();
        (task.standing, task.reason, task.grant.revocable) = (standing, reason, false);
        (task.periods, task.budgets_exhausted) = (0, 0);
        sentences.push(explain_task(&task, &cpu(), Some(&mplayer()), &Thresholds::default(), &[]));
    }
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn a_domain_is_named_with_what_it_has_and_what_is_due_now() {
    assert_eq!(
        explain_domain("web", Some(0.3), Some(0.4567)),
        "It is in the domain web, which has 30 % reserved of its parent's CPU; its own tasks together are due 45.7 % of \
         the machine now.\n"
    );
    assert_eq!(explain_domain("/", None, None), "It is in the domain /, which has nothing reserved.\n");
}

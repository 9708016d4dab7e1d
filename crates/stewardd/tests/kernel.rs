//! The daemon and its client in a machine of their own, on a real kernel: what a person would do by hand.
//!
//! Each test boots once and does many things, because booting and loading cost seconds under emulation. The scripts
//! are in `tests/kernel/`; what they print under a heading is looked at here, in checks that each have a name: all of
//! them are made, and the test fails with the names of those that failed. The programs are those of the same build,
//! which `make test-kernel` makes first.

#[path = "kernel/transcript.rs"]
mod transcript;

#[path = "kernel/activity.rs"]
mod activity;

#[path = "kernel/ages.rs"]
mod ages;

#[path = "kernel/availability.rs"]
mod availability;

#[path = "kernel/besieged.rs"]
mod besieged;

#[path = "kernel/disk.rs"]
mod disk;

#[path = "kernel/faults.rs"]
mod faults;

#[path = "kernel/fits.rs"]
mod fits;

#[path = "kernel/running.rs"]
mod running;

#[path = "kernel/systemd.rs"]
mod systemd;

#[path = "kernel/stall.rs"]
mod stall;

use std::panic::{AssertUnwindSafe, catch_unwind};

use libsteward::api;
use steward_core::quantity::parse_duration;
use steward_machine::MachineConfig;
use transcript::{Transcript, built, counted};

/// One thing that has to hold: what it is called, and what panics when it does not.
type Check<'made> = (&'static str, &'made dyn Fn());

/// Makes all checks, whatever becomes of those before.
///
/// # Panics
/// With the names of those that failed; why is printed.
fn check(checks: &[Check<'_>]) {
    let holds = |check: &Check<'_>| {
        let holds = catch_unwind(AssertUnwindSafe(check.1)).is_ok();
        println!("{} {}", if holds { "ok" } else { "failed" }, check.0);
        holds
    };
    let failed: Vec<&str> = checks.iter().filter(|check| !holds(check)).map(|(name, _)| *name).collect();
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

#[test]
fn all_checks_are_made_and_those_that_failed_are_named() {
    let made = std::cell::Cell::new(0);
    let holds = || made.set(made.get() + 1);
    let fails = || {
        holds();
        panic!("on purpose");
    };
    let checks: [Check<'_>; 4] = [("one", &holds), ("two", &fails), ("three", &holds), ("four", &fails)];
    let panic = catch_unwind(AssertUnwindSafe(|| check(&checks))).expect_err("two of them fail");
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("failed: two, four"));
    assert_eq!(made.get(), 4);
    check(&checks[..1]);
}

/// The budget in nanoseconds that a process has, if it is admitted.
fn budget_ns(status: &api::StatusReply, pid: i32) -> Option<u64> {
    let task = status.cpu.tasks.iter().find(|task| task.tid == pid)?;
    assert_eq!(task.standing, api::Standing::Admitted, "{task:?}");
    Some(task.grant.reservation.budget_ns)
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn promises_are_made_refused_changed_and_outlive_the_daemon() {
    let told = Transcript::of(include_str!("kernel/promises.sh"));
    let pids: Vec<i32> = told.text("pids").split(' ').map(|pid| pid.parse().expect("a pid")).collect();
    let (by_hand, by_spec) = (pids[0], pids[1]);
    let budgets_ns = |section: &str| {
        let status = told.status(section);
        (budget_ns(&status, by_spec), budget_ns(&status, by_hand))
    };
    check(&[
        ("what-a-best-effort-program-starts-is-best-effort", &|| {
            told.says("best-effort", &["is best-effort", "a best-effort program started it"]);
        }),
        ("the-scheduler-gives-what-a-specification-says", &|| {
            let mechanism = told.status("specification").cpu.mechanism;
            assert_eq!(mechanism.kind, Some(api::MechanismKind::SchedExt));
            assert_eq!(budgets_ns("specification"), (Some(5_000_000), None));
        }),
        ("the-daemon-makes-room-for-the-descriptors-of-all-clients", &|| {
            told.says("descriptors", &["1024", "Max open files 32768 65536"]);
        }),
        ("the-daemon-reserves-for-itself", &|| {
            let status = told.status("specification");
            assert!(budget_ns(&status, status.pid).is_some(), "{status:?}");
        }),
        ("what-there-is-no-room-for-is-refused", &|| {
            told.says("too-much", &["there is no room for 29ms/30ms", "exit code 125"]);
        }),
        ("who-may-not-reserve-is-refused", &|| {
            told.says("not-the-owner", &["user 1000 may not reserve", "exit code 125", "exit code 1"]);
        }),
        ("who-sits-at-the-machine-may-reserve-half-a-cpu", &|| {
            told.says(
                "at-the-machine",
                &["exit code 0", "at most 50 % of one CPU in all", "51 % more was asked", "exit code 125"],
            );
        }),
        ("root-reserves-for-another-user", &|| {
            told.says("another-user", &["1000", "1ms of CPU time in every 100ms", "exit code 0"]);
        }),
        ("a-running-program-is-given-something-by-hand", &|| {
            told.says("by-hand", &["has 2ms/100ms: admitted"]);
        }),
        ("run-gives-what-it-is-told-and-ends-as-its-program", &|| {
            told.says("run-with-cpu", &["3ms", "exit code 7"]);
        }),
        ("a-program-that-gets-other-rights-meanwhile-is-given-nothing", &|| {
            let race = told.text("race");
            let count = |name: &str| figure(&race, name);
            // Who comes first is up to the machine; both must have been seen.
            assert!(count("given") > 0 && count("refused") + count("taken-back") > 0, "{race}");
            assert_eq!((count("other"), count("violations")), (0, 0), "{race}");
        }),
        ("nor-when-the-daemon-starts-again", &|| {
            told.says("race", &["has 7ms/100ms: admitted"]);
            told.says("raised", &["is best-effort"]);
        }),
        ("a-changed-specification-changes-what-runs", &|| {
            assert_eq!(budgets_ns("changed"), (Some(8_000_000), Some(2_000_000)));
        }),
        ("a-wrong-row-is-reported-and-the-others-stand", &|| {
            let status = told.status("changed");
            assert_eq!((status.specs, status.problems.len()), (2, 1), "{:?}", status.problems);
            let problem = &status.problems[0];
            assert_eq!((problem.file.as_str(), problem.line), ("/etc/steward/specs/50-one.toml", Some(8)));
        }),
        ("a-typing-error-changes-nothing", &|| {
            told.says(
                "typing-error",
                &["8ms of CPU time", "as it was before", "50-one.toml:4: ", "no key \"inherrit\""],
            );
        }),
        ("doctor-finds-the-scheduler", &|| {
            told.says("doctor", &["through its own scheduler (sched_ext)", "exit code 0"]);
        }),
        ("tune-writes-a-specification-of-a-command", &|| {
            told.says("tune-command", &["needs", "[[spec]]", "cpu = ", "exit code 0", "1 specification"]);
        }),
        ("tune-measures-a-running-process", &|| {
            told.says("tune-pid", &["needs", "exit code 0", "promised"]);
        }),
        ("a-budget-that-is-too-small-is-said-with-what-is-needed", &|| {
            let text = told.text("too-small");
            let needed = text.split_once("cpu = \"").and_then(|(_, rest)| rest.split_once("/100ms\""));
            let needed_ns = needed.and_then(|(budget, _)| parse_duration(budget).ok());
            let is_about_nine = needed_ns.is_some_and(|ns| (8_000_000..=11_000_000).contains(&ns));
            assert!(is_about_nine && text.contains("budget is too small"), "{text}");
        }),
        ("what-real-time-tasks-use-is-counted", &|| {
            let real_time: f64 = told.status("real-time").cpu.cpus.iter().map(|cpu| cpu.real_time).sum();
            // It fills its CPU, as far as the kernel lets it.
            assert!(real_time > 0.6, "{real_time}");
        }),
        ("a-real-time-task-is-explained", &|| {
            told.says("real-time-explained", &["is a real-time task (SCHED_FIFO)"]);
        }),
        ("a-killed-daemon-leaves-the-default-scheduler-and-living-programs", &|| {
            told.says("killed", &["disabled", "alive", "exit code 1"]);
        }),
        ("a-daemon-started-again-gives-what-there-was", &|| {
            assert_eq!(budgets_ns("restarted"), (Some(8_000_000), Some(2_000_000)));
        }),
        ("an-ejected-scheduler-is-loaded-again-with-what-there-was", &|| {
            assert_eq!(budgets_ns("ejected"), (Some(8_000_000), Some(2_000_000)));
            let mechanism = told.status("ejected").cpu.mechanism;
            assert_eq!((mechanism.kind, mechanism.restarts), (Some(api::MechanismKind::SchedExt), 1));
        }),
        ("status-and-log-say-why-it-was-ejected", &|| {
            let reason = told.status("ejected").cpu.mechanism.exit_reason;
            assert!(reason.as_ref().is_some_and(|reason| reason.contains("sysrq")), "{reason:?}");
            told.says("log", &["the kernel took the scheduler back", "mechanism-lost"]);
        }),
        ("a-stopped-daemon-leaves-nothing", &|| left_nothing(&told)),
    ]);
}

/// The daemon has ended well: the scheduler and the socket are gone, and programs live.
fn left_nothing(told: &Transcript) {
    told.says("stopped", &["exit code 0", "disabled", "alive"]);
    assert!(!told.text("stopped").contains("io.steward"), "{}", told.text("stopped"));
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn what_stands_in_the_way_is_said_and_reloading_has_an_end() {
    let told = Transcript::on(1, include_str!("kernel/others.sh"));
    check(&[
        ("another-scheduler-is-not-replaced", &|| {
            let text = told.text("another-scheduler");
            told.says("another-scheduler", &["another scheduler is loaded already: \"null\"", "exit code 1"]);
            assert!(!text.contains("io.steward"), "{text}");
        }),
        ("another-daemon-is-left-alone", &|| {
            told.says("second-daemon", &["another stewardd listens", "exit code 1"]);
        }),
        ("who-is-not-root-is-told-so", &|| told.says("not-root", &["root", "exit code 1"])),
        ("after-three-attempts-it-gives-nice-values-and-says-why", &|| {
            let mechanism = told.status("given-up").cpu.mechanism;
            assert_eq!((mechanism.kind, mechanism.restarts), (Some(api::MechanismKind::Nice), 4));
            let note = mechanism.note.expect("it says why");
            assert!(note.contains("3 attempts") && note.contains("sysrq"), "{note}");
        }),
        ("a-stopped-daemon-leaves-nothing", &|| left_nothing(&told)),
    ]);
}

/// CPU time of a domain's own tasks, in nanoseconds.
fn used_ns(list: &api::DomainList, name: &str) -> u64 {
    let domain = list.domains.iter().find(|domain| domain.name == name);
    let usage = domain.unwrap_or_else(|| panic!("no domain {name}: {list:?}")).usage;
    usage.map_or(0, |usage| usage.best_effort_time_ns)
}

/// Two loops in each of two domains: the kernel's own counters have their waits in the scheduler's queues,
/// and the model knows what divides the CPUs.
fn forecasts_of_a_crowd(text: &str) {
    let forecasts: api::Forecasts =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!((forecasts.model.as_str(), forecasts.source.as_str()), ("steward", "bpf"));
    let domain = |name: &str| {
        let domain = forecasts.domains.iter().find(|domain| domain.name == name);
        domain.unwrap_or_else(|| panic!("no domain {name}:\n{text}"))
    };
    for name in ["a", "b"] {
        let api::DomainForecast { tasks, runnable, forecast, .. } = *domain(name);
        assert_eq!((tasks, runnable), (2, 2), "{name}:\n{text}");
        let (actual, predicted) = (forecast.actual_ms_per_s, forecast.predicted_ms_per_s);
        assert!((predicted - actual).abs() < 0.25 * actual, "{name}: {actual} then {predicted}:\n{text}");
        // Each of them alone on a CPU would have had nearly all of it.
        assert!(forecast.desired_ms_per_s > 1500.0, "{name}:\n{text}");
    }
    assert!(domain("a").guaranteed >= 0.6, "{text}");
    assert!(domain("b").forecast.slowdown > domain("a").forecast.slowdown, "{text}");
}

/// A domain of programs that live for a tenth of a second: every forecast says what the kernel counts for its cgroup,
/// though most of what did it has ended.
fn forecasts_of_short_lives(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let number = |line: usize| -> f64 { lines[line].trim().parse().unwrap_or_else(|_| panic!("{text}")) };
    let (first, last) = (2, lines.len() - 2);
    let counted_ms_per_s = (number(last) - number(0)) / 1e3 / (number(last + 1) - number(1));
    let actual_ms_per_s: Vec<f64> = lines[first..last]
        .iter()
        .map(|line| {
            let forecasts: api::Forecasts =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}:\n{text}"));
            forecasts.domains[0].forecast.actual_ms_per_s
        })
        .collect();
    let ratios: Vec<f64> = actual_ms_per_s.iter().map(|actual| actual / counted_ms_per_s).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert_eq!(ratios.len(), 8);
    assert!(counted_ms_per_s > 200.0 && counted_ms_per_s < 900.0, "{counted_ms_per_s}");
    // A second has a whole number of turns of a fourth of a second only by chance.
    assert!(ratios.iter().all(|ratio| (0.75..1.3).contains(ratio)), "{ratios:?}");
    assert!((0.92..1.08).contains(&mean), "{ratios:?}");
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn domains_get_their_shares_end_with_their_processes_and_outlive_the_daemon() {
    let told = Transcript::on(1, include_str!("kernel/domains.sh"));
    let list = |section: &str| -> api::DomainList {
        let text = told.text(section);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{section}: {error}:\n{text}"))
    };
    let last_minute = |section: &str| -> api::AuditedSpan {
        let text = told.text(section);
        let audit: api::DomainAudit =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{section}: {error}:\n{text}"));
        assert_eq!((audit.domain.as_str(), audit.spans.len()), ("b", 3));
        audit.spans[0].clone()
    };
    check(&[
        ("what-fits-is-reserved-and-what-does-not-leaves-nothing", &|| {
            told.says(
                "created",
                &[
                    "Domain a has 60 % of the machine reserved",
                    "Domain a/child has 50 % of a reserved",
                    "too-much cannot have 10 % of the CPU of the machine",
                    "so 5 % is left",
                    "/sys/fs/cgroup/steward.a /sys/fs/cgroup/steward.b",
                ],
            );
            assert!(!told.text("created").contains("steward.too-much"), "{}", told.text("created"));
        }),
        ("a-process-enters-a-domain", &|| told.says("entered", &["/steward.a/.own /steward.b", "(id "])),
        ("domains-get-their-shares", &|| {
            let (before, after) = (list("before"), list("after"));
            let used = |name: &str| (used_ns(&after, name) - used_ns(&before, name)) as f64;
            let (a, b) = (used("a"), used("b"));
            // Both want all they can get: a has 60 % and b 30 % reserved, and they share the rest.
            let share = a / (a + b);
            assert!((0.60..0.72).contains(&share), "a used {a} ns and b {b} ns: {share}");
        }),
        ("forecasts-of-a-crowd", &|| forecasts_of_a_crowd(&told.text("forecast"))),
        ("the-record-says-that-a-promise-was-kept", &|| {
            let kept = last_minute("kept");
            assert!(kept.seconds >= 5 && kept.broken == 0, "{kept:?}");
            // It always has something to run; when that began, within a second or two, is not known.
            assert!(kept.wanted_ns > kept.promised_ns / 2, "{kept:?}");
            assert!(kept.received_ns >= kept.wanted_ns / 20 * 19, "{kept:?}");
            told.says(
                "kept-in-words",
                &["b is promised 30 % of the machine", "In the last minute", "the promise was kept"],
            );
        }),
        ("the-record-says-that-a-promise-was-broken", &|| {
            let broken = last_minute("broken");
            assert!(broken.broken >= 3 && broken.worst_missing_ns > 0, "{broken:?}");
        }),
        ("a-domain-goes-with-its-last-process", &|| {
            assert_eq!(told.text("ended").trim(), "/sys/fs/cgroup/steward.a");
        }),
        ("forecasts-of-short-lives", &|| forecasts_of_short_lives(&told.text("brief"))),
        ("a-forecast-knows-the-limit-that-others-set", &|| {
            let limited: api::Forecasts =
                serde_json::from_str(&told.text("limited-by-others")).expect("the forecasts of one domain");
            let potential = limited.domains[0].forecast.potential_ms_per_s;
            assert!(potential <= 200.0, "a fifth of a CPU: {potential}");
        }),
        ("cgroups-of-others-are-taken-in-and-their-end-is-noticed", &|| {
            told.says(
                "foreign",
                &["Domain foreign/inner has 10 % of foreign reserved", "100", "somebody else removed"],
            );
        }),
        ("a-user-divides-a-domain-of-the-users-own-and-no-other", &|| {
            told.says(
                "user",
                &[
                    "Domain theirs/part has 100 % of theirs reserved",
                    "the domain theirs of user 1000",
                    "the domain a of user 0",
                    "theirs/part",
                ],
            );
        }),
        ("domains-outlive-a-killed-daemon", &|| {
            told.says("killed", &["/steward.stays"]);
            let restarted = list("restarted");
            let cpu = [("a", Some(0.6)), ("a/child", Some(0.5)), ("theirs", Some(0.02)), ("stays", None)];
            for (name, cpu) in cpu {
                let domain = restarted.domains.iter().find(|domain| domain.name == name);
                assert_eq!(domain.map(|domain| domain.cpu), Some(cpu), "{name}");
            }
        }),
        ("a-domain-is-removed-with-all-in-it", &|| {
            let removed = ["/steward.a/child", "/steward.a/.own", "Domain a is removed", "ended with 137"];
            told.says("removed", &removed);
        }),
        ("a-stopped-daemon-removes-domains-that-are-empty", &|| {
            told.says("stopped", &["exit code 0", "/steward.stays"]);
            assert!(!told.text("stopped").contains("steward.theirs"), "{}", told.text("stopped"));
        }),
        ("revert-removes-the-rest", &|| {
            told.says("reverted", &["cgroup steward.stays: removed", "exit code 0", "No such file"]);
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn who_reads_what_the_kernel_protects_does_not_wait_until_it_takes_the_scheduler_out() {
    let told = Transcript::on(1, include_str!("kernel/readers.sh"));
    told.says("after", &["enabled"]);
    let text = told.text("after");
    let status: api::StatusReply = serde_json::from_str(text.split_once('\n').expect("two parts").1)
        .unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let mechanism = status.cpu.mechanism;
    assert_eq!((mechanism.kind, mechanism.restarts), (Some(api::MechanismKind::SchedExt), 0));
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn rules_hold_against_other_users_programs_that_change_user_and_pids_given_out_again() {
    let told = Transcript::with_files(
        besieged::machine(),
        vec![
            built("examples/besieged", "/usr/bin/besieged"),
            built("examples/suspension", "/usr/bin/suspension"),
        ],
        include_str!("kernel/authority.sh"),
    );
    check(&[
        ("nobody-else-reads-the-state-or-holds-its-lock", &|| {
            told.says("state", &["drwx------", "undo.journal.lock: Permission denied"]);
        }),
        ("without-a-rule-only-root-may-reserve", &|| {
            told.says(
                "by-default",
                &["user 1000 may not reserve", "no rule allows it", "has 1ms/100ms", "best-effort now"],
            );
        }),
        ("a-rule-for-a-group-is-about-what-its-users-own", &|| {
            told.says("group", &["promised 2ms", "of user 0: no rule allows it", "exit code 1"]);
        }),
        ("a-program-with-the-rights-of-several-users-is-nobodys", &|| {
            told.says(
                "set-user-id",
                &["may not reserve", "may not limit", "has the rights of several users"],
            );
        }),
        ("a-mistake-in-the-rules-leaves-those-of-before", &|| {
            told.says("mistake", &["has 1ms/100ms", "exit code 0", "best-effort now"]);
        }),
        ("rules-with-a-mistake-from-the-beginning-allow-nothing", &|| {
            told.says(
                "mistake-from-the-beginning",
                &["has a mistake in it (/etc/steward/authority/50-test.toml:6)", "exit code 1"],
            );
        }),
        ("where-polkit-is-not-there-it-is-said-so", &|| {
            told.says("ask", &["50-test.toml:1 says to ask polkit, and polkit is not there"]);
        }),
        ("nobody-moves-a-process-out-of-what-confines-it", &|| {
            told.says(
                "moved",
                &["confined of user 0, which it is in", "0::/confined", "0::/steward.theirs", "of user 0:"],
            );
        }),
        ("nobody-leaves-a-slice-that-limits-how-many-processes-they-have", &|| {
            let refused = "user.slice of user 0, which it is in";
            // The one in the domain was moved there before.
            told.says("slice", &[refused, "processes 7 in the slice, 1 in the domain"]);
        }),
        ("who-is-suspended-for-long-keeps-nobody-waiting-inside-the-kernel", &|| {
            let text = told.text("suspended");
            println!("{text}");
            let (longest_ms, files) = (figure(&text, "longest_ms "), figure(&text, "touched "));
            assert!(longest_ms < LONGEST_TOUCH_MS && files > 1000, "{text}");
            let used_ms = figure(&text, "used_ms ");
            assert!(used_ms < 15, "they are suspended: {text}");
            assert!(figure(&text, "afterwards used_ms ") > 100, "they go on: {text}");
        }),
        ("nobody-leaves-what-was-left-to-them-to-divide", &|| {
            told.says("left-to-divide", &["left, whose limits are its manager's", "exit code 1", "0::/left"]);
        }),
        ("nobody-removes-the-limits-of-their-domain", &|| {
            told.says("limited", &["would hold its processes no more", "exit code 1", "0::/steward.theirs"]);
        }),
        ("what-anothers-domain-may-use-of-memory-is-told-to-nobody-else", &|| {
            let refused = "user 1000 may not read how much memory the domain second of user 1001 may use: no rule \
                           allows it (default rule 6 is for own and below-own targets)";
            told.says("availability", &["first may use 64M", "exit code 0", refused, "exit code 1"]);
            let shown = ["first read", "read error: Permission denied", "first shown 2", "second shown 0"];
            told.says("availability", &shown);
        }),
        ("who-is-in-a-domain-is-told-what-it-may-use-and-nothing-of-those-above", &|| {
            let section = "availability-of-one-inside";
            told.says(
                section,
                &["second may use", "first may use", "may not read how much memory", "exit code 0"],
            );
            told.says(section, &["the domain second of user 1001 may use: no rule", "exit code 1"]);
        }),
        ("a-pid-given-out-again-has-nothing-of-before", &|| {
            told.says("pid-again", &["has 3ms/100ms", "the same pid", "is best-effort: it shares"]);
        }),
        ("who-means-ill-keeps-nobody-elses-call-waiting-and-the-daemon-small", &|| {
            besieged::goal_is_kept(&told);
        }),
        ("a-stopped-daemon-leaves-the-default-scheduler", &|| {
            told.says("stopped", &["exit code 0", "disabled"]);
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn polkit_is_asked_where_a_rule_says_so_and_its_answer_holds() {
    let packages = ["polkitd", "dbus-daemon", "util-linux", "sed", "grep", "coreutils"];
    let told = Transcript::with(&packages, include_str!("kernel/polkit.sh"));
    let refused = |section: &str, why: &str| told.says(section, &[why, "exit code 1"]);
    check(&[
        ("a-polkit-that-does-not-run-allows-nothing", &|| {
            refused("no-polkit", "50-test.toml:1 says to ask polkit, and it could not be asked");
        }),
        ("what-polkit-allows-is-done", &|| {
            told.says("allowed", &["has 1ms/100ms: admitted", "exit code 0"]);
        }),
        ("who-cannot-be-asked-for-a-password-is-refused", &|| {
            refused("no-agent", "50-test.toml:6 says to ask polkit, and it wants a password");
        }),
        ("what-polkit-refuses-is-not-done", &|| {
            refused("refused", "50-test.toml:11 says to ask polkit, and it says no");
        }),
        ("polkit-is-told-what-it-is-asked-for", &|| {
            told.says(
                "asked",
                &[
                    "asked whether user may reserve CPU time for process",
                    "asked whether user may limit CPU time of process",
                    "asked whether user may change how the machine is divided",
                ],
            );
        }),
        ("a-stopped-daemon-leaves-the-default-scheduler", &|| {
            told.says("stopped", &["exit code 0", "disabled"]);
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn control_files_do_from_a_shell_what_the_interface_does() {
    let told = Transcript::on(1, include_str!("kernel/files.sh"));
    check(&[
        ("domains-are-a-tree-of-files", &|| {
            told.says("tree", &["domains forecasts last_error self domains 100 virtual-time"]);
        }),
        ("forecasts-are-a-table", &|| {
            told.says("forecasts", &["tid pid user domain actual desired", "12 words about sh", "domain /"]);
        }),
        ("writing-a-number-reserves", &|| told.says("reserve", &["50 50", "batch"])),
        ("writing-a-pid-moves-the-process", &|| told.says("members", &["moved domains/batch 40"])),
        ("a-refused-write-says-why-and-changes-nothing", &|| {
            told.says(
                "refused",
                &["write \"97\" to cpu of batch: ", "95 %", "write \"lots\"", "no percentage", "40"],
            );
        }),
        ("the-rules-hold-for-files-too", &|| {
            let denied = "write \"10\" to cpu of batch: permission denied: user 1000 may not";
            told.says("another-user", &[denied, "40"]);
        }),
        ("a-removed-directory-is-a-removed-domain", &|| told.says("removed", &["0"])),
        ("what-a-killed-daemon-leaves-mounted-is-unmounted", &|| {
            told.says("killed", &["not connected", "put back: /run/steward/fs: unmounted", "0 100 1"]);
        }),
        ("a-stopped-daemon-unmounts-them", &|| {
            told.says("stopped", &["exit code 0 0"]);
            assert!(!told.text("stopped").contains("self"), "{}", told.text("stopped"));
        }),
    ]);
}

/// Nothing stays suspended or at a lower place than it had, whoever is killed.
#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn background_work_is_deferred_to_all_and_has_an_ordinary_place_when_its_controller_or_the_daemon_is_killed()
{
    const ORDINARY: &str = "\"priority\":4\"lowered\":false frozen 0 weight 100";
    let told = Transcript::on(1, include_str!("kernel/background.sh"));
    let work = |section: &str, name: &str| figure(&told.text(section), name);
    // In hundredths of a second, of two seconds; in reads from the disk, of one, in which it can do 250. Without the
    // work there are some ten, and in the second after a daemon is killed the kernel takes out what that had loaded.
    let works = |section: &str| assert!(work(section, "work") >= 60, "{}", told.text(section));
    let reads = |section: &str, name: &str| assert!(work(section, name) > 40, "{}", told.text(section));
    check(&[
        ("background-work-waits-behind-a-loop", &|| {
            assert!(work("behind-a-loop", "work") <= 10, "{}", told.text("behind-a-loop"));
            told.says("behind-a-loop", &["\"lowered\":true frozen 0 weight 100"]);
        }),
        ("it-is-not-suspended-for-nobodys-harm", &|| {
            assert!(told.text("behind-a-loop").ends_with("\n0"), "{}", told.text("behind-a-loop"));
        }),
        ("a-killed-controller-leaves-an-ordinary-place", &|| {
            told.says("controller-killed", &[ORDINARY]);
            works("controller-killed");
        }),
        ("who-is-asked-to-end-ends-soon", &|| {
            told.says("asked-to-end", &["exit code 143"]);
            assert!(work("asked-to-end", "seconds") <= 2, "{}", told.text("asked-to-end"));
        }),
        ("it-is-suspended-for-who-waits-for-the-disk", &|| {
            told.says("disk", &["suspended: the domain victim is", "times slower for want of the disk"]);
        }),
        ("a-killed-controller-leaves-nothing-suspended", &|| reads("disk", "controller-killed reads")),
        ("a-killed-daemon-leaves-nothing-suspended", &|| {
            reads("daemon-killed", "work reads");
            told.says("daemon-killed", &["\"lowered\":true frozen 0"]);
        }),
        ("both-killed-leave-an-ordinary-place", &|| {
            told.says("both-killed", &["disabled", ORDINARY]);
            reads("both-killed", "work reads");
        }),
        ("what-a-killed-daemon-froze-runs-again", &|| {
            told.says("frozen", &["in force 1 1", ORDINARY]);
            works("frozen");
        }),
        ("what-was-frozen-runs-again-though-the-guard-was-killed", &|| {
            assert!(work("guard-killed", "left") <= 1, "but for a hundredth that had begun");
            told.says("guard-killed", &[ORDINARY, "exit code 0"]);
            works("guard-killed");
        }),
        ("its-domain-goes-with-it", &|| {
            assert!(!told.0.values().flatten().any(|line| line == "/sys/fs/cgroup/steward.quiet"));
        }),
    ]);
}

/// How long a file of root's may take beside those of programs that their user has suspended, in milliseconds: who was
/// let go only when it was held.
const LONGEST_TOUCH_MS: i64 = 2000;

/// What a line `NAME NUMBER` says.
fn figure(text: &str, name: &str) -> i64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name}: {text}"))
}

/// SCHED_DEADLINE beside hotplug, restarts, a full disk and a damaged journal.
#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn reservations_of_the_kernel_leave_nothing_behind_and_survive_a_full_disk() {
    // 2^20 parts of a CPU, as the kernel counts: 20 programs of 1 % are 209,700.
    const NOTHING: std::ops::Range<i64> = -200..200;
    let told = Transcript::of(include_str!("kernel/deadline.sh"));
    let left_nothing = |by: &str| {
        let left = figure(&told.text("restarts"), by);
        assert!(NOTHING.contains(&left), "{by}: {left}");
    };
    check(&[
        ("twenty-programs-are-admitted-by-the-kernel", &|| {
            let reserved = figure(&told.text("admitted"), "reserved");
            assert!((209_000..211_000).contains(&reserved), "{reserved}");
        }),
        ("the-daemon-has-a-nice-value-instead-of-a-reservation", &|| {
            told.says("admitted", &["stewardd: nice -20, policy 0"]);
        }),
        ("what-is-asked-for-workers-of-a-cpu-that-goes-harms-nothing", &|| {
            assert_eq!(told.text("hotplug"), "no fault")
        }),
        ("a-stopped-daemon-leaves-nothing", &|| left_nothing("left by a stop")),
        ("killed-daemons-leave-nothing-suspended", &|| {
            told.says("restarts", &["suspended 3 of 3, resumed 3"]);
        }),
        ("revert-undoes-what-killed-daemons-left", &|| left_nothing("left by kills and revert")),
        ("revert-says-what-it-puts-back", &|| {
            // Twenty programs, and workers with a better nice value.
            let text = told.text("restarts");
            let counts = text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>();
            assert!(counts.len() == 1 && counts[0] >= 20, "{counts:?}");
        }),
        ("on-a-full-disk-nothing-is-changed-that-could-not-be-undone", &|| {
            told.says("full-disk", &["nothing was changed in the kernel", "No space left"]);
        }),
        ("a-damaged-journal-is-set-aside", &|| {
            told.says("flipped", &["undo.journal is damaged", "undo.journal.damaged", "exit code 0"]);
        }),
        ("a-damaged-line-costs-that-line-and-all-others-are-undone", &|| {
            let text = told.text("flipped");
            assert!(
                figure(&text, "deadline before ") >= 20 && figure(&text, "deadline after ") <= 1,
                "{text}"
            );
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn memory_is_promised_and_limited_and_put_back_however_the_daemon_ends() {
    let told = Transcript::on(1, include_str!("kernel/memory.sh"));
    let mib = |mib: u64| (mib << 20).to_string();
    check(&[
        ("a-minimum-and-a-maximum-are-written", &|| {
            told.says("made", &["exit code 0", &format!("{} {}", mib(64), mib(128))]);
        }),
        ("a-domain-below-is-promised-a-part", &|| {
            told.says("nested", &["exit code 0", &format!("{} {}", mib(48), mib(16))]);
        }),
        ("more-than-there-is-is-refused", &|| {
            let why = "b cannot have 100G of the memory of the machine";
            told.says("too-much", &[why, "(a 64M)", "exit code 1"]);
        }),
        ("a-minimum-above-the-maximum-is-refused", &|| {
            told.says("upside-down", &["cannot be promised where at most 1M may be used", "exit code 1"]);
        }),
        ("a-maximum-below-what-is-used-takes-what-can-be-taken", &|| {
            // Whether that is known when the call is answered is a matter of milliseconds.
            told.says("below-use", &["no more can be taken from it", &mib(64), "alive with 3000000"]);
        }),
        ("a-maximum-above-what-is-used-is-written", &|| told.says("above-use", &[&mib(32)])),
        ("who-grows-beyond-the-maximum-is-ended", &|| told.says("grows", &["exit code 137"])),
        ("a-specification-promises-memory-in-a-domain-of-its-own", &|| {
            told.says("program", &[&format!("{} 1", mib(48)), "is in force in a domain of its own"]);
        }),
        ("what-a-program-had-before-it-was-moved-is-said-to-be-charged-elsewhere", &|| {
            let left = "that process";
            told.says("moved", &["60M", left, "stay charged to /, and are neither kept nor limited here"]);
            told.says("moved", &["60M that it had before stay charged to where it was"]);
        }),
        ("a-killed-daemon-leaves-what-was-promised", &|| told.says("killed", &[&mib(64)])),
        ("a-daemon-started-again-promises-the-same", &|| {
            told.says("started-again", &["memory promised: 64M", &format!("{} {}", mib(64), mib(128))]);
        }),
        ("a-stopped-daemon-puts-back-what-there-was", &|| told.says("stopped", &["0 0 max"])),
        ("revert-forgets-domains", &|| {
            told.says("reverted", &["domains.json: what domains had is forgotten"]);
        }),
    ]);
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn a_protected_domain_keeps_what_it_uses_beside_one_that_takes_all_memory() {
    let config = MachineConfig { disk_mib: Some(64), ..counted(512) };
    let told = Transcript::in_machine(config, include_str!("kernel/protect.sh"));
    let mib = |section: &str, name: &str| {
        let text = told.text(section);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("no {name}: {text}"));
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("no number: {line}"));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        (number(words[0]), number(words[3]))
    };
    check(&[
        ("a-protected-domain-keeps-what-it-uses", &|| {
            let (in_memory, swapped) = mib("kept", "protected:");
            assert!(in_memory >= 56 && swapped == 0, "{in_memory} and {swapped}");
        }),
        ("it-keeps-that-beside-one-that-takes-all-memory", &|| {
            let own = |section| figure(&told.text(section), "protected's own:");
            assert!(own("kept") >= 59_000_000, "{}", told.text("kept"));
            assert_eq!(mib("hog", "protected:").1, 0);
            // The kernel brings its count up to date when more than 64 pages a processor have changed.
            let change = (own("hog") - own("kept")).abs();
            assert!(change <= 64 * 4096, "{}", told.text("hog"));
        }),
        ("who-takes-all-memory-pays", &|| {
            let (in_memory, swapped) = mib("hog", "hog:");
            assert!(in_memory + swapped >= 600 && swapped >= 200, "{in_memory} and {swapped}");
        }),
        ("who-takes-all-memory-is-not-ended", &|| told.says("hog", &["oom_kill 0"])),
        ("nothing-is-held-that-a-limited-service-would-be-ended-for", &|| {
            let lives = ["lives beside nobody", "lives beside somebody", "unevictable: 0", "oom_kill 0"];
            told.says("service", &lives);
            for who in ["nobody", "somebody"] {
                let name = format!("{who}:");
                assert!(figure(&told.text("service"), &name) > 30_000_000, "{}", told.text("service"));
            }
        }),
        ("what-it-has-not-used-for-a-while-is-not-kept", &|| {
            assert!(figure(&told.text("lapses").replace(" MiB", ""), "kept") < 30, "{}", told.text("lapses"));
        }),
        ("a-stopped-daemon-leaves-nothing", &|| told.says("stopped", &["exit code 0 0"])),
    ]);
}

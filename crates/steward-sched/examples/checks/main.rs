//! Checks of the scheduler on a real kernel, to be run as root inside the lab's machine (tests/kernel.rs does it).
//!
//! `checks` runs all that this machine has CPUs for but the long ones, `checks NAME...` some. Each prints `ok NAME:
//! figures` or `failed NAME: what was seen`. Figures are shares of CPU time by the kernel's own accounting, so they do
//! not depend on how busy the host is. The other forms of the command are the programs that the checks run: `spin`,
//! `pulse`, `later`, `fork-spin`, `hold` and others (programs.rs).

mod admission;
mod crowds;
mod domains;
mod holds;
mod interactive;
mod plain;
mod programs;
mod requests;
mod shares;
mod system;
mod watched;

use std::process::ExitCode;

type Outcome = Result<String, String>;

/// Fails a check with what was seen unless the condition holds.
macro_rules! check {
    ($condition:expr, $($seen:tt)*) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($seen)*));
        }
    };
}
pub(crate) use check;

/// Name, how many CPUs it is for (0: any number), and the check.
type Check = (&'static str, usize, fn() -> Outcome);

const CHECKS: &[Check] = &[
    // The first one, so that the others use what it leaves in force.
    ("killing-the-loader-gives-the-machine-back", 1, system::killed_loader),
    ("nice-values-set-shares", 1, shares::nice_values_set_shares),
    ("what-is-changed-while-it-waits-counts-no-more-when-it-has-left", 1, shares::changed_while_waiting),
    ("cgroup-weights-set-shares-through-the-hierarchy", 0, shares::cgroup_weights),
    ("idle-cgroups-get-what-is-left", 1, shares::idle_cgroup),
    ("cpu-max-limits-a-cgroup-and-its-children", 0, shares::cpu_max),
    ("who-changes-a-quota-again-and-again-puts-off-nobodys", 1, shares::flipped_quota),
    ("pinned-tasks-share-their-cpu", 2, shares::pinned_tasks),
    ("who-is-confined-later-shares-with-those-who-are", 2, shares::confined_later),
    ("who-is-changed-from-another-cpu-pays-where-it-runs", 2, shares::reniced_from_elsewhere),
    ("a-pinned-domain-gets-its-due-and-no-more-while-a-cpu-is-offline", 2, shares::pinned_beside_offline),
    ("no-weight-and-no-quota-keeps-a-task-waiting-for-ever", 1, shares::rescue),
    ("thousands-that-are-held-have-their-turns", 1, shares::rescue_of_thousands),
    ("cgroups-that-come-and-go-leave-nothing-behind", 0, shares::cgroups_come_and_go),
    ("a-domain-gets-its-reservation-under-every-order", 1, domains::reservations),
    ("a-higher-priority-goes-first-and-a-reservation-holds", 1, domains::priorities),
    ("below-a-priority-that-comes-and-goes-weights-hold", 1, domains::below_a_priority),
    ("children-are-paid-out-of-their-parents-own", 1, domains::hierarchy),
    ("a-changed-reservation-is-in-force-at-once", 1, domains::change_takes_effect),
    ("a-suspended-domain-waits-and-goes-on", 0, domains::suspension),
    ("who-waits-and-is-changed-meanwhile-is-rescued-in-time", 1, domains::changed_while_waiting),
    ("a-domain-pays-for-the-reservations-of-its-tasks", 1, domains::reservations_are_paid),
    ("tasks-that-wake-each-other-keep-nobody-waiting", 1, domains::beside_a_ring),
    ("suspension-keeps-nobody-waiting-inside-the-kernel", 1, holds::suspension),
    ("who-left-while-the-machine-was-idle-owes-nothing", 0, holds::after_idleness),
    ("cpu-max-keeps-nobody-waiting-inside-the-kernel", 0, holds::quota),
    ("who-is-held-at-a-gate-keeps-nobody-waiting-for-rcu", 2, holds::readers),
    ("a-quota-that-comes-late-keeps-nobody-waiting-either", 1, holds::later_quota),
    ("a-low-priority-keeps-nobody-waiting-inside-the-kernel", 0, holds::priority),
    ("who-is-held-keeps-nobodys-file-from-a-disk-with-a-journal", 1, holds::journal),
    ("who-is-behind-leaves-in-the-pauses-of-those-before-it", 1, holds::pauses),
    ("long-system-calls-gain-nothing-while-held", 1, holds::long_calls),
    ("a-crowd-in-long-calls-is-held-and-goes-on", 1, holds::crowd_in_calls),
    ("who-is-held-or-stands-behind-notices-signals-in-a-second", 1, holds::signals),
    ("who-is-held-for-moments-keeps-nobody-waiting", 1, holds::moments),
    ("who-is-charged-below-a-cgroup-is-held-with-it", 1, holds::moments_below),
    ("a-cpu-goes-offline-while-somebody-is-held-on-it", 2, holds::moments_under_hotplug),
    ("who-is-held-holds-up-no-cpu-that-goes-offline", 2, holds::held_under_hotplug),
    ("a-reservation-holds-against-loops", 1, interactive::reservation_holds),
    ("budgets-of-a-millisecond-are-enforced", 1, interactive::fine_budgets),
    ("a-request-that-is-announced-has-a-fresh-period", 1, requests::fresh_periods),
    ("addresses-of-requests-that-are-wrong-do-no-harm", 1, requests::wrong_addresses),
    ("a-best-effort-task-starts-nothing-interactive", 1, interactive::no_way_up),
    ("an-interactive-parent-starts-interactive-programs", 1, interactive::specification_at_exec),
    ("so-do-many-that-are-started-at-once", 1, interactive::specifications_at_once),
    ("who-was-not-seen-to-execute-has-its-specification-when-it-stops", 1, interactive::unseen_executions),
    ("a-child-that-starts-slowly-is-lent-more", 1, interactive::slow_start),
    ("what-children-leave-of-their-loans-is-their-parents-again", 1, interactive::loans_come_back),
    ("children-inherit-and-are-refused-one-by-one", 1, interactive::inheritance),
    ("overload-revokes-and-room-reactivates", 1, interactive::overload),
    ("best-effort-work-gets-its-twentieth-under-overload", 1, admission::class_bound),
    ("who-does-not-fit-keeps-nobody-waiting", 0, admission::waiters),
    ("each-user-has-a-part-whatever-others-have", 1, admission::parts),
    ("users-of-a-namespace-that-root-made-are-one", 1, admission::one_namespace),
    ("after-a-crowd-no-more-places-are-gone-through-than-before", 1, admission::places),
    ("a-thread-that-executes-keeps-its-reservation", 1, admission::exec_by_a_thread),
    ("a-process-that-has-ended-gets-nothing", 1, admission::ended_process),
    ("who-has-the-id-of-an-ended-thread-gets-nothing", 1, admission::anothers_thread),
    ("a-free-task-makes-room-for-a-pinned-one", 2, admission::make_room),
    ("cpus-come-and-go-under-forks", 2, admission::hotplug_under_forks),
    ("a-cpu-that-goes-offline-gives-its-reservations-away", 2, system::hotplug),
    // The kernel is busy with their end for a while, which would take from others' shares.
    ("thousands-of-cgroups-stop-nobody", 1, shares::thousands_of_cgroups),
    ("a-second-scheduler-is-refused", 1, system::second_load),
    ("a-task-is-back-on-its-cpu-when-its-period-begins", 2, interactive::back_on_its_cpu),
    ("affinity-moves-a-reservation", 2, system::affinity),
    ("changing-a-task-from-another-cpu-keeps-nobody-waiting-there", 2, system::changed_from_elsewhere),
    ("who-is-on-its-way-into-a-queue-that-is-found-empty-is-looked-for-again", 2, system::on_its_way_in),
    ("who-loses-a-reservation-waits-where-it-may-run", 2, interactive::back_where_it_may_run),
    ("loops-and-a-film-without-specifications-go-on", 2, plain::loops_and_a_film),
    ("a-real-time-loop-on-one-cpu-stops-nobody", 2, plain::beside_a_real_time_loop),
];

/// Those that take more than half a minute of the machine's clock each. They run where they are named, in a machine
/// whose clock goes faster.
const LONG_CHECKS: &[Check] = &[
    ("a-crowd-that-is-never-revoked-takes-nothing-away", 1, crowds::irrevocable),
    ("a-crowd-of-shells-takes-nothing-away", 1, crowds::revocable),
    ("beside-thousands-at-nice-19-an-ordinary-task-waits-by-its-weight", 1, crowds::light),
    ("who-is-held-behind-thousands-keeps-nobody-waiting-inside-the-kernel", 1, holds::behind_a_crowd),
];

/// The checks of these names; with none, all that this machine has CPUs for but the long ones.
fn chosen(names: &[String]) -> Vec<&'static Check> {
    if names.is_empty() {
        let cpus = programs::cpus();
        return CHECKS.iter().filter(|(_, wanted_cpus, _)| [0, cpus].contains(wanted_cpus)).collect();
    }
    let all = CHECKS.iter().chain(LONG_CHECKS);
    all.filter(|(name, _, _)| names.iter().any(|wanted| wanted == name)).collect()
}

/// The checks must see what they start, also when that takes all there is: they run ahead of every scheduler tried.
/// Their children start as ordinary tasks.
pub(crate) fn stay_ahead() {
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain system call on ourselves.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = programs::run(&arguments) {
        return status;
    }
    stay_ahead();
    let mut failed = 0;
    for (name, _, check) in chosen(&arguments) {
        match check() {
            Ok(figures) => println!("ok {name}: {figures}"),
            Err(seen) => {
                failed += 1;
                println!("failed {name}: {seen}");
            }
        }
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

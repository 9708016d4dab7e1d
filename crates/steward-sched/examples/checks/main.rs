//! Checks of the scheduler on a real kernel, to be run as root inside the lab's machine (tests/kernel.rs does it).
//!
//! `checks` runs all of them, `checks NAME...` some. Each prints `ok NAME: figures` or `failed NAME: what was seen`.
//! Figures are shares of CPU time by the kernel's own accounting, so they do not depend on how busy the host is.
//! The other forms of the command are the programs that the checks run: `spin`, `pulse`, `later`, `fork-spin`, `hold`.

mod interactive;
mod programs;
mod shares;
mod system;

use std::process::ExitCode;

type Outcome = Result<String, String>;

/// Fails a check with what was seen unless the condition holds.
macro_rules! check {
    ($condition:expr, $($seen:tt)*) => {
        if !$condition {
            return Err(format!($($seen)*));
        }
    };
}
pub(crate) use check;

const CHECKS: &[(&str, fn() -> Outcome)] = &[
    ("nice-values-set-shares", shares::nice_values_set_shares),
    ("cgroup-weights-set-shares-through-the-hierarchy", shares::cgroup_weights),
    ("idle-cgroups-get-what-is-left", shares::idle_cgroup),
    ("cpu-max-limits-a-cgroup-and-its-children", shares::cpu_max),
    ("bound-tasks-share-their-cpu", shares::bound_tasks),
    ("cgroups-that-come-and-go-leave-nothing-behind", shares::cgroups_come_and_go),
    ("a-reservation-holds-against-loops", interactive::reservation_holds),
    ("budgets-of-a-millisecond-are-enforced", interactive::fine_budgets),
    ("a-best-effort-task-starts-nothing-interactive", interactive::no_way_up),
    ("an-interactive-parent-starts-interactive-programs", interactive::specification_at_exec),
    ("children-inherit-and-are-refused-one-by-one", interactive::inheritance),
    ("overload-revokes-and-room-reactivates", interactive::overload),
    ("a-cpu-that-goes-offline-gives-its-reservations-away", system::hotplug),
    ("a-second-scheduler-is-refused", system::second_load),
    ("killing-the-loader-gives-the-machine-back", system::killed_loader),
    ("affinity-moves-a-reservation", system::affinity),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(status) = programs::run(&arguments) {
        return status;
    }
    let mut failed = 0;
    for (name, check) in CHECKS {
        if !arguments.is_empty() && !arguments.iter().any(|argument| argument == name) {
            continue;
        }
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

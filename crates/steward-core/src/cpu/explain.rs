//! Says in sentences what a task is promised, where that comes from, and whether the promise was kept.
//!
//! `steward explain PID` prints [`explain_task`]; the journal gets [`explain_event`]. Every sentence gives the
//! figures that it rests on.

use crate::cpu::event::{Event, EventKind, Reason, Rule};
use crate::cpu::mechanism::{CpuRecord, Standing, TaskRecord};
use crate::cpu::reservation::Reservation;
use crate::cpu::thresholds::Thresholds;
use crate::problem::Problem;
use crate::quantity::{approximate_duration, approximate_percent, format_size};
use crate::spec::Spec;

/// From this share of periods on, a spent budget means that the reservation is too small rather than that one
/// moment was busy.
const OFTEN: f64 = 0.05;
/// From this share of periods on, a task always wants what its budget is, whatever it gets beyond.
const MOSTLY: f64 = 0.5;
/// What a task had beyond its budget, in the periods in which that was spent, counts from this part of the budget on:
/// less is how late a budget's end is noticed.
const BEYOND: f64 = 0.1;
/// A task sleeps in between, if this part of its periods at least ends with some of the budget left.
const ENDS: f64 = 0.2;
/// The steps in which a budget is proposed, in nanoseconds.
const STEP_NS: u64 = 100_000;
/// How many tasks are named that take a CPU's time.
const NAMED_MAX: usize = 3;
/// What a real-time task takes of a CPU is told from this part on.
const TAKES: f64 = 0.01;

/// A task that the kernel runs before all reservations, because of its policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RealTimeTask {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// The kernel's name of it.
    pub name: String,
    /// Its policy, by the kernel's name: `SCHED_FIFO`.
    pub policy: String,
    /// The CPU that it ran on last.
    pub cpu: u32,
    /// Which fraction of a CPU it used lately.
    pub share: f64,
}

/// Explains one task in several lines: what it is promised, where that comes from, where it stands, and what it got.
/// `cpu` is the record of the CPU that the task is on, `spec` the specification that it started with, `real_time` the
/// tasks that took time before it lately, on whichever CPU.
pub fn explain_task(
    task: &TaskRecord,
    cpu: &CpuRecord,
    spec: Option<&Spec>,
    thresholds: &Thresholds,
    real_time: &[RealTimeTask],
) -> String {
    let mut lines = vec![promise(task), source(task, spec), standing(task, cpu, thresholds)];
    if task.periods > 0 {
        lines.push(record(task));
        lines.push(format!(
            "CPU time: {} from the reservation, {} as best-effort.",
            approximate_duration(task.reserved_time_ns),
            approximate_duration(task.best_effort_time_ns)
        ));
    }
    lines.extend(advice(task, thresholds, real_time));
    lines.join("\n") + "\n"
}

fn promise(task: &TaskRecord) -> String {
    let grant = &task.grant;
    format!(
        "{} (thread {} of process {}) is promised {} of CPU time in every {}: {} of one CPU. {} {}",
        task.name,
        task.tid,
        task.pid,
        approximate_duration(grant.reservation.budget_ns),
        approximate_duration(grant.reservation.period_ns),
        approximate_percent(grant.reservation.bandwidth()),
        if grant.inherit { "Its children get the same." } else { "Its children do not get it." },
        revocability(task),
    )
}

/// Whether it may be revoked, and why in spite of its specification.
fn revocability(task: &TaskRecord) -> String {
    match task.reason {
        _ if task.grant.revocable => "It may be revoked under overload.".to_owned(),
        Some(reason @ Reason { rule: Rule::Irrevocable | Rule::NotNamed, .. }) => {
            format!("It may be revoked although it asks never to be: {}.", why_revocable(&reason))
        }
        _ => "It is never revoked.".to_owned(),
    }
}

fn why_revocable(reason: &Reason) -> String {
    match reason.rule {
        Rule::NotNamed => format!(
            "it is a task of user {}, who is neither root nor the user whom its specification names",
            reason.uid
        ),
        _ => format!(
            "what is never revoked has {} of that CPU already, and may have {}",
            approximate_percent(reason.amount),
            approximate_percent(reason.limit)
        ),
    }
}

/// Why a task that was refused has nothing, by another rule than that the load is too high, and what helps.
pub fn explain_refusal(task: &TaskRecord) -> Option<String> {
    let reason = task.reason.filter(|reason| reason.rule != Rule::Load)?;
    let why = why_not(Some(&reason), task.grant.reservation.bandwidth(), task.cpu, 0.0, 0.0);
    Some(format!("{why}. {}", advice_out_of_force(task)))
}

/// What keeps a task out: the rule with its amounts.
fn why_not(reason: Option<&Reason>, bandwidth: f64, cpu: u32, load: f64, threshold: f64) -> String {
    let bandwidth = approximate_percent(bandwidth);
    match reason {
        Some(Reason { rule: Rule::User, uid, amount, limit }) => format!(
            "the tasks of user {uid} have {} of CPU {cpu} reserved, which with its {bandwidth} passes the {} that one \
             user may have there",
            approximate_percent(*amount),
            approximate_percent(*limit)
        ),
        Some(Reason { rule: Rule::Users, amount, .. }) => {
            format!(
                "tasks of {amount} users have reservations on CPU {cpu}, and there is no room for another user"
            )
        }
        Some(Reason { rule: Rule::Together, amount, limit, .. }) => format!(
            "the tasks of users other than root and the owner have {} of CPU {cpu} reserved, which with its \
             {bandwidth} passes the {} that they may have there together",
            approximate_percent(*amount),
            approximate_percent(*limit)
        ),
        Some(Reason { rule: Rule::Part, uid, amount, limit }) => format!(
            "a task of another user came, and those of user {uid} had {} of CPU {cpu} reserved, where {} is each one's \
             part",
            approximate_percent(*amount),
            approximate_percent(*limit)
        ),
        Some(Reason { rule: Rule::NoCpu, .. }) => "no CPU that is online is allowed to it".to_owned(),
        Some(Reason { rule: Rule::Confined, amount, .. }) => format!(
            "SCHED_DEADLINE has no reservation for a thread of the kernel, nor for a task that may not run on every CPU; \
             it has nice {amount} instead"
        ),
        Some(Reason { rule: Rule::OwnPolicy, .. }) => "it has a real-time policy of its own".to_owned(),
        Some(Reason { rule: Rule::KernelFull, .. }) => {
            "the kernel has promised all that it may under SCHED_DEADLINE".to_owned()
        }
        Some(Reason { rule: Rule::Away, .. }) => {
            format!("it sleeps on CPU {cpu}, which is offline, where SCHED_DEADLINE can promise nothing")
        }
        Some(Reason { rule: Rule::Memory, amount, limit, .. }) => format!(
            "it may still bring in {} of memory, and {} are free",
            format_size(*amount as u64),
            format_size(*limit as u64)
        ),
        _ => format!(
            "the least loaded CPU it may use, CPU {cpu}, has load {}, which with its {bandwidth} passes {}",
            approximate_percent(load),
            approximate_percent(threshold)
        ),
    }
}

fn source(task: &TaskRecord, spec: Option<&Spec>) -> String {
    match spec {
        _ if task.grant.keep_over_exec => {
            "That was asked for on the command line (`steward run` or `steward set`) and holds over exec."
                .to_owned()
        }
        Some(spec) => format!("That comes from the specification of {} ({}).", spec.path, spec.origin),
        None if task.grant.spec_id != 0 => {
            "That comes from a specification that is no longer in the files.".to_owned()
        }
        None => "That was given to the running task (`steward set`).".to_owned(),
    }
}

fn standing(task: &TaskRecord, cpu: &CpuRecord, thresholds: &Thresholds) -> String {
    let load = cpu.measured_load.max(cpu.projected_load);
    match task.standing {
        Standing::Admitted => format!(
            "The promise is in force on CPU {}, whose interactive load is {} (admission stops at {}).",
            cpu.cpu,
            approximate_percent(load),
            approximate_percent(thresholds.admit_below)
        ),
        Standing::Refused if !matches!(task.reason, None | Some(Reason { rule: Rule::Load, .. })) => format!(
            "The promise is NOT in force: {}. It runs as best-effort until that changes.",
            why_not(task.reason.as_ref(), task.grant.reservation.bandwidth(), task.cpu, load, 0.0)
        ),
        Standing::Refused => format!(
            "The promise is NOT in force: it was refused, because it needs {} and every CPU it may use was too full. \
             CPU {} has an interactive load of {} now (admission stops at {}). It runs as best-effort until there is \
             room.",
            approximate_percent(task.grant.reservation.bandwidth()),
            cpu.cpu,
            approximate_percent(load),
            approximate_percent(thresholds.admit_below)
        ),
        Standing::Revoked if !matches!(task.reason, None | Some(Reason { rule: Rule::Load, .. })) => format!(
            "The promise is NOT in force: it was revoked, and is not taken back, because {}. It runs as best-effort \
             until that changes.",
            why_not(task.reason.as_ref(), task.grant.reservation.bandwidth(), task.cpu, load, 0.0)
        ),
        Standing::Revoked => format!(
            "The promise is NOT in force: it was revoked, because CPU {} stayed above {} of interactive load{}. It \
             runs as best-effort until the load stays below {}.",
            cpu.cpu,
            approximate_percent(thresholds.revoke_above),
            samples(cpu),
            approximate_percent(thresholds.reactivate_below)
        ),
    }
}

/// The load of the CPU now, as an aside.
fn samples(cpu: &CpuRecord) -> String {
    format!(" (now {})", approximate_percent(cpu.measured_load.max(cpu.projected_load)))
}

/// Whether the promise was kept.
fn record(task: &TaskRecord) -> String {
    let periods = count(task.periods, "period");
    let kept = if task.deadlines_missed == 0 {
        format!("Kept in all of {periods}")
    } else {
        format!(
            "NOT kept in {} of {periods} ({})",
            task.deadlines_missed,
            approximate_percent(share(task.deadlines_missed, task.periods))
        )
    };
    let spent = if task.budgets_exhausted == 0 {
        "the budget was never used up".to_owned()
    } else {
        format!(
            "the budget was used up in {} ({}), longest overrun {}",
            task.budgets_exhausted,
            approximate_percent(share(task.budgets_exhausted, task.periods)),
            approximate_duration(task.overrun_max_ns)
        )
    };
    format!("{kept}; {spent}.")
}

/// What would help, if anything is amiss.
fn advice(task: &TaskRecord, thresholds: &Thresholds, real_time: &[RealTimeTask]) -> Option<String> {
    match task.standing {
        Standing::Refused | Standing::Revoked => Some(advice_out_of_force(task)),
        Standing::Admitted => {
            let missed = share(task.deadlines_missed, task.periods) > 0.01;
            let taken = missed.then(|| who_takes(task.cpu, real_time)).flatten();
            let small = too_small(task, thresholds);
            let sentences: Vec<String> = taken.into_iter().chain(small).collect();
            (!sentences.is_empty()).then(|| sentences.join("\n"))
        }
    }
}

/// Names those that took the time of a CPU before any reservation; nothing when nobody did.
fn who_takes(cpu: u32, real_time: &[RealTimeTask]) -> Option<String> {
    let mut takers: Vec<&RealTimeTask> =
        real_time.iter().filter(|task| task.cpu == cpu && task.share >= TAKES).collect();
    takers.sort_by(|one, other| other.share.total_cmp(&one.share));
    let named = |task: &&RealTimeTask| {
        let RealTimeTask { tid, pid, name, policy, share, .. } = task;
        format!("{name} (thread {tid} of process {pid}, {policy}) with {}", approximate_percent(*share))
    };
    let names: Vec<String> = takers.iter().take(NAMED_MAX).map(named).collect();
    let first = takers.first()?;
    Some(format!(
        "Real-time tasks run before any reservation, and took time of CPU {cpu} lately: {}. What helps: an ordinary \
         policy for them (`chrt --other --pid 0 {}`), or another CPU (`taskset`).",
        names.join(", "),
        first.tid
    ))
}

/// Says that the budget is too small, and by how much: what the task had beyond it, as best-effort, in the periods in
/// which it was spent. Under load it would have had less than it needs, so that this is the least that would do.
fn too_small(task: &TaskRecord, thresholds: &Thresholds) -> Option<String> {
    let exhausted = task.budgets_exhausted;
    let budget_ns = task.grant.reservation.budget_ns;
    let beyond_ns = task.best_effort_time_ns.checked_div(exhausted)?;
    let spent = share(exhausted, task.periods);
    let at_a_time_ns = at_a_time(task);
    // Beside a crowd that leaves it next to nothing it goes on in its next period, and has nothing beyond.
    let waits = at_a_time_ns.filter(|at_a_time_ns| *at_a_time_ns as f64 >= (1.0 + BEYOND) * budget_ns as f64);
    let beyond = beyond_ns as f64 >= BEYOND * budget_ns as f64;
    if let (false, true, Some(needed_ns)) = (beyond, spent >= OFTEN, waits) {
        let found = format!(
            "The budget is too small: what it does at a time takes {} on average, and when {} of it are used up it waits \
             for its next period",
            approximate_duration(needed_ns),
            approximate_duration(budget_ns)
        );
        return Some(advise(task, thresholds, &found, needed_ns));
    }
    if !beyond {
        // It may want more, and get next to nothing of what others leave.
        return (spent >= MOSTLY).then(|| {
            format!(
                "It mostly wants more than the {} promised: raise cpu in its specification if it should be smooth.",
                approximate_percent(task.grant.reservation.bandwidth())
            )
        });
    }
    if spent < OFTEN {
        return None;
    }
    let found = format!(
        "The budget is too small: where it was used up, {} more was used as best-effort in a period, {} in all",
        approximate_duration(beyond_ns),
        approximate_duration(budget_ns + beyond_ns)
    );
    Some(advise(task, thresholds, &found, budget_ns + beyond_ns))
}

/// What a task that sleeps in between uses at a time, on average, in nanoseconds: a budget that is used up begins
/// another period, in which it goes on. `None` where it hardly ever ends within one.
fn at_a_time(task: &TaskRecord) -> Option<u64> {
    let ended = task.periods.checked_sub(task.budgets_exhausted)?;
    if share(ended, task.periods) < ENDS {
        return None;
    }
    (task.reserved_time_ns + task.best_effort_time_ns).checked_div(ended)
}

/// Adds to what was found what helps: so much in a period.
fn advise(task: &TaskRecord, thresholds: &Thresholds, found: &str, needed_ns: u64) -> String {
    let period_ns = task.grant.reservation.period_ns;
    let needed = Reservation { budget_ns: needed_ns.div_ceil(STEP_NS) * STEP_NS, period_ns };
    if needed.bandwidth() < thresholds.admit_below {
        format!(
            "{found}. What helps: cpu = \"{needed}\" or more in its specification, or `steward set {} --cpu {needed}`; \
             `steward tune --pid {}` measures what it needs.",
            task.pid, task.pid
        )
    } else {
        format!(
            "{found}. It takes all that it gets, and admission stops at {}.",
            approximate_percent(thresholds.admit_below)
        )
    }
}

fn advice_out_of_force(task: &TaskRecord) -> String {
    let rule = task.reason.map(|reason| reason.rule);
    let text = match (rule, task.standing) {
        (Some(Rule::User | Rule::Users | Rule::Together | Rule::Part), _) => {
            "What helps: end or shrink other reservations of that user (`steward status` shows them), or raise \
             user_max in /etc/steward/steward.toml; it does not hold for root and the owner."
        }
        (Some(Rule::Confined), _) => {
            "What helps: `--mechanism sched-ext`, or for a program's task all CPUs (`taskset -p`, cpuset.cpus)."
        }
        (Some(Rule::OwnPolicy), _) => "What helps: an ordinary policy for it (`chrt --other --pid 0`).",
        (Some(Rule::KernelFull), _) => {
            "What helps: end other SCHED_DEADLINE tasks, or raise /proc/sys/kernel/sched_rt_runtime_us."
        }
        (Some(Rule::Away), _) => "It is tried again once it has run on another CPU.",
        (Some(Rule::NoCpu), _) => "What helps: allow it a CPU that is online (`taskset -p`, cpuset.cpus).",
        (Some(Rule::Memory), _) => {
            "What helps: end what holds the memory, or give the program less to work on."
        }
        (_, Standing::Refused) => {
            "What helps: end or shrink other reservations (`steward status` shows them), give this one a smaller \
             share, or raise admit_below in /etc/steward/steward.toml."
        }
        _ => {
            "What helps: end or shrink other reservations (`steward status` shows them), raise this one if the \
             program needs more than it said, or make it revocable = false if it is critical."
        }
    };
    text.to_owned()
}

/// Says that a task has what its specification said before this mistake was written into its file. A line with its end.
pub fn explain_earlier_version(mistake: &Problem) -> String {
    format!("Its specification is in force as it was before a mistake was made: {mistake}.\n")
}

/// Says in which domain a process is, what that has reserved of its parent's CPU (0 to 1), and which fraction of all
/// CPU time (0 to 1) its own tasks are due at this moment, where somebody counts that. A line with its end.
pub fn explain_domain(name: &str, reserved: Option<f64>, share: Option<f64>) -> String {
    let has = match reserved {
        Some(fraction) if fraction > 0.0 => {
            format!(", which has {} reserved of its parent's CPU", approximate_percent(fraction))
        }
        _ => ", which has nothing reserved".to_owned(),
    };
    let due = share.map_or_else(String::new, |share| {
        format!("; its own tasks together are due {} of the machine now", approximate_percent(share))
    });
    format!("It is in the domain {name}{has}{due}.\n")
}

/// Explains one decision in a sentence.
pub fn explain_event(event: &Event) -> String {
    let task = format!("{} (thread {} of process {})", event.name, event.tid, event.pid);
    let Event { cpu, .. } = event;
    let (load, bandwidth, threshold) = (
        approximate_percent(event.load),
        approximate_percent(event.bandwidth),
        approximate_percent(event.threshold),
    );
    match event.kind {
        EventKind::Admitted => format!(
            "{task} was admitted on CPU {cpu}: load {load} and its {bandwidth} stay below {threshold}{}.",
            event.reason.map_or_else(String::new, |reason| format!(
                "; it may be revoked although it asks never to be: {}",
                why_revocable(&reason)
            ))
        ),
        EventKind::Refused => format!(
            "{task} was refused: {}; it runs as best-effort until that changes.",
            why_not(event.reason.as_ref(), event.bandwidth, *cpu, event.load, event.threshold)
        ),
        EventKind::TableFull => format!(
            "{task} was refused: the table of tasks with a specification is full; it runs as best-effort."
        ),
        EventKind::RevokedExhausted => format!(
            "{task} was revoked: load {load} on CPU {cpu} stayed above {threshold}, and it had used up its budget \
             ({bandwidth}) meanwhile."
        ),
        EventKind::RevokedHungriest => format!(
            "{task} was revoked: load {load} on CPU {cpu} stayed above {threshold}, and of those that may be \
             revoked it used the most ({bandwidth} promised)."
        ),
        EventKind::RevokedDisplaced if event.reason.is_some_and(|reason| reason.rule == Rule::Part) => {
            format!(
                "{task} was revoked: {}; it runs as best-effort until it is taken back.",
                why_not(event.reason.as_ref(), event.bandwidth, *cpu, event.load, event.threshold)
            )
        }
        EventKind::RevokedDisplaced => format!(
            "{task} was revoked: CPU {cpu} {}; what follows says whether another one takes its {bandwidth}.",
            match event.reason {
                Some(reason) if reason.amount > 0.0 => "is no longer allowed to it",
                Some(_) => "went offline",
                None => "went offline or is no longer allowed to it",
            }
        ),
        EventKind::Reactivated => format!(
            "{task} was taken back on CPU {cpu}: load {load} stayed below {threshold}, so there is room for its \
             {bandwidth} again."
        ),
        EventKind::Released => {
            format!("{task} has no reservation any more; its {bandwidth} of CPU {cpu} are free.")
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;

//! The CPUs and those who have some reserved, for the page of `steward status`.

use std::collections::BTreeMap;

use libsteward::api;
use steward_core::cpu::reservation::Reservation;
use steward_core::quantity::{approximate_duration, percent_to};

use crate::output::{row, table};

/// How many programs are named that have something reserved.
const HOLDERS_MAX: usize = 5;

/// A line for each CPU.
pub fn cpu_table(cpus: &[api::Cpu]) -> String {
    let mut rows = vec![row(["CPU", "MEASURED", "EXPECTED", "RESERVED", "TASKS", "REAL-TIME"])];
    for cpu in cpus {
        let online = if cpu.online { "" } else { " (offline)" };
        rows.push(vec![
            format!("{}{online}", cpu.cpu),
            percent_to(cpu.measured_load, 0),
            percent_to(cpu.projected_load, 0),
            percent_to(cpu.reserved, 0),
            cpu.admitted.to_string(),
            percent_to(cpu.real_time, 0),
        ]);
    }
    table(&rows, &[0, 1, 2, 3, 4, 5])
}

/// By whom CPU time is reserved, the largest first; nothing when nobody has any in force.
pub fn holders(tasks: &[api::Task]) -> String {
    let mut by_name: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    let admitted = tasks.iter().filter(|task| task.standing == api::Standing::Admitted);
    for task in admitted {
        let api::Reservation { budget_ns, period_ns } = task.grant.reservation;
        let (sum, count) = by_name.entry(&task.name).or_default();
        *sum += Reservation { budget_ns, period_ns }.bandwidth();
        *count += 1;
    }
    let mut holders: Vec<(&str, (f64, usize))> = by_name.into_iter().collect();
    holders.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
    let total: f64 = holders.iter().map(|(_, (sum, _))| sum).sum();
    let named = |(name, (sum, count)): &(&str, (f64, usize))| match count {
        1 => format!("{name} {}", percent_to(*sum, 0)),
        count => format!("{name} {} ({count} tasks)", percent_to(*sum, 0)),
    };
    let mut parts: Vec<String> = holders.iter().take(HOLDERS_MAX).map(named).collect();
    let rest = holders.get(HOLDERS_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = rest.iter().map(|(_, (sum, _))| sum).sum();
        parts.push(format!("{} others {}", rest.len(), percent_to(sum, 0)));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("Reserved, in parts of one CPU: {} in all; {}.\n", percent_to(total, 0), parts.join(", "))
}

/// A line for each task with a reservation.
pub fn task_table(tasks: &[api::Task]) -> String {
    let mut rows = vec![row([
        "TASK",
        "PROCESS",
        "NAME",
        "RESERVATION",
        "CPU",
        "STANDING",
        "PERIODS",
        "MISSED",
        "RESERVED",
        "BEST-EFFORT",
        "FROM",
    ])];
    for task in tasks {
        rows.push(vec![
            task.tid.to_string(),
            task.pid.to_string(),
            task.name.clone(),
            reservation_text(&task.grant),
            task.cpu.to_string(),
            standing_name(task.standing).to_owned(),
            task.periods.to_string(),
            task.deadlines_missed.to_string(),
            approximate_duration(task.reserved_time_ns),
            approximate_duration(task.best_effort_time_ns),
            task.grant.spec.clone().unwrap_or_else(|| "by hand".to_owned()),
        ]);
    }
    table(&rows, &[0, 1, 4, 6, 7, 8, 9])
}

/// `5ms/30ms IR`, with the paper's flags.
pub fn reservation_text(grant: &api::Grant) -> String {
    let api::Reservation { budget_ns, period_ns } = grant.reservation;
    let inherit = if grant.inherit { "I" } else { "" };
    let revocable = if grant.revocable { "R" } else { "" };
    format!("{} {inherit}{revocable}", Reservation { budget_ns, period_ns }).trim_end().to_owned()
}

/// The word for a standing.
pub fn standing_name(standing: api::Standing) -> &'static str {
    match standing {
        api::Standing::Admitted => "admitted",
        api::Standing::Refused => "refused",
        api::Standing::Revoked => "revoked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str, budget_ns: u64, standing: &str) -> api::Task {
        serde_json::from_value(serde_json::json!({
            "tid": 1, "pid": 1, "name": name, "cpu": 0, "standing": standing, "budget_left_ns": 0, "deadline_ns": 0,
            "grant": {
                "reservation": {"budget_ns": budget_ns, "period_ns": 100_000_000}, "inherit": false, "revocable": true
            },
            "periods": 0, "deadlines_missed": 0, "budgets_exhausted": 0, "reserved_time_ns": 0,
            "best_effort_time_ns": 0, "overrun_max_ns": 0, "complaints": 0
        }))
        .expect("a task")
    }

    #[test]
    fn who_holds_reservations_is_named_the_largest_first() {
        assert_eq!(holders(&[]), "");
        let mut tasks = vec![task("bash", 2_000_000, "admitted"), task("bash", 2_000_000, "admitted")];
        tasks.push(task("bash", 90_000_000, "refused"));
        tasks.push(task("pipewire", 10_000_000, "admitted"));
        let expected = "Reserved, in parts of one CPU: 14 % in all; pipewire 10 %, bash 4 % (2 tasks).\n";
        assert_eq!(holders(&tasks), expected);
        tasks.extend((0..5).map(|number| task(&format!("other-{number}"), 1_000_000, "admitted")));
        let text = holders(&tasks);
        assert!(
            text.starts_with("Reserved, in parts of one CPU: 19 % in all; pipewire 10 %, bash 4 %"),
            "{text}"
        );
        assert!(text.ends_with(", 2 others 2 %.\n"), "{text}");
    }
}

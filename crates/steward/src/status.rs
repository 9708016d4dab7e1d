//! Commands that read from the daemon: `status`, `explain`, `events`, `spec list`.

use std::collections::BTreeMap;
use std::path::Path;

use libsteward::{Client, api};
use steward_core::mechanism::Reservation;
use steward_core::quantity::approximate_duration;

use crate::cli::{EventsArguments, ExplainArguments, StatusArguments};
use crate::output::{highlight, print, print_json, print_json_line, table};

/// How many programs are named that have something reserved.
const HOLDERS_MAX: usize = 5;

/// `steward status`.
pub fn status(socket: &Path, arguments: &StatusArguments) -> anyhow::Result<()> {
    let json = arguments.output.json;
    if arguments.own || arguments.domain.is_some() {
        return audit(socket, arguments.domain.clone(), json);
    }
    let status = Client::connect(socket)?.call(&api::Status {})?;
    if json { print_json(&status) } else { print(&status_text(&status)) }
}

/// `steward status DOMAIN`.
fn audit(socket: &Path, domain: Option<String>, json: bool) -> anyhow::Result<()> {
    let audit = Client::connect(socket)?.call(&api::AuditDomain { domain })?;
    if json { print_json(&audit) } else { print(&format!("{}\n{}", audit.text, span_table(&audit.spans))) }
}

fn span_table(spans: &[api::AuditedSpan]) -> String {
    let titles = ["LAST", "SEEN", "PROMISED", "WANTED", "GOT", "WAITED", "SECONDS", "BROKEN", "WORST"];
    let mut rows = vec![row(titles)];
    for span in spans {
        let times = [span.seen_ns, span.promised_ns, span.wanted_ns, span.received_ns, span.waited_ns];
        let mut cells = vec![span.span.clone()];
        cells.extend(times.map(approximate_duration));
        cells.push(span.seconds.to_string());
        cells.push(span.broken.to_string());
        cells.push(approximate_duration(span.worst_missing_ns));
        rows.push(cells);
    }
    table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8])
}

fn status_text(status: &api::StatusReply) -> String {
    let mut text = headline(status);
    if !status.cpus.is_empty() {
        text.push('\n');
        text.push_str(&cpu_table(&status.cpus));
        text.push_str(&holders(&status.tasks));
    }
    text.push('\n');
    if status.tasks.is_empty() {
        text.push_str("No running program has a reservation.\n");
    } else {
        text.push_str(&task_table(&status.tasks));
    }
    text.push_str(&problem_text(&status.problems));
    text
}

fn headline(status: &api::StatusReply) -> String {
    let mechanism = match status.mechanism.kind {
        Some(kind) => format!("{} is in force", mechanism_name(kind)),
        None => highlight("nothing is in force"),
    };
    let mut text = format!(
        "stewardd {} (process {}): {mechanism}, {} loaded.\n",
        status.version,
        status.pid,
        count(status.specs, "specification")
    );
    let notes =
        [("Note", &status.mechanism.note), ("The last scheduler ended", &status.mechanism.exit_reason)];
    for (title, note) in notes {
        if let Some(note) = note {
            text.push_str(&format!("{}: {note}\n", highlight(title)));
        }
    }
    if status.mechanism.restarts > 0 {
        text.push_str(&format!(
            "It was loaded again {} since the daemon started.\n",
            count(status.mechanism.restarts, "time")
        ));
    }
    let thresholds = &status.thresholds;
    text.push_str(&format!(
        "Each CPU: admission stops at {}, revocation starts above {}, reactivation below {}.\n",
        percent(thresholds.admit_below),
        percent(thresholds.revoke_above),
        percent(thresholds.reactivate_below)
    ));
    text.push_str(&match &status.owner {
        Some(owner) => format!("Root and user {owner} may reserve for anyone.\n"),
        None => "Only root may reserve for anyone (no owner is set).\n".to_owned(),
    });
    text
}

/// The word for a mechanism.
pub fn mechanism_name(kind: api::MechanismKind) -> &'static str {
    match kind {
        api::MechanismKind::SchedExt => "sched_ext",
        api::MechanismKind::Deadline => "SCHED_DEADLINE",
        api::MechanismKind::Nice => "nice values",
    }
}

fn cpu_table(cpus: &[api::Cpu]) -> String {
    let mut rows = vec![row(["CPU", "MEASURED", "EXPECTED", "RESERVED", "TASKS", "REAL-TIME"])];
    for cpu in cpus {
        let online = if cpu.online { "" } else { " (offline)" };
        rows.push(vec![
            format!("{}{online}", cpu.cpu),
            percent(cpu.measured_load),
            percent(cpu.projected_load),
            percent(cpu.reserved),
            cpu.admitted.to_string(),
            percent(cpu.real_time),
        ]);
    }
    table(&rows, &[0, 1, 2, 3, 4, 5])
}

/// By whom CPU time is reserved, the largest first; nothing when nobody has any in force.
fn holders(tasks: &[api::Task]) -> String {
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
        1 => format!("{name} {}", percent(*sum)),
        count => format!("{name} {} ({count} tasks)", percent(*sum)),
    };
    let mut parts: Vec<String> = holders.iter().take(HOLDERS_MAX).map(named).collect();
    let rest = holders.get(HOLDERS_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = rest.iter().map(|(_, (sum, _))| sum).sum();
        parts.push(format!("{} others {}", rest.len(), percent(sum)));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("Reserved, in parts of one CPU: {} in all; {}.\n", percent(total), parts.join(", "))
}

fn task_table(tasks: &[api::Task]) -> String {
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

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// `5ms/30ms IR`, with the paper's flags.
fn reservation_text(grant: &api::Grant) -> String {
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

/// `1 task`, `2 tasks`.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn percent(fraction: f64) -> String {
    // Adding nothing makes a sum of nothing, which is -0, to 0.
    format!("{:.0} %", fraction * 100.0 + 0.0)
}

/// What is wrong, a line each, with a headline.
pub fn problem_text(problems: &[api::Problem]) -> String {
    let mut text = String::new();
    if !problems.is_empty() {
        text.push_str(&format!("\n{}\n", highlight(&(count(problems.len() as u64, "problem") + ":"))));
    }
    for problem in problems {
        let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
        text.push_str(&format!("  {}{line}: {}\n", problem.file, problem.message));
    }
    text
}

/// `steward explain`. With JSON, one object for each process.
pub fn explain(socket: &Path, arguments: &ExplainArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let pids = crate::who::resolve(&arguments.process, arguments.several)?;
    for (place, pid) in pids.into_iter().enumerate() {
        if place > 0 && !arguments.output.json {
            print("\n")?;
        }
        explain_one(&mut client, pid, arguments.output.json)?;
    }
    Ok(())
}

fn explain_one(client: &mut Client, pid: i32, json: bool) -> anyhow::Result<()> {
    let explanation = client.call(&api::Explain { pid })?;
    if json {
        return print_json(&explanation);
    }
    let mut text = explanation.text;
    if !explanation.events.is_empty() {
        text.push_str("\nWhat was decided about it:\n");
        for event in &explanation.events {
            text.push_str(&format!("  {}\n", event_line(event)));
        }
    }
    print(&text)
}

/// `steward events`.
pub fn events(socket: &Path, arguments: &EventsArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    if !arguments.follow {
        let list = client.call(&api::ListEvents {})?;
        return list.events.iter().try_for_each(|event| print_event(event, 0, arguments.output.json));
    }
    for monitored in client.stream(&api::Monitor { history: Some(true) })? {
        let monitored = monitored?;
        print_event(&monitored.event, monitored.lost, arguments.output.json)?;
    }
    Ok(())
}

fn print_event(event: &api::Event, lost: u64, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json_line(&api::Monitored { event: event.clone(), lost });
    }
    if lost > 0 {
        print(&format!("({lost} decisions were lost here: they came too fast)\n"))?;
    }
    print(&(event_line(event) + "\n"))
}

/// Seconds since boot, as in the kernel's log, and the sentence.
fn event_line(event: &api::Event) -> String {
    format!("[{:12.6}] {}", event.at_ns as f64 / 1e9, event.text)
}

/// `steward spec list`.
pub fn list_specs(socket: &Path, json: bool) -> anyhow::Result<()> {
    let list = Client::connect(socket)?.call(&api::ListSpecs {})?;
    if json {
        return print_json(&list);
    }
    let mut rows = vec![row(["PROGRAM", "RESERVATION", "INSTALLED", "FILE"])];
    for spec in &list.specs {
        let line = spec.line.map(|line| format!(":{line}")).unwrap_or_default();
        rows.push(vec![
            spec.name.clone(),
            spec.grant.as_ref().map_or_else(|| "best-effort".to_owned(), reservation_text),
            if spec.resolved { "yes" } else { "no" }.to_owned(),
            format!("{}{line}", spec.file),
        ]);
    }
    print(&(table(&rows, &[]) + &problem_text(&list.problems)))
}

/// `steward reload`. False when something is wrong in the files.
pub fn reload(socket: &Path, json: bool) -> anyhow::Result<bool> {
    let reloaded = Client::connect(socket)?.call(&api::Reload {})?;
    let sound = !reloaded.problems.iter().any(|problem| problem.severity == api::Severity::Error);
    if json {
        print_json(&reloaded)?;
    } else {
        print(&format!(
            "Loaded {}; {} got something new, {} lost what they had.\n{}",
            count(reloaded.specs, "specification"),
            count(reloaded.assigned, "running task"),
            reloaded.released,
            problem_text(&reloaded.problems)
        ))?;
    }
    Ok(sound)
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

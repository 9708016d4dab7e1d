//! Commands that show what the daemon has: `status`, `spec list`; and `reload`.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};
use steward_core::quantity::{approximate_duration, approximate_size, percent_to};

use crate::arguments::JsonFlag;
use crate::cpu::status::{cpu_table, holders, reservation_text, task_table};
use crate::memory::status::record_table;
use crate::output::{highlight, print, print_json, row, table};

/// Show what is promised, to whom, and how full the CPUs are
///
/// Without a domain: what is in force, the load of each CPU, all tasks with a specification, and what is wrong. With
/// one: what it was promised, wanted and got of the CPU in the last minute, hour and day, for how long it waited for
/// memory that it was promised, and in how many seconds a promise was broken, and by whom.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward status\n  \
        steward status web\n  \
        steward status --own")]
pub struct StatusArguments {
    /// The domain to be told about.
    pub domain: Option<String>,
    /// The domain that this command runs in.
    #[arg(long, conflicts_with = "domain")]
    pub own: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

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
    if json {
        return print_json(&audit);
    }
    let mut text = format!("{}\n{}", audit.text, span_table(&audit.spans));
    if let Some(memory) = &audit.memory {
        text.push_str(&format!("\nMemory:\n{}", record_table(memory)));
    }
    print(&text)
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
    if !status.cpu.cpus.is_empty() {
        text.push('\n');
        text.push_str(&cpu_table(&status.cpu.cpus));
        text.push_str(&holders(&status.cpu.tasks));
    }
    text.push_str(&memory_line(&status.memory));
    text.push_str(&lapsed_line(&status.memory));
    text.push_str(&disk_lines(&status.disks));
    text.push('\n');
    if status.cpu.tasks.is_empty() {
        text.push_str("No running program has a reservation.\n");
    } else {
        text.push_str(&task_table(&status.cpu.tasks));
    }
    text.push_str(&problem_text(&status.problems));
    text
}

fn headline(status: &api::StatusReply) -> String {
    let state = &status.cpu.mechanism;
    let mechanism = match state.kind {
        Some(kind) => format!("{} is in force", mechanism_name(kind)),
        None => highlight("nothing is in force"),
    };
    let mut text = format!(
        "stewardd {} (process {}): {mechanism}, {} loaded.\n",
        status.version,
        status.pid,
        count(status.specs, "specification")
    );
    let notes = [("Note", &state.note), ("The last scheduler ended", &state.exit_reason)];
    for (title, note) in notes {
        if let Some(note) = note {
            text.push_str(&format!("{}: {note}\n", highlight(title)));
        }
    }
    if state.restarts > 0 {
        text.push_str(&format!(
            "It was loaded again {} since the daemon started.\n",
            count(state.restarts, "time")
        ));
    }
    let thresholds = &status.cpu.thresholds;
    text.push_str(&format!(
        "Each CPU: admission stops at {}, revocation starts above {}, reactivation below {}.\n",
        percent_to(thresholds.admit_below, 0),
        percent_to(thresholds.revoke_above, 0),
        percent_to(thresholds.reactivate_below, 0)
    ));
    text.push_str(&match &status.owner {
        Some(owner) => format!("Root and user {owner} may reserve for anyone.\n"),
        None => "Only root may reserve for anyone (no owner is set).\n".to_owned(),
    });
    text
}

/// What is promised of the machine's memory; nothing where nothing is.
fn memory_line(memory: &api::MemoryState) -> String {
    if memory.promised == 0 {
        return String::new();
    }
    let [promised, reservable, total, available] =
        [memory.promised, memory.reservable, memory.total, memory.available].map(approximate_size);
    format!(
        "\nMemory: {promised} promised to domains, of at most {reservable} of {total}; {available} available.\n"
    )
}

/// What is made of the disks that were calibrated, a line each; nothing where none was.
fn disk_lines(disks: &[api::CalibratedDisk]) -> String {
    let lines: String = disks
        .iter()
        .map(|disk| format!("Disk {} ({}): {}.\n", disk.name, disk.identity, disk.text))
        .collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// How many domains are not protected because nobody uses them; nothing where all are used.
fn lapsed_line(memory: &api::MemoryState) -> String {
    let (are, them) = if memory.lapsed == 1 { ("is", "it") } else { ("are", "them") };
    match memory.lapsed {
        0 => String::new(),
        lapsed => format!(
            "\n{} {are} not protected for now: nobody has used {them} for a while (steward domain show).\n",
            count(lapsed, "domain")
        ),
    }
}

/// The word for a mechanism.
pub fn mechanism_name(kind: api::MechanismKind) -> &'static str {
    match kind {
        api::MechanismKind::SchedExt => "sched_ext",
        api::MechanismKind::Deadline => "SCHED_DEADLINE",
        api::MechanismKind::Nice => "nice values",
    }
}

/// `1 task`, `2 tasks`.
fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
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

//! `steward domain`: asks the daemon, and shows what it answers.

pub mod arguments;

use std::path::Path;

use anyhow::Context;
use libsteward::api::{self, ApiError};
use libsteward::{Client, Error};
use steward_core::accounts::Accounts;
use steward_core::domain::declared::{parse_domains, to_toml};
use steward_core::domain::settings::CommonChange;
use steward_core::domain::{Change, Names, Settings};
use steward_core::quantity::percent;
use steward_core::quantity::{approximate_duration, approximate_size, format_duration, format_size};
use steward_core::{cpu, disk, memory};

use crate::disk::arguments::to_core;
use crate::memory::activity::{in_use, last_used};
use crate::output::{highlight, print, print_json, table};
use arguments::{CheckArguments, CreateArguments, DomainCommand, MoveArguments, SetArguments, ShowArguments};

/// Carries out one of the commands.
pub fn domain(socket: &Path, command: &DomainCommand) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    match command {
        DomainCommand::Create(arguments) => create(&mut client, arguments),
        DomainCommand::Set(arguments) => set(&mut client, arguments),
        DomainCommand::List(output) => list(&mut client, output.json),
        DomainCommand::Show(arguments) => show(&mut client, arguments),
        DomainCommand::Move(arguments) => move_processes(&mut client, arguments),
        DomainCommand::Remove(arguments) => {
            let domain = arguments.domain.clone();
            let removed = client.call(&api::RemoveDomain { domain, kill: Some(arguments.kill) })?;
            print(&removal_text(&arguments.domain, &removed, arguments.kill))
        }
        DomainCommand::Check(_) => unreachable!("it needs no daemon"),
    }
}

/// `steward domain check`. False when something is wrong in a file.
pub fn check(arguments: &CheckArguments) -> anyhow::Result<bool> {
    let (names, accounts) = (Names::default(), Passwd);
    let mut sound = true;
    for file in &arguments.files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = parse_domains(file, &text, &names, &accounts);
        parsed.problems.iter().for_each(|problem| eprintln!("{problem}"));
        sound &= parsed.problems.is_empty();
        print(&format!("{}: {} declared.\n", file.display(), count(parsed.domains.len())))?;
    }
    Ok(sound)
}

/// Users as passwd(5) has them.
struct Passwd;

impl Accounts for Passwd {
    fn uid_of(&self, name: &str) -> Option<u32> {
        crate::users::parse(name).ok()
    }
    fn gid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

fn count(domains: usize) -> String {
    format!("{domains} domain{}", if domains == 1 { "" } else { "s" })
}

fn create(client: &mut Client, arguments: &CreateArguments) -> anyhow::Result<()> {
    let domain = match &arguments.parent {
        Some(parent) if parent != "/" => format!("{}/{}", parent.trim_end_matches('/'), arguments.name),
        _ => arguments.name.clone(),
    };
    let reply = client.call(&api::CreateDomain {
        domain,
        settings: arguments.settings.to_api(),
        user: arguments.user,
        keep: Some(arguments.keep),
    })?;
    if arguments.output.json {
        return print_json(&reply);
    }
    print(
        &(line(&reply.domain)
            + &harm(&arguments.settings.to_api())
            + &if arguments.keep {
                declaration(&reply.domain, &arguments.settings.to_api())
            } else {
                String::new()
            }),
    )
}

/// How to have a domain that stays only until the next reboot after it too.
fn declaration(domain: &api::Domain, asked: &api::DomainSettings) -> String {
    let change = Change {
        common: CommonChange {
            priority: asked.priority,
            weight: asked.weight,
            own_priority: asked.own_priority,
            own_weight: asked.own_weight,
        },
        cpu: cpu::settings::Change { reserved: asked.cpu, reservable: asked.cpu_reservable },
        memory: memory::settings::Change {
            min_bytes: asked.memory_min,
            max_bytes: asked.memory_max,
            protect_ns: asked.protect,
        },
        disk: disk::settings::Change {
            class: asked.io.map(to_core),
            reserved: asked.disk,
            max_bytes_per_second: asked.io_max_bytes,
            max_requests_per_second: asked.io_max_requests,
        },
        reset: Vec::new(),
    };
    // The daemon has taken it already.
    let settings = change.apply(&Settings::default()).unwrap_or_default();
    let row: String =
        to_toml(&domain.name, &settings, domain.user).lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "It stays when it is empty, until the next reboot. To have it from every boot on, save this as root in \
         /etc/steward/domains/{}.toml:\n\n{row}",
        domain.name.replace(|letter: char| !letter.is_alphanumeric(), "-")
    )
}

fn set(client: &mut Client, arguments: &SetArguments) -> anyhow::Result<()> {
    let reply = client.call(&api::SetDomain {
        domain: arguments.domain.clone(),
        settings: arguments.settings.to_api(),
        user: arguments.user,
        keep: arguments.keep,
    })?;
    if arguments.output.json {
        return print_json(&reply);
    }
    print(&(line(&reply.domain) + &harm(&arguments.settings.to_api())))
}

/// `steward set DOMAIN`: what it names only.
pub fn set_some(client: &mut Client, domain: &str, settings: api::DomainSettings) -> anyhow::Result<()> {
    let harm = harm(&settings);
    let request = api::SetDomain { domain: domain.to_owned(), settings, ..api::SetDomain::default() };
    let reply = client.call(&request)?;
    print(&(line(&reply.domain) + &harm))
}

/// What a limit that is asked for does to others.
fn harm(asked: &api::DomainSettings) -> String {
    let (bytes, requests) = (asked.io_max_bytes, asked.io_max_requests);
    let given = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let max = disk::Limit { bytes_per_second: given(bytes), requests_per_second: given(requests) };
    if max.is_none() { String::new() } else { max.harm("") + "\n" }
}

/// Whether a name is that of a domain. Where there are no domains, none is.
///
/// # Errors
/// When the daemon does not answer, or refuses to say.
pub fn exists(client: &mut Client, name: &str) -> anyhow::Result<bool> {
    match client.call(&api::ShowDomain { domain: Some(name.to_owned()), pid: None }) {
        Ok(_) => Ok(true),
        Err(Error::Api(ApiError::PermissionDenied { reason })) => {
            Err(Error::Api(ApiError::PermissionDenied { reason }).into())
        }
        Err(Error::Api(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A domain after a change.
pub fn line(domain: &api::Domain) -> String {
    let reserved = match domain.cpu {
        Some(cpu) => format!("{} of {} reserved", percent(cpu), whose(domain)),
        None => "nothing reserved".to_owned(),
    };
    let sure = match domain.cpu_guaranteed {
        sure if sure > 0.0 => format!("it is guaranteed {} of the machine", percent(sure)),
        _ => format!("what it gets goes by its weight ({})", domain.weight),
    };
    format!("Domain {} has {reserved}: {sure} when everybody wants to run.\n", domain.name)
}

fn whose(domain: &api::Domain) -> String {
    match domain.parent.as_deref() {
        None | Some("/") => "the machine".to_owned(),
        Some(parent) => parent.to_owned(),
    }
}

fn move_processes(client: &mut Client, arguments: &MoveArguments) -> anyhow::Result<()> {
    for pid in crate::who::resolve(&arguments.process, arguments.several)? {
        let request = api::MoveProcess { pid: Some(pid), domain: arguments.domain.clone() };
        let moved = client.call(&request)?;
        print(&moved_text(pid, &moved))?;
    }
    Ok(())
}

fn moved_text(pid: i32, moved: &api::Moved) -> String {
    let api::Moved { from, domain, left_bytes } = moved;
    let left = left_bytes.map_or_else(String::new, |bytes| {
        format!(
            "{} that it had before stay charged to where it was, and are neither kept nor limited in {domain} until it is started anew.\n",
            approximate_size(bytes)
        )
    });
    format!("Process {pid} is in {domain} now, and was in {from}.\n{left}")
}

fn removal_text(domain: &str, removed: &api::DomainRemoved, kill: bool) -> String {
    let below = match removed.removed {
        0 | 1 => String::new(),
        count => format!(", with {} below it", count - 1),
    };
    match (removed.removed, kill) {
        (0, _) => format!("Domain {domain} is removed as soon as its processes have ended.\n"),
        (_, true) => format!("Domain {domain} is removed{below}, and its processes are ended.\n"),
        (_, false) => {
            format!("Domain {domain} is removed{below}; processes moved to its parent: {}.\n", removed.moved)
        }
    }
}

fn list(client: &mut Client, json: bool) -> anyhow::Result<()> {
    let list = client.call(&api::ListDomains {})?;
    if json {
        return print_json(&list);
    }
    let order = &list.best_effort;
    let headline = format!(
        "Order among domains: {}, service cycle {}.\n\n",
        order.order,
        approximate_duration(order.service_cycle_ns)
    );
    print(&(headline + &domain_table(&list.domains) + &problems(&list.domains)))
}

fn domain_table(domains: &[api::Domain]) -> String {
    let titles = ["DOMAIN", "CPU", "GUARANTEED", "WEIGHT", "PRIORITY", "USER", "TASKS", "CPU TIME"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for domain in domains {
        rows.push(vec![
            indented(domain),
            domain.cpu.map_or_else(|| "-".to_owned(), percent),
            percent(domain.cpu_guaranteed),
            domain.weight.to_string(),
            domain.priority.to_string(),
            domain.user.to_string(),
            domain.usage.map_or_else(|| "-".to_owned(), |usage| usage.tasks.to_string()),
            domain.usage.map_or_else(|| "-".to_owned(), |usage| approximate_duration(used_ns(&usage))),
        ]);
    }
    table(&rows, &[1, 2, 3, 4, 5, 6, 7])
}

fn used_ns(usage: &api::DomainUsage) -> u64 {
    usage.best_effort_time_ns + usage.reserved_time_ns
}

/// The last part of the name under the parts before it.
fn indented(domain: &api::Domain) -> String {
    let depth = domain.path.matches('/').count();
    match domain.name.rsplit('/').next() {
        Some("") | None => "/".to_owned(),
        Some(last) => format!("{}{}", "  ".repeat(depth), last.escape_debug()),
    }
}

fn problems(domains: &[api::Domain]) -> String {
    let mut text = String::new();
    for domain in domains {
        if let Some(problem) = &domain.problem {
            text.push_str(&format!("\n{}: {problem}\n", highlight(&domain.name)));
        }
    }
    text
}

fn show(client: &mut Client, arguments: &ShowArguments) -> anyhow::Result<()> {
    let shown = client.call(&arguments.which.request())?;
    if arguments.output.json {
        return print_json(&shown);
    }
    let domain = &shown.domain;
    let mut rows = vec![
        ("cgroup", format!("{} (id {})", domain.path, domain.cgroup_id)),
        ("made by Steward", yes_no(domain.made)),
        ("stays without processes", yes_no(domain.keep || !domain.made)),
        ("belongs to user", domain.user.to_string()),
        (
            "CPU reserved",
            domain.cpu.map_or_else(|| "-".into(), |cpu| format!("{} of {}", percent(cpu), whose(domain))),
        ),
        ("CPU guaranteed", format!("{} of the machine", percent(domain.cpu_guaranteed))),
        (
            "reserved by children",
            format!("{} of at most {}", percent(domain.cpu_sum), percent(domain.cpu_reservable)),
        ),
        ("weight, priority", standing_text(domain)),
        ("for its own tasks", own_text(domain)),
    ];
    rows.extend(memory_rows(domain));
    rows.extend(domain.io.map(|class| ("disk requests", class_text(class).to_owned())));
    rows.extend(
        domain.disk.map(|disk| ("disk time reserved", format!("{} of {}", percent(disk), whose(domain)))),
    );
    let max =
        disk::Limit { bytes_per_second: domain.io_max_bytes, requests_per_second: domain.io_max_requests };
    let limit = || format!("{max} read, and as much written, of each disk");
    rows.extend((!max.is_none()).then(|| ("disk at most", limit())));
    rows.extend(domain.disk_use.map(|used| ("disk used", disk_text(&used))));
    rows.extend(domain.disk_minute.map(|minute| ("disk in the last minute", minute_text(&minute))));
    let dirty = domain.disk_dirty.filter(|bytes| *bytes > 0);
    rows.extend(dirty.map(|bytes| ("changed, not on the disk yet", approximate_size(bytes))));
    if domain.disk_sum > 0.0 {
        let (sum, most) = (percent(domain.disk_sum), percent(domain.disk_reservable));
        rows.push(("disk time of children", format!("{sum} of at most {most}")));
    }
    if let Some(usage) = &domain.usage {
        rows.push(("own tasks", format!("{}, {} of them runnable", usage.tasks, usage.runnable)));
        rows.push(("CPU time", usage_text(usage)));
        rows.push(("waited", approximate_duration(usage.waiting_time_ns)));
    }
    if domain.complaints > 0 {
        rows.push(("complaints", domain.complaints.to_string()));
    }
    let processes: Vec<String> = shown.processes.iter().map(i32::to_string).collect();
    rows.push(("processes", if processes.is_empty() { "-".into() } else { processes.join(" ") }));
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(key, value)| vec![format!("  {key}:"), value]).collect();
    let text = format!("{}\n{}", domain.name, table(&rows, &[]));
    print(&(text + &problems(std::slice::from_ref(domain))))
}

fn used_text(memory: &api::DomainMemory) -> String {
    let swapped = match memory.swapped {
        0 => String::new(),
        bytes => format!(", and {} in the swap", approximate_size(bytes)),
    };
    format!(
        "{}{swapped}; stood still for {}",
        approximate_size(memory.used),
        approximate_duration(memory.stalled_ns)
    )
}

/// What it had of the disks.
fn disk_text(used: &api::DomainDisk) -> String {
    let busy = used.device_time_ns.map_or_else(String::new, |time_ns| {
        format!(", {} of the disks' time", approximate_duration(time_ns))
    });
    format!(
        "{} read, {} written, {} requests{busy}; stood still for {}",
        approximate_size(used.read),
        approximate_size(used.written),
        used.requests,
        approximate_duration(used.stalled_ns)
    )
}

/// What its requests took lately.
fn minute_text(minute: &api::DiskMinute) -> String {
    let [median, p99, max, busy] =
        [minute.median_ns, minute.p99_ns, minute.max_ns, minute.device_time_ns].map(approximate_duration);
    format!(
        "{} requests, half of them within {median}, 99 of 100 within {p99}, all within {max}; {busy} of the disks' time",
        minute.requests
    )
}

/// How soon its requests are served.
fn class_text(class: api::IoClass) -> &'static str {
    match class {
        api::IoClass::Interactive => "interactive: served before all others",
        api::IoClass::Normal => "normal",
        api::IoClass::Background => "background: served when nobody else wants the disk",
    }
}

/// What is kept of a protected domain.
fn kept_text(kept: u64) -> String {
    match kept {
        0 => {
            "nothing for now: what protected domains use does not fit together, and it uses most, or too little is left to take \
             from others (`steward status` says so)"
                .to_owned()
        },
        bytes => {
            format!("{} that it used within its protection period, and room to grow", approximate_size(bytes))
        }
    }
}

/// By what it is known what of its memory a protected domain uses.
fn used_from_text(source: api::UseSource) -> String {
    match source {
        api::UseSource::Mglru => "the ages of pages",
        api::UseSource::RefaultsAndPressure => {
            "what is fetched back of the little that is given up at a time, and pressure"
        }
        api::UseSource::None => "nothing: all that it has counts as used but files that it read once",
    }
    .to_owned()
}

/// What it is promised of the memory, what it uses, and what it may use at most; nothing where it was given neither.
fn memory_rows(domain: &api::Domain) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    rows.extend(domain.memory.map(|memory| ("memory used", used_text(&memory))));
    let available = domain.memory.and_then(|memory| memory.available);
    rows.extend(available.map(|bytes| ("memory available", approximate_size(bytes))));
    rows.extend(domain.memory.and_then(|memory| Some(("memory kept", kept_text(memory.kept?)))));
    rows.extend(
        domain.memory.and_then(|memory| Some(("memory used, by", used_from_text(memory.used_from?)))),
    );
    rows.extend(
        domain
            .memory
            .filter(|memory| memory.taken > 0)
            .map(|memory| ("memory taken", format!("{} for others", approximate_size(memory.taken)))),
    );
    rows.extend(domain.memory_min.map(|bytes| ("memory promised", format_size(bytes))));
    rows.extend(domain.memory_max.map(|bytes| ("memory at most", format_size(bytes))));
    rows.extend(domain.protect.map(|period_ns| ("protection period", format_duration(period_ns))));
    rows.extend(domain.activity.iter().flat_map(activity_rows));
    if domain.memory_min_sum > 0 {
        let (promised, most) =
            (approximate_size(domain.memory_min_sum), approximate_size(domain.memory_reservable));
        rows.push(("promised to children", format!("{promised} of at most {most}")));
    }
    rows
}

/// Whether it is in use, and what becomes of its protection where it is not.
fn activity_rows(activity: &api::Activity) -> Vec<(&'static str, String)> {
    let mut rows = vec![("last used", last_used(activity)), ("in use", in_use(activity))];
    if activity.lapsed {
        let text = "lapsed: nothing is kept of it; it is protected again with the first sign of use";
        rows.push(("protection", text.to_owned()));
    }
    rows
}

/// A domain that is lowered keeps what it was given.
fn standing_text(domain: &api::Domain) -> String {
    let lowered = if domain.lowered { "; behind all beside it for now" } else { "" };
    format!("{}, {}{lowered}", domain.weight, domain.priority)
}

fn own_text(domain: &api::Domain) -> String {
    let weight = domain
        .own_weight
        .map_or_else(|| "weight as its tasks have".to_owned(), |weight| format!("weight {weight}"));
    format!("{weight}, priority {}", domain.own_priority)
}

fn usage_text(usage: &api::DomainUsage) -> String {
    format!(
        "{} best-effort, {} out of reservations of its tasks",
        approximate_duration(usage.best_effort_time_ns),
        approximate_duration(usage.reserved_time_ns)
    )
}

fn yes_no(truth: bool) -> String {
    if truth { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_limit_is_told_what_it_does_to_others_and_who_takes_it_away_is_not() {
        let limited = api::DomainSettings { io_max_requests: Some(100), ..api::DomainSettings::default() };
        let said = harm(&limited);
        assert!(
            said.contains("journal") && said.contains("--io background") && said.ends_with('\n'),
            "{said}"
        );
        let reset = vec!["io_max_bytes".to_owned(), "io_max_requests".to_owned()];
        assert_eq!(harm(&api::DomainSettings { reset, ..api::DomainSettings::default() }), "");
    }
}

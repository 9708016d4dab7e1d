//! What a control file says when it is read.

use std::borrow::Cow;
use std::fmt::Write;

use libsteward::api::{Domain, DomainForecast, DomainShown, Forecast, Forecasts, IoClass};
use steward_core::disk::Limit;
use steward_core::quantity::format_duration;

use crate::names::ControlFile;
use crate::value::{percent, reserved_percent};

/// A text as a line; nothing stays nothing.
pub(crate) fn line(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{text}\n") }
}

/// Whether a file says something of the level that the domain is on, which its parent knows.
pub(crate) fn needs_parent(file: ControlFile) -> bool {
    matches!(
        file,
        ControlFile::CpuSum
            | ControlFile::CpuLimit
            | ControlFile::IoSum
            | ControlFile::IoLimit
            | ControlFile::MemorySum
            | ControlFile::MemoryLimit
    )
}

/// The most that a domain may read and write.
fn io_max(domain: &Domain) -> Limit {
    Limit { bytes_per_second: domain.io_max_bytes, requests_per_second: domain.io_max_requests }
}

/// The text of a control file. The root is on no level: it has all there is.
pub(crate) fn text(file: ControlFile, shown: &DomainShown, parent: Option<&Domain>) -> String {
    let domain = &shown.domain;
    let is_root = domain.parent.is_none();
    let all = |fraction: Option<f64>| if is_root { Some(1.0) } else { fraction };
    let of_level = |figure: fn(&Domain) -> f64| percent(parent.map_or(1.0, figure));
    let text = match file {
        ControlFile::Cpu => reserved_percent(all(domain.cpu)),
        ControlFile::CpuSum => of_level(|parent| parent.cpu_sum),
        ControlFile::CpuLimit => of_level(|parent| parent.cpu_reservable),
        ControlFile::CpuWeight => domain.weight.to_string(),
        ControlFile::CpuPriority => domain.priority.to_string(),
        ControlFile::Io => reserved_percent(all(domain.disk)),
        ControlFile::IoClass => domain.io.map_or("none", IoClass::name).to_owned(),
        ControlFile::IoMax => io_max(domain).to_string(),
        ControlFile::IoSum => of_level(|parent| parent.disk_sum),
        ControlFile::IoLimit => of_level(|parent| parent.disk_reservable),
        ControlFile::Memory => bytes(domain.memory_min),
        ControlFile::MemoryMax => bytes(domain.memory_max),
        ControlFile::MemoryProtect => domain.protect.map_or_else(|| "none".to_owned(), format_duration),
        ControlFile::MemorySum => parent.map_or(0, |parent| parent.memory_min_sum).to_string(),
        ControlFile::MemoryLimit => bytes(parent.map(|parent| parent.memory_reservable)),
        ControlFile::Members => {
            let members: Vec<String> = shown.processes.iter().map(i32::to_string).collect();
            members.join("\n")
        }
        ControlFile::Status => return status(shown),
        // The tree knows these itself.
        ControlFile::MemoryAvailable
        | ControlFile::Sched
        | ControlFile::Forecast
        | ControlFile::LastError => String::new(),
    };
    line(&text)
}

/// An amount of memory, which may be none.
pub(crate) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())
}

/// All about a domain: one `name value` a line, so that people and awk can read it.
fn status(shown: &DomainShown) -> String {
    let domain = &shown.domain;
    let mut page = String::new();
    let mut say = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{name} {value}");
    };
    say("name", domain.name.clone());
    say("path", domain.path.clone());
    say("user", domain.user.to_string());
    say("made_by_steward", yes(domain.made).to_owned());
    say("keep", yes(domain.keep).to_owned());
    say("cpu_guaranteed_percent_of_machine", percent(domain.cpu_guaranteed));
    say("cpu_reserved_by_children_percent", percent(domain.cpu_sum));
    say("own_priority", domain.own_priority.to_string());
    say("own_weight", domain.own_weight.map_or_else(|| "default".to_owned(), |weight| weight.to_string()));
    say("processes", shown.processes.len().to_string());
    say("complaints", domain.complaints.to_string());
    if let Some(usage) = domain.usage {
        say("share_percent", percent(usage.share));
        say("best_effort_time_ns", usage.best_effort_time_ns.to_string());
        say("reserved_time_ns", usage.reserved_time_ns.to_string());
        say("waiting_time_ns", usage.waiting_time_ns.to_string());
        say("tasks", usage.tasks.to_string());
        say("runnable", usage.runnable.to_string());
        say("throttled", yes(usage.throttled).to_owned());
    }
    if let Some(problem) = &domain.problem {
        say("problem", problem.clone());
    }
    page
}

/// A line for each task under a line with the columns' names, of the domain as a whole first. What is not known is `-`.
pub(crate) fn forecasts(forecasts: &Forecasts, whole: Option<&DomainForecast>) -> String {
    let mut page = String::from(
        "tid pid user domain actual desired predicted potential slowdown future_slowdown potential_slowdown name\n",
    );
    if let Some(domain) = whole {
        page.push_str("- - - ");
        figures(&mut page, &domain.name, &domain.forecast, "-");
    }
    for task in &forecasts.tasks {
        // Writing to a string cannot fail.
        let _ = write!(page, "{} {} {} ", task.tid, task.pid, task.user);
        figures(&mut page, &task.domain, &task.forecast, &task.name);
    }
    page
}

fn figures(page: &mut String, domain: &str, forecast: &Forecast, name: &str) {
    let Forecast { actual_ms_per_s, desired_ms_per_s, predicted_ms_per_s, potential_ms_per_s, .. } = forecast;
    let _ = write!(
        page,
        "{} {actual_ms_per_s} {desired_ms_per_s} {predicted_ms_per_s} {potential_ms_per_s}",
        word(domain)
    );
    for slowdown in [forecast.slowdown, forecast.future_slowdown, forecast.potential_slowdown] {
        let _ = match slowdown {
            Some(slowdown) => write!(page, " {slowdown}"),
            None => write!(page, " -"),
        };
    }
    let _ = writeln!(page, " {}", word(name));
}

/// A text as one word, with blanks and what is no letter as the kernel's own tables have them (`\040`).
fn word(text: &str) -> Cow<'_, str> {
    let is_plain =
        |character: char| !character.is_whitespace() && !character.is_control() && character != '\\';
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut word = String::new();
    for character in text.chars() {
        if is_plain(character) {
            word.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(word, "\\{byte:03o}");
            }
        }
    }
    Cow::Owned(if word.is_empty() { "-".to_owned() } else { word })
}

fn yes(fact: bool) -> &'static str {
    if fact { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use libsteward::api::DomainUsage;

    use super::*;

    fn shown() -> DomainShown {
        let domain = Domain {
            name: "web/front".into(),
            parent: Some("web".into()),
            cpu: Some(0.25),
            cpu_guaranteed: 0.1,
            weight: 100,
            priority: 4,
            io: Some(IoClass::Background),
            io_max_bytes: Some(10 << 20),
            io_max_requests: Some(100),
            memory_min: Some(1 << 20),
            protect: Some(1_800_000_000_000),
            usage: Some(DomainUsage { share: 0.125, ..DomainUsage::default() }),
            ..Domain::default()
        };
        DomainShown { domain, processes: vec![7, 42] }
    }

    #[test]
    fn figures_are_plain_and_those_of_the_level_are_the_parents() {
        let parent =
            Domain { cpu_sum: 0.75, cpu_reservable: 0.95, memory_reservable: 1 << 30, ..Domain::default() };
        let cases = [
            (ControlFile::Cpu, "25\n"),
            (ControlFile::CpuSum, "75\n"),
            (ControlFile::CpuLimit, "95\n"),
            (ControlFile::CpuWeight, "100\n"),
            (ControlFile::CpuPriority, "4\n"),
            (ControlFile::Io, "none\n"),
            (ControlFile::IoClass, "background\n"),
            (ControlFile::IoMax, "10M/s,100/s\n"),
            (ControlFile::Memory, "1048576\n"),
            (ControlFile::MemoryMax, "none\n"),
            (ControlFile::MemoryProtect, "30min\n"),
            (ControlFile::MemoryLimit, "1073741824\n"),
            (ControlFile::Members, "7\n42\n"),
        ];
        for (file, expected) in cases {
            assert_eq!(text(file, &shown(), Some(&parent)), expected, "{}", file.name());
        }
        let status = text(ControlFile::Status, &shown(), None);
        assert!(status.contains("cpu_guaranteed_percent_of_machine 10\n"), "{status}");
        assert!(status.contains("share_percent 12.5\n") && !status.contains("problem"), "{status}");
    }

    #[test]
    fn each_task_is_a_line_of_as_many_words_whatever_it_is_called() {
        use libsteward::api::TaskForecast;
        let forecast = Forecast { actual_ms_per_s: 250.5, slowdown: Some(2.0), ..Forecast::default() };
        let task = |tid, name: &str| TaskForecast {
            tid,
            pid: 7,
            user: 1000,
            name: name.into(),
            domain: "web/a b".into(),
            forecast,
            ..TaskForecast::default()
        };
        let tasks = vec![task(7, "sh"), task(8, "two words\n"), task(9, "")];
        let domain = DomainForecast { name: "web".into(), ..DomainForecast::default() };
        let page = forecasts(&Forecasts { tasks, ..Forecasts::default() }, Some(&domain));
        let lines: Vec<&str> = page.lines().collect();
        let words = |line: &&str| line.split(' ').count();
        assert!(lines.len() == 5 && lines.iter().map(words).all(|count| count == 12), "{page}");
        assert_eq!(lines[1], "- - - web 0 0 0 0 - - - -");
        assert_eq!(lines[2], "7 7 1000 web/a\\040b 250.5 0 0 0 2 - - sh");
        assert!(lines[3].ends_with(" two\\040words\\012") && lines[4].ends_with(" -"), "{page}");
    }

    #[test]
    fn the_root_has_all_and_is_on_no_level() {
        let root =
            DomainShown { domain: Domain { name: "/".into(), ..Domain::default() }, processes: vec![] };
        for file in [ControlFile::Cpu, ControlFile::CpuSum, ControlFile::CpuLimit, ControlFile::Io] {
            assert_eq!(text(file, &root, None), "100\n", "{}", file.name());
        }
        assert_eq!(text(ControlFile::Members, &root, None), "");
    }
}

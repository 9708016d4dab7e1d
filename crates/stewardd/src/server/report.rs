//! From the daemon's types to those of its API.

use std::sync::Arc;

use libsteward::api;
use serde_json::{Map, Value};
use steward_core::printable::{printable, printable_path};
use steward_core::problem::{Problem, Severity};
use steward_core::quantity::{format_duration, format_size, percent};

/// The parameters of a reply.
pub fn parameters<T: serde::Serialize>(reply: &T) -> Map<String, Value> {
    match serde_json::to_value(reply) {
        Ok(Value::Object(parameters)) => parameters,
        _ => unreachable!("replies are structs with named fields"),
    }
}

/// The parameters of a reply, as the text that is sent.
pub fn json<T: serde::Serialize>(reply: &T) -> Arc<str> {
    // Maps with string keys and finite or null numbers: serialising them cannot fail.
    serde_json::to_string(reply).expect("replies are plain JSON").into()
}

/// A problem of a file.
pub fn problem(problem: &Problem) -> api::Problem {
    api::Problem {
        file: printable_path(&problem.origin.file),
        line: (problem.origin.line > 0).then_some(u64::from(problem.origin.line)),
        severity: match problem.severity {
            Severity::Note => api::Severity::Note,
            Severity::Error => api::Severity::Error,
        },
        message: problem.message(),
    }
}

/// What went wrong in the daemon rather than in a file.
pub fn health(sentence: &str) -> api::Problem {
    api::Problem {
        file: "stewardd".to_owned(),
        line: None,
        severity: api::Severity::Error,
        message: printable(sentence).into_owned(),
    }
}

/// Whether a decision is about domains rather than a task.
pub fn is_of_domain(kind: api::EventKind) -> bool {
    use api::EventKind as Kind;
    match kind {
        Kind::DomainCreated
        | Kind::DomainChanged
        | Kind::DomainRefused
        | Kind::DomainRemoved
        | Kind::DomainVanished => true,
        Kind::MemoryDemoted
        | Kind::MemoryProtected
        | Kind::MemoryShort
        | Kind::MemoryEnough
        | Kind::MemoryTaken
        | Kind::MemoryStalled => true,
        Kind::Admitted
        | Kind::Refused
        | Kind::TableFull
        | Kind::RevokedExhausted
        | Kind::RevokedHungriest
        | Kind::RevokedDisplaced
        | Kind::Reactivated
        | Kind::Released => false,
    }
}

/// The word for a decision about a domain in the log.
pub fn domain_event_name(kind: api::EventKind) -> &'static str {
    match kind {
        api::EventKind::DomainCreated => "domain-created",
        api::EventKind::DomainChanged => "domain-changed",
        api::EventKind::DomainRefused => "domain-refused",
        api::EventKind::DomainRemoved => "domain-removed",
        api::EventKind::MemoryDemoted => "demoted",
        api::EventKind::MemoryProtected => "protected-again",
        api::EventKind::MemoryShort => "memory-short",
        api::EventKind::MemoryEnough => "memory-enough",
        api::EventKind::MemoryTaken => "memory-taken",
        api::EventKind::MemoryStalled => "memory-stalled",
        _ => "domain-vanished",
    }
}

/// Whether a domain is another after it, for who watches them.
pub fn changes_domain(kind: api::EventKind) -> bool {
    use api::EventKind as Kind;
    is_of_domain(kind)
        && !matches!(kind, Kind::MemoryShort | Kind::MemoryEnough | Kind::MemoryTaken | Kind::MemoryStalled)
}

/// The line of the log about a decision about domains.
pub(crate) fn log_domain_event(event: &api::Event) {
    use api::EventKind as Kind;
    macro_rules! line {
        ($level:ident, $bytes:ident) => {
            tracing::$level!(
                decision = domain_event_name(event.kind),
                domain = event.domain.as_ref().map(|domain| domain.name.as_str()),
                reserved = event.cpu.map(|cpu| cpu.bandwidth),
                $bytes = event.memory.map(|memory| memory.asked),
                pid = event.domain.as_ref().map(|domain| domain.asked_by),
                "{}",
                event.text
            )
        };
    }
    match event.kind {
        Kind::MemoryDemoted | Kind::MemoryShort => line!(warn, needed_bytes),
        Kind::MemoryProtected | Kind::MemoryEnough => line!(info, needed_bytes),
        Kind::MemoryTaken => line!(debug, taken_bytes),
        Kind::MemoryStalled => line!(info, taken_bytes),
        _ => line!(info, promised_bytes),
    }
}

/// A decision about a domain in a sentence. `why` replaces what is known of it otherwise, `protect_ns` is for how long
/// what it used of memory is kept.
pub fn domain_sentence(event: &api::Event, uid: u32, why: Option<&str>, protect_ns: Option<u64>) -> String {
    let what = match event.kind {
        api::EventKind::DomainCreated => "was made",
        api::EventKind::DomainRemoved => "was removed",
        api::EventKind::DomainVanished => "is gone: somebody else removed its cgroup",
        _ => "was changed",
    };
    let protection = protect_ns.map_or_else(String::new, |period_ns| {
        format!("; what it used of memory in the last {} is kept", format_duration(period_ns))
    });
    let reserved = format!("{}{protection}", reserved_sentence(event));
    let detail = match (event.kind, why) {
        (_, Some(why)) => format!(": {why}"),
        (api::EventKind::DomainCreated | api::EventKind::DomainChanged, None) => format!(", {reserved}"),
        _ => String::new(),
    };
    let domain = event.domain.clone().unwrap_or_default();
    format!("Domain {} {what}{detail}{}.", domain.name, asked_by(domain.asked_by, uid))
}

/// What a domain has reserved, as the end of a sentence.
fn reserved_sentence(event: &api::Event) -> String {
    let cpu = event.cpu.filter(|cpu| cpu.bandwidth > 0.0).map(|cpu| {
        let (reserved, beside) = (percent(cpu.bandwidth), percent(cpu.load));
        format!("{reserved} reserved of its parent's CPU, of which others have {beside}")
    });
    let memory = event.memory.filter(|memory| memory.asked > 0).map(|memory| {
        let (promised, beside) = (format_size(memory.asked), format_size(memory.beside));
        format!("{promised} of memory promised, beside {beside} of others")
    });
    let parts: Vec<String> = [cpu, memory].into_iter().flatten().collect();
    if parts.is_empty() { "with nothing reserved".to_owned() } else { format!("with {}", parts.join("; ")) }
}

/// Who asked for a change, after it; nothing when nobody did (process 0).
pub fn asked_by(pid: i32, uid: u32) -> String {
    match pid {
        0 => String::new(),
        pid => format!(" (asked by process {pid} of user {uid})"),
    }
}

/// A parameter that cannot be.
pub(crate) fn invalid(parameter: &str, reason: impl Into<String>) -> api::ApiError {
    api::ApiError::InvalidParameter { parameter: parameter.to_owned(), reason: reason.into() }
}

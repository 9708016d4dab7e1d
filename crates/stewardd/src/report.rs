//! From the daemon's types to those of its API.

use std::sync::Arc;

use libsteward::api;
use serde_json::{Map, Value};
use steward_core::domain::tree::percent;
use steward_core::explain::explain_event;
use steward_core::mechanism::{
    CpuRecord, Event, EventKind, Grant, MechanismError, MechanismKind, Reason, Reservation, Rule, Standing,
    TaskRecord, Thresholds,
};
use steward_core::problem::{Problem, Severity};

use crate::specs::Ids;

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

/// A reservation.
pub fn reservation(reservation: Reservation) -> api::Reservation {
    api::Reservation { budget_ns: reservation.budget_ns, period_ns: reservation.period_ns }
}

/// A standing.
pub fn standing(standing: Standing) -> api::Standing {
    match standing {
        Standing::Admitted => api::Standing::Admitted,
        Standing::Refused => api::Standing::Refused,
        Standing::Revoked => api::Standing::Revoked,
    }
}

/// A grant; `ids` knows the name of the specification.
pub fn grant(grant: &Grant, ids: &Ids) -> api::Grant {
    api::Grant {
        reservation: reservation(grant.reservation),
        inherit: grant.inherit,
        revocable: grant.revocable,
        spec: ids.name(grant.spec_id).map(str::to_owned),
    }
}

/// A task.
pub fn task(task: &TaskRecord, ids: &Ids, complaints: u64) -> api::Task {
    api::Task {
        tid: task.tid,
        pid: task.pid,
        name: task.name.clone(),
        cpu: task.cpu,
        standing: standing(task.standing),
        grant: grant(&task.grant, ids),
        budget_left_ns: task.budget_left_ns,
        deadline_ns: task.deadline_ns,
        periods: task.periods,
        deadlines_missed: task.deadlines_missed,
        budgets_exhausted: task.budgets_exhausted,
        reserved_time_ns: task.reserved_time_ns,
        best_effort_time_ns: task.best_effort_time_ns,
        overrun_max_ns: task.overrun_max_ns,
        complaints,
    }
}

/// A CPU, of which real-time tasks took this fraction lately.
pub fn cpu(cpu: &CpuRecord, real_time: f64) -> api::Cpu {
    api::Cpu {
        cpu: cpu.cpu,
        online: cpu.online,
        measured_load: cpu.measured_load,
        real_time,
        projected_load: cpu.projected_load,
        window: cpu.window.to_vec(),
        reserved: cpu.reserved,
        admitted: cpu.admitted,
    }
}

/// The thresholds.
pub fn thresholds(thresholds: &Thresholds) -> api::Thresholds {
    api::Thresholds {
        reactivate_below: thresholds.reactivate_below,
        admit_below: thresholds.admit_below,
        revoke_above: thresholds.revoke_above,
    }
}

/// The kind of mechanism.
pub fn mechanism_kind(kind: MechanismKind) -> api::MechanismKind {
    match kind {
        MechanismKind::SchedExt => api::MechanismKind::SchedExt,
        MechanismKind::Deadline => api::MechanismKind::Deadline,
        MechanismKind::Nice => api::MechanismKind::Nice,
    }
}

/// A problem of a file.
pub fn problem(problem: &Problem) -> api::Problem {
    api::Problem {
        file: problem.origin.file.display().to_string(),
        line: (problem.origin.line > 0).then_some(u64::from(problem.origin.line)),
        severity: match problem.severity {
            Severity::Note => api::Severity::Note,
            Severity::Error => api::Severity::Error,
        },
        message: format!("{}; {}", problem.what, problem.advice),
    }
}

/// What went wrong in the daemon rather than in a file.
pub fn trouble(sentence: &str) -> api::Problem {
    api::Problem {
        file: "stewardd".to_owned(),
        line: None,
        severity: api::Severity::Error,
        message: sentence.to_owned(),
    }
}

/// A decision.
pub fn event(event: &Event) -> api::Event {
    api::Event {
        at_ns: event.at_ns,
        tid: event.tid,
        pid: event.pid,
        name: event.name.clone(),
        cpu: event.cpu,
        kind: event_kind(event.kind),
        load: event.load,
        bandwidth: event.bandwidth,
        threshold: event.threshold,
        reason: event.reason.map(reason),
        text: explain_event(event),
    }
}

fn reason(reason: Reason) -> api::Reason {
    let rule = match reason.rule {
        Rule::Load => api::Rule::Load,
        Rule::User => api::Rule::User,
        Rule::Users => api::Rule::Users,
        Rule::NoCpu => api::Rule::NoCpu,
        Rule::Memory => api::Rule::Memory,
        Rule::Irrevocable => api::Rule::Irrevocable,
        Rule::NotNamed => api::Rule::NotNamed,
    };
    let Reason { uid, amount, limit, .. } = reason;
    api::Reason { rule, uid, amount, limit }
}

fn event_kind(kind: EventKind) -> api::EventKind {
    match kind {
        EventKind::Admitted => api::EventKind::Admitted,
        EventKind::Refused => api::EventKind::Refused,
        EventKind::TableFull => api::EventKind::TableFull,
        EventKind::RevokedExhausted => api::EventKind::RevokedExhausted,
        EventKind::RevokedHungriest => api::EventKind::RevokedHungriest,
        EventKind::RevokedDisplaced => api::EventKind::RevokedDisplaced,
        EventKind::Reactivated => api::EventKind::Reactivated,
        EventKind::Released => api::EventKind::Released,
    }
}

/// The word for it in the log.
pub fn event_kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Admitted => "admitted",
        EventKind::Refused => "refused",
        EventKind::TableFull => "table-full",
        EventKind::RevokedExhausted => "revoked-exhausted",
        EventKind::RevokedHungriest => "revoked-hungriest",
        EventKind::RevokedDisplaced => "revoked-displaced",
        EventKind::Reactivated => "reactivated",
        EventKind::Released => "released",
    }
}

/// Whether a decision is about a domain rather than a task.
pub fn is_of_domain(kind: api::EventKind) -> bool {
    use api::EventKind as Kind;
    match kind {
        Kind::DomainCreated
        | Kind::DomainChanged
        | Kind::DomainRefused
        | Kind::DomainRemoved
        | Kind::DomainVanished => true,
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
        _ => "domain-vanished",
    }
}

/// A decision about a domain in a sentence. `why` replaces what is known of it otherwise.
pub fn domain_sentence(event: &api::Event, uid: u32, why: Option<&str>) -> String {
    let what = match event.kind {
        api::EventKind::DomainCreated => "was made",
        api::EventKind::DomainRemoved => "was removed",
        api::EventKind::DomainVanished => "is gone: somebody else removed its cgroup",
        _ => "was changed",
    };
    let reserved = match event.bandwidth {
        0.0 => "with nothing reserved".to_owned(),
        reserved => format!(
            "with {} reserved of its parent's CPU, of which others have {}",
            percent(reserved),
            percent(event.load)
        ),
    };
    let detail = match (event.kind, why) {
        (_, Some(why)) => format!(": {why}"),
        (api::EventKind::DomainCreated | api::EventKind::DomainChanged, None) => format!(", {reserved}"),
        _ => String::new(),
    };
    format!("Domain {} {what}{detail}{}.", event.name, asked_by(event.pid, uid))
}

/// Who asked for a change, after it; nothing when nobody did (process 0).
pub fn asked_by(pid: i32, uid: u32) -> String {
    match pid {
        0 => String::new(),
        pid => format!(" (asked by process {pid} of user {uid})"),
    }
}

/// What a mechanism's refusal is to a client.
pub fn mechanism_error(error: MechanismError) -> api::ApiError {
    match error {
        MechanismError::NoSuchTask { tid } => api::ApiError::NoSuchTask { pid: tid },
        MechanismError::Gone { reason } => api::ApiError::MechanismGone { reason },
        error @ (MechanismError::Full { .. }
        | MechanismError::Kernel { .. }
        | MechanismError::NoSuchDomain { .. }
        | MechanismError::Unsupported { .. }) => api::ApiError::MechanismFailed { reason: error.to_string() },
    }
}

//! From the CPU's types to those of the API.

use libsteward::api;
use steward_core::cpu::event::{Event, EventKind, Reason, Rule};
use steward_core::cpu::explain::explain_event;
use steward_core::cpu::forecast::Forecast;
use steward_core::cpu::mechanism::{CpuRecord, MechanismError, MechanismKind, Standing, TaskRecord};
use steward_core::cpu::reservation::{Grant, Reservation};
use steward_core::cpu::thresholds::Thresholds;

use crate::programs::table::Ids;

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

/// A decision.
pub fn event(event: &Event) -> api::Event {
    api::Event {
        at_ns: event.at_ns,
        kind: event_kind(event.kind),
        task: Some(api::EventTask { tid: event.tid, pid: event.pid, name: event.name.clone() }),
        domain: None,
        cpu: Some(api::CpuFigures {
            cpu: Some(event.cpu),
            load: event.load,
            bandwidth: event.bandwidth,
            threshold: event.threshold,
        }),
        memory: None,
        reason: event.reason.map(reason),
        text: explain_event(event),
    }
}

fn reason(reason: Reason) -> api::Reason {
    let rule = match reason.rule {
        Rule::Load => api::Rule::Load,
        Rule::User => api::Rule::User,
        Rule::Users => api::Rule::Users,
        Rule::Together => api::Rule::Together,
        Rule::Part => api::Rule::Part,
        Rule::NoCpu => api::Rule::NoCpu,
        Rule::Memory => api::Rule::Memory,
        Rule::Irrevocable => api::Rule::Irrevocable,
        Rule::NotNamed => api::Rule::NotNamed,
        Rule::Confined => api::Rule::Confined,
        Rule::OwnPolicy => api::Rule::OwnPolicy,
        Rule::KernelFull => api::Rule::KernelFull,
        Rule::Away => api::Rule::Away,
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

/// The figures of a forecast.
pub(crate) fn forecast(figures: &Forecast) -> api::Forecast {
    api::Forecast {
        actual_ms_per_s: rounded(figures.actual_ms_per_s),
        desired_ms_per_s: rounded(figures.desired_ms_per_s),
        predicted_ms_per_s: rounded(figures.predicted_ms_per_s),
        potential_ms_per_s: rounded(figures.potential_ms_per_s),
        slowdown: figures.slowdown().map(rounded),
        future_slowdown: figures.future_slowdown().map(rounded),
        potential_slowdown: figures.potential_slowdown().map(rounded),
    }
}

/// To a thousandth, so that thousands of figures make a short text.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

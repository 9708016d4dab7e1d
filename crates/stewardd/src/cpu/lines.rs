//! The lines of the log about decisions.

use steward_core::cpu::event::{Event, EventKind};
use steward_core::cpu::explain::explain_event;
use steward_core::cpu::mechanism::Standing;
use steward_core::cpu::plan::Step;

pub(crate) fn log_step(step: &Step, standing: Option<Standing>) {
    let (tid, pid, why) = (step.tid, step.pid, &step.why);
    match step.grant {
        Some(grant) => tracing::info!(
            decision = "assigned",
            tid,
            pid,
            cpu = %grant.reservation,
            standing = standing.map(|standing| standing.to_string()),
            "{why}"
        ),
        None => tracing::info!(decision = "released", tid, pid, "{why}"),
    }
}

/// One line per decision. What every start and end of a program brings is at level debug: a shell script makes
/// hundreds a second.
pub(crate) fn log_event(event: &Event) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                decision = super::reply::event_kind_name(event.kind),
                tid = event.tid,
                pid = event.pid,
                cpu = event.cpu,
                load = event.load,
                bandwidth = event.bandwidth,
                threshold = event.threshold,
                "{}",
                explain_event(event)
            )
        };
    }
    match event.kind {
        EventKind::Admitted | EventKind::Released => line!(debug),
        _ => line!(info),
    }
}

//! The record of a promise in sentences.

use super::auditor::tolerance_ns;
use super::tally::Tally;
use crate::quantity::approximate_duration;
use crate::quantity::percent;
use crate::record::Span;

/// What a domain is promised now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promised {
    /// This fraction of the machine.
    Fraction {
        /// Above 0 and at most 1.
        fraction: f64,
        /// How many CPUs are online.
        cpus: u32,
        /// The service cycle, in nanoseconds.
        service_cycle_ns: u64,
        /// How many domains have something to run.
        waiting_domains: usize,
    },
    /// Something is reserved for it, but nothing for a domain above it: a part of nothing promised.
    Above,
    /// Nothing is reserved for it.
    Nothing,
    /// No scheduler is in force that counts for domains.
    NotInForce,
}

/// A span that was asked for, and what is kept of it.
pub type Kept = (Span, Tally);

/// What is promised to the domain of this name, and whether that was kept; a line each.
pub fn explain(name: &str, promised: &Promised, kept: &[Kept]) -> String {
    let mut text = headline(name, promised);
    text.push('\n');
    let anything = kept.iter().any(|(_, tally)| tally.seen_ns > 0);
    if !anything {
        text.push_str("Nothing is kept of it from the last day.\n");
        return text;
    }
    for (span, tally) in kept {
        text.push_str(&sentence(*span, tally));
        text.push('\n');
    }
    if kept.iter().any(|(_, tally)| tally.broken > 0) {
        text.push_str(
            "What runs ahead of all domains takes from promises: real-time tasks, interrupts, and reservations of \
             tasks (steward status). Tasks that may run on a few CPUs only cannot use what others have to give.\n",
        );
    }
    text
}

fn headline(name: &str, promised: &Promised) -> String {
    match *promised {
        Promised::Fraction { fraction, cpus, service_cycle_ns, waiting_domains } => {
            let cpu_count = f64::from(cpus.max(1));
            let each_second_ns = fraction * cpu_count * 1e9;
            let tolerance =
                tolerance_ns(fraction, cpu_count, service_cycle_ns as f64, waiting_domains as f64, 0.0);
            format!(
                "{name} is promised {} of the machine: {} of CPU time in every second. A second counts as broken when more \
                 than {} are missing by then, which is as long as the scheduler may take to even things out.",
                percent(fraction),
                approximate_duration(each_second_ns as u64),
                approximate_duration(tolerance as u64)
            )
        }
        Promised::Above => format!(
            "{name} has a part reserved of what is above it, where nothing is reserved: so nothing is promised. \
             Reserve something for the domains above it too (steward domain set DOMAIN --cpu)."
        ),
        Promised::Nothing => {
            format!(
                "{name} is promised nothing: no CPU time is reserved for it (steward domain set {name} --cpu)."
            )
        }
        Promised::NotInForce => format!(
            "Nothing is promised to {name} now: Steward's own scheduler is not in force (steward status says why)."
        ),
    }
}

/// One span in a sentence.
pub fn sentence(span: Span, tally: &Tally) -> String {
    let name = span.name();
    if tally.seen_ns == 0 {
        return format!("In the last {name} it was not looked at.");
    }
    let seen = if tally.seen_ns < span.length_s() * 900_000_000 {
        format!(" ({} of it were looked at)", approximate_duration(tally.seen_ns))
    } else {
        String::new()
    };
    if tally.seconds == 0 {
        return format!("In the last {name}{seen} it wanted nothing of what it was promised.");
    }
    let figures = format!(
        "of the {} that it was promised it wanted {}, and it got {}",
        approximate_duration(tally.promised_ns),
        approximate_duration(tally.wanted_ns),
        approximate_duration(tally.received_ns)
    );
    match tally.broken {
        0 => format!("In the last {name}{seen} the promise was kept: {figures}."),
        broken => format!(
            "In the last {name}{seen} the promise was broken in {broken} of {} seconds: {figures}; in the worst second \
             {} were missing.",
            tally.seconds,
            approximate_duration(tally.worst_missing_ns)
        ),
    }
}

//! The record of a promise of memory in sentences.

use super::tally::{Blame, STALL_MAX_NS, Tally};
use crate::quantity::{approximate_duration, approximate_size, format_duration};
use crate::record::Span;

/// How many culprits are named in a sentence.
const NAMED_MAX: usize = 3;

/// What a domain is promised of the memory now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// Its minimum, in bytes; 0 where it has none.
    pub min_bytes: u64,
    /// Its protection period, in nanoseconds; `None` where it is not protected.
    pub protect_ns: Option<u64>,
    /// Why not all of that is in force now, as a part of a sentence; `None` when it is.
    pub problem: Option<String>,
    /// Whether the kernel counts for how long tasks stand still.
    pub is_pressure_counted: bool,
}

impl Promised {
    /// Whether that is nothing.
    pub fn is_nothing(&self) -> bool {
        self.min_bytes == 0 && self.protect_ns.is_none()
    }
}

/// Who took the most memory in broken seconds, as the reader may know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The domain's name; `None` for those that the reader may not see, all together.
    pub name: Option<String>,
    /// What is known of it.
    pub blame: Blame,
}

/// A span that was asked for, what is kept of it, and who broke the promise in it, most often first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The span.
    pub span: Span,
    /// What is kept of it.
    pub tally: Tally,
    /// The culprits.
    pub culprits: Vec<Named>,
}

/// What is promised of the memory to the domain of this name, and whether that was kept; a line each. Nothing where
/// nothing is promised and nothing is kept.
pub fn explain(name: &str, promised: &Promised, kept: &[Kept]) -> String {
    let is_kept = kept.iter().any(|kept| kept.tally.seen_ns > 0);
    if promised.is_nothing() && !is_kept {
        return String::new();
    }
    let mut text = headline(name, promised) + "\n";
    if !is_kept {
        text.push_str("Nothing is kept of its memory from the last day.\n");
        return text;
    }
    for kept in kept {
        text.push_str(&sentence(kept));
        text.push('\n');
    }
    text
}

fn headline(name: &str, promised: &Promised) -> String {
    let promise = match (promised.min_bytes, promised.protect_ns) {
        (0, None) => return format!("{name} is promised no memory now."),
        (0, Some(period_ns)) => protected(name, period_ns),
        (bytes, None) => format!(
            "{name} is promised {} of memory: what it uses up to that is not taken from it",
            approximate_size(bytes)
        ),
        (bytes, Some(period_ns)) => {
            format!("{}, and {} whatever it used", protected(name, period_ns), approximate_size(bytes))
        }
    };
    let judged = match promised.is_pressure_counted {
        true => format!(
            "A second counts as broken when tasks of it stood still for want of memory for more than {}, which is what \
             people notice.",
            approximate_duration(STALL_MAX_NS)
        ),
        false => "This kernel does not count how long tasks stand still (steward doctor says why): what is told is \
             estimated from faults that waited for a disk."
            .to_owned(),
    };
    let problem = promised.problem.as_ref();
    let problem = problem.map_or_else(String::new, |why| format!(" Not all of that is in force now: {why}."));
    format!("{promise}. {judged}{problem}")
}

fn protected(name: &str, period_ns: u64) -> String {
    format!("{name} is protected: it keeps in memory what it used in the last {}", format_duration(period_ns))
}

/// One span in a sentence.
pub fn sentence(kept: &Kept) -> String {
    let (name, tally) = (kept.span.name(), &kept.tally);
    if tally.seen_ns == 0 {
        return format!("In the last {name} its memory was not looked at.");
    }
    let mut asides = Vec::new();
    if tally.seen_ns < kept.span.length_s() * 900_000_000 {
        asides.push(format!("{} of it were looked at", approximate_duration(tally.seen_ns)));
    }
    if tally.in_force_ns < tally.seen_ns {
        let missing_ns = tally.seen_ns - tally.in_force_ns;
        asides.push(format!("it was not in force for {}", approximate_duration(missing_ns)));
    }
    let asides = if asides.is_empty() { String::new() } else { format!(" ({})", asides.join("; ")) };
    let figures = figures(tally);
    if tally.seconds == 0 {
        return format!(
            "In the last {name}{asides} it wanted more memory than it was promised, or had all that it may use, so nothing \
             can be said: {figures}."
        );
    }
    match tally.broken {
        0 => format!("In the last {name}{asides} the promise of memory was kept: {figures}."),
        broken => format!(
            "In the last {name}{asides} the promise of memory was broken in {broken} of {} seconds: {figures}; in the worst \
             second it stood still for {}.{}",
            tally.seconds,
            approximate_duration(tally.worst_stalled_ns),
            blamed(&kept.culprits)
        ),
    }
}

fn figures(tally: &Tally) -> String {
    let parts = [
        (
            tally.stalled_ns,
            format!("it waited for memory for {} in all", approximate_duration(tally.stalled_ns)),
        ),
        (
            tally.refaults,
            counted(tally.refaults, "page that was taken was", "pages that were taken were")
                + " fetched again",
        ),
        (tally.major_faults, counted(tally.major_faults, "fault", "faults") + " waited for a disk"),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
    if parts.is_empty() { "it never waited for memory".to_owned() } else { parts.join(", ") }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Who took the memory, as sentences after another one.
fn blamed(culprits: &[Named]) -> String {
    let part = |named: &Named| {
        format!(
            "{} ({} in {})",
            named.name.as_deref().unwrap_or("others, whom you may not see"),
            approximate_size(named.blame.taken_bytes),
            counted(named.blame.seconds, "second", "seconds")
        )
    };
    let parts: Vec<String> = culprits.iter().take(NAMED_MAX).map(part).collect();
    match parts.len() {
        0 => " Nobody was seen to take memory then.".to_owned(),
        _ => format!(" The most memory was taken then by {}.", parts.join(", ")),
    }
}

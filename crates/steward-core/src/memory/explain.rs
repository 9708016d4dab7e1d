//! Says in sentences what a domain has of the memory, who may take it, why something was taken from it, and what would
//! help. Every sentence gives the figures that it rests on.

use std::num::NonZeroU32;

use super::audit::text::Promised;
use crate::quantity::{approximate_duration, approximate_size, format_duration};

/// A domain's memory, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What the domain is called.
    pub name: String,
    /// Whether Steward made it: only such can be promised memory.
    pub is_made: bool,
    /// What it uses with all below it, in bytes.
    pub used_bytes: u64,
    /// What of it is in the swap besides, in bytes.
    pub swapped_bytes: u64,
    /// The most that it may use, in bytes.
    pub max_bytes: Option<u64>,
    /// What it is promised.
    pub promised: Promised,
    /// What is kept of it because it is protected, in bytes; 0 while it is demoted.
    pub kept_bytes: u64,
    /// What Steward has taken from it so far, in bytes.
    pub taken_bytes: u64,
    /// For whom, as part of a sentence; empty where nobody is protected now, or the reader may not see who.
    pub protected: String,
    /// What processes in it have that is charged elsewhere.
    pub left: Vec<LeftBehind>,
    /// How it was held back in the last minute.
    pub held_lately: HeldLately,
    /// Before which maximum its programs are slowed.
    pub slowed_above: Option<SlowedAbove>,
    /// Where it stands beside its siblings, and those above it beside theirs, from the top down.
    pub levels: Vec<Level>,
}

/// What a process had already when it was moved: its former cgroup goes on being charged for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// The process.
    pub pid: i32,
    /// What is charged, as it is called.
    pub charged_to: String,
    /// How much of what the process has, in bytes.
    pub bytes: u64,
}

/// That programs are slowed before a maximum is reached, because others below it are protected ([`super::beneath`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowedAbove {
    /// Whose maximum that is.
    pub name: String,
    /// Above how much, in bytes.
    pub bytes: u64,
}

/// How one was held back for moments within a span of time ([`super::bumps`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLately {
    /// How often because it took memory faster than there can be more.
    pub for_taking: u64,
    /// How often because it changed files faster than they are written back.
    pub for_dirtying: u64,
    /// For how long in all at most, in nanoseconds.
    pub held_ns: u64,
}

impl HeldLately {
    /// With what there was besides.
    pub fn add(&mut self, more: HeldLately) {
        self.for_taking = self.for_taking.saturating_add(more.for_taking);
        self.for_dirtying = self.for_dirtying.saturating_add(more.for_dirtying);
        self.held_ns = self.held_ns.saturating_add(more.held_ns);
    }
}

/// A domain beside its siblings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The domain, or the one above it that stands on this level.
    pub name: String,
    /// How it stands.
    pub own: Standing,
    /// Its siblings.
    pub others: Vec<Standing>,
    /// Whether nobody gave it anything, and none is below it: it pays in turns with others like it.
    pub in_turns: bool,
}

/// What decides whose memory is taken among siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The lowest is taken from first.
    pub priority: u8,
    /// Its part among those of one priority.
    pub weight: NonZeroU32,
    /// What is charged to it, in bytes: of this can be taken.
    pub used_bytes: u64,
    /// What it claims, in bytes: with what it uses of what is charged to others, without what others use of its own. By
    /// this is chosen who gives.
    pub claimed_bytes: u64,
    /// What of what is charged to it is not taken, in bytes.
    pub floor_bytes: u64,
}

/// What is said where claims are not what is charged.
const CLAIMS: &str = " A domain claims what is charged to it, with pages of files that it uses of others' and without those \
                      that others use of its own.";

impl Standing {
    fn can_give(&self) -> bool {
        self.used_bytes > self.floor_bytes
    }
}

/// What there is to say, a line each; each ends.
pub fn explain(facts: &Facts) -> String {
    let mut lines = vec![has(facts), keeps(facts)];
    lines.extend(left(&facts.left));
    if facts.taken_bytes > 0 {
        let whom = match facts.protected.as_str() {
            "" => "so that some was free for protected domains at any moment".to_owned(),
            names => format!("so that some is free for {names} at any moment"),
        };
        lines.push(format!("{} were taken from it so far, {whom}.", approximate_size(facts.taken_bytes)));
    }
    lines.extend(held(&facts.held_lately));
    lines.extend(facts.slowed_above.as_ref().map(slowed));
    let may_give = facts.used_bytes > floor(facts);
    if may_give {
        lines.extend(facts.levels.iter().filter_map(place));
    }
    if may_give && (facts.taken_bytes > 0 || facts.swapped_bytes > 0) {
        lines.push(advice(facts));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// That its programs stood still for moments, and why; nothing where they did not.
fn held(lately: &HeldLately) -> Option<String> {
    let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let because =
        |(count, why): (u64, &str)| (count > 0).then(|| format!("{} because they {why}", times(count)));
    let reasons = [
        (lately.for_taking, "took memory faster than more of it can be freed"),
        (lately.for_dirtying, "changed files faster than they can be written"),
    ];
    let reasons: Vec<String> = reasons.into_iter().filter_map(because).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "In the last minute its programs were held back for moments, {} in all at most: {}.",
            approximate_duration(lately.held_ns),
            reasons.join(", and ")
        )
    })
}

fn slowed(above: &SlowedAbove) -> String {
    let SlowedAbove { name, bytes } = above;
    format!(
        "When all in {name} together use more than {}, memory is taken from them for who takes more, and whoever does is slowed \
         where none can be had: something in it is protected, and nobody is to be ended for that.",
        approximate_size(*bytes)
    )
}

fn floor(facts: &Facts) -> u64 {
    facts.promised.min_bytes.max(facts.kept_bytes)
}

fn has(facts: &Facts) -> String {
    let Facts { name, used_bytes, swapped_bytes, max_bytes, .. } = facts;
    let most = max_bytes.map_or_else(String::new, |bytes| format!(" of at most {}", approximate_size(bytes)));
    let swapped = match swapped_bytes {
        0 => String::new(),
        bytes => format!(", and has {} more in the swap", approximate_size(*bytes)),
    };
    format!("{name} uses {} of memory{most}{swapped}.", approximate_size(*used_bytes))
}

fn keeps(facts: &Facts) -> String {
    let Promised { min_bytes, protect_ns, problem, .. } = &facts.promised;
    let minimum =
        (*min_bytes > 0).then(|| format!("up to {} of it are promised", approximate_size(*min_bytes)));
    let protection = protect_ns.map(|period_ns| {
        let kept = approximate_size(facts.kept_bytes);
        format!(
            "it is protected, and keeps what it used in the last {}: {kept} now",
            format_duration(period_ns)
        )
    });
    let parts: Vec<String> = [minimum, protection].into_iter().flatten().collect();
    if parts.is_empty() {
        return "It is promised none of that: memory may be taken from it for others.".to_owned();
    }
    let problem = problem.as_ref();
    let problem = problem.map_or_else(String::new, |why| format!(" Not all of that is in force now: {why}."));
    let text = parts.join("; ");
    let (first, rest) = text.split_at(1);
    format!("{}{rest}.{problem}", first.to_uppercase())
}

/// How many processes are named of those that left something behind.
const LEFT_MAX: usize = 3;

/// What is charged elsewhere, the most of it first.
fn left(all: &[LeftBehind]) -> Vec<String> {
    let mut largest: Vec<&LeftBehind> = all.iter().collect();
    largest.sort_by_key(|left| (std::cmp::Reverse(left.bytes), left.pid));
    let sentence = |LeftBehind { pid, charged_to, bytes }: &LeftBehind| {
        format!(
            "{} that process {pid} had before it came here stay charged to {charged_to}, and are neither kept nor limited here until \
             it is started anew.",
            approximate_size(*bytes)
        )
    };
    let (named, others) = largest.split_at(largest.len().min(LEFT_MAX));
    let mut sentences: Vec<String> = named.iter().map(|left| sentence(left)).collect();
    if !others.is_empty() {
        let bytes = others.iter().map(|left| left.bytes).fold(0, u64::saturating_add);
        sentences.push(format!("The same is so of {} of {} more.", approximate_size(bytes), others.len()));
    }
    sentences
}

/// Where one stands among its siblings, by the rule that chooses from whom is taken; nothing where it is alone.
fn place(level: &Level) -> Option<String> {
    let Level { name, own, others, in_turns } = level;
    let givers = || others.iter().filter(|other| other.can_give());
    let lower = givers().filter(|other| other.priority < own.priority).count();
    if lower > 0 {
        let who = match lower {
            1 => "one domain beside it has a lower one, and gives".to_owned(),
            _ => format!("{lower} domains beside it have a lower one, and give"),
        };
        return Some(format!("{name} has priority {}: {who} first.", own.priority));
    }
    let equals: Vec<&Standing> = others.iter().filter(|other| other.priority == own.priority).collect();
    if equals.is_empty() {
        let higher = givers().count();
        return (higher > 0).then(|| {
            format!("{name} has the lowest priority of those beside it, {}, and gives first.", own.priority)
        });
    }
    let all = || equals.iter().copied().chain([own]);
    let total_bytes: u128 = all().map(|one| u128::from(one.claimed_bytes)).sum();
    let weights: u128 = all().map(|one| u128::from(one.weight.get())).sum();
    let part_bytes = total_bytes * u128::from(own.weight.get()) / weights.max(1);
    let part_bytes = u64::try_from(part_bytes).unwrap_or(u64::MAX);
    let by_claims = all().any(|one| one.claimed_bytes != one.used_bytes);
    let (have, has) = if by_claims { ("claim", "claims") } else { ("have", "has") };
    let figures = format!(
        "Of the {} that {} domains of priority {} {have} beside each other, {name} {has} {}; by its weight of {} its part is {}",
        approximate_size(u64::try_from(total_bytes).unwrap_or(u64::MAX)),
        equals.len() + 1,
        own.priority,
        approximate_size(own.claimed_bytes),
        own.weight,
        approximate_size(part_bytes)
    );
    let sentence = match own.claimed_bytes.checked_sub(part_bytes).filter(|excess_bytes| *excess_bytes > 0) {
        Some(excess_bytes) => {
            format!(
                "{figures}: it {has} {} more, which is taken before others give.",
                approximate_size(excess_bytes)
            )
        }
        None => {
            format!("{figures}: it {has} no more than that, so others give first as long as they have more.")
        }
    };
    let claims = if by_claims { CLAIMS } else { "" };
    let turns = if *in_turns {
        format!(
            " Nobody gave {name} anything: beside others like it, it pays in turns, and then until little is left of it."
        )
    } else {
        String::new()
    };
    Some(format!("{sentence}{claims}{turns}"))
}

fn advice(facts: &Facts) -> String {
    let name = &facts.name;
    let promise = match (facts.is_made, facts.promised.protect_ns) {
        (false, _) => "starting its program with steward run --protect=30min (what it uses stays) or --memory-min SIZE (so much \
             stays)"
            .to_owned(),
        (true, None) => format!(
            "steward domain set {name} --protect=30min (what it uses stays) or --memory-min SIZE (so much stays)"
        ),
        (true, Some(_)) => {
            format!("steward domain set {name} --memory-min SIZE (so much stays, also when not all that is protected fits)")
        }
    };
    format!(
        "What would help: {promise}; steward domain set {name} --weight with a larger number (its part grows) or --priority with a \
         higher one (others give first). Swap on a faster disk, or zram, makes it wait less for what was taken."
    )
}

#[cfg(test)]
mod tests;

//! Memory: what the machine has, what is promised of it, and what each domain uses and may use.

use serde::{Deserialize, Serialize};

use super::disk::DiskWait;
use super::event::Event;
use super::method::Method;

/// The machine's memory, in bytes but for the number of domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryState {
    /// What there is.
    pub total: u64,
    /// What programs could still get without anything being written to the swap, as the kernel estimates it.
    pub available: u64,
    /// What the domains at the top are promised together.
    pub promised: u64,
    /// The most that they may be promised.
    pub reservable: u64,
    /// How many protected domains nobody uses, so that nothing is kept of them.
    #[serde(default)]
    pub lapsed: u64,
    /// By what it is known which of their memory protected domains use. Nothing while none is protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_from: Option<UseSource>,
}

/// What a domain and all below it use of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainMemory {
    /// All that is charged to it.
    pub used: u64,
    /// What of it is in the swap besides.
    pub swapped: u64,
    /// How much it may use now: what it uses, what nobody uses, and what it can take back from those who use more than
    /// their part. Less than it uses where others lack what it has more than its part. Nothing for who may not know
    /// that (`read-availability` in the rules), as the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
    /// What of that it can have at once: what it uses, what is free, and clean pages of files of those who would pay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_at_once: Option<u64>,
    /// How long it takes at most until it can have the rest, in nanoseconds: as long as a disk takes to write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_free_ns: Option<u64>,
    /// What is kept of it because it was used within its protection period, or soon will be; 0 while the domain is
    /// demoted. Nothing where it is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// By what it is known which of its memory it uses. Nothing where it is not protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_from: Option<UseSource>,
    /// What Steward has taken from it for others so far.
    pub taken: u64,
    /// What it claims, by which shares are measured and who has to pay is chosen: what is charged to it, without what
    /// others use of that, and with what it uses of what is charged to others.
    pub claimed: u64,
    /// By what it is known.
    pub claims_from: ClaimSource,
    /// What its tasks fetched again soon after it had been taken, by whomever, so far.
    pub refaulted: u64,
    /// For how long at least one of its tasks stood still for want of memory so far, in nanoseconds.
    pub stalled_ns: u64,
}

/// What can show that a domain is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Nothing yet: it has only been protected since.
    #[default]
    Protected,
    /// A program in the foreground of its terminal read what was typed there. This is sure.
    Terminal,
    /// It ran when somebody used a keyboard or mouse of the machine, for longer than it runs anyway. This is likely.
    Input,
    /// It had at least 2 % of a CPU over a minute: it is busy, whether or not somebody looks at it.
    Work,
    /// It had pages read back from the disk. This may have been a timer of its own.
    Faults,
}

/// Whether a protected domain, with all below it, is in use (Edwards & Cao, sections 3.1.3 and 3.2.2). Times are in
/// nanoseconds; those of use are told to 10 seconds, so that nobody learns when which key was struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Whether it has been idle for so long that its protection has lapsed: nothing is kept of it until it is used.
    pub lapsed: bool,
    /// How long ago the last sign of use was.
    pub idle_ns: u64,
    /// What that was.
    pub evidence: Evidence,
    /// For how long it has been watched, since it was protected or the daemon started.
    pub watched_ns: u64,
    /// For how long of that it was in use: in the 10 seconds after each sign.
    pub used_ns: u64,
    /// Of the last minute.
    pub used_minute_ns: u64,
    /// Of the last hour.
    pub used_hour_ns: u64,
    /// Of the last day.
    pub used_day_ns: u64,
}

/// By what it is known what a domain claims of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimSource {
    /// What is charged to it: who uses what of files was not looked at, or makes no difference.
    #[default]
    Charge,
    /// What its processes have mapped of files, each page divided among all who have (their proportional set size).
    MappedPages,
}

/// By what it is known which of their memory protected domains use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseSource {
    /// The ages of pages that the kernel's multi-generational LRU keeps.
    Mglru,
    /// A little is given up at a time; what of it is fetched back, and how long tasks wait for memory, says whether it
    /// was used.
    RefaultsAndPressure,
    /// Nothing: all that is charged to them counts as used but files that they read once.
    #[default]
    None,
}

/// Promises memory to a running process and those that descend from it, allows them at most so much, or keeps what they
/// use in memory. Where they are not alone in their domain, they are moved to one of their own first. What is left out
/// stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetMemory {
    /// The process.
    pub pid: i32,
    /// Memory promised, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<i64>,
    /// The most memory that they may use together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<i64>,
    /// For how long one of their pages may go unused before it may be taken, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect: Option<i64>,
    /// Names of those of these that are taken back; done before the others are set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reset: Vec<String>,
}
method!(SetMemory, "io.steward.SetMemory", MemorySet);

/// What [`SetMemory`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySet {
    /// The domain that they are in, which has it.
    pub domain: String,
    /// The domain that they were in; `None` where they stay in theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How many processes were moved.
    pub moved: u64,
    /// How many that descend from it stay where they were: those of other users, which the caller may not move, and
    /// those that the kernel does not let go.
    pub stayed: u64,
    /// Whether all others were moved: not those that were begun by some faster than these could be moved.
    pub whole: bool,
    /// How much of their memory stays charged to where they were, in bytes: it is neither kept nor limited. Absent
    /// where that is nothing, or cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_bytes: Option<u64>,
}

/// How much memory a domain may use, in all and at once: first as it is, then each change of 5 % or more of what was
/// told last of either, in less than 300 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchAvailability {
    /// The domain's name; that of the caller unless said, also when the caller is moved to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// What [`WatchAvailability`] answers with, again and again (Walfield, section 3.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Availability {
    /// Whom it is about: the domain, or the nearest one above it whose memory is counted.
    pub domain: String,
    /// When it was read, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What it used then with all below it, in bytes.
    pub used: u64,
    /// How much it may use, in bytes: what it uses, what nobody uses, and what it can take back from those who use more
    /// than their part. Less than it uses where others lack what it has more than its part.
    pub available: u64,
    /// What of that it can have at once, in bytes: what it uses, what is free, and clean pages of files of those who
    /// would pay. The same may be told to others: it goes to whoever comes first.
    pub available_at_once: u64,
    /// How long it takes at most until it can have the rest, in nanoseconds: as long as a disk takes to write it, as
    /// fast as Steward saw it write.
    pub time_to_free_ns: u64,
}

method!(WatchAvailability, "io.steward.WatchAvailability", Availability);

/// What became of a promise of memory within a span of time that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedMemory {
    /// `minute`, `hour` or `day`.
    pub span: String,
    /// How much of the span was seen, in nanoseconds: less when the daemon or the domain is younger.
    pub seen_ns: u64,
    /// For how much of that what was promised was in force, in nanoseconds.
    pub in_force_ns: u64,
    /// While at least one of its tasks stood still for want of memory, in nanoseconds.
    pub stalled_ns: u64,
    /// While all of its tasks that were not idle did, in nanoseconds.
    pub stopped_ns: u64,
    /// Pages that were fetched again soon after they had been taken.
    pub refaults: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
    /// How many seconds were judged: it wanted no more than it was promised.
    pub seconds: u64,
    /// In how many of these it stood still for longer than people notice.
    pub broken: u64,
    /// For how long it stood still in the worst of them, in nanoseconds.
    pub worst_stalled_ns: u64,
    /// Who took the most memory in broken seconds, most often first.
    pub culprits: Vec<Culprit>,
}

/// Who took the most memory in seconds in which a promise was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its domain's name; nothing for all that the caller may not see, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// In how many.
    pub seconds: u64,
    /// What it took in these, in bytes.
    pub taken: u64,
}

/// Why a domain has the memory that it has, and what was decided about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExplainDomain {
    /// Its name; the caller's own domain unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}
method!(ExplainDomain, "io.steward.ExplainDomain", DomainExplanation);

/// What [`ExplainDomain`] returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainExplanation {
    /// The domain's name.
    pub domain: String,
    /// In sentences.
    pub text: String,
    /// Its latest waits for the disk of more than 50 ms, with those of all below it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disk_waits: Vec<DiskWait>,
    /// The latest decisions about it, oldest first; those that name others only for who may read what is promised to
    /// whom.
    pub events: Vec<Event>,
}

//! By what a device's requests are ordered (Yang 2009, section 10.2): without an elevator that knows classes nobody's
//! requests are served before anybody else's. Where an elevator costs more than it gives, the kernel charges cgroups
//! for them instead ([`cost`](super::cost)).
//!
//! docs/disk.md and docs/disk-measured.md have the measurements that the choice rests on.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::calibration::unsuited;
use super::config;
use super::cost::{Model, Standing};
use super::device::Device;

/// The elevator that serves classes, one after the other, and waits a moment for the next request of who was served:
/// who saves a file has one request at a time, three or more in all.
pub const BY_CLASS: &str = "bfq";
/// What is taken where that one cannot be had. It knows classes and no levels, weights or parts, and never keeps a
/// device idle: who is served first has the next request, and waits for the one that is under way.
pub const SECOND: &str = "mq-deadline";
/// The elevators that serve the real-time class first.
const KNOW_CLASSES: &[&str] = &[BY_CLASS, SECOND];
/// How many requests may wait in the elevator, at least. With as few as a device takes at once those who wait for a
/// place in it are served in the order in which they came, whatever their class (Yang 2009, section 10.2.1).
const REQUESTS_MIN: u64 = 128;
/// The same where no more than so many as before may be writes: nine who read 20 MB at once have 360, and kept one of
/// twelve saves waiting for a place for 100 to 600 ms. More writes would be no good: what a save waits for in the
/// journal may be the last of them. Each is less than a kilobyte.
const REQUESTS_WITH_FEW_WRITES: u64 = 1024;
/// How many may wait in an elevator at most (`MAX_SCHED_RQ`, block/blk-mq.h). Without one there are as many as the
/// device takes at once, which may be more.
const REQUESTS_MAX: u64 = 2048;
/// The kernel makes room for as many in each hardware queue: no more than so many in all of them together for that.
const REQUESTS_OF_ALL_QUEUES: u64 = 4096;
/// What the kernel has for writes of [`REQUESTS_MIN`] by itself: three quarters (`bfq_depth_updated()`).
const WRITES_OF_THEM: u64 = REQUESTS_MIN / 4 * 3;

/// The device waits idle for the next request of who is being served, for 2 ms at most. With one request at a time a
/// save is three of them in a row, and in each gap somebody else's would begin.
const STRICT: &[(&str, &str)] = &[("strict_guarantees", "1"), ("slice_idle_us", "2000")];
/// The same, where it is told when somebody waits: both values of what is changed then and after are set once, so that
/// each is known for Steward's.
const STRICT_IN_MOMENTS: &[(&str, &str)] = &[
    ("strict_guarantees", "0"),
    ("strict_guarantees", "1"),
    ("slice_idle_us", "0"),
    ("slice_idle_us", "2000"),
];
/// An idle disk serves nobody: programs that bring each page to the disk lose two fifths of what they do by it, and
/// those that write beside them half of the rest where one request at a time is served. To be strict comes first: the
/// elevator makes at least 8 ms of the other then (`bfq_strict_guarantees_store()`).
const IN_MOMENTS: &[Moment] = &[
    Moment { name: "strict_guarantees", waiting: "1", otherwise: "0" },
    Moment { name: "slice_idle_us", waiting: "2000", otherwise: "0" },
];
/// For how long one is served in a row before another's turn, in milliseconds: about the kernel's own (`bfq_timeout`,
/// an eighth of a second), and what it is while somebody waits. Between cgroups who has just had the disk is not served
/// again before others had what is due to them (WF2Q+), so that the second of two saves waited for the whole of such a
/// turn. Either is a whole number of the kernel's ticks, of which there are 100, 250, 300 or 1000 a second.
const TURN_MS: &str = "120";
const SHORT_TURN_MS: &str = "20";
/// For how long it is in moments.
const TURN: Moment = Moment { name: "timeout_sync", waiting: SHORT_TURN_MS, otherwise: TURN_MS };
/// The same where somebody is served first by weight.
const STRICT_IN_MOMENTS_BY_WEIGHT: &[(&str, &str)] = &[
    ("strict_guarantees", "0"),
    ("strict_guarantees", "1"),
    ("slice_idle_us", "0"),
    ("slice_idle_us", "2000"),
    ("timeout_sync", TURN_MS),
    ("timeout_sync", SHORT_TURN_MS),
];
const IN_MOMENTS_BY_WEIGHT: &[Moment] = &[
    Moment { name: "strict_guarantees", waiting: "1", otherwise: "0" },
    Moment { name: "slice_idle_us", waiting: "2000", otherwise: "0" },
    TURN,
];
/// The same where domains have parts of the disk's time, which more than one wants: somebody's part counts only as
/// long as the disk waits for their next request. Without that, two who have one request at a time take turns, whatever
/// their parts are. To be strict changes the other one, which is therefore written in both cases.
const IN_MOMENTS_WITH_PARTS: &[Moment] = &[
    Moment { name: "strict_guarantees", waiting: "1", otherwise: "0" },
    Moment { name: "slice_idle_us", waiting: "2000", otherwise: "2000" },
    TURN,
];
/// Where nobody is served first, nobody's next request is waited for as long as one alone wants the disk.
const NEVER_IDLE: &[(&str, &str)] = &[("slice_idle_us", "0")];
/// The same where the device takes several requests at once: strict, the elevator hands on one at a time
/// (`bfq_dispatch_request()`), so that nobody stands behind what the device has already, and it cannot pick those that
/// lie on its way. For how long it is kept idle stays as the kernel has it: without that the elevator fills the device
/// up with others' requests, which take longer to be served than a moment lasts after somebody has read.
const STRICT_IN_MOMENTS_OF_SEVERAL: &[(&str, &str)] =
    &[("strict_guarantees", "0"), ("strict_guarantees", "1")];
const IN_MOMENTS_OF_SEVERAL: &[Moment] =
    &[Moment { name: "strict_guarantees", waiting: "1", otherwise: "0" }];
/// The same where domains have weights.
const STRICT_IN_MOMENTS_OF_SEVERAL_BY_WEIGHT: &[(&str, &str)] = &[
    ("strict_guarantees", "0"),
    ("strict_guarantees", "1"),
    ("timeout_sync", TURN_MS),
    ("timeout_sync", SHORT_TURN_MS),
];
const IN_MOMENTS_OF_SEVERAL_BY_WEIGHT: &[Moment] =
    &[Moment { name: "strict_guarantees", waiting: "1", otherwise: "0" }, TURN];
/// Devices that take no more than so many requests lose nothing by being strict all the time.
const ONE_AT_A_TIME: u64 = 1;

/// What is to order a device's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The elevator's name.
    pub elevator: &'static str,
    /// How many requests may wait in it.
    pub requests: u64,
    /// How many of them may be writes, where the kernel can be told.
    pub writes: Option<u64>,
    /// Whether the elevator guesses nothing from when it is there, because somebody is served first; otherwise it stops
    /// once it is as it is to be: parts of a disk count for nothing at times if it guesses nothing from the beginning,
    /// as was seen where nobody is (docs/disk.md#the-elevators-queues).
    pub guesses_nothing: bool,
    /// What is set of the elevator itself, below `queue/iosched`.
    pub tunables: &'static [(&'static str, &'static str)],
    /// What of that is changed, one after the other, when somebody who is served first begins to wait, and when nobody
    /// does any more; as set by `tunables`, somebody waits.
    pub moments: &'static [Moment],
}

/// Something of an elevator that is as it is for the time in which somebody who is served first waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The file's name, below `queue/iosched`.
    pub name: &'static str,
    /// What it says while somebody waits.
    pub waiting: &'static str,
    /// What it says otherwise.
    pub otherwise: &'static str,
}

/// Whether anybody is to be served first, for whose next request it is worth to keep a device idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// Nobody: weights alone need none of that.
    #[default]
    Nobody,
    /// Somebody, and nothing tells when they wait for the disk.
    Untold,
    /// Somebody, and it is told when they wait.
    Told,
}

/// What weights of cgroups are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Nobody has one of Steward's: all stand in one line.
    #[default]
    Unused,
    /// By them somebody is served first, and nobody has a part.
    First,
    /// Domains have parts of a disk's time.
    Parts,
    /// The same, and one cgroup at most wants this disk now: its part is all of it.
    PartsOfOne,
}

/// What a device is to be ordered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Who is to be served first.
    pub first: First,
    /// What weights are for.
    pub weights: Weights,
}

/// What is to be done with a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is to have this elevator, with room for so many requests.
    Order(Order),
    /// Its requests are to be charged to cgroups by this, and no elevator is changed.
    Charge(Model),
    /// It is left as it is, for this reason.
    Leave(String),
}

impl Order {
    /// The same without the elevator of the first choice.
    pub fn without_by_class(&self) -> Order {
        Order { elevator: SECOND, tunables: &[], moments: &[], ..*self }
    }
}

/// What to do with a device so that classes count on it.
pub fn choose(device: &Device, need: Need) -> Choice {
    let leave = |why: String| Choice::Leave(why);
    if device.stands_for_others {
        return leave(match device.below.as_slice() {
            [] => "it hands its requests to others, which order them".to_owned(),
            disks => format!("it hands its requests to {}, where they are ordered", and(disks)),
        });
    }
    if let Some(name) = &device.path_of {
        return leave(format!("its requests come from {name}, where they are ordered"));
    }
    if !device.queues {
        return leave("the kernel queues no requests for it".to_owned());
    }
    if device.order == config::Order::Keep {
        return leave("steward.toml has it kept as it is (order = \"keep\")".to_owned());
    }
    // Measured on a disk of 0.1 ms: this elevator costs writes of 4 KiB up to half of their speed, and gives little.
    if !device.rotates() {
        return charge(device)
            .map_or_else(|why| leave(format!("{}, and {why}", why_no_elevator(device))), Choice::Charge);
    }
    let takes_one = !takes_several(device);
    let (tunables, moments): (_, &[Moment]) = match need.first {
        First::Untold if takes_one => (STRICT, &[]),
        First::Told if !takes_one => match need.weights {
            Weights::Unused => (STRICT_IN_MOMENTS_OF_SEVERAL, IN_MOMENTS_OF_SEVERAL),
            _ => (STRICT_IN_MOMENTS_OF_SEVERAL_BY_WEIGHT, IN_MOMENTS_OF_SEVERAL_BY_WEIGHT),
        },
        First::Told => match need.weights {
            Weights::Unused => (STRICT_IN_MOMENTS, IN_MOMENTS),
            Weights::First | Weights::PartsOfOne => (STRICT_IN_MOMENTS_BY_WEIGHT, IN_MOMENTS_BY_WEIGHT),
            Weights::Parts => (STRICT_IN_MOMENTS_BY_WEIGHT, IN_MOMENTS_WITH_PARTS),
        },
        First::Nobody if takes_one && need.weights == Weights::PartsOfOne => (NEVER_IDLE, &[]),
        _ => (&[], &[]),
    };
    let (requests, writes) = room(device);
    let guesses_nothing = need.first != First::Nobody;
    let order = Order { elevator: BY_CLASS, requests, writes, guesses_nothing, tunables, moments };
    Choice::Order(if device.lacks_by_class { order.without_by_class() } else { order })
}

/// Whether a device is to be ordered in the same way for both, but for what is otherwise in moments.
pub fn differ_in_moments(device: &Device, one: Need, other: Need) -> bool {
    match (choose(device, one), choose(device, other)) {
        (Choice::Order(one), Choice::Order(other)) => one == Order { moments: one.moments, ..other },
        _ => false,
    }
}

/// Whether a device takes several requests at once, or may.
pub fn takes_several(device: &Device) -> bool {
    device.depth.is_none_or(|depth| depth > ONE_AT_A_TIME)
}

/// How many requests may wait for a device, and how many of them may be writes.
fn room(device: &Device) -> (u64, Option<u64>) {
    let requests = device.requests.clamp(REQUESTS_MIN, REQUESTS_MAX);
    let many = REQUESTS_WITH_FEW_WRITES.min(REQUESTS_OF_ALL_QUEUES / device.hardware_queues.max(1));
    match device.limits_writes {
        true => (requests.max(many), Some(WRITES_OF_THEM)),
        false => (requests, None),
    }
}

/// Why nothing is to order a device's requests that is not taken for one that rotates.
fn why_no_elevator(device: &Device) -> &'static str {
    match device.order {
        config::Order::Charge => "steward.toml wants no elevator for it (\"charge\")",
        _ => "it does not rotate: ordering its requests costs more than it gives",
    }
}

/// By what cgroups are to be charged for a device's requests, or why they are not.
fn charge(device: &Device) -> Result<Model, String> {
    let Some(lines) = &device.cost else {
        return Err("this kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST), which would not".to_owned());
    };
    if let Some(why) = unsuited(device) {
        return Err(format!("io.cost is nothing for it, for {why}"));
    }
    match (lines.standing(device.model.as_ref()), device.model) {
        (Standing::OthersOn, _) => {
            Err(format!("io.cost is set by somebody else, whose it stays ({})", lines.quality))
        }
        (Standing::OthersOff, _) => Err(format!(
            "io.cost is set by somebody else, whose it stays, and is off ({})",
            if lines.quality.is_empty() { &lines.model } else { &lines.quality }
        )),
        (_, None) => Err(format!(
            "io.cost, which would not, is told nothing of it before somebody runs steward disk calibrate {}",
            device.name
        )),
        (_, Some(_)) if device.elevator == BY_CLASS => {
            Err(format!("somebody has given it {BY_CLASS}, which does what io.cost would"))
        }
        (_, Some(model)) => Ok(model),
    }
}

/// Names in a sentence.
fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

/// Whether whoever has the real-time class is served first on a device as it is now.
pub fn serves_first(device: &Device) -> bool {
    device.is_own() && device.queues && KNOW_CLASSES.contains(&device.elevator.as_str())
}

/// Whether weights of cgroups can say who is served first on each device on which anything says it: all of them have
/// the elevator that knows weights from Steward, or are to have it. Where there is another one, or none, they cannot,
/// and not where somebody else has given a device that elevator, of which then nothing is changed in moments. Devices
/// that are `settled` have what they have: whatever they were to have failed, or somebody chose another one since.
pub fn weights_come_first(devices: &[Device], settled: &BTreeSet<(String, u64)>) -> bool {
    let is_settled = |device: &Device| settled.contains(&(device.name.clone(), device.sequence));
    let by_weight = |device: &Device| match choose(device, Need::default()) {
        Choice::Order(order) if !is_settled(device) => Some(order.elevator == BY_CLASS),
        Choice::Order(_) => serves_first(device).then(|| device.elevator == BY_CLASS),
        _ => serves_first(device).then_some(false),
    };
    let mut each = devices.iter().filter_map(by_weight).peekable();
    each.peek().is_some() && each.all(|by_weight| by_weight)
}

/// What makes classes count for nothing on a device as it is now, in a sentence; `None` where they count.
pub fn voided(device: &Device) -> Option<String> {
    match device.elevator.as_str() {
        known if KNOW_CLASSES.contains(&known) => {}
        "none" => {
            return Some(
                "it has no elevator: requests are served in the order in which they come".to_owned(),
            );
        }
        other => return Some(format!("its elevator, {other}, knows no classes")),
    }
    let depth = device.depth.unwrap_or(1);
    (device.requests <= depth.max(2)).then(|| {
        format!(
            "only {} requests may wait in its elevator (nr_requests), and it takes {depth} at once: who waits for a place is \
             served in turn, whatever their class",
            device.requests
        )
    })
}

/// What Steward does with disks, as far as a disk does not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The elevators that Steward has given and not yet put back, by the disk's name.
    pub given: BTreeMap<String, String>,
}

/// What makes classes and fractions count on a device, or why nothing does, as a part of a sentence.
pub fn backend(device: &Device, in_force: &InForce) -> String {
    let (elevator, places) = (device.elevator.as_str(), device.requests);
    if device.is_memory() {
        return "it is memory: nothing orders its requests, and no class or fraction counts there".to_owned();
    }
    if device.stands_for_others && !device.below.is_empty() {
        return format!("it hands its requests to {}: what is said of that counts", and(&device.below));
    }
    if let Some(others) = charged_by_others(device) {
        return others;
    }
    let void = voided(device);
    let as_it_is = |why: &str| as_it_is(device, void.as_deref(), why);
    match (choose(device, Need::default()), in_force.given.get(&device.name)) {
        (Choice::Leave(why), _) => as_it_is(&format!("it is left alone, since {why}")),
        (Choice::Charge(model), _) => charged(device, &model),
        (Choice::Order(_), Some(given)) if given != elevator => {
            as_it_is(&format!("somebody has chosen {elevator} since Steward gave it {given}, and it stays"))
        }
        (Choice::Order(order), _) if order.elevator == SECOND && elevator == SECOND && void.is_none() => {
            format!("{elevator} with {places} places: {}", only_first())
        }
        (Choice::Order(_), Some(_)) => {
            as_it_is("Steward has made more room, and somebody has chosen otherwise since, which stays")
        }
        (Choice::Order(_), None) if elevator == BY_CLASS && void.is_none() => as_it_is(""),
        (Choice::Order(order), None) => {
            let then = format!(
                "{elevator} with {places} places until somebody has a class or a fraction, and {} with {} then",
                order.elevator, order.requests
            );
            if order.elevator == SECOND { format!("{then}: {}", only_first()) } else { then }
        }
    }
}

/// What the second choice gives.
fn only_first() -> String {
    format!("interactive comes first, and nothing else counts (this kernel has no {BY_CLASS})")
}

/// What counts on a device as it is now, with what makes classes [void](voided), and where not everything does, why it
/// stays so.
fn as_it_is(device: &Device, void: Option<&str>, why: &str) -> String {
    let (elevator, places) = (device.elevator.as_str(), device.requests);
    match void {
        None if elevator == BY_CLASS => {
            format!("{elevator} with {places} places: classes and fractions count")
        }
        None => {
            format!(
                "{elevator} with {places} places: interactive comes first, and nothing else counts; {why}"
            )
        }
        Some(void) => format!("classes and fractions count for nothing: {void}; {why}"),
    }
}

/// What there is to say of a device whose requests somebody else has charged.
fn charged_by_others(device: &Device) -> Option<String> {
    let is_meant = !device.stands_for_others && device.queues && !device.rotates();
    let lines = device.cost.as_ref().filter(|_| is_meant)?;
    (lines.standing(device.model.as_ref()) == Standing::OthersOn).then(|| {
        format!(
            "io.cost is set by somebody else, whose it stays ({}): classes and fractions of domains count by that",
            lines.quality
        )
    })
}

/// What there is to say of a device whose requests are charged, or would be.
fn charged(device: &Device, model: &Model) -> String {
    let is_on = device.cost.as_ref().is_some_and(|lines| lines.standing(Some(model)) == Standing::Stewards);
    let count = "classes and fractions of domains count, and those of programs outside of domains do not";
    match is_on {
        true => format!("io.cost by its calibration ({model}), with no elevator changed: {count}"),
        false => format!(
            "nothing is set of it until a domain has a class or a fraction; then io.cost by its calibration ({model}), with no \
             elevator changed: {count}"
        ),
    }
}

#[cfg(test)]
mod tests;

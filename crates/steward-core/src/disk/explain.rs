//! Says in sentences what a domain has of the disk, and why. Every sentence gives the figures that it rests on.

use super::device::Device;
use super::elevator::InForce;
use super::minute::Done;
use super::waits::Reason;
use super::{Class, Settings, elevator};
use crate::quantity::{approximate_duration, approximate_size, percent};

/// What a domain with all below it has had of all disks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Read, in bytes.
    pub read_bytes: u64,
    /// Written, in bytes.
    pub written_bytes: u64,
    /// Requests that were made.
    pub requests: u64,
    /// How long the disks were busy for it, in nanoseconds; `None` where no disk has io.cost, which alone counts it.
    pub device_time_ns: Option<u64>,
    /// For how long at least one of its tasks stood still for want of a disk, in nanoseconds.
    pub stalled_ns: u64,
}

/// A domain's part of the disk, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What the domain is called.
    pub name: String,
    /// What it was given itself.
    pub given: Settings,
    /// The class that counts: its own, or that of a domain above it.
    pub class: Class,
    /// The weight that it has beside its siblings, where Steward gave it one.
    pub weight: Option<u16>,
    /// The part of the disk's time of its level that is due to it by that while all of them want it, 0 to 1.
    pub due: Option<f64>,
    /// What it had so far; `None` where the kernel does not count it.
    pub used: Option<Use>,
    /// Whether anybody's requests are to be served first.
    pub anybody_first: bool,
    /// Why not all of that is in force.
    pub problem: Option<String>,
    /// The machine's disks.
    pub devices: Vec<Device>,
    /// What is done with them.
    pub in_force: InForce,
}

/// What requests of a domain took lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// For how long it was looked, in nanoseconds: about a minute at most.
    pub seen_ns: u64,
    /// What was done meanwhile.
    pub done: Done,
}

/// Somebody who waited for the disk, as it may be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// What the thread is called.
    pub name: String,
    /// The process.
    pub pid: i32,
    /// For how long, in nanoseconds.
    pub waited_ns: u64,
    /// For how long of that for the journal.
    pub journal_ns: u64,
    /// For how long of that because too much was not written yet.
    pub dirty_ns: u64,
    /// How long ago it was over, in nanoseconds; `None` where it goes on.
    pub ago_ns: Option<u64>,
    /// Where it waited.
    pub reason: Reason,
    /// For how long the disk was at work for itself, in nanoseconds.
    pub own_ns: u64,
    /// For whom else, who had most first.
    pub by: Vec<Holder>,
}

/// Somebody who had time of the disk while another one waited, as it may be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The domain; `None` for all those that may not be told, together.
    pub domain: Option<String>,
    /// The program; `None` where pages were written for the domain that its programs had changed before.
    pub program: Option<String>,
    /// For how long the disk was at work for it, in nanoseconds.
    pub device_ns: u64,
}

/// How many are named who had the disk meanwhile.
const NAMED_MAX: usize = 3;

/// What requests of a domain took lately, and how much of what it has changed is not on the disk yet, in bytes; a line
/// each, which ends.
pub fn explain_lately(lately: Option<&Lately>, dirty_bytes: Option<u64>) -> String {
    let took = lately.map(|Lately { seen_ns, done }| {
        let span = approximate_duration(*seen_ns);
        let [Some(median_ns), Some(most_ns)] = [0.5, 0.99].map(|part| done.percentile_ns(part)) else {
            return format!("In the last {span} it made no disk requests.\n");
        };
        format!(
            "In the last {span} half of its {} disk requests were done within {}, 99 of 100 within {} and all within {}; disks \
             were at work for it for {}.\n",
            done.latencies.requests(),
            approximate_duration(median_ns),
            approximate_duration(most_ns),
            approximate_duration(done.max_ns),
            approximate_duration(done.device_ns)
        )
    });
    let dirty = dirty_bytes.filter(|bytes| *bytes > 0).map(|bytes| {
        format!("{} of what it has changed in files are not on the disk yet.\n", approximate_size(bytes))
    });
    [took, dirty].into_iter().flatten().collect()
}

/// Who waited, where, and who had the disk meanwhile; a line, which ends.
pub fn explain_wait(waited: &Waited) -> String {
    let Waited { name, pid, waited_ns, journal_ns, dirty_ns, .. } = waited;
    let span = approximate_duration(*waited_ns);
    let which = match waited.ago_ns {
        None => format!("{name} (process {pid}) has waited for the disk for {span} and still does"),
        Some(ago_ns) => {
            let ago = approximate_duration(ago_ns);
            format!("{name} (process {pid}) waited for the disk for {span} until {ago} ago")
        }
    };
    let parts = [(*journal_ns, "for the journal"), (*dirty_ns, "until enough was written")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(ns, _)| *ns > 0)
        .map(|(ns, what)| format!("{} {what}", approximate_duration(*ns)))
        .collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({} of it)", parts.join(", ")) };
    let why = match waited.reason {
        Reason::Queue => "queue: what it waited for stood behind requests of others",
        Reason::DirtyLimit => "dirty limit: too much that was changed in files is not on the disk yet",
        Reason::Journal => "journal: it is written for others who bring something to the disk as well",
    };
    format!("{which}{parts}. Reason: {why}. {}\n", meanwhile(waited))
}

fn meanwhile(waited: &Waited) -> String {
    let named = |holder: &Holder| {
        let who = match (&holder.domain, &holder.program) {
            (None, _) => "others".to_owned(),
            (Some(domain), Some(program)) => format!("{program} in {domain}"),
            (Some(domain), None) => format!("what {domain} had changed"),
        };
        format!("{who} for {}", approximate_duration(holder.device_ns))
    };
    let mut all: Vec<String> = waited.by.iter().take(NAMED_MAX).map(named).collect();
    if waited.own_ns > 0 {
        all.push(format!("itself for {}", approximate_duration(waited.own_ns)));
    }
    match all.is_empty() {
        true => "Nobody was seen to have the disk meanwhile.".to_owned(),
        false => format!("Meanwhile the disk was at work for {}.", all.join(", ")),
    }
}

/// What there is to say, a line each; each ends. Nothing where nobody gave the domain anything, and nothing is counted.
pub fn explain(facts: &Facts) -> String {
    let mut lines = Vec::new();
    lines.extend(facts.used.map(|used| has_had(&facts.name, &used)));
    if facts.given.is_default() && facts.class == Class::Normal {
        return lines.iter().map(|line| format!("{line}\n")).collect();
    }
    lines.push(is_served(facts));
    if let Some(reserved) = facts.given.reserved {
        lines.push(format!(
            "{} of the disk time of the domain above it are reserved for it; what it does not want goes to others.",
            percent(reserved)
        ));
    }
    lines.extend((!facts.given.max.is_none()).then(|| is_limited(facts)));
    lines.extend(facts.weight.map(|weight| {
        let due = facts.due.map_or_else(String::new, |due| is_due(facts, due));
        format!(
            "Beside the others of its level it has the weight {weight} of at most 1000, where the usual is 100{due}."
        )
    }));
    lines.extend(facts.problem.as_ref().map(|why| format!("Not all of that is in force: {why}.")));
    let own = facts.devices.iter().filter(|device| device.is_own() && device.queues);
    let said = |device: &Device| elevator::backend(device, &facts.in_force);
    lines.extend(own.map(|device| format!("{}: {}.", device.name, said(device))));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// By how much what is due may be less than what is reserved, since weights are whole numbers.
const DUE_OFF: f64 = 0.01;

fn is_due(facts: &Facts, due: f64) -> String {
    let lacks = facts.given.reserved.is_some_and(|reserved| reserved > due + DUE_OFF);
    let why = match lacks {
        true => {
            ", which is less than is reserved: the cgroups of others keep their weights (have fewer of them beside it, or make domains of them)"
        }
        false => "",
    };
    format!(": {} of the disk time there while all of them want it{why}", percent(due))
}

fn is_limited(facts: &Facts) -> String {
    let also = match facts.anybody_first {
        true => ", as somebody does whose requests are served first",
        false => "",
    };
    format!(
        "It may read at most {limit} of each disk, and write as much. {harm}",
        limit = facts.given.max,
        harm = facts.given.max.harm(also)
    )
}

fn has_had(name: &str, used: &Use) -> String {
    let time = used.device_time_ns.map_or_else(String::new, |time_ns| {
        format!(", which took the disks {}", approximate_duration(time_ns))
    });
    format!(
        "{name} has read {} and written {} with {} requests{time}; its tasks stood still for want of a disk for {} so far.",
        approximate_size(used.read_bytes),
        approximate_size(used.written_bytes),
        used.requests,
        approximate_duration(used.stalled_ns)
    )
}

fn is_served(facts: &Facts) -> String {
    let whose = match facts.given.class {
        Some(_) => "",
        None if facts.class == Class::Normal => "",
        None => ", as those of the domain above it",
    };
    let how = match facts.class {
        Class::Interactive => "are served before all others",
        Class::Normal => "are served as usual",
        Class::Background => {
            "are served when nobody else wants the disk, but for a tenth of what a usual domain has"
        }
    };
    format!("Its disk requests {how}{whose}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Limit;
    use crate::disk::latency::Histogram;

    fn disk() -> Device {
        Device {
            name: "sda".into(),
            rotational: true,
            queues: true,
            elevator: "bfq".into(),
            requests: 128,
            ..Device::default()
        }
    }

    #[test]
    fn what_a_domain_has_of_the_disk_is_said_with_what_orders_it() {
        let facts = Facts {
            name: "batch".into(),
            given: Settings {
                class: Some(Class::Background),
                reserved: Some(0.2),
                max: Limit { bytes_per_second: Some(10 << 20), requests_per_second: None },
            },
            anybody_first: true,
            class: Class::Background,
            weight: Some(26),
            due: Some(0.2),
            used: Some(Use {
                read_bytes: 5 << 20,
                written_bytes: 1 << 30,
                requests: 4096,
                device_time_ns: Some(2_500_000_000),
                stalled_ns: 1_500_000_000,
            }),
            problem: None,
            devices: vec![disk(), Device { name: "dm-0".into(), stands_for_others: true, ..disk() }],
            in_force: InForce::default(),
        };
        let text = explain(&facts);
        for phrase in [
            "batch has read 5M and written 1G with 4096 requests, which took the disks 2.5s; its tasks stood still",
            "when nobody else wants the disk, but for a tenth of what a usual domain has.",
            "20 % of the disk time of the domain above it are reserved",
            "the weight 26 of at most 1000, where the usual is 100: 20 % of the disk time there while all of them want it.",
            "It may read at most 10M/s of each disk, and write as much.",
            "waits too, as somebody does whose requests are served first: 0.6 s",
            "sda: bfq with 128 places: classes and fractions count.",
        ] {
            assert!(text.contains(phrase), "{phrase}: {text}");
        }
        assert!(!text.contains("dm-0") && !text.contains("in force"), "{text}");
        let less = explain(&Facts { due: Some(0.15), ..facts });
        assert!(
            less.contains("15 % of the disk time there") && less.contains("less than is reserved"),
            "{less}"
        );
    }

    #[test]
    fn what_requests_took_is_said_in_percentiles() {
        assert_eq!(explain_lately(None, None), "");
        let mut done = Done { device_ns: 1_200_000_000, max_ns: 80_000_000, ..Done::default() };
        done.latencies.0[Histogram::step_of(10_000_000)] = 99;
        done.latencies.0[Histogram::step_of(80_000_000)] = 1;
        let text = explain_lately(Some(&Lately { seen_ns: 60_000_000_000, done }), Some(3 << 20));
        for phrase in ["half of its 100 disk requests", "all within 80ms", "for it for 1.2s", "3M of what it"]
        {
            assert!(text.contains(phrase), "{phrase}: {text}");
        }
        let none = explain_lately(Some(&Lately::default()), Some(0));
        assert!(none.contains("made no disk requests") && !none.contains("changed"), "{none}");
    }

    #[test]
    fn who_waited_is_told_for_whom_and_why_and_who_may_not_be_named_is_not() {
        let holder = |domain: Option<&str>, program: Option<&str>, ms: u64| Holder {
            domain: domain.map(str::to_owned),
            program: program.map(str::to_owned),
            device_ns: ms * 1_000_000,
        };
        let mut waited = Waited {
            name: "vi".into(),
            pid: 12,
            waited_ns: 166_000_000,
            journal_ns: 121_000_000,
            ago_ns: Some(3_000_000_000),
            own_ns: 30_000_000,
            by: vec![holder(Some("batch"), Some("dd"), 137), holder(None, None, 5)],
            ..Waited::default()
        };
        let text = explain_wait(&waited);
        for phrase in [
            "vi (process 12) waited for the disk for 166ms until 3s ago (121ms for the journal of it).",
            "Reason: queue:",
            "at work for dd in batch for 137ms, others for 5ms, itself for 30ms.",
        ] {
            assert!(text.contains(phrase), "{phrase}: {text}");
        }
        waited = Waited { ago_ns: None, reason: Reason::DirtyLimit, journal_ns: 0, ..waited };
        waited.by = vec![holder(Some("batch"), None, 150)];
        let text = explain_wait(&waited);
        assert!(
            text.contains("and still does. Reason: dirty limit") && text.contains("what batch had changed")
        );
        let nobody = explain_wait(&Waited { by: Vec::new(), own_ns: 0, reason: Reason::Journal, ..waited });
        assert!(nobody.contains("Reason: journal") && nobody.contains("Nobody was seen"), "{nobody}");
    }

    #[test]
    fn of_who_was_given_nothing_only_what_it_had_is_said() {
        assert_eq!(explain(&Facts { name: "web".into(), devices: vec![disk()], ..Facts::default() }), "");
        let inherits = Facts { class: Class::Background, ..Facts::default() };
        assert!(explain(&inherits).contains("as those of the domain above it"));
        let problem = Some("there is no BFQ".to_owned());
        let given = Settings { class: Some(Class::Interactive), ..Settings::default() };
        let void = explain(&Facts { given, class: Class::Interactive, problem, ..Facts::default() });
        assert!(
            void.contains("served before all others.") && void.contains("in force: there is no BFQ."),
            "{void}"
        );
    }
}

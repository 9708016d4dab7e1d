//! Says in sentences what a domain has of the disk, and why. Every sentence gives the figures that it rests on.

use super::device::Device;
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
    /// What it had so far; `None` where the kernel does not count it.
    pub used: Option<Use>,
    /// Whether anybody's requests are to be served first.
    pub anybody_first: bool,
    /// Why not all of that is in force.
    pub problem: Option<String>,
    /// The machine's disks.
    pub devices: Vec<Device>,
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
        format!("Beside the others of its level it has the weight {weight} of at most 1000, where the usual is 100.")
    }));
    lines.extend(facts.problem.as_ref().map(|why| format!("Not all of that is in force: {why}.")));
    let own = facts.devices.iter().filter(|device| !device.stands_for_others && device.queues);
    lines.extend(own.map(|device| format!("{}: {}.", device.name, elevator::backend(device))));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn is_limited(facts: &Facts) -> String {
    let also = match facts.anybody_first {
        true => ", as somebody does whose requests are served first",
        false => "",
    };
    format!(
        "It may read at most {limit} of each disk, and write as much. The journal of a file system waits for what is held back, so \
         that whoever saves on the same one waits too{also}: 0.6 s on average, and 1 s, were seen where a save took 0.03 s. \
         --io background holds up nobody.",
        limit = facts.given.max
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
            used: Some(Use {
                read_bytes: 5 << 20,
                written_bytes: 1 << 30,
                requests: 4096,
                device_time_ns: Some(2_500_000_000),
                stalled_ns: 1_500_000_000,
            }),
            problem: None,
            devices: vec![disk(), Device { name: "dm-0".into(), stands_for_others: true, ..disk() }],
        };
        let text = explain(&facts);
        for phrase in [
            "batch has read 5M and written 1G with 4096 requests, which took the disks 2.5s; its tasks stood still",
            "when nobody else wants the disk, but for a tenth of what a usual domain has.",
            "20 % of the disk time of the domain above it are reserved",
            "the weight 26 of at most 1000",
            "It may read at most 10M/s of each disk, and write as much.",
            "waits too, as somebody does whose requests are served first: 0.6 s",
            "sda: bfq with 128 places: classes and fractions count.",
        ] {
            assert!(text.contains(phrase), "{phrase}: {text}");
        }
        assert!(!text.contains("dm-0") && !text.contains("in force"), "{text}");
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

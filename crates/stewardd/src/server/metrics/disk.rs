//! The metrics of the disk: what domains had of it, how long that took, and for how long they waited.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use steward_core::disk::explain::{Lately, Use};
use steward_core::disk::waits::Reason;

use super::labels::{OfDomain, Ratio, Seconds, Word, seconds};

/// What requests of a domain took, and for how long it waited, with all below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskWork {
    /// For how long disks were at work for it since the daemon counts, in nanoseconds; `None` while it does not.
    pub device_ns: Option<u64>,
    /// What its requests took in the last minute.
    pub lately: Option<Lately>,
    /// How often threads waited for more than 50 ms, and for how long in nanoseconds, by where.
    pub waits: BTreeMap<Reason, (u64, u64)>,
    /// What is not on the disk yet, in bytes.
    pub dirty_bytes: Option<u64>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfReason {
    domain: String,
    reason: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPart {
    domain: String,
    quantile: Word,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfWork {
    work: Word,
}

/// Puts what the daemon itself has spent on disks, by what for, into the registry.
pub(super) fn describe_spent(registry: &mut Registry, spent_ns: &[(&'static str, u64)]) {
    let family = Family::<OfWork, Seconds>::default();
    for (work, ns) in spent_ns {
        family.get_or_create(&OfWork { work: Word(work) }).inc_by(seconds(*ns));
    }
    let help = "CPU time that the daemon itself has spent on disks";
    registry.register_with_unit("disk_own_cpu", help, Unit::Seconds, family);
}

/// Puts what requests took, and who waited where, into the registry.
pub(super) fn describe_work(registry: &mut Registry, domains: &[(&str, &DiskWork)]) {
    let device = Family::<OfDomain, Seconds>::default();
    let latency = Family::<OfPart, Ratio>::default();
    let (waits, waited) = (Family::<OfReason, Counter>::default(), Family::<OfReason, Seconds>::default());
    let dirty = Family::<OfDomain, Gauge>::default();
    for (name, work) in domains {
        let domain = || (*name).to_owned();
        if let Some(device_ns) = work.device_ns {
            device.get_or_create(&OfDomain { domain: domain() }).inc_by(seconds(device_ns));
        }
        let parts = [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)];
        for (quantile, part) in parts {
            let found = work.lately.as_ref().and_then(|lately| lately.done.percentile_ns(part));
            if let Some(ns) = found {
                latency
                    .get_or_create(&OfPart { domain: domain(), quantile: Word(quantile) })
                    .set(seconds(ns));
            }
        }
        for (reason, (count, waited_ns)) in &work.waits {
            let reason = Word(match reason {
                Reason::Queue => "queue",
                Reason::DirtyLimit => "dirty_limit",
                Reason::Journal => "journal",
            });
            waits.get_or_create(&OfReason { domain: domain(), reason }).inc_by(*count);
            waited.get_or_create(&OfReason { domain: domain(), reason }).inc_by(seconds(*waited_ns));
        }
        if let Some(bytes) = work.dirty_bytes {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            dirty.get_or_create(&OfDomain { domain: domain() }).set(bytes);
        }
    }
    let help = "Time for which disks were at work for requests of a domain, each moment divided among all that \
                they had";
    registry.register_with_unit("disk_device", help, Unit::Seconds, device);
    let help = "Within how long that part of a domain's disk requests of the last minute were done";
    registry.register_with_unit("disk_latency", help, Unit::Seconds, latency);
    let help = "How often threads of a domain waited for a disk for more than 50 ms, by where";
    registry.register("disk_waits", help, waits);
    let help = "Time in these waits, summed over threads";
    registry.register_with_unit("disk_waiting", help, Unit::Seconds, waited);
    let help = "What a domain has changed in files that is not on the disk yet";
    registry.register_with_unit("disk_dirty", help, Unit::Bytes, dirty);
}

/// A domain's name, and what it had.
type Named<'a> = (&'a str, &'a Use);

/// Puts the figures of all domains into the registry.
pub(super) fn describe(registry: &mut Registry, domains: &[Named<'_>]) {
    let of = |domain: &str| OfDomain { domain: domain.to_owned() };
    type Bytes = fn(&Use) -> u64;
    let counters: [(&str, &str, Option<Unit>, Bytes); 3] = [
        ("disk_read", "Read from disks by a domain with all below it", Some(Unit::Bytes), |used| {
            used.read_bytes
        }),
        ("disk_written", "Written to disks by a domain with all below it", Some(Unit::Bytes), |used| {
            used.written_bytes
        }),
        ("disk_requests", "Disk requests of a domain with all below it", None, |used| used.requests),
    ];
    for (name, help, unit, figure) in counters {
        let family = Family::<OfDomain, Counter>::default();
        for (domain, used) in domains {
            family.get_or_create(&of(domain)).inc_by(figure(used));
        }
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family),
            None => registry.register(name, help, family),
        }
    }
    type Time = fn(&Use) -> Option<u64>;
    let times: [(&str, &str, Time); 2] = [
        ("disk_stalled", "Time in which tasks of a domain stood still for want of a disk", |used| {
            Some(used.stalled_ns)
        }),
        ("disk_busy", "Time for which disks were busy for a domain, where io.cost counts it", |used| {
            used.device_time_ns
        }),
    ];
    for (name, help, time) in times {
        let family = Family::<OfDomain, Seconds>::default();
        for (domain, ns) in domains.iter().filter_map(|(name, used)| Some((*name, time(used)?))) {
            family.get_or_create(&of(domain)).inc_by(seconds(ns));
        }
        registry.register_with_unit(name, help, Unit::Seconds, family);
    }
}

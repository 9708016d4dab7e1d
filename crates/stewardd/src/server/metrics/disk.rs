//! The metrics of the disk: what domains had of it, and for how long they waited.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use steward_core::disk::explain::Use;

use super::labels::{OfDomain, Seconds, seconds};

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

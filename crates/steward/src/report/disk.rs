//! What domains had of the disk in a recording, and how long their requests took, as a table.

use std::fmt::Write;

use steward_core::quantity::{approximate_duration, approximate_size};
use steward_figure::escape;

use crate::top::disk::Disk;
use crate::top::text::clean;

/// What was seen of a domain, with when.
pub type Point = (f64, Disk);

/// How many domains are listed, those whose requests took longest first.
const DOMAINS_MAX: usize = 12;

/// The worst of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Worst {
    p99_ns: u64,
    max_ns: u64,
    device_time_ns: u64,
    seen_ns: u64,
    dirty: u64,
}

fn worst(points: &[Point]) -> Option<Worst> {
    let minutes = points.iter().filter_map(|(_, disk)| disk.minute);
    let worst = minutes.map(|minute| Worst {
        p99_ns: minute.p99_ns,
        max_ns: minute.max_ns,
        device_time_ns: minute.device_time_ns,
        seen_ns: minute.seen_ns,
        dirty: 0,
    });
    let busiest = |one: &Worst, other: &Worst| {
        let part = |of: &Worst| of.device_time_ns as f64 / of.seen_ns.max(1) as f64;
        if part(one) >= part(other) { *one } else { *other }
    };
    let worst = worst.reduce(|one, other| Worst {
        p99_ns: one.p99_ns.max(other.p99_ns),
        max_ns: one.max_ns.max(other.max_ns),
        ..busiest(&one, &other)
    })?;
    let dirty = points.iter().filter_map(|(_, disk)| disk.dirty).max().unwrap_or(0);
    Some(Worst { dirty, ..worst })
}

/// The table; nothing where no requests were counted.
pub fn table<'a>(domains: impl Iterator<Item = (&'a String, &'a [Point])>) -> String {
    let mut all: Vec<(&String, Worst)> =
        domains.filter_map(|(name, points)| Some((name, worst(points)?))).collect();
    if all.is_empty() {
        return String::new();
    }
    all.sort_by_key(|(_, worst)| std::cmp::Reverse(worst.p99_ns));
    let mut table =
        "<h2>Disk</h2><p class=\"faint\">The worst of all readings, of which each is of the minute before \
                     it.</p><table><tr><th>domain</th><th>99 of 100 requests within</th><th>all within</th>\
                     <th>disks' time</th><th>not written yet</th></tr>"
            .to_owned();
    for (name, worst) in all.iter().take(DOMAINS_MAX) {
        let [p99, max, busy, seen] =
            [worst.p99_ns, worst.max_ns, worst.device_time_ns, worst.seen_ns].map(approximate_duration);
        let (name, dirty) = (escape(&clean(name)), approximate_size(worst.dirty));
        let _ = write!(
            table,
            "<tr><td>{name}</td><td>{p99}</td><td>{max}</td><td>{busy} of {seen}</td><td>{dirty}</td></tr>"
        );
    }
    table + "</table>"
}

#[cfg(test)]
mod tests {
    use libsteward::api::DiskMinute;

    use super::*;

    #[test]
    fn the_worst_of_each_domain_is_listed_the_slowest_first() {
        let point = |p99_ms: u64, device_ms: u64, dirty| {
            let minute = DiskMinute {
                seen_ns: 60_000_000_000,
                p99_ns: p99_ms * 1_000_000,
                max_ns: 2 * p99_ms * 1_000_000,
                device_time_ns: device_ms * 1_000_000,
                ..DiskMinute::default()
            };
            (0.0, Disk { minute: Some(minute), dirty, ..Disk::default() })
        };
        let (quick, slow) = ("a<b".to_owned(), "slow".to_owned());
        let quick_points = [point(5, 100, None), point(10, 50, Some(1 << 20))];
        let slow_points = [point(80, 1, None)];
        let domains = [(&quick, &quick_points[..]), (&slow, &slow_points[..])];
        let page = table(domains.into_iter());
        assert!(
            page.find("slow").expect("it is there") < page.find("a&lt;b").expect("it is there"),
            "{page}"
        );
        assert!(page.contains("<td>10ms</td><td>20ms</td><td>100ms of 60s</td><td>1M</td>"), "{page}");
        assert_eq!(table([(&quick, &[][..])].into_iter()), "");
    }
}

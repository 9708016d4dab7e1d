//! The record of promises of memory, for the page of `steward status DOMAIN`.

use libsteward::api;
use steward_core::quantity::approximate_duration;

use crate::output::{row, table};

/// A line for each span.
pub fn record_table(spans: &[api::AuditedMemory]) -> String {
    let titles = [
        "LAST", "SEEN", "IN FORCE", "STALLED", "STOPPED", "REFAULTS", "FAULTS", "SECONDS", "BROKEN", "WORST",
        "BY",
    ];
    let mut rows = vec![row(titles)];
    for span in spans {
        let mut cells = vec![span.span.clone()];
        cells.extend(
            [span.seen_ns, span.in_force_ns, span.stalled_ns, span.stopped_ns].map(approximate_duration),
        );
        cells.extend(
            [span.refaults, span.major_faults, span.seconds, span.broken].map(|count| count.to_string()),
        );
        cells.push(approximate_duration(span.worst_stalled_ns));
        cells.push(most_often(&span.culprits));
        rows.push(cells);
    }
    table(&rows, &[1, 2, 3, 4, 5, 6, 7, 8, 9])
}

/// Who broke the promise most often.
fn most_often(culprits: &[api::Culprit]) -> String {
    culprits
        .first()
        .map_or_else(|| "-".to_owned(), |culprit| culprit.domain.as_deref().unwrap_or("others").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_table_with_who_broke_the_promise_most_often() {
        let hog = api::Culprit { domain: Some("hog".into()), seconds: 2, taken: 5 };
        let hour = api::AuditedMemory {
            span: "hour".into(),
            seen_ns: 3_600_000_000_000,
            in_force_ns: 3_560_000_000_000,
            stalled_ns: 4_200_000_000,
            stopped_ns: 3_000_000_000,
            refaults: 900,
            major_faults: 120,
            seconds: 3590,
            broken: 3,
            worst_stalled_ns: 840_000_000,
            culprits: vec![hog, api::Culprit::default()],
        };
        let day = api::AuditedMemory {
            span: "day".into(),
            culprits: vec![api::Culprit::default()],
            ..hour.clone()
        };
        let minute = api::AuditedMemory { span: "minute".into(), ..api::AuditedMemory::default() };
        insta::assert_snapshot!(record_table(&[minute, hour, day]));
    }
}

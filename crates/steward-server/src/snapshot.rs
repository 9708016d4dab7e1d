//! What there is to see of a server: one type, and the same as text and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was counted of a route since the server began. Each request is in one place: it was refused or let in, and when
/// it was let in it is in hand, overdue, or ended in one of the other ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that were promised an answer in time.
    pub accepted: u64,
    /// Of those, answered in time.
    pub met: u64,
    /// Of those, answered too late.
    pub missed: u64,
    /// Requests that were not promised anything and are or were served all the same.
    pub best_effort: u64,
    /// Of those, answered in time.
    pub best_effort_met: u64,
    /// Of those, answered too late.
    pub best_effort_missed: u64,
    /// Requests that were told to come back.
    pub refused: u64,
    /// Requests of either kind that have not ended long after they should have.
    pub overdue: u64,
    /// Requests of either kind whose code panicked.
    pub panicked: u64,
    /// Requests for whose answer nobody waited any more.
    pub abandoned: u64,
    /// How often the costs were taken anew.
    pub adjustments: u64,
}

/// What there is to see of one route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteSnapshot {
    /// Its name.
    pub route: String,
    /// Within which time a request is to be answered, in milliseconds (RT).
    pub response_time_ms: f64,
    /// The part of the CPU that its requests may be promised (P).
    pub cpu: f64,
    /// The part that counts: less where no more could be reserved.
    pub cpu_in_force: f64,
    /// How many requests are promised an answer in every response time (N).
    pub specifications: u64,
    /// The mean CPU time of a request, in milliseconds (Cavg); not known before some were served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_average_ms: Option<f64>,
    /// The CPU time that is enough for 95 % of them, in milliseconds (Cmax).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_largest_ms: Option<f64>,
    /// Requests that were let in and have not ended.
    pub in_hand: u64,
    /// Requests that wait until they can be accepted.
    pub waiting: u64,
    /// What was counted since the server began.
    #[serde(flatten)]
    pub counts: Counts,
    /// What is wrong with the goal, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What there is to see of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Each route, in the order in which they were given.
    pub routes: Vec<RouteSnapshot>,
    /// How many workers have a reservation.
    pub reserved_workers: u64,
    /// How many have none.
    pub best_effort_workers: u64,
    /// How much CPU time best-effort requests got lately while there were any, in CPUs; not known before one was
    /// served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_cpus: Option<f64>,
    /// Why requests that are accepted have no reservation, if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreserved: Option<String>,
}

impl Snapshot {
    /// As JSON, one object. Fields are added, not changed.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are JSON")
    }
}

impl fmt::Display for Snapshot {
    /// A table for people.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:20} {:>9} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>9} {:>8} {:>8}",
            "ROUTE",
            "RT ms",
            "P",
            "N",
            "Cavg ms",
            "Cmax ms",
            "ACCEPTED",
            "MET",
            "MISSED",
            "BEST-EFFORT",
            "IN TIME",
            "REFUSED",
            "WAITING",
            "OVERDUE"
        )?;
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        for route in &self.routes {
            let counts = &route.counts;
            writeln!(
                formatter,
                "{:20} {:>9} {:>6.3} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>9} {:>8} {:>8}",
                route.route,
                route.response_time_ms,
                route.cpu_in_force,
                route.specifications,
                number(route.cost_average_ms),
                number(route.cost_largest_ms),
                counts.accepted,
                counts.met,
                counts.missed,
                counts.best_effort,
                counts.best_effort_met,
                counts.refused,
                route.waiting,
                counts.overdue
            )?;
        }
        writeln!(
            formatter,
            "{} workers with a reservation, {} without",
            self.reserved_workers, self.best_effort_workers
        )?;
        if let Some(spare_cpus) = self.spare_cpus {
            writeln!(
                formatter,
                "best-effort requests got {spare_cpus:.2} CPUs lately, while there were any"
            )?;
        }
        for route in &self.routes {
            if let Some(note) = &route.note {
                writeln!(formatter, "{}: {note}", route.route)?;
            }
        }
        self.unreserved.as_ref().map_or(Ok(()), |why| writeln!(formatter, "without reservations: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_as_json_can_be_read_again() {
        let route =
            RouteSnapshot { route: "/a".into(), cost_average_ms: Some(1.5), ..RouteSnapshot::default() };
        let snapshot =
            Snapshot { routes: vec![route], unreserved: Some("no daemon".into()), ..Snapshot::default() };
        assert_eq!(serde_json::from_str::<Snapshot>(&snapshot.to_json()).unwrap(), snapshot);
    }

    #[test]
    fn the_table_has_a_line_for_each_route_and_says_what_is_wrong() {
        let route =
            RouteSnapshot { route: "/a".into(), note: Some("dear".into()), ..RouteSnapshot::default() };
        let (unreserved, spare_cpus) = (Some("nobody".into()), Some(0.25));
        let text =
            Snapshot { routes: vec![route], unreserved, spare_cpus, ..Snapshot::default() }.to_string();
        let lines: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(lines, ["ROUTE", "/a", "0", "best-effort", "/a:", "without"]);
        assert!(text.ends_with("/a: dear\nwithout reservations: nobody\n"), "{text}");
    }
}

//! Limits of how many requests may be at work at once that follow what they measure, as services use them today. Each
//! is told when a request ends, and never sees what one costs. Times are nanoseconds.
//!
//! They follow the published algorithms with their default settings: Netflix' concurrency-limits (gradient and Vegas),
//! and Envoy's adaptive concurrency filter. No code of theirs is used.

use std::collections::VecDeque;

/// A limit of how many requests may be at work at once.
pub trait Limit: Send {
    /// The limit now; at least 1.
    fn limit(&self) -> usize;
    /// A request ends at `now_ns` that took so long, when so many were at work, itself among them.
    fn ended(&mut self, now_ns: u64, took_ns: u64, at_work: usize);
}

/// The same number always: a tower concurrency limit that sheds what is beyond.
#[derive(Debug)]
pub struct Fixed(pub usize);

impl Limit for Fixed {
    fn limit(&self) -> usize {
        self.0
    }

    fn ended(&mut self, _: u64, _: u64, _: usize) {}
}

/// Where the limits that follow something begin, and where they end.
const FIRST: f64 = 20.0;
const MOST: f64 = 200.0;

/// Netflix' gradient: a response time of more than one and a half times the long-term one lowers the limit in
/// proportion, and what may wait is its square root.
#[derive(Debug)]
pub struct Gradient {
    limit: f64,
    usual_ns: f64,
}

impl Default for Gradient {
    fn default() -> Self {
        Gradient { limit: FIRST, usual_ns: 0.0 }
    }
}

impl Limit for Gradient {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn ended(&mut self, _: u64, took_ns: u64, at_work: usize) {
        let took_ns = took_ns.max(1) as f64;
        self.usual_ns = if self.usual_ns == 0.0 { took_ns } else { self.usual_ns * 0.99 + took_ns * 0.01 };
        if self.usual_ns / took_ns > 2.0 {
            self.usual_ns *= 0.95;
        }
        // A limit that is not made use of says nothing.
        if (at_work as f64) < self.limit / 2.0 {
            return;
        }
        let gradient = (1.5 * self.usual_ns / took_ns).clamp(0.5, 1.0);
        let next = self.limit * gradient + self.limit.sqrt();
        self.limit = (self.limit * 0.8 + next * 0.2).clamp(1.0, MOST);
    }
}

/// Netflix' Vegas: what is above the shortest response time was spent in a line, whose length is kept between two
/// bounds that grow with the logarithm of the limit.
#[derive(Debug)]
pub struct Vegas {
    limit: f64,
    shortest_ns: f64,
    /// How many requests until the shortest time is measured anew.
    until_probe: f64,
}

impl Default for Vegas {
    fn default() -> Self {
        Vegas { limit: FIRST, shortest_ns: f64::INFINITY, until_probe: FIRST * Vegas::PROBE }
    }
}

impl Vegas {
    /// The shortest time is measured anew after so many times the limit.
    const PROBE: f64 = 30.0;
}

impl Limit for Vegas {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn ended(&mut self, _: u64, took_ns: u64, at_work: usize) {
        let took_ns = took_ns.max(1) as f64;
        self.until_probe -= 1.0;
        if self.until_probe <= 0.0 {
            self.until_probe = self.limit * Vegas::PROBE;
            self.shortest_ns = took_ns;
            return;
        }
        if took_ns < self.shortest_ns {
            self.shortest_ns = took_ns;
            return;
        }
        if at_work as f64 * 2.0 < self.limit {
            return;
        }
        let line = (self.limit * (1.0 - self.shortest_ns / took_ns)).ceil();
        let step = self.limit.log10().floor().max(1.0);
        let next = match line {
            line if line <= step => self.limit + 6.0 * step,
            line if line < 3.0 * step => self.limit + step,
            line if line > 6.0 * step => self.limit - step,
            _ => return,
        };
        self.limit = next.clamp(1.0, MOST);
    }
}

/// Envoy's gradient: the shortest response time is measured with few requests at work, once a minute; every 100 ms the
/// limit is multiplied by that time and a quarter more over the median of the response times since, and may grow by its
/// square root.
#[derive(Debug)]
pub struct Envoy {
    limit: f64,
    /// While the shortest time is measured: the limit before. Then the limit is the least.
    before: Option<f64>,
    shortest_ns: f64,
    times_ns: Vec<u64>,
    window_ends_ns: u64,
    probe_ns: u64,
    /// How many windows in a row ended with the least limit.
    at_least: VecDeque<()>,
}

impl Default for Envoy {
    fn default() -> Self {
        Envoy {
            limit: Envoy::LEAST,
            before: Some(Envoy::LEAST),
            shortest_ns: f64::INFINITY,
            times_ns: Vec::new(),
            window_ends_ns: 0,
            probe_ns: 0,
            at_least: VecDeque::new(),
        }
    }
}

impl Envoy {
    const LEAST: f64 = 3.0;
    /// So many requests say what the shortest time is.
    const PROBES: usize = 50;
    const WINDOW_NS: u64 = 100_000_000;
    const PROBE_EVERY_NS: u64 = 60_000_000_000;
    const BUFFER: f64 = 0.25;
    /// After so many windows with the least limit the shortest time is measured anew.
    const STUCK: usize = 5;

    fn probe(&mut self) {
        self.before = Some(self.limit);
        self.limit = Envoy::LEAST;
        self.times_ns.clear();
        self.at_least.clear();
    }

    fn median_ns(&mut self) -> f64 {
        self.times_ns.sort_unstable();
        let median_ns = self.times_ns[self.times_ns.len() / 2];
        self.times_ns.clear();
        median_ns.max(1) as f64
    }
}

impl Limit for Envoy {
    fn limit(&self) -> usize {
        self.limit as usize
    }

    fn ended(&mut self, now_ns: u64, took_ns: u64, _: usize) {
        self.times_ns.push(took_ns);
        if let Some(before) = self.before {
            if self.times_ns.len() < Envoy::PROBES {
                return;
            }
            self.shortest_ns = self.median_ns();
            (self.limit, self.before) = (before, None);
            (self.window_ends_ns, self.probe_ns) =
                (now_ns + Envoy::WINDOW_NS, now_ns + Envoy::PROBE_EVERY_NS);
            return;
        }
        if now_ns < self.window_ends_ns {
            return;
        }
        self.window_ends_ns = now_ns + Envoy::WINDOW_NS;
        let gradient = (self.shortest_ns * (1.0 + Envoy::BUFFER) / self.median_ns()).clamp(0.5, 2.0);
        let next = self.limit * gradient;
        self.limit = (next + next.sqrt()).clamp(Envoy::LEAST, MOST);
        if self.limit <= Envoy::LEAST {
            self.at_least.push_back(());
        } else {
            self.at_least.clear();
        }
        if now_ns >= self.probe_ns || self.at_least.len() >= Envoy::STUCK {
            self.probe();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A server that computes one request at a time, with as many at work as the limit allows: what each takes grows
    /// with their number. Returns the limit after so many requests.
    fn saturated(limit: &mut dyn Limit, requests: u64) -> usize {
        for number in 0..requests {
            let at_work = limit.limit();
            limit.ended(number * 10 * MS, at_work as u64 * 10 * MS, at_work);
        }
        limit.limit()
    }

    #[test]
    fn limits_measured_by_the_shortest_time_stay_bounded_where_more_at_work_take_longer() {
        let most = (MOST / 2.0) as usize;
        let mut vegas = Vegas::default();
        let mut envoy = Envoy::default();
        let limits: [&mut dyn Limit; 2] = [&mut vegas, &mut envoy];
        for limit in limits {
            // One at a time first, as when it is measured how long a request takes.
            (0..60).for_each(|number| limit.ended(number * 10 * MS, 10 * MS, 1));
            let reached = saturated(limit, 3_000);
            assert!((1..most).contains(&reached), "{reached}");
        }
        assert_eq!(saturated(&mut Fixed(7), 100), 7);
    }

    #[test]
    fn a_limit_falls_when_requests_take_longer_than_they_used_to() {
        let mut gradient = Gradient::default();
        let mut vegas = Vegas::default();
        let mut envoy = Envoy::default();
        let limits: [&mut dyn Limit; 3] = [&mut gradient, &mut vegas, &mut envoy];
        for limit in limits {
            let mut now_ns = 0;
            let mut serve = |limit: &mut dyn Limit, took_ns: u64| {
                let at_work = limit.limit();
                for _ in 0..100 {
                    now_ns += 5 * MS;
                    limit.ended(now_ns, took_ns, at_work);
                }
                limit.limit()
            };
            let quick = serve(limit, 10 * MS);
            let slow = serve(limit, 1_000 * MS);
            assert!(slow < quick, "{slow} is not below {quick}");
        }
    }
}

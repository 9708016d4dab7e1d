//! What requests cost lately: Cavg and Cmax.

use std::collections::VecDeque;

/// A new estimate is made of at least so many requests; where fewer were served since the last one, the latest of those
/// before count too.
const LEAST: usize = 20;

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The mean CPU time of a request, in nanoseconds (Cavg), at least 1.
    pub average_ns: u64,
    /// The CPU time that is enough for 95 % of requests, in nanoseconds (Cmax).
    pub largest_ns: u64,
}

/// From which CPU time on a request was watched, and up to which, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    /// 0 for one that began since the last adjustment.
    pub(super) from_ns: u64,
    /// What it cost, or has cost so far.
    pub(super) to_ns: u64,
}

/// The CPU times of the requests since the last adjustment (Yang 2009, 12.2.3).
///
/// Dear requests end later than cheap ones that came with them. So among those that end, at first too few are dear, and
/// later too many: a mean of those alone is too low and then too high, and as many requests too many or too few are
/// accepted. What counts is therefore how many of those that had cost so much went on to cost more, whether they have
/// ended or not (Kaplan and Meier 1958, with entries that are late): each request counts for the part of its cost that
/// fell since the last adjustment.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    ended: VecDeque<Watched>,
    /// How many of them came since the last adjustment.
    fresh: usize,
}

impl History {
    /// A request has ended.
    pub(super) fn add(&mut self, watched: Watched) {
        let from_ns = watched.from_ns.min(watched.to_ns.saturating_sub(1));
        self.ended.push_back(Watched { from_ns, ..watched });
        self.fresh += 1;
        while self.ended.len() > self.fresh.max(LEAST) {
            self.ended.pop_front();
        }
    }

    /// How many requests it knows of.
    pub(super) fn count(&self) -> usize {
        self.ended.len()
    }

    /// How many requests were added since the last adjustment.
    pub(super) fn fresh(&self) -> usize {
        self.fresh
    }

    /// The costs of these requests and of those that are at work, `before` being those at the last adjustment; what
    /// comes from now on is for the next one. `None` if none has ended yet.
    pub(super) fn take(&mut self, at_work: &[Watched], before: Option<Costs>) -> Option<Costs> {
        self.fresh = 0;
        let costs = estimate(self.ended.make_contiguous(), at_work, before);
        while self.ended.len() > LEAST {
            self.ended.pop_front();
        }
        costs
    }
}

/// What requests cost of which some have ended, and others have not. Those that have cost more than any that ended are
/// expected to cost what was enough for 95 % before, if they have not cost more than that.
fn estimate(ended: &[Watched], at_work: &[Watched], before: Option<Costs>) -> Option<Costs> {
    let at_work = at_work.iter().filter(|watched| watched.from_ns < watched.to_ns);
    let mut ends: Vec<u64> = ended.iter().map(|watched| watched.to_ns).collect();
    ends.sort_unstable();
    let all = || ended.iter().chain(at_work.clone());
    let mut to: Vec<u64> = all().map(|watched| watched.to_ns).collect();
    let mut from: Vec<u64> = all().map(|watched| watched.from_ns).filter(|from_ns| *from_ns > 0).collect();
    to.sort_unstable();
    from.sort_unstable();
    let most_ns = *to.last()?;
    // The part of requests that cost more than `cost_ns`, and the mean of what they cost up to there.
    let (mut part, mut cost_ns, mut mean_ns, mut largest_ns) = (1.0, 0u64, 0.0, None);
    let mut next = 0;
    while let Some(&ends_ns) = ends.get(next) {
        let ending = ends.partition_point(|end_ns| *end_ns <= ends_ns) - next;
        next += ending;
        let reached = to.len() - to.partition_point(|to_ns| *to_ns < ends_ns);
        let later = from.len() - from.partition_point(|from_ns| *from_ns < ends_ns);
        // Where others cost more, not all do end here, though all that were watched up to here did.
        let watched = (reached - later).max(ending + usize::from(ends_ns < most_ns));
        mean_ns += part * (ends_ns - cost_ns) as f64;
        part *= 1.0 - ending as f64 / watched as f64;
        cost_ns = ends_ns;
        if part <= REST + ROUNDING {
            largest_ns.get_or_insert(ends_ns);
        }
    }
    let most_ns =
        if most_ns > cost_ns { most_ns.max(before.map_or(0, |costs| costs.largest_ns)) } else { most_ns };
    mean_ns += part * (most_ns - cost_ns) as f64;
    let average_ns = ((mean_ns + ROUNDING_NS) as u64).max(1);
    Some(Costs { average_ns, largest_ns: largest_ns.unwrap_or(most_ns) })
}

/// So many requests may cost more than Cmax.
const REST: f64 = 0.05;
const ROUNDING: f64 = 1e-9;
const ROUNDING_NS: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(cost_ns: u64) -> Watched {
        Watched { from_ns: 0, to_ns: cost_ns }
    }

    /// One in ten costs 50, the others 5. They come evenly; cheap ones end at once, and a dear one has so much of its
    /// cost in each of ten windows. Whether the dear ones have just begun to come or end all at once, the mean is
    /// right.
    #[test]
    fn dear_requests_count_while_they_are_at_work_and_not_twice() {
        let mut history = History::default();
        (0..100).for_each(|number| history.add(whole(if number % 10 == 9 { 50 } else { 5 })));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 9, largest_ns: 50 }));
        let mut at_work: Vec<Watched> = Vec::new();
        for window in 0..40 {
            (0..90).for_each(|_| history.add(whole(5)));
            at_work.extend([whole(0); 10]);
            // In every fifth window those end that began longest ago; meanwhile they get on.
            at_work.iter_mut().for_each(|one| one.to_ns = (one.to_ns + 9).min(49));
            if window % 5 == 4 {
                let (done, rest): (Vec<Watched>, Vec<Watched>) =
                    at_work.iter().partition(|one| one.from_ns >= 36);
                done.iter().for_each(|one| history.add(Watched { to_ns: 50, ..*one }));
                at_work = rest;
            }
            let before = Some(Costs { average_ns: 9, largest_ns: 50 });
            let costs = history.take(&at_work, before).expect("some have ended");
            assert_eq!(costs, Costs { average_ns: 9, largest_ns: 50 }, "window {window}");
            at_work.iter_mut().for_each(|one| one.from_ns = one.to_ns);
        }
    }

    #[test]
    fn requests_that_get_dearer_are_noticed_before_one_of_them_has_ended() {
        let mut history = History::default();
        (0..20).for_each(|_| history.add(whole(5)));
        history.add(whole(5));
        let costs = history.take(&[whole(400); 20], None).expect("some have ended");
        assert!(costs.average_ns > 150 && costs.largest_ns == 400, "{costs:?}");
    }

    #[test]
    fn the_largest_cost_is_enough_for_95_in_100() {
        let mut history = History::default();
        (1..=100).for_each(|cost_ns| history.add(whole(cost_ns)));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 50, largest_ns: 95 }));
    }

    #[test]
    fn few_new_requests_count_beside_the_latest_of_those_before() {
        let mut history = History::default();
        assert_eq!(history.take(&[], None), None);
        (0..100).for_each(|_| history.add(whole(10)));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 10, largest_ns: 10 }));
        history.add(whole(1_010));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 60, largest_ns: 10 }));
        (0..50).for_each(|_| history.add(whole(30)));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 30, largest_ns: 30 }));
    }

    #[test]
    fn requests_that_cost_nothing_measurable_cost_something() {
        let mut history = History::default();
        history.add(whole(0));
        assert_eq!(history.take(&[], None), Some(Costs { average_ns: 1, largest_ns: 0 }));
    }
}

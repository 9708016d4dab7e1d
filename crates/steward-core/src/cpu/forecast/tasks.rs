//! Dividing what a domain's own tasks get together among them (CPU Futures, section 4.3.2), in CPUs.
//!
//! Each task is ready for only a part of the time. While it is, it is served at a rate in proportion to its weight, at
//! most one CPU; the weight that it contributes in the mean is its weight times the fraction of time that it is ready
//! (equation 6), and what it gets is in proportion to that (equation 7). That fraction depends on the rate: a task that
//! is served half as fast is ready for longer. So the rates are solved for together: there is one *level* at which the
//! allocations sum to what there is.

/// A task's part of the question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Claim {
    /// What it would use on an idle machine, 0 to 1.
    pub(super) wants: f64,
    /// Its own reservation, as far as it wants it.
    pub(super) floor: f64,
    /// Its weight now.
    pub(super) weight: f64,
    /// Its mean weight in the past.
    pub(super) weight_before: f64,
    /// What it got.
    pub(super) actual: f64,
    /// The fraction of time for which it was ready.
    pub(super) eligible: f64,
    /// The part of the window for which it is known.
    pub(super) known: f64,
    /// How the scheduler served it beside what its weight says: 1 unless the past tells more. See [`judge`].
    pub(super) favour: f64,
}

/// What the past may tell of a task's favour at most.
const FAVOUR_MAX: f64 = 4.0;
/// Steps towards a level: five to ten are enough.
const STEPS: u32 = 50;
/// A task that wants less disturbs nobody.
const NEGLIGIBLE: f64 = 0.01;
/// What is less is none.
const EPSILON: f64 = 1e-9;

/// What a task gets in the mean that wants `wants` on an idle machine, has `floor` out of a reservation, and is served
/// at `rate` for the rest of the time in which it is ready; and how much more it gets for more `rate`.
///
/// It works for `wants` and sleeps for `1 - wants`, so with an allocation `a` it sleeps for `a (1 - wants) / wants` of
/// the time and is ready for the rest, `e`. Then `a = floor + rate (e - floor)`, which is solved for `a`.
fn allocation(wants: f64, floor: f64, rate: f64) -> (f64, f64) {
    if wants <= floor {
        return (wants, 0.0);
    }
    let rate = rate.clamp(0.0, 1.0);
    let stretch = wants + rate * (1.0 - wants);
    let given = (floor + rate * (1.0 - floor)) * wants / stretch;
    (given.min(wants), wants * (wants - floor) / (stretch * stretch))
}

impl Claim {
    /// What it gets at a level, and how much more for more of it, if the level counts for it `factor` times.
    fn at_rate(&self, level: f64, factor: f64) -> (f64, f64) {
        let rate = level * factor;
        let (given, slope) = allocation(self.wants, self.floor, rate);
        (given, if rate < 1.0 { slope * factor } else { 0.0 })
    }

    fn at(&self, level: f64) -> (f64, f64) {
        self.at_rate(level, self.weight * self.favour)
    }
}

/// The level at which all get `target`; `None` if they want no more than that. `curve` gives the sum at a level and
/// its slope. It grows ever more slowly, so that Newton's steps from below never pass the level.
fn solve(target: f64, curve: impl Fn(f64) -> (f64, f64)) -> Option<f64> {
    let mut level = 0.0;
    for _ in 0..STEPS {
        let (sum, slope) = curve(level);
        let missing = target - sum;
        if missing <= EPSILON {
            return Some(level);
        }
        let next = level + missing / slope;
        // The slope is 0 where all have what they want.
        if !next.is_finite() {
            return None;
        }
        level = next;
    }
    Some(level)
}

/// Those that want something: all others get nothing at any level, and most tasks of a machine sleep.
fn active(claims: &[Claim]) -> Vec<Claim> {
    claims.iter().filter(|claim| claim.wants > 0.0).copied().collect()
}

fn sum(parts: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    parts.fold((0.0, 0.0), |(given, slope), (more, more_slope)| (given + more, slope + more_slope))
}

/// Finds how the scheduler treated each task beside what its weight says: the rate at which it was served while it was
/// ready, over the rate that the model gives for the past. So what is forecast is what was, as long as nothing changes,
/// and a changed weight scales it. After a task has come, the past of the others is that of another situation, and
/// tells the less the younger the task is.
pub(super) fn judge(claims: &mut [Claim]) {
    let given: f64 = claims.iter().map(|claim| claim.actual).sum();
    if given <= EPSILON {
        return;
    }
    let active = active(claims);
    let past = |level: f64| sum(active.iter().map(|claim| claim.at_rate(level, claim.weight_before)));
    let level = solve(given, past).unwrap_or(f64::MAX);
    let known =
        (claims.iter().filter(|claim| claim.wants > NEGLIGIBLE).map(|claim| claim.known)).fold(1.0, f64::min);
    for claim in claims.iter_mut().filter(|claim| claim.eligible > claim.floor + EPSILON) {
        // Beside its reservation.
        let served = (claim.actual - claim.floor) / (claim.eligible - claim.floor);
        let expected = (level * claim.weight_before).min(1.0);
        if expected > 0.0 {
            claim.favour = (served / expected).clamp(1.0 / FAVOUR_MAX, FAVOUR_MAX).powf(known);
        }
    }
}

/// What each gets out of `pool` CPUs. The sum is at most the pool, and none gets more than it wants.
pub(super) fn divide(pool: f64, claims: &[Claim]) -> Vec<f64> {
    let wanted: f64 = claims.iter().map(|claim| claim.wants).sum();
    if wanted <= pool + EPSILON {
        return claims.iter().map(|claim| claim.wants).collect();
    }
    let active = active(claims);
    let curve = |level: f64| sum(active.iter().map(|claim| claim.at(level)));
    let level = solve(pool, curve).unwrap_or(f64::MAX);
    let mut given: Vec<f64> = claims.iter().map(|claim| claim.at(level).0).collect();
    let total: f64 = given.iter().sum();
    if total > pool {
        // The floors alone are more than there is.
        given.iter_mut().for_each(|given| *given *= pool / total);
    }
    given
}

/// What tasks could get out of `pool` CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    pool: f64,
    /// What all get.
    given: f64,
    /// The level with one more task, of middling weight, that is always ready; `None` where there is enough for all.
    level: Option<f64>,
    /// What all contribute at that level.
    contributed: f64,
}

impl Room {
    /// The room beside those tasks. `predicted` is what [`divide`] gave them, of a pool that was no larger.
    pub(super) fn new(pool: f64, claims: &[Claim], predicted: &[f64]) -> Self {
        let wants: f64 = claims.iter().map(|claim| claim.wants).sum();
        let active = active(claims);
        let weights: f64 = active.iter().map(|claim| claim.weight * claim.favour).sum();
        let middling = if active.is_empty() { 1.0 } else { weights / active.len() as f64 };
        let level = (wants + 1.0 > pool && pool > EPSILON)
            .then(|| {
                let one_more = Claim { wants: 1.0, weight: middling, favour: 1.0, ..Claim::default() };
                solve(pool, |level| sum(active.iter().chain([&one_more]).map(|claim| claim.at(level))))
            })
            .flatten()
            .filter(|level| *level > 0.0);
        // What a task contributes in the mean is what it gets over the level.
        let contributed =
            level.map_or(0.0, |level| active.iter().map(|claim| claim.at(level).0 / level).sum());
        Room { pool, given: predicted.iter().sum(), level, contributed }
    }

    /// What a task could get if it were ready all the time and the others as they are: its full weight beside what the
    /// others contribute (CPU Futures, equation 8), at least what the others leave, and at most one CPU. `predicted` is
    /// what it gets as it is.
    pub(super) fn potential(&self, claim: &Claim, predicted: f64) -> f64 {
        let left = self.pool - (self.given - predicted);
        let share = self.level.map_or(0.0, |level| {
            let weight = claim.weight * claim.favour;
            self.pool * weight / (self.contributed - claim.at(level).0 / level + weight)
        });
        left.max(share).max(claim.floor).max(predicted).min(1.0).min(self.pool.max(predicted))
    }
}

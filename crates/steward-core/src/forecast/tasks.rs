//! Dividing what a domain's own tasks get together among them (CPU Futures, section 4.3.2), in CPUs.
//!
//! Each task is ready for only a part of the time. While it is, it is served at a rate in proportion to its weight, at
//! most one CPU; the weight that it contributes in the mean is its weight times the fraction of time that it is
//! ready (equation 6), and what it gets is in proportion to that (equation 7). That fraction depends on the rate: a
//! task that is served half as fast is ready for longer. So the rates are solved for together: there is one *level* at which the
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
/// A level above which no one is held back by its weight.
const LEVEL_MAX: f64 = 1e9;
const LEVEL_MIN: f64 = 1e-15;
/// Halvings of the logarithm's range: the level is known to 1e-6 of itself.
const STEPS: u32 = 26;
/// A task that wants less disturbs nobody.
const NEGLIGIBLE: f64 = 0.01;
/// What is less is none.
const EPSILON: f64 = 1e-9;

/// What a task gets in the mean that wants `wants` on an idle machine, has `floor` out of a reservation, and is served at
/// `rate` for the rest of the time in which it is ready.
///
/// It works for `wants` and sleeps for `1 - wants`, so with an allocation `a` it sleeps for `a (1 - wants) / wants` of the time
/// and is ready for the rest, `e`. Then `a = floor + rate (e - floor)`, which is solved for `a`.
fn allocation(wants: f64, floor: f64, rate: f64) -> f64 {
    if wants <= 0.0 {
        return 0.0;
    }
    let served = floor + rate * (1.0 - floor);
    (served * wants / (wants + rate * (1.0 - wants))).min(wants)
}

impl Claim {
    fn at(&self, level: f64) -> f64 {
        let rate = (level * self.weight * self.favour).min(1.0);
        allocation(self.wants, self.floor, rate)
    }

    fn rate_before(&self, level: f64) -> f64 {
        (level * self.weight_before).min(1.0)
    }
}

/// The level at which `sum` of it is `target`; `None` if there is none below [`LEVEL_MAX`]. `sum` never falls.
fn solve(target: f64, sum: impl Fn(f64) -> f64) -> Option<f64> {
    if sum(LEVEL_MAX) <= target {
        return None;
    }
    let (mut low, mut high) = (LEVEL_MIN.ln(), LEVEL_MAX.ln());
    // A few steps by secant would do; halving never fails.
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if sum(middle.exp()) > target { high = middle } else { low = middle }
    }
    Some(low.exp())
}

/// Finds how the scheduler treated each task beside what its weight says: the rate at which it was served while it was
/// ready, over the rate that the model gives for the past. So what is forecast is what was, as long as nothing
/// changes, and a changed weight scales it. After a task has come, the past of the others is that of another situation, and
/// tells the less the younger the task is.
pub(super) fn judge(claims: &mut [Claim]) {
    let given: f64 = claims.iter().map(|claim| claim.actual).sum();
    if given <= EPSILON {
        return;
    }
    let past = |level: f64| -> f64 {
        claims.iter().map(|claim| allocation(claim.wants, claim.floor, claim.rate_before(level))).sum()
    };
    let level = solve(given, past).unwrap_or(LEVEL_MAX);
    let known =
        (claims.iter().filter(|claim| claim.wants > NEGLIGIBLE).map(|claim| claim.known)).fold(1.0, f64::min);
    for claim in claims.iter_mut().filter(|claim| claim.eligible > claim.floor + EPSILON) {
        // Beside its reservation.
        let served = (claim.actual - claim.floor) / (claim.eligible - claim.floor);
        let expected = claim.rate_before(level);
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
    let sum = |level: f64| -> f64 { claims.iter().map(|claim| claim.at(level)).sum() };
    let level = solve(pool, sum).unwrap_or(LEVEL_MAX);
    let mut given: Vec<f64> = claims.iter().map(|claim| claim.at(level)).collect();
    let total: f64 = given.iter().sum();
    if total > pool {
        // The floors alone are more than there is.
        given.iter_mut().for_each(|given| *given *= pool / total);
    }
    given
}

/// What each could get out of `pool` CPUs if it were ready all the time and the others as they are: its full weight beside what
/// the others contribute (CPU Futures, equation 8), at least what the others leave, and at most one CPU. `predicted` is
/// what [`divide`] gave, of a pool that was no larger.
pub(super) fn potentials(pool: f64, claims: &[Claim], predicted: &[f64]) -> Vec<f64> {
    let given: f64 = predicted.iter().sum();
    let wants: f64 = claims.iter().map(|claim| claim.wants).sum();
    let (weights, active) = claims
        .iter()
        .filter(|claim| claim.wants > 0.0)
        .fold((0.0, 0.0), |(sum, count), claim| (sum + claim.weight * claim.favour, count + 1.0));
    // The level with one more task, of middling weight, that is always ready.
    let middling = if active > 0.0 { weights / active } else { 1.0 };
    let level = (wants + 1.0 > pool)
        .then(|| {
            solve(pool, |level| {
                (level * middling).min(1.0) + claims.iter().map(|claim| claim.at(level)).sum::<f64>()
            })
        })
        .flatten();
    // What a task contributes in the mean is what it gets over the level.
    let contributed: f64 =
        level.map_or(0.0, |level| claims.iter().map(|claim| claim.at(level) / level).sum());
    let potential = |(claim, predicted): (&Claim, &f64)| {
        let left = pool - (given - predicted);
        let share = level.map_or(0.0, |level| {
            let weight = claim.weight * claim.favour;
            pool * weight / (contributed - claim.at(level) / level + weight)
        });
        left.max(share).max(claim.floor).max(*predicted).min(1.0).min(pool.max(*predicted))
    };
    claims.iter().zip(predicted).map(potential).collect()
}

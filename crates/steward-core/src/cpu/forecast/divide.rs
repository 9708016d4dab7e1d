//! Dividing a pool of CPU time among contenders of one level: who wants less than its part leaves the rest to the
//! others, until all is handed out (max-min fair by weight, after reservations and by priority).
//!
//! It is the steady state of what `steward-sched/src/bpf/decide/domain.h` (`level_standing`) decides from moment to
//! moment: a contender has its reservation, and what the reservations leave goes to the highest priority that wants
//! something, by weight. All amounts are in CPUs.

use crate::cpu::policy::PRIORITIES;

/// A sum may be off by so much.
const EPSILON: f64 = 1e-9;
/// No weight is less, so that nothing divides by zero.
const WEIGHT_MIN: f64 = 1e-6;

/// One who wants a part of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Contender {
    /// How much it wants.
    pub(super) wants: f64,
    /// What its tasks' own reservations take, whatever the domain is due: a part of what it wants. It counts towards
    /// what it gets by weight.
    pub(super) floor: f64,
    /// Its reservation: a fraction of the pool.
    pub(super) reserved: f64,
    /// Weight among those of its priority.
    pub(super) weight: f64,
    /// 0 to 7; higher comes first.
    pub(super) priority: u8,
}

impl Contender {
    /// What it gets before any weight counts: of its reservation what it wants, at least its floor; and the part of it
    /// on which what it gets by weight comes on top.
    fn start(&self, pool: f64) -> (f64, f64) {
        let base = (self.reserved * pool).min(self.wants);
        (base.max(self.floor.min(self.wants)), base)
    }
}

/// What one gets as a function of the level: constant up to `from`, then growing by `weight`, up to `to`.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    from: f64,
    to: f64,
    weight: f64,
}

impl Ramp {
    /// What it has beyond its start at a level.
    fn at(&self, level: f64) -> f64 {
        self.weight * (level.min(self.to) - self.from).max(0.0)
    }
}

/// A division of a pool.
#[derive(Debug)]
pub(super) struct Division<'c> {
    pool: f64,
    contenders: &'c [Contender],
    starts: Vec<f64>,
    ramps: Vec<Ramp>,
    /// By priority.
    classes: [Class; PRIORITIES as usize],
    /// What all together get before any weight counts.
    started: f64,
}

/// Those of one priority.
#[derive(Debug)]
struct Class {
    /// What all of it want beyond what they have at the start.
    wants: f64,
    /// Levels at which the slope changes, ascending, and what is handed out there.
    levels: Vec<(f64, f64)>,
}

impl Class {
    /// All of them have something to want: their ramps end above their start.
    fn new(ramps: Vec<Ramp>) -> Self {
        let mut changes: Vec<(f64, f64)> = Vec::with_capacity(2 * ramps.len());
        let mut wants = 0.0;
        for ramp in ramps {
            changes.push((ramp.from, ramp.weight));
            changes.push((ramp.to, -ramp.weight));
            wants += ramp.weight * (ramp.to - ramp.from);
        }
        changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut given, mut slope, mut level) = (0.0, 0.0f64, 0.0);
        let levels = changes
            .into_iter()
            .map(|(next, change)| {
                given += slope.max(0.0) * (next - level);
                (slope, level) = (slope + change, next);
                (level, given)
            })
            .collect();
        Class { wants, levels }
    }

    /// What is handed out at a level.
    fn at(&self, level: f64) -> f64 {
        let after = self.levels.partition_point(|(known, _)| *known <= level);
        let Some(&(low, given)) = after.checked_sub(1).and_then(|before| self.levels.get(before)) else {
            return 0.0;
        };
        match self.levels.get(after) {
            Some(&(high, given_there)) if high > low => {
                given + (given_there - given) * (level - low) / (high - low)
            }
            _ => given,
        }
    }

    /// The level at which `more`, growing without an end by `weight`, and all of the class but `without` have `rest`.
    fn level(&self, rest: f64, without: Option<&Ramp>, weight: f64) -> f64 {
        let total =
            |level: f64, given: f64| given - without.map_or(0.0, |ramp| ramp.at(level)) + weight * level;
        let after = self.levels.partition_point(|(level, given)| total(*level, *given) <= rest);
        let (low, low_total) = match after.checked_sub(1) {
            Some(before) => (self.levels[before].0, total(self.levels[before].0, self.levels[before].1)),
            None => (0.0, 0.0),
        };
        match self.levels.get(after) {
            Some(&(high, given)) => {
                let high_total = total(high, given);
                if high_total - low_total < EPSILON {
                    return high;
                }
                low + (high - low) * (rest - low_total).max(0.0) / (high_total - low_total)
            }
            None if weight > 0.0 => low + (rest - low_total).max(0.0) / weight,
            None => low,
        }
    }
}

impl<'c> Division<'c> {
    /// Prepares to divide `pool` CPUs.
    pub(super) fn new(pool: f64, contenders: &'c [Contender]) -> Self {
        let pool = pool.max(0.0);
        let mut pairs: Vec<(f64, f64)> = contenders.iter().map(|contender| contender.start(pool)).collect();
        let asked: f64 = pairs.iter().map(|(start, _)| start).sum();
        let scale = if asked > pool { pool / asked } else { 1.0 };
        for (start, base) in &mut pairs {
            *start *= scale;
            *base *= scale;
        }
        let ramps: Vec<Ramp> = contenders
            .iter()
            .zip(&pairs)
            .map(|(contender, (start, base))| {
                let weight = contender.weight.max(WEIGHT_MIN);
                Ramp {
                    from: ((start - base) / weight).max(0.0),
                    to: ((contender.wants - base) / weight).max(0.0),
                    weight,
                }
            })
            .collect();
        let mut wanting: [Vec<Ramp>; PRIORITIES as usize] = Default::default();
        for (contender, ramp) in contenders.iter().zip(&ramps).filter(|(_, ramp)| ramp.to > ramp.from) {
            wanting[usize::from(contender.priority % PRIORITIES)].push(*ramp);
        }
        Division {
            pool,
            contenders,
            starts: pairs.iter().map(|(start, _)| *start).collect(),
            ramps,
            classes: wanting.map(Class::new),
            started: asked.min(pool),
        }
    }

    /// What each gets. The sum is at most the pool, and none gets more than it wants.
    pub(super) fn allocations(&self) -> Vec<f64> {
        let mut rest = (self.pool - self.started).max(0.0);
        let mut levels = [0.0; PRIORITIES as usize];
        for (class, level) in self.classes.iter().zip(&mut levels).rev() {
            *level = if class.wants <= rest { f64::INFINITY } else { class.level(rest, None, 0.0) };
            rest = (rest - class.wants).max(0.0);
        }
        let gets = |((contender, start), ramp): ((&Contender, &f64), &Ramp)| {
            (start + ramp.at(levels[usize::from(contender.priority % PRIORITIES)])).min(contender.wants)
        };
        self.contenders.iter().zip(&self.starts).zip(&self.ramps).map(gets).collect()
    }

    /// What the contender with this index would get if it wanted all of the pool and the others what they want:
    /// `weight` is its weight then.
    pub(super) fn potential(&self, index: usize, weight: f64) -> f64 {
        let contender = self.contenders[index];
        let all = Contender { wants: self.pool, ..contender };
        let (start, base) = all.start(self.pool);
        let others = self.started - self.starts[index];
        let start = start.min(self.pool - others).max(0.0);
        let own = self.ramps[index];
        let higher: f64 =
            self.classes.iter().skip(usize::from(contender.priority) + 1).map(|class| class.wants).sum();
        let rest = self.pool - others - start - higher;
        if rest <= 0.0 {
            return start;
        }
        let Some(class) = self.classes.get(usize::from(contender.priority)) else { return start };
        let weight = weight.max(WEIGHT_MIN);
        // On the level where its weight begins to count: with a floor it has had some of that already.
        let head = (start - base).max(0.0);
        let level = class.level(rest + head, Some(&own), weight);
        let others_get = (class.at(level) - own.at(level)).min(rest);
        (start + (rest - others_get)).clamp(start, self.pool)
    }
}

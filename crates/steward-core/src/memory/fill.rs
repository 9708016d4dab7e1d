//! Dividing bytes by weight, exactly: who wants less than its part leaves the rest to the others (max-min fair by
//! weight).
//!
//! At a level l of bytes per unit of weight, a contender has `clamp(l * weight, held, wanted)`. The sum over all of
//! them is piecewise linear in l, and is kept as a sorted list of the levels at which its slope changes, each with the
//! line that follows it. So what one of them would have if it alone wanted everything takes one search, for n of them
//! O(n log n), where Walfield's algorithm 2 approximates it to avoid a quadratic effort (section 3.5).
//!
//! Levels are fractions of integers, compared by cross-multiplication: sums of 2^20 amounts of 64 bits times weights of
//! 32 bits fit into 128. No rounding error grows; amounts are rounded down once, at the end.

use std::cmp::Ordering;
use std::num::NonZeroU32;

/// One who wants a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// It has at least this many bytes; never more than it wants.
    held_bytes: u64,
    /// And at most this many.
    wanted_bytes: u64,
    /// Its weight among the others.
    weight: NonZeroU32,
}

impl Contender {
    /// One who has at least `held_bytes` and wants `wanted_bytes`: no less is held of it than it wants.
    pub(super) fn new(held_bytes: u64, wanted_bytes: u64, weight: NonZeroU32) -> Self {
        Contender { held_bytes: held_bytes.min(wanted_bytes), wanted_bytes, weight }
    }

    fn weight(&self) -> u128 {
        u128::from(self.weight.get())
    }

    /// What it gives at a level of what it wants, rounded up.
    pub(super) fn given_at(&self, level: Level) -> u64 {
        let has_bytes = u64::try_from(self.scaled_at(level) / level.weight).unwrap_or(u64::MAX);
        self.wanted_bytes.saturating_sub(has_bytes)
    }

    /// What it has at a level, times the level's weight.
    fn scaled_at(&self, level: Level) -> u128 {
        let of_level = |bytes: u64| u128::from(bytes) * level.weight;
        (level.bytes * self.weight()).clamp(of_level(self.held_bytes), of_level(self.wanted_bytes))
    }
}

/// Bytes per unit of weight: a fraction of integers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    bytes: u128,
    /// Never 0.
    weight: u128,
}

impl Level {
    fn compare(&self, other: &Level) -> Ordering {
        (self.bytes * other.weight).cmp(&(other.bytes * self.weight))
    }

    /// What this weight brings at this level, rounded down.
    pub(super) fn bytes_of(&self, weight: NonZeroU32) -> u64 {
        let bytes = self.bytes * u128::from(weight.get()) / self.weight;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// What all have together from a level on: `constant_bytes + slope * level`.
#[derive(Clone, Copy, Debug)]
struct Line {
    from: Level,
    constant_bytes: u128,
    /// The sum of the weights of those who get more with the level.
    slope: u128,
}

/// What contenders have together, as a function of the level.
#[derive(Debug)]
pub(super) struct Fill {
    /// By level; before the first, all have what is held of them.
    lines: Vec<Line>,
    held_bytes: u128,
}

impl Fill {
    /// Prepares to divide among these.
    pub(super) fn new(contenders: &[Contender]) -> Self {
        // Where the slope changes: the level, what the constant loses and gains, what the slope loses and gains.
        let mut changes: Vec<(Level, [u128; 2], [u128; 2])> = Vec::with_capacity(2 * contenders.len());
        for contender in contenders.iter().filter(|one| one.held_bytes < one.wanted_bytes) {
            let weight = contender.weight();
            let [held_bytes, wanted_bytes] = [contender.held_bytes, contender.wanted_bytes].map(u128::from);
            changes.push((Level { bytes: held_bytes, weight }, [held_bytes, 0], [0, weight]));
            changes.push((Level { bytes: wanted_bytes, weight }, [0, wanted_bytes], [weight, 0]));
        }
        changes.sort_by(|one, other| one.0.compare(&other.0));
        let held_bytes: u128 = contenders.iter().map(|contender| u128::from(contender.held_bytes)).sum();
        let (mut constant_bytes, mut slope) = (held_bytes, 0);
        let lines = changes
            .into_iter()
            .map(|(from, [bytes_lost, bytes_gained], [slope_lost, slope_gained])| {
                // One that begins and one that ends at the same level may come in any order: gains first.
                constant_bytes = constant_bytes + bytes_gained - bytes_lost;
                slope = slope + slope_gained - slope_lost;
                Line { from, constant_bytes, slope }
            })
            .collect();
        Fill { lines, held_bytes }
    }

    /// What all have together at a level, rounded down.
    pub(super) fn bytes_at(&self, level: Level) -> u128 {
        let after = self.lines.partition_point(|line| line.from.compare(&level).is_le());
        match after.checked_sub(1).and_then(|before| self.lines.get(before)) {
            Some(line) => line.constant_bytes + line.slope * level.bytes / level.weight,
            None => self.held_bytes,
        }
    }

    /// The level at which `one` of the contenders, if it wanted everything, and all the others have `pool_bytes`
    /// together; 0 when more than that is held of the others.
    pub(super) fn level_for(&self, pool_bytes: u64, one: &Contender) -> Level {
        let (pool_bytes, weight) = (u128::from(pool_bytes), one.weight());
        let fits = |line: &Line| {
            let all = line.constant_bytes * line.from.weight + line.slope * line.from.bytes;
            all + line.from.bytes * weight <= pool_bytes * line.from.weight + one.scaled_at(line.from)
        };
        let after = self.lines.partition_point(fits);
        let (mut constant_bytes, mut slope) = (self.held_bytes, 0);
        let mut own_bytes = u128::from(one.held_bytes);
        if let Some(line) = after.checked_sub(1).and_then(|before| self.lines.get(before)) {
            (constant_bytes, slope) = (line.constant_bytes, line.slope);
            let reaches = |bytes: u64| line.from.bytes * weight >= u128::from(bytes) * line.from.weight;
            if reaches(one.wanted_bytes) {
                own_bytes = u128::from(one.wanted_bytes);
            } else if reaches(one.held_bytes) {
                own_bytes = 0;
                slope -= weight;
            }
        }
        let others_bytes = constant_bytes - own_bytes;
        Level { bytes: pool_bytes.saturating_sub(others_bytes), weight: slope + weight }
    }
}

#[cfg(test)]
mod tests;

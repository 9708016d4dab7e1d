//! What a nice value weighs.

/// The kernel's weights from nice -20 to nice 19 (`sched_prio_to_weight`, kernel/sched/core.c): each step is about a
/// tenth of the CPU between two tasks, and nice 0 is 1024.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

/// The kernel's weight of a task by its nice value, 1024 for nice 0. A value out of range counts as the nearest one.
pub fn kernel_weight(nice: i32) -> u32 {
    WEIGHTS[(nice.clamp(-20, 19) + 20) as usize]
}

/// The same with 100 for nice 0.
pub fn weight(nice: i32) -> f64 {
    f64::from(kernel_weight(nice)) * 100.0 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_zero_weighs_a_hundred_and_the_ends_hold_beyond_them() {
        assert_eq!([-21, -20, 0, 19, 20].map(kernel_weight), [88761, 88761, 1024, 15, 15]);
        assert_eq!(weight(0), 100.0);
        assert!((weight(-20) - 8668.06).abs() < 0.01 && (weight(19) - 1.4648).abs() < 0.001);
    }
}

//! The kernel's scheduling attributes: nice values, real-time priorities and `SCHED_DEADLINE`
//! (`include/uapi/linux/sched/types.h`), of the calling thread.

use std::io::{Error, Result};
use std::time::Duration;

use steward_core::quantity::parse_duration;

/// Applies scheduling attributes to the calling thread; `change` fills in what is not zero.
fn set_attributes(change: impl FnOnce(&mut libc::sched_attr)) -> Result<()> {
    // SAFETY: a structure of plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    change(&mut attributes);
    // SAFETY: the structure says its own size, and 0 means the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Puts the calling thread into `SCHED_DEADLINE` with `budget` in every `period`. Children start in the default
/// class (reset on fork), because a deadline task may not fork otherwise.
///
/// # Errors
/// `EBUSY` when the kernel's admission refuses, `EPERM` without `CAP_SYS_NICE` or with a restricted affinity.
pub fn become_deadline(budget: Duration, period: Duration) -> Result<()> {
    set_attributes(|attributes| {
        attributes.sched_policy = libc::SCHED_DEADLINE as u32;
        attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        attributes.sched_runtime = budget.as_nanos() as u64;
        attributes.sched_deadline = period.as_nanos() as u64;
        attributes.sched_period = period.as_nanos() as u64;
    })
}

/// Puts the calling thread into `SCHED_FIFO` at `priority` (1 to 99). Children start in the default class.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn become_fifo(priority: u32) -> Result<()> {
    set_attributes(|attributes| {
        attributes.sched_policy = libc::SCHED_FIFO as u32;
        attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        attributes.sched_priority = priority;
    })
}

/// Sets the nice value (-20 to 19) of the calling process.
///
/// # Errors
/// `EACCES` when it would be lowered without `CAP_SYS_NICE`.
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: plain system call; 0 means the caller.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// `EINVAL` when none of them is online.
pub fn set_affinity(cpus: &[u32]) -> Result<()> {
    // SAFETY: an all-zero `cpu_set_t` is an empty set, and CPU_SET bounds-checks its index.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu as usize, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    match result {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Gives up the CPU to whoever else is ready.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { libc::sched_yield() };
}

/// Reads `C/T` such as `5ms/30ms`.
///
/// ```
/// use std::time::Duration;
/// let (budget, period) = steward_lab_workloads::scheduling::parse_reservation("5ms/30ms").unwrap();
/// assert_eq!((budget, period), (Duration::from_millis(5), Duration::from_millis(30)));
/// ```
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_reservation(text: &str) -> std::result::Result<(Duration, Duration), String> {
    let (budget, period) =
        text.split_once('/').ok_or_else(|| format!("`{text}` is not a reservation: write 5ms/30ms"))?;
    let read = |text| parse_duration(text).map(Duration::from_nanos).map_err(|error| error.to_string());
    let (budget, period) = (read(budget)?, read(period)?);
    if budget.is_zero() || budget > period {
        return Err(format!("`{text}`: the budget must be above 0 and at most the period"));
    }
    Ok((budget, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_has_two_durations_and_the_smaller_comes_first() {
        assert!(parse_reservation("30ms/5ms").unwrap_err().contains("at most the period"));
        assert!(parse_reservation("0ms/5ms").is_err());
        assert!(parse_reservation("5ms").unwrap_err().contains("5ms/30ms"));
    }
}

//! The scheduling state of one task: policy, nice value, real-time priority, SCHED_DEADLINE parameters.
//!
//! `sched_setattr` and `sched_getattr` (sched_setattr(2)) have no wrapper in the libraries that Steward uses, so the
//! two system calls are here. Nothing else in this crate needs `unsafe`.

use serde::{Deserialize, Serialize};

use crate::error::KernelError;

/// `SCHED_NORMAL` of linux/sched.h: the policy of ordinary tasks.
pub const POLICY_NORMAL: u32 = 0;
/// `SCHED_FIFO` of linux/sched.h: real time, until it yields.
pub const POLICY_FIFO: u32 = 1;
/// `SCHED_RR` of linux/sched.h: real time, in turns.
pub const POLICY_ROUND_ROBIN: u32 = 2;
/// `SCHED_DEADLINE` of linux/sched.h.
pub const POLICY_DEADLINE: u32 = 6;
/// `SCHED_FLAG_RESET_ON_FORK`: children start with the ordinary policy.
pub const FLAG_RESET_ON_FORK: u64 = 0x01;
/// `SCHED_FLAG_RECLAIM`: a task that has used its budget may go on with bandwidth that nobody reserved.
pub const FLAG_RECLAIM: u64 = 0x02;
/// `SCHED_GETATTR_FLAG_DL_DYNAMIC` (newer than Linux 6.18): runtime left and absolute deadline in place of the
/// parameters.
const READ_DYNAMIC: u32 = 0x01;
/// Flags that `sched_getattr` may report but that are not state of the task to be put back.
const STATE_FLAGS: u64 = 0x07;

/// How a task is scheduled. All times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheduling {
    /// One of the kernel's `SCHED_` numbers.
    pub policy: u32,
    /// `SCHED_FLAG_` bits.
    pub flags: u64,
    /// Nice value, -20 to 19; used by the ordinary policies.
    pub nice: i32,
    /// Real-time priority, 1 to 99; used by SCHED_FIFO and SCHED_RR.
    pub priority: u32,
    /// SCHED_DEADLINE's budget per period; for ordinary tasks the slice that was asked for (Linux 6.12), or 0.
    pub runtime_ns: u64,
    /// SCHED_DEADLINE's relative deadline.
    pub deadline_ns: u64,
    /// SCHED_DEADLINE's period.
    pub period_ns: u64,
}

impl Scheduling {
    /// This state with `nice` in place of its own nice value.
    pub fn with_nice(self, nice: i32) -> Self {
        Scheduling { nice, ..self }
    }

    /// Whether the two are one choice: equal in what their policy uses. The kernel may fill in the rest.
    pub fn is_same_choice(&self, other: &Self) -> bool {
        let reservation = |state: &Self| (state.runtime_ns, state.deadline_ns, state.period_ns);
        self.policy == other.policy
            && match self.policy {
                POLICY_DEADLINE => reservation(self) == reservation(other),
                POLICY_FIFO | POLICY_ROUND_ROBIN => self.priority == other.priority,
                _ => self.nice == other.nice,
            }
    }

    /// SCHED_DEADLINE with a budget in every period, both in nanoseconds; the deadline is the end of the period.
    /// Children start as ordinary tasks: the kernel lets a task with a reservation fork only on that condition.
    pub fn deadline(budget_ns: u64, period_ns: u64, reclaim: bool) -> Self {
        Scheduling {
            policy: POLICY_DEADLINE,
            flags: FLAG_RESET_ON_FORK | if reclaim { FLAG_RECLAIM } else { 0 },
            runtime_ns: budget_ns,
            deadline_ns: period_ns,
            period_ns,
            ..Scheduling::default()
        }
    }
}

/// `struct sched_attr` of linux/sched/types.h in its first published size.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawAttributes {
    size_bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const RAW_BYTES: u32 = size_of::<RawAttributes>() as u32;

/// Reads how a task is scheduled.
///
/// # Errors
/// [`KernelError::Task`]; [`KernelError::is_absent`] when it has ended.
pub fn read(tid: i32) -> Result<Scheduling, KernelError> {
    let raw =
        getattr(tid, 0).map_err(|source| failed(tid, "reading the scheduling (sched_getattr)", source))?;
    Ok(Scheduling {
        policy: raw.policy,
        flags: raw.flags & STATE_FLAGS,
        nice: raw.nice,
        priority: raw.priority,
        runtime_ns: if is_default_slice(&raw) { 0 } else { raw.runtime_ns },
        deadline_ns: raw.deadline_ns,
        period_ns: raw.period_ns,
    })
}

/// From Linux 6.12 on an ordinary task shows its slice as runtime. Written back, it would count as asked for and no
/// longer follow the kernel's default, so the default, which the caller itself has, is read as 0.
fn is_default_slice(raw: &RawAttributes) -> bool {
    let is_slice = raw.policy != POLICY_DEADLINE && raw.runtime_ns != 0;
    is_slice && getattr(0, 0).is_ok_and(|own| own.policy == POLICY_NORMAL && own.runtime_ns == raw.runtime_ns)
}

/// Changes how a task is scheduled.
///
/// # Errors
/// [`KernelError::Task`]: `ESRCH` it has ended; `EBUSY` the kernel's admission refused the reservation; `EPERM` the
/// caller may not, or the task may not run on every CPU; `EINVAL` the parameters are out of the kernel's range.
pub fn write(tid: i32, scheduling: &Scheduling) -> Result<(), KernelError> {
    let raw = RawAttributes {
        size_bytes: RAW_BYTES,
        policy: scheduling.policy,
        flags: scheduling.flags,
        nice: scheduling.nice,
        priority: scheduling.priority,
        runtime_ns: scheduling.runtime_ns,
        deadline_ns: scheduling.deadline_ns,
        period_ns: scheduling.period_ns,
    };
    // SAFETY: the kernel reads `size_bytes` bytes at the pointer, which are all there, and keeps nothing.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const raw, 0_u32) };
    if result == 0 {
        return Ok(());
    }
    let source = std::io::Error::last_os_error();
    Err(failed(tid, "changing the scheduling (sched_setattr)", source))
}

/// What is left of the budget, and the end of the current period on `CLOCK_MONOTONIC`, both in nanoseconds, of a
/// task with a reservation. `None` where the kernel does not say (Linux 6.18 and before) or the task has ended.
pub fn read_progress(tid: i32) -> Option<(i64, u64)> {
    let raw = getattr(tid, READ_DYNAMIC).ok().filter(|raw| raw.policy == POLICY_DEADLINE)?;
    // The kernel hands out its signed runtime in an unsigned field: a task that overran owes time.
    Some((raw.runtime_ns as i64, raw.deadline_ns))
}

fn getattr(tid: i32, flags: u32) -> std::io::Result<RawAttributes> {
    let mut raw = RawAttributes::default();
    // SAFETY: the kernel writes at most RAW_BYTES bytes at the pointer, and there are that many.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut raw, RAW_BYTES, flags) };
    if result == 0 { Ok(raw) } else { Err(std::io::Error::last_os_error()) }
}

fn failed(tid: i32, action: &'static str, source: std::io::Error) -> KernelError {
    KernelError::Task { tid, action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_policy_uses_makes_two_states_differ() {
        let mine = Scheduling::deadline(5_000_000, 30_000_000, true);
        assert!(mine.is_same_choice(&mine.with_nice(3)));
        assert!(!mine.is_same_choice(&Scheduling::deadline(6_000_000, 30_000_000, true)));
        assert!(!Scheduling::default().is_same_choice(&Scheduling::default().with_nice(1)));
        let slice_asked_for = Scheduling { runtime_ns: 3_000_000, ..Scheduling::default() };
        assert!(Scheduling::default().is_same_choice(&slice_asked_for));
    }

    #[test]
    fn the_scheduling_of_the_test_itself_can_be_read() {
        let own = read(0).expect("a task can read its own");
        assert!((-20..=19).contains(&own.nice));
    }

    #[test]
    fn a_task_that_does_not_exist_is_told_apart() {
        assert!(read(i32::MAX).expect_err("no such task").is_absent());
    }
}

//! What the kernel counts for every task, in one read: CPU time, and time that it could have run but had no CPU.
//!
//! Two sources give the same figures. A BPF program that walks the kernel's list of tasks ([`Bpf`]) costs less than
//! half a microsecond a task (on kernels before 6.8 twice that), and knows the wait that lasts. Where BPF cannot be
//! used, procfs has them too ([`Procfs`]), at two small files a task; [`open`] takes the better one. The counters are
//! the core scheduler's own, and are kept whatever scheduler is in force.
//!
//! Tasks come and go while they are read: one that vanishes half-way is left out.

#[cfg(feature = "bpf")]
mod bpf;
mod procfs;
#[cfg(feature = "bpf")]
mod shared_memory;
mod steady;

use steward_core::cpu::forecast::{SchedulingClass, TaskReading};
use steward_kernel::{KernelError, Roots};

#[cfg(feature = "bpf")]
pub use bpf::Bpf;
pub use procfs::Procfs;

/// Why tasks could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    /// procfs could not be read.
    #[error(transparent)]
    Procfs(#[from] KernelError),
    /// The BPF program could not be loaded, or gave nothing.
    #[error(
        "{action}: {source}; reading tasks with BPF needs root (CAP_BPF and CAP_PERFMON) and a kernel with BTF"
    )]
    Bpf {
        /// What was tried.
        action: &'static str,
        /// What came back.
        source: std::io::Error,
    },
}

/// Somewhere that samples come from.
pub trait Source: Send {
    /// Its name: `bpf` or `procfs`.
    fn name(&self) -> &'static str;

    /// Reads all tasks. `now_ns` is the time of `CLOCK_MONOTONIC`, in nanoseconds; a source that is told by the kernel
    /// when it read says that.
    ///
    /// # Errors
    /// [`TasksError`]; the next reading then is one of which anything may have changed.
    fn read(&mut self, now_ns: u64) -> Result<TaskReading<'_>, TasksError>;
}

/// The best source that can be used here, and why it is not the better one.
pub fn open(roots: &Roots) -> (Box<dyn Source>, Option<TasksError>) {
    let procfs = || Box::new(Procfs::new(roots.clone()));
    // BPF sees this machine's tasks, wherever the roots point.
    #[cfg(feature = "bpf")]
    if *roots == Roots::default() {
        return match Bpf::load() {
            Ok(bpf) => (Box::new(bpf), None),
            Err(error) => (procfs(), Some(error)),
        };
    }
    (procfs(), None)
}

/// Scheduling policies of include/uapi/linux/sched.h as classes. Which of the policies of the default class it is
/// makes no difference, nor does it matter whether a sched_ext program serves that class.
fn class_of(policy: u32) -> SchedulingClass {
    match policy as libc::c_int {
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE => SchedulingClass::RealTime,
        libc::SCHED_IDLE => SchedulingClass::Idle,
        _ => SchedulingClass::Fair,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_become_classes_and_new_ones_are_served_as_the_default_is() {
        assert_eq!([0, 3, 7, 99].map(class_of), [SchedulingClass::Fair; 4]);
        assert_eq!([1, 2, 6].map(class_of), [SchedulingClass::RealTime; 3]);
        assert_eq!(class_of(5), SchedulingClass::Idle);
    }
}

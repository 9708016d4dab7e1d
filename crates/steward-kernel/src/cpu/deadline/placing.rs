//! Which tasks may be asked a reservation for at all.
//!
//! SCHED_DEADLINE books what it promises with the CPUs that a task is among. The kernel does not keep these books
//! right for a task that cannot follow when a CPU goes: Linux 7.3 divided by zero (`sched_dl_overflow`) when a worker
//! of a CPU was asked a reservation for while that CPU went offline and came back. So what is asked for here is what
//! cannot come into that: a program's task that may run on every CPU, and that is on one which is there.
//!
//! Threads of the kernel get no reservation at all. Most belong to one CPU, a worker is tied to its CPU and let go as
//! CPUs come and go, and one that is stopped because its budget is spent stops everybody who waits for it (grace
//! periods of read-copy-update, the journal of a file system).

use crate::cpu::cpus;
use crate::error::KernelError;
use crate::process::{self, TaskStat};
use crate::roots::Roots;

/// What can be done for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// The kernel may be asked for a reservation.
    Free,
    /// It may not, but a nice value does no harm.
    Confined,
    /// It sleeps on a CPU that is offline: only when it has run elsewhere is there somebody to ask.
    Away,
}

/// Where a task stands, by `stat`, which was just read.
///
/// # Errors
/// [`KernelError`] when its affinity or the list of CPUs cannot be read; [`KernelError::is_absent`] when it has ended.
pub(super) fn placing(stat: &TaskStat, roots: &Roots) -> Result<Placing, KernelError> {
    if stat.is_kernel_thread() || stat.has_fixed_affinity() {
        return Ok(Placing::Confined);
    }
    let allowed = process::allowed_cpus(stat.id.tid, roots)?;
    let online = cpus::online(roots)?;
    // A task with a single CPU cannot follow wherever there may be a second one, online or not.
    let is_pinned = allowed.len() == 1 && cpus::possible(roots)?.len() > 1;
    if is_pinned || online.iter().any(|cpu| allowed.binary_search(cpu).is_err()) {
        return Ok(Placing::Confined);
    }
    Ok(if online.contains(&stat.cpu) { Placing::Free } else { Placing::Away })
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::process::TaskId;

    const PROGRAM: u64 = 0x40_0000;
    const KERNEL_WORKER: u64 = 0x420_8060;
    /// A worker of io_uring: a thread of a program, tied down by the kernel.
    const FIXED: u64 = 0x440_0040;
    const KERNEL_THREAD: u64 = 0x20_8040;

    struct Machine(tempfile::TempDir, Roots);

    impl Machine {
        fn new(possible: &str, online: &str) -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let roots = Roots::under(directory.path());
            let machine = Machine(directory, roots);
            machine.write("sys/devices/system/cpu/possible", possible);
            machine.write("sys/devices/system/cpu/online", online);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, format!("{text}\n")).expect("a file");
        }

        fn placing(&self, flags: u64, cpu: u32, allowed: &str) -> Placing {
            self.write("proc/7/status", &format!("Name:\tx\nCpus_allowed_list:\t{allowed}"));
            let id = TaskId { tid: 7, started_ticks: 1 };
            let name = "x".to_owned();
            let (group, terminal, foreground) = (7, 0, -1);
            let stat = TaskStat {
                id,
                name,
                state: 'S',
                parent: 1,
                group,
                terminal,
                foreground,
                flags,
                threads: 1,
                stack: 0,
                cpu,
            };
            placing(&stat, &self.1).expect("all is readable")
        }
    }

    #[test]
    fn only_a_program_that_may_run_everywhere_and_is_on_a_cpu_that_is_there_is_free() {
        let machine = Machine::new("0-3", "0-3");
        assert_eq!(machine.placing(PROGRAM, 1, "0-3"), Placing::Free);
        for (flags, allowed) in
            [(KERNEL_WORKER, "1"), (KERNEL_WORKER, "0-3"), (KERNEL_THREAD, "0-3"), (FIXED, "0-3")]
        {
            assert_eq!(machine.placing(flags, 1, allowed), Placing::Confined, "{flags:#x} on {allowed}");
        }
        for allowed in ["1", "0-2", "1,3"] {
            assert_eq!(machine.placing(PROGRAM, 1, allowed), Placing::Confined, "{allowed}");
        }
    }

    #[test]
    fn with_a_cpu_offline_a_task_that_sleeps_there_waits_and_a_pinned_one_stays_pinned() {
        let machine = Machine::new("0-1", "0");
        assert_eq!(machine.placing(PROGRAM, 0, "0-1"), Placing::Free);
        assert_eq!(machine.placing(PROGRAM, 1, "0-1"), Placing::Away);
        // It may run on every CPU that is there, and on no other once there are two.
        assert_eq!(machine.placing(PROGRAM, 0, "0"), Placing::Confined);
        assert_eq!(machine.placing(KERNEL_WORKER, 1, "0-1"), Placing::Confined);
    }

    #[test]
    fn on_a_machine_of_one_cpu_nobody_is_pinned() {
        let machine = Machine::new("0", "0");
        assert_eq!(machine.placing(PROGRAM, 0, "0"), Placing::Free);
        assert_eq!(machine.placing(KERNEL_WORKER, 0, "0"), Placing::Confined);
    }
}

//! What is looked at of the machine as a whole while programs run: its idle time, its memory, its disk, and the
//! memory of Steward's daemon.

use std::fs;

use steward_lab_guest::{MachineDisk, MachineMemory, Seen};
use steward_lab_workloads::clock;

use crate::daemon::Daemon;
use crate::{disk, memory};

/// The kernel's unit of time in `/proc/stat`.
const TICK_MS: f64 = 10.0;

/// Takes its looks at the moments that the plan names.
#[derive(Default)]
pub struct Watcher {
    between_ms: Option<(u64, u64)>,
    /// When the first look was taken, and the idle time until then, in milliseconds.
    from: Option<(u64, f64)>,
    /// What its memory had gone through before.
    memory_before: Option<MachineMemory>,
    /// What its disk had done before.
    disk_before: Option<MachineDisk>,
    seen: Seen,
}

impl Watcher {
    /// One that counts idle time between two moments of the run, if any.
    pub fn new(between_ms: Option<(u64, u64)>) -> Watcher {
        Watcher { between_ms, ..Watcher::default() }
    }

    /// Begins to count what the machine's memory goes through, and notes what of it is free.
    pub fn count_memory(&mut self) {
        self.memory_before = memory::of_machine();
        self.seen.free_at_start = memory::free();
    }

    /// Begins to count what its timed disk does.
    pub fn count_disk(&mut self) {
        self.disk_before = disk::of_machine(seconds());
    }

    /// Looks at the idle time if it is the moment to.
    pub fn look(&mut self, elapsed_ms: u64) {
        let Some((from_ms, to_ms)) = self.between_ms else { return };
        if self.from.is_none() && elapsed_ms >= from_ms {
            self.from = idle_ms().map(|idle_ms| (elapsed_ms, idle_ms));
        }
        if let Some((began_ms, before_ms)) = self.from
            && elapsed_ms >= to_ms
        {
            let seconds = (elapsed_ms - began_ms) as f64 / 1e3;
            self.seen.idle_ms_per_second = idle_ms().map(|idle_ms| (idle_ms - before_ms) / seconds);
            self.between_ms = None;
        }
    }

    /// When it must look next, in milliseconds after the start of the run.
    pub fn next_ms(&self) -> Option<u64> {
        let (from_ms, to_ms) = self.between_ms?;
        Some(if self.from.is_none() { from_ms } else { to_ms })
    }

    /// Notes the daemon's memory.
    pub fn look_at_daemon(&mut self, daemon: Option<&Daemon>) {
        self.seen.daemon_memory_kib.extend(daemon.and_then(Daemon::memory_kib));
    }

    /// Everything that it saw.
    pub fn finish(mut self) -> Seen {
        if let (Some(before), Some(after)) = (self.memory_before, memory::of_machine()) {
            self.seen.memory = Some(memory::between(before, after));
        }
        if let (Some(before), Some(after)) = (self.disk_before, disk::of_machine(seconds())) {
            self.seen.disk = Some(disk::between(before, after));
        }
        self.seen
    }
}

fn seconds() -> f64 {
    clock::now_ns() as f64 / 1e9
}

fn idle_ms() -> Option<f64> {
    idle_ticks(&fs::read_to_string("/proc/stat").ok()?).map(|ticks| ticks as f64 * TICK_MS)
}

/// The idle time of all CPUs in `/proc/stat`, with what waits for a disk: nothing else used the CPU then.
fn idle_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<u64> = all.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(numbers.get(3)? + numbers.get(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_all_cpus_and_includes_waiting_for_a_disk() {
        let stat = "cpu  10 1 5 700 30 0 2 0 0 0\ncpu0 10 1 5 600 20 0 2 0 0 0\n";
        assert_eq!(idle_ticks(stat), Some(730));
        assert_eq!(idle_ticks("intr 5"), None);
    }

    #[test]
    fn the_next_look_is_the_first_moment_and_then_the_second() {
        let mut watcher = Watcher::new(Some((1000, 3000)));
        assert_eq!(watcher.next_ms(), Some(1000));
        watcher.look(500);
        assert_eq!(watcher.next_ms(), Some(1000));
        watcher.look(1000);
        assert_eq!(watcher.next_ms(), Some(3000));
        watcher.look(3000);
        assert_eq!(watcher.next_ms(), None);
        assert!(watcher.finish().idle_ms_per_second.is_some());
    }
}

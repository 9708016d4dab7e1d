//! What passes between the host and the agent inside the lab machine: a plan goes in, records come out.
//!
//! The host decides everything (which program runs how under which contender); the agent starts, watches, stops
//! and tells. Records are JSON, one a line. Times are milliseconds of the guest's `CLOCK_MONOTONIC`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where the host puts the plan.
pub const PLAN_PATH: &str = "/lab/scenario.json";
/// Where the agent appends its records.
pub const RESULTS_PATH: &str = "/run/lab/results";
/// Where the agent keeps what it needs while it runs: a tmpfs.
pub const WORK_DIRECTORY: &str = "/run/lab";
/// Where the host puts the synthetic programs.
pub const PROGRAM_DIRECTORY: &str = "/lab/bin";

/// Everything that one boot of the machine is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Runs, in the order in which they are to happen.
    pub runs: Vec<Run>,
}

/// One contender, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The contender's name, for the record.
    pub contender: String,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// The value of the scenario's parameter, where it is run for several.
    pub point: Option<String>,
    /// How long it lasts, in milliseconds.
    pub duration_ms: u64,
    /// One program after another, each until it ends, instead of all at their own moments.
    pub one_after_another: bool,
    /// Present when Steward's daemon is to run meanwhile.
    pub steward: Option<StewardSetup>,
    /// Another program that loads a scheduler and holds it until it is killed, to run meanwhile.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// Between which two moments of the run, in milliseconds, the machine's idle time is counted.
    #[serde(default)]
    pub idle_between_ms: Option<(u64, u64)>,
    /// Present where the experiment is about memory.
    #[serde(default)]
    pub memory: Option<MemorySetup>,
    /// Present where the experiment is about the disk.
    #[serde(default)]
    pub disk: Option<DiskSetup>,
    /// Domains, parents before children.
    pub domains: Vec<Domain>,
    /// What runs.
    pub programs: Vec<Program>,
}

/// How memory is divided among the programs of a run. Those that are protected and the others are below a cgroup each,
/// and the memory controller is handed out to every program, whoever manages the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySetup {
    /// `memory.high` of all programs together that are not protected, in bytes.
    pub ceiling_bytes: Option<u64>,
}

/// How the timed disk is set before a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSetup {
    /// The I/O controller is handed out down to each program's cgroup.
    pub divided: bool,
    /// The thread that writes the file system's journal is in the real-time class of I/O.
    pub journal_first: bool,
    /// What is written into files of the kernel, in this order.
    pub settings: Vec<Setting>,
}

/// Something that is written into a file of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The file.
    pub path: String,
    /// The text; `{disk}` stands for the timed disk's numbers, such as `254:0`.
    pub value: String,
}

/// What the timed disk did during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineDisk {
    /// Bytes that were read from it.
    pub read_bytes: u64,
    /// Bytes that were written to it.
    pub written_bytes: u64,
    /// How long the run was.
    pub seconds: f64,
}

/// What a program's memory went through, by its cgroup's own files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramMemory {
    /// Pages that it waited for a disk for: `pgmajfault`.
    pub major_faults: u64,
    /// Times that it was made to free memory itself because of a ceiling: `high` in `memory.events`.
    pub throttled: u64,
    /// Times that memory was taken from it below what `memory.low` says: `low`.
    pub low_breached: u64,
    /// Its processes that the kernel killed for want of memory: `oom_kill`.
    pub oom_kills: u64,
}

/// What the machine's memory went through during a run, by `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineMemory {
    /// Times that somebody who wanted memory had to free some first: all `allocstall_*`.
    pub direct_reclaims: u64,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Pages read from swap.
    pub swapped_in: u64,
    /// Pages written to swap.
    pub swapped_out: u64,
}

/// What of the machine's memory is free, by `/proc/buddyinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeMemory {
    /// Pages that are free.
    pub pages: u64,
    /// Those of them that lie together so that a huge page could be had.
    pub huge_pages: u64,
}

/// How Steward's daemon is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StewardSetup {
    /// The text of the one specification file that it is given.
    pub specifications: String,
    /// What `--best-effort` says, if anything.
    pub best_effort: Option<String>,
    /// What `--mechanism` says, if anything.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// The text of its configuration, where it is not the one that the machine has.
    #[serde(default)]
    pub configuration: Option<String>,
    /// A file system whose disk is calibrated once the daemon is there.
    #[serde(default)]
    pub calibrated: Option<String>,
}

/// A cgroup with a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// Its directory, relative to the root of the cgroups.
    pub path: String,
    /// Whether Steward makes it, as `steward domain create` does; `path` is where that puts it.
    #[serde(default)]
    pub made_by_steward: bool,
    /// Its `cpu.weight`, where it is not the kernel's own.
    pub cpu_weight: Option<u32>,
    /// Its `cpu.max`, where it has a limit.
    #[serde(default)]
    pub cpu_max: Option<String>,
    /// Its `cpu.idle`.
    #[serde(default)]
    pub cpu_idle: bool,
    /// Its `cpuset.cpus`; all CPUs if empty.
    #[serde(default)]
    pub cpus: String,
    /// What `steward domain set` (or `create`) is told about it; nothing is set if empty.
    pub policy: Vec<String>,
}

/// A program of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its name within the scenario.
    pub name: String,
    /// What is executed.
    pub command: Vec<String>,
    /// When, after the start of the run.
    pub start_ms: u64,
    /// When it and all its children are killed; at the end of the run if absent.
    pub stop_ms: Option<u64>,
    /// Its nice value.
    pub nice: Option<i32>,
    /// `SCHED_DEADLINE` for its main thread: budget and period, in nanoseconds.
    pub deadline_ns: Option<(u64, u64)>,
    /// The CPUs that it may use; all if empty.
    pub affinity: Vec<u32>,
    /// The user that it runs as; root if absent.
    pub user: Option<u32>,
    /// The cgroup of the domain that it is in, relative to the root; none if absent.
    pub domain: Option<String>,
    /// Its memory is to be kept: in an experiment on memory it is not among those that a ceiling is for.
    #[serde(default)]
    pub protected: bool,
    /// `memory.min` of its cgroup, in bytes.
    #[serde(default)]
    pub memory_min_bytes: Option<u64>,
    /// What is written into files of its cgroup, by their names.
    #[serde(default)]
    pub group_settings: Vec<Setting>,
    /// The agent notes when each line arrives (`t AT TEXT`), for programs that do not print times themselves.
    pub stamp_lines: bool,
}

/// What the agent tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Record {
    /// A run begins.
    Started {
        /// Its index in the plan.
        run: usize,
    },
    /// A run goes on.
    Progress {
        /// Its index in the plan.
        run: usize,
        /// Milliseconds since its start.
        elapsed_ms: u64,
    },
    /// A piece of what a program printed; pieces of one program come in order.
    Output {
        /// The run's index in the plan.
        run: usize,
        /// The program's name.
        program: String,
        /// The piece.
        text: String,
    },
    /// What became of a program.
    Program {
        /// The run's index in the plan.
        run: usize,
        /// The program's name.
        program: String,
        /// How it ended, when it did so before it was killed: `exit status: 0`.
        ended: Option<String>,
        /// CPU time of it and its children, in milliseconds.
        cpu_ms: f64,
        /// What could not be given to it: "SCHED_DEADLINE refused: Device or resource busy".
        notes: Vec<String>,
        /// In an experiment on memory, what its memory went through, as it was last seen.
        #[serde(default)]
        memory: Option<ProgramMemory>,
    },
    /// A run is over.
    Finished {
        /// Its index in the plan.
        run: usize,
        /// When it began.
        start_ms: f64,
        /// When its time was over.
        end_ms: f64,
        /// Why it does not count, if so.
        error: Option<String>,
        /// What Steward said about itself just before the end (`steward status --json`).
        status: Option<Value>,
        /// What it decided during the run (`steward events`).
        decisions: Option<String>,
        /// The daemon's log, when there is one.
        log: Option<String>,
        /// What was seen of the machine as a whole.
        #[serde(default)]
        seen: Seen,
    },
    /// All runs are over.
    Done,
}

/// What the agent saw of the machine as a whole, besides programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Idle time of all CPUs together, in milliseconds for each second between the two moments that the plan names.
    pub idle_ms_per_second: Option<f64>,
    /// Memory of Steward's daemon that is its own (`RssAnon`), in KiB, every few seconds.
    pub daemon_memory_kib: Vec<u64>,
    /// In an experiment on memory, what the machine's memory went through.
    #[serde(default)]
    pub memory: Option<MachineMemory>,
    /// In an experiment on memory, what was free when the run began.
    #[serde(default)]
    pub free_at_start: Option<FreeMemory>,
    /// In an experiment on the disk, what that did.
    #[serde(default)]
    pub disk: Option<MachineDisk>,
}

/// Longest text in one [`Record::Output`], in bytes.
pub const PIECE_BYTES: usize = 16_384;

/// Cuts `text` into pieces of at most [`PIECE_BYTES`], at character boundaries.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len().min(PIECE_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_put_together_are_the_text() {
        let text = "ä1".repeat(PIECE_BYTES);
        assert!(pieces(&text).all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(pieces(&text).collect::<String>(), text);
        assert_eq!(pieces("").count(), 0);
    }
}

//! What happens in a run of the memory machine: its memory and disks, the domains, the programs, and how Steward is
//! set.

use steward_core::memory::source::Source;

use crate::random::Amount;

/// The whole of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All that is random depends on this alone.
    pub seed: u64,
    /// The machine.
    pub machine: MachineSettings,
    /// Sizes of files, in bytes. Any program may read or map them.
    pub files: Vec<u64>,
    /// Domains, parents before children.
    pub domains: Vec<DomainSpec>,
    /// Programs.
    pub programs: Vec<ProgramSpec>,
    /// What is set anew meanwhile.
    pub changes: Vec<Change>,
    /// How Steward is set; `None`: it is not there.
    pub steward: Option<StewardSettings>,
}

/// The machine. Bytes and nanoseconds.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// All memory that the kernel hands out.
    pub total_bytes: u64,
    /// What it keeps for itself.
    pub kernel_bytes: u64,
    /// With less free than this, who allocates takes memory itself, and waits for it.
    pub min_watermark_bytes: u64,
    /// With less free than this, the kernel's background reclaim begins.
    pub low_watermark_bytes: u64,
    /// With this much free, it ends.
    pub high_watermark_bytes: u64,
    /// The size of the swap.
    pub swap_bytes: u64,
    /// How long it takes to write or read a group there, one after the other.
    pub swap_ns: u64,
    /// How long it takes to read a group of a file, one after the other.
    pub disk_ns: u64,
}

impl Default for MachineSettings {
    /// 512 MiB with a fast disk.
    fn default() -> Self {
        MachineSettings {
            total_bytes: 512 << 20,
            kernel_bytes: 32 << 20,
            min_watermark_bytes: 4 << 20,
            low_watermark_bytes: 8 << 20,
            high_watermark_bytes: 12 << 20,
            swap_bytes: 1 << 30,
            swap_ns: 700_000,
            disk_ns: 700_000,
        }
    }
}

/// A domain.
#[derive(Clone, Copy, Debug)]
pub struct DomainSpec {
    /// The user that it belongs to.
    pub user: u32,
    /// The domain above, before it.
    pub parent: Option<usize>,
    /// Order among its siblings: a higher one comes first.
    pub priority: u8,
    /// Its part among siblings of one priority; at least 1.
    pub weight: u32,
    /// Whether a program of it goes by what is available to it, and says so by watching that.
    pub adapts: bool,
    /// What it is promised, in bytes: the kernel's minimum from the start.
    pub min_bytes: u64,
    /// How much of its own programs may be in the swap, in bytes; `None` for all (`memory.swap.max`).
    pub swap_max_bytes: Option<u64>,
    /// Protected, and how.
    pub protected: Option<ProtectedSpec>,
}

impl Default for DomainSpec {
    fn default() -> Self {
        DomainSpec {
            user: 0,
            parent: None,
            priority: 4,
            weight: 100,
            adapts: false,
            min_bytes: 0,
            swap_max_bytes: None,
            protected: None,
        }
    }
}

/// How a domain is to be protected.
#[derive(Clone, Copy, Debug)]
pub struct ProtectedSpec {
    /// What was used within this time is kept, in nanoseconds.
    pub period_ns: u64,
    /// Whether it may be demoted.
    pub is_revocable: bool,
}

/// A program.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// Its domain.
    pub domain: usize,
    /// When it starts, in nanoseconds.
    pub start_ns: u64,
    /// When it ends, in nanoseconds.
    pub end_ns: Option<u64>,
    /// What it does.
    pub behaviour: Behaviour,
}

/// What a program does.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Uses so much over and over, in order, with this much time for each group.
    Hog {
        /// How much, in bytes.
        bytes: u64,
        /// How long it works on a group, in nanoseconds.
        group_ns: u64,
    },
    /// Takes so much a second and keeps it. What it could not have in time it takes as soon as it can.
    Grower {
        /// How fast it grows.
        bytes_per_second: u64,
        /// How much it takes, in bytes.
        bytes: u64,
    },
    /// Sleeps, then uses all of its memory.
    Interactive(Interactive),
    /// Reads a file from begin to end over and over, through a file descriptor.
    Reader {
        /// Which one.
        file: usize,
        /// How fast at most.
        bytes_per_second: u64,
    },
    /// Uses over and over what is available to its domain, and looks ten times a second how much that is.
    Adaptive {
        /// At most so much, in bytes.
        bytes: u64,
    },
    /// A collector of garbage that adapts. Its heap grows to 15/16 of what is available to its domain, and is then gone
    /// through and used anew; where less is available than it has, it gives up what exceeds 7/8.
    Collector {
        /// How fast it allocates.
        bytes_per_second: u64,
        /// Its heap is no smaller than this, in bytes.
        kept_bytes: u64,
    },
}

/// A program that sleeps, and then uses all of its memory at once.
#[derive(Clone, Copy, Debug)]
pub struct Interactive {
    /// How much of its own it begins with, in bytes.
    pub bytes: u64,
    /// A file that it has mapped.
    pub file: Option<usize>,
    /// How long it sleeps.
    pub pause: Amount,
    /// The first of its memory that it uses only every so many times, in bytes.
    pub rare_bytes: u64,
    /// How many times.
    pub rare_every: u32,
    /// It grows by up to this much at a time, in bytes,
    pub burst_bytes: u64,
    /// no more often than this, in nanoseconds,
    pub burst_every_ns: u64,
    /// up to this, in bytes; then it gives up half.
    pub most_bytes: u64,
}

/// Something that is set anew.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Of which domain.
    pub domain: usize,
    /// Its weight from then on; at least 1.
    pub weight: u32,
}

/// How Steward is set. Nanoseconds and bytes.
#[derive(Clone, Debug)]
pub struct StewardSettings {
    /// How often it observes the machine.
    pub look_every_ns: u64,
    /// How often it compares what is free with what is to be.
    pub check_every_ns: u64,
    /// It takes at most this until a minimum is in the kernel.
    pub write_ns: u64,
    /// How many threads take memory.
    pub threads: usize,
    /// By what it is known what protected domains use.
    pub source: Source,
    /// What an ageing costs of CPU time for each group.
    pub age_group_ns: u64,
    /// What is kept free on top of the kernel's high watermark.
    pub reserve_bytes: u64,
    /// What all may be promised together, as a part of the memory.
    pub reservable: f64,
}

impl Default for StewardSettings {
    fn default() -> Self {
        StewardSettings {
            look_every_ns: 250_000_000,
            check_every_ns: 20_000_000,
            write_ns: 100_000_000,
            threads: 4,
            source: Source::Mglru,
            age_group_ns: 10_000,
            reserve_bytes: 16 << 20,
            reservable: 0.8,
        }
    }
}

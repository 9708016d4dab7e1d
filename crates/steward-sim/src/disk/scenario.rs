//! What happens in a run of the disk machine: its device, cgroups, programs, and whether Steward is there.

use steward_core::disk::{Class, Settings};

use crate::random::Amount;

/// The whole of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All that is random depends on this alone.
    pub seed: u64,
    /// The disk.
    pub device: DeviceSettings,
    /// How much may be written later.
    pub cache: CacheSettings,
    /// Cgroups, parents before children.
    pub cgroups: Vec<CgroupSpec>,
    /// Programs.
    pub programs: Vec<ProgramSpec>,
    /// What is set anew meanwhile.
    pub changes: Vec<Change>,
    /// How Steward is set; `None`: it is not there, and nothing orders requests.
    pub steward: Option<StewardSettings>,
}

/// The disk. Bytes and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSettings {
    /// What each request takes, whatever its size.
    pub request_ns: u64,
    /// What it carries in a second beside that.
    pub bytes_per_second: u64,
    /// By what part of it the time of a request varies, up or down.
    pub variation: f64,
    /// How many requests it works on at once, each in its own time.
    pub depth: usize,
    /// Whether it rotates, or says so.
    pub is_rotational: bool,
    /// The largest request.
    pub request_bytes_max: u64,
}

impl DeviceSettings {
    /// The lab's disk of 10 ms (docs/lab-machine.md): 10.09 ms for 4 KiB, 11.9 ms for 512 KiB, one at a time.
    pub fn rotating() -> Self {
        DeviceSettings {
            request_ns: 10_075_000,
            bytes_per_second: 287_000_000,
            variation: 0.0,
            depth: 1,
            is_rotational: true,
            request_bytes_max: 512 << 10,
        }
    }

    /// The lab's disk of 0.1 ms: four at once, 0.18 ms for 4 KiB.
    pub fn solid_state() -> Self {
        DeviceSettings {
            request_ns: 172_000,
            bytes_per_second: 125_000_000,
            depth: 4,
            is_rotational: false,
            ..DeviceSettings::rotating()
        }
    }
}

/// How much may be written later. Bytes.
#[derive(Clone, Copy, Debug)]
pub struct CacheSettings {
    /// With so much to be written, who writes more waits; with half of it, it is begun to be written.
    pub dirty_bytes_max: u64,
    /// How many requests of a cgroup's are handed on at once for that.
    pub flusher_requests: usize,
    /// Whether a commit waits for what was being written of others' files. Today's ext4 converts what it has written
    /// later (`dioread_nolock` with delayed allocation), and waits for none of it; without extents (ext3), and with
    /// `nodioread_nolock` or `nodelalloc`, all do (docs/disk.md).
    pub commits_wait_for_data: bool,
}

impl Default for CacheSettings {
    fn default() -> Self {
        CacheSettings { dirty_bytes_max: 48 << 20, flusher_requests: 8, commits_wait_for_data: false }
    }
}

/// A cgroup.
#[derive(Clone, Debug)]
pub struct CgroupSpec {
    /// Its path. What begins with `steward.` was made by Steward, which may give it weights.
    pub path: String,
    /// What it is given of the disk.
    pub given: Settings,
}

/// A program.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The place of its cgroup; `None`: the root.
    pub cgroup: Option<usize>,
    /// When it starts, in nanoseconds.
    pub start_ns: u64,
    /// When it ends, in nanoseconds.
    pub end_ns: Option<u64>,
    /// What its specification says of the disk.
    pub class: Option<Class>,
    /// The place of the program whose process it is a thread of; `None`: it is a process of its own.
    pub process: Option<usize>,
    /// Whether it is a new process, and not another thread, that goes on after so many pieces. The first one has
    /// started it, which does no more than that from then on, and it has the priority of that one.
    pub starts_anew: bool,
    /// The period of its reservation of CPU time, in nanoseconds.
    pub period_ns: Option<u64>,
    /// What it does.
    pub behaviour: Behaviour,
}

/// What a program does. Bytes and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// Reads or writes past the cache, one piece after the other.
    Direct {
        /// How much at a time.
        bytes: u64,
        /// What it does between two pieces.
        think: Amount,
        /// After so many pieces another thread goes on.
        pieces: Option<u32>,
    },
    /// Writes a piece and waits until it is on the disk, over and over.
    Sync {
        /// How much at a time.
        bytes: u64,
        /// What it does in between.
        think: Amount,
    },
    /// Saves a file now and then, and waits until it is on the disk.
    Save {
        /// How large the file is.
        bytes: u64,
        /// How often.
        every_ns: u64,
    },
    /// Reads a piece now and then: a film.
    Frames {
        /// How much at a time.
        bytes: u64,
        /// How often.
        every_ns: u64,
    },
    /// Writes into the cache, as fast as that takes it.
    Buffered {
        /// How fast at most.
        bytes_per_second: u64,
    },
}

/// Something that is set anew.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Of which cgroup.
    pub cgroup: usize,
    /// What it is given from then on.
    pub given: Settings,
}

/// How Steward is set. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StewardSettings {
    /// How often it is looked who is to be served how.
    pub look_every_ns: u64,
    /// It takes so long until what is wanted is in the kernel.
    pub write_ns: u64,
    /// It takes so long until the thread hears that somebody waits; `None`: nothing tells it.
    pub told_after_ns: Option<u64>,
}

impl Default for StewardSettings {
    fn default() -> Self {
        StewardSettings { look_every_ns: 1_000_000_000, write_ns: 30_000_000, told_after_ns: Some(100_000) }
    }
}

//! The resources that are divided.

/// What is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// The disk's time.
    Disk,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::Cpu, Resource::Memory, Resource::Disk];

    /// What a task can stand still for though it has a CPU.
    pub const STALLS: [Resource; 2] = [Resource::Memory, Resource::Disk];

    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Disk => "disk",
        }
    }

    /// What it is called in sentences.
    pub fn words(self) -> &'static str {
        match self {
            Resource::Cpu => "CPU time",
            Resource::Memory => "memory",
            Resource::Disk => "disk time",
        }
    }
}

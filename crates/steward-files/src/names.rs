//! The names in the tree: the control files of a domain, and the numbers by which the kernel knows what it has looked
//! up.

use std::collections::HashMap;

/// A control file of a domain (Eclipse 1998, table 1, made hierarchical).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlFile {
    /// CPU reserved, in percent of the parent's.
    Cpu,
    /// What is reserved on the domain's level, its own part included, in percent of the parent's CPU.
    CpuSum,
    /// The most that can be reserved on the domain's level, in percent of the parent's CPU.
    CpuLimit,
    /// Share of the unreserved rest.
    CpuWeight,
    /// Order among siblings.
    CpuPriority,
    /// Disk time reserved, in percent of the parent's.
    Io,
    /// How soon the domain's disk requests are served.
    IoClass,
    /// The most that the domain may read, and write, of each disk in a second.
    IoMax,
    /// What is reserved on the domain's level.
    IoSum,
    /// The most that can be reserved on the domain's level.
    IoLimit,
    /// Memory promised, in bytes.
    Memory,
    /// The most memory that the domain may use, in bytes.
    MemoryMax,
    /// For how long one of its pages may go unused before it may be taken.
    MemoryProtect,
    /// How much memory the domain may use now, in bytes.
    MemoryAvailable,
    /// What is promised on the domain's level, in bytes.
    MemorySum,
    /// The most that can be promised on the domain's level, in bytes.
    MemoryLimit,
    /// The order among domains that is in force.
    Sched,
    /// The processes of the domain.
    Members,
    /// Everything about the domain, for people.
    Status,
    /// What the domain and its tasks got, wanted, will get and could get of the CPU.
    Forecast,
    /// The reader's last refused change, and why.
    LastError,
}

impl ControlFile {
    /// All of them, in the order in which they are listed.
    pub const ALL: [ControlFile; 21] = [
        ControlFile::Cpu,
        ControlFile::CpuSum,
        ControlFile::CpuLimit,
        ControlFile::CpuWeight,
        ControlFile::CpuPriority,
        ControlFile::Io,
        ControlFile::IoClass,
        ControlFile::IoMax,
        ControlFile::IoSum,
        ControlFile::IoLimit,
        ControlFile::Memory,
        ControlFile::MemoryMax,
        ControlFile::MemoryProtect,
        ControlFile::MemoryAvailable,
        ControlFile::MemorySum,
        ControlFile::MemoryLimit,
        ControlFile::Sched,
        ControlFile::Members,
        ControlFile::Status,
        ControlFile::Forecast,
        ControlFile::LastError,
    ];

    /// Its name in the domain's directory.
    pub fn name(self) -> &'static str {
        match self {
            ControlFile::Cpu => "cpu",
            ControlFile::CpuSum => "cpu.sum",
            ControlFile::CpuLimit => "cpu.limit",
            ControlFile::CpuWeight => "cpu.weight",
            ControlFile::CpuPriority => "cpu.priority",
            ControlFile::Io => "io",
            ControlFile::IoClass => "io.class",
            ControlFile::IoMax => "io.max",
            ControlFile::IoSum => "io.sum",
            ControlFile::IoLimit => "io.limit",
            ControlFile::Memory => "memory",
            ControlFile::MemoryMax => "memory.max",
            ControlFile::MemoryProtect => "memory.protect",
            ControlFile::MemoryAvailable => "memory.available",
            ControlFile::MemorySum => "memory.sum",
            ControlFile::MemoryLimit => "memory.limit",
            ControlFile::Sched => "sched",
            ControlFile::Members => "members",
            ControlFile::Status => "status",
            ControlFile::Forecast => "forecast",
            ControlFile::LastError => "last_error",
        }
    }

    /// The file of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }

    /// Whether something can be written to it, by whoever may.
    pub fn is_writable(self) -> bool {
        matches!(
            self,
            ControlFile::Cpu
                | ControlFile::CpuWeight
                | ControlFile::CpuPriority
                | ControlFile::Io
                | ControlFile::IoClass
                | ControlFile::IoMax
                | ControlFile::Memory
                | ControlFile::MemoryMax
                | ControlFile::MemoryProtect
                | ControlFile::Members
        )
    }
}

/// Something in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The tree's own root.
    Root,
    /// The link to the reader's own domain.
    Own,
    /// The reader's last refused change, beside the domains too, so that a refused `mkdir` can be explained.
    LastError,
    /// The forecasts of all tasks.
    Forecasts,
    /// A domain, by its name; the empty name is the root of all domains.
    Domain(String),
    /// A control file of a domain.
    File(String, ControlFile),
}

/// The number of the tree's root, which FUSE fixes.
const ROOT: u64 = 1;
const OWN: u64 = 2;
const LAST_ERROR: u64 = 3;
const FORECASTS: u64 = 4;
/// A domain's number is a multiple of this, and its files have the next numbers.
const STRIDE: u64 = 32;
/// The root of all domains.
const ALL_DOMAINS: u64 = STRIDE;

/// Which number means what. A domain keeps its number for as long as the kernel remembers it or one of its files, so
/// this is bounded by what the kernel holds in memory itself.
#[derive(Debug)]
pub struct Numbers {
    by_number: HashMap<u64, Known>,
    by_name: HashMap<String, u64>,
    next: u64,
}

#[derive(Debug)]
struct Known {
    name: String,
    /// How often the kernel was told of it or its files without having forgotten that since.
    lookups: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { by_number: HashMap::new(), by_name: HashMap::new(), next: 2 * STRIDE }
    }
}

impl Numbers {
    /// What a number means; `None` when it was forgotten.
    pub fn node(&self, number: u64) -> Option<Node> {
        match number {
            ROOT => return Some(Node::Root),
            OWN => return Some(Node::Own),
            LAST_ERROR => return Some(Node::LastError),
            FORECASTS => return Some(Node::Forecasts),
            _ => {}
        }
        let domain = number - number % STRIDE;
        let name = match domain {
            ALL_DOMAINS => String::new(),
            _ => self.by_number.get(&domain)?.name.clone(),
        };
        match (number % STRIDE) as usize {
            0 => Some(Node::Domain(name)),
            index => Some(Node::File(name, *ControlFile::ALL.get(index - 1)?)),
        }
    }

    /// The number to show for a node, without the kernel remembering it.
    pub fn peek(&self, node: &Node) -> u64 {
        let domain = |name: &str| match name {
            "" => ALL_DOMAINS,
            // A listing may show what nobody has looked up: any number will do, and the next one is as good.
            _ => self.by_name.get(name).copied().unwrap_or(self.next),
        };
        match node {
            Node::Root => ROOT,
            Node::Own => OWN,
            Node::LastError => LAST_ERROR,
            Node::Forecasts => FORECASTS,
            Node::Domain(name) => domain(name),
            Node::File(name, file) => {
                let index = ControlFile::ALL.iter().position(|known| known == file).unwrap_or(0);
                domain(name) + 1 + index as u64
            }
        }
    }

    /// The number of a node that the kernel is told of and remembers from now on.
    pub fn remember(&mut self, node: &Node) -> u64 {
        if let Node::Domain(name) | Node::File(name, _) = node
            && !name.is_empty()
        {
            let number = *self.by_name.entry(name.clone()).or_insert_with(|| {
                let number = self.next;
                self.next += STRIDE;
                number
            });
            let known =
                self.by_number.entry(number).or_insert_with(|| Known { name: name.clone(), lookups: 0 });
            known.lookups += 1;
        }
        self.peek(node)
    }

    /// The kernel has forgotten `lookups` of what it was told about this number.
    pub fn forget(&mut self, number: u64, lookups: u64) {
        let domain = number - number % STRIDE;
        let Some(known) = self.by_number.get_mut(&domain) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0
            && let Some(known) = self.by_number.remove(&domain)
        {
            self.by_name.remove(&known.name);
        }
    }
}

/// The name of a domain's child.
pub fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_domain_is_made_with_the_name_of_a_control_file() {
        let names = steward_core::domain::Names::default();
        for file in ControlFile::ALL {
            let refused = names.path_to_make(file.name()).expect_err(file.name());
            assert!(refused.contains("control files"), "{refused}");
            assert!(names.path_to_make(&format!("web/{}", file.name())).is_err(), "{}", file.name());
        }
    }

    #[test]
    fn a_number_means_the_same_until_the_kernel_forgets_it() {
        let mut numbers = Numbers::default();
        let nodes = [
            Node::Root,
            Node::Own,
            Node::LastError,
            Node::Forecasts,
            Node::Domain(String::new()),
            Node::File(String::new(), ControlFile::Status),
            Node::Domain("a".into()),
            Node::Domain("a/b".into()),
            Node::File("a/b".into(), ControlFile::Cpu),
            Node::File("a/b".into(), ControlFile::LastError),
        ];
        let known: Vec<u64> = nodes.iter().map(|node| numbers.remember(node)).collect();
        for (node, number) in nodes.iter().zip(&known) {
            assert_eq!(numbers.node(*number).as_ref(), Some(node));
            assert_eq!(numbers.peek(node), *number);
        }
        let mut distinct = known.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), known.len());
        // The directory and two files of a/b were looked up once each.
        numbers.forget(known[7], 1);
        numbers.forget(known[8], 1);
        assert_eq!(numbers.node(known[7]), Some(nodes[7].clone()));
        numbers.forget(known[9], 1);
        assert_eq!(numbers.node(known[7]), None);
        assert_eq!(numbers.node(known[6]), Some(nodes[6].clone()));
    }

    #[test]
    fn every_file_is_found_by_its_name_and_fits_beside_its_directory() {
        for file in ControlFile::ALL {
            assert_eq!(ControlFile::find(file.name()), Some(file));
        }
        assert_eq!(ControlFile::find("cpu.max"), None);
        assert!((ControlFile::ALL.len() as u64) < STRIDE);
    }
}

//! The holder of file pages: pages that are charged to another cgroup are taken from a program when that cgroup is
//! reclaimed, stay while they are held, and can be taken again afterwards. There are two cgroups: `other` reads a file
//! first and is charged for it, `own` has the program that maps half of it.

use std::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steward_core::resource::Resource;
use steward_kernel::Roots;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::memory::hold::{Capacity, Holder};

use crate::program::Program;
use crate::{Check, MIB, Outcome, mib, must};

const OTHER: &str = "memory-probe-other";
const OWN: &str = "memory-probe-own";
const FILE_BYTES: u64 = 8 * MIB;
/// What the program maps of it.
const MAPPED_BYTES: u64 = 4 * MIB;
const BUDGET: Duration = Duration::from_secs(60);
/// How often all is taken that can be, before what is left counts as not to be had.
const RECLAIMS: usize = 8;

/// The checks, in the order in which they are made.
pub const CHECKS: [Check<Probe>; 8] = [
    ("another-cgroup-is-charged", Probe::charge),
    ("unheld-pages-are-taken", Probe::unheld),
    ("held-pages-stay-though-their-cgroup-is-reclaimed", Probe::held),
    ("holding-changes-no-charge", Probe::unchanged),
    ("what-a-limited-cgroup-is-charged-for-is-let-go-and-not-held", Probe::limited),
    ("a-cgroup-is-limited-by-those-above-it", Probe::limited_above),
    ("pages-are-let-go-when-the-program-is-not-protected", Probe::let_go),
    ("a-dropped-holder-holds-nothing", Probe::dropped),
];

pub struct Probe {
    roots: Roots,
    file: PathBuf,
    executable: PathBuf,
    other: Program,
    own: Program,
    holder: Option<Holder>,
    /// What both cgroups were charged for before anything was held.
    charged: (u64, u64),
}

impl Probe {
    pub fn start(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let roots = Roots::default();
        let tree = CgroupTree::open(&roots)?;
        let (file, executable) = (directory.join("memory-probe.mapped"), directory.join("memory-probe"));
        std::fs::copy(std::env::current_exe()?, &executable)?;
        tree.hand_out("", Resource::Memory, true)?;
        let start = |cgroup| -> Result<Program, Box<dyn Error>> {
            tree.create(cgroup)?;
            let program = Program::start(&executable, &roots)?;
            tree.move_process(program.task.tid, cgroup)?;
            Ok(program)
        };
        let (mut other, mut own) = (start(OTHER)?, start(OWN)?);
        other.ask(&format!("file {FILE_BYTES} {}", file.display()))?;
        own.ask(&format!("map {MAPPED_BYTES} {}", file.display()))?;
        Ok(Probe { roots, file, executable, other, own, holder: None, charged: (0, 0) })
    }

    fn charge(&mut self) -> Outcome {
        self.own.ask("use-mapped")?;
        let (other, own) = (self.stat(OTHER, "file")?, self.stat(OWN, "file")?);
        must(other >= FILE_BYTES, format!("other is charged for {}", mib(other)))?;
        must(own < MIB, format!("own is charged for {}", mib(own)))?;
        self.must_map(MAPPED_BYTES)?;
        Ok(format!("other for {}, own for {}", mib(other), mib(own)))
    }

    fn unheld(&mut self) -> Outcome {
        self.reclaim()?;
        self.must_map(0)?;
        Ok(format!("all {} taken", mib(MAPPED_BYTES)))
    }

    fn held(&mut self) -> Outcome {
        self.warm()?;
        self.charged = (self.stat(OTHER, "file")?, self.stat(OWN, "file")?);
        let mut holder = self.new_holder()?;
        let refreshed = holder.refresh(&[self.own.task], BUDGET)?;
        println!("{refreshed:?}\n{:?}", holder.processes());
        must(refreshed.complete && refreshed.failure.is_none(), "it did not come to the end")?;
        let files = holder.files();
        self.holder = Some(holder);
        let of = |path: &Path| -> Result<u64, Box<dyn Error>> {
            let inode = std::fs::metadata(path)?.ino();
            Ok(files.iter().filter(|(key, _)| key.inode == inode).map(|(_, bytes)| bytes).sum())
        };
        let (file, executable) = (of(&self.file)?, of(&self.executable)?);
        must(file == MAPPED_BYTES, format!("{} of the file", mib(file)))?;
        must(executable > 0, "nothing of the executable")?;
        let charged = (self.stat(OTHER, "file")?, self.stat(OWN, "file")?);
        must(charged == self.charged, format!("{charged:?} and not {:?} before", self.charged))?;

        self.reclaim()?;
        self.must_map(MAPPED_BYTES)?;
        let before = self.own.major_faults()?;
        self.own.ask("use-mapped")?;
        let faults = self.own.major_faults()? - before;
        must(faults == 0, format!("{faults} major faults"))?;
        let left = self.stat(OTHER, "file")?;
        must(left < MAPPED_BYTES + MIB, format!("{} are left, and not only what is held", mib(left)))?;
        Ok(format!("{} held, {} of the executable, in {:?}", mib(file), mib(executable), refreshed.duration))
    }

    fn unchanged(&mut self) -> Outcome {
        let (unevictable, own) = (self.stat(OTHER, "unevictable")?, self.stat(OWN, "file")?);
        must(unevictable >= MAPPED_BYTES, format!("{} of other cannot be taken", mib(unevictable)))?;
        must(
            own <= self.charged.1,
            format!("own is charged for {}, before {}", mib(own), mib(self.charged.1)),
        )?;
        Ok(format!("{} of other cannot be taken, own is charged for {}", mib(unevictable), mib(own)))
    }

    /// Other's memory is limited while its pages are held, and then for some refreshes.
    fn limited(&mut self) -> Outcome {
        let held = |probe: &mut Probe| -> Result<u64, Box<dyn Error>> {
            let holder = probe.holder.as_mut().ok_or("nothing was held")?;
            let refreshed = holder.refresh(&[probe.own.task], BUDGET)?;
            must(refreshed.complete && refreshed.failure.is_none(), format!("{refreshed:?}"))?;
            Ok(refreshed.held_bytes)
        };
        self.warm()?;
        let all = held(self)?;
        must(all >= MAPPED_BYTES, format!("{} held", mib(all)))?;
        for (file, limit) in [("memory.high", 4 * FILE_BYTES), ("memory.max", 4 * FILE_BYTES)] {
            let path = self.roots.cgroup.join(OTHER).join(file);
            std::fs::write(&path, limit.to_string())?;
            for _ in 0..40 {
                self.warm()?;
                let left = held(self)?;
                must(
                    left + MAPPED_BYTES <= all,
                    format!("{} of {} are held beside {file}", mib(left), mib(all)),
                )?;
                let unevictable = self.stat(OTHER, "unevictable")?;
                must(
                    unevictable == 0,
                    format!("{} of other cannot be taken beside {file}", mib(unevictable)),
                )?;
            }
            std::fs::write(&path, "max")?;
            let mut refreshes = 1;
            while held(self)? < all {
                refreshes += 1;
                must(refreshes < 40, "without a limit it is not held again")?;
            }
        }
        Ok(format!("{} let go, and held again without a limit", mib(MAPPED_BYTES)))
    }

    fn limited_above(&mut self) -> Outcome {
        let tree = CgroupTree::open(&self.roots)?;
        let (above, below) = ("memory-probe-above", "memory-probe-above/one/two");
        tree.create(above)?;
        tree.hand_out(above, Resource::Memory, true)?;
        tree.create("memory-probe-above/one")?;
        // Its parent hands out no memory, so that it has no limits of its own.
        let id = tree.create(below)?.id;
        let limit = |path: &str, bytes: &str| {
            std::fs::write(self.roots.cgroup.join(path), bytes).map_err(|error| format!("{path}: {error}"))
        };
        let mut seen = vec![tree.is_memory_limited(id)?];
        for path in ["memory-probe-above/memory.max", "memory-probe-above/one/memory.high"] {
            limit(path, "1G")?;
            seen.push(tree.is_memory_limited(id)?);
            limit(path, "max")?;
            seen.push(tree.is_memory_limited(id)?);
        }
        for path in [below, "memory-probe-above/one", above] {
            tree.remove(path)?;
        }
        must(seen == [false, true, false, true, false], format!("{seen:?}"))?;
        must(tree.is_memory_limited(id).is_err(), "one that has gone is there")?;
        Ok("by those and by nobody else".to_owned())
    }

    fn let_go(&mut self) -> Outcome {
        let holder = self.holder.as_mut().ok_or("nothing was held")?;
        let refreshed = holder.refresh(&[], BUDGET)?;
        must(refreshed.complete && refreshed.held_bytes == 0, format!("{refreshed:?}"))?;
        self.reclaim()?;
        self.must_map(0)?;
        Ok(format!("{} of other cannot be taken", mib(self.stat(OTHER, "unevictable")?)))
    }

    fn dropped(&mut self) -> Outcome {
        self.warm()?;
        let mut holder = self.holder.take().ok_or("nothing was held")?;
        let refreshed = holder.refresh(&[self.own.task], BUDGET)?;
        must(refreshed.held_bytes >= MAPPED_BYTES, format!("{refreshed:?}"))?;
        self.reclaim()?;
        self.must_map(MAPPED_BYTES)?;
        drop(holder);
        self.reclaim()?;
        self.must_map(0)?;
        let unevictable = self.stat(OTHER, "unevictable")?;
        must(unevictable == 0, format!("{} of other cannot be taken", mib(unevictable)))?;
        let before = self.own.major_faults()?;
        self.own.ask("use-mapped")?;
        let faults = self.own.major_faults()? - before;
        must(faults > 0, "the program did not have to wait for the disk")?;
        Ok(format!("all taken; the program then waits for the disk {faults} times"))
    }

    fn new_holder(&self) -> Result<Holder, Box<dyn Error>> {
        let tree = CgroupTree::open(&self.roots)?;
        let is_limited = Box::new(move |id| tree.is_memory_limited(id).unwrap_or(true));
        Ok(Holder::new(Capacity { bytes_max: 64 * MIB, areas_max: 1000 }, is_limited, &self.roots)?)
    }

    /// Has the file in memory, charged to the other cgroup, and mapped by the program.
    fn warm(&mut self) -> Result<(), Box<dyn Error>> {
        self.other.ask(&format!("read {}", self.file.display()))?;
        self.own.ask("use-mapped")?;
        self.must_map(MAPPED_BYTES)
    }

    fn must_map(&self, bytes: u64) -> Result<(), Box<dyn Error>> {
        let mapped = self.own.mapped_bytes(&self.file)?;
        must(mapped == bytes, format!("{} are mapped, and not {}", mib(mapped), mib(bytes)))
    }

    /// Takes from the other cgroup all that can be had.
    fn reclaim(&self) -> Result<(), Box<dyn Error>> {
        let path = self.roots.cgroup.join(OTHER).join("memory.reclaim");
        for _ in 0..RECLAIMS {
            match std::fs::write(&path, (4 * FILE_BYTES).to_string()) {
                // Not so much could be had.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// A figure of a cgroup's memory.stat, in bytes.
    fn stat(&self, cgroup: &str, name: &str) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(self.roots.cgroup.join(cgroup).join("memory.stat"))?;
        let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(figure.ok_or_else(|| format!("{cgroup} has no {name}"))?.parse()?)
    }
}

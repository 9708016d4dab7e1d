//! What the doctor finds on a machine: facts only, without a judgement.
//!
//! Everything is read from files that most callers may read. What the caller may not read is noted, so that the
//! page can say what it does not know.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::config::{CONFIG_FILE_NAME, parse_config};
use steward_core::disk::device::Device;
use steward_core::disk::elevator::{self, InForce};
use steward_core::memory::source::{Choice, Source};

use crate::cgroup::place;
use crate::disk::below::device_of_file;
use crate::disk::calibrations::{Calibrations, Damaged};
use crate::disk::mounted::{self, WrittenByRoot};
use crate::disk::{devices, elevators};
use crate::error::KernelError;
use crate::journal;
use crate::memory::ages::{self, NoPageAges};
use crate::memory::slow;
use crate::memory::swap;
use crate::process;
use crate::roots::{Roots, read_if_present};

/// How the names of Steward's own schedulers begin.
pub const SCHEDULER_NAME: &str = "steward";

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release, for example `7.3.4+deb13-cloud-amd64`.
    pub release: String,
    /// Whether it is built for real time (PREEMPT_RT).
    pub realtime: bool,
    /// The tick's frequency in Hz, if the kernel's configuration is at hand.
    pub tick_hz: Option<u32>,
    /// Loadable schedulers.
    pub sched_ext: SchedExt,
    /// Whether the kernel describes its types (BTF), without which no scheduler can be loaded.
    pub btf: bool,
    /// The kernel's lockdown mode (`none`, `integrity`, `confidentiality`), if it has one.
    pub lockdown: Option<String>,
    /// `kernel.unprivileged_bpf_disabled`: 0, 1 or 2.
    pub unprivileged_bpf_disabled: Option<u32>,
    /// Control groups.
    pub cgroup: Cgroup,
    /// Whether the kernel counts how long tasks run and wait (`/proc/*/schedstat`).
    #[serde(default)]
    pub scheduling_statistics: bool,
    /// Whether programs can serve files (FUSE).
    #[serde(default)]
    pub fuse: bool,
    /// Pressure stall information.
    pub pressure: Pressure,
    /// Whether the kernel keeps the ages of pages (MGLRU); `None` where it can not.
    pub page_ages: Option<bool>,
    /// For memory, beside pressure.
    #[serde(default)]
    pub memory: Memory,
    /// Disks that can be ordered, or say why not, and those devices that hand their requests to them.
    #[serde(default)]
    pub disks: Vec<Device>,
    /// What the configuration says something of as of a disk, and no disk is called or known so.
    #[serde(default)]
    pub no_such_disks: Vec<String>,
    /// File systems on these of which it is not known whose pages are written back.
    #[serde(default)]
    pub written_by_root: Vec<WrittenByRoot>,
    /// What Steward does with disks, as far as the caller may read that.
    #[serde(default)]
    pub disks_in_force: InForce,
    /// Whether this kernel has the elevator that serves classes, built in or as a module; `None` where that is not
    /// known.
    #[serde(default)]
    pub has_elevator: Option<bool>,
    /// CPU time that real-time and deadline tasks may use together in every period, in microseconds; -1: all of it.
    pub realtime_budget_us: Option<i64>,
    /// The period of the above, in microseconds.
    pub realtime_period_us: Option<u64>,
    /// Whether the kernel groups ordinary tasks by session, within which alone nice values count then.
    pub autogroup: Option<bool>,
    /// Who asks.
    pub caller: Caller,
    /// Programs that manage the same things.
    pub managers: Vec<Manager>,
    /// What could not be read, with the reason.
    pub not_seen: Vec<String>,
}

/// What the kernel offers of sched_ext.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SchedExt {
    /// Whether it is built in.
    pub present: bool,
    /// `enabled`, `disabled`, or on the way from one to the other.
    pub state: Option<String>,
    /// The name of the loaded scheduler.
    pub loaded: Option<String>,
    /// The callbacks that a scheduler can have here, of those that came after 6.12.
    pub cgroup_weight: bool,
    /// As above, for `cpu.max`.
    pub cgroup_bandwidth: bool,
    /// As above, for `cpu.idle`.
    pub cgroup_idle: bool,
    /// Whether the kernel says where a task was when it was preempted (`sched_entry_tp`).
    #[serde(default)]
    pub whereabouts: bool,
    /// Whether the kernel keeps some CPU time for the scheduler's tasks when real-time tasks want all of it.
    pub server: bool,
}

/// What the kernel offers of control groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// The controllers of the unified hierarchy; `None` where it is not mounted in its usual place.
    pub controllers: Option<Vec<String>>,
    /// The controllers that are on hierarchies of version 1, out of reach of the unified one.
    pub version_1_controllers: Vec<String>,
}

/// What the kernel offers for memory, beside pressure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Why the ages of pages cannot be read; `None` where they can.
    pub no_page_ages: Option<NoPageAges>,
    /// A disk that rotates, from which what was taken may have to come back.
    #[serde(default)]
    pub slow_disk: Option<String>,
    /// By what it is known what protected domains use, unless `memory.ages` of the configuration says otherwise; `None`
    /// where who asks may not see that.
    #[serde(default)]
    pub used_from: Option<Source>,
    /// Whether memory can be taken from a cgroup (`memory.reclaim`).
    pub reclaim: bool,
    /// Room for what is swapped out, in bytes.
    pub swap_bytes: u64,
}

/// Whether pressure stall information can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Yes.
    On,
    /// It is built in but was not turned on at boot.
    Off,
    /// It is not built in.
    #[default]
    Absent,
}

/// Who asks, and what that lets them do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caller {
    /// The effective user id.
    pub uid: u32,
    /// CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN: may load a scheduler.
    pub may_load_scheduler: bool,
    /// CAP_SYS_NICE: may give reservations.
    pub may_schedule: bool,
}

/// A program that manages what Steward manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// Its process, if that is how it was seen.
    pub pid: Option<i32>,
    /// What it sets that Steward sets too.
    pub sets: String,
}

/// Bits of `CapEff` (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 21;
const CAP_SYS_NICE: u64 = 23;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

/// Names of processes, as the kernel cuts them, and what those programs set.
const KNOWN_MANAGERS: [(&str, &str, &str); 6] = [
    ("gamemoded", "GameMode", "nice values and I/O priorities of games"),
    ("ananicy", "ananicy", "nice values and scheduling policies by program"),
    ("ananicy-cpp", "ananicy-cpp", "nice values and scheduling policies by program"),
    ("tuned", "TuneD", "scheduler and memory settings of the whole machine"),
    ("scx_loader", "scx_loader", "which sched_ext scheduler is loaded"),
    ("uresourced", "uresourced", "cpu.weight and memory.low of user sessions"),
];

/// Reads everything, and notes what can not be read.
pub(super) struct Look<'a> {
    roots: &'a Roots,
    not_seen: Vec<String>,
}

impl<'a> Look<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        Look { roots, not_seen: Vec::new() }
    }

    pub(super) fn facts(mut self) -> Facts {
        let release = self.proc("sys/kernel/osrelease").unwrap_or_default();
        let (mut disks, no_such_disks) = self.disks();
        let (sched_ext, memory) = (self.sched_ext(), self.memory(&disks));
        let listed = disks.iter().flat_map(|disk| &disk.elevators).map(String::as_str);
        let has_elevator = elevators::can_be_had(elevator::BY_CLASS, listed, self.roots);
        disks.iter_mut().for_each(|disk| disk.lacks_by_class = has_elevator == Some(false));
        let mut facts = Facts {
            realtime: self.sys("kernel/realtime").as_deref() == Some("1"),
            tick_hz: self.tick_hz(&release),
            release,
            btf: self.roots.sys.join("kernel/btf/vmlinux").exists(),
            lockdown: self.sys("kernel/security/lockdown").as_deref().and_then(chosen),
            unprivileged_bpf_disabled: self.proc_number("sys/kernel/unprivileged_bpf_disabled"),
            cgroup: self.cgroup(),
            scheduling_statistics: self.roots.proc.join("self/schedstat").exists(),
            fuse: self.fuse(),
            pressure: self.pressure(),
            page_ages: match memory.no_page_ages {
                Some(NoPageAges::NotInKernel) => None,
                obstacle => Some(obstacle != Some(NoPageAges::TurnedOff)),
            },
            memory,
            has_elevator,
            disks_in_force: self.disks_in_force(),
            written_by_root: self.written_by_root(&disks),
            disks,
            no_such_disks,
            realtime_budget_us: self.proc_number("sys/kernel/sched_rt_runtime_us"),
            realtime_period_us: self.proc_number("sys/kernel/sched_rt_period_us"),
            autogroup: self.proc("sys/kernel/sched_autogroup_enabled").map(|value| value == "1"),
            caller: self.caller(),
            managers: self.managers(&sched_ext),
            sched_ext,
            not_seen: Vec::new(),
        };
        facts.not_seen = self.not_seen;
        facts
    }

    fn read(&mut self, path: PathBuf) -> Option<String> {
        match read_if_present(&path) {
            Ok(text) => text,
            Err(error) => {
                self.not_seen.push(error.to_string());
                None
            }
        }
    }

    fn proc(&mut self, name: &str) -> Option<String> {
        self.read(self.roots.proc.join(name))
    }

    fn sys(&mut self, name: &str) -> Option<String> {
        self.read(self.roots.sys.join(name))
    }

    fn proc_number<T: std::str::FromStr>(&mut self, name: &str) -> Option<T> {
        self.proc(name)?.parse().ok()
    }

    fn sched_ext(&mut self) -> SchedExt {
        let state = self.sys("kernel/sched_ext/state");
        let types = self.type_names();
        let has = |name: &str| contains_name(&types, name);
        SchedExt {
            present: state.is_some(),
            loaded: self.sys("kernel/sched_ext/root/ops").filter(|name| !name.is_empty()),
            cgroup_weight: state.is_some() && has("cgroup_set_weight"),
            cgroup_bandwidth: state.is_some() && has("cgroup_set_bandwidth"),
            cgroup_idle: state.is_some() && has("cgroup_set_idle"),
            whereabouts: state.is_some() && has("btf_trace_sched_entry_tp"),
            server: state.is_some() && has("ext_server"),
            state,
        }
    }

    /// The kernel's description of its types; the names of all their fields are in it as plain text.
    fn type_names(&mut self) -> Vec<u8> {
        let path = self.roots.sys.join("kernel/btf/vmlinux");
        match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => {
                let error = KernelError::Read { path, source };
                if !error.is_absent() {
                    self.not_seen.push(error.to_string());
                }
                Vec::new()
            }
        }
    }

    /// From the configuration that distributions install beside the kernel.
    fn tick_hz(&mut self, release: &str) -> Option<u32> {
        let root = self.roots.proc.parent().unwrap_or(Path::new("/"));
        let config = self.read(root.join(format!("boot/config-{release}")))?;
        config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?.parse().ok()
    }

    fn cgroup(&mut self) -> Cgroup {
        let controllers = place::controllers(self.roots).unwrap_or_else(|error| {
            self.not_seen.push(error.to_string());
            None
        });
        // Name, hierarchy, cgroups, enabled; hierarchy 0 is the unified one (Documentation/admin-guide/cgroup-v1).
        let listed = self.proc("cgroups").unwrap_or_default();
        let version_1 = listed.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let name = fields.next()?;
            (fields.next()? != "0").then(|| name.to_owned())
        });
        Cgroup { controllers, version_1_controllers: version_1.collect() }
    }

    fn memory(&mut self, disks: &[Device]) -> Memory {
        let swap = swap::areas(self.roots).unwrap_or_else(|error| {
            self.not_seen.push(error.to_string());
            Vec::new()
        });
        let no_page_ages = ages::obstacle(self.roots);
        self.not_seen.extend(
            no_page_ages
                .filter(|obstacle| *obstacle == NoPageAges::Denied)
                .map(|obstacle| format!("whether page ages can be had: {}", obstacle.why())),
        );
        let slow_disk = slow::disk(disks).map(str::to_owned);
        let is_seen = no_page_ages != Some(NoPageAges::Denied) || self.caller().uid == 0;
        let source = Choice::Auto.source(no_page_ages.is_none(), slow_disk.is_some());
        Memory {
            no_page_ages,
            used_from: is_seen.then_some(source),
            slow_disk,
            // The root has it too, where any cgroup has it.
            reclaim: self.roots.cgroup.join("memory.reclaim").exists(),
            swap_bytes: swap.iter().map(|area| area.size_bytes).sum(),
        }
    }

    /// Those that can be ordered, or say why not, and what the configuration says of disks that are not there.
    fn disks(&mut self) -> (Vec<Device>, Vec<String>) {
        let mut listed = devices::list(self.roots).unwrap_or_else(|error| {
            self.not_seen.push(error.to_string());
            Vec::new()
        });
        // Where the daemon's state directory is unless it was told another.
        let root = self.roots.proc.parent().unwrap_or(Path::new("/"));
        let (kept, wrong) = Calibrations::read(&root.join("var/lib/steward"), Damaged::Stays);
        kept.tell(&mut listed);
        self.not_seen.extend(wrong.map(|why| format!("what is known of calibrated disks: {why}")));
        // In the same way; the daemon says what is wrong with it.
        let path = root.join("etc/steward").join(CONFIG_FILE_NAME);
        let text = self.read(path.clone()).unwrap_or_default();
        let config = parse_config(&path, &text).0.disk;
        for device in &mut listed {
            device.order = config.order_of(&device.name, &device.identity);
        }
        let disks = listed.iter().map(|device| (device.name.as_str(), device.identity.as_str()));
        let no_such = config.without_device(disks);
        // Memory that nobody has set up has a size of nothing.
        let mut has_room = |device: &Device| {
            let size = self.read(self.roots.sys.join("block").join(&device.name).join("size"));
            size.is_some_and(|size| size.trim() != "0")
        };
        let is_told = |device: &Device| {
            !device.stands_for_others || !device.below.is_empty() || device.is_memory() && has_room(device)
        };
        (listed.into_iter().filter(is_told).collect(), no_such)
    }

    fn written_by_root(&self, disks: &[Device]) -> Vec<WrittenByRoot> {
        let own = disks.iter().filter(|disk| disk.is_own() && disk.queues);
        let names: Vec<&str> = own.map(|disk| disk.name.as_str()).collect();
        mounted::written_by_root(&names, self.roots, device_of_file)
    }

    /// By the daemon's undo journal, where it is unless it was told otherwise. Not everybody may read it: then it is
    /// taken for what it is usually.
    fn disks_in_force(&self) -> InForce {
        let root = self.roots.proc.parent().unwrap_or(Path::new("/"));
        let given = journal::given_elevators_of(&root.join("var/lib/steward/undo.journal"), self.roots);
        InForce { given }
    }

    /// Built in, loaded, or to be loaded by whoever opens the device.
    fn fuse(&mut self) -> bool {
        let root = self.roots.proc.parent().unwrap_or(Path::new("/"));
        let filesystems = self.proc("filesystems").unwrap_or_default();
        filesystems.split_ascii_whitespace().any(|name| name == "fuse") || root.join("dev/fuse").exists()
    }

    fn pressure(&mut self) -> Pressure {
        let path = self.roots.proc.join("pressure/cpu");
        match (path.exists(), self.read(path)) {
            (_, Some(_)) => Pressure::On,
            (true, None) => Pressure::Off,
            (false, None) => Pressure::Absent,
        }
    }

    fn caller(&mut self) -> Caller {
        let status = self.proc("self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let effective = field("CapEff:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        let has = |capability: u64| effective >> capability & 1 == 1;
        let uids = field("Uid:").unwrap_or_default();
        Caller {
            uid: uids.split_ascii_whitespace().nth(1).and_then(|uid| uid.parse().ok()).unwrap_or(u32::MAX),
            may_load_scheduler: has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)),
            may_schedule: has(CAP_SYS_NICE),
        }
    }

    fn managers(&mut self, sched_ext: &SchedExt) -> Vec<Manager> {
        let all = process::list_first_threads(self.roots).unwrap_or_else(|error| {
            self.not_seen.push(error.to_string());
            Vec::new()
        });
        let mut found: Vec<Manager> = all
            .iter()
            .filter(|process| !process.kernel_thread)
            .filter_map(|process| {
                let (name, sets) = manager(&process.name, process.id.tid)?;
                Some(Manager { name, pid: Some(process.id.tid), sets })
            })
            .collect();
        let ours = |name: &str| name.starts_with(SCHEDULER_NAME);
        if let Some(name) = sched_ext.loaded.as_deref().filter(|name| !ours(name)) {
            let sets = "the CPU scheduler (it is loaded now)".into();
            found.push(Manager { name: format!("the sched_ext scheduler {name}"), pid: None, sets });
        }
        found
    }
}

/// Which manager a process is, by its name, and what that sets.
fn manager(process: &str, pid: i32) -> Option<(String, String)> {
    if pid == 1 && process == "systemd" {
        return Some((
            "systemd".into(),
            "cpu.weight, cpu.max and memory limits of units that ask for them".into(),
        ));
    }
    let known = KNOWN_MANAGERS.iter().find(|(known, _, _)| *known == process);
    let from_table = known.map(|(_, name, sets)| ((*name).into(), (*sets).into()));
    let scheduler = || process.starts_with("scx_").then(|| (process.into(), "the CPU scheduler".into()));
    from_table.or_else(scheduler)
}

/// The choice in brackets, as in `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Whether a name stands between two zero bytes.
fn contains_name(types: &[u8], name: &str) -> bool {
    let mut needle = vec![0];
    needle.extend_from_slice(name.as_bytes());
    needle.push(0);
    types.windows(needle.len()).any(|window| window == needle)
}

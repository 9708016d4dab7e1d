//! The thread that looks for signs of use. It is woken when a terminal or an input device is read, and looks at
//! counters about once a second; at those whose protection has lapsed four times, so that they are protected again
//! before the second key.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::memory::activity::{Activity, Change, Seen};
use steward_core::memory::signs::{Circumstances, Counted, Evidence, Meter, Sign};
use steward_kernel::cgroup::place::Place;
use steward_kernel::cgroup::reading::CgroupReader;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::process::terminals::{Reads, device_of, input_devices};
use steward_kernel::{KernelError, Roots, process};

use super::exchange::{Known, News, State, Wanted, Watched};
use crate::memory::shared::Shared;
use crate::turn::clock::{cpu_time_ns, now_ns};
use crate::turn::front::Bell;

/// Between two looks at all domains, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// Between two looks at those whose protection has lapsed.
const LAPSED_NS: u64 = 250_000_000;
/// Between two looks at which processes there are, and which terminals they have.
const SCAN_NS: u64 = 2_000_000_000;
/// What looking may cost is 1 of so many parts of a CPU; and so long it is put off for that at most.
const COST_PART: u64 = 500;
const PUT_OFF_MAX_NS: u64 = 30_000_000_000;
/// The same of looking at once because there are others to watch.
const HURRY_PART: u64 = 50;
/// Below one domain about so many cgroups are looked at, at most.
const CGROUPS_MAX: usize = 1_024;
/// So many terminals of one user's domains are watched at most: each is a watch of inotify, of which root has only so
/// many for all that it does, and anybody may have thousands of terminals.
const TERMINALS_OF_ONE_MAX: usize = 128;
/// A device that was read is waited for again after this; sooner where somebody's protection has lapsed, who may be the
/// next to read.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_LAPSED_NS: u64 = 100_000_000;
/// Its nice value: the first key has to wake it while others run.
const NICE: i32 = -20;
/// Within this time whoever was meant runs after an input device was read.
const REACTION_NS: u64 = 150_000_000;

/// The thread's own.
pub(super) struct Turns {
    shared: Arc<Shared<State>>,
    bell: Bell,
    roots: Roots,
    activity: Activity,
    reads: Option<Reads>,
    tree: Option<CgroupTree>,
    /// By device: the domains that have processes there, by path, with those processes.
    terminals: BTreeMap<PathBuf, Vec<(String, i32)>>,
    inputs: Vec<PathBuf>,
    /// Domains with a process in the foreground of a terminal, by path.
    with_foreground: BTreeSet<String>,
    domains: BTreeMap<String, Domain>,
    /// When an input device was read last.
    input_at_ns: Option<u64>,
    scan_at_ns: u64,
    /// From when on there may be another scan because there are others to watch, which anybody who may protect a domain
    /// can bring about all the time.
    scan_again_ns: u64,
    look_at_ns: u64,
    lapsed_at_ns: u64,
    /// When devices that were read are waited for again.
    again_at_ns: Option<u64>,
    known: BTreeMap<String, Known>,
    /// Why something cannot be seen: who is there, what is counted, what is read.
    problems: [Option<String>; 3],
}

/// What is kept of one domain.
struct Domain {
    id: u64,
    counters: CgroupReader,
    meter: Meter,
    looked_at_ns: u64,
}

impl Turns {
    pub(super) fn new(shared: Arc<Shared<State>>, bell: Bell, roots: Roots) -> Self {
        Turns {
            shared,
            bell,
            roots,
            activity: Activity::default(),
            reads: None,
            tree: None,
            terminals: BTreeMap::new(),
            inputs: Vec::new(),
            with_foreground: BTreeSet::new(),
            domains: BTreeMap::new(),
            input_at_ns: None,
            scan_at_ns: 0,
            scan_again_ns: 0,
            look_at_ns: 0,
            lapsed_at_ns: 0,
            again_at_ns: None,
            known: BTreeMap::new(),
            problems: [const { None }; 3],
        }
    }

    pub(super) fn run(mut self) {
        // Without the right to it, it is woken later while others run.
        let _ = rustix::process::setpriority_process(None, NICE);
        loop {
            let (wanted, ends) = {
                let state = self.shared.lock();
                (Arc::clone(&state.wanted), state.ends)
            };
            if ends {
                return;
            }
            if wanted.domains.is_empty() {
                self.rest();
            } else {
                self.turn(now_ns(), &wanted);
            }
            if self.wait(wanted.domains.is_empty()) {
                // There are others to watch.
                self.scan_at_ns = self.scan_at_ns.min(self.scan_again_ns);
            }
        }
    }

    /// No domain is protected any more.
    fn rest(&mut self) {
        self.activity.decide(0, None, &[]);
        self.reads = None;
        self.terminals.clear();
        self.domains.clear();
        self.known.clear();
        self.problems = [const { None }; 3];
        self.tell(Vec::new(), None);
    }

    fn turn(&mut self, now_ns: u64, wanted: &Wanted) {
        let mut signs = BTreeMap::new();
        self.find(now_ns, wanted, &mut signs);
        let problem = self.problems.iter().flatten().next().map(|why| {
            format!("whether protected domains are in use cannot be seen, so all stay protected: {why}")
        });
        let seen: Vec<Seen<'_>> = wanted.watched().map(|domain| seen(now_ns, domain, &signs)).collect();
        let idle_ns = wanted.idle_ns.filter(|_| problem.is_none());
        let changes = self.activity.decide(now_ns, idle_ns, &seen);
        for Watched { path, user, .. } in wanted.watched() {
            let Some(standing) = self.activity.standings().get(path).copied() else { continue };
            let spans = self.activity.times(path, user, now_ns);
            self.known.insert(path.to_owned(), Known { standing, spans });
        }
        self.known.retain(|path, _| self.activity.standings().contains_key(path));
        self.tell(changes, problem);
    }

    fn tell(&mut self, changes: Vec<Change>, problem: Option<String>) {
        let mut state = self.shared.lock();
        let rings = !changes.is_empty() || state.news.problem != problem;
        let mut untold = std::mem::take(&mut state.news.changes);
        untold.extend(changes);
        state.news = News { known: self.known.clone(), changes: untold, problem };
        state.are_new = true;
        if rings {
            // With the lock, so that whoever takes the news finds it rung.
            self.bell.ring();
        }
    }

    /// Everything that is due; signs by path.
    fn find(&mut self, now_ns: u64, wanted: &Wanted, signs: &mut BTreeMap<String, Evidence>) {
        let read = self.reads.as_mut().map(Reads::take).unwrap_or_default();
        self.take_reads(now_ns, &read, signs);
        if now_ns >= self.scan_at_ns {
            let (outcome, cost_ns) = timed(|| self.scan(wanted));
            self.problems[0] = outcome.err().map(|error| error.to_string());
            self.scan_at_ns = now_ns + put_off_ns(SCAN_NS, cost_ns);
            self.scan_again_ns = now_ns + cost_ns.saturating_mul(HURRY_PART).min(SCAN_NS);
            self.again_at_ns = Some(now_ns);
        }
        let all = now_ns >= self.look_at_ns;
        if all || self.is_any_lapsed() && now_ns >= self.lapsed_at_ns {
            let (outcome, cost_ns) = timed(|| self.look(now_ns, wanted, all, signs));
            self.problems[1] = outcome.err().map(|error| error.to_string());
            self.lapsed_at_ns = now_ns + put_off_ns(LAPSED_NS, cost_ns);
            if all {
                self.look_at_ns = now_ns + put_off_ns(LOOK_NS, cost_ns);
            }
        }
        if self.again_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            self.problems[2] = self.await_read().err().map(|error| {
                format!(
                    "terminals and input devices cannot be watched: {error}; raise fs.inotify.max_user_instances or \
                     fs.inotify.max_user_watches"
                )
            });
        }
    }

    /// Waits for the next read of each device.
    fn await_read(&mut self) -> io::Result<()> {
        let devices: Vec<&Path> = self.terminals.keys().chain(&self.inputs).map(PathBuf::as_path).collect();
        let reads = match &mut self.reads {
            Some(reads) => reads,
            None => self.reads.insert(Reads::new()?),
        };
        reads.await_read(&devices)
    }

    fn is_any_lapsed(&self) -> bool {
        self.activity.standings().values().any(|standing| standing.is_lapsed)
    }

    /// Takes in which devices were read.
    fn take_reads(&mut self, now_ns: u64, read: &[PathBuf], signs: &mut BTreeMap<String, Evidence>) {
        if read.is_empty() {
            return;
        }
        let again_ns = if self.is_any_lapsed() { AGAIN_LAPSED_NS } else { AGAIN_NS };
        self.again_at_ns = Some(now_ns + again_ns);
        for device in read {
            if self.inputs.contains(device) {
                self.input_at_ns = Some(now_ns);
                self.lapsed_at_ns = self.lapsed_at_ns.min(now_ns + AGAIN_LAPSED_NS);
            }
            let here = self.terminals.get(device).into_iter().flatten();
            // The kernel lets only those in the foreground read, and who that is changes with each command.
            for (path, pid) in here {
                if process::stat(*pid, &self.roots).is_ok_and(|stat| stat.is_in_foreground()) {
                    signs.insert(path.clone(), Evidence::Terminal);
                }
            }
        }
    }

    /// Which terminals the processes of these domains have, and which input devices there are.
    fn scan(&mut self, wanted: &Wanted) -> Result<(), KernelError> {
        let tree = match &self.tree {
            Some(tree) => tree,
            None => self.tree.insert(CgroupTree::open(&self.roots)?),
        };
        self.terminals.clear();
        self.with_foreground.clear();
        let mut devices: BTreeMap<u32, Option<PathBuf>> = BTreeMap::new();
        let mut of_user: BTreeMap<u32, usize> = BTreeMap::new();
        for Watched { path, user, .. } in wanted.watched() {
            for stat in processes(tree, path).filter_map(|pid| process::stat(pid, &self.roots).ok()) {
                if stat.terminal == 0 {
                    continue;
                }
                let device = devices.entry(stat.terminal);
                let device = device.or_insert_with(|| device_of(stat.terminal, &self.roots));
                let Some(device) = device else { continue };
                if stat.is_in_foreground() {
                    self.with_foreground.insert(path.to_owned());
                }
                if !self.terminals.contains_key(device) {
                    let count = of_user.entry(user).or_default();
                    if *count == TERMINALS_OF_ONE_MAX {
                        continue;
                    }
                    *count += 1;
                }
                let here = self.terminals.entry(device.clone()).or_default();
                here.push((path.to_owned(), stat.id.tid));
            }
        }
        self.inputs = input_devices(&self.roots);
        Ok(())
    }

    /// Looks at what is counted for all of them, or for those whose protection has lapsed.
    fn look(
        &mut self,
        now_ns: u64,
        wanted: &Wanted,
        all: bool,
        signs: &mut BTreeMap<String, Evidence>,
    ) -> Result<(), KernelError> {
        let is_wanted = |path: &String, id| wanted.watched().any(|one| one.path == path && one.id == id);
        self.domains.retain(|path, domain| is_wanted(path, domain.id));
        let standings = self.activity.standings();
        let is_lapsed = |path: &str| standings.get(path).is_some_and(|standing| standing.is_lapsed);
        for Watched { path, id, .. } in wanted.watched().filter(|one| all || is_lapsed(one.path)) {
            if !self.domains.contains_key(path) {
                let place = Place { path: path.to_owned(), cgroup_id: id };
                let counters = match CgroupReader::open_same(&place, &self.roots) {
                    Ok(counters) => counters,
                    Err(error) if error.is_absent() => None,
                    Err(error) => return Err(error),
                };
                // Another one has its name by now, of which the daemon will tell.
                let Some(counters) = counters else { continue };
                let (meter, looked_at_ns) = (Meter::default(), now_ns);
                self.domains.insert(path.to_owned(), Domain { id, counters, meter, looked_at_ns });
            }
            let Some(domain) = self.domains.get_mut(path) else { continue };
            let input_until_ns = self.input_at_ns.map(|at_ns| at_ns + REACTION_NS);
            let circumstances = Circumstances {
                was_input: input_until_ns.is_some_and(|until_ns| until_ns >= domain.looked_at_ns),
                has_terminal: self.with_foreground.contains(path),
            };
            let Some(counted) = count(&domain.counters)? else { continue };
            domain.looked_at_ns = now_ns;
            let idle_ns = wanted.idle_ns.unwrap_or(u64::MAX);
            if let Some(evidence) = domain.meter.look(now_ns, idle_ns, counted, circumstances) {
                signs.entry(path.to_owned()).or_insert(evidence);
            }
        }
        Ok(())
    }

    /// Until something is due, or happens. Whether there is something new to watch.
    fn wait(&self, is_idle: bool) -> bool {
        let mut until_ns = self.look_at_ns.min(self.scan_at_ns);
        if self.is_any_lapsed() {
            until_ns = until_ns.min(self.lapsed_at_ns);
        }
        until_ns = until_ns.min(self.again_at_ns.unwrap_or(u64::MAX));
        let left_ns = until_ns.saturating_sub(now_ns());
        let timeout =
            Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 };
        let mut waits = vec![PollFd::new(&self.bell, PollFlags::IN)];
        waits.extend(self.reads.as_ref().map(|reads| PollFd::new(reads, PollFlags::IN)));
        // Interrupted or not, the next turn looks at everything.
        let _ = poll(&mut waits, if is_idle { None } else { Some(&timeout) });
        self.bell.has_rung()
    }
}

/// The processes of a cgroup and of all below it: whoever uses one of those uses it. Of one that has gone there are
/// none.
fn processes(tree: &CgroupTree, path: &str) -> impl Iterator<Item = i32> {
    let mut paths = vec![path.to_owned()];
    let mut next = 0;
    while let Some(path) = paths.get(next).filter(|_| paths.len() < CGROUPS_MAX) {
        let below = tree.children(path).unwrap_or_default();
        paths.extend(below.into_iter().map(|cgroup| cgroup.path));
        next += 1;
    }
    paths.into_iter().flat_map(|path| tree.processes(&path).unwrap_or_default())
}

fn seen<'path>(now_ns: u64, domain: Watched<'path>, signs: &BTreeMap<String, Evidence>) -> Seen<'path> {
    let sign = signs.get(domain.path).map(|evidence| Sign { evidence: *evidence, at_ns: now_ns });
    Seen { path: domain.path, id: domain.id, user: domain.user, sign }
}

/// What the kernel has counted for a cgroup; `None` when it has gone.
fn count(counters: &CgroupReader) -> Result<Option<Counted>, KernelError> {
    let read = || {
        let cpu_ns = counters.cpu_used_ns()?.unwrap_or(0);
        let major_faults = counters.memory_stat()?.unwrap_or_default().major_faults;
        Ok(Counted { cpu_ns, major_faults })
    };
    match read() {
        Ok(counted) => Ok(Some(counted)),
        Err(error) if KernelError::is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// With the CPU time that it took, in nanoseconds.
fn timed<T>(does: impl FnOnce() -> T) -> (T, u64) {
    let begun_ns = cpu_time_ns();
    let outcome = does();
    (outcome, cpu_time_ns().saturating_sub(begun_ns))
}

/// When the next is due after one that cost so much.
fn put_off_ns(every_ns: u64, cost_ns: u64) -> u64 {
    cost_ns.saturating_mul(COST_PART).clamp(every_ns, PUT_OFF_MAX_NS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const IDLE_NS: u64 = 60 * SECOND_NS;

    /// A machine of files: a domain with a process, which has a terminal of its own.
    struct Machine {
        directory: tempfile::TempDir,
        turns: Turns,
        wanted: Wanted,
        _other_end: Bell,
    }

    impl Machine {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let (bell, _other_end) = Bell::pair().expect("a pair");
            std::fs::create_dir_all(directory.path().join("sys/fs/cgroup")).expect("a directory");
            let roots = Roots::under(directory.path());
            let tree = CgroupTree::open_any(&roots).expect("it is there");
            let turns = Turns { tree: Some(tree), ..Turns::new(Arc::default(), bell, roots) };
            let machine = Machine { directory, turns, wanted: Wanted::default(), _other_end };
            machine.write("terminal", "x");
            let terminal = machine.path("terminal");
            machine.write("sys/dev/char/4:1/uevent", &format!("DEVNAME={}\n", terminal.display()));
            machine.count(0, 0);
            machine.write("sys/fs/cgroup/steward.a/cgroup.procs", "42\n");
            machine.foreground(42);
            let id = std::fs::metadata(machine.path("sys/fs/cgroup/steward.a")).expect("a directory").ino();
            let domains = vec![("steward.a".to_owned(), id, 0)];
            Machine { wanted: Wanted { domains, idle_ns: Some(IDLE_NS) }, ..machine }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }

        /// What the kernel has counted for the domain.
        fn count(&self, cpu_ms: u64, major_faults: u64) {
            self.write("sys/fs/cgroup/steward.a/cpu.stat", &format!("usage_usec {}\n", cpu_ms * 1_000));
            self.write("sys/fs/cgroup/steward.a/memory.stat", &format!("pgmajfault {major_faults}\n"));
        }

        /// This process group is in the foreground of the terminal; that of the process is 42.
        fn foreground(&self, group: i32) {
            let zeros = "0 ".repeat(30);
            let stat = format!("42 (sh) S 1 42 42 1025 {group} 0 {zeros} 1 {zeros}\n");
            self.write("proc/42/stat", &stat);
        }

        fn read_terminal(&self) {
            std::fs::read(self.path("terminal")).expect("readable");
        }

        /// Whose protection has lapsed (`true`) or is back, by what sign, and what is wrong.
        fn turn(&mut self, at_ns: u64) -> (Vec<(bool, Evidence)>, Option<String>) {
            self.turns.turn(at_ns, &self.wanted);
            let mut state = self.turns.shared.lock();
            let changes = std::mem::take(&mut state.news.changes);
            let changes = changes.iter().map(|change| (change.is_lapsed, change.last.evidence));
            (changes.collect(), state.news.problem.clone())
        }
    }

    #[test]
    fn what_the_foreground_program_reads_brings_protection_back_in_the_same_turn() {
        let mut machine = Machine::new();
        assert_eq!(machine.turn(SECOND_NS), (vec![], None));
        assert_eq!(machine.turn(SECOND_NS + IDLE_NS), (vec![(true, Evidence::Protected)], None));
        machine.read_terminal();
        let at_ns = SECOND_NS + IDLE_NS + 1;
        assert_eq!(machine.turn(at_ns), (vec![(false, Evidence::Terminal)], None));
        let known = machine.turns.known["steward.a"];
        assert_eq!(known.standing.last, Sign { evidence: Evidence::Terminal, at_ns });
    }

    #[test]
    fn what_another_program_reads_from_the_same_terminal_is_no_sign() {
        let mut machine = Machine::new();
        machine.foreground(7);
        machine.turn(SECOND_NS);
        machine.turn(SECOND_NS + IDLE_NS);
        machine.read_terminal();
        assert_eq!(machine.turn(SECOND_NS + IDLE_NS + 1), (vec![], None));
        // Its shell puts it into the foreground, and it reads a moment later.
        machine.foreground(42);
        let later_ns = SECOND_NS + IDLE_NS + AGAIN_LAPSED_NS + 1;
        machine.turn(later_ns);
        machine.read_terminal();
        assert_eq!(machine.turn(later_ns + 1), (vec![(false, Evidence::Terminal)], None));
    }

    #[test]
    fn one_whose_protection_has_lapsed_is_looked_at_four_times_a_second_and_others_once() {
        let mut machine = Machine::new();
        machine.foreground(7);
        machine.turn(SECOND_NS);
        machine.count(0, 100);
        assert_eq!(machine.turn(SECOND_NS * 3 / 2), (vec![], None));
        assert_eq!(machine.turns.known["steward.a"].standing.last.evidence, Evidence::Protected);
        machine.turn(SECOND_NS * 2);
        assert_eq!(machine.turns.known["steward.a"].standing.last.evidence, Evidence::Faults);
        let lapsed_ns = SECOND_NS * 2 + IDLE_NS;
        assert_eq!(machine.turn(lapsed_ns).0, [(true, Evidence::Faults)]);
        machine.count(0, 200);
        assert_eq!(machine.turn(lapsed_ns + LAPSED_NS).0, [(false, Evidence::Faults)]);
    }

    #[test]
    fn who_has_thousands_of_terminals_leaves_watches_to_others() {
        let mut machine = Machine::new();
        // A user with many, each with a process in the foreground of it.
        let many: Vec<i32> = (100..100 + 2 * TERMINALS_OF_ONE_MAX as i32).collect();
        for pid in &many {
            let zeros = "0 ".repeat(30);
            // The device 136:N, as /proc/PID/stat has it.
            let terminal = (136 << 8) | (pid & 0xff) | ((pid & !0xff) << 12);
            let stat = format!("{pid} (sh) S 1 {pid} {pid} {terminal} {pid} 0 {zeros} 1 {zeros}\n");
            machine.write(&format!("proc/{pid}/stat"), &stat);
            let name = format!("pts/{pid}");
            machine.write(&name, "x");
            let device = machine.path(&name);
            let uevent = format!("DEVNAME={}\n", device.display());
            machine.write(&format!("sys/dev/char/136:{pid}/uevent"), &uevent);
        }
        let pids = many.iter().map(|pid| format!("{pid}\n")).collect::<String>();
        machine.write("sys/fs/cgroup/steward.0/cgroup.procs", &pids);
        machine.write("sys/fs/cgroup/steward.0/cpu.stat", "usage_usec 0\n");
        machine.write("sys/fs/cgroup/steward.0/memory.stat", "pgmajfault 0\n");
        let id = std::fs::metadata(machine.path("sys/fs/cgroup/steward.0")).expect("a directory").ino();
        machine.wanted.domains.insert(0, ("steward.0".to_owned(), id, 1001));
        assert_eq!(machine.turn(SECOND_NS), (vec![], None));
        let watched = machine.turns.terminals.values().flatten();
        let of_many = watched.filter(|(path, _)| path == "steward.0").count();
        assert_eq!(of_many, TERMINALS_OF_ONE_MAX);
        assert!(machine.turns.terminals.contains_key(&machine.path("terminal")), "that of another user");
    }

    #[test]
    fn where_it_cannot_be_seen_who_is_in_use_nobodys_protection_lapses() {
        let mut machine = Machine::new();
        machine.turns.tree = None;
        std::fs::remove_dir_all(machine.path("sys/fs/cgroup")).expect("removed");
        for at_ns in [SECOND_NS, SECOND_NS + IDLE_NS, SECOND_NS + IDLE_NS + 1, SECOND_NS + 9 * IDLE_NS] {
            let (changes, problem) = machine.turn(at_ns);
            let problem = problem.expect("there is nothing to see");
            assert!(changes.is_empty() && problem.contains("so all stay protected"), "{problem}");
        }
    }
}

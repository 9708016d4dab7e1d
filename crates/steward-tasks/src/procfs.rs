//! The reader where BPF cannot be used: two small files of procfs for each task, `stat` and `schedstat`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use steward_core::cpu::forecast::{Changed, TaskReading, TaskSample};
use steward_core::cpu::nice;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::{KernelError, Roots};

use crate::{Source, TasksError, class_of, steady};

/// Nanoseconds per clock tick as procfs counts them (`USER_HZ`, 100 on every machine that Linux runs on).
const TICK_NS: u64 = 10_000_000;
/// How old what is known of cgroups' members may be, in nanoseconds.
const MEMBERS_FOR_NS: u64 = 1_000_000_000;

/// All tasks through procfs.
///
/// procfs tells a wait only once it is over. A task that is runnable at two reads in a row, and whose counters have not
/// moved in between, has waited since the first of them: that much is added.
pub struct Procfs {
    roots: Roots,
    cgroups: Option<CgroupTree>,
    /// The cgroup of each process, and of each thread that is in another one than its process.
    members: HashMap<i32, u64>,
    members_at_ns: u64,
    root_id: u64,
    /// Waits that last, by thread id.
    waits: HashMap<i32, Wait>,
    samples: Vec<TaskSample>,
}

/// A task that was runnable when it was read.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Its start, and its counters: while these stay the same, nothing has moved.
    state: (u64, u64, u64),
    since_ns: u64,
}

/// What `stat` and `schedstat` say.
#[derive(Debug, PartialEq)]
struct Files {
    name: [u8; 16],
    runnable: bool,
    ended: bool,
    nice: i32,
    threads: u64,
    started_ticks: u64,
    policy: u32,
    run_ns: u64,
    wait_ns: u64,
}

impl Procfs {
    /// Reads the tasks of this procfs, and their cgroups where there is a unified hierarchy.
    pub fn new(roots: Roots) -> Self {
        let cgroups = CgroupTree::open(&roots).ok();
        let (members, waits) = (HashMap::new(), HashMap::new());
        Procfs { roots, cgroups, members, members_at_ns: 0, root_id: 0, waits, samples: Vec::new() }
    }

    /// Who is in which cgroup: a file per cgroup instead of one per task.
    fn read_members(&mut self, now_ns: u64) {
        let Some(tree) = self.cgroups.as_ref() else { return };
        if self.members_at_ns != 0 && now_ns.abs_diff(self.members_at_ns) < MEMBERS_FOR_NS {
            return;
        }
        self.members_at_ns = now_ns;
        self.members.clear();
        for cgroup in tree.list().unwrap_or_default() {
            // A cgroup of threads alone refuses to list processes.
            let members = tree.processes(&cgroup.path).or_else(|_| tree.threads(&cgroup.path));
            self.members.extend(members.unwrap_or_default().into_iter().map(|id| (id, cgroup.id)));
            if cgroup.path.is_empty() {
                self.root_id = cgroup.id;
            }
        }
    }

    /// The cgroup of a task; the root where nothing is known of it, 0 where there are no cgroups.
    fn cgroup_of(&self, tid: i32, pid: i32) -> u64 {
        self.members.get(&tid).or_else(|| self.members.get(&pid)).copied().unwrap_or(self.root_id)
    }

    fn read_process(&mut self, pid: i32, now_ns: u64, samples: &mut Vec<TaskSample>) {
        let directory = self.roots.proc.join(pid.to_string());
        let Some(first) = Files::read(&directory) else { return };
        let Ok(owner) = std::fs::metadata(&directory) else { return };
        let whose = (pid, owner.uid());
        if first.threads <= 1 {
            return self.push(pid, whose, &first, now_ns, samples);
        }
        let tasks = directory.join("task");
        for tid in numbers_in(&tasks).unwrap_or_default() {
            if let Some(files) = Files::read(&tasks.join(tid.to_string())) {
                self.push(tid, whose, &files, now_ns, samples);
            }
        }
    }

    fn push(
        &mut self,
        tid: i32,
        (pid, uid): (i32, u32),
        files: &Files,
        now_ns: u64,
        samples: &mut Vec<TaskSample>,
    ) {
        if files.ended {
            return;
        }
        let wait_ns = files.wait_ns + self.lasting_wait_ns(tid, files, now_ns);
        samples.push(TaskSample {
            tid,
            pid,
            started_ns: files.started_ticks.saturating_mul(TICK_NS),
            uid,
            cgroup_id: self.cgroup_of(tid, pid),
            name: files.name,
            class: class_of(files.policy),
            weight: nice::weight(files.nice),
            run_ns: files.run_ns,
            wait_ns,
            runnable: files.runnable,
            reserved: 0.0,
        });
    }

    /// How long the task has certainly waited beyond what is counted.
    fn lasting_wait_ns(&mut self, tid: i32, files: &Files, now_ns: u64) -> u64 {
        let state = (files.started_ticks, files.run_ns, files.wait_ns);
        if !files.runnable {
            self.waits.remove(&tid);
            return 0;
        }
        let wait = self.waits.entry(tid).or_insert(Wait { state, since_ns: now_ns });
        if wait.state != state {
            *wait = Wait { state, since_ns: now_ns };
        }
        now_ns.saturating_sub(wait.since_ns)
    }
}

impl Source for Procfs {
    fn name(&self) -> &'static str {
        "procfs"
    }

    fn read(&mut self, now_ns: u64) -> Result<TaskReading<'_>, TasksError> {
        self.read_members(now_ns);
        let mut processes = numbers_in(&self.roots.proc)
            .map_err(|source| KernelError::Read { path: self.roots.proc.clone(), source })?;
        processes.sort_unstable();
        let mut samples = Vec::with_capacity(self.samples.len());
        for pid in processes {
            self.read_process(pid, now_ns, &mut samples);
        }
        samples.sort_by_key(|sample| sample.tid);
        self.waits.retain(|tid, _| samples.binary_search_by_key(tid, |sample| sample.tid).is_ok());
        steady::correct(&self.samples, &mut samples);
        self.samples = samples;
        Ok(TaskReading { at_ns: now_ns, tasks: &self.samples, changed: Changed::All })
    }
}

impl Files {
    /// `None` when the task has ended meanwhile, or the kernel writes something else.
    fn read(directory: &Path) -> Option<Self> {
        let mut buffer = [0; 1024];
        let length = read_once(&directory.join("stat"), &mut buffer)?;
        let stat = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let length = read_once(&directory.join("schedstat"), &mut buffer)?;
        Self::parse(&stat, &String::from_utf8_lossy(&buffer[..length]))
    }

    /// The fields of proc_pid_stat(5), and of schedstat: time on the CPU, time waiting, times that it ran
    /// (Documentation/scheduler/sched-stats.rst).
    fn parse(stat: &str, schedstat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let mut name = [0; 16];
        let bytes = before.split_once('(')?.1.as_bytes();
        let count = bytes.len().min(name.len() - 1);
        name[..count].copy_from_slice(&bytes[..count]);
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        // Field 3 is the first after the name.
        let field = |number: usize| fields.get(number - 3).copied();
        let mut counters = schedstat.split_ascii_whitespace().map(str::parse::<u64>);
        Some(Files {
            name,
            runnable: field(3)? == "R",
            ended: matches!(field(3)?, "Z" | "X" | "x"),
            nice: field(19)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            started_ticks: field(22)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
            run_ns: counters.next()?.ok()?,
            wait_ns: counters.next()?.ok()?,
        })
    }
}

fn read_once(path: &Path, buffer: &mut [u8]) -> Option<usize> {
    File::open(path).and_then(|mut file| file.read(buffer)).ok()
}

fn numbers_in(directory: &Path) -> std::io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(directory)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use steward_core::cpu::forecast::SchedulingClass;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A procfs in a directory.
    struct Stand {
        directory: tempfile::TempDir,
        procfs: Procfs,
    }

    impl Stand {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let procfs = Procfs::new(Roots::under(directory.path()));
            std::fs::create_dir(directory.path().join("proc")).expect("a directory");
            Stand { directory, procfs }
        }

        fn task(&self, place: &str, name: &str, state: char, threads: u32, schedstat: &str) {
            let directory = self.directory.path().join("proc").join(place);
            std::fs::create_dir_all(&directory).expect("directories");
            let stat = format!(
                "1 ({name}) {state} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 25 5 {threads} 0 40 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5"
            );
            std::fs::write(directory.join("stat"), stat).expect("a file");
            std::fs::write(directory.join("schedstat"), schedstat).expect("a file");
        }

        fn read(&mut self, now_ns: u64) -> Vec<TaskSample> {
            self.procfs.read(now_ns).expect("there is a procfs").tasks.to_vec()
        }
    }

    #[test]
    fn every_thread_is_read_with_its_counters_and_what_cannot_be_read_is_left_out() {
        let mut stand = Stand::new();
        stand.task("9", "a) (b", 'S', 1, "100 20 3\n");
        stand.task("7", "leader", 'S', 2, "1 2 3\n");
        stand.task("7/task/7", "leader", 'S', 2, "1 2 3\n");
        stand.task("7/task/8", "worker", 'R', 2, "5 6 7\n");
        stand.task("10", "zombie", 'Z', 1, "5 6 7\n");
        stand.task("11", "broken", 'S', 1, "five\n");
        std::fs::create_dir(stand.directory.path().join("proc/12")).expect("a process that has just ended");
        let samples = stand.read(0);
        assert_eq!(samples.iter().map(|sample| sample.tid).collect::<Vec<_>>(), [7, 8, 9]);
        let (worker, single) = (&samples[1], &samples[2]);
        assert_eq!((worker.pid, worker.run_ns, worker.wait_ns, worker.runnable), (7, 5, 6, true));
        assert_eq!((single.started_ns, single.class), (400 * MS, SchedulingClass::Idle));
        assert_eq!(&single.name[..6], b"a) (b\0");
        assert_eq!(single.weight, nice::weight(5));
    }

    #[test]
    fn a_wait_that_lasts_is_counted_from_the_second_read_on_and_once() {
        let mut stand = Stand::new();
        stand.task("7", "waits", 'R', 1, "100 20 3\n");
        let wait_ns: Vec<u64> =
            [0, 100 * MS, 200 * MS].into_iter().map(|now| stand.read(now)[0].wait_ns).collect();
        assert_eq!(wait_ns, [20, 100 * MS + 20, 200 * MS + 20]);
        // It has run, and the kernel has counted the whole wait.
        stand.task("7", "waits", 'R', 1, &format!("200 {} 4\n", 250 * MS));
        assert_eq!(stand.read(300 * MS)[0].wait_ns, 250 * MS);
        stand.task("7", "waits", 'S', 1, &format!("200 {} 4\n", 250 * MS));
        assert_eq!(stand.read(400 * MS)[0].wait_ns, 250 * MS);
        // A clock that goes back adds nothing.
        stand.task("7", "waits", 'R', 1, &format!("200 {} 4\n", 250 * MS));
        assert_eq!([400 * MS, 300 * MS].map(|now| stand.read(now)[0].wait_ns), [250 * MS; 2]);
    }

    #[test]
    fn without_a_procfs_the_error_names_it() {
        let mut procfs = Procfs::new(Roots::under(Path::new("/nowhere")));
        let error = procfs.read(0).map(|_| ()).expect_err("there is none").to_string();
        assert!(error.contains("/nowhere/proc"), "{error}");
    }

    #[test]
    fn this_machine_has_this_test_in_its_procfs() {
        let mut procfs = Procfs::new(Roots::default());
        let samples = procfs.read(1).expect("Linux has it").tasks;
        let own = std::process::id() as i32;
        assert!(samples.iter().any(|sample| sample.pid == own && sample.run_ns > 0));
        assert!(samples.is_sorted_by_key(|sample| sample.tid));
    }
}

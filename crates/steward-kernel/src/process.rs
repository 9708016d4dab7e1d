//! Every process and thread, cheaply: one small file and one link per process, one small file per further thread.
//!
//! Tasks come and go while they are listed. One that vanishes half-way is left out; nothing else is an error.
//! A pid is given out again after its task has ended, so a task is known by its id and its start time together.

use std::fs::{File, read_dir};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use steward_core::printable::printable;
use steward_core::process::{Executed, Process, TaskId, Thread};

use crate::cpu::cpus;
use crate::error::KernelError;
use crate::mounts::MountTable;
use crate::roots::{Roots, read};

pub mod events;
pub mod executable;
pub mod family;
pub mod pieces;
pub mod private;
pub mod sessions;
pub mod terminals;
pub mod user_namespaces;

/// `PF_FORKNOEXEC` of include/linux/sched.h: forked, and has not executed a program since.
const FORKED_WITHOUT_EXEC: u64 = 0x40;
/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x20_0000;

/// `PF_NO_SETAFFINITY` of include/linux/sched.h: nobody may change on which CPUs it runs.
const FIXED_AFFINITY: u64 = 0x400_0000;

/// What the kernel says about one task in its `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStat {
    /// Thread id and start time.
    pub id: TaskId,
    /// The kernel's name of the task (at most 15 bytes).
    pub name: String,
    /// The state's letter (`R` running, `S` sleeping, `Z` ended but not waited for, ...).
    pub state: char,
    /// The parent's process id.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its controlling terminal, as the kernel writes a device's number there; 0 for none.
    pub terminal: u32,
    /// The process group in the foreground of that terminal.
    pub foreground: i32,
    /// The kernel's `PF_` flags.
    pub flags: u64,
    /// How many threads the process has.
    pub threads: u64,
    /// Where its stack begins; 0 where whoever asks may not know that.
    pub stack: u64,
    /// The CPU that it ran on last.
    pub cpu: u32,
}

impl TaskStat {
    /// Whether it is a thread of the kernel itself.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the kernel lets nobody change on which CPUs it runs: workers, and threads of one CPU.
    pub fn has_fixed_affinity(&self) -> bool {
        self.flags & FIXED_AFFINITY != 0
    }

    /// Whether it is in the foreground of its terminal: what is typed there is for its process group.
    pub fn is_in_foreground(&self) -> bool {
        self.terminal != 0 && self.group == self.foreground
    }

    /// Whether it has ended and only waits to be collected.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All processes with their threads, ordered by process id.
///
/// # Errors
/// [`KernelError`] when procfs itself or the caller's mountinfo cannot be read.
pub fn list(roots: &Roots) -> Result<Vec<Process>, KernelError> {
    list_as(roots, threads)
}

/// As [`list`], but each with its first thread only, which costs as much as if no process had more.
///
/// # Errors
/// As [`list`].
pub fn list_first_threads(roots: &Roots) -> Result<Vec<Process>, KernelError> {
    list_as(roots, |_, first| vec![as_thread(first.clone())])
}

/// The numbers of all processes.
///
/// # Errors
/// [`KernelError`] when procfs itself cannot be read.
pub fn numbers(roots: &Roots) -> Result<Vec<i32>, KernelError> {
    numbered_entries(&roots.proc)
}

/// The threads of a process, ordered by id; none when it has ended.
pub fn threads_of(pid: i32, roots: &Roots) -> Vec<Thread> {
    stat(pid, roots).map(|first| threads(&roots.proc.join(pid.to_string()), &first)).unwrap_or_default()
}

fn list_as(
    roots: &Roots,
    threads: impl Fn(&Path, &TaskStat) -> Vec<Thread>,
) -> Result<Vec<Process>, KernelError> {
    let mut mounts = MountTable::of_caller(roots)?;
    let mut found: Vec<Process> = numbered_entries(&roots.proc)?
        .into_iter()
        .filter_map(|pid| look_at_with(pid, roots, &mut mounts, &threads))
        .collect();
    found.sort_by_key(|process| process.id);
    Ok(found)
}

/// One process with its threads; `None` when it has ended.
///
/// # Errors
/// [`KernelError`] when the caller's mountinfo cannot be read.
pub fn find(pid: i32, roots: &Roots) -> Result<Option<Process>, KernelError> {
    Ok(look_at(pid, roots, &mut MountTable::of_caller(roots)?))
}

/// What the kernel says about one task; any thread id will do.
///
/// # Errors
/// [`KernelError::Read`] (see [`KernelError::is_absent`]: the task has ended) or [`KernelError::Parse`].
pub fn stat(tid: i32, roots: &Roots) -> Result<TaskStat, KernelError> {
    read_stat(&roots.proc.join(format!("{tid}/stat")), tid)
}

/// The process that a thread belongs to (`Tgid` of proc_pid_status(5)).
///
/// # Errors
/// [`KernelError::Read`] (see [`KernelError::is_absent`]: the task has ended) or [`KernelError::Parse`].
pub fn process_of(tid: i32, roots: &Roots) -> Result<i32, KernelError> {
    let status = Status::read(tid, roots)?;
    let number = status.numbers("Tgid:").and_then(|numbers| i32::try_from(*numbers.first()?).ok());
    number.ok_or_else(|| status.lacks("a line Tgid: NUMBER"))
}

/// What a process executed last; `None` where it cannot be told: of a thread of the kernel, or of one that has ended.
pub fn executed(pid: i32, roots: &Roots) -> Option<Executed> {
    let found = std::fs::metadata(roots.proc.join(format!("{pid}/exe"))).ok()?;
    let stat = stat(pid, roots).ok()?;
    let users = Status::read(pid, roots).ok()?.numbers("Uid:");
    Some(Executed {
        device: found.dev(),
        inode: found.ino(),
        stack: (stat.stack != 0).then_some(stat.stack),
        effective_user: users.and_then(|users| users.get(1).copied()),
    })
}

/// The user that a process belongs to: the one that is its real, effective and saved user. `None` where these differ:
/// a set-user-ID program runs for one user with the rights of another, and belongs to neither.
///
/// # Errors
/// [`KernelError::Read`] (see [`KernelError::is_absent`]: the process has ended) or [`KernelError::Parse`].
pub fn user(pid: i32, roots: &Roots) -> Result<Option<u32>, KernelError> {
    let status = Status::read(pid, roots)?;
    match status.numbers("Uid:").as_deref() {
        Some(&[real, effective, saved, _]) => Ok((real == effective && real == saved).then_some(real)),
        _ => Err(status.lacks("a line Uid: with four numbers")),
    }
}

/// The supplementary groups of a process.
///
/// # Errors
/// As [`user`].
pub fn groups(pid: i32, roots: &Roots) -> Result<Vec<u32>, KernelError> {
    let status = Status::read(pid, roots)?;
    status.numbers("Groups:").ok_or_else(|| status.lacks("a line Groups: with numbers"))
}

/// The numbers of the CPUs that a task may run on, those that are offline included (`Cpus_allowed_list` of
/// proc_pid_status(5)).
///
/// # Errors
/// [`KernelError::Read`] (see [`KernelError::is_absent`]: the task has ended) or [`KernelError::Parse`].
pub fn allowed_cpus(tid: i32, roots: &Roots) -> Result<Vec<u32>, KernelError> {
    let status = Status::read(tid, roots)?;
    let list = status.line("Cpus_allowed_list:").and_then(|list| cpus::parse_list(list.trim()));
    list.ok_or_else(|| status.lacks("a line Cpus_allowed_list: with CPUs as in 0-3,6"))
}

/// The text of a task's `status` (proc_pid_status(5)).
struct Status {
    path: PathBuf,
    text: String,
}

impl Status {
    fn read(tid: i32, roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.proc.join(format!("{tid}/status"));
        // The kernel escapes what would end a line in the name, so no program can write a line of its own here.
        let text = read(&path)?;
        Ok(Status { path, text })
    }

    /// The rest of the line that starts with `key`.
    fn line(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(key))
    }

    /// The numbers of the line that starts with `key`.
    fn numbers(&self, key: &str) -> Option<Vec<u32>> {
        self.line(key)?.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
    }

    fn lacks(&self, wanted: &'static str) -> KernelError {
        KernelError::parse(&self.path, wanted, &self.text)
    }
}

/// Whether exactly this task still runs (not another one that was given its id).
pub fn is_alive(task: TaskId, roots: &Roots) -> bool {
    stat(task.tid, roots).is_ok_and(|stat| stat.id == task && !stat.has_ended())
}

/// As [`find`], with mounts that were read before.
pub fn look_at(pid: i32, roots: &Roots, mounts: &mut MountTable) -> Option<Process> {
    look_at_with(pid, roots, mounts, &threads)
}

/// As [`look_at`], but with its first thread only.
pub fn look_at_first_thread(pid: i32, roots: &Roots, mounts: &mut MountTable) -> Option<Process> {
    look_at_with(pid, roots, mounts, &|_: &Path, first: &TaskStat| vec![as_thread(first.clone())])
}

fn look_at_with(
    pid: i32,
    roots: &Roots,
    mounts: &mut MountTable,
    threads: &impl Fn(&Path, &TaskStat) -> Vec<Thread>,
) -> Option<Process> {
    let directory = roots.proc.join(pid.to_string());
    let stat = read_stat(&directory.join("stat"), pid).ok().filter(|stat| !stat.has_ended())?;
    // The owner of this directory is the effective user (fs/proc/base.c, task_dump_owner); `status` says the same
    // but costs the kernel ten times as much to print.
    let uid = std::fs::metadata(&directory).ok()?.uid();
    let kernel_thread = stat.is_kernel_thread();
    let executable = if kernel_thread { None } else { executable::of_process(pid, roots, mounts) };
    let threads = threads(&directory, &stat);
    Some(Process {
        id: stat.id,
        parent: stat.parent,
        uid,
        kernel_thread,
        forked_without_exec: stat.flags & FORKED_WITHOUT_EXEC != 0,
        executable,
        threads,
        name: stat.name,
    })
}

fn as_thread(stat: TaskStat) -> Thread {
    Thread { id: stat.id, name: stat.name }
}

fn threads(directory: &Path, first: &TaskStat) -> Vec<Thread> {
    if first.threads <= 1 {
        return vec![as_thread(first.clone())];
    }
    let tasks = directory.join("task");
    let mut found: Vec<Thread> = numbered_entries(&tasks)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|tid| read_stat(&tasks.join(format!("{tid}/stat")), tid).ok())
        .filter(|stat| !stat.has_ended())
        .map(as_thread)
        .collect();
    found.sort_by_key(|thread| thread.id.tid);
    found
}

fn numbered_entries(directory: &Path) -> Result<Vec<i32>, KernelError> {
    let entries =
        read_dir(directory).map_err(|source| KernelError::Read { path: directory.into(), source })?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn read_stat(path: &Path, tid: i32) -> Result<TaskStat, KernelError> {
    // One read into a buffer that is always large enough: the kernel makes the line at the first one, and asking for
    // the file's size and for more costs as much again.
    let mut buffer = [0; 2048];
    let length = File::open(path)
        .and_then(|mut file| file.read(&mut buffer))
        .map_err(|source| KernelError::Read { path: path.into(), source })?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    parse_stat(&text, tid).ok_or_else(|| KernelError::parse(path, "a line as in proc_pid_stat(5)", &text))
}

/// The name stands in parentheses and may itself contain any character, so it ends at the last one.
fn parse_stat(text: &str, tid: i32) -> Option<TaskStat> {
    let (before, after) = text.rsplit_once(')')?;
    let name = printable(before.split_once('(')?.1).into_owned();
    // Field 3 of proc_pid_stat(5) is the first after the name.
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let signed = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
    Some(TaskStat {
        id: TaskId { tid, started_ticks: number(22)? },
        name,
        state: fields.first()?.chars().next()?,
        parent: i32::try_from(number(4)?).ok()?,
        group: signed(5)?,
        // The kernel prints it as a signed number.
        terminal: signed(7)? as u32,
        foreground: signed(8)?,
        flags: number(9)?,
        threads: number(20)?,
        stack: number(28)?,
        cpu: u32::try_from(number(39)?).ok()?,
    })
}

/// A process held by a file descriptor: it can not be mistaken for another one that is given its pid later.
#[derive(Debug)]
pub struct Pidfd {
    descriptor: OwnedFd,
    id: TaskId,
}

impl Pidfd {
    /// Takes hold of the process `pid` that runs now.
    ///
    /// # Errors
    /// [`KernelError::Task`] or [`KernelError::Read`]; [`KernelError::is_absent`] when it has ended.
    pub fn open(pid: i32, roots: &Roots) -> Result<Self, KernelError> {
        let failed = |source| KernelError::Task { tid: pid, action: "pidfd_open", source };
        // Pid::from_raw takes negative numbers for a caller's error and panics.
        let known = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let known = known.ok_or_else(|| failed(std::io::Error::from_raw_os_error(libc::ESRCH)))?;
        let descriptor = pidfd_open(known, PidfdFlags::NONBLOCK).map_err(|errno| failed(errno.into()))?;
        // The start time is read after the descriptor is held: from here on the pid can not change hands unseen.
        let id = stat(pid, roots)?.id;
        let held = Pidfd { descriptor, id };
        if held.is_alive() { Ok(held) } else { Err(failed(std::io::Error::from_raw_os_error(libc::ESRCH))) }
    }

    /// Takes hold of exactly this process; fails as if it had ended when its pid now belongs to another.
    ///
    /// # Errors
    /// As [`Pidfd::open`].
    pub fn open_exactly(process: TaskId, roots: &Roots) -> Result<Self, KernelError> {
        let held = Pidfd::open(process.tid, roots)?;
        if held.id == process { Ok(held) } else { Err(held.has_ended()) }
    }

    /// Process id and start time.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The user that it belongs to now, as [`user`]. A process that executes a set-user-ID program changes it, so
    /// whoever decides by it looks again after acting.
    ///
    /// # Errors
    /// As [`user`]; [`KernelError::is_absent`] when it has ended.
    pub fn user(&self, roots: &Roots) -> Result<Option<u32>, KernelError> {
        let user = user(self.id.tid, roots)?;
        // Only while it lives does the pid mean it.
        if self.is_alive() { Ok(user) } else { Err(self.has_ended()) }
    }

    fn has_ended(&self) -> KernelError {
        let source = std::io::Error::from_raw_os_error(libc::ESRCH);
        KernelError::Task { tid: self.id.tid, action: "pidfd_open", source }
    }

    /// Whether the process has not ended yet.
    pub fn is_alive(&self) -> bool {
        let mut waiting = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A pidfd becomes readable when the process ends; a failed poll says nothing, so it counts as alive.
        poll(&mut waiting, Some(&at_once)).unwrap_or(0) == 0
    }
}

impl AsFd for Pidfd {
    /// Readable once the process has ended.
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const STAT: &str = "42 (a) (b c) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 12345 1000 10 \
        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_name_with_parentheses_and_blanks_is_read_whole() {
        let stat = parse_stat(STAT, 42).expect("a stat line");
        assert_eq!(stat.name, "a) (b c");
        assert_eq!(stat.id, TaskId { tid: 42, started_ticks: 12_345 });
        assert_eq!((stat.state, stat.parent, stat.threads, stat.cpu), ('S', 1, 3, 1));
        assert_eq!((stat.group, stat.terminal, stat.foreground), (42, 0, -1));
        let typed = parse_stat(&STAT.replace("1 42 42 0 -1", "1 42 40 34818 42"), 42).expect("a stat line");
        assert!(typed.is_in_foreground() && !stat.is_in_foreground());
        assert!(!stat.is_kernel_thread());
    }

    #[test]
    fn a_name_that_would_write_to_a_terminal_or_a_log_is_written_out() {
        let stat = parse_stat(&STAT.replace("a) (b c", "a\n<0>\u{1b}[2J"), 42).expect("a stat line");
        assert_eq!((stat.name.as_str(), stat.threads), ("a\\n<0>\\u{1b}[2J", 3));
        // As the kernel has it.
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        std::fs::write(format!("/proc/self/task/{own}/comm"), "x\u{1b}\ny").expect("a thread's own name");
        assert_eq!(super::stat(own, &Roots::default()).expect("it runs").name, "x\\u{1b}\\ny");
    }

    #[test]
    fn a_torn_stat_line_is_an_error_and_not_a_panic() {
        for end in 0..STAT.len() {
            if let Some(stat) = parse_stat(&STAT[..end], 42) {
                assert_eq!(stat.id.started_ticks, 12_345);
            }
        }
    }

    #[test]
    fn the_list_holds_the_test_itself_with_its_threads_and_executable() {
        let roots = Roots::default();
        let own_pid = i32::try_from(std::process::id()).expect("a pid");
        let all = list(&roots).expect("procfs");
        let own = all.iter().find(|process| process.id.tid == own_pid).expect("the test runs");
        assert!(own.threads.iter().any(|thread| thread.id == own.id));
        assert!(own.threads.len() >= 2, "the test harness runs each test in a thread");
        assert!(own.executable.is_some() && !own.kernel_thread && !own.forked_without_exec);
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        assert_eq!(own.parent, rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get()));
        assert_eq!(find(own_pid, &roots).expect("procfs").map(|found| found.id), Some(own.id));
    }

    #[test]
    fn a_thread_gives_the_process_that_it_belongs_to() {
        let roots = Roots::default();
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get();
        let own_pid = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(process_of(own_tid, &roots).expect("it runs"), own_pid);
    }

    #[test]
    fn a_process_belongs_to_a_user_only_if_it_has_the_rights_of_no_other() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        let write = |text: &str| {
            std::fs::create_dir_all(roots.proc.join("42")).expect("a directory");
            std::fs::write(roots.proc.join("42/status"), text).expect("a file");
        };
        // A name may hold what looks like a line; the kernel escapes the end of it.
        let status =
            |uids: &str| format!("Name:\tx\\nUid:\t1 1 1 1\nTgid:\t42\nUid:\t{uids}\nGroups:\t4 29 \n");
        write(&status("1001\t1001\t1001\t1001"));
        assert_eq!(user(42, &roots).expect("a status"), Some(1001));
        assert_eq!(groups(42, &roots).expect("a status"), [4, 29]);
        assert_eq!(process_of(42, &roots).expect("a status"), 42);
        for uids in ["1001\t0\t0\t0", "1001\t1001\t0\t1001", "0\t1001\t1001\t1001"] {
            write(&status(uids));
            assert_eq!(user(42, &roots).expect("a status"), None, "{uids}");
        }
        for torn in ["", "Uid:\t1 1\n", "Uid:\t1 1 1 -1\n"] {
            write(torn);
            let error = user(42, &roots).expect_err("torn").to_string();
            assert!(error.contains("42/status"), "{error}");
        }
    }

    #[test]
    fn a_process_that_vanishes_half_way_is_left_out() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let roots = Roots::under(directory.path());
        for entry in ["self", "7", "42"] {
            std::fs::create_dir_all(roots.proc.join(entry)).expect("a directory");
        }
        std::fs::write(roots.proc.join("self/mountinfo"), "").expect("a file");
        std::fs::write(roots.proc.join("42/stat"), STAT.replace(" 3 0 12345", " 1 0 12345")).expect("a file");
        let all = list(&roots).expect("the directory is there");
        assert_eq!(all.iter().map(|process| process.id.tid).collect::<Vec<_>>(), vec![42]);
        assert_eq!(all[0].executable, None);
    }

    #[test]
    fn a_number_that_can_be_no_pid_is_an_error_and_not_a_panic() {
        for pid in [0, -1, i32::MIN] {
            assert!(Pidfd::open(pid, &Roots::default()).expect_err("no process").is_absent());
        }
    }

    #[test]
    fn a_held_process_is_alive_until_it_ends_and_its_start_time_is_checked() {
        let roots = Roots::default();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a child");
        let pid = i32::try_from(child.id()).expect("a pid");
        let held = Pidfd::open(pid, &roots).expect("it runs");
        assert!(held.is_alive() && is_alive(held.id(), &roots));
        assert_eq!(held.user(&roots).expect("it runs"), Some(rustix::process::geteuid().as_raw()));
        let earlier = TaskId { started_ticks: held.id().started_ticks - 1, ..held.id() };
        let error = Pidfd::open_exactly(earlier, &roots).expect_err("another process");
        assert!(error.is_absent());
        child.kill().expect("it can be ended");
        child.wait().expect("it is collected");
        assert!(!held.is_alive() && !is_alive(held.id(), &roots));
        assert!(held.user(&roots).expect_err("it has ended").is_absent());
        assert!(Pidfd::open(pid, &roots).expect_err("it has ended").is_absent());
    }
}

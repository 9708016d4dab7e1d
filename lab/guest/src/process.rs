//! Starting a program as the plan says, and collecting what it prints.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use steward_lab_guest::{PROGRAM_DIRECTORY, Program, ProgramMemory};
use steward_lab_workloads::{clock, output, scheduling};

use crate::domains;
use crate::group::Group;
use crate::memory;

/// Where programs are looked for.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that was started.
pub struct Running {
    /// What the plan says about it.
    pub program: Program,
    /// Its cgroup.
    pub group: Group,
    /// What could not be given to it.
    pub notes: Vec<String>,
    /// How it ended, once it has by itself.
    pub ended: Option<ExitStatus>,
    /// CPU time that it and its children have used until it was stopped, in milliseconds.
    pub cpu_ms: f64,
    /// What its memory went through, as it was last seen.
    pub memory: Option<ProgramMemory>,
    stopping: bool,
    child: Child,
    output: Output,
}

enum Output {
    /// The program writes to this file on a tmpfs by itself.
    File(File),
    /// The agent reads the pipe and notes when each line came.
    Stamped { pipe: Option<ChildStdout>, partial: Vec<u8>, stamped: String },
}

impl Running {
    /// Starts `program` in a cgroup of its own, below its domain's.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn start(program: Program, groups: &Path, outputs: &Path) -> Result<Running> {
        let group = match &program.domain {
            Some(domain) => Group::create(&domains::directory(domain), &program.name)?,
            None => Group::create(groups, &program.name)?,
        };
        memory::promise(group.path(), &program)?;
        group.set(&program.group_settings)?;
        let mut notes = Vec::new();
        let attempt = spawn(&program, &group, outputs, program.deadline_ns);
        let (child, output) = match (attempt, program.deadline_ns) {
            (Err(error), Some(_)) => {
                // Whether it was the reservation that failed shows when it is left away.
                let started = spawn(&program, &group, outputs, None)?;
                notes.push(format!("SCHED_DEADLINE refused: {}", error.root_cause()));
                started
            }
            (attempt, _) => attempt?,
        };
        let (ended, cpu_ms, memory, stopping) = (None, 0.0, None, false);
        Ok(Running { program, group, notes, ended, cpu_ms, memory, stopping, child, output })
    }

    /// The descriptor to poll for lines, if the agent stamps them.
    pub fn pipe(&self) -> Option<i32> {
        match &self.output {
            Output::Stamped { pipe: Some(pipe), .. } => Some(pipe.as_raw_fd()),
            _ => None,
        }
    }

    /// Reads what has arrived, and notes the time of each complete line.
    pub fn read_lines(&mut self) {
        let Output::Stamped { pipe, partial, stamped } = &mut self.output else { return };
        let Some(reader) = pipe else { return };
        let mut buffer = [0u8; 4096];
        match reader.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(count) => stamp(&buffer[..count], output::ms(clock::now_ns()), partial, stamped),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => *pipe = None,
        }
    }

    /// Looks whether the program has ended; does not wait.
    pub fn look(&mut self) {
        if self.ended.is_none() && !self.stopping {
            self.ended = self.child.try_wait().ok().flatten();
        }
    }

    /// Takes note of the CPU time used and of its memory, unless it is being stopped: dying is no part of the
    /// experiment.
    pub fn count(&mut self) {
        if !self.stopping {
            self.cpu_ms = self.group.cpu_ms();
            self.look_at_memory();
        }
    }

    /// Takes note of what its memory went through, in the cgroup that it is in now: whoever started it may have moved
    /// it, and a cgroup that is made for it goes with it.
    pub fn look_at_memory(&mut self) {
        let elsewhere = if self.ended.is_none() { memory::cgroup_of(self.child.id()) } else { None };
        let seen = memory::of_group(elsewhere.as_deref().unwrap_or_else(|| self.group.path()));
        self.memory = seen.or(self.memory);
    }

    /// Kills what is left of the program and of its children.
    ///
    /// # Errors
    /// When something survives for half a minute.
    pub fn stop(&mut self) -> Result<()> {
        self.look();
        if self.ended.is_none() {
            // Its own pid too: a launcher may have moved itself to another cgroup. It is ours and not yet reaped.
            let _ = self.child.kill();
        }
        let killed = self.group.kill(Duration::from_secs(30));
        let _ = self.child.wait();
        killed
    }

    /// Kills it and its children without waiting for their end, so that the agent can go on timing others.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin_stop(&mut self) -> Result<()> {
        self.look();
        self.count();
        self.stopping = true;
        self.group.begin_kill()
    }

    /// Everything that it printed.
    pub fn take_output(&mut self) -> String {
        let pipe_is_open = |running: &Running| running.pipe().is_some();
        while pipe_is_open(self) {
            let before = self.stamped_length();
            self.read_lines();
            if self.stamped_length() == before && pipe_is_open(self) {
                break;
            }
        }
        match &mut self.output {
            Output::Stamped { stamped, .. } => std::mem::take(stamped),
            Output::File(file) => {
                let mut bytes = Vec::new();
                let _ = file.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    fn stamped_length(&self) -> usize {
        match &self.output {
            Output::Stamped { stamped, partial, .. } => stamped.len() + partial.len(),
            Output::File(_) => 0,
        }
    }
}

/// Appends `t AT TEXT` for every line in `bytes`; a line ends with `\n` or, as a status line does, with `\r`.
fn stamp(bytes: &[u8], at_ms: f64, partial: &mut Vec<u8>, stamped: &mut String) {
    for byte in bytes {
        if !matches!(byte, b'\n' | b'\r') {
            partial.push(*byte);
            continue;
        }
        if !partial.is_empty() {
            stamped.push_str(&format!("t {at_ms:.3} {}\n", String::from_utf8_lossy(partial)));
            partial.clear();
        }
    }
}

fn spawn(
    program: &Program,
    group: &Group,
    outputs: &Path,
    deadline_ns: Option<(u64, u64)>,
) -> Result<(Child, Output)> {
    let (name, arguments) =
        program.command.split_first().with_context(|| format!("program {} has no command", program.name))?;
    let mut command = Command::new(name);
    command.args(arguments).env("PATH", format!("{PROGRAM_DIRECTORY}:{SEARCH_PATH}")).stdin(Stdio::null());
    let path = outputs.join(&program.name);
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    if program.stamp_lines {
        command.stdout(Stdio::piped());
    } else {
        command.stdout(file.try_clone()?);
    }
    command.stderr(file);
    prepare(&mut command, program, group, deadline_ns)?;
    let mut child = command.spawn().with_context(|| format!("cannot start {} ({name})", program.name))?;
    let output = match child.stdout.take() {
        Some(pipe) => {
            // SAFETY: the descriptor is ours; a full pipe must not block the agent, nor an empty one.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
            Output::Stamped { pipe: Some(pipe), partial: Vec::new(), stamped: String::new() }
        }
        None => Output::File(File::open(&path)?),
    };
    Ok((child, output))
}

/// What the child does between fork and exec: joins its group, then takes its scheduling attributes and its user.
fn prepare(
    command: &mut Command,
    program: &Program,
    group: &Group,
    deadline_ns: Option<(u64, u64)>,
) -> Result<()> {
    let path = group.joining_file();
    let joining = OpenOptions::new().write(true).open(&path);
    let joining = joining.with_context(|| format!("cannot open {}", path.display()))?;
    let (nice, affinity, user) = (program.nice, program.affinity.clone(), program.user);
    let body = move || {
        // SAFETY: one byte from a constant, to a descriptor that the closure owns.
        if unsafe { libc::write(joining.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
            return Err(std::io::Error::last_os_error());
        }
        if let Some(nice) = nice {
            scheduling::set_nice(nice)?;
        }
        if !affinity.is_empty() {
            scheduling::set_affinity(&affinity)?;
        }
        if let Some((budget, period)) = deadline_ns {
            scheduling::become_deadline(Duration::from_nanos(budget), Duration::from_nanos(period))?;
        }
        match user {
            Some(user) => become_user(user),
            None => Ok(()),
        }
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor takes locks.
    unsafe { command.pre_exec(body) };
    Ok(())
}

/// The group is the user's own, and there are no supplementary ones.
fn become_user(user: u32) -> std::io::Result<()> {
    // SAFETY: plain system calls; the empty list of groups is never read.
    let result = unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(user) | libc::setuid(user) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_stamped_when_its_end_arrives_and_status_lines_end_with_a_carriage_return() {
        let (mut partial, mut stamped) = (Vec::new(), String::new());
        stamp(b"V:  0.0", 1.0, &mut partial, &mut stamped);
        assert_eq!(stamped, "");
        stamp(b" 1/ 1\rV: 0.1\r\nexit", 2.0, &mut partial, &mut stamped);
        assert_eq!(stamped, "t 2.000 V:  0.0 1/ 1\nt 2.000 V: 0.1\n");
    }
}

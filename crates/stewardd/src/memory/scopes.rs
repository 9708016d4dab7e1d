//! Asks systemd for scopes: cgroups of their own for processes that are in one of its units.
//!
//! `systemd-run --scope` has process 1 make one around itself and then becomes another program. Here that is `cat`,
//! which says when the scope is there, and keeps it until the process that it is for is in it. systemd may be slow, or
//! may refuse, so the daemon waits for nothing: each question is a process of its own, and how many there are at once,
//! and for how long, is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::event::epoll;
use steward_core::domain::name;

use crate::programs::running::Matched;
use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;

/// The program that asks.
pub const PROGRAM: &str = "/usr/bin/systemd-run";
/// A directory that is there while process 1 is systemd (sd_booted(3)).
pub const BOOTED: &str = "/run/systemd/system";
/// How many questions there can be at once.
const OPEN_MAX: usize = 8;
/// How long systemd may take, in nanoseconds.
const ANSWER_WITHIN_NS: u64 = 10_000_000_000;
/// How much of what the program says is passed on, in bytes.
const MESSAGE_BYTES_MAX: u64 = 512;

/// What is in a scope until the process has come that it is for. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Placeholder(Child);

impl Placeholder {
    /// Its pid; its cgroup is the scope.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or(0)
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // It has nothing to do, and is not slow at dying.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
struct Open {
    matched: Matched,
    placeholder: Placeholder,
    until_ns: u64,
}

/// What became of a question.
pub(crate) type Answer = (Matched, Result<Placeholder, String>);

/// All questions, open ones and those that wait for their turn.
#[derive(Debug)]
pub(crate) struct Scopes {
    program: Option<PathBuf>,
    /// Readable once any open one is answered.
    announced: OwnedFd,
    open: BTreeMap<i32, Open>,
    waiting: VecDeque<(Matched, String)>,
}

impl Scopes {
    /// Asks through this program: [`PROGRAM`], or something that takes the same arguments. `None` where nobody can be
    /// asked, because process 1 is not systemd.
    ///
    /// # Errors
    /// When the kernel gives no epoll instance.
    pub(crate) fn new(program: Option<PathBuf>) -> anyhow::Result<Self> {
        let announced =
            epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot wait for systemd (epoll)")?;
        Ok(Scopes { program, announced, open: BTreeMap::new(), waiting: VecDeque::new() })
    }

    /// Whether there is anybody to ask.
    pub(crate) fn can_ask(&self) -> bool {
        self.program.is_some()
    }

    /// Asks for a scope for a process, in this slice; the answer comes with [`Scopes::take_in`].
    pub(crate) fn ask(&mut self, matched: Matched, slice: String) {
        let pid = matched.process.tid;
        self.waiting.retain(|(other, _)| other.process.tid != pid);
        match self.open.get_mut(&pid).filter(|open| open.matched.process == matched.process) {
            Some(open) => open.matched = matched,
            None => self.waiting.push_back((matched, slice)),
        }
    }

    /// The answers since the last call. Asks next what waits.
    pub(crate) fn take_in(&mut self, now_ns: u64) -> Vec<Answer> {
        let mut answers = Vec::new();
        let pids: Vec<i32> = self.open.keys().copied().collect();
        for pid in pids {
            let Some(open) = self.open.get_mut(&pid) else { continue };
            let Some(outcome) = outcome(&mut open.placeholder.0, now_ns > open.until_ns) else { continue };
            let Some(open) = self.open.remove(&pid) else { continue };
            answers.push((open.matched, outcome.map(|()| open.placeholder)));
        }
        while self.open.len() < OPEN_MAX
            && let Some((matched, slice)) = self.waiting.pop_front()
        {
            match self.start(&matched, &slice) {
                Ok(placeholder) => {
                    let until_ns = now_ns.saturating_add(ANSWER_WITHIN_NS);
                    self.open.insert(matched.process.tid, Open { matched, placeholder, until_ns });
                }
                Err(error) => answers.push((matched, Err(error))),
            }
        }
        answers
    }

    fn start(&self, matched: &Matched, slice: &str) -> Result<Placeholder, String> {
        let program = self.program.as_deref().ok_or("process 1 is not systemd")?;
        let failed = |error: io::Error| format!("{} cannot be started: {error}", program.display());
        let pid = matched.process.tid;
        let mut child = Command::new(program)
            .args(["--scope", "--collect", "--quiet", "--no-ask-password"])
            .args([format!("--unit={}", name::scope_of_program(pid)), format!("--slice={slice}")])
            .arg(format!("--description=Memory of {} (process {pid}), by Steward", matched.spec))
            // Its memory is counted, and divided by who asked.
            .args(["--property=MemoryAccounting=yes", "--property=Delegate=memory", "--", "/bin/cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let written = child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"\n"));
        let placeholder = Placeholder(child);
        written.map_err(failed)?;
        if let Some(stdout) = &placeholder.0.stdout {
            rustix::io::ioctl_fionbio(stdout, true).map_err(|error| failed(error.into()))?;
            epoll::add(&self.announced, stdout, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(|error| failed(error.into()))?;
        }
        Ok(placeholder)
    }
}

impl Part for Scopes {
    /// Readable once there is something for [`Scopes::take_in`].
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        vec![Wait::readable(Source::Scopes, self.announced.as_fd())]
    }

    fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let next = (!self.waiting.is_empty() && self.open.len() < OPEN_MAX).then_some(now_ns);
        self.open.values().map(|open| open.until_ns.saturating_add(1)).chain(next).min()
    }
}

/// Whether the scope is there; `None` while nothing is known.
fn outcome(child: &mut Child, is_late: bool) -> Option<Result<(), String>> {
    let mut line = [0];
    match child.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(&mut line)) {
        Ok(0) => Some(Err(words(child))),
        Ok(_) => Some(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_late => None,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Some(Err("it has not answered within 10 s".to_owned()))
        }
        Err(error) => Some(Err(format!("its answer is lost: {error}"))),
    }
}

/// What a program says that is ending.
fn words(child: &mut Child) -> String {
    let mut message = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // A child of its own could hold the pipe open.
        let _ = rustix::io::ioctl_fionbio(&stderr, true);
        let _ = stderr.take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
    }
    let message = String::from_utf8_lossy(&message).split_whitespace().collect::<Vec<_>>().join(" ");
    let message = steward_core::printable::printable(message.trim_end_matches('.')).to_string();
    if message.is_empty() { "it ended without a word".to_owned() } else { message }
}

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
use steward_core::process::TaskId;

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

/// For what there is to be a scope.
#[derive(Debug)]
enum Wanted {
    /// For what a specification says of the process.
    Specification(Matched),
    /// For what somebody asks for it by hand, who waits.
    ByHand { process: TaskId, caller_id: u64 },
}

impl Wanted {
    fn process(&self) -> TaskId {
        match self {
            Wanted::Specification(matched) => matched.process,
            Wanted::ByHand { process, .. } => *process,
        }
    }

    /// What systemd shows of it.
    fn description(&self) -> String {
        let pid = self.process().tid;
        match self {
            Wanted::Specification(matched) => {
                format!("Memory of {} (process {pid}), by Steward", matched.spec)
            }
            Wanted::ByHand { .. } => format!("Memory of process {pid}, by Steward"),
        }
    }
}

#[derive(Debug)]
struct Open {
    wanted: Wanted,
    placeholder: Placeholder,
    until_ns: u64,
}

/// What became of a question: what is in the scope until the process comes, or why there is none.
pub(crate) type Outcome = Result<Placeholder, String>;

/// All questions, open ones and those that wait for their turn.
#[derive(Debug)]
pub(crate) struct Scopes {
    program: Option<PathBuf>,
    /// Readable once any open one is answered.
    announced: OwnedFd,
    open: BTreeMap<i32, Open>,
    waiting: VecDeque<(Wanted, String)>,
    /// What became of questions that somebody asked by hand, until that one has it.
    answered: BTreeMap<i32, (TaskId, Outcome)>,
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
        Ok(Scopes {
            program,
            announced,
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            answered: BTreeMap::new(),
        })
    }

    /// Whether there is anybody to ask.
    pub(crate) fn can_ask(&self) -> bool {
        self.program.is_some()
    }

    /// Asks for a scope for what a specification says of a process, in this slice; the answer comes with
    /// [`Scopes::take_in`].
    pub(crate) fn ask(&mut self, matched: Matched, slice: String) {
        let pid = matched.process.tid;
        let is_same =
            |wanted: &Wanted| matches!(wanted, Wanted::Specification(_)) && wanted.process().tid == pid;
        self.waiting.retain(|(other, _)| !is_same(other));
        match self.open.get_mut(&pid).filter(|open| is_same(&open.wanted)) {
            Some(open) if open.wanted.process() == matched.process => {
                open.wanted = Wanted::Specification(matched);
            }
            _ => self.waiting.push_back((Wanted::Specification(matched), slice)),
        }
    }

    /// Asks for a scope for a process because somebody does, in this slice; the answer comes with
    /// [`Scopes::take_answer`].
    ///
    /// # Errors
    /// When that is asked already: who asks may ask again.
    pub(crate) fn ask_by_hand(
        &mut self,
        process: TaskId,
        caller_id: u64,
        slice: String,
    ) -> Result<(), String> {
        let pid = process.tid;
        let waits = self.waiting.iter().any(|(other, _)| other.process().tid == pid);
        if waits || self.open.contains_key(&pid) || self.answered.contains_key(&pid) {
            return Err("systemd is being asked for a scope for it already; ask again in a moment".to_owned());
        }
        self.waiting.push_back((Wanted::ByHand { process, caller_id }, slice));
        Ok(())
    }

    /// What became of what was asked by hand for a process; `None` while nothing is known.
    pub(crate) fn take_answer(&mut self, process: TaskId) -> Option<Outcome> {
        self.answered.remove(&process.tid).filter(|(of, _)| *of == process).map(|(_, outcome)| outcome)
    }

    /// Whether anything is being asked by hand.
    pub(crate) fn are_asked_by_hand(&self) -> bool {
        let is_by_hand = |wanted: &Wanted| matches!(wanted, Wanted::ByHand { .. });
        let waiting = self.waiting.iter().map(|(wanted, _)| wanted);
        waiting.chain(self.open.values().map(|open| &open.wanted)).any(is_by_hand)
    }

    /// Drops what was asked by hand by all others than these, who have gone.
    pub(crate) fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        let is_kept = |wanted: &Wanted| match wanted {
            Wanted::Specification(_) => true,
            Wanted::ByHand { caller_id, .. } => is_there(*caller_id),
        };
        self.waiting.retain(|(wanted, _)| is_kept(wanted));
        self.open.retain(|_, open| is_kept(&open.wanted));
    }

    /// Whether anybody who asked by hand can be answered.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Forgets the answers that nobody has taken, and with them the scopes.
    pub(crate) fn forget_answers(&mut self) {
        self.answered.clear();
    }

    /// The answers about specifications since the last call. Asks next what waits.
    pub(crate) fn take_in(&mut self, now_ns: u64) -> Vec<(Matched, Outcome)> {
        let mut answers = Vec::new();
        let pids: Vec<i32> = self.open.keys().copied().collect();
        for pid in pids {
            let Some(open) = self.open.get_mut(&pid) else { continue };
            let Some(outcome) = outcome(&mut open.placeholder.0, now_ns > open.until_ns) else { continue };
            let Some(open) = self.open.remove(&pid) else { continue };
            self.answer(open.wanted, outcome.map(|()| open.placeholder), &mut answers);
        }
        while let Some(next) = self.next_to_ask()
            && let Some((wanted, slice)) = self.waiting.remove(next)
        {
            match self.start(&wanted, &slice) {
                Ok(placeholder) => {
                    let until_ns = now_ns.saturating_add(ANSWER_WITHIN_NS);
                    self.open.insert(wanted.process().tid, Open { wanted, placeholder, until_ns });
                }
                Err(error) => self.answer(wanted, Err(error), &mut answers),
            }
        }
        answers
    }

    /// The place of the next that can be asked: one at a time for each process, since scopes are called by these.
    fn next_to_ask(&self) -> Option<usize> {
        let is_open = |(wanted, _): &(Wanted, String)| self.open.contains_key(&wanted.process().tid);
        let has_room = self.open.len() < OPEN_MAX;
        self.waiting.iter().position(|waiting| has_room && !is_open(waiting))
    }

    fn answer(&mut self, wanted: Wanted, outcome: Outcome, answers: &mut Vec<(Matched, Outcome)>) {
        match wanted {
            Wanted::Specification(matched) => answers.push((matched, outcome)),
            Wanted::ByHand { process, .. } => _ = self.answered.insert(process.tid, (process, outcome)),
        }
    }

    fn start(&self, wanted: &Wanted, slice: &str) -> Result<Placeholder, String> {
        let program = self.program.as_deref().ok_or("process 1 is not systemd")?;
        let failed = |error: io::Error| format!("{} cannot be started: {error}", program.display());
        let pid = wanted.process().tid;
        let mut child = Command::new(program)
            .args(["--scope", "--collect", "--quiet", "--no-ask-password"])
            .args([format!("--unit={}", name::scope_of_program(pid)), format!("--slice={slice}")])
            .arg(format!("--description={}", wanted.description()))
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
        let can_go_on = self.next_to_ask().is_some() || self.has_answers();
        let next = can_go_on.then_some(now_ns);
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

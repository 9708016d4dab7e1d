//! Asks polkit whether somebody may do what the rules leave to it.
//!
//! A person may have to type a password first, so the daemon does not wait for the answer: the question is a process of
//! its own (`pkcheck`, polkit's command for programs that have no D-Bus connection), and the call is answered again
//! once that has ended. polkit learns the caller's pid with its start time and user, so that it cannot mistake another
//! process for it. How many questions are open, and for how long, is bounded.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use steward_kernel::{Roots, process};

use crate::server::peer::Caller;
use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;

/// The program that asks.
pub const PROGRAM: &str = "/usr/bin/pkcheck";
/// How many questions there can be at once, answered ones that are not used yet included.
const QUESTIONS_MAX: usize = 16;
/// How many of them one user can have.
const QUESTIONS_PER_USER_MAX: usize = 4;
/// How long a person may take, in nanoseconds.
const ANSWER_WITHIN_NS: u64 = 120_000_000_000;
/// How much of what the program says is passed on, in bytes.
const MESSAGE_BYTES_MAX: u64 = 512;

/// What is asked, and by whom. Anything else, even from the same caller, is another question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    caller_id: u64,
    action: &'static str,
    words: String,
}

#[derive(Debug)]
enum State {
    Open(Running),
    Answered(Result<(), String>),
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Readable once the child has ended.
    _process: OwnedFd,
    until_ns: u64,
}

#[derive(Debug)]
struct Asked {
    uid: u32,
    state: State,
}

/// All questions that are open, and the answers that are not used yet.
#[derive(Debug)]
pub struct Polkit {
    program: PathBuf,
    /// Readable once any of the children has ended.
    ended: OwnedFd,
    questions: BTreeMap<Question, Asked>,
}

impl Polkit {
    /// Asks through this program, [`PROGRAM`] or something that takes the same arguments.
    ///
    /// # Errors
    /// When the kernel gives no epoll instance.
    pub fn new(program: &Path) -> anyhow::Result<Self> {
        let ended = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot wait for polkit (epoll)")?;
        Ok(Polkit { program: program.to_owned(), ended, questions: BTreeMap::new() })
    }

    /// May this caller do `words` (in the words of a request), which is an `action` of polkit's? `None` while the
    /// answer is not there yet; ask again once its descriptor was readable. An answer holds for this very question
    /// until [`Polkit::forget`].
    pub fn ask(
        &mut self,
        caller: &Caller,
        action: &'static str,
        words: &str,
        now_ns: u64,
    ) -> Option<Result<(), String>> {
        let question = Question { caller_id: caller.id, action, words: words.to_owned() };
        if let Some(asked) = self.questions.get(&question) {
            return match &asked.state {
                State::Open(_) => None,
                State::Answered(answer) => Some(answer.clone()),
            };
        }
        let of_user = self.questions.values().filter(|asked| asked.uid == caller.uid).count();
        if of_user >= QUESTIONS_PER_USER_MAX || self.questions.len() >= QUESTIONS_MAX {
            return Some(Err("too many other questions are open there".to_owned()));
        }
        match self.start(caller, &question) {
            Ok((child, process)) => {
                let running = Running { child, _process: process, until_ns: now_ns + ANSWER_WITHIN_NS };
                self.questions.insert(question, Asked { uid: caller.uid, state: State::Open(running) });
                None
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(Err(format!("polkit is not there (no {})", self.program.display())))
            }
            Err(error) => Some(Err(format!("{} cannot be started: {error}", self.program.display()))),
        }
    }

    fn start(&self, caller: &Caller, question: &Question) -> io::Result<(Child, OwnedFd)> {
        let gone = || io::Error::other("the process that asks has ended");
        let started = process::stat(caller.pid, &Roots::default()).map_err(|_| gone())?.id.started_ticks;
        // It is the caller's start time if the caller has not ended since.
        if !caller.is_alive() {
            return Err(gone());
        }
        let mut child = Command::new(&self.program)
            .args(["--action-id", question.action, "--allow-user-interaction"])
            .args(["--process", &format!("{},{started},{}", caller.pid, caller.uid)])
            .args(["--detail", "request", &question.words])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        match self.hold(&child) {
            Ok(process) => Ok((child, process)),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    fn hold(&self, child: &Child) -> io::Result<OwnedFd> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let process = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        epoll::add(&self.ended, &process, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(process)
    }

    /// Takes in what was answered, and gives up what took too long. True when there is a new answer.
    pub fn take_in(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        for asked in self.questions.values_mut() {
            let State::Open(running) = &mut asked.state else { continue };
            let answer = match running.child.try_wait() {
                Ok(Some(status)) => answer(status.code(), &mut running.child),
                Ok(None) if now_ns < running.until_ns => continue,
                Ok(None) => Err("nobody answered it within two minutes".to_owned()),
                Err(error) => Err(format!("its answer is lost: {error}")),
            };
            end(&mut running.child);
            asked.state = State::Answered(answer);
            any = true;
        }
        any
    }

    /// Whether this caller has a question that is not answered yet.
    pub fn is_waiting(&self, caller_id: u64) -> bool {
        let mut own = self.questions.iter().filter(|(question, _)| question.caller_id == caller_id);
        own.any(|(_, asked)| matches!(asked.state, State::Open(_)))
    }

    /// Whether there is any question, so that [`Polkit::keep`] has something to do.
    pub fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Drops all questions of this caller: the call that they were about has been answered.
    pub fn forget(&mut self, caller_id: u64) {
        self.keep(|id| id != caller_id);
    }

    /// Drops the questions of all callers but these.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        self.questions.retain(|question, asked| {
            let keep = is_there(question.caller_id);
            if let State::Open(running) = &mut asked.state
                && !keep
            {
                end(&mut running.child);
            }
            keep
        });
    }
}

impl Part for Polkit {
    /// Readable once there is something for [`Polkit::take_in`].
    fn lasting_descriptors(&self) -> Vec<Wait<'_>> {
        vec![Wait::readable(Source::Polkit, self.ended.as_fd())]
    }
}

impl Drop for Polkit {
    fn drop(&mut self) {
        self.keep(|_| false);
    }
}

/// Ends and collects a child that may have ended by itself. It has no reason to be slow at dying.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// What an exit code of pkcheck(1) means.
fn answer(code: Option<i32>, child: &mut Child) -> Result<(), String> {
    match code {
        Some(0) => Ok(()),
        Some(1) => Err("it says no".to_owned()),
        Some(2) => {
            Err("it wants a password, and there is no agent in this session to ask for one".to_owned())
        }
        Some(3) => Err("the question was dismissed".to_owned()),
        _ => {
            let mut message = Vec::new();
            if let Some(stderr) = child.stderr.take() {
                // The child has ended, so all that it wrote is there; a child of its own could hold the pipe open,
                // though.
                let _ = rustix::io::ioctl_fionbio(&stderr, true);
                let _ = stderr.take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
            }
            let message = String::from_utf8_lossy(&message).split_whitespace().collect::<Vec<_>>().join(" ");
            Err(format!("it could not be asked: {message}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::server::peer;

    /// A stand-in for pkcheck that writes down its arguments and does `then`.
    fn stand_in(place: &Path, then: &str) -> PathBuf {
        let program = place.join("pkcheck");
        let text = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >{}\n{then}\n", place.join("asked").display());
        // By another process: a file that is open for writing here, in a fork of another test's thread, cannot be
        // executed (ETXTBSY).
        let copied = Command::new("sh")
            .args([
                "-c",
                "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"",
                &program.display().to_string(),
                &text,
            ])
            .status();
        assert!(copied.expect("every machine has sh").success());
        assert!(program.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0));
        program
    }

    fn caller() -> Caller {
        let (one, _other) = UnixStream::pair().expect("a pair of sockets");
        peer::from_kernel(&one).expect("credentials")
    }

    fn wait_for(polkit: &mut Polkit) {
        while !polkit.take_in(0) {
            let mut ended = [PollFd::new(&polkit.ended, PollFlags::IN)];
            poll(&mut ended, None).expect("it ends");
        }
    }

    fn answer_to(then: &str) -> Result<(), String> {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut polkit = Polkit::new(&stand_in(place.path(), then)).expect("epoll");
        let caller = caller();
        assert_eq!(polkit.ask(&caller, "io.steward.reserve", "reserve it", 0), None);
        assert!(polkit.is_waiting(caller.id));
        wait_for(&mut polkit);
        assert!(!polkit.is_waiting(caller.id));
        polkit.ask(&caller, "io.steward.reserve", "reserve it", 0).expect("answered")
    }

    #[test]
    fn polkit_learns_who_asks_for_what_and_its_answer_is_for_that_alone() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut polkit = Polkit::new(&stand_in(place.path(), "exit 0")).expect("epoll");
        let caller = caller();
        assert_eq!(polkit.ask(&caller, "io.steward.limit", "limit it", 0), None);
        wait_for(&mut polkit);
        let asked = std::fs::read_to_string(place.path().join("asked")).expect("it was started");
        let started = process::stat(caller.pid, &Roots::default()).expect("it runs").id.started_ticks;
        let process = format!("{},{started},{}", caller.pid, caller.uid);
        let expected = ["--action-id", "io.steward.limit", "--allow-user-interaction", "--process", &process];
        assert_eq!(asked.lines().take(5).collect::<Vec<_>>(), expected);
        assert!(asked.ends_with("--detail\nrequest\nlimit it\n"), "{asked}");
        assert_eq!(polkit.ask(&caller, "io.steward.limit", "limit it", 0), Some(Ok(())));
        assert_eq!(polkit.ask(&caller, "io.steward.limit", "limit another", 0), None);
        assert_eq!(polkit.ask(&self::caller(), "io.steward.limit", "limit it", 0), None);
        polkit.forget(caller.id);
        assert_eq!(polkit.ask(&caller, "io.steward.limit", "limit it", 0), None);
    }

    #[test]
    fn what_polkit_says_is_passed_on() {
        assert_eq!(answer_to("exit 0"), Ok(()));
        for (then, expected) in [
            ("exit 1", "it says no"),
            ("exit 2", "no agent"),
            ("exit 3", "dismissed"),
            ("echo 'Error: no bus' >&2; exit 127", "could not be asked: Error: no bus"),
            ("kill -9 $$", "could not be asked"),
        ] {
            let refusal = answer_to(then).expect_err("not allowed");
            assert!(refusal.contains(expected), "{then}: {refusal}");
        }
    }

    #[test]
    fn without_polkit_or_without_the_caller_the_answer_is_no_at_once() {
        let mut polkit = Polkit::new(Path::new("/no such program")).expect("epoll");
        let refusal = polkit.ask(&caller(), "io.steward.read", "read it", 0);
        assert_eq!(refusal, Some(Err("polkit is not there (no /no such program)".to_owned())));
        let unknown = Caller { process: None, ..caller() };
        let refusal =
            polkit.ask(&unknown, "io.steward.read", "read it", 0).expect("at once").expect_err("no");
        assert!(refusal.contains("has ended"), "{refusal}");
        assert!(!polkit.has_questions());
    }

    #[test]
    fn questions_are_bounded_in_number_and_time_and_end_with_their_caller() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut polkit = Polkit::new(&stand_in(place.path(), "exec sleep 1000")).expect("epoll");
        let callers: Vec<Caller> = (0..=QUESTIONS_PER_USER_MAX).map(|_| caller()).collect();
        let answers: Vec<_> =
            callers.iter().map(|caller| polkit.ask(caller, "io.steward.read", "read it", 0)).collect();
        assert!(answers[..QUESTIONS_PER_USER_MAX].iter().all(Option::is_none));
        let refusal = answers.last().cloned().flatten().expect("at once").expect_err("no");
        assert!(refusal.contains("too many"), "{refusal}");
        polkit.forget(callers[0].id);
        assert_eq!(polkit.questions.len(), QUESTIONS_PER_USER_MAX - 1);
        assert!(!polkit.take_in(ANSWER_WITHIN_NS - 1));
        assert!(polkit.take_in(ANSWER_WITHIN_NS));
        let late =
            polkit.ask(&callers[1], "io.steward.read", "read it", 0).expect("given up").expect_err("no");
        assert!(late.contains("two minutes"), "{late}");
        polkit.keep(|_| false);
        assert!(!polkit.has_questions());
    }
}

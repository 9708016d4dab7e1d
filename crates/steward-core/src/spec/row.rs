//! A specification, and the rules that each is held to.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use crate::cpu::thresholds::Thresholds;
use crate::disk;
use crate::memory::settings::check_protection_period;
use crate::printable::{printable, printable_path};
use crate::problem::{Origin, Problem, Severity};

/// How many bytes of a task's name the kernel's scheduler keeps (`TASK_COMM_LEN` without its end, sched.h).
pub const COMM_LENGTH: usize = 15;

/// How many bytes of a kernel thread's name `/proc` gives at most (fs/proc/array.c).
pub(super) const KERNEL_THREAD_NAME_MAX: usize = 63;

/// What a specification is for: a program's file, or a kernel thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SpecPath {
    /// The absolute path of an executable.
    Executable(PathBuf),
    /// The name of a kernel thread, without its brackets.
    KernelThread(String),
}

impl SpecPath {
    /// Whether this names the kernel thread called `comm`: exactly, or with what the kernel appends to tell its
    /// instances apart, which starts with `/`, `:`, `-` or a digit (`kswapd0`, `ksoftirqd/1`, `jbd2/sda1-8`). Both
    /// forms of a long name match: `/proc/PID/comm` gives all of it, the scheduler keeps [`COMM_LENGTH`] bytes.
    pub fn matches_kernel_thread(&self, comm: &str) -> bool {
        let SpecPath::KernelThread(name) = self else { return false };
        let is_instance = comm.strip_prefix(name.as_str()).is_some_and(|rest| {
            rest.is_empty()
                || rest.starts_with(['/', ':', '-'])
                || rest.starts_with(|c: char| c.is_ascii_digit())
        });
        is_instance || (comm.len() == COMM_LENGTH && name.starts_with(comm))
    }
}

impl fmt::Display for SpecPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecPath::Executable(path) => formatter.write_str(&printable_path(path)),
            SpecPath::KernelThread(name) => write!(formatter, "[{}]", printable(name)),
        }
    }
}

impl TryFrom<String> for SpecPath {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        read_path(&text)
    }
}

impl From<SpecPath> for String {
    fn from(path: SpecPath) -> String {
        // As it was read, where people see it as printable text.
        match path {
            SpecPath::Executable(path) => path.to_string_lossy().into_owned(),
            SpecPath::KernelThread(name) => format!("[{name}]"),
        }
    }
}

/// The two classes of task (Yang 2009, 7.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Has a CPU reservation, in force once admitted.
    Interactive,
    /// Shares what is left over.
    BestEffort,
}

impl Class {
    pub(super) const NAMES: [&'static str; 2] = ["interactive", "best-effort"];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "interactive" => Some(Class::Interactive),
            "best-effort" => Some(Class::BestEffort),
            _ => None,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::NAMES[*self as usize])
    }
}

/// A user, as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum User {
    /// A name, still to be looked up.
    Name(String),
    /// A number.
    Uid(u32),
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Name(name) => formatter.write_str(name),
            User::Uid(uid) => write!(formatter, "{uid}"),
        }
    }
}

impl TryFrom<String> for User {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        read_user(&text)
    }
}

impl From<User> for String {
    fn from(user: User) -> String {
        user.to_string()
    }
}

/// Reads a user's name or number.
pub(super) fn read_user(text: &str) -> Result<User, Fault> {
    let advice = "write a user's name, as in user = \"alice\", or a number from 0 to 4294967294";
    if text.starts_with('-') || (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())) {
        let uid = text.parse().ok().filter(|uid| *uid != u32::MAX);
        return uid
            .map(User::Uid)
            .ok_or_else(|| Fault::new("user", format!("\"{text}\" is not a user's number"), advice));
    }
    if text.is_empty() || text.contains(|c: char| c == ':' || c.is_control() || c.is_whitespace()) {
        return Err(Fault::new("user", format!("{text:?} is not a user's name"), advice));
    }
    Ok(User::Name(text.to_owned()))
}

/// What one program gets when it starts. Made by the parsers, which hold it to the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The program, or the kernel thread.
    pub path: SpecPath,
    /// Interactive exactly if there is a reservation.
    pub class: Class,
    /// The promised CPU time.
    pub reservation: Option<Reservation>,
    /// Flag `I`: children without a specification of their own get this one. False unless said.
    pub inherit: bool,
    /// Flag `R`: may be revoked under overload. True unless said, for interactive programs.
    pub revocable: bool,
    /// Whose task is never revoked beside root's, if it is not revocable; anybody else's may be revoked.
    pub user: Option<User>,
    /// `π`: how long a page may go unused before it may be taken; `None`: not protected.
    pub protect: Option<Duration>,
    /// Memory promised, in bytes.
    pub memory_min: Option<u64>,
    /// The most memory, in bytes.
    pub memory_max: Option<u64>,
    /// How soon its disk requests are served; `None` lets Steward choose.
    pub io: Option<disk::Class>,
    /// Among those whose disk requests are served first, how soon these are: 0 to 7, 0 first; `None` goes by the
    /// period.
    pub io_priority: Option<u8>,
    /// Disk time reserved, a fraction of what the domain that it runs in has.
    pub disk: Option<f64>,
    /// The most that it may read and write.
    pub io_max: Option<disk::Limit>,
    /// Where it was written.
    pub origin: Origin,
}

impl Spec {
    /// What the mechanism is to give to a task that starts with this; `None` when it is best-effort. `spec_id` is the
    /// caller's own number for this specification. A user's name has to be looked up before: nobody but root has it.
    pub fn grant(&self, spec_id: u32) -> Option<Grant> {
        self.reservation.map(|reservation| Grant {
            reservation,
            inherit: self.inherit,
            revocable: self.revocable,
            irrevocable_for: match self.user {
                Some(User::Uid(uid)) if uid != 0 => IrrevocableFor::User(uid),
                _ => IrrevocableFor::Root,
            },
            keep_over_exec: false,
            requests_at: None,
            spec_id,
        })
    }
}

/// Says when a reservation is so large that not even an idle CPU would admit it: admission needs `load + C/T`
/// below `admit_below` (Yang 2009, section 8.1.2). Only a note, since other thresholds would admit it.
pub fn check_admissible(spec: &Spec, thresholds: &Thresholds) -> Option<Problem> {
    let reservation =
        spec.reservation.filter(|reservation| reservation.bandwidth() >= thresholds.admit_below)?;
    Some(Problem {
        origin: spec.origin.clone(),
        severity: Severity::Note,
        what: format!(
            "{}: {reservation} is {:.0} % of a CPU, which no CPU admits, as admission stops below {:.0} %",
            spec.path,
            reservation.bandwidth() * 100.0,
            thresholds.admit_below * 100.0
        ),
        advice: "reserve less, or raise admit_below in steward.toml".to_owned(),
    })
}

/// Says when a specification wants requests to be served first that are not: without a reservation nobody's are. As
/// with [`check_target`](super::check_target), it is an error in a person's own files (`strict`), and else a note.
pub fn check_served_first(spec: &Spec, strict: bool) -> Option<Problem> {
    let has_no_effect = spec.io == Some(disk::Class::Interactive) && spec.reservation.is_none();
    has_no_effect.then(|| Problem {
        origin: spec.origin.clone(),
        severity: if strict { Severity::Error } else { Severity::Note },
        what: format!("{}: io = \"interactive\" has no effect without cpu", spec.path),
        advice: "add a reservation, as in cpu = \"5ms/30ms\", or leave out io".to_owned(),
    })
}

/// One rule that a specification breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {advice}")]
pub struct Fault {
    /// The key whose value is wrong: a key of the TOML form.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl Fault {
    pub(super) fn new(key: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Fault { key, what: what.into(), advice: advice.into() }
    }
}

/// How soon requests are served among those that are served first, held to what the kernel knows; `None` is no such
/// number.
pub(super) fn io_priority(level: Option<u8>) -> Result<u8, Fault> {
    level.filter(|level| *level <= disk::priority::LEVEL_MAX).ok_or_else(|| {
        Fault::new("io_priority", "io_priority is no number from 0 to 7", "0 is served first, 7 last of them")
    })
}

/// A specification as written, before the rules are applied: what was left out is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) path: Option<SpecPath>,
    pub(super) class: Option<Class>,
    pub(super) reservation: Option<Reservation>,
    pub(super) inherit: Option<bool>,
    pub(super) revocable: Option<bool>,
    pub(super) user: Option<User>,
    pub(super) protect_ns: Option<u64>,
    pub(super) memory_min: Option<u64>,
    pub(super) memory_max: Option<u64>,
    pub(super) io: Option<disk::Class>,
    pub(super) io_priority: Option<u8>,
    pub(super) disk: Option<f64>,
    pub(super) io_max: Option<disk::Limit>,
}

impl Draft {
    /// Applies every rule that needs no file system.
    pub(super) fn finish(self, origin: Origin) -> Result<Spec, Vec<Fault>> {
        let mut faults = Vec::new();
        if self.path.is_none() {
            faults.push(Fault::new(
                "path",
                "path is missing",
                "name the program, as in path = \"/usr/bin/mplayer\"",
            ));
        }
        self.check_class(&mut faults);
        if let Some(Err(fault)) = self.reservation.map(|reservation| reservation.validate()) {
            faults.push(Fault::new("cpu", fault.what, fault.advice));
        }
        self.check_memory(&mut faults);
        self.check_disk(&mut faults);
        match self.path {
            Some(path) if faults.is_empty() => Ok(Spec {
                path,
                class: if self.reservation.is_some() { Class::Interactive } else { Class::BestEffort },
                reservation: self.reservation,
                inherit: self.inherit.unwrap_or(false),
                revocable: self.revocable.unwrap_or(self.reservation.is_some()),
                user: self.user,
                protect: self.protect_ns.map(Duration::from_nanos),
                memory_min: self.memory_min,
                memory_max: self.memory_max,
                io: self.io,
                io_priority: self.io_priority,
                disk: self.disk,
                io_max: self.io_max,
                origin,
            }),
            _ => Err(faults),
        }
    }

    fn check_class(&self, faults: &mut Vec<Fault>) {
        match (self.class, self.reservation) {
            (Some(Class::Interactive), None) => faults.push(Fault::new(
                "class",
                "an interactive program needs a CPU reservation",
                "add one, as in cpu = \"5ms/30ms\", or make the class \"best-effort\"",
            )),
            (Some(Class::BestEffort), Some(reservation)) => faults.push(Fault::new(
                "class",
                format!("a best-effort program cannot have the CPU reservation {reservation}"),
                "leave out cpu, or make the class \"interactive\"",
            )),
            _ => {}
        }
        if self.user.is_some() && self.revocable != Some(false) {
            faults.push(Fault::new(
                "user",
                "user says whose task is never revoked, and this program may be revoked",
                "leave out user, or add revocable = false",
            ));
        }
        let best_effort =
            self.class == Some(Class::BestEffort) || (self.class.is_none() && self.reservation.is_none());
        for (key, flag, verb) in
            [("inherit", self.inherit, "inherited"), ("revocable", self.revocable, "revoked")]
        {
            if best_effort && flag == Some(true) {
                faults.push(Fault::new(
                    key,
                    format!("a best-effort program has no reservation that could be {verb}"),
                    format!(
                        "leave out {key}, or give the program a CPU reservation, as in cpu = \"5ms/30ms\""
                    ),
                ));
            }
        }
    }

    fn check_disk(&self, faults: &mut Vec<Fault>) {
        if self.io_priority.is_some() && self.io != Some(disk::Class::Interactive) {
            faults.push(Fault::new(
                "io_priority",
                "io_priority says how soon one is served among those that are served first, which this program is not",
                "leave out io_priority, or add io = \"interactive\"",
            ));
        }
        let of_kernel_threads = [
            (
                "io_priority",
                self.io_priority.is_some(),
                "a kernel thread that is served first is so before all others, who wait for it",
                "leave out io_priority",
            ),
            (
                "io_max",
                self.io_max.is_some(),
                "a kernel thread works for others, who would wait for what is held back of it",
                "leave out io_max",
            ),
            (
                "disk",
                self.disk.is_some(),
                "a kernel thread works for others, and has no disk time of its own",
                "leave out disk; io = \"interactive\" has its requests served first",
            ),
        ];
        let is_kernel_thread = matches!(self.path, Some(SpecPath::KernelThread(_)));
        for (key, is_given, what, advice) in of_kernel_threads {
            if is_kernel_thread && is_given {
                faults.push(Fault::new(key, what, advice));
            }
        }
    }

    fn check_memory(&self, faults: &mut Vec<Fault>) {
        if let (Some(min), Some(max)) = (self.memory_min, self.memory_max)
            && min > max
        {
            faults.push(Fault::new(
                "memory_min",
                "memory_min is more than memory_max",
                "promise at most what the program may use",
            ));
        }
        if self.memory_max == Some(0) {
            faults.push(Fault::new(
                "memory_max",
                "memory_max is zero",
                "no program runs without memory; leave it out",
            ));
        }
        let period_ns = self.protect_ns.map(|period_ns| i64::try_from(period_ns).unwrap_or(i64::MAX));
        if let Some(Err(error)) = period_ns.map(check_protection_period) {
            faults.push(Fault::new("protect", format!("protect: {}", error.what), error.advice));
        }
        let kernel_thread = matches!(self.path, Some(SpecPath::KernelThread(_)));
        let memory = [
            ("protect", self.protect_ns.is_some()),
            ("memory_min", self.memory_min.is_some()),
            ("memory_max", self.memory_max.is_some()),
        ];
        for (key, _) in memory.into_iter().filter(|(_, given)| kernel_thread && *given) {
            faults.push(Fault::new(
                key,
                "a kernel thread has no memory of its own",
                format!("leave out {key}"),
            ));
        }
    }
}

/// Reads a path: absolute, or a kernel thread's name in brackets.
pub(super) fn read_path(text: &str) -> Result<SpecPath, Fault> {
    let fault = |what: String, advice: &str| Err(Fault::new("path", what, advice));
    if let Some(inner) = text.strip_prefix('[') {
        let name = inner.strip_suffix(']').unwrap_or_default();
        return if name.is_empty() || name.len() > KERNEL_THREAD_NAME_MAX || name.contains(['[', ']', '\n']) {
            fault(
                format!("\"{text}\" is not a kernel thread"),
                "write its name of 1 to 63 bytes in brackets, as in \"[kswapd]\"",
            )
        } else {
            Ok(SpecPath::KernelThread(name.to_owned()))
        };
    }
    if text.is_empty() {
        return fault("the path is empty".into(), "name the program, as in \"/usr/bin/mplayer\"");
    }
    if !text.starts_with('/') {
        return fault(
            format!("\"{text}\" is not an absolute path"),
            "write it from the root, as in \"/usr/bin/mplayer\" (`realpath $(which NAME)` shows it)",
        );
    }
    if text.contains(['\n', '\0'])
        || text.ends_with('/')
        || text.split('/').any(|part| part == "." || part == "..")
    {
        return fault(
            format!("{text:?} is not the path of a program"),
            "write the path that `realpath` gives: no \".\", \"..\" or slash at the end",
        );
    }
    Ok(SpecPath::Executable(PathBuf::from(text)))
}

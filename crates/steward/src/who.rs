//! Which process is meant: by the number of it or of one of its threads, or by name.
//!
//! A name is that of the program: what the kernel calls the process, the last part of the executable's path, or of what
//! it was started as; with a slash in it, the executable's whole path. Where several match, those of the caller's own
//! user count before those of others.

use std::fmt;

use clap::Args;
use steward_kernel::{Roots, process};

use crate::users::Users;

/// How many processes are listed when a name means several.
const LISTED_MAX: usize = 20;
/// How much of a command line is listed, in characters.
const COMMAND_CHARACTERS_MAX: usize = 60;
/// Ticks of process start times in a second (`USER_HZ`, the same on every architecture that Steward runs on).
const TICK_NS: u64 = 10_000_000;

/// A process, as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By the number of it, or of one of its threads.
    Number(i32),
    /// By name.
    Name(String),
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Number(number) => write!(formatter, "{number}"),
            Who::Name(name) => formatter.write_str(name),
        }
    }
}

/// What to take when a name means several processes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Several {
    /// When the name means several processes, all of them.
    #[arg(long, conflicts_with = "newest")]
    pub all: bool,
    /// When the name means several processes, the one that was started last.
    #[arg(long)]
    pub newest: bool,
}

/// The same where only one can be meant.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Newest {
    /// When the name means several processes, the one that was started last.
    #[arg(long)]
    pub newest: bool,
}

/// Reads a number above 0, or anything that is none as a name.
pub fn parse(text: &str) -> Result<Who, String> {
    if !text.is_empty() && !text.starts_with('-') && text.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Ok(Who::Name(text.to_owned()));
    }
    match text.parse() {
        Ok(number) if number > 0 => Ok(Who::Number(number)),
        _ => Err("write the number of a process, or its name".to_owned()),
    }
}

/// A process that a name may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    pid: i32,
    uid: u32,
    /// In ticks since boot.
    started_ticks: u64,
    /// What it was started as, on one line.
    command: String,
}

/// A name that means several processes, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It means none.
    Nobody(String),
    /// It means several: wrong usage, and the list says what there is to choose from.
    Several(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Nobody(text) | NoAnswer::Several(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for NoAnswer {}

/// The processes that are meant: at least one, and more than one only if `several.all` asks for it.
///
/// # Errors
/// [`NoAnswer`], or why processes cannot be listed.
pub fn resolve(who: &Who, several: Several) -> anyhow::Result<Vec<i32>> {
    choose_from(who, several, true)
}

/// The process that is meant.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_one(who: &Who, newest: Newest) -> anyhow::Result<i32> {
    let pids = choose_from(who, Several { all: false, newest: newest.newest }, false)?;
    Ok(*pids.first().expect("a choice has at least one"))
}

/// As [`resolve_one`]; the number of a thread is taken for its process.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_process(who: &Who, newest: Newest) -> anyhow::Result<i32> {
    let number = resolve_one(who, newest)?;
    // Of one that has ended the daemon says so.
    Ok(process::process_of(number, &Roots::default()).unwrap_or(number))
}

fn choose_from(who: &Who, several: Several, all_is_offered: bool) -> anyhow::Result<Vec<i32>> {
    let name = match who {
        Who::Number(number) => return Ok(vec![*number]),
        Who::Name(name) => name,
    };
    let roots = Roots::default();
    let own_uid = rustix::process::getuid().as_raw();
    let candidates = prefer_own(candidates(name, &roots)?, own_uid);
    if candidates.is_empty() {
        let text = format!("there is no process called {name:?}; steward top shows what runs");
        return Err(NoAnswer::Nobody(text).into());
    }
    if candidates.len() > 1 && !several.all && !several.newest {
        let text = listing(name, &candidates, all_is_offered, uptime_ns(), &Users::read());
        return Err(NoAnswer::Several(text).into());
    }
    Ok(choose(&candidates, several))
}

/// All, or the one that was started last. Of those started in the same tick, the one with the highest number.
fn choose(candidates: &[Candidate], several: Several) -> Vec<i32> {
    if several.all {
        return candidates.iter().map(|candidate| candidate.pid).collect();
    }
    let newest = candidates.iter().max_by_key(|candidate| (candidate.started_ticks, candidate.pid));
    newest.map(|candidate| candidate.pid).into_iter().collect()
}

fn prefer_own(candidates: Vec<Candidate>, own_uid: u32) -> Vec<Candidate> {
    let is_own = |candidate: &Candidate| candidate.uid == own_uid;
    if candidates.iter().any(is_own) { candidates.into_iter().filter(is_own).collect() } else { candidates }
}

fn candidates(name: &str, roots: &Roots) -> anyhow::Result<Vec<Candidate>> {
    let own_pid = rustix::process::getpid().as_raw_nonzero().get();
    let mut found = Vec::new();
    for process in process::list_first_threads(roots)? {
        let pid = process.id.tid;
        if pid == own_pid {
            continue;
        }
        let directory = roots.proc.join(pid.to_string());
        let command_line = std::fs::read(directory.join("cmdline")).unwrap_or_default();
        let executable = std::fs::read_link(directory.join("exe")).unwrap_or_default();
        if is_called(name, &process.name, &command_line, &executable.to_string_lossy()) {
            let command =
                if command_line.is_empty() { format!("[{}]", process.name) } else { one_line(&command_line) };
            found.push(Candidate { pid, uid: process.uid, started_ticks: process.id.started_ticks, command });
        }
    }
    Ok(found)
}

/// Whether a process is called so, by any of its names.
fn is_called(name: &str, kernels_name: &str, command_line: &[u8], executable: &str) -> bool {
    if name.starts_with('/') {
        return executable == name;
    }
    let first = String::from_utf8_lossy(command_line.split(|byte| *byte == 0).next().unwrap_or_default())
        .into_owned();
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    kernels_name == name || last(executable) == name || last(&first) == name
}

/// A command line as it may be shown: in one line, and without what a terminal would obey.
fn one_line(command_line: &[u8]) -> String {
    let text = String::from_utf8_lossy(command_line);
    let words = text.trim_end_matches('\0').replace('\0', " ");
    let clean: String = words.chars().flat_map(char::escape_debug).collect();
    // What escape_debug does to quotes and backslashes is of no use here.
    let clean = clean.replace("\\'", "'").replace("\\\"", "\"").replace("\\\\", "\\");
    match clean.char_indices().nth(COMMAND_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &clean[..end]),
        None => clean,
    }
}

fn uptime_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `12s`, `5min`, `3h`, `9d`, rounded down.
fn age(age_ns: u64) -> String {
    match age_ns / 1_000_000_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}min", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn listing(name: &str, candidates: &[Candidate], all_is_offered: bool, now_ns: u64, users: &Users) -> String {
    let mut rows = vec![["PID", "USER", "RUNS FOR", "COMMAND"].map(str::to_owned).to_vec()];
    rows.extend(candidates.iter().take(LISTED_MAX).map(|candidate| {
        let age_ns = now_ns.saturating_sub(candidate.started_ticks.saturating_mul(TICK_NS));
        vec![candidate.pid.to_string(), users.name(candidate.uid), age(age_ns), candidate.command.clone()]
    }));
    let more = match candidates.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    let choice = if all_is_offered { ", or say --newest or --all" } else { ", or say --newest" };
    format!(
        "{} processes are called {name:?}:\n{}{more}Name one of them by its number{choice}.",
        candidates.len(),
        crate::output::table(&rows, &[0, 2])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(pid: i32, uid: u32, started_ticks: u64) -> Candidate {
        Candidate { pid, uid, started_ticks, command: format!("mplayer {pid}.mkv") }
    }

    #[test]
    fn a_number_is_a_process_and_all_else_a_name() {
        assert_eq!(parse("4321"), Ok(Who::Number(4321)));
        for name in ["mplayer", "7zip", "kworker/0:1", "日本"] {
            assert_eq!(parse(name), Ok(Who::Name(name.into())));
        }
        for wrong in ["", "0", "-5", "99999999999", "-x"] {
            assert!(parse(wrong).unwrap_err().contains("or its name"), "{wrong}");
        }
    }

    #[test]
    fn a_process_is_called_by_any_of_its_names() {
        let is = |name| {
            is_called(name, "chrome_crashpad", b"/opt/google/chrome/chrome\0--type=x", "/opt/google/bin")
        };
        for name in ["chrome_crashpad", "chrome", "bin", "/opt/google/bin"] {
            assert!(is(name), "{name}");
        }
        for name in ["chrom", "", "--type=x", "/opt/google", "google"] {
            assert!(!is(name), "{name}");
        }
        assert!(is_called("kworker/0:1", "kworker/0:1", b"", ""));
    }

    #[test]
    fn own_processes_go_before_those_of_others() {
        let all = vec![candidate(1, 0, 5), candidate(2, 1000, 6), candidate(3, 1000, 7)];
        let pids =
            |uid| prefer_own(all.clone(), uid).iter().map(|candidate| candidate.pid).collect::<Vec<_>>();
        assert_eq!((pids(1000), pids(0), pids(7)), (vec![2, 3], vec![1], vec![1, 2, 3]));
    }

    #[test]
    fn of_several_the_newest_or_all_are_taken() {
        let several = [candidate(9, 0, 5), candidate(7, 0, 8), candidate(8, 0, 8)];
        assert_eq!(choose(&several, Several { newest: true, all: false }), [8]);
        assert_eq!(choose(&several, Several { newest: false, all: true }), [9, 7, 8]);
    }

    #[test]
    fn several_are_listed_so_that_one_can_be_chosen() {
        let mut candidates: Vec<Candidate> = (1..=22).map(|pid| candidate(pid, 4711, 100)).collect();
        candidates[0].command = one_line(b"evil\x1b[2J\0it's \"a\" \\\0");
        let text = listing("mplayer", &candidates, true, 62_000_000_000, &Users::default());
        let start = "22 processes are called \"mplayer\":\nPID  USER  RUNS FOR  COMMAND\n";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("  1  4711      1min  evil\\u{1b}[2J it's \"a\" \\\n"), "{text}");
        assert!(
            text.ends_with("and 2 more\nName one of them by its number, or say --newest or --all."),
            "{text}"
        );
        assert!(!listing("x", &candidates, false, 0, &Users::default()).contains("--all"));
        assert!(one_line(&[b'x'; 100]).ends_with("x..."));
        let ages = [59, 60, 3_600, 864_000].map(|seconds| age(seconds * 1_000_000_000));
        assert_eq!(ages, ["59s", "1min", "1h", "10d"]);
    }

    #[test]
    fn this_machine_can_be_searched() {
        let nobody = resolve(&Who::Name("no such process".into()), Several::default()).expect_err("nobody");
        assert!(matches!(nobody.downcast_ref(), Some(NoAnswer::Nobody(_))), "{nobody}");
        assert_eq!(resolve(&Who::Number(7), Several::default()).expect("a number is taken as it is"), [7]);
    }
}

//! A key in a real program on a terminal (Edwards & Cao): starts it on a pseudo-terminal, waits, presses a key, and
//! takes the time until the program has written that key.
//!
//! `typist [--first TEXT] [--key TEXT] [--answer TEXT] [--keys 4] [--pause 40] [--settle 3] [--start-max 60] -- \
//! COMMAND...`
//!
//! The program is there when it has written nothing for `--settle` seconds, at the latest after `--start-max`. Then
//! `--first` is typed, as `i` to vi; a pause is from an answer to the next key. The key is one that none of these has
//! on its screen by itself, `Z`, and answered when it is there; or `--key`, as `:w` to vi with a newline, and
//! `--answer`, as what vi writes once the file is on the disk. For each key it prints the time to the answer, how many
//! pages the program had to wait for a disk for meanwhile, and for how long it ran and waited for a CPU. It ends with
//! the program, and keeps it until it is killed.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::Error;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context, bail};
use steward_lab_workloads::{clock, number, output};

const KEY: &str = "Z";
const NS: f64 = 1e9;

struct Options {
    first: String,
    key: String,
    answer: Option<String>,
    keys: u32,
    pause: f64,
    settle: f64,
    start_max: f64,
    command: Vec<OsString>,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let (keys, pause, settle, start_max) = (4, 40.0, 3.0, 60.0);
    let mut options = Options {
        first: String::new(),
        key: KEY.to_owned(),
        answer: None,
        keys,
        pause,
        settle,
        start_max,
        command: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("first") => options.first = parser.value()?.string()?,
            Long("key") => options.key = parser.value()?.string()?,
            Long("answer") => options.answer = Some(parser.value()?.string()?),
            Long("keys") => options.keys = number(&mut parser)?,
            Long("pause") => options.pause = number(&mut parser)?,
            Long("settle") => options.settle = number(&mut parser)?,
            Long("start-max") => options.start_max = number(&mut parser)?,
            Value(word) => {
                options.command.push(word);
                options.command.extend(parser.raw_args()?);
            }
            other => return Err(other.unexpected()),
        }
    }
    if options.command.is_empty() {
        return Err("give the command to type at".into());
    }
    if options.key.is_empty() || options.answer.as_ref().is_some_and(String::is_empty) {
        return Err("there is no key without a character, and no answer".into());
    }
    Ok(options)
}

/// A program on a terminal of its own, as its keyboard and screen see it.
struct Terminal {
    descriptor: i32,
    pid: i32,
}

impl Terminal {
    fn start(command: &[OsString]) -> anyhow::Result<Terminal> {
        let words = command.iter().map(|word| CString::new(word.clone().into_vec()));
        let words = words.collect::<Result<Vec<_>, _>>().context("a word of the command has a zero in it")?;
        let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let mut descriptor = -1;
        // SAFETY: this process has one thread; the two structures outlive the call, and no name is asked for.
        let pid = unsafe {
            libc::forkpty(&raw mut descriptor, std::ptr::null_mut(), std::ptr::null(), &raw const size)
        };
        match pid {
            -1 => Err(Error::last_os_error()).context("there is no pseudo-terminal"),
            0 => {
                // SAFETY: the child ends with its parent, and becomes the command; the pointers end with a null,
                // and what they point to is there until the call.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::execvp(pointers[0], pointers.as_ptr());
                    libc::_exit(127)
                }
            }
            pid => Ok(Terminal { descriptor, pid }),
        }
    }

    fn press(&self, keys: &str) -> anyhow::Result<()> {
        // SAFETY: it is so long, and outlives the call.
        let written = unsafe { libc::write(self.descriptor, keys.as_ptr().cast(), keys.len()) };
        match usize::try_from(written) {
            Ok(written) if written == keys.len() => Ok(()),
            _ => Err(Error::last_os_error()).context("the terminal takes no key"),
        }
    }

    /// What the program writes next, or `None` when it writes nothing for so many milliseconds.
    fn read(&self, patience_ms: i32) -> anyhow::Result<Option<Vec<u8>>> {
        let mut waits = libc::pollfd { fd: self.descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        if unsafe { libc::poll(&raw mut waits, 1, patience_ms) } == 0 {
            return Ok(None);
        }
        let mut buffer = vec![0_u8; 4096];
        // SAFETY: the buffer has so much room.
        let count = unsafe { libc::read(self.descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
        // Linux answers EIO once nobody has the terminal open.
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            bail!("the program has ended");
        };
        buffer.truncate(count);
        Ok(Some(buffer))
    }

    /// Until the program has written nothing for so long.
    fn settle(&self, seconds: f64, most_seconds: f64) -> anyhow::Result<()> {
        let end_ns = clock::now_ns() + (most_seconds * NS) as u64;
        loop {
            let left_ns = end_ns.saturating_sub(clock::now_ns());
            let patience_ms = (seconds * 1e3).min(left_ns as f64 / 1e6).ceil() as i32;
            if left_ns == 0 || self.read(patience_ms)?.is_none() {
                return Ok(());
            }
        }
    }

    /// Until the program has written this.
    fn wait_for(&self, answer: &str) -> anyhow::Result<()> {
        let mut text = Vec::new();
        while !text.windows(answer.len()).any(|window| window == answer.as_bytes()) {
            text.extend(self.read(-1)?.unwrap_or_default());
        }
        Ok(())
    }

    /// For how long the program ran, and for how long it waited for a CPU, in milliseconds
    /// (Documentation/scheduler/sched-stats.rst).
    fn ran_and_waited_ms(&self) -> anyhow::Result<(f64, f64)> {
        let path = format!("/proc/{}/schedstat", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
        let both = numbers.next().zip(numbers.next());
        let (ran_ns, waited_ns) = both.with_context(|| format!("{path} is not as expected: {text}"))?;
        Ok((output::ms(ran_ns), output::ms(waited_ns)))
    }

    /// Pages that the program has waited for a disk for (proc_pid_stat(5), field 12, majflt).
    fn major_faults(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/stat", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // The name, in brackets, may have anything in it.
        let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
        let faults = behind.split_ascii_whitespace().nth(9).and_then(|word| word.parse().ok());
        faults.with_context(|| format!("{path} is not as expected: {text}"))
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    let terminal = Terminal::start(&options.command)?;
    terminal.settle(options.settle, options.start_max)?;
    if !options.first.is_empty() {
        terminal.press(&options.first)?;
    }
    let answer = options.answer.as_ref().unwrap_or(&options.key);
    for _ in 0..options.keys {
        // What it writes by itself meanwhile, as a clock in a corner, is no answer.
        terminal.settle(options.pause, options.pause)?;
        let (faults, before) = (terminal.major_faults()?, terminal.ran_and_waited_ms()?);
        let pressed_ns = clock::now_ns();
        output::line(format_args!("s {:.3}", output::ms(pressed_ns)));
        terminal.press(&options.key)?;
        terminal.wait_for(answer)?;
        let latency_ns = clock::now_ns() - pressed_ns;
        let after = terminal.ran_and_waited_ms()?;
        output::line(format_args!("r {:.3}", output::ms(latency_ns)));
        output::line(format_args!("m {}", terminal.major_faults()? - faults));
        output::line(format_args!("k {:.3} {:.3}", after.0 - before.0, after.1 - before.1));
    }
    loop {
        terminal.read(-1)?;
    }
}

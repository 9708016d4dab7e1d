//! A process whose memory is looked at: this program once more. It does what it is told in lines, and answers each.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use steward_core::process::TaskId;
use steward_kernel::{Roots, process};

/// What makes this program that process.
pub const ARGUMENT: &str = "--be-a-program";

/// The process, as the probe sees it.
pub struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub task: TaskId,
}

impl Program {
    /// Starts this program, or the copy of it that is named.
    pub fn start(executable: &Path, roots: &Roots) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(executable);
        let mut child = command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("it has no pipe")?;
        let answers = BufReader::new(child.stdout.take().ok_or("it has no pipe")?);
        let task = process::stat(i32::try_from(child.id())?, roots)?.id;
        Ok(Program { child, orders, answers, task })
    }

    /// Has it do something, and waits until it has and sleeps: the kernel ages only what has run since it last did, so
    /// that a process on its way to its next order counts as one that uses its memory.
    pub fn ask(&mut self, order: &str) -> Result<(), Box<dyn Error>> {
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.trim() != "done" {
            return Err(format!("{order:?} was answered {answer:?}").into());
        }
        while self.stat_field(0)? != "S" {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// A field of proc_pid_stat(5), counted from the state, which is 0.
    fn stat_field(&self, number: usize) -> Result<String, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.task.tid))?;
        let after_name = text.rsplit_once(')').ok_or("no name")?.1;
        Ok(after_name.split_ascii_whitespace().nth(number).ok_or("no figure")?.to_owned())
    }

    pub fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// How often it had to wait for a disk for a page (`majflt` of proc_pid_stat(5)).
    pub fn major_faults(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.stat_field(9)?.parse()?)
    }

    /// How much of a file is in its page tables, in bytes (`Rss` of proc_pid_smaps(5)).
    pub fn mapped_bytes(&self, file: &Path) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.task.tid))?;
        let mut bytes = 0;
        let mut is_of_file = false;
        for line in text.lines() {
            match line.strip_prefix("Rss:").and_then(|size| size.trim().strip_suffix(" kB")) {
                Some(kib) if is_of_file => bytes += kib.trim().parse::<u64>()? * 1024,
                Some(_) => {}
                None if line.contains('-') => is_of_file = line.ends_with(&*file.to_string_lossy()),
                None => {}
            }
        }
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.end();
    }
}

/// Serves until its orders end.
pub fn serve() -> Result<(), Box<dyn Error>> {
    // Ages are kept by whole huge pages, and those that are used in part would be used as a whole.
    // SAFETY: it concerns how this process's memory is backed, and takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let (mut memory, mut mapped): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
    for order in io::stdin().lines() {
        let order = order?;
        let words: Vec<&str> = order.splitn(3, ' ').collect();
        match words[..] {
            ["use", from, length] => use_anonymous(&mut memory, from.parse()?, length.parse()?),
            ["file", length, path] => file(path, length.parse()?)?,
            ["read", path] => drop(io::copy(&mut File::open(path)?.take(u64::MAX), &mut io::sink())?),
            ["map", length, path] => mapped = map(path, length.parse()?)?,
            ["use-mapped"] => use_mapped(mapped),
            _ => return Err(format!("no such order: {order:?}").into()),
        }
        println!("done");
    }
    Ok(())
}

/// Writes into each page of this part of its anonymous memory, and has that much of it.
fn use_anonymous(memory: &mut Vec<u8>, from: usize, length: usize) {
    if memory.len() < from + length {
        memory.resize(from + length, 0);
    }
    for page in memory[from..from + length].chunks_mut(4096) {
        page[0] = page[0].wrapping_add(1);
    }
}

/// A file of this size that is in memory, and clean.
fn file(path: &str, length: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![7; 1 << 20];
    for _ in 0..length >> 20 {
        file.write_all(&piece)?;
    }
    // What is written is in memory; what is synced is clean.
    file.sync_all()
}

/// The first bytes of a file, as a program maps what it only reads. Nothing is read beyond what is touched.
fn map(path: &str, length: usize) -> io::Result<&'static [u8]> {
    let file = File::open(path)?;
    // SAFETY: a new mapping of a file that nobody cuts while this process lives; it is never unmapped.
    unsafe {
        let flags = libc::MAP_PRIVATE;
        let address = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, flags, file.as_raw_fd(), 0);
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::madvise(address, length, libc::MADV_RANDOM);
        Ok(std::slice::from_raw_parts(address.cast(), length))
    }
}

fn use_mapped(mapped: &[u8]) {
    for page in mapped.chunks(4096) {
        std::hint::black_box(page[0]);
    }
}

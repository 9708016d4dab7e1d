//! A process of the probe: this program once more. It does what it is told in lines, and answers each.

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
    pub fn start(executable: &Path, roots: &Roots) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(executable);
        let mut child = command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("it has no pipe")?;
        let answers = BufReader::new(child.stdout.take().ok_or("it has no pipe")?);
        let task = process::stat(i32::try_from(child.id())?, roots)?.id;
        Ok(Program { child, orders, answers, task })
    }

    /// Has it do something, and waits until it has.
    pub fn ask(&mut self, order: &str) -> Result<(), Box<dyn Error>> {
        writeln!(self.orders, "{order}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.trim() == "done" {
            Ok(())
        } else {
            Err(format!("{order:?} was answered {answer:?}").into())
        }
    }

    /// How often it had to wait for a disk for a page (`majflt` of proc_pid_stat(5)).
    pub fn major_faults(&self) -> Result<u64, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.task.tid))?;
        let after_name = text.rsplit_once(')').ok_or("no name")?.1;
        Ok(after_name.split_ascii_whitespace().nth(9).ok_or("no figure")?.parse()?)
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until its orders end.
pub fn serve() -> Result<(), Box<dyn Error>> {
    let mut mapped: &[u8] = &[];
    for order in io::stdin().lines() {
        let order = order?;
        let words: Vec<&str> = order.splitn(3, ' ').collect();
        match words[..] {
            ["file", length, path] => file(path, length.parse()?)?,
            ["read", path] => drop(io::copy(&mut File::open(path)?.take(u64::MAX), &mut io::sink())?),
            ["map", length, path] => mapped = map(path, length.parse()?)?,
            ["touch"] => touch(mapped),
            _ => return Err(format!("no such order: {order:?}").into()),
        }
        println!("done");
    }
    Ok(())
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

fn touch(mapped: &[u8]) {
    for page in mapped.chunks(4096) {
        std::hint::black_box(page[0]);
    }
}

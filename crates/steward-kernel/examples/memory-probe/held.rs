//! The process whose memory is looked at: this program once more. It does what it is told in lines, and answers each.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What makes this program that process.
pub const ARGUMENT: &str = "--be-held";

/// The process, as the probe sees it.
pub struct Held {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Held {
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let answers = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Held { child, orders, answers })
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
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

    pub fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

/// Serves until its orders end.
pub fn serve() -> Result<(), Box<dyn Error>> {
    // Ages are kept by whole huge pages, and those that are used in part would be used as a whole.
    // SAFETY: it concerns how this process's memory is backed, and takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    let mut memory: Vec<u8> = Vec::new();
    for order in io::stdin().lines() {
        let order = order?;
        let words: Vec<&str> = order.splitn(3, ' ').collect();
        match words[..] {
            ["touch", from, length] => touch(&mut memory, from.parse()?, length.parse()?),
            ["file", length, path] => file(path, length.parse()?)?,
            _ => return Err(format!("no such order: {order:?}").into()),
        }
        println!("done");
    }
    Ok(())
}

fn touch(memory: &mut Vec<u8>, from: usize, length: usize) {
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

//! The processes in a cgroup, listed some at a time: there may be any number of them.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::error::KernelError;

/// How much of the list is read at once, in bytes: some 150 processes. The kernel makes as much as is read.
const PART_BYTES: usize = 1024;

/// A list of processes that is being read.
pub struct Processes {
    source: BufReader<Box<dyn Read + Send>>,
    /// The file, for errors.
    path: PathBuf,
}

impl Processes {
    /// Reads lines with a pid each. `path` is the file.
    pub fn new(source: impl Read + Send + 'static, path: PathBuf) -> Self {
        Processes { source: BufReader::with_capacity(PART_BYTES, Box::new(source)), path }
    }

    /// Some more of them; `None` when those were all. One in another pid namespace is 0.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming the file.
    pub fn some(&mut self) -> Result<Option<Vec<i32>>, KernelError> {
        let mut some = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.source.read_line(&mut line);
            match read.map_err(|source| KernelError::Read { path: self.path.clone(), source })? {
                0 => return Ok(None),
                _ => some.extend(line.trim().parse::<i32>()),
            }
            if !self.source.buffer().contains(&b'\n') {
                return Ok(Some(some));
            }
        }
    }

    /// All that are left.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming the file.
    pub fn all(mut self) -> Result<Vec<i32>, KernelError> {
        let mut all = Vec::new();
        while let Some(some) = self.some()? {
            all.extend(some);
        }
        Ok(all)
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Processes({})", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_long_list_comes_in_parts_of_which_each_is_short_and_none_is_missing() {
        let all: Vec<i32> = (1..5000).collect();
        for ending in ["", "\n"] {
            let lines: Vec<String> = all.iter().map(i32::to_string).collect();
            let text = lines.join("\n") + ending;
            let mut list = Processes::new(Cursor::new(text.into_bytes()), PathBuf::from("cgroup.procs"));
            let mut seen = Vec::new();
            while let Some(some) = list.some().expect("it can be read") {
                assert!(some.len() <= PART_BYTES / 2, "{}", some.len());
                seen.extend(some);
            }
            assert_eq!(seen, all);
        }
    }
}

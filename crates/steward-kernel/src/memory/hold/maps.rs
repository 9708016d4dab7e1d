//! The file mappings of a process, line by line from `/proc/PID/maps` (proc_pid_maps(5)).

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use crate::mounts::encode_device;

/// What is read at once, in bytes. The kernel gives at most a page at a time.
const READ_BYTES: usize = 4096;

/// A part of a process's memory that is a part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Where in the file it starts, in bytes.
    pub offset_bytes: u64,
    /// The device of the file's superblock, as [`encode_device`] has it.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
}

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A mapping of a file.
    File(Mapping),
    /// Memory without a file.
    Other,
    /// There are no more lines.
    End,
}

/// The lines of one process, from the first to the last.
#[derive(Debug)]
pub struct Lines {
    file: File,
    buffer: Vec<u8>,
    /// What of the buffer has been handed out.
    used: usize,
}

impl Lines {
    /// Of an open `maps`.
    pub fn new(file: File) -> Self {
        Lines { file, buffer: Vec::new(), used: 0 }
    }

    /// The next line. At most one page of text is read for an ordinary line, so that a process with very many mappings
    /// is gone through in small steps.
    ///
    /// # Errors
    /// What reading says; a line that makes no sense is [`io::ErrorKind::InvalidData`].
    pub fn next(&mut self) -> io::Result<Line> {
        loop {
            let rest = &self.buffer[self.used..];
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let line = parse(&rest[..length]);
                self.used += length + 1;
                return line.ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let before = self.buffer.len();
            self.buffer.resize(before + READ_BYTES, 0);
            let read = self.file.read(&mut self.buffer[before..]);
            self.buffer.truncate(before + read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(Line::End);
            }
        }
    }
}

/// `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`, all numbers but the inode's in hexadecimal.
fn parse(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ').map(|field| std::str::from_utf8(field).ok());
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = fields.next()??.split_once('-')?;
    let offset = fields.nth(1)??;
    let (major, minor) = fields.next()??.split_once(':')?;
    let device = |text| u32::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        addresses: hexadecimal(start)?..hexadecimal(end)?,
        offset_bytes: hexadecimal(offset)?,
        device: encode_device(device(major)?, device(minor)?),
        inode: fields.next()??.parse().ok()?,
    };
    Some(if mapping.inode == 0 || mapping.addresses.is_empty() { Line::Other } else { Line::File(mapping) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_longer_than_a_read_and_names_that_are_no_text_are_read_like_others() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("maps");
        let mut text = b"7f00-8f00 r-xp 00003000 fe:10 4711                     /usr/lib/\xff x\n".to_vec();
        text.extend(b"8f00-9f00 rw-p 00000000 00:00 0    [heap]\n");
        text.extend(b"ffff0000-ffff1000 r--s 00000000 00:12 9 /".iter().chain(&[b'a'; 3 * READ_BYTES]));
        text.extend(b"\n9f00-af00 rw-p 00000000 00:00 0\n");
        std::fs::write(&path, text).expect("a file");
        let mut lines = Lines::new(File::open(path).expect("it is there"));
        let first = Mapping {
            addresses: 0x7f00..0x8f00,
            offset_bytes: 0x3000,
            device: encode_device(0xfe, 0x10),
            inode: 4711,
        };
        assert_eq!(lines.next().expect("a line"), Line::File(first));
        assert_eq!(lines.next().expect("a line"), Line::Other);
        let Line::File(long) = lines.next().expect("a line") else { panic!("it has a file") };
        assert_eq!((long.addresses.start, long.inode), (0xffff_0000, 9));
        assert_eq!(lines.next().expect("a line"), Line::Other);
        assert_eq!(lines.next().expect("the end"), Line::End);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_an_error() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("maps");
        std::fs::write(&path, "7f00 r-xp\n").expect("a file");
        let mut lines = Lines::new(File::open(path).expect("it is there"));
        assert_eq!(lines.next().expect_err("nonsense").kind(), io::ErrorKind::InvalidData);
    }
}

//! A number of a cgroup that is read again and again: its file stays open, and a reading is one system call.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Longer than any number.
const LENGTH_MAX: usize = 32;

/// `memory.current` of one cgroup. It takes a descriptor.
#[derive(Debug)]
pub struct KeptCharge(pub(super) File);

impl KeptCharge {
    /// What is charged to the cgroup and all below it, in bytes; `None` where it has gone.
    pub fn bytes(&self) -> Option<u64> {
        let mut text = [0; LENGTH_MAX];
        // From the start of the file the kernel says what is so now.
        let length = self.0.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim_end().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_the_file_says_now() {
        let keep = tempfile::tempdir().expect("a temporary directory");
        let path = keep.path().join("memory.current");
        std::fs::write(&path, "4096\n").expect("a file");
        let kept = KeptCharge(File::open(&path).expect("it is there"));
        assert_eq!(kept.bytes(), Some(4096));
        std::fs::write(&path, "18446744073709551615\n").expect("a file");
        assert_eq!((kept.bytes(), kept.bytes()), (Some(u64::MAX), Some(u64::MAX)));
        std::fs::write(&path, "max\n").expect("a file");
        assert_eq!(kept.bytes(), None);
    }
}

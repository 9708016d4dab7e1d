//! How long CPUs have had nothing to do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::KernelError;
use crate::roots::Roots;

/// What `/proc/uptime` counts: the time for which CPUs were idle, summed over all of them, in hundredths of a second.
/// It counts CPUs of the whole machine, what interrupts used and what tasks used that have ended is no part of it, and
/// it is cheap to read again and again.
#[derive(Debug)]
pub struct IdleClock {
    path: PathBuf,
    file: File,
}

impl IdleClock {
    /// Opens the file, which stays open.
    ///
    /// # Errors
    /// [`KernelError::Read`] naming it.
    pub fn open(roots: &Roots) -> Result<Self, KernelError> {
        let path = roots.proc.join("uptime");
        match File::open(&path) {
            Ok(file) => Ok(IdleClock { path, file }),
            Err(source) => Err(KernelError::Read { path, source }),
        }
    }

    /// The idle time since the machine started, in nanoseconds.
    ///
    /// # Errors
    /// [`KernelError::Read`] or [`KernelError::Parse`] naming the file.
    pub fn idle_ns(&self) -> Result<u64, KernelError> {
        let mut buffer = [0; 128];
        let count = self
            .file
            .read_at(&mut buffer, 0)
            .map_err(|source| KernelError::Read { path: self.path.clone(), source })?;
        let text = String::from_utf8_lossy(&buffer[..count]);
        parse(&text).ok_or_else(|| KernelError::parse(self.path.clone(), "two numbers of seconds", &text))
    }
}

/// The second number, which is in seconds with two decimals.
fn parse(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_whitespace().nth(1)?.split_once('.')?;
    let hundredths: u64 = hundredths.parse().ok().filter(|hundredths| *hundredths < 100)?;
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths)?.checked_mul(10_000_000)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_second_number_counts_and_nonsense_does_not() {
        assert_eq!(parse("350735.47 234388.90\n"), Some(234_388_900_000_000));
        for text in ["", "1.00", "1.00 2", "1.00 2.345", "1.00 x.00", "1.00 99999999999999999999.00"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_one_that_grows_and_where_there_is_none_the_error_names_it() {
        let clock = IdleClock::open(&Roots::default()).expect("Linux has it");
        assert!(clock.idle_ns().expect("two numbers") <= clock.idle_ns().expect("two numbers"));
        let error = IdleClock::open(&Roots::under(Path::new("/nowhere"))).expect_err("there is none");
        assert!(error.to_string().contains("/nowhere/proc/uptime"), "{error}");
    }
}

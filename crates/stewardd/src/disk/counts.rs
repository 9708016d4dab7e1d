//! What counts in the kernel what disks do for whom.

use std::io;

use steward_core::disk::ledger::{Key, Reading};

/// What counts in the kernel.
pub trait Counts: Send {
    /// Everything, as it is now.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn read(&mut self, now_ns: u64) -> io::Result<Reading>;
    /// Counts no longer for this one until it makes requests again.
    fn forget(&mut self, key: &Key);
    /// What cannot be told on this kernel, as parts of a sentence.
    fn lacks(&self) -> Vec<&'static str>;
}

/// Begins to count, or says in a sentence why nobody can.
pub type Counter = fn() -> Result<Box<dyn Counts>, String>;

/// The kernel's, where this program has what it takes.
///
/// # Errors
/// In a sentence, what is missing.
#[cfg(feature = "sched_ext")]
pub fn count_in_kernel() -> Result<Box<dyn Counts>, String> {
    use steward_waits::ledger::Ledger;
    struct Kernel(Ledger);
    impl Counts for Kernel {
        fn read(&mut self, now_ns: u64) -> io::Result<Reading> {
            self.0.read(now_ns)
        }

        fn forget(&mut self, key: &Key) {
            self.0.forget(key);
        }

        fn lacks(&self) -> Vec<&'static str> {
            let lacks = self.0.lacks();
            let all = [
                (lacks.owners, "whose pages the kernel's own threads write"),
                (lacks.dirty_limit, "who waits because too much is not written yet"),
                (lacks.journal, "who waits for a journal"),
            ];
            all.into_iter().filter(|(is_lacking, _)| *is_lacking).map(|(_, what)| what).collect()
        }
    }
    let ledger = Ledger::start().map_err(|error| error.to_string())?;
    Ok(Box::new(Kernel(ledger)))
}

/// The kernel's, where this program has what it takes.
///
/// # Errors
/// Always: it does not.
#[cfg(not(feature = "sched_ext"))]
pub fn count_in_kernel() -> Result<Box<dyn Counts>, String> {
    Err("this stewardd is built without BPF".to_owned())
}

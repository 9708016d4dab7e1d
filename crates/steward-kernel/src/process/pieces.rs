//! Looking at all processes a piece at a time, for a loop on which others wait meanwhile: to read 4,000 of them takes
//! two thirds of a second of a slow CPU.

use std::collections::BTreeSet;

use super::numbered_entries;
use crate::clock::now_ns;
use crate::error::KernelError;
use crate::roots::Roots;

/// For how long it is looked at processes in one go, in nanoseconds: whoever asks something is to be answered within
/// 50 ms.
const PIECE_NS: u64 = 5_000_000;
/// How long the CPU is left to others until the next, in nanoseconds.
pub const PAUSE_NS: u64 = 15_000_000;

/// The processes that are still to be looked at.
#[derive(Debug)]
pub struct Pieces {
    left: BTreeSet<i32>,
    go_on_at_ns: u64,
    is_to_be_repeated: bool,
}

impl Pieces {
    /// Those that there are now, and `known`: whoever is known and not there any more is looked at too, and not found.
    ///
    /// # Errors
    /// [`KernelError`] when procfs cannot be read.
    pub fn begin(roots: &Roots, known: impl IntoIterator<Item = i32>) -> Result<Self, KernelError> {
        let left = numbered_entries(&roots.proc)?.into_iter().chain(known).collect();
        Ok(Pieces { left, go_on_at_ns: 0, is_to_be_repeated: false })
    }

    /// Has them be looked at once more afterwards: something was lost meanwhile.
    pub fn repeat(&mut self) {
        self.is_to_be_repeated = true;
    }

    /// Whether they are to be.
    pub fn is_to_be_repeated(&self) -> bool {
        self.is_to_be_repeated
    }

    /// When it is time for the next piece, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn go_on_at_ns(&self) -> u64 {
        self.go_on_at_ns
    }

    /// If it is time to, calls `look` with the number of one process after the other for a while, at least with one.
    /// Says whether any are left then.
    pub fn go_on(&mut self, mut look: impl FnMut(i32)) -> bool {
        let begun_ns = now_ns();
        if begun_ns < self.go_on_at_ns {
            return true;
        }
        while let Some(pid) = self.left.pop_first() {
            look(pid);
            let looked_at_ns = now_ns();
            if looked_at_ns >= begun_ns + PIECE_NS {
                self.go_on_at_ns = looked_at_ns + PAUSE_NS;
                break;
            }
        }
        !self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work_until(at_ns: u64) {
        while now_ns() < at_ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn each_is_looked_at_once_a_few_at_a_time_and_who_is_only_known_too() {
        let directory = tempfile::tempdir().expect("a directory");
        let roots = Roots::under(directory.path());
        for name in ["1", "7", "30", "self"] {
            std::fs::create_dir_all(roots.proc.join(name)).expect("a directory");
        }
        let mut pieces = Pieces::begin(&roots, [7, 8]).expect("it can be read");
        let mut looked = Vec::new();
        loop {
            let before = looked.len();
            let are_left = pieces.go_on(|pid| {
                looked.push(pid);
                work_until(now_ns() + PIECE_NS);
            });
            assert!(looked.len() <= before + 1, "each takes as long as a piece may");
            if !are_left {
                break;
            }
            let (at_ns, before) = (pieces.go_on_at_ns(), looked.len());
            pieces.go_on(|pid| looked.push(pid));
            assert!(looked.len() == before || now_ns() >= at_ns, "they came without a pause: {looked:?}");
            work_until(at_ns);
        }
        assert_eq!(looked, [1, 7, 8, 30]);
        assert!(Pieces::begin(&Roots::under("/nonexistent".as_ref()), []).is_err());
    }
}

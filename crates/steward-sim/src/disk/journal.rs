//! The journal of a file system that all share (jbd2; Yang 2009, section 10.1.1): who waits for a file to be on the
//! disk waits for the transaction that it is in. One is committed at a time: first what was being written of its data,
//! where it waits for that (`CacheSettings::commits_wait_for_data`), then its blocks, then the record that it is
//! complete. Who comes meanwhile is in the next one, with all others who do.

use std::collections::BTreeSet;

/// A block of the journal's.
const BLOCK_BYTES: u64 = 4096;
/// Blocks that a transaction has whoever is in it.
const BLOCKS: u64 = 2;

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Data,
    Blocks,
    Record,
}

/// A transaction that is being committed.
#[derive(Debug)]
struct Commit {
    waiters: Vec<usize>,
    data: BTreeSet<u64>,
    stage: Stage,
}

/// What is to be done next for the journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    /// It writes so many bytes.
    pub(super) writes: Option<u64>,
    /// For these programs the commit is complete.
    pub(super) done: Vec<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Who waits for the transaction that is open.
    waiters: Vec<usize>,
    /// Requests of its data that are on their way.
    data: BTreeSet<u64>,
    commit: Option<Commit>,
}

impl Journal {
    /// A program waits for what it has written.
    pub(super) fn join(&mut self, program: usize) -> Next {
        self.waiters.push(program);
        self.begin()
    }

    /// A request with data of the open transaction goes its way.
    pub(super) fn with_data(&mut self, id: u64) {
        self.data.insert(id);
    }

    /// It is on the disk.
    pub(super) fn data_written(&mut self, id: u64) -> Next {
        self.data.remove(&id);
        match &mut self.commit {
            Some(commit) if commit.stage == Stage::Data => {
                commit.data.remove(&id);
                self.go_on()
            }
            _ => Next::default(),
        }
    }

    /// What the journal wrote is on the disk.
    pub(super) fn written(&mut self) -> Next {
        let Some(commit) = &mut self.commit else { return Next::default() };
        match commit.stage {
            Stage::Data => Next::default(),
            Stage::Blocks => {
                commit.stage = Stage::Record;
                Next { writes: Some(BLOCK_BYTES), done: Vec::new() }
            }
            Stage::Record => {
                let done = self.commit.take().map(|commit| commit.waiters).unwrap_or_default();
                Next { done, ..self.begin() }
            }
        }
    }

    fn begin(&mut self) -> Next {
        if self.commit.is_some() || self.waiters.is_empty() {
            return Next::default();
        }
        self.commit = Some(Commit {
            waiters: std::mem::take(&mut self.waiters),
            data: std::mem::take(&mut self.data),
            stage: Stage::Data,
        });
        self.go_on()
    }

    /// Goes on once there is no data that it waits for.
    fn go_on(&mut self) -> Next {
        match &mut self.commit {
            Some(commit) if commit.stage == Stage::Data && commit.data.is_empty() => {
                commit.stage = Stage::Blocks;
                let blocks = BLOCKS + commit.waiters.len() as u64;
                Next { writes: Some(blocks * BLOCK_BYTES), done: Vec::new() }
            }
            _ => Next::default(),
        }
    }
}

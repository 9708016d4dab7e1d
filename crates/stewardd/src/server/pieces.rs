//! Answers that are made in pieces: who asks for a long list has it made some at a time, a piece in each of his turns,
//! so that whoever else calls waits for a piece of it and not for the whole.
//!
//! What is made so far travels with the call. It is gone with the client, and counts as what is held for that one.

use std::any::Any;
use std::fmt;

use libsteward::wire::Call;

/// A call, as it is put to the daemon.
#[derive(Debug)]
pub struct Put {
    /// What is asked.
    pub call: Call,
    /// What was made of the answer when it was put before.
    pub made: Option<Unfinished>,
}

impl From<Call> for Put {
    fn from(call: Call) -> Self {
        Put { call, made: None }
    }
}

/// What is made so far of an answer; only its maker knows what that is.
pub struct Unfinished {
    work: Box<dyn Any + Send>,
    held_bytes: usize,
    is_begun: bool,
}

impl Unfinished {
    /// `work` takes `held_bytes` of memory, and `is_begun` says whether some of the answer itself is made.
    pub fn new(work: impl Any + Send, held_bytes: usize, is_begun: bool) -> Self {
        Unfinished { work: Box::new(work), held_bytes, is_begun }
    }

    /// What it was made from, for its maker.
    pub fn into_work<T: Any>(self) -> Option<T> {
        self.work.downcast().ok().map(|work| *work)
    }

    /// Whether it is this one's.
    pub fn is_of<T: Any>(&self) -> bool {
        self.work.is::<T>()
    }

    /// What it takes of memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether some of the answer itself is made.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Unfinished({} bytes)", self.held_bytes)
    }
}

//! What there is to see of a server, where `steward servers` finds it: in a file in memory that only this process has
//! open.
//!
//! Whoever may look into the process may read it there (`/proc/PID/fd`), and nobody else; it needs no daemon, no port
//! and no path, and goes with the process. Its name says what it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::shared::Shared;
use crate::snapshot::Snapshot;

/// The name of the file; readers look for `/memfd:` and this.
pub const PUBLISHED_NAME: &str = "steward-server";

/// How old it is at most.
const EVERY: Duration = Duration::from_secs(1);

/// The file of one server.
#[derive(Debug)]
pub(super) struct Published {
    file: File,
    last: String,
}

impl Published {
    /// Makes it.
    ///
    /// # Errors
    /// The kernel's: no descriptor, no memory.
    pub(super) fn new() -> io::Result<Self> {
        let file = memfd_create(PUBLISHED_NAME, MemfdFlags::CLOEXEC)?.into();
        Ok(Published { file, last: String::new() })
    }

    /// Writes the snapshot as JSON on one line, if it is another one than before. Who reads meanwhile gets what is not
    /// JSON, and reads again.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut text = snapshot.to_json();
        text.push('\n');
        if text == self.last {
            return Ok(());
        }
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.last = text;
        Ok(())
    }
}

/// Publishes what there is to see, until the server is closed and nobody is at work.
pub(super) fn keep(shared: &Arc<Shared>) {
    let outcome = Published::new().and_then(|mut published| {
        loop {
            published.write(&shared.snapshot())?;
            let state = shared.state();
            if state.is_closing && state.is_over() {
                return Ok(());
            }
            drop(state);
            std::thread::sleep(EVERY);
        }
    });
    if let Err(error) = outcome {
        tracing::warn!("steward-server: `steward servers` does not show this server: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_the_last_snapshot_and_nothing_of_a_longer_one_before() {
        let mut published = Published::new().expect("memory");
        let long = Snapshot { unreserved: Some("a long reason".into()), ..Snapshot::default() };
        for snapshot in [long, Snapshot { reserved_workers: 3, ..Snapshot::default() }] {
            published.write(&snapshot).expect("memory");
            let text = std::fs::read_to_string(format!("/proc/self/fd/{}", descriptor(&published)))
                .expect("it is open");
            assert_eq!(serde_json::from_str::<Snapshot>(&text).expect("JSON"), snapshot);
        }
    }

    fn descriptor(published: &Published) -> i32 {
        use std::os::fd::AsRawFd;
        published.file.as_raw_fd()
    }
}

//! Records what the loop sees and decides, for whoever wants to replay it in the simulator.
//!
//! A thread of its own writes, since a disk may keep it waiting: what it cannot take at once is left out.

use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};

use steward_core::memory::recorded::{Header, Look, VERSION};

/// So many looks wait to be written at most: four seconds.
const WAITING_MAX: usize = 16;
/// A recording ends with this size, in bytes.
const SIZE_MAX_BYTES: usize = 256 << 20;

/// The end at which looks go in. Dropping it ends the thread, once it has written what waits.
pub(super) struct Recorder(SyncSender<Look>);

impl Recorder {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there can be no more threads, or nothing can be written.
    pub(super) fn start(mut file: File) -> std::io::Result<Self> {
        writeln!(file, "{}", line(&Header { steward_memory_recording: VERSION })?)?;
        let (sender, looks) = sync_channel::<Look>(WAITING_MAX);
        let mut write = move || -> std::io::Result<()> {
            let mut left_bytes = SIZE_MAX_BYTES;
            while let Ok(look) = looks.recv() {
                let line = line(&look)?;
                let Some(left) = left_bytes.checked_sub(line.len()) else { return Ok(()) };
                left_bytes = left;
                writeln!(file, "{line}")?;
            }
            Ok(())
        };
        let work = move || {
            if let Err(error) = write() {
                tracing::warn!("what the memory loop sees is recorded no longer: {error}");
            }
        };
        std::thread::Builder::new().name("record".into()).spawn(work)?;
        Ok(Recorder(sender))
    }

    /// Takes a look in, unless too many wait.
    pub(super) fn note(&self, look: Look) {
        // What is left out is seen by the time of the next.
        let _ = self.0.try_send(look);
    }
}

fn line(of: &impl serde::Serialize) -> std::io::Result<String> {
    serde_json::to_string(of).map_err(std::io::Error::other)
}

//! The program in docs/how-to/ask-how-much-memory.md.

use libsteward::availability::Watcher;

/// A cache that is asked to shrink.
struct Cache {
    bytes: u64,
}

impl Cache {
    fn shrink_to(&mut self, bytes: u64) {
        self.bytes = self.bytes.min(bytes);
    }
}

fn main() -> std::io::Result<()> {
    let mut cache = Cache { bytes: 1 << 30 };
    let mut watcher = Watcher::of_own_domain(libsteward::SOCKET_PATH)?;
    // Whenever it suits: before growing, say. It costs a microsecond.
    if let Some(told) = watcher.poll()? {
        cache.shrink_to(told.available / 16 * 15);
    }
    // Or on a thread of its own, until `watching` is dropped.
    let watching = watcher.spawn(|told| println!("{} of {} bytes", told.used, told.available))?;
    drop(watching);
    Ok(())
}

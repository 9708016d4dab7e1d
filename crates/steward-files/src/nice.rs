//! Which of the threads come first. One takes requests from the kernel, which has one queue for those of all users:
//! behind many programs that want the CPU it would let whoever comes last wait for all who came before, however little
//! each costs. What is asked is answered by others.

use std::io;

use rustix::process::setpriority_process;

/// The nice value of those that come first.
pub(crate) const FIRST: i32 = -20;

/// Has a thread start others that come first. Without the right to it they are as all others.
pub(crate) fn start_first<T: Send + 'static>(
    start: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let starter = std::thread::Builder::new().spawn(move || {
        // Of this thread and those that it starts, which have it from their beginning.
        let _ = setpriority_process(None, FIRST);
        start()
    })?;
    starter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Has the calling thread, which one that comes first has started, be as all others.
pub(crate) fn be_as_others() {
    // It may always be nicer.
    let _ = setpriority_process(None, 0);
}

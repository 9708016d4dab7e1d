//! Forking children that die with their parent.

use std::io::{Error, Result};

/// Forks; the child runs `body` and exits with 0. Returns the child's pid.
///
/// The programs of the lab have one thread, so that the child may use everything that the parent could.
///
/// # Errors
/// The kernel's, when there is no room for another process.
pub fn fork(body: impl FnOnce()) -> Result<i32> {
    // SAFETY: this process has a single thread, so no lock can be held by another one at the fork.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os_error()),
        0 => {
            // SAFETY: plain system calls without memory arguments.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            body();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits until `pid` has ended.
pub fn wait(pid: i32) {
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } == -1
        && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}

/// What this process (`RUSAGE_SELF`) or its children that were waited for (`RUSAGE_CHILDREN`) have used so far.
pub(crate) fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: a structure of plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the call.
    let result = unsafe { libc::getrusage(who, &raw mut usage) };
    assert_eq!(result, 0, "getrusage failed");
    usage
}

/// Nanoseconds of CPU time that children had which were waited for.
pub fn children_cpu_ns() -> u64 {
    let used = usage(libc::RUSAGE_CHILDREN);
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(used.ru_utime) + ns(used.ru_stime)
}

/// Whether `pid`, a child, has ended.
pub fn has_ended(pid: i32) -> bool {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) == pid }
}

/// Kills `pid`, a child that has not been waited for.
pub fn kill(pid: i32) {
    // SAFETY: a pid of our own child that we have not waited for cannot have been reused.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Two connected descriptors: `(read end, write end)` of a pipe.
///
/// # Errors
/// The kernel's, when there are no descriptors left.
pub fn pipe() -> Result<(i32, i32)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    match unsafe { libc::pipe(ends.as_mut_ptr()) } {
        0 => Ok((ends[0], ends[1])),
        _ => Err(Error::last_os_error()),
    }
}

/// Reads one byte; `false` at the end of the stream.
pub fn read_byte(descriptor: i32) -> bool {
    let mut byte = 0u8;
    // SAFETY: one byte of room.
    unsafe { libc::read(descriptor, (&raw mut byte).cast(), 1) == 1 }
}

/// Writes one byte; `false` when nobody reads any more.
pub fn write_byte(descriptor: i32) -> bool {
    // SAFETY: one byte, from a constant.
    unsafe { libc::write(descriptor, b"t".as_ptr().cast(), 1) == 1 }
}

/// Closes a descriptor that this module gave out.
pub fn close(descriptor: i32) {
    // SAFETY: the caller owns it.
    unsafe { libc::close(descriptor) };
}

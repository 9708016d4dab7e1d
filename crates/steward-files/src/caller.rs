//! Who is behind a request, from the kernel: the user and group of the request's header, and the process of its thread.
//!
//! While a request is answered its thread waits inside the kernel, so that its number cannot be another's, unless it
//! is killed meanwhile. For that case whoever acts on the process holds it by a pidfd and looks again afterwards.

use std::path::Path;

/// Who touched a file: the thread, and the user and group with whose rights it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The thread.
    pub tid: i32,
    /// The user (`fsuid`).
    pub uid: u32,
    /// The group (`fsgid`).
    pub gid: u32,
    /// See [`Credentials::can_wait`].
    pub can_wait: bool,
}

/// The process and the user who read or wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user with whose rights the file was touched (`fsuid`).
    pub uid: u32,
    /// The group with whose rights the file was touched (`fsgid`).
    pub gid: u32,
    /// The process; 0 when it has ended.
    pub pid: i32,
    /// Whether a person can be asked for permission meanwhile: a change is answered on a thread of its own, and whoever
    /// reads must not hold up the others.
    pub can_wait: bool,
}

impl Credentials {
    /// Looks the process of a request's thread up.
    pub(crate) fn of(asker: Asker) -> Self {
        let Asker { tid, uid, gid, can_wait } = asker;
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        Credentials { uid, gid, pid: process_of(&status).unwrap_or(0), can_wait }
    }
}

/// Whether a thread is one of our own: waiting for ourselves would never end.
pub(crate) fn is_own_thread(tid: i32) -> bool {
    Path::new(&format!("/proc/self/task/{tid}")).exists()
}

fn process_of(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_looked_up_with_its_process() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let own = Credentials::of(Asker { tid, uid: 5, gid: 6, can_wait: true });
        let pid = std::process::id() as i32;
        assert_eq!(own, Credentials { uid: 5, gid: 6, pid, can_wait: true });
        assert!(is_own_thread(tid));
    }

    #[test]
    fn nobody_is_found_where_nobody_is() {
        assert_eq!(Credentials::of(Asker { tid: 0, uid: 1000, gid: 1000, can_wait: false }).pid, 0);
        assert!(!is_own_thread(1) && !is_own_thread(0));
    }
}

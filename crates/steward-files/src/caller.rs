//! Who is behind a request, from the kernel: the user and group of the request's header, and what procfs says about
//! its thread.
//!
//! While a request is answered its thread waits inside the kernel, so that its number cannot be another's, unless it
//! is killed meanwhile. For that case whoever acts on the process holds it by a pidfd and looks again afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process and the user who read or wrote a file.
#[derive(Debug)]
pub struct Credentials {
    /// The user with whose rights the file was touched (`fsuid`).
    pub uid: u32,
    /// The group with whose rights the file was touched (`fsgid`).
    pub gid: u32,
    /// Its further groups.
    pub groups: Vec<u32>,
    /// The process; 0 when it has ended.
    pub pid: i32,
    /// Holds on to the process itself. `None` when it has ended.
    pub process: Option<OwnedFd>,
}

impl Credentials {
    /// Looks the thread of a request up.
    pub fn of_thread(tid: i32, uid: u32, gid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
        let pid = process_of(&status).unwrap_or(0);
        let groups = groups_of(&status);
        Credentials { uid, gid, groups, pid, process: open(pid).ok() }
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()))?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether a thread is one of our own: waiting for ourselves would never end.
pub(crate) fn is_own_thread(tid: i32) -> bool {
    Path::new(&format!("/proc/self/task/{tid}")).exists()
}

fn process_of(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn groups_of(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_looked_up_with_its_process_and_groups() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let own = Credentials::of_thread(tid, 5, 6);
        assert_eq!((own.uid, own.gid, own.pid), (5, 6, std::process::id() as i32));
        assert!(own.process.is_some() && is_own_thread(tid));
        let status = "Name:\tx\nTgid:\t7\nGroups:\t4 24 1000 \n";
        assert_eq!((process_of(status), groups_of(status)), (Some(7), vec![4, 24, 1000]));
    }

    #[test]
    fn nobody_is_found_where_nobody_is() {
        let nobody = Credentials::of_thread(0, 1000, 1000);
        assert_eq!((nobody.pid, nobody.process.is_none()), (0, true));
        assert!(!is_own_thread(1) && !is_own_thread(0));
    }
}

//! Who sits at the machine, as logind (or elogind) says in its files below `/run/systemd` (`sd_uid_get_sessions(3)`,
//! `sd_session_is_active(3)`).
//!
//! The files are written by logind alone. They are read rather than asked for, because an answer must not be waited
//! for.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Roots;

/// How many sessions of one user are looked at. A machine has few seats, and each has one active session.
const SESSIONS_MAX: usize = 16;
/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Whether a user has an active session on a seat of this machine: is at its screen and keyboard now, and neither
/// logged in over the network, nor switched away from, nor the greeter of a display manager. Without logind nobody has.
pub fn has_active_local(uid: u32, roots: &Roots) -> bool {
    let Some(user) = read(&roots.run.join(format!("systemd/users/{uid}"))) else { return false };
    let sessions = user.get("ACTIVE_SESSIONS").map(String::as_str).unwrap_or_default();
    sessions
        .split_whitespace()
        .take(SESSIONS_MAX)
        .filter(|session| session.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .filter_map(|session| read(&roots.run.join("systemd/sessions").join(session)))
        .any(|session| is_active_local(&session, uid))
}

fn is_active_local(session: &BTreeMap<String, String>, uid: u32) -> bool {
    let is = |key: &str, value: &str| session.get(key).is_some_and(|is| is == value);
    is("UID", &uid.to_string())
        && is("ACTIVE", "1")
        && is("REMOTE", "0")
        && is("CLASS", "user")
        && session.get("SEAT").is_some_and(|seat| !seat.is_empty())
}

/// The `KEY=value` lines of a file; `None` when it cannot be read or is no such file.
fn read(file: &Path) -> Option<BTreeMap<String, String>> {
    // Anything but a file could be waited for.
    let facts = std::fs::symlink_metadata(file).ok()?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return None;
    }
    let text = std::fs::read_to_string(file).ok()?;
    let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    Some(text.lines().filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What logind of systemd 257 writes for somebody at a desktop, as far as it is looked at.
    const SESSION: &str = "# This is private data. Do not parse.\nUID=1000\nUSER=alice\nACTIVE=1\nIS_DISPLAY=1\n\
                           STATE=active\nREMOTE=0\nLEADER_FD_SAVED=1\nTYPE=wayland\nCLASS=user\nSCOPE=session-2.scope\n\
                           SEAT=seat0\nTTY=tty2\nSERVICE=gdm-password\nVTNR=2\nLEADER=1234\n";

    struct Logind(tempfile::TempDir);

    impl Logind {
        fn new() -> Self {
            let place = tempfile::tempdir().expect("a temporary directory");
            for directory in ["users", "sessions"] {
                std::fs::create_dir_all(place.path().join("run/systemd").join(directory)).expect("created");
            }
            Logind(place)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join("run/systemd").join(name), text).expect("written");
        }

        fn says(&self, uid: u32) -> bool {
            has_active_local(uid, &Roots::under(self.0.path()))
        }
    }

    #[test]
    fn who_has_an_active_session_on_a_seat_is_at_the_machine() {
        let logind = Logind::new();
        assert!(!logind.says(1000));
        logind.write("users/1000", "NAME=alice\nSTATE=active\nSESSIONS=2 5\nACTIVE_SESSIONS=5 2\n");
        assert!(!logind.says(1000), "without a session it is nobody");
        logind.write("sessions/2", SESSION);
        assert!(logind.says(1000));
        assert!(!logind.says(1001) && !logind.says(0));
    }

    #[test]
    fn a_session_elsewhere_in_the_background_or_of_a_greeter_does_not_count() {
        for (from, to) in [
            ("ACTIVE=1", "ACTIVE=0"),
            ("REMOTE=0", "REMOTE=1"),
            ("CLASS=user", "CLASS=greeter"),
            ("CLASS=user", "CLASS=background"),
            ("SEAT=seat0\n", ""),
            ("SEAT=seat0", "SEAT="),
            ("UID=1000", "UID=1001"),
        ] {
            let logind = Logind::new();
            logind.write("users/1000", "ACTIVE_SESSIONS=2\n");
            logind.write("sessions/2", &SESSION.replace(from, to));
            assert!(!logind.says(1000), "{to}");
        }
    }

    #[test]
    fn what_is_no_file_of_logind_is_nobody() {
        let logind = Logind::new();
        logind.write("sessions/2", SESSION);
        for text in ["", "ACTIVE_SESSIONS=", "ACTIVE_SESSIONS=../sessions/2", "ACTIVE_SESSIONS\n", "\0"] {
            logind.write("users/1000", text);
            assert!(!logind.says(1000), "{text:?}");
        }
        std::fs::remove_file(logind.0.path().join("run/systemd/users/1000")).expect("removed");
        std::fs::create_dir(logind.0.path().join("run/systemd/users/1000")).expect("created");
        assert!(!logind.says(1000));
    }
}

//! Another user, for `steward run --user`: who that is, and how to become it for good.

use std::ffi::{CString, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::{Uid, User, geteuid, initgroups, setgid, setuid};

/// Variables of the environment to be set, or (`None`) to be left out.
pub type Environment = Vec<(&'static str, Option<OsString>)>;

/// A user to become.
pub struct Account {
    user: User,
}

impl Account {
    /// The user with that name or number, of whatever `nsswitch.conf` names.
    ///
    /// # Errors
    /// When there is none, or this process may not become another user.
    pub fn of(text: &str) -> Result<Self, String> {
        let found = match text.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(text),
        };
        let user = found.map_err(|error| format!("--user {text}: cannot look the user up: {error}"))?;
        let user = user.ok_or_else(|| format!("--user {text}: there is no such user"))?;
        if geteuid().is_root() {
            return Ok(Account { user });
        }
        Err(format!(
            "--user {text}: only root may run programs as another user; say sudo steward run --user {text} ..."
        ))
    }

    /// Makes this process that user's, with that user's groups and no way back. Returns what that user's programs have
    /// in their environment.
    ///
    /// # Errors
    /// What the kernel refuses; the process must end then.
    pub fn become_it(&self) -> Result<Environment, String> {
        let Account { user } = self;
        let name = &user.name;
        let because = |what: &str, error: nix::Error| format!("--user {name}: cannot {what}: {error}");
        let c_name = CString::new(name.as_str()).map_err(|_| format!("--user {name:?} is no name"))?;
        // In this order: who is no longer root may set neither group.
        initgroups(&c_name, user.gid).map_err(|error| because("take on the groups", error))?;
        setgid(user.gid).map_err(|error| because("take on the main group", error))?;
        setuid(user.uid).map_err(|error| because("become the user", error))?;
        if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(format!("--user {name}: this process could still become root"));
        }
        Ok(self.environment())
    }

    /// As a login sets it. Directories that are root's are left out.
    fn environment(&self) -> Environment {
        let Account { user } = self;
        let shell = if user.shell.as_os_str().is_empty() { "/bin/sh".into() } else { user.shell.clone() };
        let runtime = PathBuf::from(format!("/run/user/{}", user.uid));
        let has_runtime = std::fs::metadata(&runtime).is_ok_and(|facts| facts.uid() == user.uid.as_raw());
        let of_sudo = ["SUDO_USER", "SUDO_UID", "SUDO_GID", "SUDO_COMMAND", "SUDO_HOME"];
        let mut environment = vec![
            ("HOME", Some(user.dir.clone().into_os_string())),
            ("SHELL", Some(shell.into_os_string())),
            ("USER", Some(user.name.clone().into())),
            ("LOGNAME", Some(user.name.clone().into())),
            ("XDG_RUNTIME_DIR", has_runtime.then(|| runtime.into_os_string())),
            ("MAIL", None),
        ];
        environment.extend(of_sudo.map(|name| (name, None)));
        environment
    }
}

//! Apache httpd: its limit in a configuration file of its own, and graceful reloads.
//!
//! Apache has no way to change `MaxRequestWorkers` while it runs; the closest is to read its configuration again. After
//! SIGUSR1 workers that are busy finish their request and then go, and new ones come under the new limit, so that no
//! request is lost; for a moment there may be more workers than the limit. A configuration with a mistake would end the
//! server at that signal: hence the check before it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::backlog;
use super::server::{PoolArguments, Server, Undo};

/// Size the pool of Apache httpd, by MaxRequestWorkers in a file of its own and graceful reloads
///
/// The file is checked by Apache (--check) before each reload; one that Apache refuses is taken away again, and the
/// server goes on as it was. Requests wait in the kernel's queue of the listening port, from where --port takes their
/// number.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward pool apache --max 150 --domain system.slice/apache2.service\n  \
        steward pool apache --drop-in /etc/httpd/conf.d/zz-steward-pool.conf --pid-file /run/httpd/httpd.pid \\\n      \
        --check 'apachectl -t' --max 256 --domain system.slice/httpd.service")]
pub struct ApacheArguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    /// The configuration file to write; Apache must include it after its own limits.
    #[arg(long, value_name = "FILE", default_value = "/etc/apache2/conf-enabled/zz-steward-pool.conf")]
    pub drop_in: PathBuf,
    /// Where Apache keeps the number of its main process.
    #[arg(long, value_name = "FILE", default_value = "/run/apache2/apache2.pid")]
    pub pid_file: PathBuf,
    /// The command that checks Apache's configuration.
    #[arg(long, value_name = "COMMAND", default_value = "apache2ctl -t")]
    pub check: String,
    /// The port that clients connect to.
    #[arg(long, default_value_t = 80)]
    pub port: u16,
}

/// The names of Apache's main process.
const NAMES: [&str; 2] = ["apache2", "httpd"];
/// The most threads that Debian's configuration allows in a process (`ThreadLimit`).
const THREADS_OF_A_PROCESS: u32 = 64;
/// The first line of a file that is ours.
const MARK: &str = "# Written by `steward pool apache`, which removes it at its end.";

/// What the undo file and messages call it.
pub fn target(arguments: &ApacheArguments) -> String {
    format!("apache {}", arguments.drop_in.display())
}

/// A running Apache.
pub struct Apache {
    drop_in: PathBuf,
    pid_file: PathBuf,
    check: Vec<String>,
    port: u16,
}

impl Apache {
    /// Looks whether Apache runs, and whether its configuration is right as it is.
    ///
    /// # Errors
    /// When it does not run, its configuration has a mistake already, or the file to be written is somebody else's.
    pub fn open(arguments: &ApacheArguments) -> anyhow::Result<Apache> {
        let check: Vec<String> = arguments.check.split_ascii_whitespace().map(str::to_owned).collect();
        if check.is_empty() {
            bail!(
                "--check is empty: give the command that checks Apache's configuration, such as `apachectl -t`"
            );
        }
        match std::fs::read_to_string(&arguments.drop_in) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => bail!("cannot read {}: {error}", arguments.drop_in.display()),
            Ok(text) if text.starts_with(MARK) => {}
            Ok(_) => bail!(
                "{} exists and was not written by steward: name another --drop-in",
                arguments.drop_in.display()
            ),
        }
        main_process(&arguments.pid_file)?;
        check_configuration(&check)
            .context("Apache's configuration has a mistake before anything was changed")?;
        Ok(Apache {
            drop_in: arguments.drop_in.clone(),
            pid_file: arguments.pid_file.clone(),
            check,
            port: arguments.port,
        })
    }
}

impl Server for Apache {
    fn name(&self) -> String {
        "apache".to_owned()
    }

    fn size(&self) -> Option<u32> {
        // It is spread over files that only Apache knows how to read.
        None
    }

    fn waiting(&mut self) -> anyhow::Result<Option<u64>> {
        backlog::waiting(Path::new("/proc/net"), self.port)
    }

    fn set(&mut self, workers: u32) -> anyhow::Result<()> {
        let before = std::fs::read(&self.drop_in).ok();
        write(&self.drop_in, text(workers).as_bytes())?;
        if let Err(error) = check_configuration(&self.check) {
            match before {
                Some(before) => write(&self.drop_in, &before)?,
                None => std::fs::remove_file(&self.drop_in)?,
            }
            return Err(error.context("the new limit was taken away again, and Apache goes on as it was"));
        }
        reload(&self.pid_file)
    }

    fn patience(&self) -> Duration {
        // Workers of the old limit finish what they do; then a second of forecasts.
        Duration::from_secs(3)
    }

    fn undo(&self) -> Undo {
        Undo::Apache {
            drop_in: self.drop_in.clone(),
            pid_file: self.pid_file.clone(),
            check: self.check.clone(),
        }
    }
}

/// The configuration for `workers`, whichever way Apache divides them into processes and threads.
fn text(workers: u32) -> String {
    let processes = workers.div_ceil(THREADS_OF_A_PROCESS);
    let threads = workers / processes;
    format!(
        "{MARK}\n\
         <IfModule mpm_prefork_module>\n    StartServers {workers}\n    MaxRequestWorkers {workers}\n</IfModule>\n\
         <IfModule !mpm_prefork_module>\n    StartServers {processes}\n    ThreadsPerChild {threads}\n    \
         MinSpareThreads 1\n    MaxRequestWorkers {}\n</IfModule>\n",
        threads * processes
    )
}

/// Writes a file as a whole: whoever reads it finds the old or the new one.
fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    // Apache's directories are read by pattern (*.conf), which this name does not fit.
    let new = path.with_extension("new");
    std::fs::write(&new, contents)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn check_configuration(check: &[String]) -> anyhow::Result<()> {
    let (name, arguments) = check.split_first().context("no command to check Apache's configuration")?;
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{}`", check.join(" ")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("`{}` says: {}", check.join(" "), said.trim())
}

/// The main process, held so that a signal cannot reach another one with its number.
fn main_process(pid_file: &Path) -> anyhow::Result<rustix::fd::OwnedFd> {
    let hint = "does Apache run? (--pid-file says where it keeps its number)";
    let text = std::fs::read_to_string(pid_file)
        .with_context(|| format!("cannot read {}; {hint}", pid_file.display()))?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| format!("{} does not hold the number of a process", pid_file.display()))?;
    let held = pidfd_open(pid, PidfdFlags::empty());
    let held = held.with_context(|| {
        format!("there is no process {} as {} says; {hint}", text.trim(), pid_file.display())
    })?;
    let path = format!("/proc/{}/comm", text.trim());
    let name = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    if !NAMES.contains(&name.trim()) {
        bail!("process {} of {} is {}, not Apache", text.trim(), pid_file.display(), name.trim());
    }
    Ok(held)
}

fn reload(pid_file: &Path) -> anyhow::Result<()> {
    pidfd_send_signal(main_process(pid_file)?, Signal::USR1)
        .context("cannot tell Apache to read its configuration again")
}

/// Takes the limit away, and has Apache read its configuration again if it runs.
///
/// # Errors
/// When the file cannot be removed, or what is left has a mistake: then Apache is not told, and goes on as it is.
pub fn restore(drop_in: &Path, pid_file: &Path, check: &[String]) -> anyhow::Result<()> {
    match std::fs::remove_file(drop_in) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot remove {}", drop_in.display())),
    }
    if main_process(pid_file).is_err() {
        return Ok(());
    }
    check_configuration(check).context("Apache keeps its last limit: its configuration has a mistake")?;
    reload(pid_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(directory: &Path, check: &str) -> ApacheArguments {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            apache: ApacheArguments,
        }
        let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
        let (drop_in, pid_file) = (path("pool.conf"), path("pid"));
        let words = ["x", "--domain", "d", "--drop-in", &drop_in, "--pid-file", &pid_file, "--check", check];
        Line::parse_from(words).apache
    }

    #[test]
    fn workers_are_divided_into_processes_that_debian_allows_and_never_more_than_asked_for() {
        for size in 1..400 {
            let text = text(size);
            assert!(text.contains(&format!("MaxRequestWorkers {size}\n")));
            let threads: u32 = text
                .split("ThreadsPerChild ")
                .nth(1)
                .expect("there")
                .lines()
                .next()
                .expect("a line")
                .parse()
                .expect("a number");
            assert!(
                (1..=THREADS_OF_A_PROCESS).contains(&threads)
                    && threads * size.div_ceil(THREADS_OF_A_PROCESS) <= size
            );
        }
    }

    #[test]
    fn a_limit_that_apache_refuses_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = arguments(directory.path(), "false");
        let mut apache = Apache {
            drop_in: arguments.drop_in.clone(),
            pid_file: arguments.pid_file.clone(),
            check: vec!["false".into()],
            port: 80,
        };
        let error = format!("{:#}", apache.set(7).expect_err("refused"));
        assert!(error.contains("goes on as it was") && error.contains("`false` says"), "{error}");
        assert!(!arguments.drop_in.exists());
        write(&arguments.drop_in, text(9).as_bytes()).expect("written");
        assert!(apache.set(7).is_err());
        assert_eq!(std::fs::read_to_string(&arguments.drop_in).expect("there"), text(9));
    }

    #[test]
    fn somebody_elses_file_is_not_touched() {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = arguments(directory.path(), "true");
        std::fs::write(&arguments.drop_in, "MaxRequestWorkers 9\n").expect("written");
        let error = format!("{:#}", Apache::open(&arguments).err().expect("refused"));
        assert!(error.contains("not written by steward"), "{error}");
    }

    #[test]
    fn a_process_that_is_not_apache_gets_no_signal() {
        let directory = tempfile::tempdir().expect("a directory");
        let pid_file = directory.path().join("pid");
        assert!(format!("{:#}", main_process(&pid_file).expect_err("no file")).contains("does Apache run?"));
        std::fs::write(&pid_file, "nonsense\n").expect("written");
        assert!(format!("{:#}", main_process(&pid_file).expect_err("no number")).contains("does not hold"));
        std::fs::write(&pid_file, format!("{}\n", std::process::id())).expect("written");
        assert!(format!("{:#}", main_process(&pid_file).expect_err("this test")).contains("not Apache"));
    }

    #[test]
    fn restoring_what_was_never_changed_or_whose_server_has_gone_succeeds() {
        let directory = tempfile::tempdir().expect("a directory");
        let (drop_in, pid_file) = (directory.path().join("pool.conf"), directory.path().join("pid"));
        restore(&drop_in, &pid_file, &["false".into()]).expect("nothing to do");
        write(&drop_in, text(9).as_bytes()).expect("written");
        restore(&drop_in, &pid_file, &["false".into()]).expect("nobody to tell");
        assert!(!drop_in.exists());
    }
}

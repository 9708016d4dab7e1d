//! A cgroup per program: one place to count its CPU time, and to kill it with everything that it started.
//!
//! No controller is enabled below these groups, so that they change nothing about how their tasks are scheduled
//! (with the `cpu` controller, a bomb of 2,000 loops would be one group that weighs as much as one program).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use steward_lab_guest::Setting;

/// Where the lab's groups are.
pub const ROOT: &str = "/sys/fs/cgroup/lab";

/// The cgroup of one program.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an empty group.
    ///
    /// # Errors
    /// When the kernel refuses, with the path.
    pub fn create(root: &Path, name: &str) -> Result<Group> {
        let path = root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        Ok(Group { path })
    }

    /// One that is there already.
    pub fn at(path: PathBuf) -> Group {
        Group { path }
    }

    /// Writes into files of the group.
    ///
    /// # Errors
    /// Names the file.
    pub fn set(&self, settings: &[Setting]) -> Result<()> {
        settings.iter().try_for_each(|setting| {
            let path = self.path.join(&setting.path);
            fs::write(&path, &setting.value)
                .with_context(|| format!("cannot write {} to {}", setting.value, path.display()))
        })
    }

    /// The file that a process writes `0` to in order to join.
    pub fn joining_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// CPU time of all tasks that are or were in the group, in milliseconds.
    pub fn cpu_ms(&self) -> f64 {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        let usage_us = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        usage_us.and_then(|number| number.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1000.0
    }

    /// Kills every task in the group and waits until they are gone; the group stays.
    ///
    /// # Errors
    /// When tasks are left after `patience`.
    pub fn kill(&self, patience: Duration) -> Result<()> {
        self.begin_kill()?;
        let started = Instant::now();
        while self.is_populated() {
            if started.elapsed() > patience {
                bail!("{} still has tasks {patience:?} after they were killed", self.path.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills every task in the group; they may take a while to be gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin_kill(&self) -> Result<()> {
        let path = self.path.join("cgroup.kill");
        fs::write(&path, "1").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the group, which must be empty.
    pub fn remove(self) {
        // A group that cannot be removed is only untidy: the machine is thrown away after the run.
        let _ = fs::remove_dir(&self.path);
    }

    fn is_populated(&self) -> bool {
        fs::read_to_string(self.path.join("cgroup.events")).is_ok_and(|text| text.contains("populated 1"))
    }
}

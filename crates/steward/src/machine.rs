//! Commands about the machine that need no daemon: `doctor`, `revert`.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use steward_kernel::cgroup::tree::CgroupTree;
use steward_kernel::{Roots, doctor, files, journal, mounts};

use crate::arguments::JsonFlag;
use crate::cpu::pool;
use crate::output::{print, print_json};

/// Put back what Steward changed in the kernel
///
/// Needed only after a daemon was killed and is not started again: a daemon that stops undoes everything itself, one
/// that starts does this first, and a sched_ext scheduler ends with its daemon. Empty cgroups of domains are removed;
/// those with processes stay, as plain cgroups.
#[derive(Debug, Args)]
pub struct RevertArguments {
    /// The daemon's state directory.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// `steward doctor`. False when nothing can enforce reservations here.
pub fn doctor(json: bool) -> anyhow::Result<bool> {
    let diagnosis = doctor::examine(&Roots::default());
    if json {
        // It carries its own schema.
        print(&(serde_json::to_string_pretty(&diagnosis)? + "\n"))?;
    } else {
        print(&diagnosis.to_string())?;
    }
    Ok(diagnosis.mechanism.is_some())
}

/// `steward revert`. False when something could not be put back.
pub fn revert(socket: &Path, arguments: &RevertArguments) -> anyhow::Result<bool> {
    let journal = arguments.state_directory.join(libsteward::UNDO_JOURNAL);
    let mut report = journal::revert(&journal, &Roots::default())?;
    let domains = arguments.state_directory.join("domains.json");
    if UnixStream::connect(socket).is_ok() {
        if domains.exists() {
            report.left.push("domains: stewardd runs and keeps them; stop it first".to_owned());
        }
    } else {
        revert_domains(&domains, &mut report);
        revert_control_files(Path::new(libsteward::CONTROL_FILES), &mut report);
    }
    let pools = pool::revert(&arguments.state_directory);
    report.reverted.extend(pools.done);
    report.left.extend(pools.left);
    report.failed.extend(pools.failed);
    if arguments.output.json {
        print_json(&report)?;
    } else {
        print(&report.to_string())?;
    }
    Ok(report.failed.is_empty())
}

/// Unmounts the control files of a daemon that was killed: nobody answers there any more.
fn revert_control_files(mount_point: &Path, report: &mut journal::Report) {
    match mounts::unmount_dead(mount_point) {
        Ok(0) => {}
        Ok(_) => report.reverted.push(format!("{}: unmounted", mount_point.display())),
        Err(error) => report.failed.push(format!("{}: cannot be unmounted: {error}", mount_point.display())),
    }
}

/// Removes the cgroups of domains in which no process is left, and forgets what all of them had. Those with processes
/// stay as plain cgroups: whoever runs in them goes on undisturbed.
fn revert_domains(file: &Path, report: &mut journal::Report) {
    let Ok(bytes) = files::read_bytes(file, files::KEPT_BYTES_MAX) else { return };
    let text = String::from_utf8_lossy(&bytes);
    match std::fs::remove_file(file) {
        Ok(()) => report.reverted.push(format!("{}: what domains had is forgotten", file.display())),
        Err(error) => report.failed.push(format!("{}: {error}", file.display())),
    }
    let Ok(tree) = CgroupTree::open(&Roots::default()) else { return };
    for top in tops(&text) {
        let (removed, left) = tree.remove_empty(&top);
        report.reverted.extend(removed.iter().map(|path| format!("cgroup {path}: removed, as it was empty")));
        report.left.extend(left.iter().map(|path| format!("cgroup {path}: processes are in it or below it")));
    }
}

/// The cgroups directly below the root that Steward made, by what the daemon kept.
fn tops(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let kept: Vec<serde_json::Value> = lines.map(|line| line["kept"].clone()).collect();
    let made = kept.iter().filter(|domain| domain["made"] == true);
    let paths = made.filter_map(|domain| domain["path"].as_str());
    paths.filter(|path| !path.is_empty() && !path.contains('/')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_made_is_known_from_what_it_kept() {
        let text = "{\"sum\":\"0\",\"schema\":2,\"boot_id\":\"b\"}\ntorn\n\
            {\"sum\":\"0\",\"kept\":{\"path\":\"steward.a\",\"made\":true}}\n\
            {\"sum\":\"0\",\"kept\":{\"path\":\"user.slice\",\"made\":false}}\n\
            {\"sum\":\"0\",\"kept\":{\"path\":\"steward.a/b\",\"made\":true}}\n";
        assert_eq!(tops(text), ["steward.a"]);
        assert!(tops("torn").is_empty());
    }
}

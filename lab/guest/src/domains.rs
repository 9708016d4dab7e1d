//! Domains of a run: cgroups with the `cpu` controller, and what Steward is told about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use steward_lab_guest::Domain;

use crate::group::Group;
use crate::memory::CGROUPS;
use crate::scheduler::wait;

/// What the cgroups at the top begin with that Steward makes.
const STEWARDS: &str = "steward.";
const CLIENT: &str = "/usr/bin/steward";
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
const END_PATIENCE: Duration = Duration::from_secs(30);

/// The directory of a domain's cgroup.
pub fn directory(path: &str) -> PathBuf {
    Path::new(CGROUPS).join(path)
}

/// Makes the cgroups and sets their weights and policies.
///
/// # Errors
/// Names the cgroup, and what the kernel or Steward said.
pub fn make(domains: &[Domain]) -> Result<()> {
    for domain in domains {
        let path = directory(&domain.path);
        if domain.made_by_steward {
            tell_steward("create", domain)?;
            continue;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        if let Some(parent) = path.parent() {
            write(&parent.join("cgroup.subtree_control"), "+cpu")?;
            if !domain.cpus.is_empty() {
                write(&parent.join("cgroup.subtree_control"), "+cpuset")?;
            }
        }
        if !domain.cpus.is_empty() {
            write(&path.join("cpuset.cpus"), &domain.cpus)?;
        }
        if domain.cpu_idle {
            write(&path.join("cpu.idle"), "1")?;
        }
        if let Some(max) = &domain.cpu_max {
            write(&path.join("cpu.max"), max)?;
        }
        if let Some(weight) = domain.cpu_weight {
            write(&path.join("cpu.weight"), &weight.to_string())?;
        }
        if !domain.policy.is_empty() {
            tell_steward("set", domain)?;
        }
    }
    Ok(())
}

/// Kills what programs have left in domains of Steward's: what runs in the background is in none of the programs'
/// groups, and would be beside the next run.
///
/// # Errors
/// When something survives.
pub fn end_programs() -> Result<()> {
    let directories = fs::read_dir(CGROUPS).with_context(|| format!("cannot list {CGROUPS}"))?;
    for directory in directories.flatten() {
        let path = directory.path();
        if directory.file_name().to_string_lossy().starts_with(STEWARDS)
            && let Err(error) = Group::at(path.clone()).kill(END_PATIENCE)
            // The daemon removes one when nobody is in it any more.
            && path.exists()
        {
            return Err(error);
        }
    }
    Ok(())
}

/// Removes the cgroups, which must be empty. What Steward made it is to remove, while its daemon runs: it was made to
/// stay, and would be there in the next run.
///
/// # Errors
/// What Steward said.
pub fn remove(domains: &[Domain]) -> Result<()> {
    let made = domains.iter().rev().filter(|domain| domain.made_by_steward);
    let removed: Vec<Result<()>> = made.map(|domain| steward(&["domain", "remove", &domain.path])).collect();
    for domain in domains.iter().rev().filter(|domain| !domain.made_by_steward) {
        // One that cannot be removed is only untidy: the machine is thrown away.
        let _ = fs::remove_dir(directory(&domain.path));
    }
    removed.into_iter().collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

/// `steward domain create` or `set`. What it makes is to stay as long as the agent wants.
fn tell_steward(verb: &str, domain: &Domain) -> Result<()> {
    let name = domain.path.strip_prefix(STEWARDS).unwrap_or(&domain.path);
    let (name, keep) = if verb == "create" { (name, Some("--keep")) } else { (domain.path.as_str(), None) };
    let policy = domain.policy.iter().map(String::as_str);
    steward(&["domain", verb, name].into_iter().chain(keep).chain(policy).collect::<Vec<&str>>())
}

fn steward(arguments: &[&str]) -> Result<()> {
    let said = "/run/lab/domain-set";
    let mut client = Command::new(CLIENT)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(said)?)
        .spawn()
        .with_context(|| format!("cannot start {CLIENT}"))?;
    let ended = wait(&mut client, ANSWER_PATIENCE);
    if ended && client.wait()?.success() {
        return Ok(());
    }
    let _ = client.kill();
    let _ = client.wait();
    let said = fs::read_to_string(said).unwrap_or_default();
    bail!("`steward {}` failed: {}", arguments.join(" "), said.trim())
}

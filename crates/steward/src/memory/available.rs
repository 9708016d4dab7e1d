//! `steward available`: how much memory a domain may use now.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};
use serde::Serialize;
use steward_core::quantity::{approximate_duration, approximate_size};

use crate::arguments::{JsonFlag, OneDomain};
use crate::output::{print, print_json};

/// Say how much memory a domain may use now
///
/// What it uses, what nobody uses, and what it can take back from those who use more than their part by weight; at most
/// its maximum, and never less than it is promised. What is kept of protected domains or has nowhere to go is not
/// among it. What of it waits for a disk is told, and for how long. Programs read the same in memory.available of their
/// domain's control files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward available\n  \
        steward available batch\n  \
        cat /run/steward/self/memory.available           the same in bytes, of the domain that one is in")]
pub struct AvailableArguments {
    #[command(flatten)]
    pub which: OneDomain,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Available {
    domain: String,
    #[serde(flatten)]
    memory: api::DomainMemory,
}

/// `steward available`.
///
/// # Errors
/// When the daemon does not answer, or the kernel does not count what that domain uses.
pub fn available(socket: &Path, arguments: &AvailableArguments) -> anyhow::Result<()> {
    let domain = Client::connect(socket)?.call(&arguments.which.request())?.domain;
    let Some(memory) = domain.memory else {
        if is_root(&domain.name) {
            anyhow::bail!(
                "nobody counts what memory the processes in the root cgroup use: the kernel does so for the cgroups below it alone. \
                 Start the program in a domain of its own (steward run -- ...), or name one (steward available DOMAIN)"
            );
        }
        anyhow::bail!(
            "nobody counts what memory {} uses: the cgroup above it hands none out (cgroup.subtree_control has no memory). Limit it \
             (steward domain set {} --memory-max ...), or ask its manager (systemctl set-property UNIT MemoryAccounting=yes)",
            domain.name,
            domain.name
        );
    };
    if arguments.output.json {
        return print_json(&Available { domain: domain.name, memory });
    }
    print(&sentence(&domain.name, &memory))
}

/// Whether that is the name of the root cgroup, which has no figures, and cannot be given any.
fn is_root(name: &str) -> bool {
    name == "/"
}

fn sentence(name: &str, memory: &api::DomainMemory) -> String {
    let [used, available] = [memory.used, memory.available].map(approximate_size);
    if memory.available < memory.used {
        let less = approximate_size(memory.used - memory.available);
        return format!(
            "{name} may use {available} of memory now: it uses {used}, and others lack {less} of that.\n"
        );
    }
    let more = approximate_size(memory.available - memory.used);
    let waits_bytes = memory.available.saturating_sub(memory.available_at_once);
    let sentence =
        format!("{name} may use {available} of memory now: it uses {used}, and can have {more} more");
    if waits_bytes == 0 {
        return format!("{sentence}, at once.\n");
    }
    let at_once = approximate_size(memory.available_at_once.saturating_sub(memory.used));
    let within = approximate_duration(memory.time_to_free_ns);
    format!("{sentence}: {at_once} at once, and the rest once it is written to a disk, within {within}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_known_by_its_name() {
        assert!(is_root(&steward_core::domain::Names::default().name_of("")));
        assert!(!is_root(&steward_core::domain::Names::default().name_of("user.slice")));
    }

    #[test]
    fn what_may_be_used_is_told_with_what_is_used() {
        let told = |available: u64, at_once: u64| {
            let memory = api::DomainMemory {
                used: 300 << 20,
                available: available << 20,
                available_at_once: at_once << 20,
                time_to_free_ns: 26_500_000_000,
                ..api::DomainMemory::default()
            };
            sentence("batch", &memory)
        };
        let begins =
            |rest| format!("batch may use 512M of memory now: it uses 300M, and can have 212M more{rest}\n");
        assert_eq!(told(512, 512), begins(", at once."));
        let waits = begins(": 12M at once, and the rest once it is written to a disk, within 26.5s.");
        assert_eq!(told(512, 312), waits);
        let less = "batch may use 200M of memory now: it uses 300M, and others lack 100M of that.\n";
        assert_eq!(told(200, 200), less);
    }
}

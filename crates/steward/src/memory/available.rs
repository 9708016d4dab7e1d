//! `steward available`: how much memory a domain may use now.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};
use serde::Serialize;
use steward_core::quantity::approximate_size;

use crate::arguments::JsonFlag;
use crate::output::{print, print_json};

/// Say how much memory a domain may use now
///
/// What it uses, what nobody uses, and what it can take back from those who use more than their part by weight; at most
/// its maximum, and never less than it is promised. Programs read the same in memory.available of their domain's
/// control files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward available\n  \
        steward available batch\n  \
        cat /run/steward/self/memory.available           the same in bytes, of the domain that one is in")]
pub struct AvailableArguments {
    /// The domain; your own unless said.
    #[arg(value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// That of this process.
    #[arg(long, conflicts_with = "domain", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
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
    let request = api::ShowDomain { domain: arguments.domain.clone(), pid: arguments.pid };
    let domain = Client::connect(socket)?.call(&request)?.domain;
    let Some(memory) = domain.memory else {
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

fn sentence(name: &str, memory: &api::DomainMemory) -> String {
    let [used, available] = [memory.used, memory.available].map(approximate_size);
    let more = approximate_size(memory.available.saturating_sub(memory.used));
    format!("{name} may use {available} of memory now: it uses {used}, and can have {more} more.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_used_is_told_with_what_is_used() {
        let memory =
            api::DomainMemory { used: 300 << 20, available: 512 << 20, ..api::DomainMemory::default() };
        let expected = "batch may use 512M of memory now: it uses 300M, and can have 212M more.\n";
        assert_eq!(sentence("batch", &memory), expected);
    }
}

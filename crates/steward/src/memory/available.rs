//! `steward available`: how much memory a domain may use now.

use std::path::Path;

use anyhow::Context;
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
/// domain's control files. Of domains that are not yours, nor in or below the one that this runs in, it is told who may
/// know it by the rules (read-availability).
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
/// When the daemon does not answer, the rules are against it, or the kernel does not count what that domain uses.
pub fn available(socket: &Path, arguments: &AvailableArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let domain = client.call(&arguments.which.request())?.domain;
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
    // Where it is left out the rules are against it, or have a person asked: the daemon says which.
    let told = told(&domain.name, &memory).map_or_else(|| ask(client, &domain.name), Ok)?;
    if arguments.output.json {
        return print_json(&Available { domain: told.domain.clone(), memory: with(memory, &told) });
    }
    print(&sentence(&told))
}

/// What was told with what a domain uses, if it was.
fn told(name: &str, memory: &api::DomainMemory) -> Option<api::Availability> {
    Some(api::Availability {
        domain: name.to_owned(),
        used: memory.used,
        available: memory.available?,
        available_at_once: memory.available_at_once?,
        time_to_free_ns: memory.time_to_free_ns?,
        ..api::Availability::default()
    })
}

fn ask(client: Client, name: &str) -> anyhow::Result<api::Availability> {
    let watch = api::WatchAvailability { domain: Some(name.to_owned()) };
    let first = client.watch_availability(&watch)?.next();
    Ok(first.context("the daemon hung up")??)
}

fn with(memory: api::DomainMemory, told: &api::Availability) -> api::DomainMemory {
    api::DomainMemory {
        used: told.used,
        available: Some(told.available),
        available_at_once: Some(told.available_at_once),
        time_to_free_ns: Some(told.time_to_free_ns),
        ..memory
    }
}

/// Whether that is the name of the root cgroup, which has no figures, and cannot be given any.
fn is_root(name: &str) -> bool {
    name == "/"
}

fn sentence(told: &api::Availability) -> String {
    let name = &told.domain;
    let [used, available] = [told.used, told.available].map(approximate_size);
    if told.available < told.used {
        let less = approximate_size(told.used - told.available);
        return format!(
            "{name} may use {available} of memory now: it uses {used}, and others lack {less} of that.\n"
        );
    }
    let more = approximate_size(told.available - told.used);
    let waits_bytes = told.available.saturating_sub(told.available_at_once);
    let sentence =
        format!("{name} may use {available} of memory now: it uses {used}, and can have {more} more");
    if waits_bytes == 0 {
        return format!("{sentence}, at once.\n");
    }
    let at_once = approximate_size(told.available_at_once.saturating_sub(told.used));
    let within = approximate_duration(told.time_to_free_ns);
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
                available: Some(available << 20),
                available_at_once: Some(at_once << 20),
                time_to_free_ns: Some(26_500_000_000),
                ..api::DomainMemory::default()
            };
            sentence(&super::told("batch", &memory).expect("it is all there"))
        };
        let begins =
            |rest| format!("batch may use 512M of memory now: it uses 300M, and can have 212M more{rest}\n");
        assert_eq!(told(512, 512), begins(", at once."));
        let waits = begins(": 12M at once, and the rest once it is written to a disk, within 26.5s.");
        assert_eq!(told(512, 312), waits);
        let less = "batch may use 200M of memory now: it uses 300M, and others lack 100M of that.\n";
        assert_eq!(told(200, 200), less);
    }

    #[test]
    fn where_it_was_left_out_it_is_what_the_daemon_tells_when_it_is_asked() {
        let hidden = api::DomainMemory { used: 1, taken: 2, ..api::DomainMemory::default() };
        assert_eq!(super::told("batch", &hidden), None);
        let answer = api::Availability { used: 3, available: 4, ..api::Availability::default() };
        let shown = with(hidden, &answer);
        assert_eq!(
            (shown.used, shown.taken, shown.available, shown.time_to_free_ns),
            (3, 2, Some(4), Some(0))
        );
    }
}

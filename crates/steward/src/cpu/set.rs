//! `steward set`: gives a running process or a domain CPU time and memory, and a domain its part of the disk, or takes
//! that away.

use std::path::Path;

use clap::{ArgGroup, Args};
use libsteward::{Client, api};
use steward_core::cpu::reservation::Reservation;
use steward_core::disk::Limit;

use super::api::to_api;
use super::status::standing_name;
use crate::arguments::{Promise, parse_promise};
use crate::disk::arguments::DiskArguments;
use crate::domain::arguments::{SettingArguments, Wanted};
use crate::memory::arguments::MemoryArguments;
use crate::memory::program;
use crate::who::{self, NoAnswer, Several, Who};
use crate::{domain, output};

/// Give a running process or a domain a CPU reservation or memory, or take it away
///
/// A process gets time in every period, a domain a fraction of what its parent has. The number of a thread is that
/// thread alone. Root and the machine's owner may reserve, and whoever sits at the machine up to half of one CPU for
/// their own programs; everyone may release what is their own.
///
/// What is about memory is for a process with all that it has started. Where they share their domain with others, they
/// are moved to one of their own first; what they had before stays charged to where they were.
///
/// A name is with C/T a process, with a fraction or what is about the disk a domain; with --release or what is about
/// memory a domain, where there is one of that name, and else a process. "default" takes back what is about memory or
/// the disk.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(WHAT)))]
#[command(after_help = "Examples:\n  \
        steward set 4321 --cpu 5ms/30ms\n  \
        steward set mplayer --release\n  \
        steward set batch --cpu 20%\n  \
        steward set editor --memory-min 64M\n  \
        steward set 4321 --memory-min 64M            the process, and all that it has started\n  \
        steward set 4321 --memory-min default        nothing is promised to it any more\n  \
        steward set editor --protect=30min           what it uses stays in memory\n  \
        steward set batch --io background\n  \
        steward set batch --io-max 10M/s\n  \
        steward set batch --io-max default           as much as there can be again")]
pub struct SetArguments {
    /// The process or thread, by number or name, or the domain, by name.
    #[arg(value_name = "PROCESS|DOMAIN", value_parser = crate::who::parse)]
    pub target: Who,
    #[command(flatten)]
    pub several: Several,
    /// For a process CPU time and the period in which it is given, as 5ms/30ms; for a domain a fraction, as 20%.
    #[arg(long, value_name = "C/T|FRACTION", value_parser = parse_promise)]
    pub cpu: Option<Promise>,
    /// The process' other threads and their children get the same.
    #[arg(long, requires = "cpu")]
    pub inherit: bool,
    /// Never take it back under overload.
    #[arg(long, requires = "cpu")]
    pub irrevocable: bool,
    /// Make it best-effort.
    #[arg(long, conflicts_with_all = ["cpu", "MemoryArguments", "DiskArguments"])]
    pub release: bool,
    /// When there is no room, let it wait for some as best-effort instead of failing.
    #[arg(long, requires = "cpu")]
    pub best_effort_if_refused: bool,
    /// What is asked of memory.
    #[command(flatten)]
    pub memory: MemoryArguments<Wanted<i64>>,
    /// What is asked of the disk, for a domain.
    #[command(flatten)]
    pub disk: DiskArguments<Wanted<api::IoClass>, Wanted<f64>, Wanted<Limit>>,
}

/// What can be asked for; one of these must be.
const WHAT: [&str; 8] =
    ["cpu", "memory_min", "memory_max", "protect", "io", "io_fraction", "io_max", "release"];

/// `steward set`.
pub fn set(socket: &Path, arguments: &SetArguments) -> anyhow::Result<()> {
    let (is_about_memory, is_about_disk) = (arguments.memory.is_any(), arguments.disk.is_any());
    let mut client = Client::connect(socket)?;
    let is_domain = match (&arguments.target, arguments.cpu) {
        (Who::Number(pid), _) if is_about_disk => anyhow::bail!(
            "a running process has no disk time of its own: give it a domain (steward domain create NAME --io background, steward \
             domain move {pid} NAME), or start the program with steward run --io background"
        ),
        (Who::Name(name), Some(Promise::Reservation(_))) if is_about_disk => {
            anyhow::bail!(
                "{name} is a domain with what is about the disk, and a process with CPU time in every period: give a domain a fraction, as in --cpu 20%"
            )
        }
        (who, Some(Promise::Reservation(cpu))) if is_about_memory => anyhow::bail!(
            "CPU time in every period and memory are given to a process one after the other: say steward set {who} --cpu {cpu}, and \
             then what is about memory. A domain gets a fraction of the CPU, as in --cpu 20%"
        ),
        (Who::Number(_), Some(Promise::Fraction(_))) => anyhow::bail!(
            "a process gets CPU time in every period, as in --cpu 5ms/30ms; a fraction is for a domain (steward domain \
             create NAME --cpu 20%, steward domain move PID NAME)"
        ),
        (Who::Number(_), _) | (Who::Name(_), Some(Promise::Reservation(_))) => false,
        (Who::Name(_), Some(Promise::Fraction(_))) => true,
        (Who::Name(_), None) if is_about_disk => true,
        (Who::Name(name), None) => domain::exists(&mut client, name)?,
    };
    match (&arguments.target, arguments.cpu) {
        (Who::Name(name), cpu) if is_domain => {
            let cpu = match cpu {
                Some(Promise::Fraction(fraction)) => Some(Wanted::Value(fraction)),
                Some(Promise::Reservation(_)) => None,
                None => arguments.release.then_some(Wanted::Default),
            };
            let (memory, disk) = (arguments.memory.clone(), arguments.disk.clone());
            let settings = SettingArguments { cpu, memory, disk, ..SettingArguments::default() }.to_api();
            domain::set_some(&mut client, name, settings).map_err(|error| hint_at_process(error, name))
        }
        (target, cpu) => {
            let pids = who::resolve(target, arguments.several)
                .map_err(|error| hint_at_domain(error, target, is_about_memory))?;
            pids.into_iter().try_for_each(|pid| match cpu {
                _ if is_about_memory => program::set(&mut client, pid, &arguments.memory),
                Some(Promise::Reservation(cpu)) => reserve(&mut client, pid, cpu, arguments),
                _ => release(&mut client, pid),
            })
        }
    }
}

/// A name that is no domain's may be a process's.
fn hint_at_process(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(libsteward::Error::Api(api::ApiError::NoSuchDomain { .. })) => anyhow::anyhow!(
            "there is no domain {name}; steward domain list shows all. A process gets CPU time in every period, as in --cpu \
             5ms/30ms"
        ),
        _ => error,
    }
}

/// A name that is no process's may be a domain's.
fn hint_at_domain(error: anyhow::Error, target: &Who, is_about_memory: bool) -> anyhow::Error {
    match (error.downcast_ref(), target) {
        (Some(NoAnswer::Nobody(_)), Who::Name(name)) if is_about_memory => anyhow::anyhow!(
            "there is neither a domain {name} nor a process called {name:?}; steward domain list and steward top show what there is"
        ),
        (Some(NoAnswer::Nobody(_)), Who::Name(name)) => anyhow::anyhow!(
            "there is no process called {name:?}; a domain gets a fraction of what its parent has, as in --cpu 20%"
        ),
        _ => error,
    }
}

fn release(client: &mut Client, pid: i32) -> anyhow::Result<()> {
    let released = client.call(&api::Release { pid })?.released;
    output::print(&format!("Process {pid} is best-effort now ({released} of its threads were not).\n"))
}

fn reserve(client: &mut Client, pid: i32, cpu: Reservation, arguments: &SetArguments) -> anyhow::Result<()> {
    let reply = client.call(&api::Set {
        pid,
        cpu: to_api(cpu),
        inherit: Some(arguments.inherit),
        revocable: Some(!arguments.irrevocable),
        keep_if_refused: Some(arguments.best_effort_if_refused),
        requests_at: None,
    })?;
    let standing = reply.standing.map_or("not decided yet", standing_name);
    output::print(&format!("Process {pid} has {cpu}: {standing}.\n"))
}

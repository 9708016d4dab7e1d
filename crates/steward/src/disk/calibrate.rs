//! `steward disk calibrate`: finds out what a disk does, for the daemon to hand its time out by.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use libsteward::{Client, api};
use serde::Serialize;
use steward_core::disk::calibration::{self, Calibration};
use steward_core::quantity::format_size;
use steward_kernel::Roots;
use steward_kernel::disk::below::device_of_file;
use steward_kernel::disk::calibrations::{self, Calibrations};
use steward_kernel::disk::mounted::{self, OnDisk};
use steward_kernel::disk::{devices, measure};

use crate::arguments::JsonFlag;
use crate::output::{print, print_json};

/// Find out what a disk can do
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    Calibrate(CalibrateArguments),
}

/// Measure what a disk does, so that its time can be handed out among domains
///
/// For disks that do not rotate: classes and fractions of domains count there once the disk is calibrated. For half a
/// minute at most, a file without a name is written and read on a file system of the disk, which is gone at the end,
/// however that comes about; nothing is written to the device itself. Wants the disk for itself. What was found is kept
/// in disks.json of the state directory, and is in force at once. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        sudo steward disk calibrate /home\n  \
        sudo steward disk calibrate nvme0n1")]
pub struct CalibrateArguments {
    /// A directory on the disk, or the disk, of which a file system must be mounted then.
    #[arg(value_name = "DIRECTORY|DISK")]
    pub place: PathBuf,
    /// The daemon's state directory.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    calibration: Calibration,
    /// How large the file was, in bytes.
    bytes: u64,
    cpu_bound: bool,
}

/// `steward disk`.
pub fn disk(socket: &Path, command: &DiskCommand) -> anyhow::Result<()> {
    match command {
        DiskCommand::Calibrate(arguments) => calibrate(socket, arguments),
    }
}

fn calibrate(socket: &Path, arguments: &CalibrateArguments) -> anyhow::Result<()> {
    let roots = Roots::default();
    let said = |why: String| anyhow!(why);
    let OnDisk { directory, device } =
        mounted::find(&arguments.place, &roots, device_of_file).map_err(said)?;
    let name = device.name.as_str();
    if let Some(why) = calibration::unsuited(&device) {
        bail!("{name} is not to be calibrated: {why}");
    }
    let Some(lines) = &device.cost else {
        bail!(
            "this kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST): a calibration of {name} would be for nothing"
        );
    };
    if device.identity.is_empty() {
        bail!("{name} says neither what it is nor how large: it would not be known again");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root may calibrate {name}: run it with sudo");
    }
    if lines.is_on() {
        bail!(
            "requests of {name} are charged just now (io.cost.qos: {}), so that it could not be found out what it does; try again \
             when no domain has a class or a fraction of the disk, or turn off what has set it",
            lines.quality
        );
    }
    // What is there is to be whole before anything is measured.
    let mut kept = Calibrations::read(&arguments.state_directory).map_err(said)?;
    let mut tell = |what: &str| {
        if !arguments.output.json {
            eprintln!("{name}: {what} ...");
        }
    };
    let measured = measure::measure(&directory, name, &roots, &mut tell).map_err(said)?;
    let model = calibration::fit(&measured.read, &measured.write)
        .map_err(|why| anyhow!("what was found of {name} says nothing: {why}"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let calibration =
        Calibration { identity: device.identity.clone(), name: name.to_owned(), measured_at: now, model };
    kept.put(calibration.clone());
    kept.save(&arguments.state_directory).map_err(said)?;
    // A daemon that does not run reads it when it starts.
    let is_told = Client::connect(socket).is_ok_and(|mut daemon| daemon.call(&api::Reload {}).is_ok());
    if arguments.output.json {
        let (bytes, cpu_bound) = (measured.bytes, measured.cpu_bound);
        return print_json(&Answer { calibration, bytes, cpu_bound });
    }
    let mut text = format!(
        "{name} ({}), on {} of {}: {model}.\n",
        calibration.identity,
        format_size(measured.bytes),
        directory.display()
    );
    if measured.cpu_bound {
        text.push_str(
            "The CPU had no time left meanwhile, so that the disk may do more: whoever gets more out of it will be held back to that.\n",
        );
    }
    if devices::is_of_any_such(&calibration.identity) {
        text.push_str(
            "It has no number of its own: what was found will be taken to be true of any disk of this kind and size.\n",
        );
    }
    let file = calibrations::file(&arguments.state_directory);
    let when = if is_told { "the daemon knows it" } else { "the daemon reads it when it starts" };
    text.push_str(&format!("It is kept in {}; {when}.\n", file.display()));
    print(&text)
}

//! `steward disk`: finds out what a disk does, for the daemon to hand its time out by, and forgets it.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use libsteward::{Client, api};
use serde::Serialize;
use steward_core::disk::calibration::{self, Calibration};
use steward_core::disk::device::Device;
use steward_core::quantity::format_size;
use steward_kernel::Roots;
use steward_kernel::disk::below::device_of_file;
use steward_kernel::disk::calibrations::{self, Calibrations, Damaged};
use steward_kernel::disk::mounted::{self, OnDisk};
use steward_kernel::disk::{devices, identity, measure};

use crate::arguments::JsonFlag;
use crate::output::{print, print_json};

/// Find out what a disk can do, or forget it
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    Calibrate(CalibrateArguments),
    Forget(ForgetArguments),
}

/// Forget what was found of a disk, and leave its requests as the kernel has them
///
/// Classes and fractions of domains count for nothing there from then on, until it is calibrated again. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        sudo steward disk forget /home\n  \
        sudo steward disk forget nvme0n1")]
pub struct ForgetArguments {
    #[command(flatten)]
    pub known: KnownDisk,
}

/// A disk, and where it is kept what was found of it.
#[derive(Debug, Args)]
pub struct KnownDisk {
    /// A directory on the disk, or the disk, of which a file system must be mounted to calibrate it; to forget one that
    /// is not there, what disks.json calls it.
    #[arg(value_name = "DIRECTORY|DISK")]
    pub place: PathBuf,
    /// The daemon's state directory.
    #[arg(long, value_name = "DIR", default_value = libsteward::STATE_DIRECTORY)]
    pub state_directory: PathBuf,
}

/// Measure what a disk does, so that its time can be handed out among domains
///
/// Tells whether the disk rotates, whatever it says of itself, and what requests cost it: on one that does not, classes
/// and fractions of domains count once it is calibrated. For half a minute at most, a file without a name is written
/// and read on a file system of the disk, which is gone at the end, however that comes about; nothing is written to the
/// device itself. Wants the disk for itself. What was found is kept in disks.json of the state directory, and is in
/// force at once. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        sudo steward disk calibrate /home\n  \
        sudo steward disk calibrate nvme0n1")]
pub struct CalibrateArguments {
    #[command(flatten)]
    pub known: KnownDisk,
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
        DiskCommand::Forget(arguments) => forget(socket, &arguments.known),
    }
}

/// Has a daemon that runs read the file anew; one that does not run reads it when it starts.
fn tell_daemon(socket: &Path) -> &'static str {
    match Client::connect(socket).is_ok_and(|mut daemon| daemon.call(&api::Reload {}).is_ok()) {
        true => "the daemon knows it",
        false => "the daemon reads it when it starts",
    }
}

/// By what the disk is known that somebody means, if it is there.
fn identity_of(place: &Path, roots: &Roots) -> anyhow::Result<Option<String>> {
    if let Ok(OnDisk { device, .. }) = mounted::find(place, roots, device_of_file) {
        return Ok(Some(device.identity));
    }
    let named =
        devices::list(roots)?.into_iter().find(|device| place.file_name() == Some(device.name.as_ref()));
    Ok(named.map(|device| device.identity))
}

fn only_root(what: &str) -> anyhow::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => bail!("only root may {what}: run it with sudo"),
    }
}

/// Says what of the calibrations was damaged.
fn say_lost(lost: Option<String>) {
    if let Some(lost) = lost {
        eprintln!("{lost}");
    }
}

fn forget(socket: &Path, arguments: &KnownDisk) -> anyhow::Result<()> {
    let place = arguments.place.display().to_string();
    // Nobody else can read what is kept, either.
    only_root(&format!("forget what {place} does"))?;
    let (mut kept, lost) = Calibrations::read(&arguments.state_directory, Damaged::SetAside);
    say_lost(lost);
    let identity = identity_of(&arguments.place, &Roots::default())?;
    let is_it = |disk: &Calibration| match &identity {
        Some(identity) => disk.identity == *identity,
        None => disk.name == place || disk.identity == place,
    };
    let file = calibrations::file(&arguments.state_directory);
    let Some(forgotten) = kept.forget(is_it) else {
        let known = kept.disks.iter().map(|disk| format!("{} ({})", disk.name, disk.identity));
        let known = known.collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "of no disk".to_owned() } else { format!("of {known}") };
        bail!("no calibration of {place} is kept in {}: there are calibrations {known}", file.display());
    };
    kept.save(&arguments.state_directory).map_err(|why| anyhow!(why))?;
    let when = tell_daemon(socket);
    print(&format!("{} ({}) is forgotten; {when}.\n", forgotten.name, forgotten.identity))
}

/// What follows from what was found, where that is another thing than to charge for requests.
fn by_what_it_is_ordered(found: &Device) -> &'static str {
    match (found.rotates(), found.rotational) {
        (true, true) => "It rotates: an elevator orders its requests, as before.\n",
        (true, false) => {
            "It is as slow as a disk that rotates, though it says that it does not: an elevator orders its requests.\n"
        }
        (false, true) => "It says that it rotates, and does not: no elevator is given to it.\n",
        (false, false) => "",
    }
}

fn calibrate(socket: &Path, arguments: &CalibrateArguments) -> anyhow::Result<()> {
    let roots = Roots::default();
    let said = |why: String| anyhow!(why);
    let OnDisk { directory, device } =
        mounted::find(&arguments.known.place, &roots, device_of_file).map_err(said)?;
    let name = device.name.as_str();
    if let Some(why) = calibration::unsuited(&device) {
        bail!("{name} is not to be calibrated: {why}");
    }
    // Of one that says that it rotates it is worth knowing whether it does.
    if device.cost.is_none() && !device.rotational {
        bail!(
            "this kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST): a calibration of {name} would be for nothing"
        );
    }
    if device.identity.is_empty() {
        bail!("{name} says neither what it is nor how large: it would not be known again");
    }
    only_root(&format!("calibrate {name}"))?;
    let state_directory = &arguments.known.state_directory;
    // Told before anything is measured, which takes long.
    say_lost(Calibrations::read(state_directory, Damaged::SetAside).1);
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
    let put = |kept: &mut Calibrations| kept.put(calibration.clone());
    say_lost(Calibrations::change(state_directory, put).map_err(said)?);
    let when = tell_daemon(socket);
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
    if identity::is_of_any_such(&calibration.identity) {
        text.push_str(
            "It has no number of its own: what was found will be taken to be true of any disk of this kind and size.\n",
        );
    }
    text.push_str(by_what_it_is_ordered(&Device { model: Some(model), ..device }));
    let file = calibrations::file(state_directory);
    text.push_str(&format!("It is kept in {}; {when}.\n", file.display()));
    print(&text)
}

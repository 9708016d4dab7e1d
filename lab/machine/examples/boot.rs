//! Boots the lab's machine and runs a shell script in it; what the script prints is printed here. `lab/shell.sh` calls
//! this.
//!
//! Usage: boot [--cpus N] [--memory MIB] [--disk MIB] [--icount SHIFT] [--package NAME]... [--file HOST:GUEST]...
//!             [--kernel debian|host|PATH [--modules DIR]] [--append KERNEL-ARGUMENT]... [--timeout SECONDS]
//!             [--console FILE] SCRIPT

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use steward_machine::{GuestFile, KernelChoice, MachineConfig, run};

fn main() -> Result<ExitCode> {
    let (config, files, script) = arguments()?;
    let command =
        ["/bin/sh", "-c", "exec >/run/lab/results 2>&1; eval \"$1\"", "sh", &script].map(String::from);
    let outcome = run(&config, &files, &command, &mut |line| println!("{line}"))?;
    eprintln!(
        "[kernel {}, boot {:.1} s (guest's clock {:.1} s), total {:.1} s, exit status {}]",
        outcome.kernel_version,
        outcome.boot_host.as_secs_f64(),
        outcome.boot_guest.as_secs_f64(),
        outcome.elapsed_host.as_secs_f64(),
        outcome.status
    );
    Ok(ExitCode::from(u8::try_from(outcome.status).unwrap_or(1)))
}

fn arguments() -> Result<(MachineConfig, Vec<GuestFile>, String)> {
    let mut config = MachineConfig::default();
    let mut files = Vec::new();
    let mut script = None;
    let (mut kernel, mut modules) = (String::from("debian"), None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--cpus" => config.cpus = value()?.parse()?,
            "--memory" => config.memory_mib = value()?.parse()?,
            "--disk" => config.disk_mib = Some(value()?.parse()?),
            "--icount" => config.icount_shift = Some(value()?.parse()?),
            "--package" => config.packages.push(value()?),
            "--timeout" => config.timeout_host = Duration::from_secs(value()?.parse()?),
            "--append" => config.kernel_arguments.push(value()?),
            "--console" => config.console_log = Some(PathBuf::from(value()?)),
            "--kernel" => kernel = value()?,
            "--modules" => modules = Some(PathBuf::from(value()?)),
            "--file" => {
                let pair = value()?;
                let (host, guest) = pair.split_once(':').context("--file wants HOST:GUEST")?;
                files.push(GuestFile::from_host(host, guest)?);
            }
            _ if word.starts_with("--") => {
                bail!("unknown option {word}; see the head of lab/machine/examples/boot.rs")
            }
            _ if script.is_none() => script = Some(word),
            _ => bail!("one script only; quote it"),
        }
    }
    config.kernel = KernelChoice::parse(&kernel, modules.as_deref());
    Ok((config, files, script.context("give the commands to run in the guest, as one argument")?))
}

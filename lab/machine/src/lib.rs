//! The lab's virtual machine: boots a kernel with one program in it, hands over line by line what that program reports,
//! and ends.
//!
//! The guest is made of Debian packages (`kernel.sh`, `base.sh` and `image.sh` beside this crate fetch and cache them)
//! and runs under QEMU's plain emulation, so that it needs neither root nor KVM. A run can count instructions as time
//! ([`MachineConfig::icount_shift`]), which makes its measurements independent of how busy the host is.
//!
//! ```no_run
//! use steward_machine::{MachineConfig, run};
//! let command = ["/bin/sh".into(), "-c".into(), "uname -r >/run/lab/results".into()];
//! let outcome = run(&MachineConfig::default(), &[], &command, &mut |line| println!("{line}"))?;
//! assert_eq!(outcome.status, 0);
//! # anyhow::Ok(())
//! ```

mod archive;
mod emulator;
mod guest;
mod kernel;
mod libraries;
mod machine;
mod tidy;

pub use guest::{GuestFile, GuestSource};
pub use kernel::KernelChoice;
pub use kernel::kernel_configuration;
pub use machine::{MachineConfig, MachineOutcome, run};

use std::path::{Path, PathBuf};

/// The repository that this crate was built in; `STEWARD_ROOT` in the environment overrides it.
pub fn repository() -> PathBuf {
    std::env::var_os("STEWARD_ROOT").map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .ancestors()
                .nth(2)
                .expect("lab/machine is two deep")
                .to_owned()
        },
        PathBuf::from,
    )
}

/// Where fetched and built things are kept: `.cache` in the repository, or `STEWARD_CACHE`.
pub fn cache_directory() -> PathBuf {
    std::env::var_os("STEWARD_CACHE").map_or_else(|| repository().join(".cache"), PathBuf::from)
}

/// Where the programs are that were built with the test that calls this, `target/PROFILE`: what it brings into the
/// machine. Examples are in `examples` there.
///
/// # Panics
/// When it is not cargo that built the program that calls this.
pub fn build_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a running test");
    own.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned()
}

/// Builds another project's sched_ext scheduler, `name` (`scx_bpfland`, ...), when it is not in the cache, and returns
/// its program.
///
/// # Errors
/// When it cannot be built, with the reason.
pub fn peer(name: &str) -> anyhow::Result<PathBuf> {
    script("peer.sh", &[name.as_ref()])
}

/// Runs one of the scripts beside this crate; its last line of output is a path.
fn script(name: &str, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<PathBuf> {
    use anyhow::{Context, bail};
    let path = repository().join("lab/machine").join(name);
    let output = std::process::Command::new("bash")
        .arg(&path)
        .args(arguments)
        .env("STEWARD_CACHE", cache_directory())
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", path.display()))?;
    if !output.status.success() {
        bail!("{} failed ({}); what it said is above", path.display(), output.status);
    }
    let text = String::from_utf8(output.stdout).with_context(|| format!("output of {}", path.display()))?;
    text.lines().last().map(PathBuf::from).with_context(|| format!("{} printed no path", path.display()))
}

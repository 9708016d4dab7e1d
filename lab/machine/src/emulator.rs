//! Which QEMU emulates the machine, and how its processors take turns.
//!
//! Emulating several processors needs QEMU 10 (`qemu.sh` beside this crate fetches one where the machine's own is
//! older): before, guests crashed or stalled, with several threads and with counted instructions alike. One processor
//! is the same on both.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first major version whose emulation of several processors is to be trusted.
const MAJOR_FOR_MANY: u32 = 10;
const SYSTEMS_OWN: &str = "qemu-system-x86_64";

/// A QEMU that is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Emulator {
    pub program: PathBuf,
    major: u32,
}

impl Emulator {
    /// The one that `STEWARD_QEMU` in the environment names, else the one that `qemu.sh` finds or fetches, else, with a
    /// word about it, the machine's own.
    ///
    /// # Errors
    /// When there is none, or when what is named does not run.
    pub fn find() -> Result<Self> {
        if let Some(program) = std::env::var_os("STEWARD_QEMU") {
            return Self::ask(Path::new(&program)).context("STEWARD_QEMU names the QEMU to use");
        }
        match crate::script("qemu.sh", &[]) {
            Ok(program) => Ok(Self { program, major: MAJOR_FOR_MANY }),
            Err(error) => {
                let own = Self::ask(Path::new(SYSTEMS_OWN))
                    .with_context(|| format!("{error:#}, and this machine has none that runs"))?;
                eprintln!(
                    "no QEMU {MAJOR_FOR_MANY} could be had; using this machine's own, version {}",
                    own.major
                );
                Ok(own)
            }
        }
    }

    fn ask(program: &Path) -> Result<Self> {
        let output = Command::new(program).arg("--version").output();
        let output = output
            .with_context(|| format!("running {} --version; `make setup` installs it", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let major = major(&said)
            .with_context(|| format!("{} is no QEMU: it says \"{}\"", program.display(), said.trim()))?;
        Ok(Self { program: program.to_owned(), major })
    }

    /// The value of `-accel` for a machine of `cpus` processors whose clock counts instructions, or is the host's.
    ///
    /// # Errors
    /// When this QEMU cannot be trusted with that.
    pub fn acceleration(&self, cpus: u32, counts_instructions: bool) -> Result<&'static str> {
        let can_many = self.major >= MAJOR_FOR_MANY;
        match (cpus, counts_instructions) {
            (2.., true) if !can_many => bail!(
                "{cpus} processors with counted instructions need QEMU {MAJOR_FOR_MANY} or later, and {} is version {}: guests stall. \
                 `make setup` fetches a newer one, with a network; or give the machine one processor",
                self.program.display(),
                self.major
            ),
            (2.., false) if can_many => Ok("tcg,thread=multi,tb-size=256"),
            // Counting instructions needs a single thread, and so does an old QEMU.
            _ => Ok("tcg,thread=single,tb-size=256"),
        }
    }

    /// The value of `-cpu`: all that this QEMU knows, but for the promise that string instructions are quick. It
    /// carries them out a byte at a time, so that a kernel that believes it clears a page in 4,096 steps; one that
    /// does not takes an eighth of that or less.
    pub fn processor(&self) -> &'static str {
        match self.major {
            MAJOR_FOR_MANY.. => "max,erms=off,fsrm=off,fzrm=off,fsrs=off,fsrc=off",
            // It knows nothing of the other three.
            _ => "max,erms=off,fsrm=off",
        }
    }
}

/// The major version in what `--version` prints.
fn major(said: &str) -> Option<u32> {
    said.strip_prefix("QEMU emulator version ")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emulator(major: u32) -> Emulator {
        Emulator { program: SYSTEMS_OWN.into(), major }
    }

    #[test]
    fn the_version_is_read_from_what_qemu_says() {
        assert_eq!(major("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright"), Some(7));
        assert_eq!(major("GNU bash, version 5.2"), None);
    }

    #[test]
    fn several_processors_run_in_threads_of_their_own_unless_instructions_are_counted_or_qemu_is_old() {
        let threads = |major, cpus, counts: bool| {
            let value = emulator(major).acceleration(cpus, counts).unwrap();
            value.contains("thread=multi")
        };
        assert!(threads(10, 4, false));
        assert!(!threads(10, 4, true));
        assert!(!threads(10, 1, false) && !threads(10, 1, true));
        assert!(!threads(7, 4, false) && !threads(7, 1, true));
    }

    #[test]
    fn an_old_qemu_is_refused_several_processors_with_counted_instructions() {
        let error = emulator(7).acceleration(2, true).expect_err("guests stall there").to_string();
        assert!(error.contains("QEMU 10") && error.contains("version 7"), "{error}");
    }

    #[test]
    fn what_is_no_qemu_is_named() {
        let error = Emulator::ask(Path::new("/nonexistent/qemu")).expect_err("there is no such file");
        assert!(format!("{error:#}").contains("/nonexistent/qemu"));
    }
}

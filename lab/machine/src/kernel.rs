//! Which kernel the guest runs.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the guest's kernel comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// The newest of Debian's cloud kernels with sched_ext, fetched once and cached.
    #[default]
    Debian,
    /// The kernel that this machine itself runs, from /boot and /lib/modules.
    Host,
    /// A kernel image, and a directory with one subdirectory of modules named by the kernel's version (as in
    /// /lib/modules). Without modules, the image must have what the guest needs built in.
    Path {
        /// The compressed kernel image (vmlinuz or bzImage).
        image: PathBuf,
        /// The directory above `VERSION/kernel/...`, or `VERSION` itself.
        modules: Option<PathBuf>,
    },
}

impl KernelChoice {
    /// Reads what a user gives as `--kernel` (`debian`, `host` or a path) and `--modules`.
    pub fn parse(kernel: &str, modules: Option<&Path>) -> Self {
        match kernel {
            "" | "debian" => Self::Debian,
            "host" => Self::Host,
            path => Self::Path { image: path.into(), modules: modules.map(Path::to_owned) },
        }
    }
}

/// A kernel that is present on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub image: PathBuf,
    pub version: String,
    /// The directory above `VERSION/`.
    pub modules: PathBuf,
}

impl Kernel {
    /// Finds the files of `choice`, fetching them when they are Debian's and not yet cached.
    pub fn find(choice: &KernelChoice) -> Result<Self> {
        match choice {
            KernelChoice::Debian => {
                let directory = crate::script("kernel.sh", &[])?;
                let version = directory.file_name().map(|name| name.to_string_lossy().into_owned());
                Ok(Self {
                    image: quickest_image(&directory),
                    version: version.context("kernel.sh printed no directory")?,
                    modules: directory.join("lib/modules"),
                })
            }
            KernelChoice::Host => {
                let version = fs::read_to_string("/proc/sys/kernel/osrelease")
                    .context("reading /proc/sys/kernel/osrelease")?
                    .trim()
                    .to_owned();
                let image = PathBuf::from(format!("/boot/vmlinuz-{version}"));
                readable(&image, "this machine's own kernel; give another with --kernel PATH")?;
                Ok(Self { image, version, modules: "/lib/modules".into() })
            }
            KernelChoice::Path { image, modules } => {
                readable(image, "the kernel given with --kernel")?;
                let (version, modules) = match modules {
                    Some(directory) => versioned(directory)?,
                    None => ("none".to_owned(), PathBuf::from("/nonexistent")),
                };
                Ok(Self { image: image.clone(), version, modules })
            }
        }
    }

    /// The base file system for this kernel, built when it is not cached.
    pub fn base_archive(&self) -> Result<PathBuf> {
        crate::script("base.sh", &[self.modules.as_os_str(), OsStr::new(&self.version)])
    }
}

/// The version of the kernel of `choice`, and the file that says how it was configured.
///
/// # Errors
/// When Debian's cannot be fetched, this machine's own is not in /boot, or the kernel was given by its path alone.
pub fn kernel_configuration(choice: &KernelChoice) -> Result<(String, PathBuf)> {
    let version = Kernel::find(choice)?.version;
    let path = match choice {
        KernelChoice::Debian => crate::script("kernel.sh", &[OsStr::new("--configuration")])?,
        KernelChoice::Host => PathBuf::from(format!("/boot/config-{version}")),
        KernelChoice::Path { image, .. } => {
            bail!(
                "how the kernel {} was configured is not known: use Debian's or the host's",
                image.display()
            )
        }
    };
    readable(&path, "how the kernel was configured")?;
    Ok((version, path))
}

/// Of the images that `kernel.sh` leaves in a directory, the unpacked one where there is one: QEMU starts it by its PVH
/// entry, which Debian's kernels have, and the guest does not spend seconds of an emulated CPU on unpacking the other.
fn quickest_image(directory: &Path) -> PathBuf {
    let unpacked = directory.join("vmlinux");
    if unpacked.exists() { unpacked } else { directory.join("vmlinuz") }
}

fn readable(path: &Path, what: &str) -> Result<()> {
    fs::File::open(path).with_context(|| format!("opening {} ({what})", path.display()))?;
    Ok(())
}

/// Splits a modules directory into the version and the directory above it.
fn versioned(directory: &Path) -> Result<(String, PathBuf)> {
    let versions = |above: &Path| -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in
            fs::read_dir(above).with_context(|| format!("reading the modules in {}", above.display()))?
        {
            let entry = entry?;
            if entry.path().join("kernel").is_dir() {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(found)
    };
    if directory.join("kernel").is_dir() {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        let above = directory.parent().map(Path::to_owned);
        return name.zip(above).context("the directory given with --modules has no parent");
    }
    match versions(directory)?.as_slice() {
        [version] => Ok((version.clone(), directory.to_owned())),
        [] => bail!("{} holds no VERSION/kernel directory of modules", directory.display()),
        many => bail!(
            "{} holds modules of several kernels ({}); give one of them",
            directory.display(),
            many.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_debian_and_host_choose_a_kernel_and_all_else_is_a_path() {
        assert_eq!(KernelChoice::parse("debian", None), KernelChoice::Debian);
        assert_eq!(KernelChoice::parse("host", None), KernelChoice::Host);
        let path = KernelChoice::Path { image: "/boot/vmlinuz".into(), modules: Some("/m".into()) };
        assert_eq!(KernelChoice::parse("/boot/vmlinuz", Some(Path::new("/m"))), path);
    }

    #[test]
    fn a_kernel_that_is_there_unpacked_is_booted_so() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(quickest_image(directory.path()), directory.path().join("vmlinuz"));
        fs::write(directory.path().join("vmlinux"), "").unwrap();
        assert_eq!(quickest_image(directory.path()), directory.path().join("vmlinux"));
    }

    #[test]
    fn a_missing_kernel_is_named_in_the_error() {
        let choice = KernelChoice::Path { image: "/nonexistent/vmlinuz".into(), modules: None };
        let error = Kernel::find(&choice).expect_err("there is no such file");
        assert!(format!("{error:#}").contains("/nonexistent/vmlinuz"));
    }
}

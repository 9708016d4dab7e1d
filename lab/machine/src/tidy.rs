//! Keeps the cache from growing for ever: what killed runs left, and disk images that nobody has used for a while.
//!
//! Nothing depends on anything here being removed, so what cannot be read or removed is left alone without a word.

use std::fs::{self, FileTimes};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// An image is made anew from cached packages in a minute or two; a set of packages that a scenario no longer asks for
/// is never used again.
const IMAGE_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Removes the directories `PID-NUMBER` in `runs` whose process is gone.
pub(crate) fn forget_killed_runs(runs: &Path) {
    for path in entries(runs) {
        let process = path.file_name().and_then(|name| name.to_str()?.split_once('-')?.0.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Notes that `used` is in use, and removes the other images of its directory that were not used for a week.
pub(crate) fn keep_used_images(used: &Path) {
    let now = SystemTime::now();
    let noted = fs::File::options().append(true).open(used);
    if noted.and_then(|file| file.set_times(FileTimes::new().set_modified(now))).is_err() {
        return;
    }
    for path in entries(used.parent().unwrap_or(Path::new("."))) {
        let is_old = || now.duration_since(path.metadata().ok()?.modified().ok()?).ok();
        if path.extension().is_some_and(|extension| extension == "ext4")
            && is_old().is_some_and(|age| age > IMAGE_KEPT)
        {
            for of_image in ["ext4", "packages", "log"] {
                let _ = fs::remove_file(path.with_extension(of_image));
            }
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_of_processes_that_are_gone_are_removed() {
        let runs = tempfile::tempdir().unwrap();
        // No process can have this number: the kernel's largest is 2^22.
        let (own, gone) = (format!("{}-0", std::process::id()), "4194305-0");
        for name in [own.as_str(), gone, "notes"] {
            fs::create_dir(runs.path().join(name)).unwrap();
        }
        forget_killed_runs(runs.path());
        let mut left: Vec<_> = entries(runs.path());
        left.sort();
        let mut expected = [runs.path().join(own), runs.path().join("notes")];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn an_image_goes_when_it_was_not_used_for_a_week() {
        let images = tempfile::tempdir().unwrap();
        let image = |name: &str, days: u64| {
            let path = images.path().join(name);
            let file = fs::File::create(&path).unwrap();
            fs::write(path.with_extension("packages"), "").unwrap();
            let day = Duration::from_secs(24 * 3600);
            let used = SystemTime::now() - day * u32::try_from(days).unwrap();
            file.set_times(FileTimes::new().set_modified(used)).unwrap();
            path
        };
        let (used, recent, old) = (image("a.ext4", 30), image("b.ext4", 6), image("c.ext4", 8));
        keep_used_images(&used);
        assert!(used.exists() && recent.exists());
        assert!(!old.exists() && !old.with_extension("packages").exists());
    }
}

//! What is known of disks that were calibrated, in the state directory: it is true of the disk, after a reboot too.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::disk::calibration::Calibration;
use steward_core::disk::device::Device;

use crate::files;

/// The file's name.
pub const FILE_NAME: &str = "disks.json";
const SCHEMA: u32 = 1;

/// What is known of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrations {
    schema: u32,
    /// Of each, by what it is known again.
    pub disks: Vec<Calibration>,
}

/// Where they are kept.
pub fn file(state_directory: &Path) -> PathBuf {
    state_directory.join(FILE_NAME)
}

impl Calibrations {
    /// Reads what is kept; nothing where there is no file.
    ///
    /// # Errors
    /// In a sentence with the file: nothing of it counts then.
    pub fn read(state_directory: &Path) -> Result<Self, String> {
        let path = file(state_directory);
        let wrong = |why: String| {
            format!(
                "{} {why}; remove it, and calibrate the disks again (steward disk calibrate)",
                path.display()
            )
        };
        let bytes = match files::read_bytes(&path, files::WRITTEN_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.is_absent() => return Ok(Calibrations::default()),
            Err(error) => return Err(wrong(error.what())),
        };
        let read: Calibrations =
            serde_json::from_slice(&bytes).map_err(|error| wrong(format!("is damaged: {error}")))?;
        if read.schema != SCHEMA {
            return Err(wrong(format!("has schema {} and this steward knows {SCHEMA}", read.schema)));
        }
        for disk in &read.disks {
            disk.model.check().map_err(|why| wrong(format!("is wrong about {}: {why}", disk.name)))?;
        }
        Ok(read)
    }

    /// Changes what is kept, as it is now: while a disk was measured another one may have been.
    ///
    /// # Errors
    /// In a sentence with the file.
    pub fn change(state_directory: &Path, change: impl FnOnce(&mut Self)) -> Result<(), String> {
        let mut kept = Self::read(state_directory)?;
        change(&mut kept);
        kept.save(state_directory)
    }

    /// Puts this in the place of what was known of the same disk.
    pub fn put(&mut self, calibration: Calibration) {
        self.schema = SCHEMA;
        self.disks.retain(|disk| disk.identity != calibration.identity);
        self.disks.push(calibration);
    }

    /// Nothing is known any more of the disk for which this says so; what was.
    pub fn forget(&mut self, is_it: impl Fn(&Calibration) -> bool) -> Option<Calibration> {
        let place = self.disks.iter().position(is_it)?;
        Some(self.disks.remove(place))
    }

    /// Replaces what is kept.
    ///
    /// # Errors
    /// In a sentence with the file.
    pub fn save(&self, state_directory: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        files::replace(&file(state_directory), &text, true).map_err(|error| error.to_string())
    }

    /// What is known of a disk.
    pub fn of(&self, device: &Device) -> Option<&Calibration> {
        self.disks.iter().find(|disk| !disk.identity.is_empty() && disk.identity == device.identity)
    }

    /// Has disks say what is known of them.
    pub fn tell(&self, devices: &mut [Device]) {
        for device in devices {
            device.model = self.of(device).map(|calibration| calibration.model);
        }
    }
}

#[cfg(test)]
mod tests {
    use steward_core::disk::cost::{Model, Way};

    use super::*;

    fn of(identity: &str, per_second: u64) -> Calibration {
        let way =
            Way { bytes_per_second: 500, sequential_per_second: per_second, random_per_second: per_second };
        let model = Model { read: way, write: way };
        Calibration { identity: identity.into(), name: "sda".into(), measured_at: 7, model }
    }

    #[test]
    fn what_was_kept_is_known_of_the_disk_under_another_name_and_of_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Calibrations::read(directory.path()), Ok(Calibrations::default()));
        let mut kept = Calibrations::default();
        for calibration in [of("wwid a", 1), of("wwid b", 2), of("wwid a", 3)] {
            kept.put(calibration);
        }
        kept.save(directory.path()).expect("it can be written");
        let mut read = Calibrations::read(directory.path()).expect("it is whole");
        assert_eq!((&read, read.disks.len()), (&kept, 2));
        let device =
            |identity: &str| Device { identity: identity.into(), name: "sdz".into(), ..Device::default() };
        let mut devices = [device("wwid a"), device("wwid c"), device("")];
        read.tell(&mut devices);
        let known = devices.map(|device| device.model.map(|model| model.read.random_per_second));
        assert_eq!(known, [Some(3), None, None]);
        let mut forget = || read.forget(|disk| disk.identity == "wwid a").is_some();
        assert_eq!([forget(), forget()], [true, false]);
        assert_eq!(read.of(&device("wwid a")), None);
    }

    #[test]
    fn what_was_kept_of_another_disk_meanwhile_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        for identity in ["wwid a", "wwid b"] {
            Calibrations::change(directory.path(), |kept| kept.put(of(identity, 1))).expect("it is written");
        }
        let read = Calibrations::read(directory.path()).expect("it is whole");
        assert_eq!(read.disks, [of("wwid a", 1), of("wwid b", 1)]);
    }

    #[test]
    fn a_file_that_is_wrong_counts_for_nothing_and_says_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut none = Calibrations::default();
        none.put(of("wwid a", 0));
        none.save(directory.path()).expect("it can be written");
        let of_nothing = std::fs::read_to_string(file(directory.path())).expect("a file");
        for (text, says) in [
            ("{\"schema\":1", "is damaged"),
            ("{\"schema\":9,\"disks\":[]}", "has schema 9"),
            (of_nothing.as_str(), "is wrong about sda: no disk does 0 in a second"),
        ] {
            std::fs::write(file(directory.path()), text).expect("a file");
            let why = Calibrations::read(directory.path()).expect_err("it is wrong");
            assert!(why.contains(says) && why.contains("disks.json") && why.contains("remove it"), "{why}");
        }
    }
}

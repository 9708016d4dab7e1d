//! What is known of disks that were calibrated, in the state directory: it is true of the disk, after a reboot too.
//!
//! A line each ([`sealed`]), so that a damaged one costs no other.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steward_core::disk::calibration::Calibration;
use steward_core::disk::device::Device;

use crate::{files, sealed};

/// The file's name.
pub const FILE_NAME: &str = "disks.json";
const SCHEMA: u32 = 2;
/// The schema before: one JSON object for all.
const SCHEMA_OF_ONE_OBJECT: u32 = 1;
/// What the sums of the lines are made with beside the lines: those of other files are none of this one.
const WORD: &str = "disks";

/// What is known of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibrations {
    /// Of each, by what it is known again.
    pub disks: Vec<Calibration>,
}

/// What becomes of a file with damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// It stays, for whoever only looks.
    Stays,
    /// It is set aside under another name, and what could be read of it is kept in a new one: for who may write there.
    SetAside,
}

#[derive(Deserialize)]
struct OneObject {
    schema: u32,
    disks: Vec<Calibration>,
}

#[derive(Serialize, Deserialize)]
struct Start {
    schema: u32,
}

#[derive(Deserialize)]
struct Line {
    disk: Calibration,
}

#[derive(Serialize)]
struct LineToSave<'a> {
    disk: &'a Calibration,
}

/// What is in a file, and what is wrong with it, in words that follow its name.
#[derive(Default)]
struct Content {
    kept: Calibrations,
    damage: Vec<String>,
}

impl Content {
    fn nothing_but(damage: String) -> Self {
        Content { damage: vec![damage], ..Content::default() }
    }

    fn take(&mut self, disk: Calibration) {
        match disk.model.check() {
            Ok(()) => self.kept.disks.push(disk),
            Err(why) => self.damage.push(format!("is wrong about {}: {why}", disk.name)),
        }
    }
}

/// Where they are kept.
pub fn file(state_directory: &Path) -> PathBuf {
    state_directory.join(FILE_NAME)
}

impl Calibrations {
    /// Reads what is kept; nothing where there is no file. What is damaged is left out; the second value says in a
    /// sentence that something was, and what became of it.
    pub fn read(state_directory: &Path, damaged: Damaged) -> (Self, Option<String>) {
        let path = file(state_directory);
        let Content { kept, damage } = read(&path);
        let message = sentence(&path, &damage).map(|sentence| match damaged {
            Damaged::Stays => sentence,
            Damaged::SetAside => {
                let outcome = files::set_aside(&path, &path.with_extension("json.damaged"));
                // What cannot be saved now fails again, and is told, when a disk is calibrated.
                let _ = kept.save(state_directory);
                format!("{sentence}; {outcome}")
            }
        });
        (kept, message)
    }

    /// Changes what is kept, as it is now: while a disk was measured another one may have been. Returns what
    /// [`Calibrations::read`] has to say.
    ///
    /// # Errors
    /// In a sentence with the file.
    pub fn change(state_directory: &Path, change: impl FnOnce(&mut Self)) -> Result<Option<String>, String> {
        let (mut kept, message) = Self::read(state_directory, Damaged::SetAside);
        change(&mut kept);
        kept.save(state_directory)?;
        Ok(message)
    }

    /// Puts this in the place of what was known of the same disk.
    pub fn put(&mut self, calibration: Calibration) {
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
        let start = sealed::encode(WORD, &Start { schema: SCHEMA });
        let lines = self.disks.iter().map(|disk| sealed::encode(WORD, &LineToSave { disk }));
        let text: Result<String, _> = std::iter::once(start).chain(lines).collect();
        let text = text.map_err(|error| error.to_string())?;
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

fn read(path: &Path) -> Content {
    match files::read_bytes(path, files::WRITTEN_BYTES_MAX) {
        Ok(content) => parse(&content),
        Err(error) if error.is_absent() => Content::default(),
        Err(error) => Content::nothing_but(error.what()),
    }
}

fn parse(content: &[u8]) -> Content {
    let strange =
        |schema: u32| Content::nothing_but(format!("has schema {schema} and this steward knows {SCHEMA}"));
    let mut found = Content::default();
    match serde_json::from_slice::<OneObject>(content) {
        Ok(saved) if saved.schema != SCHEMA_OF_ONE_OBJECT => return strange(saved.schema),
        Ok(saved) => {
            saved.disks.into_iter().for_each(|disk| found.take(disk));
            return found;
        }
        Err(_) => {}
    }
    if content.is_empty() {
        return Content::nothing_but("is empty".to_owned());
    }
    let (lines, cut) = sealed::lines(content);
    for (number, line) in (1_u64..).zip(lines.chain((!cut.is_empty()).then_some(cut))) {
        match sealed::decode::<Start>(WORD, line).filter(|_| number == 1) {
            Some(start) if start.schema != SCHEMA => return strange(start.schema),
            Some(_) => continue,
            None => {}
        }
        match sealed::decode::<Line>(WORD, line) {
            Some(line) => found.take(line.disk),
            None => found.damage.push(format!("is damaged: line {number} is not as it was written")),
        }
    }
    found
}

fn sentence(path: &Path, damage: &[String]) -> Option<String> {
    let first = damage.first()?;
    let more = match damage.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!(
        "{} {first}{more}; what else it says of disks counts: calibrate the disk that is missing again (steward disk \
         calibrate)",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
        assert_eq!(Calibrations::read(directory.path(), Damaged::Stays), (Calibrations::default(), None));
        let mut kept = Calibrations::default();
        for calibration in [of("wwid a", 1), of("wwid b", 2), of("wwid a", 3)] {
            kept.put(calibration);
        }
        kept.save(directory.path()).expect("it can be written");
        let (mut read, message) = Calibrations::read(directory.path(), Damaged::Stays);
        assert_eq!((&read, read.disks.len(), message), (&kept, 2, None));
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
            let change = Calibrations::change(directory.path(), |kept| kept.put(of(identity, 1)));
            assert_eq!(change, Ok(None));
        }
        let (read, _) = Calibrations::read(directory.path(), Damaged::Stays);
        assert_eq!(read.disks, [of("wwid a", 1), of("wwid b", 1)]);
    }

    #[test]
    fn a_file_of_the_schema_before_is_still_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let disks = serde_json::to_string_pretty(&[of("wwid a", 1)]).expect("JSON");
        let text = format!("{{\n  \"schema\": 1,\n  \"disks\": {disks}\n}}\n");
        std::fs::write(file(directory.path()), text).expect("a file");
        assert_eq!(
            Calibrations::read(directory.path(), Damaged::SetAside),
            (Calibrations { disks: vec![of("wwid a", 1)] }, None)
        );
    }

    #[test]
    fn what_is_wrong_counts_for_nothing_and_the_file_is_set_aside_by_who_may() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = Calibrations { disks: vec![of("wwid a", 0), of("wwid b", 1)] };
        kept.save(directory.path()).expect("it can be written");
        let with_nothing = std::fs::read_to_string(file(directory.path())).expect("a file");
        for (text, says, left) in [
            ("", "is empty", 0),
            ("{\"schema\":1", "is damaged: line 1", 0),
            ("{\"schema\":9,\"disks\":[]}", "has schema 9", 0),
            (with_nothing.as_str(), "is wrong about sda: no disk does 0 in a second", 1),
        ] {
            std::fs::write(file(directory.path()), text).expect("a file");
            let (read, said) = Calibrations::read(directory.path(), Damaged::Stays);
            let said = said.expect("something is wrong");
            assert!(said.contains(says) && said.contains("disks.json"), "{said}");
            assert!(said.contains("steward disk calibrate"), "{said}");
            assert_eq!(std::fs::read_to_string(file(directory.path())).expect("as it was"), text);
            let (loaded, said) = Calibrations::read(directory.path(), Damaged::SetAside);
            assert!(said.is_some_and(|said| said.contains("it is now") && said.contains("json.damaged")));
            assert_eq!((&loaded, loaded.disks.len()), (&read, left));
            assert_eq!(Calibrations::read(directory.path(), Damaged::SetAside), (read, None));
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_costs_its_disk_and_no_other(place: prop::sample::Index, flip in 1..=255_u8) {
            let directory = tempfile::tempdir().expect("a directory");
            let path = file(directory.path());
            let kept = Calibrations { disks: vec![of("wwid a", 1), of("wwid b", 2)] };
            kept.save(directory.path()).expect("it can be written");
            let mut content = std::fs::read(&path).expect("a file");
            let at = place.index(content.len());
            // The end of a line belongs to the next one too.
            let line_of = |at: usize| content[..at].iter().filter(|byte| **byte == b'\n').count();
            let hit = [line_of(at), line_of(at + 1)];
            let intact = (1..).zip(kept.disks).filter(|(line, _)| !hit.contains(line)).map(|(_, disk)| disk);
            let intact = Calibrations { disks: intact.collect() };
            content[at] ^= flip;
            std::fs::write(&path, &content).expect("a file");
            let (loaded, said) = Calibrations::read(directory.path(), Damaged::SetAside);
            prop_assert_eq!(&loaded, &intact);
            prop_assert!(said.is_some_and(|said| said.contains("disks.json.damaged")));
            prop_assert_eq!(std::fs::read(directory.path().join("disks.json.damaged")).expect("it is kept"), content);
            prop_assert_eq!(Calibrations::read(directory.path(), Damaged::SetAside), (intact, None));
        }
    }
}

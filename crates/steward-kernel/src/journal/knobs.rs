//! Writing files of cgroups with a record that can undo it: one record for each file, however often it is written.

use std::io;

use super::change::{Change, Undone};
use super::error::JournalError;
use super::file::Journal;
use super::knob::Knob;
use super::lines::Line;
use super::undo::undo;
use crate::cgroup::directory::CgroupDirectory;
use crate::cgroup::place::{self, Place};
use crate::error::KernelError;
use crate::roots::Roots;

impl Journal {
    /// Writes `value` into a file of a cgroup. The first time its old value is recorded; what is written later changes
    /// that record, and keeps the old value. If someone else has written the file in between, what they wrote is the
    /// old value from then on. Returns the change's number, or `None` when the file says so already.
    ///
    /// # Errors
    /// [`JournalError`]; the file is then as it was. [`KernelError::is_absent`] when the cgroup has gone, or another
    /// one has its name.
    pub fn write_knob(
        &mut self,
        place: &Place,
        file: &str,
        value: &str,
        roots: &Roots,
    ) -> Result<Option<u64>, JournalError> {
        let directory = CgroupDirectory::open_same(&place.path, place.cgroup_id, roots)?;
        let directory = directory.ok_or_else(|| KernelError::Cgroup {
            path: place::directory(&place.path, roots),
            action: "find the cgroup that was at",
            source: io::Error::from_raw_os_error(libc::ENODEV),
        })?;
        let current = directory.read(file)?;
        if current == value {
            return Ok(None);
        }
        let earlier = self.knob_number(place.cgroup_id, file);
        let ours = earlier.filter(|number| {
            matches!(self.outstanding.get(number), Some(Change::Knob(knob)) if knob.is_ours(&current))
        });
        let number = match ours {
            Some(number) => self.note(Line::Again { number, value: value.into() }).map(|()| number)?,
            None => self.record(Change::Knob(Knob {
                cgroup: place.path.clone(),
                id: place.cgroup_id,
                file: file.into(),
                old: current.clone(),
                new: value.into(),
                before: None,
            }))?,
        };
        let outcome = self.make_knob(&directory, file, value, number, ours.is_some());
        if let Err(error) = outcome {
            // Back, if it was written, whatever the kernel shows for it.
            let _ = directory.write(file, &current);
            let _ = match ours {
                Some(number) => self.note(Line::Shown { number, value: current }),
                None => self.close(number),
            };
            return Err(error);
        }
        // One knob, one record: what was ours before someone else wrote is not to be put back.
        if let Some(earlier) = earlier.filter(|_| ours.is_none()) {
            let _ = self.close(earlier);
        }
        Ok(Some(number))
    }

    /// The kernel may show a value in another form (bytes as whole pages); that form is then what is ours.
    fn make_knob(
        &mut self,
        directory: &CgroupDirectory,
        file: &str,
        value: &str,
        number: u64,
        is_again: bool,
    ) -> Result<(), JournalError> {
        directory.write(file, value)?;
        let shown = directory.read(file)?;
        if is_again || shown != value {
            self.note(Line::Shown { number, value: shown })?;
        }
        Ok(())
    }

    /// Puts a file of a cgroup back to what it said before Steward wrote it, if it still says what Steward wrote.
    /// `None` when Steward has not written it.
    ///
    /// # Errors
    /// [`JournalError`] with the path; the record then stays.
    pub fn undo_knob(
        &mut self,
        place: &Place,
        file: &str,
        roots: &Roots,
    ) -> Result<Option<Undone>, JournalError> {
        let Some(number) = self.knob_number(place.cgroup_id, file) else { return Ok(None) };
        let undone = undo(&self.outstanding[&number], roots)?;
        // A record that stays open does no harm.
        let _ = self.close(number);
        Ok(Some(undone))
    }

    /// A cgroup has gone, and what was written into its files with it: there is nothing to put back any more.
    pub fn forget_knobs(&mut self, cgroup_id: u64) {
        let is_its = |change: &Change| matches!(change, Change::Knob(knob) if knob.id == cgroup_id);
        let its = self.outstanding.iter().filter(|(_, change)| is_its(change));
        let numbers: Vec<u64> = its.map(|(number, _)| *number).collect();
        for number in numbers {
            // A record that stays open does no harm.
            let _ = self.close(number);
        }
    }

    fn knob_number(&self, id: u64, file: &str) -> Option<u64> {
        let mut latest_first = self.outstanding.iter().rev();
        let is_it =
            |change: &Change| matches!(change, Change::Knob(knob) if knob.id == id && knob.file == file);
        latest_first.find(|(_, change)| is_it(change)).map(|(number, _)| *number)
    }
}

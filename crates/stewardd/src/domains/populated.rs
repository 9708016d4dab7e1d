//! Which cgroups are known to have processes.

use std::collections::BTreeSet;

use super::cgroups::Cgroups;

/// The cgroups that are known to have processes until the kernel says that something has changed there: it is asked of
/// all domains once a second, and to read it is most of what that takes. Of one that has none it is asked again, since
/// who is moved there is told of a moment later.
#[derive(Debug, Default)]
pub(super) struct Populated {
    /// Those of which the kernel tells.
    watched: BTreeSet<String>,
    known: BTreeSet<String>,
}

impl Populated {
    /// Whether the kernel tells from now on of this cgroup.
    pub(super) fn note_watch(&mut self, path: &str, is_watched: bool) {
        self.note_change(path);
        if is_watched {
            self.watched.insert(path.to_owned());
        } else {
            self.watched.remove(path);
        }
    }

    /// Something has changed there.
    pub(super) fn note_change(&mut self, path: &str) {
        self.known.remove(path);
    }

    /// Whether there is a process in it or below it.
    pub(super) fn is_populated(&mut self, cgroups: &dyn Cgroups, path: &str) -> bool {
        if self.known.contains(path) {
            return true;
        }
        let is_populated = cgroups.is_populated(path).unwrap_or(false);
        if is_populated && self.watched.contains(path) {
            self.known.insert(path.to_owned());
        }
        is_populated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::cgroups::FakeCgroups;

    #[test]
    fn of_who_has_processes_it_is_asked_again_once_something_has_changed_there_and_of_the_others_each_time() {
        let mut fake = FakeCgroups::default();
        ["a", "b"].iter().for_each(|path| fake.tree().add(path, 0));
        let mut populated = Populated::default();
        populated.note_watch("a", fake.watch("a").is_ok());
        let are = |populated: &mut Populated, fake: &FakeCgroups| {
            ["a", "b"].map(|path| populated.is_populated(fake, path))
        };
        assert_eq!(are(&mut populated, &fake), [false, false]);
        // Two that are alive: this one, and the one that has started it.
        let here = std::process::id() as i32;
        let above = std::os::unix::process::parent_id() as i32;
        fake.tree().members.extend([(here, "a".to_owned()), (above, "b".to_owned())]);
        assert_eq!(are(&mut populated, &fake), [true, true]);
        fake.tree().members.clear();
        // Of the one the kernel tells, and it was not listened to yet.
        assert_eq!(are(&mut populated, &fake), [true, false]);
        populated.note_change("a");
        assert!(!populated.is_populated(&fake, "a"));
    }
}

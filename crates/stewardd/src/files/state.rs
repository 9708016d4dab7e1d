//! What must survive a restart of the daemon: what people gave to running programs by hand, domains, and what
//! specifications said before somebody wrote a mistake into them.
//!
//! One file each in the state directory, with a JSON object a line ([`sealed`]). A process is known by pid and start
//! time and a cgroup by its inode, and these count from boot, so that a file about them says which boot it is of. A
//! file is replaced whole (written beside, then renamed). One that is of its boot alone is not synced to the disk: it
//! has to outlive this process, not this boot.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steward_kernel::files::{self, Unwritten};
use steward_kernel::sealed;

use crate::health::Topic;
use crate::turn::worker::{Job, Worker};

const SCHEMA: u32 = 2;
/// The schema before: one JSON object for all.
const SCHEMA_OF_ONE_OBJECT: u32 = 1;

/// A kind of thing that is kept.
pub trait Kept: Serialize + DeserializeOwned {
    /// The file's name.
    const FILE_NAME: &'static str;
    /// What people do to have what was lost again.
    const REMEDY: &'static str;
    /// Where it is said when it cannot be kept.
    const TOPIC: Topic;
    /// What that means.
    const OTHERWISE: &'static str;
    /// Whether it speaks of what ends with the boot, such as processes.
    const OF_ITS_BOOT_ALONE: bool = true;
}

#[derive(Deserialize)]
struct OneObject<T> {
    schema: u32,
    boot_id: String,
    #[serde(alias = "by_hand")]
    kept: Vec<T>,
}

#[derive(Serialize, Deserialize)]
struct Start {
    schema: u32,
    boot_id: String,
}

#[derive(Deserialize)]
struct Line<T> {
    kept: T,
}

#[derive(Serialize)]
struct LineToSave<'a, T> {
    kept: &'a T,
}

/// What is in a file.
struct Content<T> {
    kept: Vec<T>,
    /// What is wrong with it, in words that follow its name.
    damage: Vec<String>,
}

impl<T> Content<T> {
    fn nothing_but(damage: Option<String>) -> Self {
        Content { kept: Vec::new(), damage: damage.into_iter().collect() }
    }
}

/// Where one kind of thing is kept.
#[derive(Clone, Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    /// Empty where it is of any boot.
    boot_id: String,
    kind: PhantomData<T>,
}

impl<T: Kept> StateFile<T> {
    /// The file in that directory. `boot_id` names the boot that processes and cgroups are of.
    pub fn new(directory: &Path, boot_id: &str) -> Self {
        let boot_id = if T::OF_ITS_BOOT_ALONE { boot_id.trim() } else { "" };
        StateFile { path: directory.join(T::FILE_NAME), boot_id: boot_id.to_owned(), kind: PhantomData }
    }

    /// What was kept; nothing when there is no file, or one of another boot. A line that is not as it was written is
    /// left out; the file is then set aside under another name and described in the second value, because it must not
    /// stop the daemon.
    pub fn load(&self) -> (Vec<T>, Option<String>) {
        let Content { kept, damage } = match files::read_bytes(&self.path, files::KEPT_BYTES_MAX) {
            Ok(content) => self.parse(&content),
            Err(error) if error.is_absent() => Content::nothing_but(None),
            Err(error) => Content::nothing_but(Some(error.what())),
        };
        let message = self.set_aside(&damage, &kept);
        (kept, message)
    }

    fn parse(&self, content: &[u8]) -> Content<T> {
        match serde_json::from_slice::<OneObject<T>>(content) {
            Ok(saved) if saved.schema != SCHEMA_OF_ONE_OBJECT => {
                return Content::nothing_but(Some(strange(saved.schema)));
            }
            Ok(saved) if saved.boot_id != self.boot_id => return Content::nothing_but(None),
            Ok(saved) => return Content { kept: saved.kept, damage: Vec::new() },
            Err(_) => {}
        }
        let (lines, cut) = sealed::lines(content);
        let mut found = Content::nothing_but(content.is_empty().then(|| "is empty".to_owned()));
        for (number, line) in (1_u64..).zip(lines.chain((!cut.is_empty()).then_some(cut))) {
            match sealed::decode::<Start>("", line).filter(|_| number == 1) {
                Some(start) if start.schema != SCHEMA => {
                    return Content::nothing_but(Some(strange(start.schema)));
                }
                Some(start) if start.boot_id != self.boot_id => return Content::nothing_but(None),
                Some(_) => continue,
                None => {}
            }
            match sealed::decode::<Line<T>>(&self.boot_id, line) {
                Some(line) => found.kept.push(line.kept),
                None => found.damage.push(format!("is damaged: line {number} is not as it was written")),
            }
        }
        found
    }

    /// Has the worker replace what was kept.
    pub fn keep(&self, kept: &[T], worker: &mut Worker) {
        let (path, text, synced) = (self.path.clone(), self.text(kept), !T::OF_ITS_BOOT_ALONE);
        worker.give(Job::replace(T::TOPIC, path, text, synced, T::OTHERWISE));
    }

    /// Replaces what was kept, at once.
    ///
    /// # Errors
    /// With the path, when the directory or the file cannot be written.
    fn save(&self, kept: &[T]) -> Result<(), Unwritten> {
        files::replace(&self.path, &self.text(kept), !T::OF_ITS_BOOT_ALONE)
    }

    fn text(&self, kept: &[T]) -> String {
        let plain = "what is kept is plain JSON";
        let start = Start { schema: SCHEMA, boot_id: self.boot_id.clone() };
        let lines = kept.iter().map(|kept| sealed::encode(&self.boot_id, &LineToSave { kept }).expect(plain));
        std::iter::once(sealed::encode("", &start).expect(plain)).chain(lines).collect()
    }

    /// Keeps a damaged file under another name, and what could be read of it in a new one; says so.
    fn set_aside(&self, damage: &[String], kept: &[T]) -> Option<String> {
        let first = damage.first()?;
        let more = match damage.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let aside = self.path.with_extension("json.damaged");
        let outcome = files::set_aside(&self.path, &aside);
        // What cannot be saved now is saved with the next change; a failure is said then.
        let _ = self.save(kept);
        let path = self.path.display();
        Some(format!("the state file {path} {first}{more}; {outcome}; {}", T::REMEDY))
    }
}

fn strange(schema: u32) -> String {
    format!("has schema {schema} and this stewardd knows {SCHEMA}")
}

#[cfg(test)]
mod tests {
    use steward_core::cpu::plan::ByHand;
    use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
    use steward_core::process::TaskId;

    use super::*;
    use crate::files::specs::LastGood;

    const FILE_NAME: &str = ByHand::FILE_NAME;

    fn by_hand() -> Vec<ByHand> {
        let reservation = Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 };
        let grant = Grant {
            reservation,
            inherit: true,
            revocable: false,
            irrevocable_for: IrrevocableFor::Anybody,
            keep_over_exec: true,
            requests_at: None,
            spec_id: 0,
        };
        let process = TaskId { tid: 42, started_ticks: 1234 };
        vec![
            ByHand { process, grant: Some(grant), user: 0, program: None },
            ByHand { process, grant: None, user: 0, program: None },
        ]
    }

    #[test]
    fn what_was_saved_is_loaded_within_the_same_boot_only() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state = StateFile::<ByHand>::new(&directory.path().join("below"), "boot-1\n");
        assert_eq!(state.load(), (vec![], None));
        state.save(&by_hand()).expect("saved");
        assert_eq!(state.load(), (by_hand(), None));
        let after_reboot = StateFile::<ByHand>::new(&directory.path().join("below"), "boot-2");
        assert_eq!(after_reboot.load(), (vec![], None));
    }

    #[test]
    fn what_speaks_of_no_process_is_loaded_in_every_boot() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let good = [LastGood { name: "10-film.toml".into(), specs: vec![] }];
        StateFile::new(directory.path(), "boot-1").save(&good).expect("saved");
        assert_eq!(StateFile::new(directory.path(), "boot-2").load(), (good.to_vec(), None));
    }

    #[test]
    fn a_file_of_the_schema_before_is_still_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let entries = serde_json::to_string(&by_hand()).expect("JSON");
        let text = format!("{{\"schema\":1,\"boot_id\":\"b\",\"by_hand\":{entries}}}");
        std::fs::write(directory.path().join(FILE_NAME), text).expect("written");
        assert_eq!(StateFile::<ByHand>::new(directory.path(), "b").load(), (by_hand(), None));
    }

    #[test]
    fn what_an_earlier_daemon_knew_of_a_program_is_still_read() {
        let program: steward_core::process::Executed =
            serde_json::from_str(r#"{"device":1,"inode":2}"#).expect("JSON");
        assert_eq!(
            (program.device, program.inode, program.stack, program.effective_user),
            (1, 2, None, None)
        );
    }

    #[test]
    fn a_damaged_file_is_set_aside_with_a_message() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for damage in
            ["", "{\"schema\":1,\"boot", "{\"schema\":9,\"boot_id\":\"b\",\"by_hand\":[]}", "\u{0}\u{1}"]
        {
            let state = StateFile::<ByHand>::new(directory.path(), "b");
            std::fs::write(directory.path().join(FILE_NAME), damage).expect("written");
            let (by_hand, message) = state.load();
            assert!(by_hand.is_empty());
            let message = message.expect("a message");
            assert!(message.contains("by-hand.json.damaged"), "{message}");
            assert!(directory.path().join("by-hand.json.damaged").exists());
            assert_eq!(state.load(), (vec![], None));
        }
    }

    #[test]
    fn what_would_make_the_daemon_wait_is_set_aside() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(FILE_NAME);
        let owner_only = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        for name in [FILE_NAME, "by-hand.json.new"] {
            rustix::fs::mkfifoat(rustix::fs::CWD, directory.path().join(name), owner_only).expect("a FIFO");
        }
        let state = StateFile::<ByHand>::new(directory.path(), "b");
        let message = state.load().1.expect("a message");
        assert!(message.contains("is a FIFO") && message.contains("by-hand.json.damaged"), "{message}");
        state.save(&by_hand()).expect("saved");
        assert_eq!(state.load(), (by_hand(), None));
        assert!(path.is_file());
    }

    proptest::proptest! {
        #[test]
        fn a_changed_byte_costs_its_line_and_no_other(
            place in proptest::prelude::any::<proptest::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let path = directory.path().join(FILE_NAME);
            let state = StateFile::<ByHand>::new(directory.path(), "b");
            state.save(&by_hand()).expect("saved");
            let mut content = std::fs::read(&path).expect("a file");
            let at = place.index(content.len());
            // The end of a line belongs to the next one too.
            let line_of = |at: usize| content[..at].iter().filter(|byte| **byte == b'\n').count();
            let hit = [line_of(at), line_of(at + 1)];
            let intact: Vec<ByHand> =
                (1..).zip(by_hand()).filter(|(line, _)| !hit.contains(line)).map(|(_, kept)| kept).collect();
            content[at] ^= flip;
            std::fs::write(&path, &content).expect("written");
            let (kept, message) = state.load();
            proptest::prop_assert_eq!(&kept, &intact);
            proptest::prop_assert!(message.is_some_and(|message| message.contains("by-hand.json.damaged")));
            let aside = std::fs::read(directory.path().join("by-hand.json.damaged")).expect("it is kept");
            proptest::prop_assert_eq!(aside, content);
            // What was intact is kept once more.
            proptest::prop_assert_eq!(state.load(), (intact, None));
        }
    }
}

//! What must survive a restart of the daemon: what people gave to running programs by hand, and domains.
//!
//! One JSON file each in the state directory. A process is known by pid and start time and a cgroup by its inode, and
//! these count from boot, so that the file says which boot it is of. It is replaced whole (written beside, then renamed) and not synced to
//! the disk: it has to outlive this process, not this boot.

use std::io::ErrorKind;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const SCHEMA: u32 = 1;

/// A kind of thing that is kept.
pub trait Kept: Serialize + DeserializeOwned {
    /// The file's name.
    const FILE_NAME: &'static str;
    /// What people did to have it, for the message that it is lost.
    const SOURCE: &'static str;
}

impl Kept for crate::plan::ByHand {
    const FILE_NAME: &'static str = "by-hand.json";
    const SOURCE: &'static str =
        "what was given with steward run and steward set before is lost: give it again";
}

impl Kept for crate::domains::Held {
    const FILE_NAME: &'static str = "domains.json";
    const SOURCE: &'static str = "what domains had (steward domain) is lost: give it again";
}

#[derive(Deserialize)]
struct Saved<T> {
    schema: u32,
    boot_id: String,
    #[serde(alias = "by_hand")]
    kept: Vec<T>,
}

#[derive(Serialize)]
struct ToSave<'a, T> {
    schema: u32,
    boot_id: &'a str,
    kept: &'a [T],
}

/// Where one kind of thing is kept.
#[derive(Clone, Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    boot_id: String,
    kind: PhantomData<T>,
}

impl<T: Kept> StateFile<T> {
    /// The file in that directory. `boot_id` names the boot that processes and cgroups are of.
    pub fn new(directory: &Path, boot_id: &str) -> Self {
        StateFile {
            path: directory.join(T::FILE_NAME),
            boot_id: boot_id.trim().to_owned(),
            kind: PhantomData,
        }
    }

    /// What was kept; nothing when there is no file, or one of another boot. A file that cannot be understood is
    /// set aside under another name and described in the second value: it must not stop the daemon.
    pub fn load(&self) -> (Vec<T>, Option<String>) {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return (Vec::new(), None),
            Err(error) => return (Vec::new(), Some(self.lost(&format!("cannot be read ({error})"), ""))),
        };
        match serde_json::from_slice::<Saved<T>>(&text) {
            Ok(saved) if saved.schema != SCHEMA => {
                let what = format!("has schema {} and this stewardd knows {SCHEMA}", saved.schema);
                (Vec::new(), Some(self.set_aside(&what)))
            }
            Ok(saved) if saved.boot_id != self.boot_id => (Vec::new(), None),
            Ok(saved) => (saved.kept, None),
            Err(error) => (Vec::new(), Some(self.set_aside(&format!("is damaged ({error})")))),
        }
    }

    /// Replaces what was kept.
    ///
    /// # Errors
    /// With the path, when the directory or the file cannot be written.
    pub fn save(&self, kept: &[T]) -> anyhow::Result<()> {
        let saved = ToSave { schema: SCHEMA, boot_id: &self.boot_id, kept };
        let text = serde_json::to_vec_pretty(&saved).context("cannot write the state as JSON")?;
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let beside = self.path.with_extension("json.new");
        std::fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
        std::fs::rename(&beside, &self.path)
            .with_context(|| format!("cannot rename {} to {}", beside.display(), self.path.display()))
    }

    fn set_aside(&self, what: &str) -> String {
        let aside = self.path.with_extension("json.damaged");
        let outcome = match std::fs::rename(&self.path, &aside) {
            Ok(()) => format!("; it is now {}", aside.display()),
            Err(error) => format!("; renaming it to {} failed: {error}", aside.display()),
        };
        self.lost(what, &outcome)
    }

    fn lost(&self, what: &str, outcome: &str) -> String {
        format!("the state file {} {what}{outcome}; {}", self.path.display(), T::SOURCE)
    }
}

#[cfg(test)]
mod tests {
    use steward_core::mechanism::{Grant, IrrevocableFor, Reservation};
    use steward_kernel::processes::TaskId;

    use super::*;
    use crate::plan::ByHand;

    const FILE_NAME: &str = ByHand::FILE_NAME;

    fn by_hand() -> Vec<ByHand> {
        let reservation = Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 };
        let grant = Grant {
            reservation,
            inherit: true,
            revocable: false,
            irrevocable_for: IrrevocableFor::Anybody,
            keep_over_exec: true,
            spec_id: 0,
        };
        let process = TaskId { tid: 42, started_ticks: 1234 };
        vec![ByHand { process, grant: Some(grant) }, ByHand { process, grant: None }]
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
}

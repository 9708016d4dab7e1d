//! What goes wrong in the daemon rather than in a file, kept for `steward status` until it is right again.

use std::collections::BTreeMap;

/// How many sentences are kept on one topic; the log has them all.
const SENTENCES_MAX: usize = 10;

/// What a sentence is about. Whoever does that thing next says how it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Reading the state file at the start.
    State,
    /// Undoing what an earlier daemon left behind.
    Leftovers,
    /// Keeping what was given by hand.
    Save,
    /// Keeping what specifications said last.
    SaveSpecs,
    /// Watching files.
    Watch,
    /// Telling the mechanism thresholds and executables.
    Configure,
    /// Listing processes.
    Processes,
    /// Giving running programs their specification.
    Running,
    /// Giving starting programs theirs, where the daemon has to look for them.
    Scan,
    /// The order among domains.
    BestEffort,
    /// Cgroups that have no domain of their own.
    Cgroups,
    /// Telling the mechanism what domains have.
    Domains,
    /// Keeping what protected domains use of the memory.
    Memory,
    /// The CPU time of the thread that does so.
    MemoryReservation,
    /// Having disks serve by class.
    Disk,
    /// Keeping domains.
    SaveDomains,
    /// Keeping the record of promises.
    Audit,
    /// Keeping the record of promises of memory.
    MemoryAudit,
    /// Keeping who broke promises of memory.
    MemoryBlame,
    /// Serving metrics.
    Metrics,
    /// Mounting the control files.
    ControlFiles,
    /// Reading what tasks use.
    Forecasts,
}

/// All that is wrong at the moment.
#[derive(Debug, Default)]
pub struct Health {
    by_topic: BTreeMap<Topic, Vec<String>>,
}

impl Health {
    /// Says what is wrong on a topic now, in place of what was; nothing when it is well. Logs what is new.
    pub fn set(&mut self, topic: Topic, mut sentences: Vec<String>) {
        let before = self.by_topic.remove(&topic).unwrap_or_default();
        let new: Vec<&String> = sentences.iter().filter(|sentence| !before.contains(sentence)).collect();
        for sentence in new {
            tracing::warn!(decision = "problem", "{sentence}");
        }
        if sentences.len() > SENTENCES_MAX {
            let more = sentences.len() - SENTENCES_MAX;
            sentences.truncate(SENTENCES_MAX);
            sentences.push(format!("{more} more of the same; the log has them all"));
        }
        if !sentences.is_empty() {
            self.by_topic.insert(topic, sentences);
        }
    }

    /// Everything that is wrong now.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.by_topic.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_well_again_is_silent_and_others_are_kept() {
        let mut health = Health::default();
        health.set(Topic::State, vec!["a".into()]);
        health.set(Topic::Save, vec!["b".into()]);
        health.set(Topic::Save, vec![]);
        assert_eq!(health.all().collect::<Vec<_>>(), ["a"]);
        health.set(Topic::Running, vec!["c".into(); 1000]);
        assert_eq!(health.all().count(), 1 + SENTENCES_MAX + 1);
    }
}

//! Protected domains: what the daemon tells the memory loop, and what it does about what that says.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{OFlags, fcntl_setfl};
use steward_core::memory::activity;
use steward_core::memory::manager::Settings;
use steward_core::quantity::format_duration;

use super::cared::Cared;
use super::manager::{HeldBack, News, Orders};
use crate::daemon::Daemon;
use crate::health::Topic;
use crate::turn::clock::now_ns;

/// Who was held back so recently is told of, in nanoseconds: the record of promises is judged once a second.
const HELD_RECENTLY_NS: u64 = 2_000_000_000;

/// Makes it anew, for nobody else to read: it says what everybody has. A FIFO that nobody reads is an error, and not
/// waited for.
fn create(path: &Path) -> std::io::Result<File> {
    let (mode, flags) = (0o600, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file =
        File::options().write(true).create(true).truncate(true).mode(mode).custom_flags(flags).open(path)?;
    // The thread that writes may wait for whoever reads.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

impl Daemon {
    /// The same daemon, which records what the memory loop sees in this file, if there is one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn recording_memory(mut self, file: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = file {
            let recorded = create(path).and_then(|file| self.memory.manager.record(file));
            recorded.with_context(|| format!("--record-memory {} cannot be written", path.display()))?;
        }
        Ok(self)
    }

    /// Does what is due: has the memory loop keep what it is to, and promises judged.
    pub(crate) fn tick_memory(&mut self, now_ns: u64) {
        self.tick_manager();
        self.audit_memory_if_due(now_ns);
        self.tell_of_pressure(now_ns);
    }

    /// Tells the loop what domains were given, and has kept what it keeps.
    fn tick_manager(&mut self) {
        let watched = self.tick_activity();
        let given = self.order_memory();
        self.reserve_for_memory();
        let Some(news) = self.memory.manager.take_news() else {
            // What was said last stands.
            let problems: Vec<String> = given.err().into_iter().chain(watched.err()).collect();
            if !problems.is_empty() {
                self.health.set(Topic::Memory, problems);
            }
            return;
        };
        let cared = self.cared(&news);
        self.tell_news(&news, &cared);
        self.domains.care(cared);
        self.note_held_back(&news, now_ns());
        let short = news.is_short.then(|| {
            "so little memory is left that could be taken from others that no domain is protected for now: end something, or \
             give the machine more swap"
                .to_owned()
        });
        let below = news.short_below.iter().map(|path| {
            let domain = self.domains.names().name_of(path);
            format!(
                "so little of what {domain} may use is left that could be taken from others in it that no domain below it is \
                 protected for now: end something there, or give it more"
            )
        });
        let short = short.into_iter().chain(below);
        let problems: Vec<String> =
            given.err().into_iter().chain(watched.err()).chain(news.problem).chain(short).collect();
        self.health.set(Topic::Memory, problems);
    }

    /// Has protected domains be watched whether they are in use, and takes in whose protection has lapsed or is there
    /// again.
    fn tick_activity(&mut self) -> Result<(), String> {
        let idle_ns = self.settings.config.memory.idle_ns;
        if !self.memory.activity.watches(self.domains.to_watch(), idle_ns) {
            self.memory.activity.watch(self.domains.to_watch(), idle_ns)?;
        }
        if let Some(news) = self.memory.activity.take_news() {
            for change in &news.changes {
                self.log_activity(change);
            }
            self.domains.note_activity(news.known);
        }
        self.memory.activity.problem().map_or(Ok(()), |problem| Err(problem.to_owned()))
    }

    fn log_activity(&self, change: &activity::Change) {
        let domain = self.domains.names().name_of(&change.path);
        let (sign, words) = (change.last.evidence.name(), change.last.evidence.words());
        if change.is_lapsed {
            let idle_ns = now_ns().saturating_sub(change.last.at_ns);
            let idle = format_duration(idle_ns / 1_000_000_000 * 1_000_000_000);
            tracing::info!(
                decision = "protection-lapsed",
                domain,
                sign,
                idle_s = idle_ns / 1_000_000_000,
                "nothing is kept of the memory of {domain} any more: nobody has used it for {idle}, when it {words}; with the first sign \
                 of use it is protected again"
            );
        } else {
            tracing::info!(
                decision = "protection-returned",
                domain,
                sign,
                "the memory of {domain} is protected again: it {words}"
            );
        }
    }

    /// In most turns there is nothing to order, which has to cost nothing.
    fn order_memory(&mut self) -> Result<(), String> {
        let config = &self.settings.config.memory;
        let settings = Settings { reserve_bytes: config.reserve_bytes, reservable: config.reservable };
        let disks = self.disk.known();
        if self.memory.manager.given().are(self.domains.memory_orders(), &settings, config.ages, disks) {
            return Ok(());
        }
        let prefix = self.domains.names().prefix().to_owned();
        let domains = self.domains.memory_orders().map(|(path, ordered)| (path.to_owned(), ordered));
        let (domains, disks, used_from) = (domains.collect(), disks.clone(), config.ages);
        let orders = Orders { domains, settings, used_from, disks, prefix };
        self.memory.manager.give(orders)
    }

    fn cared(&self, news: &News) -> Cared {
        let is_same = |(path, (id, bytes)): (&String, &(u64, u64))| {
            self.domains.is_same(path, *id).then(|| (path.clone(), *bytes))
        };
        Cared {
            kept_bytes: news.kept.iter().filter_map(is_same).collect(),
            minimum_bytes: news
                .kept
                .iter()
                .filter_map(is_same)
                .map(|(path, bytes)| {
                    let minimum_bytes = news.minima.get(&path).copied().unwrap_or(bytes);
                    (path, minimum_bytes)
                })
                .collect(),
            ceilings: news.ceilings.clone(),
            taken_bytes: news.taken_bytes.clone(),
            target_bytes: news.target_bytes,
            written_per_second: news.written_per_second,
            file_uses: news.file_uses.clone(),
            // Nothing that the loop knows of.
            adapting: self.domains.cared().adapting.clone(),
            reserve_bytes: self.domains.cared().reserve_bytes,
            source: news.source,
        }
    }

    /// Who was held back a moment ago did not want what it did not get: for what is promised to it that counts as
    /// suspended.
    fn note_held_back(&mut self, news: &News, now_ns: u64) {
        self.memory.lately.note(now_ns, &news.held_back);
        let is_recent = |held: &HeldBack| now_ns.saturating_sub(held.last_at_ns) < HELD_RECENTLY_NS;
        for (path, held) in news.held_back.iter().filter(|(_, held)| is_recent(held)) {
            self.cpu.audit.note_suspended(held.id);
            tracing::debug!(
                decision = "held-back",
                domain = self.domains.names().name_of(path),
                for_taking = held.for_taking,
                for_dirtying = held.for_dirtying,
                held_ms = held.held_ns / 1_000_000,
                last_bytes = held.last_bytes,
                "{path} was held back: it takes memory, or changes files, faster than there can be more"
            );
        }
    }
}

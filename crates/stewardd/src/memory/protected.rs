//! Protected domains: what the daemon tells the memory loop, and what it does about what that says.

use steward_core::memory::manager::Settings;
use steward_core::memory::protection::Change;
use steward_core::quantity::approximate_size;

use super::cared::Cared;
use super::manager::{News, Orders};
use crate::daemon::Daemon;
use crate::health::Topic;

impl Daemon {
    /// Tells the loop what domains were given, and has kept what it keeps.
    pub(crate) fn tick_memory(&mut self) {
        let given = self.order_memory();
        let Some(news) = self.memory.take_news() else {
            // What was said last stands.
            if let Err(sentence) = given {
                self.health.set(Topic::Memory, vec![sentence]);
            }
            return;
        };
        for (path, change) in &news.changes {
            self.log_change(path, change);
        }
        self.domains.care(self.cared(&news));
        let short = news.is_short.then(|| {
            "so little memory is left that could be taken from others that no domain is protected for now: end something, or \
             give the machine more swap"
                .to_owned()
        });
        self.health.set(Topic::Memory, given.err().into_iter().chain(news.trouble).chain(short).collect());
    }

    /// In most turns there is nothing to order, which has to cost nothing.
    fn order_memory(&mut self) -> Result<(), String> {
        let config = &self.settings.config.memory;
        let settings = Settings { reserve_bytes: config.reserve_bytes, reservable: config.reservable };
        if self.memory.given().are(self.domains.memory_orders(), &settings) {
            return Ok(());
        }
        let domains = self.domains.memory_orders().map(|(path, ordered)| (path.to_owned(), ordered));
        self.memory.give(Orders { domains: domains.collect(), settings })
    }

    fn cared(&self, news: &News) -> Cared {
        let is_same = |(path, (id, bytes)): (&String, &(u64, u64))| {
            self.domains.is_same(path, *id).then(|| (path.clone(), *bytes))
        };
        Cared {
            kept_bytes: news.kept.iter().filter_map(is_same).collect(),
            taken_bytes: news.taken_bytes.clone(),
        }
    }

    fn log_change(&self, path: &str, change: &Change) {
        let domain = self.domains.names().name_of(path);
        let (needed, room) = (approximate_size(change.needed_bytes), approximate_size(change.room_bytes));
        if change.is_demoted {
            tracing::warn!(
                decision = "demoted",
                domain,
                needed_bytes = change.needed_bytes,
                room_bytes = change.room_bytes,
                "the memory of {domain} is not protected for now: what protected domains use does not fit into {room} together, and \
                 it uses most of all that may be revoked, {needed}"
            );
        } else {
            tracing::info!(
                decision = "protected-again",
                domain,
                needed_bytes = change.needed_bytes,
                room_bytes = change.room_bytes,
                "the memory of {domain} is protected again: its {needed} fit"
            );
        }
    }
}

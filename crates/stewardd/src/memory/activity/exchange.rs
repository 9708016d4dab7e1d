//! What the daemon and the thread that watches who is in use tell each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use steward_core::memory::activity::{Change, Standing, Times};

/// A domain that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched<'path> {
    /// Its cgroup's path.
    pub(crate) path: &'path str,
    /// Its cgroup's id.
    pub(crate) id: u64,
    /// The user it belongs to.
    pub(crate) user: u32,
}

/// What is to be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// All that are protected: path, id and user.
    pub(super) domains: Vec<(String, u64, u32)>,
    /// After which time without a sign of use protection lapses, in nanoseconds; `None`: never.
    pub(super) idle_ns: Option<u64>,
}

impl Wanted {
    pub(super) fn watched(&self) -> impl Iterator<Item = Watched<'_>> {
        self.domains.iter().map(|(path, id, user)| Watched { path, id: *id, user: *user })
    }
}

/// What is known of one domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// How it stands.
    pub(crate) standing: Standing,
    /// For how long it was in use in the last minute, hour and day.
    pub(crate) spans: [Times; 3],
}

/// What there is to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// By path.
    pub(crate) known: BTreeMap<String, Known>,
    /// Whose protection has lapsed or is there again, since the news were taken last.
    pub(crate) changes: Vec<Change>,
    /// Why use cannot be seen, in a sentence; then no protection lapses.
    pub(super) problem: Option<String>,
}

/// What both ends see.
#[derive(Default)]
pub(super) struct State {
    pub(super) wanted: Arc<Wanted>,
    pub(super) news: News,
    /// Whether the daemon has not taken them yet.
    pub(super) are_new: bool,
    pub(super) ends: bool,
}

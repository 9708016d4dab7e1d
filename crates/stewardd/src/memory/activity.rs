//! Whether protected domains are in use: what the daemon knows of it. A thread finds it out (`watching`), because it
//! has to be woken by the first key, and reads files of processes; `steward_core::memory::activity` decides.
//!
//! While no domain is protected there is no thread, or it sleeps.

mod exchange;
mod watching;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use steward_kernel::Roots;

pub(crate) use self::exchange::{Known, News, Watched};
use self::exchange::{State, Wanted};
use self::watching::Turns;
use super::shared::Shared;
use crate::turn::front::Bell;

/// The thread, as the daemon sees it. It starts with the first domain; dropping this ends it.
pub(crate) struct Watching {
    shared: Arc<Shared<State>>,
    bell: Bell,
    /// What the thread starts with.
    idle: Option<(Bell, Roots)>,
    thread: Option<JoinHandle<()>>,
    given: Wanted,
    problem: Option<String>,
}

impl Watching {
    /// There is nothing to watch yet.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub(crate) fn new(roots: &Roots) -> anyhow::Result<Self> {
        let (bell, other) = Bell::pair()?;
        Ok(Watching {
            shared: Arc::default(),
            bell,
            idle: Some((other, roots.clone())),
            thread: None,
            given: Wanted::default(),
            problem: None,
        })
    }

    /// Whether this is what it was told to watch.
    pub(crate) fn watches<'path>(
        &'path self,
        domains: impl Iterator<Item = Watched<'path>>,
        idle_ns: Option<u64>,
    ) -> bool {
        self.given.idle_ns == idle_ns && self.given.watched().eq(domains)
    }

    /// Why use cannot be seen, in a sentence.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Has it watch these from now on. After `idle_ns` without a sign of use protection lapses, in nanoseconds; never
    /// where that is `None`.
    ///
    /// # Errors
    /// When the thread cannot be started, in a sentence.
    pub(crate) fn watch<'path>(
        &mut self,
        domains: impl Iterator<Item = Watched<'path>>,
        idle_ns: Option<u64>,
    ) -> Result<(), String> {
        let domains = domains.map(|Watched { path, id, user }| (path.to_owned(), id, user)).collect();
        let wanted = Wanted { domains, idle_ns };
        self.shared.lock().wanted = Arc::new(wanted.clone());
        if let Some((bell, roots)) = self.idle.take_if(|_| !wanted.domains.is_empty()) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("activity".into());
            let started = builder.spawn(move || Turns::new(shared, bell, roots).run());
            self.thread =
                Some(started.map_err(|error| format!("use of domains cannot be watched: {error}"))?);
        }
        self.given = wanted;
        self.bell.ring();
        Ok(())
    }

    /// What there is to know; `None` when it has not looked since the last call. Changes are told once.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        let mut state = self.shared.lock();
        if !std::mem::take(&mut state.are_new) {
            return None;
        }
        // With the lock, so that what comes after this rings anew.
        self.bell.has_rung();
        let told = state.news.clone();
        state.news.changes.clear();
        self.problem.clone_from(&told.problem);
        Some(told)
    }
}

impl AsFd for Watching {
    /// Readable when something has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was said by the thread itself.
            let _ = thread.join();
        }
    }
}

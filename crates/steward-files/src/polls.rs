//! Who waits, with `poll`, for a file to change that says how much memory a domain may use.
//!
//! An open file that is polled for the first time is ready (POLLPRI): it is to be read. Then it is ready once for each
//! change of 5 % or more. While somebody waits, a thread looks four times a second; the kernel is told which open file
//! to ask about again, and asks. Which of them are closed it does not say: who does not ask again is forgotten.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use steward_core::memory::availability::is_news;

use crate::caller::Asker;
use crate::names::{ControlFile, Node};

/// Time between two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The kernel is told to ask again after this also when nothing has changed.
const RENEWED_AFTER: Duration = Duration::from_secs(10);
/// Who has not asked for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20);
/// How many open files can be polled at once.
const POLLED_MAX: usize = 64;
/// How many of one user can.
const POLLED_PER_USER_MAX: usize = 8;

/// Has the kernel ask about an open file again.
pub(crate) type Notify = Box<dyn FnOnce() + Send>;

/// What an open file is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Reading; it has not changed since it was ready for more.
    Read,
    /// It has changed.
    Changed,
}

/// An open file that is polled, by the kernel's number for it.
struct Polled {
    asker: Asker,
    node: Node,
    /// What it said when it was ready last.
    told: Option<u64>,
    has_changed: bool,
    asked_at: Instant,
    notify: Option<Notify>,
}

/// All that are polled.
#[derive(Default)]
pub(crate) struct Polls {
    by_file: HashMap<u64, Polled>,
    /// Whether a thread looks.
    pub(crate) is_looked_after: bool,
}

impl Polls {
    /// Whether a file tells who waits of changes; any other is always ready.
    pub(crate) fn is_about(node: &Node) -> bool {
        matches!(node, Node::File(_, ControlFile::MemoryAvailable))
    }

    /// Whether this open file was polled before, and not long ago.
    pub(crate) fn knows(&self, file: u64) -> bool {
        self.by_file.contains_key(&file)
    }

    /// An open file is polled for the first time, and says `text` now. False when too many are.
    #[must_use]
    pub(crate) fn begin(&mut self, file: u64, asker: Asker, node: Node, text: &str, now: Instant) -> bool {
        let own = self.by_file.values().filter(|polled| polled.asker.uid == asker.uid).count();
        if self.by_file.len() >= POLLED_MAX || own >= POLLED_PER_USER_MAX {
            return false;
        }
        let told = value(text);
        let polled = Polled { asker, node, told, has_changed: false, asked_at: now, notify: None };
        self.by_file.insert(file, polled);
        true
    }

    /// What it is ready for. Unless it has changed, `notify` is called when it does.
    pub(crate) fn ask(&mut self, file: u64, notify: Option<Notify>, now: Instant) -> Ready {
        let Some(polled) = self.by_file.get_mut(&file) else { return Ready::Changed };
        polled.asked_at = now;
        if std::mem::take(&mut polled.has_changed) {
            polled.notify = None;
            return Ready::Changed;
        }
        if notify.is_some() {
            polled.notify = notify;
        }
        Ready::Read
    }

    /// What is to be looked at now: the open files for which somebody waits. Nothing when there are none that are
    /// polled.
    pub(crate) fn waited_for(&mut self, now: Instant) -> Option<Vec<(u64, Asker, Node)>> {
        self.by_file.retain(|_, polled| now.duration_since(polled.asked_at) < FORGOTTEN_AFTER);
        let waits = self.by_file.iter().filter(|(_, polled)| polled.notify.is_some());
        let waited_for = waits.map(|(file, polled)| (*file, polled.asker, polled.node.clone())).collect();
        (!self.by_file.is_empty()).then_some(waited_for)
    }

    /// An open file says this now; `None` where it cannot be read any more, which whoever waits is to find out.
    pub(crate) fn note(&mut self, file: u64, text: Option<&str>, now: Instant) {
        let Some(polled) = self.by_file.get_mut(&file) else { return };
        let says = text.map(value);
        let has_changed = match (polled.told, says) {
            (_, None) => true,
            (Some(told), Some(Some(bytes))) => is_news(told, bytes),
            (told, Some(says)) => told != says,
        };
        if has_changed {
            (polled.told, polled.has_changed) = (says.flatten(), true);
        }
        let is_to_ask = has_changed || now.duration_since(polled.asked_at) >= RENEWED_AFTER;
        if let Some(notify) = polled.notify.take_if(|_| is_to_ask) {
            notify();
        }
        if text.is_none() {
            self.by_file.remove(&file);
        }
    }
}

/// What a file says, in bytes; `None` for what is no number.
fn value(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn asker(uid: u32) -> Asker {
        Asker { tid: 1, uid, gid: 0, can_wait: false }
    }

    fn node() -> Node {
        Node::File("a".into(), ControlFile::MemoryAvailable)
    }

    /// How often the kernel was told to ask again.
    #[derive(Clone, Default)]
    struct Told(Arc<AtomicUsize>);

    impl Told {
        fn notify(&self) -> Option<Notify> {
            let count = Arc::clone(&self.0);
            Some(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }))
        }

        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_file_is_ready_once_for_each_change_and_the_kernel_is_told_when() {
        let (mut polls, told, now) = (Polls::default(), Told::default(), Instant::now());
        assert!(!polls.knows(7) && polls.begin(7, asker(1), node(), "100\n", now) && polls.knows(7));
        assert_eq!(polls.waited_for(now), Some(vec![]), "it is known, and nobody waits");
        assert_eq!(polls.ask(7, told.notify(), now), Ready::Read);
        assert_eq!(polls.waited_for(now), Some(vec![(7, asker(1), node())]));
        polls.note(7, Some("104\n"), now);
        assert_eq!((told.times(), polls.ask(7, None, now)), (0, Ready::Read));
        polls.note(7, Some("105\n"), now);
        assert_eq!((told.times(), polls.ask(7, told.notify(), now)), (1, Ready::Changed));
        assert_eq!(polls.ask(7, told.notify(), now), Ready::Read, "once");
        // From what it said when it was ready, and also from a number to none.
        polls.note(7, Some("101\n"), now);
        assert_eq!(told.times(), 1);
        polls.note(7, Some("none\n"), now);
        assert_eq!((told.times(), polls.ask(7, None, now)), (2, Ready::Changed));
        polls.note(7, Some("none\n"), now);
        assert_eq!(polls.ask(7, None, now), Ready::Read);
    }

    #[test]
    fn who_waits_for_what_cannot_be_read_any_more_is_woken_to_find_out() {
        let (mut polls, told, now) = (Polls::default(), Told::default(), Instant::now());
        assert!(polls.begin(7, asker(1), node(), "100\n", now));
        polls.ask(7, told.notify(), now);
        polls.note(7, None, now);
        assert_eq!((told.times(), polls.knows(7), polls.waited_for(now)), (1, false, None));
    }

    #[test]
    fn who_does_not_ask_again_is_forgotten() {
        let (mut polls, told, now) = (Polls::default(), Told::default(), Instant::now());
        assert!(polls.begin(7, asker(1), node(), "100\n", now));
        polls.ask(7, told.notify(), now);
        let later = now + RENEWED_AFTER;
        polls.note(7, Some("100\n"), later);
        assert_eq!(told.times(), 1, "the kernel asks again if somebody still waits");
        assert_eq!(polls.ask(7, told.notify(), later), Ready::Read);
        assert!(polls.waited_for(now + FORGOTTEN_AFTER).is_some());
        assert!(polls.waited_for(later + FORGOTTEN_AFTER).is_none());
    }

    #[test]
    fn one_user_can_have_so_many_and_all_together_so_many() {
        let (mut polls, now) = (Polls::default(), Instant::now());
        let mut begun = [0; 20];
        for (file, uid) in (0..200).map(|file| (file, (file % 20) as u32)) {
            begun[uid as usize] += usize::from(polls.begin(file, asker(uid), node(), "1\n", now));
        }
        assert!(begun.iter().all(|count| *count <= POLLED_PER_USER_MAX), "{begun:?}");
        assert_eq!(begun.iter().sum::<usize>(), POLLED_MAX);
        let mut polls = Polls::default();
        let own = (0..20).filter(|file| polls.begin(*file, asker(1), node(), "1\n", now)).count();
        assert_eq!(own, POLLED_PER_USER_MAX);
    }
}

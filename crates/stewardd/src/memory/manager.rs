//! The thread of the memory loop: it looks at the machine, has `steward_core::memory::manager` decide, and takes memory
//! from whom that names, in threads of their own. The minima that keep what is protected are written by the daemon, as
//! those that are asked for are.
//!
//! It has a thread, and a better nice value, because it must act within milliseconds while the machine is full and the
//! daemon may be answering others. It waits for no disk: reclaiming does ([`ReclaimPool`]). While nobody is protected
//! it sleeps, and the kernel takes memory back as it would without it.

mod orders;
mod sight;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use steward_core::memory::ageing::Ageing;
use steward_core::memory::manager::{self, Decision, Machine};
use steward_core::memory::protection::Change;
use steward_kernel::Roots;
use steward_kernel::memory::reclaim::{End, PoolOptions, ReclaimJob, ReclaimPool};

pub(crate) use self::orders::{Ordered, Orders};
use self::sight::Sight;
use super::holding::{Holding, Wanted};
use crate::turn::clock::now_ns;
use crate::turn::front::Bell;

/// Between two looks at all domains, in nanoseconds.
const LOOK_NS: u64 = 250_000_000;
/// Between two looks at how much is free, in nanoseconds, while there is little.
const CHECK_NS: u64 = 20_000_000;
/// Where the kernel found nothing to take, it is not asked again for so long, in nanoseconds.
const SPARED_NS: u64 = 2_000_000_000;
/// How many threads take memory. The others are for when the first waits and little is left: several at once have pages
/// of several domains lie between each other in the swap.
const POOL_THREADS: usize = 4;
/// Pieces that are given to them at most, beside those in hand.
const WAITING_MAX: usize = 4;
/// How much is taken at once, in bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// The nice value of all threads here: at an ordinary one they come too late (docs/memory.md).
const NICE: i32 = -20;

/// What the loop has found and done, for the daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct News {
    /// By path: the cgroup's id, and what it keeps, in bytes; 0 where it is demoted.
    pub(crate) kept: BTreeMap<String, (u64, u64)>,
    /// Who was demoted or came back since the news were taken last, by path.
    pub(crate) changes: Vec<(String, Change)>,
    /// What was taken from whom since the loop began, by path, in bytes.
    pub(crate) taken_bytes: BTreeMap<String, u64>,
    /// Whether protection is dropped because too little is left.
    pub(crate) is_short: bool,
    /// Why the loop cannot do its work, in a sentence.
    pub(crate) trouble: Option<String>,
}

/// The loop, as the daemon sees it. Its thread starts with the first order that has something to do; dropping it ends
/// it.
pub(crate) struct Manager {
    shared: Arc<Shared>,
    bell: Bell,
    /// What the thread starts with.
    idle: Option<(Bell, Roots)>,
    thread: Option<JoinHandle<()>>,
    given: Orders,
}

/// What both ends see.
#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    orders: Arc<Orders>,
    news: News,
    /// Whether the daemon has not taken them yet.
    are_new: bool,
    /// Whether the daemon's end of the bell was rung for them.
    has_rung: bool,
    ends: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics with the lock, and if somebody did: each of its fields would still be one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Manager {
    /// It has nothing to do yet.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub(crate) fn new(roots: &Roots) -> anyhow::Result<Self> {
        let (bell, other) = Bell::pair()?;
        Ok(Manager {
            shared: Arc::default(),
            bell,
            idle: Some((other, roots.clone())),
            thread: None,
            given: Orders::default(),
        })
    }

    /// The orders that it goes by.
    pub(crate) fn given(&self) -> &Orders {
        &self.given
    }

    /// Has it go by these orders from now on.
    ///
    /// # Errors
    /// When the thread cannot be started, in a sentence.
    pub(crate) fn give(&mut self, orders: Orders) -> Result<(), String> {
        self.shared.lock().orders = Arc::new(orders.clone());
        if let Some((bell, roots)) = self.idle.take_if(|_| !orders.is_idle()) {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("memory".into());
            let started = builder.spawn(move || Turns::new(shared, bell, roots).run());
            self.thread = Some(started.map_err(|error| format!("the memory loop cannot start: {error}"))?);
        }
        self.given = orders;
        self.bell.ring();
        Ok(())
    }

    /// What there is to know; `None` while nothing is kept and the loop has not looked since the last call. Changes are
    /// told once.
    pub(crate) fn take_news(&self) -> Option<News> {
        let mut state = self.shared.lock();
        if std::mem::take(&mut state.has_rung) {
            self.bell.has_rung();
        }
        if !std::mem::take(&mut state.are_new) && state.news.kept.is_empty() {
            return None;
        }
        let told = state.news.clone();
        state.news.changes.clear();
        Some(told)
    }
}

impl AsFd for Manager {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was said by the thread itself.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Turns {
    shared: Arc<Shared>,
    bell: Bell,
    roots: Roots,
    decides: manager::Manager,
    ageing: Ageing,
    /// What it sees with; `None` until there is something to do, or where it cannot.
    sight: Option<Sight>,
    pool: Option<ReclaimPool>,
    holding: Option<Holding>,
    /// From whom is taken next: the cgroup's path and id, and how much, in bytes.
    plan: VecDeque<(String, u64, u64)>,
    /// Whether the last look found anybody to take from.
    is_planned: bool,
    target_bytes: u64,
    /// With less than this left the next look is due, in bytes; 0 where that need not be checked.
    look_below_bytes: u64,
    /// With less than this free all threads take memory: half of the reserve is gone.
    urgent_bytes: u64,
    /// What the pool has been given and not done yet, in bytes.
    in_hand_bytes: u64,
    /// Until when nothing is taken from these, by cgroup id.
    spared_until_ns: BTreeMap<u64, u64>,
    news: News,
    look_at_ns: u64,
}

impl Turns {
    fn new(shared: Arc<Shared>, bell: Bell, roots: Roots) -> Self {
        Turns {
            shared,
            bell,
            roots,
            decides: manager::Manager::default(),
            ageing: Ageing::default(),
            sight: None,
            pool: None,
            holding: None,
            plan: VecDeque::new(),
            is_planned: false,
            target_bytes: 0,
            look_below_bytes: 0,
            urgent_bytes: 0,
            in_hand_bytes: 0,
            spared_until_ns: BTreeMap::new(),
            news: News::default(),
            look_at_ns: 0,
        }
    }

    fn run(mut self) {
        // Without the right to it, it does what it can at an ordinary one.
        let _ = rustix::process::setpriority_process(None, NICE);
        // The same for a daemon that may not lock what it uses itself: then it may have to wait for its own pages.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT);
        loop {
            let (orders, ends) = {
                let state = self.shared.lock();
                (Arc::clone(&state.orders), state.ends)
            };
            if ends {
                return;
            }
            if orders.is_idle() {
                self.rest();
            } else {
                self.turn(&orders);
            }
            self.wait(orders.is_idle());
        }
    }

    /// Nobody is protected any more.
    fn rest(&mut self) {
        self.plan.clear();
        self.is_planned = false;
        self.look_below_bytes = 0;
        self.sight = None;
        self.pool = None;
        self.holding = None;
        self.in_hand_bytes = 0;
        let taken_bytes = std::mem::take(&mut self.news.taken_bytes);
        self.news = News { taken_bytes, changes: self.take_untold(), ..News::default() };
        self.tell();
    }

    fn turn(&mut self, orders: &Orders) {
        let now_ns = now_ns();
        self.take_in(now_ns);
        if now_ns >= self.look_at_ns || self.goes_fast() || self.is_done() {
            self.look_at_ns = now_ns + LOOK_NS;
            self.news.changes = self.take_untold();
            self.news.trouble = self.look(now_ns, orders).err();
            self.tell();
        }
        self.top_up();
    }

    /// Whether so much memory has gone since the last look that the next one is due.
    fn goes_fast(&self) -> bool {
        self.look_below_bytes > 0
            && self.sight.as_ref().is_some_and(|sight| sight.left_bytes() < self.look_below_bytes)
    }

    /// Whether all that was planned has been taken or is in hand, and is not enough.
    fn is_done(&self) -> bool {
        let is_little = |sight: &Sight| sight.free_bytes() + self.in_hand_bytes < self.target_bytes;
        self.is_planned && self.plan.is_empty() && self.sight.as_ref().is_some_and(is_little)
    }

    /// Changes that the daemon has not taken yet.
    fn take_untold(&self) -> Vec<(String, Change)> {
        std::mem::take(&mut self.shared.lock().news.changes)
    }

    fn tell(&self) {
        let mut state = self.shared.lock();
        let told = &mut state.news;
        let wakes = told.kept != self.news.kept
            || !self.news.changes.is_empty()
            || told.is_short != self.news.is_short
            || told.trouble != self.news.trouble;
        told.clone_from(&self.news);
        state.are_new = true;
        if wakes {
            // With the lock, so that whoever takes the news finds it rung.
            state.has_rung = true;
            self.bell.ring();
        }
    }

    fn look(&mut self, now_ns: u64, orders: &Orders) -> Result<(), String> {
        if self.sight.is_none() {
            self.sight = Some(Sight::open(&self.roots).map_err(|error| error.to_string())?);
        }
        if self.pool.is_none() {
            let options = PoolOptions { threads: POOL_THREADS, waiting_max: WAITING_MAX, nice: Some(NICE) };
            let pool = ReclaimPool::start(options, &self.roots);
            self.pool = Some(pool.map_err(|error| format!("nothing can be reclaimed: {error}"))?);
        }
        if self.holding.is_none() {
            self.holding = Some(Holding::start(&self.roots)?);
        }
        let held = self.holding.as_ref().map(Holding::held).unwrap_or_default();
        let Some(sight) = &mut self.sight else { return Ok(()) };
        self.spared_until_ns.retain(|_, until_ns| *until_ns > now_ns);
        let seen = sight.look(now_ns, orders).map_err(|error| error.to_string())?;
        let mut domains = seen.domains;
        for domain in &mut domains {
            domain.is_spared |= self.spared_until_ns.contains_key(&domain.id);
        }
        self.urgent_bytes = seen.machine.high_watermark_bytes + orders.settings.reserve_bytes / 2;
        let machine = Machine { held_bytes: held.bytes, ..seen.machine };
        let decision = self.decides.decide(now_ns, &machine, &domains, &orders.settings);
        if let Some(id) = self.ageing.due(now_ns, sight.periods()) {
            let cost_ns = sight.age(id);
            self.ageing.done(now_ns, id, cost_ns.map_err(|error| error.to_string())?);
        }
        self.take_decision(decision);
        held.trouble.map_or(Ok(()), Err)
    }

    fn take_decision(&mut self, decision: Decision) {
        let Some(sight) = &self.sight else { return };
        let path_of = |id: u64| sight.path_of(id).unwrap_or_default().to_owned();
        let victims =
            decision.victims.iter().filter_map(|victim| Some((sight.at(victim.place)?, victim.bytes)));
        self.plan = victims.map(|((path, id), bytes)| (path.to_owned(), id, bytes)).collect();
        self.is_planned = !self.plan.is_empty();
        self.target_bytes = decision.target_bytes;
        self.look_below_bytes = decision.look_below_bytes;
        if let Some(holding) = &self.holding {
            let protected = decision.kept.iter().filter(|kept| !kept.is_demoted && decision.room_bytes > 0);
            let paths = protected.map(|kept| path_of(kept.id)).collect();
            holding.want(Wanted { paths, bytes_max: decision.held_max_bytes });
        }
        let kept = decision.kept.iter().map(|kept| (path_of(kept.id), (kept.id, kept.bytes)));
        self.news.kept = kept.collect();
        let changes = decision.changes.into_iter().map(|change| (path_of(change.id), change));
        self.news.changes.extend(changes);
        self.news.is_short = decision.is_short;
    }

    /// What became of what was given to the pool.
    fn take_in(&mut self, now_ns: u64) {
        let Some(pool) = &self.pool else { return };
        for outcome in pool.take_outcomes() {
            let job = outcome.job;
            self.in_hand_bytes = self.in_hand_bytes.saturating_sub(job.bytes);
            *self.news.taken_bytes.entry(job.cgroup).or_default() += outcome.taken_bytes;
            if !matches!(outcome.end, End::Done | End::Cancelled) {
                self.spared_until_ns.insert(job.id, now_ns + SPARED_NS);
                self.plan.retain(|(_, id, _)| *id != job.id);
            }
        }
    }

    /// Has so much be taken as is not free, from those whose turn it is.
    fn top_up(&mut self) {
        let (Some(sight), Some(pool)) = (&self.sight, &self.pool) else { return };
        let free_bytes = sight.free_bytes();
        let mut missing_bytes =
            self.target_bytes.saturating_sub(free_bytes).saturating_sub(self.in_hand_bytes);
        let in_hand_max = if free_bytes < self.urgent_bytes { POOL_THREADS } else { 1 };
        while missing_bytes > 0
            && pool.unfinished() < in_hand_max
            && let Some((cgroup, id, left_bytes)) = self.plan.front_mut()
        {
            let bytes = (*left_bytes).min(PIECE_BYTES);
            let job = ReclaimJob { cgroup: cgroup.clone(), id: *id, bytes, swappiness: None };
            if pool.give(job).is_err() {
                break;
            }
            *left_bytes -= bytes;
            if *left_bytes == 0 {
                self.plan.pop_front();
            }
            self.in_hand_bytes += bytes;
            missing_bytes = missing_bytes.saturating_sub(bytes);
        }
    }

    /// Until there is something to do.
    fn wait(&self, is_idle: bool) {
        let now_ns = now_ns();
        let is_little = |sight: &Sight| sight.free_bytes() < 2 * self.target_bytes;
        let is_near = || self.look_below_bytes > 0 || self.sight.as_ref().is_some_and(is_little);
        let until_ns = if is_near() { self.look_at_ns.min(now_ns + CHECK_NS) } else { self.look_at_ns };
        let left_ns = until_ns.saturating_sub(now_ns);
        let timeout =
            Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 };
        let mut waits = vec![PollFd::new(&self.bell, PollFlags::IN)];
        waits.extend(self.pool.as_ref().map(|pool| PollFd::new(pool, PollFlags::IN)));
        // Interrupted or not, the next turn looks at everything.
        let _ = poll(&mut waits, if is_idle { None } else { Some(&timeout) });
        self.bell.has_rung();
    }
}

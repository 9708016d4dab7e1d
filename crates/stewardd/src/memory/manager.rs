//! The thread of the memory loop: it looks at the machine, has `steward_core::memory::manager` decide, and takes memory
//! from whom that names, in threads of their own. The minima that keep what is protected are written by the daemon, as
//! those that are asked for are.
//!
//! It has a thread, and a better nice value, because it must act within milliseconds while the machine is full and the
//! daemon may be answering others. It waits for no disk: reclaiming does ([`ReclaimPool`]). While nobody is protected
//! it sleeps, and the kernel takes memory back as it would without it.

mod gone;
mod holds;
mod locked;
mod nearing;
mod orders;
mod recorder;
mod sight;
mod uses;
mod watched;
mod written;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::cpu::mechanism::Bumper;
use steward_core::memory::ageing::Ageing;
use steward_core::memory::manager::{self, Decision};
use steward_core::memory::protection::Change;
use steward_core::memory::recorded::Look;
use steward_core::memory::seen::Machine;
use steward_core::memory::source::Source;
use steward_core::memory::victims::PIECE_MIN_BYTES;
use steward_kernel::Roots;
use steward_kernel::memory::reclaim::{End, PoolOptions, ReclaimJob, ReclaimPool};
use steward_kernel::memory::slow;

use self::gone::forget_gone;
pub(crate) use self::holds::HeldBack;
use self::holds::Holds;
use self::locked::lock_own_memory;
use self::nearing::NearMaximum;
pub(crate) use self::orders::{Ordered, Orders};
use self::recorder::Recorder;
pub(crate) use self::sight::machine_memory;
use self::sight::{Reclaimed, Sight};
use self::uses::Permit;
use self::written::Written;
use super::holding::{Holding, Wanted};
use super::shared::Shared;
use super::sharing::{FileUses, Sharing};
use crate::turn::clock::{cpu_time_ns, now_ns};
use crate::turn::front::Bell;

/// Between two looks at all domains, in nanoseconds.
const LOOK_NS: u64 = 250_000_000;
/// A look that took so long is followed by a pause of so many times that, where only more has to be planned.
const COST_PART: u64 = 4;
/// Between two looks at how much is free, in nanoseconds, while there is little.
const CHECK_NS: u64 = 20_000_000;
/// Where the kernel found nothing to take, it is not asked again for so long, in nanoseconds.
const SPARED_NS: u64 = 2_000_000_000;
/// How many threads take memory. The others are for when the first waits, little is left, and no disk of the swap
/// rotates: several at once have pages of several domains lie between each other in the swap.
const POOL_THREADS: usize = 4;
/// It is asked so often whether the swap is on a disk that rotates, in nanoseconds.
const SWAP_ASKED_NS: u64 = 5_000_000_000;
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
    /// What the kernel is to leave to each of these, by path, in bytes: what it keeps, and mostly what is idle, too.
    pub(crate) minima: BTreeMap<String, u64>,
    /// Who was demoted or came back since the news were taken last, by path.
    pub(crate) changes: Vec<(String, Change)>,
    /// What was taken from whom since the loop began, by path, in bytes.
    pub(crate) taken_bytes: BTreeMap<String, u64>,
    /// How much is to be free, in bytes; 0 while nobody is protected.
    pub(crate) target_bytes: u64,
    /// How fast memory is freed that has to be written first, in bytes a second, where that was measured.
    pub(crate) written_per_second: Option<u64>,
    /// What was found out of who uses pages of files that are charged to others.
    pub(crate) file_uses: Arc<FileUses>,
    /// By what it is known what protected domains use; `None` while none is protected.
    pub(crate) source: Option<Source>,
    /// Whether protection is dropped because too little is left.
    pub(crate) is_short: bool,
    /// Those within whose limit too little is left, by path: it is dropped below them.
    pub(crate) short_below: BTreeSet<String>,
    /// Above how much of what is charged to it who allocates in one is to be slowed, by path, in bytes.
    pub(crate) ceilings: BTreeMap<String, u64>,
    /// Who was held back since the loop began, by path.
    pub(crate) held_back: BTreeMap<String, HeldBack>,
    /// Why the loop cannot do its work, in a sentence.
    pub(crate) problem: Option<String>,
}

/// The loop, as the daemon sees it. Its thread starts with the first order that has something to do; dropping it ends
/// it.
pub(crate) struct Manager {
    shared: Arc<Shared<State>>,
    bell: Bell,
    /// What the thread starts with.
    idle: Option<(Bell, Roots)>,
    /// Where the thread records what it sees and decides, if it does.
    recorder: Option<Recorder>,
    thread: Option<JoinHandle<()>>,
    given: Orders,
}

/// What both ends see.
#[derive(Default)]
struct State {
    orders: Arc<Orders>,
    news: News,
    /// Whether the daemon has not taken them yet.
    are_new: bool,
    /// Whether the daemon's end of the bell was rung for them.
    has_rung: bool,
    ends: bool,
    bumper: Option<Arc<dyn Bumper>>,
    /// The loop's thread, while it runs.
    tid: Option<i32>,
}

/// The loop's thread runs as long as there is this: afterwards its number may be somebody else's.
struct Running(Arc<Shared<State>>);

impl Running {
    fn here(shared: &Arc<Shared<State>>) -> Self {
        shared.lock().tid = Some(rustix::thread::gettid().as_raw_nonzero().get());
        Running(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().tid = None;
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
            recorder: None,
            thread: None,
            given: Orders::default(),
        })
    }

    /// Has it record what it sees and decides from its first look on, which is yet to come.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub(crate) fn record(&mut self, file: File) -> std::io::Result<()> {
        self.recorder = Some(Recorder::start(file)?);
        Ok(())
    }

    /// The loop's thread while it has something to do; `None` before it has begun.
    pub(crate) fn busy_thread(&self) -> Option<i32> {
        if self.given.is_idle() { None } else { self.shared.lock().tid }
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
            let recorder = self.recorder.take();
            let started = builder.spawn(move || Turns { recorder, ..Turns::new(shared, bell, roots) }.run());
            self.thread = Some(started.map_err(|error| format!("the memory loop cannot start: {error}"))?);
        }
        self.given = orders;
        self.bell.ring();
        Ok(())
    }

    /// Gives it what holds tasks for moments, in place of what it has; `None` where there is no such thing.
    pub(crate) fn set_bumper(&self, bumper: Option<Box<dyn Bumper>>) {
        self.shared.lock().bumper = bumper.map(Arc::from);
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

fn reclaimed<'turns>(news: &'turns News, in_hand_bytes: &'turns BTreeMap<u64, u64>) -> Reclaimed<'turns> {
    Reclaimed { taken_bytes: &news.taken_bytes, in_hand_bytes }
}

/// The thread's own.
struct Turns {
    shared: Arc<Shared<State>>,
    bell: Bell,
    roots: Roots,
    decides: manager::Manager,
    ageing: Ageing,
    holds: Holds,
    /// What it sees with; `None` until there is something to do, or where it cannot.
    sight: Option<Sight>,
    pool: Option<ReclaimPool>,
    holding: Option<Holding>,
    sharing: Option<Sharing>,
    recorder: Option<Recorder>,
    /// From whom is taken next: the cgroup's path and id, and how much, in bytes.
    plan: VecDeque<(String, u64, u64)>,
    /// Whether the last look found anybody to take from.
    is_planned: bool,
    target_bytes: u64,
    high_watermark_bytes: u64,
    /// With less than this left the next look is due, in bytes; 0 where that need not be checked.
    look_below_bytes: u64,
    /// With more than this charged to one of these the next look is due, too.
    nearing: NearMaximum,
    /// With less than this free all threads may take memory: half of the reserve is gone.
    urgent_bytes: u64,
    /// Whether what is swapped out goes to a disk that rotates, and when that was asked.
    swap_rotates: Option<(u64, bool)>,
    /// What the pool has been given and not done yet, in bytes; and from whom that is, by cgroup id.
    in_hand_bytes: u64,
    in_hand: BTreeMap<u64, u64>,
    written: Written,
    /// Until when nothing is taken from these, by cgroup id.
    spared_until_ns: BTreeMap<u64, u64>,
    news: News,
    look_at_ns: u64,
    /// No sooner is looked at whom more can be taken from, if all that was planned has been.
    more_at_ns: u64,
}

/// When more may be planned after a look that has just ended and took so much CPU time: looks at thousands of cgroups,
/// which anybody may have, would otherwise follow each other without a pause as long as there is little.
fn more_at_ns(ended_ns: u64, cost_ns: u64) -> u64 {
    ended_ns.saturating_add(COST_PART.saturating_mul(cost_ns))
}

/// How many pieces are taken at once. To a disk that rotates several threads write no faster, and where memory is in
/// pages of 4 KiB half as fast: what one of them writes lies together and becomes few requests, and what several write
/// in turns does not (measured: docs/memory.md).
fn pieces_at_once(is_urgent: bool, swap_rotates: bool) -> usize {
    if is_urgent && !swap_rotates { POOL_THREADS } else { 1 }
}

impl Turns {
    fn new(shared: Arc<Shared<State>>, bell: Bell, roots: Roots) -> Self {
        Turns {
            shared,
            bell,
            roots,
            decides: manager::Manager::default(),
            ageing: Ageing::default(),
            holds: Holds::default(),
            sight: None,
            pool: None,
            holding: None,
            sharing: None,
            recorder: None,
            plan: VecDeque::new(),
            is_planned: false,
            target_bytes: 0,
            high_watermark_bytes: 0,
            look_below_bytes: 0,
            nearing: NearMaximum::default(),
            urgent_bytes: 0,
            swap_rotates: None,
            in_hand_bytes: 0,
            in_hand: BTreeMap::new(),
            written: Written::default(),
            spared_until_ns: BTreeMap::new(),
            news: News::default(),
            look_at_ns: 0,
            more_at_ns: 0,
        }
    }

    fn run(mut self) {
        let _running = Running::here(&self.shared);
        // Without the right to it, it does what it can at an ordinary one.
        let _ = rustix::process::setpriority_process(None, NICE);
        // The same for a daemon that may not: then it may have to wait for its own pages.
        let _ = lock_own_memory();
        loop {
            let (orders, bumper, ends) = {
                let state = self.shared.lock();
                (Arc::clone(&state.orders), state.bumper.clone(), state.ends)
            };
            if ends {
                return;
            }
            if orders.is_idle() {
                self.rest();
            } else {
                self.turn(&orders, bumper.as_deref());
            }
            self.wait(orders.is_idle());
        }
    }

    /// Nobody is protected any more.
    fn rest(&mut self) {
        self.plan.clear();
        self.is_planned = false;
        self.look_below_bytes = 0;
        self.nearing.set(Vec::new());
        self.sight = None;
        self.pool = None;
        self.holding = None;
        self.sharing = None;
        self.in_hand_bytes = 0;
        self.in_hand.clear();
        let taken_bytes = std::mem::take(&mut self.news.taken_bytes);
        let held_back = std::mem::take(&mut self.news.held_back);
        self.holds.rest();
        let written_per_second = self.written.bytes_per_second();
        let changes = self.take_untold();
        self.news = News { taken_bytes, held_back, changes, written_per_second, ..News::default() };
        self.tell();
    }

    fn turn(&mut self, orders: &Orders, bumper: Option<&dyn Bumper>) {
        let now_ns = now_ns();
        self.take_in(now_ns);
        // Before all that takes longer.
        if let (Some(sight), Some(bumper)) = (&mut self.sight, bumper)
            && self.high_watermark_bytes > 0
        {
            let reclaimed = reclaimed(&self.news, &self.in_hand);
            self.holds.hold_back(now_ns, self.high_watermark_bytes, sight, orders, reclaimed, bumper);
        }
        let is_more_due = || now_ns >= self.more_at_ns && self.is_done();
        if now_ns >= self.look_at_ns || is_more_due() || self.goes_fast(now_ns) {
            let begun_ns = cpu_time_ns();
            self.look_at_ns = now_ns + LOOK_NS;
            self.news.changes = self.take_untold();
            self.news.problem = self.look(now_ns, orders).err();
            self.tell();
            let cost_ns = cpu_time_ns().saturating_sub(begun_ns);
            self.more_at_ns = more_at_ns(crate::turn::clock::now_ns(), cost_ns);
        }
        self.top_up(now_ns);
    }

    /// Whether so much memory has gone since the last look that the next one is due.
    fn goes_fast(&mut self, now_ns: u64) -> bool {
        let Some(sight) = &self.sight else { return false };
        if self.look_below_bytes > 0 && sight.left_bytes() < self.look_below_bytes {
            return true;
        }
        // Anybody may have thousands of cgroups, and have them grow: the looks that follow from that take no more of a
        // CPU than those that plan more.
        let charged_bytes = |id| sight.charged_now(id);
        now_ns >= self.more_at_ns && self.nearing.has_more(now_ns, charged_bytes, cpu_time_ns)
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
            || told.minima != self.news.minima
            || !self.news.changes.is_empty()
            || told.is_short != self.news.is_short
            || told.short_below != self.news.short_below
            || told.ceilings != self.news.ceilings
            || told.problem != self.news.problem;
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
        if self.sharing.is_none() {
            self.sharing = Some(Sharing::start(&self.roots)?);
        }
        self.news.file_uses = self.sharing.as_ref().map(Sharing::found).unwrap_or_default();
        let held = self.holding.as_ref().map(Holding::held).unwrap_or_default();
        let Some(sight) = &mut self.sight else { return Ok(()) };
        self.spared_until_ns.retain(|_, until_ns| *until_ns > now_ns);
        let seen = sight.look(now_ns, orders, &self.news.file_uses).map_err(|error| error.to_string())?;
        let mut domains = seen.domains;
        for domain in &mut domains {
            domain.is_spared |= self.spared_until_ns.contains_key(&domain.id);
        }
        self.high_watermark_bytes = seen.machine.high_watermark_bytes;
        self.urgent_bytes = seen.machine.high_watermark_bytes + orders.settings.reserve_bytes / 2;
        let machine = Machine { held_bytes: held.bytes, ..seen.machine };
        let decision = self.decides.decide(now_ns, &machine, &domains, &orders.settings);
        if let Some(recorder) = &self.recorder {
            let (settings, paths) = (orders.settings, sight.paths());
            recorder.note(Look { now_ns, machine, settings, domains, paths, decision: decision.clone() });
        }
        let mut unaged = None;
        if let Some(id) = self.ageing.due(now_ns, sight.to_age()) {
            // What was decided holds all the same, and the next one has its turn.
            let cost_ns = sight.age(id).unwrap_or_else(|error| {
                unaged = Some(error.to_string());
                0
            });
            self.ageing.done(now_ns, id, cost_ns);
        }
        self.take_decision(decision, orders);
        if let Some(sight) = &mut self.sight {
            self.holds.see(now_ns, sight, orders, reclaimed(&self.news, &self.in_hand));
        }
        if let Some(sight) = &self.sight {
            let paths: BTreeSet<String> = sight.paths().into_iter().collect();
            forget_gone(&mut self.news.taken_bytes, &paths);
            self.holds.forget_gone(&paths);
        }
        self.news.held_back.clone_from(self.holds.held_back());
        let problem = unaged.or(held.problem).or_else(|| self.holds.problem().map(str::to_owned));
        problem.map_or(Ok(()), Err)
    }

    fn take_decision(&mut self, decision: Decision, orders: &Orders) {
        let Some(sight) = &self.sight else { return };
        let path_of = |id: u64| sight.path_of(id).unwrap_or_default().to_owned();
        let victims =
            decision.victims.iter().filter_map(|victim| Some((sight.at(victim.place)?, victim.bytes)));
        self.plan = victims.map(|((path, id), bytes)| (path.to_owned(), id, bytes)).collect();
        self.is_planned = !self.plan.is_empty();
        self.target_bytes = decision.target_bytes;
        // Who has to pay soon is asked what they claim.
        if let Some(sharing) =
            self.sharing.as_ref().filter(|_| sight.free_bytes() < 2 * decision.target_bytes)
        {
            sharing.want();
        }
        self.look_below_bytes = decision.look_below_bytes;
        self.nearing.set(decision.nearing);
        if let Some(holding) = &self.holding {
            let protected = decision.kept.iter().filter(|kept| !kept.is_demoted && decision.room_bytes > 0);
            let mut paths: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            for path in protected.map(|kept| path_of(kept.id)) {
                paths.entry(orders.user_of(&path)).or_default().push(path);
            }
            holding.want(Wanted { paths, bytes_max: decision.held_max_bytes });
        }
        let kept = decision.kept.iter();
        self.news.minima = kept.clone().map(|kept| (path_of(kept.id), kept.minimum_bytes)).collect();
        self.news.kept = kept.map(|kept| (path_of(kept.id), (kept.id, kept.bytes))).collect();
        let changes = decision.changes.into_iter().map(|change| (path_of(change.id), change));
        self.news.changes.extend(changes);
        self.news.is_short = decision.is_short;
        self.news.short_below = decision.short_below.into_iter().map(path_of).collect();
        let ceilings = decision.ceilings.into_iter().map(|ceiling| (path_of(ceiling.id), ceiling.bytes));
        self.news.ceilings = ceilings.collect();
        self.news.source = Some(sight.source());
        self.news.target_bytes = decision.target_bytes;
        self.news.written_per_second = self.written.bytes_per_second();
    }

    /// What became of what was given to the pool.
    fn take_in(&mut self, now_ns: u64) {
        let Some(pool) = &self.pool else { return };
        let outcomes = pool.take_outcomes();
        self.written.note(&outcomes, now_ns, &self.roots);
        let mut taken_bytes = 0;
        for outcome in outcomes {
            taken_bytes += outcome.taken_bytes;
            let job = outcome.job;
            self.in_hand_bytes = self.in_hand_bytes.saturating_sub(job.bytes);
            let in_hand_bytes = self.in_hand.entry(job.id).or_default();
            *in_hand_bytes = in_hand_bytes.saturating_sub(job.bytes);
            *self.news.taken_bytes.entry(job.cgroup).or_default() += outcome.taken_bytes;
            if !matches!(outcome.end, End::Done | End::Cancelled) {
                self.spared_until_ns.insert(job.id, now_ns + SPARED_NS);
                // What of it is in use after all is not idle at the next reading.
                if let Some(sight) = self.sight.as_mut().filter(|_| job.idle_ns.is_some()) {
                    sight.forget_ages(job.id);
                }
                self.plan.retain(|(_, id, _)| *id != job.id);
            }
        }
        self.in_hand.retain(|_, bytes| *bytes > 0);
        self.holds.took(now_ns, taken_bytes, self.in_hand_bytes > 0);
    }

    /// Whether what is swapped out goes to a disk that rotates. Where that cannot be read, nothing says so.
    fn swap_rotates(&mut self, now_ns: u64) -> bool {
        let known = self.swap_rotates.filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < SWAP_ASKED_NS);
        let ask = || {
            let orders = Arc::clone(&self.shared.lock().orders);
            let rotating =
                orders.disks.devices(&self.roots).and_then(|disks| slow::swap_disks(&disks, &self.roots));
            rotating.is_ok_and(|disks| !disks.is_empty())
        };
        let asked = known.unwrap_or_else(|| (now_ns, ask()));
        self.swap_rotates = Some(asked);
        asked.1
    }

    /// Has so much be taken as is not free, from those whose turn it is.
    fn top_up(&mut self, now_ns: u64) {
        let is_urgent = |sight: &Sight| sight.free_bytes() < self.urgent_bytes;
        let is_urgent = self.sight.as_ref().is_some_and(is_urgent);
        let in_hand_max = pieces_at_once(is_urgent, is_urgent && self.swap_rotates(now_ns));
        let (Some(sight), Some(pool)) = (&mut self.sight, &self.pool) else { return };
        let free_bytes = sight.free_bytes();
        let mut missing_bytes =
            self.target_bytes.saturating_sub(free_bytes).saturating_sub(self.in_hand_bytes);
        // The kernel counts as taken what was written already, and begins to write much more: while there is enough
        // still, that comes first. Others' files are among it, so it does not count when there is little.
        if missing_bytes > 0 && free_bytes >= self.urgent_bytes {
            missing_bytes = missing_bytes.saturating_sub(sight.writeback_bytes());
        }
        while missing_bytes > 0
            && pool.unfinished() < in_hand_max
            && let Some((cgroup, id, left_bytes)) = self.plan.front_mut()
        {
            let (id, bytes) = (*id, (*left_bytes).min(PIECE_BYTES));
            // It may have given memory up since the plan was made: then what is left of it is kept, and the kernel does
            // not hold what it was told to keep against who asks for that very cgroup.
            let kept_bytes =
                self.news.kept.get(cgroup).filter(|(of_id, _)| *of_id == id).map_or(0, |kept| kept.1);
            let in_hand_bytes = self.in_hand.get(&id).copied().unwrap_or(0);
            // Of a protected one only what is idle, or offered: memory.reclaim takes others where that is in use again.
            let permit = if kept_bytes > 0 { sight.may_take(id, in_hand_bytes) } else { Permit::ALL };
            let above_bytes = match kept_bytes {
                0 => u64::MAX,
                _ => sight.charged_now(id).saturating_sub(kept_bytes).saturating_sub(in_hand_bytes),
            };
            let bytes = bytes.min(above_bytes).min(permit.bytes);
            if bytes < (*left_bytes).min(PIECE_MIN_BYTES) {
                self.plan.pop_front();
                continue;
            }
            let swappiness = permit.of_files.then_some(0);
            let job = ReclaimJob { cgroup: cgroup.clone(), id, bytes, swappiness, idle_ns: permit.idle_ns };
            if pool.give(job).is_err() {
                break;
            }
            sight.ask(now_ns, id, permit, bytes);
            *left_bytes -= bytes;
            if *left_bytes == 0 {
                self.plan.pop_front();
            }
            self.in_hand_bytes += bytes;
            *self.in_hand.entry(id).or_default() += bytes;
            missing_bytes = missing_bytes.saturating_sub(bytes);
        }
    }

    /// Until there is something to do. What was ordered meanwhile is looked at at once.
    fn wait(&mut self, is_idle: bool) {
        let now_ns = now_ns();
        let is_little = |sight: &Sight| sight.free_bytes() < 2 * self.target_bytes;
        let is_checked = self.look_below_bytes > 0 || !self.nearing.is_empty();
        let is_near = || is_checked || self.sight.as_ref().is_some_and(is_little);
        let check_ns = self.holds.check_ns().map_or(CHECK_NS, |check_ns| check_ns.min(CHECK_NS));
        let until_ns = if is_near() { self.look_at_ns.min(now_ns + check_ns) } else { self.look_at_ns };
        let left_ns = until_ns.saturating_sub(now_ns);
        let timeout =
            Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 };
        let mut waits = vec![PollFd::new(&self.bell, PollFlags::IN)];
        waits.extend(self.pool.as_ref().map(|pool| PollFd::new(pool, PollFlags::IN)));
        // Interrupted or not, the next turn looks at everything.
        let _ = poll(&mut waits, if is_idle { None } else { Some(&timeout) });
        if self.bell.has_rung() {
            self.look_at_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_pieces_are_taken_at_once_where_that_is_urgent_and_no_disk_rotates() {
        assert_eq!(pieces_at_once(true, false), POOL_THREADS);
        assert_eq!(pieces_at_once(true, true), 1);
        assert_eq!(pieces_at_once(false, false), 1);
    }

    #[test]
    fn what_is_planned_anew_all_the_time_takes_a_fifth_of_a_cpu_at_most() {
        let (mut now_ns, mut looked_ns) = (0, 0);
        for took_ns in [10_000, 3_000_000, 200_000_000, 0, 7] {
            let ended_ns = now_ns + took_ns;
            looked_ns += took_ns;
            now_ns = more_at_ns(ended_ns, took_ns);
            assert!(now_ns >= ended_ns && 5 * looked_ns <= now_ns, "{looked_ns} of {now_ns}");
        }
    }
}

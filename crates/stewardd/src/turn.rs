//! The daemon's one loop: waits for clients, file changes, signals and the mechanism, and hands each on.
//!
//! At rest it wakes once a second, to notice a scheduler that was ejected without an event.

pub mod clock;
pub mod descriptors;
pub mod front;
pub mod log;
pub mod outstanding;
pub mod part;
pub mod worker;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use libsteward::api;
use rustix::event::Timespec;
use sd_notify::NotifyState;

use self::clock::now_ns;
use self::descriptors::{Lasting, Source, Wait, Waits, Woken};
use self::front::drain;
use crate::daemon::{Daemon, Summary};
use crate::domains::Told;
use crate::files::watch::Watch;
use crate::health::Topic;
use crate::server::control_files::ControlFiles;
use crate::server::metrics::endpoint::Metrics;
use crate::server::{Server, Topic as Stream, report};

/// The longest sleep, in nanoseconds.
const SLEEP_MAX_NS: u64 = 1_000_000_000;
/// From the first change of a file to reading it again, in nanoseconds: an upgrade changes many at once.
const SETTLE_NS: u64 = 200_000_000;
/// Time between two signs of life for systemd, in nanoseconds. Its patience (`WatchdogSec=`) is many times that.
const SIGN_OF_LIFE_NS: u64 = 1_000_000_000;
/// How many descriptors there are to wait for in a turn beside those of clients, at most: what parts have that may be
/// another in the next turn, the metrics, and the lasting ones together.
const OWN_DESCRIPTORS_MAX: usize = 4;

/// Ends of pipes that say what signals say: a byte on `stop` ends the daemon, one on `reload` has it read its
/// files again.
pub struct Controls {
    /// SIGTERM and SIGINT.
    pub stop: UnixStream,
    /// SIGHUP.
    pub reload: UnixStream,
}

/// Lets clients connect and runs until told to stop, then undoes everything and removes the socket.
///
/// # Errors
/// When listening or waiting itself fails. Everything is undone then too.
pub fn run(
    mut daemon: Daemon,
    server: Server,
    control_files: Option<ControlFiles>,
    watch: Watch,
    controls: Controls,
) -> anyhow::Result<()> {
    let mut turns = Loop {
        server,
        control_files,
        watch,
        controls,
        reload_at_ns: None,
        gather_until_ns: 0,
        status: None,
        sign_of_life_at_ns: 0,
        metrics: Metrics::default(),
    };
    turns.metrics.follow(&mut daemon);
    turns.watch_files(&mut daemon);
    // The first read loads the program that reads, which takes long.
    daemon.sample_if_due(now_ns());
    let listening = turns.lasting(&daemon).and_then(|lasting| turns.server.listen().map(|()| lasting));
    if listening.is_ok() {
        turns.notify_status(&daemon, &[NotifyState::Ready]);
    }
    let outcome = listening.and_then(|lasting| {
        while turns.turn(&mut daemon, &lasting)? {}
        Ok(())
    });
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    turns.control_files = None;
    turns.metrics = Metrics::default();
    daemon.stop();
    turns.server.close();
    outcome
}

struct Loop {
    server: Server,
    control_files: Option<ControlFiles>,
    watch: Watch,
    controls: Controls,
    /// When to read the files again that have changed.
    reload_at_ns: Option<u64>,
    /// Until when the mechanism's events wait to be taken together.
    gather_until_ns: u64,
    /// What systemd was told last, and when.
    status: Option<Summary>,
    sign_of_life_at_ns: u64,
    metrics: Metrics,
}

impl Loop {
    /// Waits once and does what there is to do. False when told to stop.
    fn turn(&mut self, daemon: &mut Daemon, lasting: &Lasting) -> anyhow::Result<bool> {
        let woken = self.wait(daemon, lasting)?;
        if woken.is_by(Source::Stop) {
            return Ok(false);
        }
        let now = now_ns();
        if woken.is_by(Source::Files) && self.watch.has_changed() {
            self.reload_at_ns.get_or_insert(now + SETTLE_NS);
        }
        let signalled = woken.is_by(Source::Reload) && drain(&self.controls.reload);
        if signalled || self.reload_at_ns.is_some_and(|at| at <= now) {
            self.reload_at_ns = None;
            daemon.reload();
            self.watch_files(daemon);
        }
        self.metrics.follow(daemon);
        self.answer(daemon, &woken, now);
        let told = daemon.tick(now, woken.is_by(Source::Domains));
        let mechanism_told = told.iter().any(|told| !told.is_of_domain());
        if let Some(mechanism) = daemon.cpu.mechanism.as_ref().filter(|_| mechanism_told) {
            self.gather_until_ns = now + mechanism.gather_for().as_nanos() as u64;
        }
        if std::mem::take(&mut daemon.rules_changed) {
            self.server.judge_listeners(&mut |caller, sight| daemon.permit_listening(caller, sight));
        }
        self.broadcast(&told);
        self.serve_watchers(daemon);
        self.notify_status(daemon, &[]);
        Ok(true)
    }

    /// Answers clients and control files, and those for whom polkit, or systemd, was asked.
    fn answer(&mut self, daemon: &mut Daemon, woken: &Woken, now_ns: u64) {
        self.server.set_owner(daemon.settings.policy.owner_uid);
        let ready = woken.of(Source::Clients);
        self.server.take_turn(&ready, &mut |caller, call| daemon.answer(caller, call));
        let mut files = self.control_files.as_mut();
        if let Some(files) = &mut files
            && (woken.is_by(Source::ControlFiles) || files.has_requests())
        {
            files.take_turn(&mut |caller, call| daemon.answer(caller, call));
        }
        if !daemon.cpu.suspensions.is_empty() {
            daemon.cpu.suspensions.keep(|id| self.server.is_connected(id), &mut daemon.cpu.mechanism);
        }
        if !daemon.domains.none_lowered()
            && daemon.domains.keep_lowered(|id| self.server.is_connected(id), &mut daemon.cpu.mechanism)
        {
            daemon.cpu.sampler.invalidate();
        }
        if woken.is_by(Source::Metrics) {
            self.metrics.take_turn(&mut |address| daemon.figures(address));
        }
        if daemon.memory.scopes.are_asked_by_hand() {
            daemon.memory.scopes.keep(|id| self.server.is_connected(id));
        }
        let asks_polkit = daemon.polkit.has_questions();
        let has_scopes = daemon.memory.scopes.has_answers();
        if !asks_polkit && !has_scopes {
            return;
        }
        let answered = asks_polkit && daemon.polkit.take_in(now_ns) || has_scopes;
        self.server.answer_waiting(answered, &mut |caller, call| daemon.answer(caller, call));
        if has_scopes {
            // Whoever asked for what is left has gone.
            daemon.memory.scopes.forget_answers();
        }
        if let Some(files) = &mut files {
            files.answer_waiting(answered, &mut |caller, call| daemon.answer(caller, call));
        }
        let waits_for_file = |id| files.as_ref().is_some_and(|files| files.is_waiting(id));
        daemon.polkit.keep(|id| self.server.is_connected(id) || waits_for_file(id));
    }

    /// Answers those who watch, and reads tasks when it is time to.
    fn serve_watchers(&mut self, daemon: &mut Daemon) {
        let now = now_ns();
        self.server.serve_watchers(now, &mut |caller, watch| daemon.next_reply(caller, watch));
        daemon.cpu.sampler.set_watched(self.server.forecasts_every_ns());
        daemon.sample_if_due(now);
    }

    /// What is waited for in every turn.
    fn lasting(&self, daemon: &Daemon) -> anyhow::Result<Lasting> {
        let own = [
            Wait::readable(Source::Stop, self.controls.stop.as_fd()),
            Wait::readable(Source::Reload, self.controls.reload.as_fd()),
            Wait::readable(Source::Files, self.watch.as_fd()),
        ];
        let files =
            self.control_files.as_ref().map(|files| Wait::readable(Source::ControlFiles, files.as_fd()));
        Ok(Lasting::readable(own.into_iter().chain(files).chain(daemon.lasting_descriptors()))?)
    }

    fn wait(&self, daemon: &Daemon, lasting: &Lasting) -> anyhow::Result<Woken> {
        let clients = self.server.poll_descriptors();
        let mut waits = Waits::with_room(OWN_DESCRIPTORS_MAX + clients.len());
        let gathers = self.gather_until_ns > now_ns();
        waits.extend(daemon.descriptors().filter(|wait| !(gathers && wait.is_of(Source::Mechanism))));
        waits.extend(self.metrics.descriptor().map(|metrics| Wait::readable(Source::Metrics, metrics)));
        waits.extend(clients.map(|descriptor| Wait::until(Source::Clients, descriptor)));
        Ok(waits.wait(lasting, &self.timeout(daemon))?)
    }

    fn timeout(&self, daemon: &Daemon) -> Timespec {
        let now = now_ns();
        let gathered = Some(self.gather_until_ns).filter(|until| *until > now);
        let moments = [self.reload_at_ns, gathered, self.server.watcher_due_ns(), daemon.poll_timeout(now)];
        let soonest = moments.into_iter().flatten().map(|at| at.saturating_sub(now)).min();
        let mut sleep_ns = soonest.unwrap_or(SLEEP_MAX_NS).min(SLEEP_MAX_NS);
        if self.server.has_calls() || self.control_files.as_ref().is_some_and(ControlFiles::has_requests) {
            sleep_ns = 0;
        }
        Timespec { tv_sec: (sleep_ns / 1_000_000_000) as i64, tv_nsec: (sleep_ns % 1_000_000_000) as i64 }
    }

    fn broadcast(&mut self, told: &[Told]) {
        for Told { event, domain, about } in told {
            let told = |is_bare| match &about.naming {
                Some(naming) if is_bare => (*naming.bare).clone(),
                _ => event.clone(),
            };
            if self.server.has_listeners(Stream::Decisions) {
                let fill = |is_bare, lost| report::parameters(&api::Monitored { event: told(is_bare), lost });
                self.server.broadcast(Stream::Decisions, about, &fill);
            }
            if report::changes_domain(event.kind) && self.server.has_listeners(Stream::Domains) {
                let fill = |is_bare, lost| {
                    let (event, domain) = (Some(told(is_bare)), domain.clone());
                    report::parameters(&api::DomainWatched { event, domain, lost })
                };
                self.server.broadcast(Stream::Domains, about, &fill);
            }
        }
    }

    fn watch_files(&mut self, daemon: &mut Daemon) {
        let mut files = daemon.loaded.paths();
        files.push(daemon.options.config.clone());
        let options = &daemon.options;
        let directories =
            [&options.spec_directories[..], &options.rule_directories, &options.domain_directories].concat();
        let Some(failures) = self.watch.set(&directories, &files) else { return };
        daemon.health.set(Topic::Watch, failures);
        // What changed between reading and watching was missed: read once more.
        self.reload_at_ns = Some(now_ns());
    }

    /// Feeds systemd's watchdog once a second, and tells systemd where things stand when that has changed.
    fn notify_status(&mut self, daemon: &Daemon, more: &[NotifyState<'_>]) {
        let (status, now) = (Some(daemon.summary()), now_ns());
        let is_same = status == self.status;
        if is_same && more.is_empty() && now.saturating_sub(self.sign_of_life_at_ns) < SIGN_OF_LIFE_NS {
            return;
        }
        let mut states = vec![NotifyState::Watchdog];
        states.extend_from_slice(more);
        let text = status.filter(|_| !is_same).map(|status| status.to_string());
        states.extend(text.as_deref().map(NotifyState::Status));
        // Without systemd there is nobody to tell.
        let _ = sd_notify::notify(&states);
        (self.status, self.sign_of_life_at_ns) = (status, now);
    }
}

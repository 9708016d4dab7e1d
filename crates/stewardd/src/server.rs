//! The socket: accepts clients, cuts what they send into calls, sends replies. It knows nothing of their meaning.
//!
//! Nothing here waits for a client. Every descriptor is nonblocking, every buffer is bounded, and a turn takes at most
//! one read and one call from each client, so that one who floods, stops half-way, never reads or vanishes costs the
//! others nothing. An answer that takes long to make is made in [pieces](pieces), one of them in a turn. Among users
//! [time](turns), [connections](room) and memory are divided, whoever they say they are: a user can only crowd out
//! himself.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use libsteward::ApiError;
use libsteward::wire::{self, Call, Framer, Reply};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serde_json::{Map, Value};

use crate::server::peer::{Caller, Identify, UserOf};
use crate::turn::clock::{now_ns, own_time_ns};

pub mod access;
pub mod control_files;
pub mod dispatch;
pub mod history;
pub mod metrics;
mod newcomers;
mod output;
pub mod peer;
pub mod permission;
pub mod pieces;
mod place;
pub mod polkit;
pub mod report;
pub mod requests;
pub mod room;
mod service;
pub mod sight;
pub mod target;
pub mod texts;
pub mod turns;
pub mod watch;

use newcomers::{Newcomers, Round};
use output::Output;
use pieces::{Put, Unfinished};
use place::{Lock, another, bind_only};
use room::Entry;
pub use sight::Topic;
use sight::{About, Listening, Sight, View};
use turns::{Payer, Turns};
use watch::{Next, NextReply, Watch, Watched};

/// What may be held for all clients together, in bytes: what waits for them to read it, and what they sent of calls
/// that are not whole.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What may wait for one client that monitors, in bytes; events beyond it are counted as lost to this client.
const MONITOR_BYTES_MAX: usize = 256 * 1024;

/// What a call is answered with.
pub enum Answer {
    /// One reply.
    Reply(Map<String, Value>),
    /// One reply, as the JSON text of its parameters: for long ones, and those that several are given.
    Text(Arc<str>),
    /// The same in parts, which several are given in one place or another.
    Texts(Vec<Arc<str>>),
    /// An error.
    Error(ApiError),
    /// These replies now, as they travel, and then every one that is broadcast on the topic and may be seen.
    Stream(Topic, Sight, Vec<Arc<str>>),
    /// One reply to this from time to time, whenever [`Server::serve_watchers`] finds it due.
    Watch(Watch),
    /// None yet: the call is to be put again by [`Server::answer_waiting`].
    Wait,
    /// None yet: the call is to be put again in the next turn, with what was made so far.
    Again(Unfinished),
    /// None yet: the call is to be put again by [`Server::answer_waiting`], with what was made so far.
    Later(Unfinished),
}

struct Client {
    stream: UnixStream,
    caller: Caller,
    framer: Framer,
    output: Output,
    /// The call that is not answered yet.
    unanswered: Option<Unanswered>,
    /// What it listens to; `Some` once it monitors.
    monitoring: Option<Listening>,
    /// What it is answered again and again, and when next, in nanoseconds of `CLOCK_MONOTONIC`.
    watching: Option<(Watch, u64)>,
    /// What its descriptor is ready for in this turn.
    ready: PollFlags,
    /// The turn in which it last said something.
    last_turn: u64,
    /// To be closed once its output is sent.
    closing: bool,
    gone: bool,
}

/// A call that is not answered yet.
struct Unanswered {
    put: Put,
    /// How long it was as it came, in bytes.
    call_bytes: usize,
    /// Somebody is asked for permission, or for something else; else more of the answer can be made at any time.
    waits: bool,
}

impl Unanswered {
    fn held_bytes(&self) -> usize {
        self.call_bytes + self.put.made.as_ref().map_or(0, Unfinished::held_bytes)
    }
}

/// The socket and its clients.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    lock: Lock,
    identify: Identify,
    user_of: UserOf,
    clients: Vec<Client>,
    newcomers: Newcomers,
    turn: u64,
    owner_uid: Option<u32>,
    /// Whose call is answered next, and whose watch.
    calls: Turns,
    watches: Turns,
}

impl Server {
    /// Takes `path` for everyone: what a caller may do is decided by who it is. A socket that a dead daemon left behind
    /// is replaced. Nobody can connect before [`Server::listen`]: who did would wait for a daemon that cannot answer.
    ///
    /// # Errors
    /// When another daemon has it, or the socket cannot be made.
    pub fn bind(path: &Path, identify: Identify) -> anyhow::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| {
                format!("cannot create {}, the socket's directory (is this root?)", directory.display())
            })?;
        }
        let lock = Lock::take(path)?;
        if UnixStream::connect(path).is_ok() {
            return Err(another(path));
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot remove the old socket {}", path.display()));
            }
            _ => {}
        }
        let listener = bind_only(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
            .with_context(|| format!("cannot open {} to all users", path.display()))?;
        Ok(Server {
            listener,
            path: path.to_owned(),
            lock,
            identify,
            user_of: Box::new(peer::user_of),
            clients: Vec::new(),
            newcomers: Newcomers::default(),
            turn: 0,
            owner_uid: None,
            calls: Turns::default(),
            watches: Turns::default(),
        })
    }

    /// From now on clients can connect, and are answered by turns.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listen(&self) -> anyhow::Result<()> {
        rustix::net::listen(&self.listener, newcomers::BACKLOG.into())
            .with_context(|| format!("cannot listen at {}", self.path.display()))
    }

    /// The user for whom room is kept, beside root.
    pub fn set_owner(&mut self, uid: Option<u32>) {
        self.owner_uid = uid;
    }

    /// What to wait for: the listener, then the clients in their order.
    pub fn poll_descriptors(&self) -> impl ExactSizeIterator<Item = PollFd<'_>> {
        (0..1 + self.clients.len()).map(|place| {
            let Some(client) = place.checked_sub(1).map(|index| &self.clients[index]) else {
                return PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
            };
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::OUT, !client.output.is_empty());
            interest.set(PollFlags::IN, client.wants_input());
            PollFd::from_borrowed_fd(client.stream.as_fd(), interest)
        })
    }

    /// Whether a whole call waits already, so that there is nothing to wait for.
    pub fn has_calls(&self) -> bool {
        self.clients.iter().any(Client::has_call)
    }

    /// One turn. `ready` is what the descriptors of [`Server::poll_descriptors`] returned. Newcomers are let in, and
    /// may be answered at once. When the turn's time is used up, the rest is left for the next one, in which whoever
    /// has used less comes first.
    pub fn take_turn(&mut self, ready: &[PollFlags], handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        self.turn += 1;
        let of_clients = ready[1..].iter().copied().chain(std::iter::repeat(PollFlags::empty()));
        self.clients.iter_mut().zip(of_clients).for_each(|(client, ready)| client.ready = ready);
        self.newcomers.calm_down(now_ns(), &self.listener);
        if !ready[0].is_empty() {
            self.accept();
        }
        let Server { clients, calls, turn, owner_uid, .. } = self;
        let has_work = |client: &Client| !client.ready.is_empty() || client.has_call();
        let mut order: Vec<usize> = (0..clients.len()).filter(|index| has_work(&clients[*index])).collect();
        // Whoever's answer is begun has it finished first, so that a user has few that are begun.
        order.sort_by_key(|index| (!clients[*index].is_begun(), clients[*index].last_turn));
        let work: Vec<(Payer, usize)> =
            order.into_iter().map(|index| (clients[index].caller.payer, index)).collect();
        calls.share(work, &own_time_ns, &mut |index| {
            clients[index].take_turn(*turn, handle);
            bound_memory(clients, *owner_uid);
        });
        // What was broadcast since the last turn, too.
        bound_memory(&mut self.clients, self.owner_uid);
        self.clients.retain(|client| !client.gone);
    }

    /// Sends this to every client that listens to the topic and may see what is about that. `fill` gets whether it is
    /// told without the names of others and how many it lost before, and makes the reply.
    pub fn broadcast(&mut self, topic: Topic, about: &About, fill: &dyn Fn(bool, u64) -> Map<String, Value>) {
        let message = |is_bare, lost| {
            wire::encode(&Reply { parameters: fill(is_bare, lost), continues: Some(true), error: None })
        };
        // Most have lost nothing, and are told the same.
        let mut with_none_lost = [None, None];
        for client in &mut self.clients {
            let Some(listening) = client.monitoring.as_mut().filter(|listening| listening.topic == topic)
            else {
                continue;
            };
            let is_bare = match listening.sight.view(about) {
                View::Whole => false,
                View::Bare => true,
                View::Nothing => continue,
            };
            if client.output.len() > MONITOR_BYTES_MAX {
                listening.lost += 1;
                continue;
            }
            match std::mem::take(&mut listening.lost) {
                0 => client
                    .output
                    .push(with_none_lost[usize::from(is_bare)].get_or_insert_with(|| message(is_bare, 0))),
                lost => client.output.push(&message(is_bare, lost)),
            }
        }
    }

    /// Holds everybody who listens against rules that have changed: `judge` gets what one might see until now, and says
    /// what from now on. Who may see nothing is told why, and hears no more.
    pub fn judge_listeners(&mut self, judge: &mut dyn FnMut(&Caller, Sight) -> Result<Sight, ApiError>) {
        for client in &mut self.clients {
            let Some(listening) = &mut client.monitoring else { continue };
            match judge(&client.caller, listening.sight) {
                Ok(sight) => listening.sight = sight,
                Err(error) => {
                    client.monitoring = None;
                    client.send_error(&error);
                }
            }
        }
    }

    /// Puts every call again that waits for its answer, if `now`: there may be one.
    pub fn answer_waiting(&mut self, now: bool, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        for client in self.clients.iter_mut().filter(|_| now) {
            if let Some(waiting) = client.unanswered.take_if(|unanswered| unanswered.waits) {
                client.put(waiting.put, waiting.call_bytes, handle);
                client.write_out();
            }
        }
    }

    /// Answers every watcher whose time has come, unless there is nothing new for it (`None`). One who has not read
    /// the last reply yet gets none: it would only grow old while it waits. With an error its watch ends.
    pub fn serve_watchers(&mut self, now_ns: u64, answer: &mut dyn FnMut(&Caller, &mut Watch) -> NextReply) {
        let Server { clients, watches, owner_uid, .. } = self;
        let is_due = |client: &Client| client.watching.as_ref().is_some_and(|(_, due_ns)| *due_ns <= now_ns);
        let mut due: Vec<usize> = (0..clients.len()).filter(|index| is_due(&clients[*index])).collect();
        // Whoever's reply is begun has it finished first, then whoever has been due for longest.
        due.sort_by_key(|index| {
            clients[*index].watching.as_ref().map(|(watch, due_ns)| (!watch.is_begun(), *due_ns))
        });
        let work: Vec<(Payer, usize)> =
            due.into_iter().map(|index| (clients[index].caller.payer, index)).collect();
        // Whoever is left when time is used up stays due.
        watches.share(work, &own_time_ns, &mut |index| {
            clients[index].serve_watch(now_ns, answer);
            bound_memory(clients, *owner_uid);
        });
        self.clients.retain(|client| !client.gone);
    }

    /// When the next watcher is due, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn watcher_due_ns(&self) -> Option<u64> {
        self.clients.iter().filter_map(|client| client.watching.as_ref()).map(|(_, due_ns)| *due_ns).min()
    }

    /// How often the most eager of those who watch forecasts wants to be told, in nanoseconds.
    pub fn forecasts_every_ns(&self) -> Option<u64> {
        let watches = self.clients.iter().filter_map(|client| client.watching.as_ref());
        let of_forecasts = watches.filter(|(watch, _)| matches!(watch.about, Watched::Forecasts(_)));
        of_forecasts.map(|(watch, _)| watch.every_ns).min()
    }

    /// Whether this caller's connection stands.
    pub fn is_connected(&self, caller_id: u64) -> bool {
        self.clients.iter().any(|client| client.caller.id == caller_id)
    }

    /// Whether anyone listens to the topic.
    pub fn has_listeners(&self, topic: Topic) -> bool {
        self.clients.iter().any(|client| client.monitoring.is_some_and(|listening| listening.topic == topic))
    }

    /// Removes the socket. Clients see the connection end.
    pub fn close(self) {
        // Gone already, or not ours to remove: there is nothing better to do on the way out.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.lock.path);
    }

    /// Takes in who waits, as many as may be in one turn. Who goes learns it after that: a program that is woken by it
    /// would else come before those who wait to get into the kernel's queue, and fill it anew.
    fn accept(&mut self) {
        let mut going = Vec::new();
        let mut round = self.newcomers.round(now_ns());
        while round.goes_on(now_ns()) {
            let stream = match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(stream) => UnixStream::from(stream),
                Err(Errno::WOULDBLOCK) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    // Most likely out of descriptors: make room, or the listener stays ready and the loop spins.
                    self.make_room();
                    return;
                }
            };
            if (self.user_of)(&stream).is_ok_and(|uid| self.is_crowding(uid, &mut round)) {
                self.newcomers.turned_away(now_ns(), &self.listener);
                going.push(stream);
            } else {
                match (self.identify)(&stream) {
                    Ok(caller) => going.extend(self.let_in(stream, caller, &mut round)),
                    Err(error) => tracing::debug!(%error, "a client vanished before it was identified"),
                }
            }
            self.newcomers.let_next_come();
        }
    }

    /// Whether a newcomer of this user is turned away before more is asked about it, which costs far more than
    /// connecting costs whoever does nothing else: the user has all the connections that one may have, and enough of
    /// them were given to newcomers in this turn.
    fn is_crowding(&self, uid: u32, round: &mut Round) -> bool {
        let own = self.clients.iter().filter(|client| client.caller.uid == uid).count();
        let has_all = own >= room::CLIENTS_PER_USER_MAX && !is_kept_for(uid, self.owner_uid);
        has_all && !round.may_replace(uid)
    }

    /// Returns the connection that goes for it, if one does.
    fn let_in(&mut self, stream: UnixStream, caller: Caller, round: &mut Round) -> Option<UnixStream> {
        let owner_uid = self.owner_uid;
        let present = self.clients.iter().map(|client| client.caller.payer);
        let gone = match room::entry(present, caller.payer, &|payer| is_kept_for(payer, owner_uid)) {
            Entry::Room => None,
            Entry::InPlaceOf(payer) => self.take_out_one_of(payer),
            Entry::Full => {
                tracing::debug!(pid = caller.pid, uid = caller.uid, "too many clients: not let in");
                return Some(stream);
            }
        };
        if !self.clients.iter().any(|client| client.caller.payer == caller.payer) {
            round.let_in_first();
        }
        self.clients.push(Client::new(stream, caller, self.turn));
        gone
    }

    /// The user with the most connections loses one.
    fn make_room(&mut self) {
        let mut counts: HashMap<Payer, usize> = HashMap::new();
        for client in &self.clients {
            *counts.entry(client.caller.payer).or_default() += 1;
        }
        let is_kept = |payer: &Payer| is_kept_for(*payer, self.owner_uid);
        let most = counts.into_iter().max_by_key(|(payer, count)| (!is_kept(payer), *count, *payer));
        if let Some((payer, _)) = most {
            drop(self.take_out_one_of(payer));
        }
    }

    /// Of those of this payer, the one that was silent longest; one that listens is not silent.
    fn take_out_one_of(&mut self, payer: Payer) -> Option<UnixStream> {
        let of_payer = self.clients.iter().enumerate().filter(|(_, client)| client.caller.payer == payer);
        let (index, _) = of_payer.min_by_key(|(_, client)| (client.listens(), client.last_turn))?;
        let Client { stream, caller, .. } = self.clients.swap_remove(index);
        tracing::debug!(pid = caller.pid, uid = caller.uid, "too many clients: dropped one");
        Some(stream)
    }
}

/// Whether room is kept for who pays: root and the owner.
fn is_kept_for(payer: Payer, owner_uid: Option<u32>) -> bool {
    payer == 0 || owner_uid == Some(payer)
}

/// Holds no more than the limit for all clients together: of the user for whom the most is held, the client with the
/// most goes, root and the owner last. One reply may be as long as it is.
fn bound_memory(clients: &mut [Client], owner_uid: Option<u32>) {
    loop {
        let all = clients.iter().filter(|client| !client.gone).map(Client::held_bytes);
        let (holders, bytes) =
            all.filter(|bytes| *bytes > 0).fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        if holders <= 1 || bytes <= HELD_BYTES_MAX {
            return;
        }
        let mut held: HashMap<Payer, usize> = HashMap::new();
        for client in clients.iter().filter(|client| !client.gone) {
            *held.entry(client.caller.payer).or_default() += client.held_bytes();
        }
        let most = held.into_iter().max_by_key(|(payer, bytes)| {
            let is_droppable = *bytes > 0 && !is_kept_for(*payer, owner_uid);
            (is_droppable, *bytes, *payer)
        });
        let Some((payer, _)) = most else { return };
        let of_payer = clients.iter_mut().filter(|client| !client.gone && client.caller.payer == payer);
        let Some(client) = of_payer.max_by_key(|client| client.held_bytes()) else { return };
        let (pid, uid) = (client.caller.pid, client.caller.uid);
        tracing::debug!(pid, uid, "a client does not read: dropped it");
        client.gone = true;
        client.output.clear();
        client.framer = Framer::new(wire::REQUEST_BYTES_MAX);
    }
}

impl Client {
    fn new(stream: UnixStream, caller: Caller, turn: u64) -> Self {
        let framer = Framer::new(wire::REQUEST_BYTES_MAX);
        let output = Output::default();
        Client {
            stream,
            caller,
            framer,
            output,
            unanswered: None,
            monitoring: None,
            watching: None,
            // It has mostly said something already.
            ready: PollFlags::IN,
            last_turn: turn,
            closing: false,
            gone: false,
        }
    }

    /// A client who has not read its reply, or waits for one, is not asked for more, and one who monitors has nothing
    /// more to say.
    fn wants_input(&self) -> bool {
        self.output.is_empty()
            && !self.closing
            && self.unanswered.is_none()
            && self.monitoring.is_none()
            && self.watching.is_none()
    }

    /// Whether a whole call of it waits to be answered, or more of an answer can be made.
    fn has_call(&self) -> bool {
        match &self.unanswered {
            Some(unanswered) => !unanswered.waits,
            None => self.wants_input() && self.framer.has_message(),
        }
    }

    /// Whether something of the answer to its call is made.
    fn is_begun(&self) -> bool {
        let made = self.unanswered.as_ref().and_then(|unanswered| unanswered.put.made.as_ref());
        made.is_some_and(Unfinished::is_begun)
    }

    /// Whether it is silent because it listens.
    fn listens(&self) -> bool {
        self.monitoring.is_some() || self.watching.is_some()
    }

    /// What it takes of memory, in bytes.
    fn held_bytes(&self) -> usize {
        let unanswered = self.unanswered.as_ref().map_or(0, Unanswered::held_bytes);
        let watched = self.watching.as_ref().map_or(0, |(watch, _)| watch.held_bytes());
        self.output.held_bytes() + self.framer.len() + unanswered + watched
    }

    fn take_turn(&mut self, turn: u64, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        let ready = std::mem::replace(&mut self.ready, PollFlags::empty());
        if ready.contains(PollFlags::OUT) {
            self.write_out();
        }
        if ready.intersects(PollFlags::ERR | PollFlags::NVAL)
            || (ready.contains(PollFlags::HUP) && !ready.contains(PollFlags::IN))
        {
            self.gone = true;
        }
        if self.gone {
            return;
        }
        if let Some(Unanswered { put, call_bytes, .. }) =
            self.unanswered.take_if(|unanswered| !unanswered.waits)
        {
            self.last_turn = turn;
            self.put(put, call_bytes, handle);
            self.write_out();
            return;
        }
        if !self.wants_input() {
            return;
        }
        if ready.contains(PollFlags::IN) && !self.framer.has_message() {
            self.read_in();
        }
        match self.framer.next_message() {
            Ok(Some(message)) => {
                self.last_turn = turn;
                self.answer(&message, handle);
                self.write_out();
            }
            Ok(None) => {}
            Err(too_long) => self.refuse(&too_long.to_string()),
        }
    }

    fn read_in(&mut self) {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.gone = true,
            Ok(count) => self.framer.push(&chunk[..count]),
            Err(error) => self.gone |= !is_passing(&error),
        }
    }

    fn write_out(&mut self) {
        self.gone |= self.output.write_to(&mut self.stream).is_err();
        self.gone |= self.output.is_empty() && self.closing;
    }

    fn serve_watch(&mut self, now_ns: u64, answer: &mut dyn FnMut(&Caller, &mut Watch) -> NextReply) {
        let Some((watch, due_ns)) = self.watching.as_mut() else { return };
        // On a common beat, so that those with the same interval are served from one sample.
        *due_ns = (now_ns / watch.every_ns + 1) * watch.every_ns;
        if !self.output.is_empty() {
            return;
        }
        match answer(&self.caller, watch) {
            Ok(Next::Reply(text)) => self.send_text(&text, true),
            Ok(Next::Nothing) => {}
            // Still due, behind those who were due before.
            Ok(Next::Again) => *due_ns = now_ns,
            Err(error) => {
                self.watching = None;
                self.send_error(&error);
            }
        }
        self.write_out();
    }

    fn send(&mut self, reply: &Reply) {
        self.output.push(&wire::encode(reply));
    }

    fn send_text(&mut self, parameters: &Arc<str>, continues: bool) {
        self.send_texts(std::slice::from_ref(parameters), continues);
    }

    /// Sends parameters that are in parts.
    fn send_texts(&mut self, parts: &[Arc<str>], continues: bool) {
        let (before, after) = wire::around_reply(continues);
        self.output.push(before.as_bytes());
        parts.iter().for_each(|part| self.output.push_shared(part));
        self.output.push(after.as_bytes());
    }

    fn send_error(&mut self, error: &ApiError) {
        let (name, parameters) = error.to_wire();
        self.send(&Reply { error: Some(name), parameters, continues: None });
    }

    fn answer(&mut self, message: &[u8], handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        let call: Call = match serde_json::from_slice(message) {
            Ok(call) => call,
            Err(error) => return self.refuse(&format!("not a varlink call: {error}")),
        };
        self.put(call.into(), message.len(), handle);
    }

    fn put(&mut self, put: Put, call_bytes: usize, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        let call = put.call.clone();
        let oneway = call.oneway == Some(true);
        let more = call.more == Some(true);
        let unanswered = |made, waits| Some(Unanswered { put: Put { call, made }, call_bytes, waits });
        match handle(&self.caller, put) {
            Answer::Wait => self.unanswered = unanswered(None, true),
            // What was begun is done, whether or not anybody reads what became of it.
            Answer::Later(made) => self.unanswered = unanswered(Some(made), true),
            Answer::Again(made) => self.unanswered = unanswered(Some(made), false),
            _ if oneway => {}
            Answer::Reply(parameters) => self.send(&Reply { parameters, ..Reply::default() }),
            Answer::Text(parameters) => self.send_text(&parameters, false),
            Answer::Texts(parts) => self.send_texts(&parts, false),
            Answer::Error(error) => self.send_error(&error),
            Answer::Watch(_) | Answer::Stream(..) if !more => self.send_error(&ApiError::ExpectedMore),
            Answer::Stream(topic, sight, first) => {
                self.monitoring = Some(Listening { topic, sight, lost: 0 });
                first.iter().for_each(|text| self.output.push_shared(text));
            }
            // Due at once.
            Answer::Watch(watch) => self.watching = Some((watch, 0)),
        }
    }

    /// Says what is wrong, if the client reads it, and ends the connection: after broken framing or broken JSON
    /// there is no telling where the next message starts.
    fn refuse(&mut self, reason: &str) {
        tracing::debug!(pid = self.caller.pid, uid = self.caller.uid, reason, "a client was dropped");
        self.send_error(&ApiError::InvalidParameter { parameter: "message".into(), reason: reason.into() });
        self.closing = true;
        self.write_out();
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;

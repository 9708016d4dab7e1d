//! The socket: accepts clients, cuts what they send into calls, sends replies. It knows nothing of their meaning.
//!
//! Nothing here waits for a client. Every descriptor is nonblocking, every buffer is bounded, and a turn takes at
//! most one read and one call from each client, so that one who floods, stops half-way, never reads or vanishes
//! costs the others nothing. When there is no room, the user with the most connections loses the one that was
//! silent longest: a user can only crowd out himself.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use libsteward::ApiError;
use libsteward::api::WatchForecasts;
use libsteward::wire::{self, Call, Framer, Reply};
use rustix::event::{PollFd, PollFlags};
use serde_json::{Map, Value};

use crate::peer::{Caller, Identify};

/// How many connections there can be at once.
const CLIENTS_MAX: usize = 512;
/// What may wait for all clients together to read it, in bytes: some forecasts of ten thousand tasks.
const OUTPUT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What may wait for one client that monitors, in bytes; events beyond it are counted as lost to this client.
const MONITOR_BYTES_MAX: usize = 256 * 1024;
/// How many connections are accepted in one turn.
const ACCEPTS_PER_TURN: usize = 16;

/// What a client that called with "more" hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Every decision.
    Decisions,
    /// Changes among domains.
    Domains,
}

/// What a call is answered with.
pub enum Answer {
    /// One reply.
    Reply(Map<String, Value>),
    /// One reply, as the JSON text of its parameters: for long ones.
    Text(String),
    /// An error.
    Error(ApiError),
    /// These replies now, and then every one that is broadcast on the topic.
    Stream(Topic, Vec<Map<String, Value>>),
    /// One reply to this from time to time, whenever [`Server::serve_watchers`] finds it due.
    Watch(Watch),
    /// None yet: the call is to be put again by [`Server::answer_waiting`].
    Wait,
}

/// The JSON text of the next reply to somebody who watches, `None` when there is nothing new.
pub type NextReply = Result<Option<String>, ApiError>;

/// A call that is answered again and again.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What was asked for.
    pub request: WatchForecasts,
    /// Time between two replies, in nanoseconds, above 0.
    pub every_ns: u64,
    /// Whether the caller may see all of what was asked for.
    pub granted: bool,
    /// When what was told last was seen, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first reply.
    pub told_at_ns: u64,
}

struct Client {
    stream: UnixStream,
    caller: Caller,
    framer: Framer,
    output: Vec<u8>,
    /// The call that waits for its answer.
    waiting: Option<Call>,
    /// What it listens to, and how many broadcasts were lost since the last that was sent; `Some` once it monitors.
    monitoring: Option<(Topic, u64)>,
    /// What it is answered again and again, and when next, in nanoseconds of `CLOCK_MONOTONIC`.
    watching: Option<(Watch, u64)>,
    /// The turn in which it last said something.
    last_turn: u64,
    /// To be closed once its output is sent.
    closing: bool,
    gone: bool,
}

/// The socket and its clients.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    identify: Identify,
    clients: Vec<Client>,
    turn: u64,
}

impl Server {
    /// Listens at `path`, for everyone: what a caller may do is decided by who it is. A socket that a dead daemon
    /// left behind is replaced.
    ///
    /// # Errors
    /// When another daemon listens there, or the socket cannot be made.
    pub fn bind(path: &Path, identify: Identify) -> anyhow::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(|| {
                format!("cannot create {}, the socket's directory (is this root?)", directory.display())
            })?;
        }
        if UnixStream::connect(path).is_ok() {
            bail!("another stewardd listens at {}: stop it first (systemctl stop stewardd)", path.display());
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot remove the old socket {}", path.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
        listener.set_nonblocking(true)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
            .with_context(|| format!("cannot open {} to all users", path.display()))?;
        Ok(Server { listener, path: path.to_owned(), identify, clients: Vec::new(), turn: 0 })
    }

    /// What to wait for: the listener, then the clients in their order.
    pub fn poll_descriptors(&self) -> Vec<PollFd<'_>> {
        let listener = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
        let clients = self.clients.iter().map(|client| {
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::OUT, !client.output.is_empty());
            interest.set(PollFlags::IN, client.wants_input());
            PollFd::from_borrowed_fd(client.stream.as_fd(), interest)
        });
        std::iter::once(listener).chain(clients).collect()
    }

    /// Whether a whole call waits already, so that there is nothing to wait for.
    pub fn has_calls(&self) -> bool {
        self.clients.iter().any(|client| client.wants_input() && client.framer.has_message())
    }

    /// One turn. `ready` is what the descriptors of [`Server::poll_descriptors`] returned.
    pub fn take_turn(&mut self, ready: &[PollFlags], handle: &mut dyn FnMut(&Caller, Call) -> Answer) {
        self.turn += 1;
        for (client, ready) in self.clients.iter_mut().zip(&ready[1..]) {
            client.take_turn(*ready, self.turn, handle);
        }
        self.clients.retain(|client| !client.gone);
        self.bound_output();
        if !ready[0].is_empty() {
            self.accept();
        }
    }

    /// Sends this to every client that listens to the topic. `fill` gets how many it lost before and makes the reply.
    pub fn broadcast(&mut self, topic: Topic, fill: &dyn Fn(u64) -> Map<String, Value>) {
        for client in &mut self.clients {
            let Some((_, lost)) = client.monitoring.filter(|(listens_to, _)| *listens_to == topic) else {
                continue;
            };
            if client.output.len() > MONITOR_BYTES_MAX {
                client.monitoring = Some((topic, lost + 1));
            } else {
                client.send(&Reply { parameters: fill(lost), continues: Some(true), error: None });
                client.monitoring = Some((topic, 0));
            }
        }
    }

    /// Puts every call again that waits for its answer, if `now`: there may be one.
    pub fn answer_waiting(&mut self, now: bool, handle: &mut dyn FnMut(&Caller, Call) -> Answer) {
        for client in self.clients.iter_mut().filter(|_| now) {
            if let Some(call) = client.waiting.take() {
                client.put(call, handle);
                client.write_out();
            }
        }
    }

    /// Answers every watcher whose time has come, unless there is nothing new for it (`None`). One who has not read
    /// the last reply yet gets none: it would only grow old while it waits. With an error its watch ends.
    pub fn serve_watchers(&mut self, now_ns: u64, answer: &mut dyn FnMut(&Caller, &mut Watch) -> NextReply) {
        for client in &mut self.clients {
            let Some((watch, due_ns)) = client.watching.as_mut().filter(|(_, due_ns)| *due_ns <= now_ns)
            else {
                continue;
            };
            // On a common beat, so that those with the same interval are served from one sample.
            *due_ns = (now_ns / watch.every_ns + 1) * watch.every_ns;
            if !client.output.is_empty() {
                continue;
            }
            match answer(&client.caller, watch) {
                Ok(Some(text)) => client.output.extend_from_slice(&wire::encode_reply(&text, true)),
                Ok(None) => {}
                Err(error) => {
                    client.watching = None;
                    client.send_error(&error);
                }
            }
            client.write_out();
        }
        self.bound_output();
    }

    /// When the next watcher is due, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn watcher_due_ns(&self) -> Option<u64> {
        self.clients.iter().filter_map(|client| client.watching.as_ref()).map(|(_, due_ns)| *due_ns).min()
    }

    /// How often the most eager watcher wants to be told, in nanoseconds.
    pub fn watched_every_ns(&self) -> Option<u64> {
        self.clients
            .iter()
            .filter_map(|client| client.watching.as_ref())
            .map(|(watch, _)| watch.every_ns)
            .min()
    }

    /// Whether this caller's connection stands.
    pub fn is_connected(&self, caller_id: u64) -> bool {
        self.clients.iter().any(|client| client.caller.id == caller_id)
    }

    /// Whether anyone listens to the topic.
    pub fn has_listeners(&self, topic: Topic) -> bool {
        self.clients.iter().any(|client| client.monitoring.is_some_and(|(listens_to, _)| listens_to == topic))
    }

    /// Removes the socket. Clients see the connection end.
    pub fn close(self) {
        // Gone already, or not ours to remove: there is nothing better to do on the way out.
        let _ = std::fs::remove_file(&self.path);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    // Most likely out of descriptors: make room, or the listener stays ready and the loop spins.
                    self.drop_one_client();
                    return;
                }
            };
            let admitted = stream.set_nonblocking(true).and_then(|()| (self.identify)(&stream));
            match admitted {
                Ok(caller) => self.clients.push(Client::new(stream, caller, self.turn)),
                Err(error) => tracing::debug!(%error, "a client vanished before it was identified"),
            }
            if self.clients.len() > CLIENTS_MAX {
                self.drop_one_client();
            }
        }
    }

    /// Of the user with the most connections, the one that was silent longest.
    fn drop_one_client(&mut self) {
        let mut per_user: HashMap<u32, usize> = HashMap::new();
        for client in &self.clients {
            *per_user.entry(client.caller.uid).or_default() += 1;
        }
        let most = per_user.into_iter().max_by_key(|&(uid, count)| (count, uid)).map(|(uid, _)| uid);
        let of_most = self.clients.iter().enumerate().filter(|(_, client)| Some(client.caller.uid) == most);
        if let Some((index, client)) = of_most.min_by_key(|(_, client)| client.last_turn) {
            tracing::warn!(pid = client.caller.pid, uid = client.caller.uid, "too many clients: dropped one");
            self.clients.swap_remove(index);
        }
    }

    /// Drops the client for whom the most waits, until no more than the limit waits for all.
    fn bound_output(&mut self) {
        while self.clients.iter().map(|client| client.output.len()).sum::<usize>() > OUTPUT_BYTES_MAX {
            let largest = self.clients.iter().enumerate().max_by_key(|(_, client)| client.output.len());
            let Some((index, _)) = largest else { return };
            let client = self.clients.swap_remove(index);
            tracing::warn!(
                pid = client.caller.pid,
                uid = client.caller.uid,
                "a client does not read: dropped it"
            );
        }
    }
}

impl Client {
    fn new(stream: UnixStream, caller: Caller, turn: u64) -> Self {
        let framer = Framer::new(wire::REQUEST_BYTES_MAX);
        let output = Vec::new();
        Client {
            stream,
            caller,
            framer,
            output,
            waiting: None,
            monitoring: None,
            watching: None,
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
            && self.waiting.is_none()
            && self.monitoring.is_none()
            && self.watching.is_none()
    }

    fn take_turn(&mut self, ready: PollFlags, turn: u64, handle: &mut dyn FnMut(&Caller, Call) -> Answer) {
        if ready.contains(PollFlags::OUT) {
            self.write_out();
        }
        if ready.intersects(PollFlags::ERR | PollFlags::NVAL)
            || (ready.contains(PollFlags::HUP) && !ready.contains(PollFlags::IN))
        {
            self.gone = true;
        }
        if self.gone || !self.wants_input() {
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
        let mut sent = 0;
        while sent < self.output.len() {
            match self.stream.write(&self.output[sent..]) {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(error) => {
                    self.gone |= !is_passing(&error);
                    break;
                }
            }
        }
        self.output.drain(..sent);
        if self.output.is_empty() {
            // A long reply's memory is not kept for as long as the client stays.
            self.output = Vec::new();
            self.gone |= self.closing;
        }
    }

    fn send(&mut self, reply: &Reply) {
        self.output.extend_from_slice(&wire::encode(reply));
    }

    fn send_error(&mut self, error: &ApiError) {
        let (name, parameters) = error.to_wire();
        self.send(&Reply { error: Some(name), parameters, continues: None });
    }

    fn answer(&mut self, message: &[u8], handle: &mut dyn FnMut(&Caller, Call) -> Answer) {
        let call: Call = match serde_json::from_slice(message) {
            Ok(call) => call,
            Err(error) => return self.refuse(&format!("not a varlink call: {error}")),
        };
        self.put(call, handle);
    }

    fn put(&mut self, call: Call, handle: &mut dyn FnMut(&Caller, Call) -> Answer) {
        let oneway = call.oneway == Some(true);
        let more = call.more == Some(true);
        match handle(&self.caller, call.clone()) {
            Answer::Wait => self.waiting = Some(call),
            _ if oneway => {}
            Answer::Reply(parameters) => self.send(&Reply { parameters, ..Reply::default() }),
            Answer::Text(parameters) => {
                self.output.extend_from_slice(&wire::encode_reply(&parameters, false));
            }
            Answer::Error(error) => self.send_error(&error),
            Answer::Watch(_) | Answer::Stream(..) if !more => self.send_error(&ApiError::ExpectedMore),
            Answer::Stream(topic, first) => {
                self.monitoring = Some((topic, 0));
                for parameters in first {
                    self.send(&Reply { parameters, continues: Some(true), error: None });
                }
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
mod tests {
    use super::*;

    /// One text of this many bytes is more than a socket takes.
    const LONG_BYTES: usize = 1 << 20;

    fn watched(server: &mut Server) -> UnixStream {
        let mut client = UnixStream::connect(&server.path).expect("it listens");
        client.write_all(b"{\"method\":\"a.B\",\"more\":true}\0").expect("sent");
        let request = WatchForecasts::default();
        let watch = Watch { request, every_ns: 100, granted: true, told_at_ns: 0 };
        for _ in 0..2 {
            let ready = vec![PollFlags::IN; 1 + server.clients.len()];
            server.take_turn(&ready, &mut |_, _| Answer::Watch(watch.clone()));
        }
        client
    }

    fn server() -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("socket");
        let server = Server::bind(&path, Box::new(crate::peer::from_kernel)).expect("it listens");
        (directory, server)
    }

    #[test]
    fn watchers_are_served_on_a_common_beat() {
        let (_keep, mut server) = server();
        let _clients = [watched(&mut server), watched(&mut server)];
        let mut answers = 0;
        for now_ns in [1030, 1040, 1099, 1100, 1350] {
            server.serve_watchers(now_ns, &mut |_, _| {
                answers += 1;
                Ok(Some("{}".to_owned()))
            });
        }
        assert_eq!((answers, server.watcher_due_ns()), (6, Some(1400)));
    }

    #[test]
    fn one_who_does_not_read_has_at_most_one_reply_waiting() {
        let (_keep, mut server) = server();
        let _client = watched(&mut server);
        let mut answers = 0;
        for beat in 1..1000 {
            server.serve_watchers(beat * 100, &mut |_, _| {
                answers += 1;
                Ok(Some("1".repeat(LONG_BYTES)))
            });
        }
        assert_eq!((answers, server.clients.len()), (1, 1));
        assert!(server.clients[0].output.len() <= LONG_BYTES + 100);
    }

    #[test]
    fn an_error_ends_the_watch_and_not_the_connection() {
        let (_keep, mut server) = server();
        let client = watched(&mut server);
        server.serve_watchers(1, &mut |_, _| Err(ApiError::NoSuchTask { pid: 7 }));
        assert_eq!(server.watcher_due_ns(), None);
        let mut bytes = [0; 200];
        let count = (&client).read(&mut bytes).expect("an answer");
        assert!(String::from_utf8_lossy(&bytes[..count]).contains("io.steward.NoSuchTask"));
        assert!(server.clients[0].wants_input());
    }
}

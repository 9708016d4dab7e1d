//! A blocking client of the daemon.

use std::io::{ErrorKind, Read};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api::{
    ApiError, Availability, Complain, DomainWatched, Forecasts, Method, Monitor, Monitored,
    WatchAvailability, WatchDomains, WatchForecasts,
};
use crate::connect;
use crate::wire::{self, Call, Framer};

/// How long a call waits for its answer: far above what the daemon needs, even on a machine under a fork bomb, and
/// longer than it gives a person to answer polkit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(150);

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens at the socket.
    #[error("cannot reach stewardd at {}: {source}; is it running? (systemctl start stewardd)", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Nobody has the socket that is there.
    #[error(
        "cannot reach stewardd at {}: the one that made this socket has ended; start it again (systemctl start stewardd)",
        path.display()
    )]
    Ended {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon has its socket and does not listen yet.
    #[error(
        "stewardd is starting, and after {} s nobody can connect to {} yet; try again, or see what it does: journalctl -u stewardd",
        waited.as_secs(), path.display()
    )]
    Starting {
        /// The socket.
        path: PathBuf,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// The daemon listens and takes nobody in.
    #[error(
        "stewardd at {} has taken nobody in for 30 s; its log says what it does (journalctl -u stewardd)",
        path.display()
    )]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// The connection broke.
    #[error("the connection to stewardd broke: {0}")]
    Broken(#[from] std::io::Error),
    /// The daemon did not answer in time.
    #[error("stewardd did not answer within {} s; its log says what it does (journalctl -u stewardd)", ANSWER_TIMEOUT.as_secs())]
    Late,
    /// The daemon closed the connection before it answered.
    #[error("stewardd closed the connection without an answer; its log says why (journalctl -u stewardd)")]
    Closed,
    /// The answer is not what the interface says.
    #[error("stewardd answered what this program does not understand ({0}); are they of the same version?")]
    Malformed(String),
    /// The daemon refused, and said why.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    framer: Framer,
}

/// One reply.
struct Received<R> {
    reply: R,
    /// Whether more follow.
    continues: bool,
}

impl Client {
    /// Connects to the daemon's socket, [`crate::SOCKET_PATH`] unless it was told otherwise. Waits for a daemon that is
    /// starting, [`crate::START_TIMEOUT`] at most; where there is none, not at all.
    ///
    /// # Errors
    /// [`Error::Connect`] or [`Error::Ended`] when nobody has the socket, [`Error::Starting`] when it takes longer,
    /// [`Error::Busy`] when the daemon takes nobody in for 30 s.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_within(path, connect::START_TIMEOUT)
    }

    /// As [`Client::connect`], and waits `patience` at most for a daemon that is starting: none for who tries again
    /// anyway.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(path: impl AsRef<Path>, patience: Duration) -> Result<Self, Error> {
        Ok(Self::from_stream(connect::to(path.as_ref(), patience)?))
    }

    /// Uses a socket that is already connected.
    pub fn from_stream(stream: UnixStream) -> Self {
        Client { stream, framer: Framer::new(wire::REPLY_BYTES_MAX) }
    }

    /// Calls a method and waits for its reply, 150 seconds at most: somebody may have to type a password.
    ///
    /// # Errors
    /// [`Error::Api`] when the daemon refused; the others when there was no answer.
    pub fn call<M: Method>(&mut self, method: &M) -> Result<M::Reply, Error> {
        self.call_for(M::NAME, parameters_of(method))
    }

    /// Calls a method by its full name (`io.steward.Status`), with parameters and reply as JSON; for languages that
    /// have no use for the types of [`crate::api`], and for methods that this library does not know.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_by_name(
        &mut self,
        name: &str,
        parameters: Map<String, Value>,
    ) -> Result<Map<String, Value>, Error> {
        self.call_for(name, parameters)
    }

    fn call_for<R: DeserializeOwned>(
        &mut self,
        name: &str,
        parameters: Map<String, Value>,
    ) -> Result<R, Error> {
        self.stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        self.request(name, parameters, None)?;
        match self.receive() {
            Ok(received) => Ok(received.reply),
            // What the kernel calls the end of the time for reading.
            Err(Error::Broken(error)) if error.kind() == ErrorKind::WouldBlock => Err(Error::Late),
            Err(error) => Err(error),
        }
    }

    /// Calls a method that answers with a stream, and gives the replies as they come, without a time limit.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn stream<M: Method>(self, method: &M) -> Result<Events<M::Reply>, Error> {
        self.stream_by_name(M::NAME, parameters_of(method))
    }

    /// As [`Client::stream`], by the method's full name and with parameters as JSON.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn stream_by_name<R>(
        mut self,
        name: &str,
        parameters: Map<String, Value>,
    ) -> Result<Events<R>, Error> {
        self.stream.set_read_timeout(None)?;
        self.request(name, parameters, Some(true))?;
        Ok(Events { client: self, finished: false, reply: PhantomData })
    }

    /// The decisions as they are taken, first those that the daemon remembers when `history` is true.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn monitor(self, history: bool) -> Result<Events<Monitored>, Error> {
        self.stream(&Monitor { history: history.then_some(true) })
    }

    /// The changes among domains as they happen, first the domains that there are when `present` is true.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn watch_domains(self, present: bool) -> Result<Events<DomainWatched>, Error> {
        self.stream(&WatchDomains { present: present.then_some(true) })
    }

    /// The forecasts that `watch` asks for, again and again. Whoever reads slower than they come misses some.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn watch_forecasts(self, watch: &WatchForecasts) -> Result<Events<Forecasts>, Error> {
        self.stream(watch)
    }

    /// How much memory a domain, or that of this process, may use: at once, and then whenever it has changed. Whoever
    /// wants to go on when the daemon starts again has [`crate::availability::Watcher`].
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn watch_availability(self, watch: &WatchAvailability) -> Result<Events<Availability>, Error> {
        self.stream(watch)
    }

    /// Says that this process was too late `missed` times, 1 to 1,000,000, since it last said so: frames, deadlines,
    /// requests. Whoever looks for the right reservation goes by it (`steward tune`). Gives the sum of all its
    /// complaints so far.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn complain(&mut self, missed: u64) -> Result<u64, Error> {
        Ok(self.call(&Complain { missed, of: None })?.complaints)
    }

    fn request(
        &mut self,
        name: &str,
        parameters: Map<String, Value>,
        more: Option<bool>,
    ) -> Result<(), Error> {
        let call = Call { method: name.to_owned(), parameters, more, ..Call::default() };
        let message = wire::encode(&call);
        let mut left = &message[..];
        while !left.is_empty() {
            // Without a signal when the daemon has gone: the program that uses this library may be ended by one.
            match send(&self.stream, left, SendFlags::NOSIGNAL) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::Broken(errno.into())),
            }
        }
        Ok(())
    }

    /// The next reply, and whether more follow. Waits for it.
    fn receive<R: DeserializeOwned>(&mut self) -> Result<Received<R>, Error> {
        loop {
            if let Some(reply) = self.received()? {
                return Ok(reply);
            }
            if let Err(error) = self.read_more() {
                // An answer that comes too late must not be taken for that of the next call.
                let _ = self.stream.shutdown(Shutdown::Both);
                return Err(error);
            }
        }
    }

    /// The next reply if it is here already.
    fn received<R: DeserializeOwned>(&mut self) -> Result<Option<Received<R>>, Error> {
        let Some(message) = self.framer.next_message().map_err(malformed)? else { return Ok(None) };
        // Nearly every reply is one of the method, and a long one is read once only.
        if let Ok(wire::ReplyOf { error: None, parameters: Some(reply), continues }) =
            serde_json::from_slice(&message)
        {
            return Ok(Some(Received { continues: continues == Some(true), reply }));
        }
        let wire::Reply { error, parameters, continues } =
            serde_json::from_slice(&message).map_err(malformed)?;
        if let Some(name) = error {
            return Err(Error::Api(ApiError::from_wire(&name, &parameters)));
        }
        let reply = serde_json::from_value(Value::Object(parameters)).map_err(malformed)?;
        Ok(Some(Received { continues: continues == Some(true), reply }))
    }

    fn read_more(&mut self) -> Result<(), Error> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => {
                    self.framer.push(&chunk[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Broken(error)),
            }
        }
    }
}

impl AsFd for Client {
    /// The socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn parameters_of<M: Method>(method: &M) -> Map<String, Value> {
    match serde_json::to_value(method) {
        Ok(Value::Object(parameters)) => parameters,
        _ => unreachable!("parameters are structs with named fields"),
    }
}

/// The replies to a call with "more": an iterator that waits for each.
///
/// A program with a loop of its own waits for the descriptor ([`AsFd`]) to become readable and then calls
/// [`Events::next_ready`] until that has nothing more to give.
#[derive(Debug)]
pub struct Events<R> {
    client: Client,
    finished: bool,
    reply: PhantomData<R>,
}

impl<R: DeserializeOwned> Events<R> {
    /// The next reply if it is here already, without waiting. `None` until more comes; call it again until it says
    /// so, because several may have come at once.
    ///
    /// # Errors
    /// As [`Client::call`]; [`Error::Closed`] too once the stream has ended.
    pub fn next_ready(&mut self) -> Result<Option<R>, Error> {
        if self.finished {
            return Err(Error::Closed);
        }
        let received = self.receive_ready();
        self.finished = match &received {
            Ok(Some(reply)) => !reply.continues,
            Ok(None) => false,
            Err(_) => true,
        };
        Ok(received?.map(|received| received.reply))
    }

    fn receive_ready(&mut self) -> Result<Option<Received<R>>, Error> {
        loop {
            if let Some(reply) = self.client.received()? {
                return Ok(Some(reply));
            }
            self.client.stream.set_nonblocking(true)?;
            let more = self.client.read_more();
            self.client.stream.set_nonblocking(false)?;
            match more {
                Ok(()) => {}
                Err(Error::Broken(error)) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Malformed(error.to_string())
}

impl<R> AsFd for Events<R> {
    /// Readable when something has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_fd()
    }
}

impl<R: DeserializeOwned> Iterator for Events<R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let received = self.client.receive();
        self.finished = !received.as_ref().is_ok_and(|received| received.continues);
        Some(received.map(|received| received.reply))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn streaming() -> (UnixStream, Events<Map<String, Value>>) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let client = Client::from_stream(ours);
        (theirs, client.stream_by_name("a.B", Map::new()).expect("sent"))
    }

    #[test]
    fn what_has_come_is_given_without_waiting_and_nothing_is_lost_in_between() {
        let (mut daemon, mut events) = streaming();
        assert!(events.next_ready().expect("nothing yet").is_none());
        daemon.write_all(b"{\"parameters\":{\"a\":1},\"continues\":true}\0{\"par").expect("sent");
        assert_eq!(events.next_ready().expect("whole").expect("one")["a"], 1);
        assert!(events.next_ready().expect("half a message").is_none());
        daemon.write_all(b"ameters\":{\"a\":2},\"continues\":true}\0").expect("sent");
        // The blocking form takes over where the other left off.
        assert_eq!(events.next().expect("one").expect("whole")["a"], 2);
        drop(daemon);
        assert!(events.next_ready().is_err());
        assert!(events.next().is_none());
    }

    #[test]
    fn a_daemon_that_has_gone_is_an_error_and_no_signal() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut client = Client::from_stream(ours);
        drop(theirs);
        assert!(matches!(client.call_by_name("a.B", Map::new()), Err(Error::Broken(_))));
    }

    #[test]
    fn a_stream_ends_with_the_reply_that_says_so_or_with_an_error() {
        let (mut daemon, events) = streaming();
        daemon.write_all(b"{\"parameters\":{},\"continues\":true}\0{\"parameters\":{}}\0").expect("sent");
        assert_eq!(events.filter(Result::is_ok).count(), 2);
        let (mut daemon, mut events) = streaming();
        daemon
            .write_all(b"{\"error\":\"io.steward.NoSuchTask\",\"parameters\":{\"pid\":7}}\0")
            .expect("sent");
        assert!(matches!(events.next_ready(), Err(Error::Api(ApiError::NoSuchTask { pid: 7 }))));
        assert!(events.next().is_none());
    }
}

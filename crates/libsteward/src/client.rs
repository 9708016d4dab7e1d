//! A blocking client of the daemon.

use std::io::{Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::api::{ApiError, Method};
use crate::wire::{self, Call, Framer, Reply};

/// How long a call waits for its answer: far above what the daemon needs, even on a machine under a fork bomb.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// The connection broke.
    #[error("the connection to stewardd broke: {0}")]
    Broken(#[from] std::io::Error),
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

impl Client {
    /// Connects to the daemon's socket, [`crate::SOCKET_PATH`] unless it was told otherwise.
    ///
    /// # Errors
    /// [`Error::Connect`] when nobody listens there.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let stream =
            UnixStream::connect(path).map_err(|source| Error::Connect { path: path.to_owned(), source })?;
        Ok(Self::from_stream(stream))
    }

    /// Uses a socket that is already connected.
    pub fn from_stream(stream: UnixStream) -> Self {
        Client { stream, framer: Framer::new(wire::REPLY_BYTES_MAX) }
    }

    /// Calls a method and waits for its reply, 30 seconds at most.
    ///
    /// # Errors
    /// [`Error::Api`] when the daemon refused; the others when there was no answer.
    pub fn call<M: Method>(&mut self, method: &M) -> Result<M::Reply, Error> {
        self.stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        self.send(method, None)?;
        let (reply, _) = self.receive()?;
        Ok(reply)
    }

    /// Calls a method that answers with a stream, and gives the replies as they come, without a time limit.
    ///
    /// # Errors
    /// [`Error::Broken`] when the call could not be sent.
    pub fn stream<M: Method>(mut self, method: &M) -> Result<Events<M::Reply>, Error> {
        self.stream.set_read_timeout(None)?;
        self.send(method, Some(true))?;
        Ok(Events { client: self, finished: false, reply: PhantomData })
    }

    fn send<M: Method>(&mut self, method: &M, more: Option<bool>) -> Result<(), Error> {
        let parameters = match serde_json::to_value(method) {
            Ok(Value::Object(parameters)) => parameters,
            _ => unreachable!("parameters are structs with named fields"),
        };
        let call = Call { method: M::NAME.to_owned(), parameters, more, ..Call::default() };
        Ok(self.stream.write_all(&wire::encode(&call))?)
    }

    /// The next reply, and whether more follow.
    fn receive<R: serde::de::DeserializeOwned>(&mut self) -> Result<(R, bool), Error> {
        let mut chunk = [0; 16 * 1024];
        let message = loop {
            match self.framer.next_message() {
                Ok(Some(message)) => break message,
                Ok(None) => {}
                Err(error) => return Err(Error::Malformed(error.to_string())),
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => self.framer.push(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Broken(error)),
            }
        };
        let reply: Reply =
            serde_json::from_slice(&message).map_err(|error| Error::Malformed(error.to_string()))?;
        if let Some(name) = reply.error {
            return Err(Error::Api(ApiError::from_wire(&name, &reply.parameters)));
        }
        let continues = reply.continues == Some(true);
        let value = serde_json::from_value(Value::Object(reply.parameters))
            .map_err(|error| Error::Malformed(error.to_string()))?;
        Ok((value, continues))
    }
}

/// The replies to a call with "more": an iterator that waits for each.
#[derive(Debug)]
pub struct Events<R> {
    client: Client,
    finished: bool,
    reply: PhantomData<R>,
}

impl<R: serde::de::DeserializeOwned> Iterator for Events<R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        match self.client.receive() {
            Ok((reply, continues)) => {
                self.finished = !continues;
                Some(Ok(reply))
            }
            Err(error) => {
                self.finished = true;
                Some(Err(error))
            }
        }
    }
}

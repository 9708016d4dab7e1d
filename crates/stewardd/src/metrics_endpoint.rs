//! Serves the metrics over HTTP, with threads of its own: the loop waits for no client.
//!
//! A few threads each take one connection at a time, read one request of bounded size within bounded time, and ask the
//! loop for the figures through a bounded queue; a byte in a socket beside it wakes the loop. What was made within the
//! last second is served again without asking, so many clients cost the loop no more than one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use steward_core::config::MetricsAddress;

use crate::daemon::Daemon;
use crate::metrics::{Figures, text};
use crate::troubles::Topic;

/// How many connections are served at once; others wait in the kernel's queue.
const THREADS: usize = 2;
/// The longest request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// How long a client may take to send its request, and to take the answer.
const CLIENT_WITHIN: Duration = Duration::from_secs(2);
/// How long the loop may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// For how long the same text is served.
const FRESH_FOR: Duration = Duration::from_secs(1);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The endpoint as the loop sees it: there is one, or none.
#[derive(Default)]
pub struct Metrics {
    wanted: Option<MetricsAddress>,
    endpoint: Option<Endpoint>,
}

impl Metrics {
    /// Does what the configuration says now, to be called in each turn. Where that cannot be, the daemon does all else, and
    /// `status` says why until the configuration says something else.
    pub fn follow(&mut self, daemon: &mut Daemon) {
        if daemon.settings.config.metrics == self.wanted {
            return;
        }
        // Ended before the next begins: it may be on the same port.
        self.endpoint = None;
        self.wanted = daemon.settings.config.metrics.clone();
        let started = self.wanted.as_ref().map(Endpoint::start).transpose();
        let trouble = started.as_ref().err().map(|error| format!("no metrics are served: {error:#}"));
        daemon.troubles.set(Topic::Metrics, trouble.into_iter().collect());
        self.endpoint = started.ok().flatten();
        if let Some(endpoint) = &self.endpoint {
            tracing::info!(decision = "metrics", "metrics are at {}", endpoint.address);
        }
    }

    /// Readable when somebody asks.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.as_ref().map(|endpoint| endpoint.woken.as_fd())
    }

    /// Where it listens, if it does: with the port that the kernel chose for port 0.
    pub fn address(&self) -> Option<&MetricsAddress> {
        self.endpoint.as_ref().map(|endpoint| &endpoint.address)
    }

    /// Answers those who ask.
    pub fn take_turn(&mut self, figures: &mut dyn FnMut() -> Figures) {
        let Some(endpoint) = &self.endpoint else { return };
        // First the bytes: a question that comes after this wakes the loop again.
        let mut bytes = [0; 64];
        while matches!((&endpoint.woken).read(&mut bytes), Ok(count) if count > 0) {}
        let questions: Vec<SyncSender<Figures>> = endpoint.questions.try_iter().collect();
        if questions.is_empty() {
            return;
        }
        let figures = figures();
        for question in questions {
            // It has room for one, and whoever gave up waiting needs none.
            let _ = question.try_send(figures.clone());
        }
    }
}

/// A listener with its threads. Ends them when dropped.
struct Endpoint {
    address: MetricsAddress,
    questions: Receiver<SyncSender<Figures>>,
    woken: UnixStream,
    /// Closed, it ends the threads.
    stop: Option<UnixStream>,
    threads: Vec<JoinHandle<()>>,
    /// The socket's file, to be removed.
    path: Option<PathBuf>,
}

impl Endpoint {
    fn start(address: &MetricsAddress) -> anyhow::Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        let (woken, wake) = UnixStream::pair().context("cannot make a pair of sockets")?;
        let (stop, stopped) = UnixStream::pair().context("cannot make a pair of sockets")?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let (sender, questions) = sync_channel(THREADS);
        let front = Arc::new(Front { questions: sender, wake, stopped, fresh: Mutex::default() });
        let address = listener.address().unwrap_or_else(|| address.clone());
        let threads = (0..THREADS).map(|_| {
            let (listener, front) = (listener.clone(), front.clone());
            std::thread::spawn(move || front.serve(&listener))
        });
        let path = match &address {
            MetricsAddress::Unix(path) => Some(path.clone()),
            MetricsAddress::Tcp(_) => None,
        };
        Ok(Endpoint { threads: threads.collect(), address, questions, woken, stop: Some(stop), path })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Those who wait for the loop are told that there will be no answer.
        let (_, nobody) = sync_channel(0);
        drop(std::mem::replace(&mut self.questions, nobody));
        self.stop = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn bind(address: &MetricsAddress) -> anyhow::Result<Self> {
        let listener = match address {
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).with_context(|| {
                    format!(
                        "cannot listen at {address} (a service that systemd confines to AF_UNIX needs \
                         RestrictAddressFamilies=AF_INET AF_INET6 in systemctl edit stewardd)"
                    )
                })?;
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
            MetricsAddress::Unix(path) => Listener::Unix(bind_unix(path)?, path.clone()),
        };
        Ok(listener)
    }

    fn address(&self) -> Option<MetricsAddress> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok().map(MetricsAddress::Tcp),
            Listener::Unix(_, path) => Some(MetricsAddress::Unix(path.clone())),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// The next client, if one waits.
    fn accept(&self) -> io::Result<Box<dyn Client>> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Box::new(stream))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// A socket that only root may open; one that a killed daemon left is replaced.
fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    let left_over = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if left_over && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)
            .with_context(|| format!("cannot remove the old socket {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A connection.
trait Client: Read + Write {
    fn allow(&self, time: Duration) -> io::Result<()>;
    fn finish(&self);
}

impl Client for TcpStream {
    fn allow(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Client for UnixStream {
    fn allow(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn finish(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// What the threads share.
struct Front {
    questions: SyncSender<SyncSender<Figures>>,
    wake: UnixStream,
    stopped: UnixStream,
    fresh: Mutex<Option<(Instant, Arc<String>)>>,
}

impl Front {
    /// Serves one client after another, until told to stop.
    fn serve(&self, listener: &Listener) {
        loop {
            let mut ready = [
                PollFd::new(&self.stopped, PollFlags::IN),
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return tracing::error!(%errno, "no metrics are served any more"),
            }
            if !ready[0].revents().is_empty() {
                return;
            }
            // Another thread may have been quicker; a client that has gone, or is too slow, is no concern of ours.
            if let Ok(mut client) = listener.accept() {
                let _ = self.answer(client.as_mut());
            }
        }
    }

    fn answer(&self, client: &mut dyn Client) -> io::Result<()> {
        let reply = match read_request(client)? {
            Request::Metrics { with_body } => match self.text() {
                Some(text) => reply("200 OK", CONTENT_TYPE, &text, with_body),
                None => plain("503 Service Unavailable", "stewardd did not answer in time"),
            },
            Request::Elsewhere => plain("404 Not Found", "the metrics are at /metrics"),
            Request::OtherMethod => {
                plain("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD are possible")
            }
            Request::TooLong => plain("431 Request Header Fields Too Large", "the request is too long"),
            Request::Garbage => plain("400 Bad Request", "this is no HTTP request"),
        };
        client.allow(CLIENT_WITHIN)?;
        client.write_all(reply.as_bytes())?;
        client.finish();
        Ok(())
    }

    /// The metrics, no older than a second. `None` when the loop does not answer.
    fn text(&self) -> Option<Arc<String>> {
        // One thread asks, the other waits for it here.
        let mut fresh = self.fresh.lock().ok()?;
        if let Some((_, text)) = fresh.as_ref().filter(|(made, _)| made.elapsed() < FRESH_FOR) {
            return Some(text.clone());
        }
        let (answer, answered) = sync_channel(1);
        self.questions.try_send(answer).ok()?;
        // A full socket has woken the loop already.
        let _ = (&self.wake).write(b"x");
        let made = Arc::new(text(&answered.recv_timeout(ANSWER_WITHIN).ok()?));
        *fresh = Some((Instant::now(), made.clone()));
        Some(made)
    }
}

/// What a client wants.
#[derive(Debug, PartialEq)]
enum Request {
    Metrics { with_body: bool },
    Elsewhere,
    OtherMethod,
    TooLong,
    Garbage,
}

/// Reads up to the empty line that ends a request's head.
fn read_request(client: &mut dyn Client) -> io::Result<Request> {
    let until = Instant::now() + CLIENT_WITHIN;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.allow(left)?;
        match client.read(&mut bytes) {
            Ok(0) => return Ok(Request::Garbage),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if head.len() > REQUEST_BYTES_MAX {
            return Ok(Request::TooLong);
        }
    }
    Ok(parse_request(&head))
}

/// What the head of a request asks for.
fn parse_request(head: &[u8]) -> Request {
    let line = head.split(|byte| *byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok());
    let parts: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [method, target, version] = parts[..] else { return Request::Garbage };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !target.starts_with('/') {
        return Request::Garbage;
    }
    let is_metrics = target.split('?').next() == Some("/metrics");
    match method {
        "GET" | "HEAD" if is_metrics => Request::Metrics { with_body: method == "GET" },
        "GET" | "HEAD" => Request::Elsewhere,
        _ => Request::OtherMethod,
    }
}

fn plain(status: &str, text: &str) -> String {
    reply(status, "text/plain; charset=utf-8", &format!("{text}\n"), true)
}

fn reply(status: &str, content_type: &str, text: &str, with_body: bool) -> String {
    let body = if with_body { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        text.len()
    )
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;

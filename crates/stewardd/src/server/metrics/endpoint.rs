//! Serves the metrics over HTTP, with a thread of its own: the loop waits for no client, and no client for another.
//!
//! The thread takes all connections in turn, reads from each one request of bounded size, and asks the loop for the
//! figures with a byte in a socket. Each connection has one deadline for all of that, whatever it sends when; where
//! there are too many, the one goes that has let its request be waited for longest. What was made within the last
//! second is served again without asking, so many clients cost the loop no more than one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steward_core::config::MetricsAddress;

use crate::daemon::Daemon;
use crate::health::Topic;
use crate::server::metrics::{Figures, prometheus_text, text};
use crate::turn::front::{self, Inbox, Outlet};

/// How many connections there can be at once.
const CONNECTIONS_MAX: usize = 32;
/// How many are accepted before others are looked at.
const ACCEPTS_PER_TURN: usize = 16;
/// The longest request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 8192;
/// How long a client may take to send its request, from when it connected.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// How long the loop may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a client may take to read the answer.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// For how long the same text is served.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Asked for with `Accept`, as Prometheus does.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For everybody else: Prometheus' own text format, which is what its tools take.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The endpoint as the loop sees it: there is one, or none.
#[derive(Default)]
pub struct Metrics {
    wanted: Option<MetricsAddress>,
    endpoint: Option<Endpoint>,
}

impl Metrics {
    /// Does what the configuration says now, to be called in each turn. Where that cannot be, the daemon does all else,
    /// and `status` says why until the configuration says something else.
    pub fn follow(&mut self, daemon: &mut Daemon) {
        if daemon.settings.config.metrics == self.wanted {
            return;
        }
        // Closed before the next begins: it may be on the same port.
        self.endpoint = None;
        self.wanted = daemon.settings.config.metrics.clone();
        let started = self.wanted.as_ref().map(Endpoint::start).transpose();
        let problem = started.as_ref().err().map(|error| format!("no metrics are served: {error:#}"));
        daemon.health.set(Topic::Metrics, problem.into_iter().collect());
        self.endpoint = started.ok().flatten();
        if let Some(endpoint) = &self.endpoint {
            tracing::info!(decision = "metrics", "metrics are at {}", endpoint.address);
        }
    }

    /// Readable when somebody asks.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.as_ref().map(|endpoint| endpoint.asked.bell().as_fd())
    }

    /// Where it listens, if it does: with the port that the kernel chose for port 0.
    pub fn address(&self) -> Option<&MetricsAddress> {
        self.endpoint.as_ref().map(|endpoint| &endpoint.address)
    }

    /// Answers when the thread asks, with the figures for who can read them at this address.
    pub fn take_turn(&mut self, figures: &mut dyn FnMut(&MetricsAddress) -> Figures) {
        let Some(endpoint) = &self.endpoint else { return };
        if endpoint.asked.take().is_empty() {
            return;
        }
        // It asks for one at a time, and there is room for one.
        let _ = endpoint.answers.try_send(figures(&endpoint.address));
        endpoint.asked.bell().ring();
    }
}

/// A listener with its thread. Ends it when dropped, without waiting for that.
struct Endpoint {
    address: MetricsAddress,
    listener: Arc<Listener>,
    answers: SyncSender<Figures>,
    /// The thread asks; its bell rings when there is an answer. Closed, it ends the thread.
    asked: Inbox<()>,
    /// The socket's file, to be removed.
    path: Option<PathBuf>,
}

impl Endpoint {
    fn start(address: &MetricsAddress) -> anyhow::Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        // One question is enough for all who wait.
        let (asked, asking) = front::queue(1)?;
        let (answers, answered) = sync_channel(1);
        let address = listener.address().unwrap_or_else(|| address.clone());
        let mut front = Front {
            listener: listener.clone(),
            asking,
            answered,
            asked: None,
            fresh: None,
            open: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("metrics".into());
        thread.spawn(move || front.serve()).context("cannot start a thread")?;
        let path = match &address {
            MetricsAddress::Unix(path) => Some(path.clone()),
            MetricsAddress::Tcp(_) => None,
        };
        Ok(Endpoint { address, listener, answers, asked, path })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The thread may hold on to the listener for a moment; its address is free at once.
        self.listener.close();
        self.asked.bell().close();
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

    /// Nobody can connect any more.
    fn close(&self) {
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Both);
    }

    /// The next client, if one waits.
    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Listener::Tcp(listener) => Stream::Tcp(listener.accept()?.0),
            Listener::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
        };
        stream.set_nonblocking()?;
        Ok(stream)
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

/// One end of a connection.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn finish(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

/// How far a connection is.
enum Step {
    /// The request comes.
    Asking { head: Vec<u8> },
    /// The loop is asked.
    Waiting { form: Form },
    /// The reply goes.
    Answered { reply: Vec<u8>, sent: usize },
    /// All is done, or it has broken.
    Over,
}

/// A connection.
struct Connection {
    stream: Stream,
    step: Step,
    /// When the step has to be done.
    until: Instant,
}

impl Connection {
    fn new(stream: Stream, now: Instant) -> Self {
        Connection { stream, step: Step::Asking { head: Vec::new() }, until: now + REQUEST_WITHIN }
    }

    fn interest(&self) -> PollFlags {
        match self.step {
            Step::Asking { .. } => PollFlags::IN,
            Step::Answered { .. } => PollFlags::OUT,
            Step::Waiting { .. } | Step::Over => PollFlags::empty(),
        }
    }

    /// Reads what has come; the request once it is whole.
    fn read(&mut self) -> Option<Request> {
        let Step::Asking { head } = &mut self.step else { return None };
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Some(Request::Garbage),
                Ok(count) => head.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.step = Step::Over;
                    return None;
                }
            }
            if head.windows(4).any(|end| end == b"\r\n\r\n") {
                return Some(parse_request(head));
            }
            if head.len() > REQUEST_BYTES_MAX {
                return Some(Request::TooLong);
            }
        }
    }

    fn reply(&mut self, reply: String, now: Instant) {
        self.step = Step::Answered { reply: reply.into_bytes(), sent: 0 };
        self.until = now + READ_WITHIN;
        self.write();
    }

    fn write(&mut self) {
        let Step::Answered { reply, sent } = &mut self.step else { return };
        while *sent < reply.len() {
            match self.stream.write(&reply[*sent..]) {
                Ok(count) if count > 0 => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => break,
            }
        }
        self.stream.finish();
        self.step = Step::Over;
    }
}

/// What the thread has.
struct Front {
    listener: Arc<Listener>,
    asking: Outlet<()>,
    answered: Receiver<Figures>,
    /// When the loop was asked, while it has not answered.
    asked: Option<Instant>,
    fresh: Option<(Instant, Arc<Texts>)>,
    /// Oldest first.
    open: Vec<Connection>,
}

impl Front {
    /// Serves all clients, until told to stop.
    fn serve(&mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return tracing::error!(%errno, "no metrics are served any more"),
            };
            // Closed: there is no loop any more.
            if ready[0].intersects(PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            if self.asking.bell().has_rung() {
                self.take_answer();
            }
            for (connection, ready) in self.open.iter_mut().zip(&ready[2..]) {
                if !ready.is_empty() {
                    connection.write();
                }
            }
            self.read_requests();
            self.end_late();
            if !ready[1].is_empty() {
                self.accept();
            }
        }
    }

    fn wait(&self) -> rustix::io::Result<Vec<PollFlags>> {
        let mut waiting = vec![
            PollFd::new(self.asking.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        for connection in &self.open {
            waiting.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), connection.interest()));
        }
        let soonest = self.open.iter().map(|connection| connection.until).min();
        let left = soonest.map(|until| until.saturating_duration_since(Instant::now()));
        // Up to the next millisecond, so that it is over when the wait is.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        poll(&mut waiting, left.as_ref())?;
        Ok(waiting.iter().map(PollFd::revents).collect())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Ok(stream) = self.listener.accept() else { break };
            if self.open.len() >= CONNECTIONS_MAX {
                let asking = self.open.iter().position(|open| matches!(open.step, Step::Asking { .. }));
                self.open.remove(asking.unwrap_or(0));
            }
            self.open.push(Connection::new(stream, Instant::now()));
            // Most have sent it already, and are answered whoever comes next.
            self.read_requests();
        }
    }

    fn read_requests(&mut self) {
        let now = Instant::now();
        let text = self.fresh.as_ref().filter(|(made, _)| now.duration_since(*made) < FRESH_FOR);
        let text = text.map(|(_, text)| Arc::clone(text));
        let mut wants_figures = false;
        for connection in &mut self.open {
            match connection.read() {
                None => {}
                Some(Request::Metrics(form)) => match &text {
                    Some(text) => connection.reply(text.reply(form), now),
                    None => {
                        connection.step = Step::Waiting { form };
                        connection.until = now + ANSWER_WITHIN;
                        wants_figures = true;
                    }
                },
                Some(other) => connection.reply(refusal(&other), now),
            }
        }
        if wants_figures && self.asked.is_none_or(|asked| now.duration_since(asked) >= ANSWER_WITHIN) {
            self.asked = Some(now);
            // With no room the loop has been asked already.
            let _ = self.asking.put(());
        }
        self.open.retain(|connection| !matches!(connection.step, Step::Over));
    }

    fn take_answer(&mut self) {
        let Ok(figures) = self.answered.try_recv() else { return };
        self.asked = None;
        let (text, now) = (Arc::new(Texts::new(text(&figures))), Instant::now());
        for connection in &mut self.open {
            if let Step::Waiting { form } = connection.step {
                connection.reply(text.reply(form), now);
            }
        }
        self.fresh = Some((now, text));
    }

    /// Ends what has taken too long.
    fn end_late(&mut self) {
        let now = Instant::now();
        for connection in self.open.iter_mut().filter(|connection| connection.until <= now) {
            match connection.step {
                Step::Waiting { .. } => {
                    connection
                        .reply(plain("503 Service Unavailable", "stewardd did not answer in time"), now);
                }
                _ => connection.step = Step::Over,
            }
        }
        self.open.retain(|connection| !matches!(connection.step, Step::Over));
    }
}

/// What a client is told whose request is not for the metrics.
fn refusal(request: &Request) -> String {
    match request {
        Request::Metrics(_) | Request::Elsewhere => plain("404 Not Found", "the metrics are at /metrics"),
        Request::OtherMethod => {
            plain("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD are possible")
        }
        Request::TooLong => plain("431 Request Header Fields Too Large", "the request is too long"),
        Request::Garbage => plain("400 Bad Request", "this is no HTTP request"),
    }
}

/// The same metrics in two formats.
struct Texts {
    open_metrics: String,
    prometheus: String,
}

impl Texts {
    fn new(open_metrics: String) -> Self {
        Texts { prometheus: prometheus_text(&open_metrics), open_metrics }
    }

    fn reply(&self, form: Form) -> String {
        let (content_type, text) = match form.open_metrics {
            true => (OPEN_METRICS, &self.open_metrics),
            false => (PROMETHEUS, &self.prometheus),
        };
        reply("200 OK", content_type, text, form.with_body)
    }
}

/// How a client wants the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    open_metrics: bool,
    with_body: bool,
}

/// What a client wants.
#[derive(Debug, PartialEq)]
enum Request {
    Metrics(Form),
    Elsewhere,
    OtherMethod,
    TooLong,
    Garbage,
}

/// What the head of a request asks for.
fn parse_request(head: &[u8]) -> Request {
    let Ok(head) = std::str::from_utf8(head) else { return Request::Garbage };
    let mut lines = head.split("\r\n");
    let parts: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = parts[..] else { return Request::Garbage };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !target.starts_with('/') {
        return Request::Garbage;
    }
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    let open_metrics = headers.any(|(name, value)| {
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    });
    let is_metrics = target.split('?').next() == Some("/metrics");
    match method {
        "GET" | "HEAD" if is_metrics => Request::Metrics(Form { open_metrics, with_body: method == "GET" }),
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
mod tests;

//! One HTTP request over a socket that never blocks, for a program that waits for many of them at once.

use std::io::{Error, Result};
use std::net::SocketAddrV4;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits for the descriptor.
    Waiting,
    /// The whole answer is here, with this status.
    Answered(u16),
    /// There will be no answer: the connection was refused or broken, or what came is not HTTP.
    Failed,
}

/// A request that was begun: a connection of its own (`Connection: close`), as `ab` without `-k` makes it.
#[derive(Debug)]
pub struct Request {
    descriptor: i32,
    /// What is still to be sent.
    unsent: Vec<u8>,
    /// The first bytes of the answer.
    head: Vec<u8>,
}

/// `HTTP/1.1 200`, with its blank.
const STATUS_LINE_BYTES: usize = 12;

impl Request {
    /// Begins to ask `address` for `path`.
    ///
    /// # Errors
    /// The kernel's, when there is no descriptor or the connection is refused at once.
    pub fn begin(address: SocketAddrV4, path: &str) -> Result<Request> {
        // SAFETY: plain numbers.
        let descriptor = unsafe {
            libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
        };
        if descriptor < 0 {
            return Err(Error::last_os_error());
        }
        let unsent =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").into_bytes();
        let request = Request { descriptor, unsent, head: Vec::new() };
        // SAFETY: a structure of plain numbers, for which zero is a value.
        let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        name.sin_family = libc::AF_INET as libc::sa_family_t;
        name.sin_port = address.port().to_be();
        name.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        // SAFETY: `name` is as long as it says.
        let result = unsafe { libc::connect(descriptor, (&raw const name).cast(), length) };
        match (result, Error::last_os_error()) {
            (0, _) => Ok(request),
            (_, error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(request),
            (_, error) => Err(error),
        }
    }

    /// What to wait for.
    pub fn interest(&self) -> libc::pollfd {
        let events = if self.unsent.is_empty() { libc::POLLIN } else { libc::POLLOUT };
        libc::pollfd { fd: self.descriptor, events, revents: 0 }
    }

    /// Goes on after the descriptor became ready.
    pub fn advance(&mut self) -> Progress {
        if !self.unsent.is_empty() {
            return self.send();
        }
        let mut chunk = [0u8; 16 * 1024];
        loop {
            // SAFETY: the buffer is as long as it says.
            let count = unsafe { libc::recv(self.descriptor, chunk.as_mut_ptr().cast(), chunk.len(), 0) };
            match count {
                0 => return self.status().map_or(Progress::Failed, Progress::Answered),
                1.. => {
                    let missing = STATUS_LINE_BYTES.saturating_sub(self.head.len());
                    self.head.extend_from_slice(&chunk[..missing.min(count as usize)]);
                }
                _ => return waiting_or_failed(),
            }
        }
    }

    fn send(&mut self) -> Progress {
        let (bytes, length) = (self.unsent.as_ptr().cast(), self.unsent.len());
        // SAFETY: the bytes are as many as it says.
        let count = unsafe { libc::send(self.descriptor, bytes, length, libc::MSG_NOSIGNAL) };
        if count < 0 {
            return waiting_or_failed();
        }
        self.unsent.drain(..count as usize);
        Progress::Waiting
    }

    /// The number in `HTTP/1.1 200`.
    fn status(&self) -> Option<u16> {
        let text = std::str::from_utf8(&self.head).ok()?;
        text.strip_prefix("HTTP/")?.split_once(' ')?.1.parse().ok()
    }
}

fn waiting_or_failed() -> Progress {
    match Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Progress::Waiting,
        _ => Progress::Failed,
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this request's own.
        unsafe { libc::close(self.descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    /// Asks a server that answers with `answer` and then closes.
    fn answer_to(answer: &'static str) -> Progress {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let SocketAddr::V4(address) = listener.local_addr().expect("its address") else { panic!("not IPv4") };
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0u8; 5];
            stream.read_exact(&mut asked).expect("a request");
            assert_eq!(&asked, b"GET /");
            // The rest is read too: what is unread at the end would break the connection instead of closing it.
            let mut rest = [0u8; 512];
            let _ = stream.read(&mut rest).expect("the rest");
            stream.write_all(answer.as_bytes()).expect("sent");
        });
        let mut request = Request::begin(address, "/a").expect("begun");
        let progress = loop {
            let mut interest = request.interest();
            // SAFETY: one descriptor.
            unsafe { libc::poll(&raw mut interest, 1, -1) };
            match request.advance() {
                Progress::Waiting => {}
                progress => break progress,
            }
        };
        server.join().expect("the server");
        progress
    }

    #[test]
    fn an_answer_is_whole_when_the_server_closes_and_has_a_status() {
        assert_eq!(answer_to("HTTP/1.1 200 OK\r\n\r\nhello"), Progress::Answered(200));
        assert_eq!(answer_to("HTTP/1.1 503 Busy\r\n\r\n"), Progress::Answered(503));
    }

    #[test]
    fn what_is_not_http_or_nothing_at_all_is_a_failure() {
        assert_eq!(answer_to("hello, this is no HTTP"), Progress::Failed);
        assert_eq!(answer_to(""), Progress::Failed);
    }
}

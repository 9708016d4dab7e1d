//! A daemon that a test plays: who connects is served as the test says. Tests of other crates include this file too.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use libsteward::ApiError;
use libsteward::wire::{self, Call, Framer, Reply};
use serde_json::{Map, Value};

/// Listens at the path, and has each client served in a thread of its own, which ends with its connection.
pub fn serve(socket: &Path, client: impl Fn(Connection) + Clone + Send + 'static) {
    let listener = UnixListener::bind(socket).expect("nobody listens there yet");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let client = client.clone();
            std::thread::spawn(move || client(Connection::new(stream)));
        }
    });
}

/// Tells the first one who calls the method what is sent, until the sender or that client has gone; all else is
/// answered with an error.
pub fn feed<T: serde::Serialize + Send + 'static>(socket: &Path, method: &'static str) -> Sender<T> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    serve(socket, move |mut client| {
        while let Some(call) = client.next_call() {
            let is_meant = call.method == method;
            match is_meant.then(|| receiver.lock().expect("no panic").take()).flatten() {
                None => client.answer(Err(ApiError::MethodNotFound { method: call.method })),
                Some(receiver) => return while receiver.recv().is_ok_and(|told: T| client.tell(&told)) {},
            };
        }
    });
    sender
}

/// A client.
pub struct Connection {
    pub stream: UnixStream,
    framer: Framer,
}

impl Connection {
    /// Of a client that has connected.
    pub fn new(stream: UnixStream) -> Self {
        Connection { stream, framer: Framer::new(wire::REQUEST_BYTES_MAX) }
    }

    /// The next call, waited for; none when the client has gone.
    pub fn next_call(&mut self) -> Option<Call> {
        loop {
            if let Some(message) = self.framer.next_message().expect("short calls") {
                return Some(serde_json::from_slice(&message).expect("calls are JSON"));
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(count) if count > 0 => self.framer.push(&chunk[..count]),
                _ => return None,
            }
        }
    }

    /// The only reply to a call; whether the client takes it.
    pub fn answer(&mut self, outcome: Result<Map<String, Value>, ApiError>) -> bool {
        self.send(&match outcome {
            Ok(parameters) => Reply { parameters, ..Reply::default() },
            Err(error) => {
                let (error, parameters) = error.to_wire();
                Reply { error: Some(error), parameters, ..Reply::default() }
            }
        })
    }

    /// One of many replies; whether the client takes it.
    pub fn tell(&mut self, reply: &impl serde::Serialize) -> bool {
        self.send(&Reply { parameters: parameters(reply), continues: Some(true), error: None })
    }

    fn send(&mut self, reply: &Reply) -> bool {
        self.stream.write_all(&wire::encode(reply)).is_ok()
    }
}

/// A reply's parameters.
pub fn parameters(reply: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(reply) {
        Ok(Value::Object(map)) => map,
        other => panic!("replies are structs: {other:?}"),
    }
}

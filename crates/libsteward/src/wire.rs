//! Varlink's envelope and framing: one JSON object per message, a NUL byte after each.
//!
//! Why not a varlink library: the daemon serves anyone on the machine from one loop and must not be disturbed
//! by any of them. Of the two there are, `zlink` (0.8) knows the peer's credentials, but its server awaits each
//! reply inside its only loop, so that a client which stops reading stops everybody, and it lets each connection
//! buffer 100 MB; `varlink` (13) takes a thread per connection. Both bounds are fixed. The framing is a page,
//! and client and daemon share it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest message that the daemon accepts, in bytes without the NUL.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// The longest reply that the client accepts, in bytes without the NUL: a status with 65,536 tasks fits.
pub const REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A method call as it travels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Interface and method, `io.steward.Status`.
    pub method: String,
    /// The parameters by name.
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "null_as_empty")]
    pub parameters: Map<String, Value>,
    /// The caller expects any number of replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
    /// The caller expects no reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oneway: Option<bool>,
    /// The caller wants to speak another protocol on this connection afterwards; Steward has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<bool>,
}

/// A reply as it travels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The error's full name, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is returned, by name.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub parameters: Map<String, Value>,
    /// More replies to the same call follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<bool>,
}

/// A reply whose parameters are what the method returns.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
pub struct ReplyOf<R> {
    /// As in [`Reply`].
    #[serde(default)]
    pub error: Option<serde::de::IgnoredAny>,
    /// As in [`Reply`]; `None` where there are none.
    #[serde(default)]
    pub parameters: Option<R>,
    /// As in [`Reply`].
    #[serde(default)]
    pub continues: Option<bool>,
}

/// Some implementations send `null` where there are no parameters.
fn null_as_empty<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Map<String, Value>, D::Error> {
    Ok(Option::<Map<String, Value>>::deserialize(input)?.unwrap_or_default())
}

/// A message grew past the limit before its end came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit, in bytes.
    pub limit: usize,
}

/// Cuts a stream of bytes into messages. Holds at most one unfinished message and what came in with it.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that are known to hold no NUL.
    scanned: usize,
    limit: usize,
}

impl Framer {
    /// A framer that refuses messages longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Framer { buffer: Vec::new(), scanned: 0, limit }
    }

    /// Takes in what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message without its NUL, or `None` until more is read.
    ///
    /// # Errors
    /// [`TooLong`] once the message at the front has passed the limit; the stream cannot be used after that.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.buffer[self.scanned..].iter().position(|&byte| byte == 0).map(|at| at + self.scanned);
        if end.unwrap_or(self.buffer.len()) > self.limit {
            return Err(TooLong { limit: self.limit });
        }
        let Some(end) = end else {
            self.scanned = self.buffer.len();
            return Ok(None);
        };
        let rest = self.buffer.split_off(end + 1);
        let mut message = std::mem::replace(&mut self.buffer, rest);
        message.pop();
        self.scanned = 0;
        Ok(Some(message))
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether a whole message waits (or one that is too long, which [`Framer::next_message`] will refuse).
    pub fn has_message(&self) -> bool {
        self.buffer.len() > self.limit || self.buffer[self.scanned..].contains(&0)
    }
}

/// The bytes of a message, NUL included.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Calls and replies are maps with string keys and finite or null numbers: serialising them cannot fail.
    let mut bytes = serde_json::to_vec(message).expect("calls and replies are plain JSON");
    bytes.push(0);
    bytes
}

/// What goes before and after the parameters of a reply that are JSON already, NUL included.
pub fn around_reply(continues: bool) -> (&'static str, &'static str) {
    (r#"{"parameters":"#, if continues { ",\"continues\":true}\0" } else { "}\0" })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_were_cut() {
        let mut framer = Framer::new(10);
        for byte in b"one\0two\0\0thr" {
            framer.push(&[*byte]);
        }
        assert_eq!(framer.next_message().unwrap().unwrap(), b"one");
        assert_eq!(framer.next_message().unwrap().unwrap(), b"two");
        assert_eq!(framer.next_message().unwrap().unwrap(), b"");
        assert_eq!(framer.next_message().unwrap(), None);
        assert!(!framer.has_message());
        framer.push(b"ee\0");
        assert!(framer.has_message());
        assert_eq!(framer.next_message().unwrap().unwrap(), b"three");
    }

    #[test]
    fn a_message_past_the_limit_is_refused_whether_or_not_its_end_came() {
        let mut framer = Framer::new(4);
        framer.push(b"four\0");
        assert_eq!(framer.next_message().unwrap().unwrap(), b"four");
        framer.push(b"five+");
        assert_eq!(framer.next_message(), Err(TooLong { limit: 4 }));
        let mut framer = Framer::new(4);
        framer.push(b"five+\0");
        assert_eq!(framer.next_message(), Err(TooLong { limit: 4 }));
    }

    #[test]
    fn a_reply_that_was_written_as_text_reads_as_any_other() {
        for continues in [false, true] {
            let (before, after) = around_reply(continues);
            let mut bytes = [before, r#"{"a":[1,2]}"#, after].concat().into_bytes();
            assert_eq!(bytes.pop(), Some(0));
            let reply: Reply = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(
                (reply.parameters["a"][1].as_u64(), reply.continues == Some(true)),
                (Some(2), continues)
            );
            let of_method: ReplyOf<HashMap<String, [u8; 2]>> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(of_method.parameters.unwrap()["a"], [1, 2]);
            assert_eq!(of_method.continues == Some(true), continues);
        }
    }

    #[test]
    fn null_parameters_are_no_parameters() {
        let call: Call = serde_json::from_str(r#"{"method":"a.B","parameters":null}"#).unwrap();
        assert!(call.parameters.is_empty());
        assert_eq!(encode(&call), b"{\"method\":\"a.B\"}\0");
    }
}

//! Groups of senders and receivers over socket pairs, the traffic that hackbench made common.
//!
//! `message-groups --groups 2 --pairs 5 --messages 200`
//!
//! In each group every sender writes `messages` messages of 100 bytes to every receiver.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use steward_lab_workloads::{clock, number, output, process};

const MESSAGE_BYTES: usize = 100;

fn parse() -> Result<(usize, usize, usize), lexopt::Error> {
    use lexopt::prelude::*;
    let (mut groups, mut pairs, mut messages) = (2, 5, 200);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("groups") => groups = number(&mut parser)?,
            Long("pairs") => pairs = number(&mut parser)?,
            Long("messages") => messages = number(&mut parser)?,
            other => return Err(other.unexpected()),
        }
    }
    Ok((groups, pairs, messages))
}

fn receive(mut from: UnixStream, bytes: usize) {
    let mut message = [0u8; MESSAGE_BYTES];
    let mut seen = 0;
    while seen < bytes {
        match from.read(&mut message) {
            Ok(count) if count > 0 => seen += count,
            _ => return,
        }
    }
}

fn send(to: &mut [UnixStream], messages: usize) {
    let message = [b'm'; MESSAGE_BYTES];
    for _ in 0..messages {
        for receiver in to.iter_mut() {
            if receiver.write_all(&message).is_err() {
                return;
            }
        }
    }
}

fn main() -> anyhow::Result<()> {
    let (groups, pairs, messages) = parse()?;
    let (gate, opener) = process::pipe()?;
    let mut children = Vec::new();
    for _ in 0..groups {
        let mut senders_ends = Vec::new();
        for _ in 0..pairs {
            let (mine, theirs) = UnixStream::pair()?;
            senders_ends.push(mine);
            children.push(process::fork(|| {
                process::close(opener);
                receive(theirs, pairs * messages * MESSAGE_BYTES);
            })?);
        }
        for _ in 0..pairs {
            children.push(process::fork(|| {
                process::close(opener);
                process::read_byte(gate);
                send(&mut senders_ends, messages);
            })?);
        }
    }
    output::line(format_args!("w 0 {:.3}", output::ms(clock::now_ns())));
    process::close(opener);
    children.into_iter().for_each(process::wait);
    output::line(format_args!("w {} {:.3}", groups * pairs * pairs * messages, output::ms(clock::now_ns())));
    Ok(())
}

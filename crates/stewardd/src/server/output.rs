//! What waits for a client to read it.
//!
//! A long text that many ask for is in memory once: each of them holds on to it, and what it takes is divided among
//! them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::sync::Arc;

/// Short pieces are put together up to this length, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// How many pieces go into one call of the kernel.
const PIECES_AT_ONCE: usize = 16;
/// How much is sent to one client in one turn, in bytes: one that reads as fast as it is written to would else hold the
/// others up for as long as its reply is.
const SENT_PER_TURN: usize = 256 * 1024;

enum Piece {
    Own(Vec<u8>),
    Shared(Arc<str>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(text) => text.as_bytes(),
        }
    }

    /// What it takes of memory, in bytes; what others hold too counts in equal parts.
    fn held_bytes(&self) -> usize {
        match self {
            Piece::Own(bytes) => bytes.capacity(),
            Piece::Shared(text) => text.len() / Arc::strong_count(text),
        }
    }
}

/// Bytes in the order in which they are to be sent.
#[derive(Default)]
pub(super) struct Output {
    pieces: VecDeque<Piece>,
    /// How much of the first piece is sent.
    sent: usize,
    /// How much is not sent.
    left: usize,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// What is not sent, in bytes.
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// What it takes of memory, in bytes; what others are sent too counts in equal parts.
    pub(super) fn held_bytes(&self) -> usize {
        self.pieces.iter().map(Piece::held_bytes).sum()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.left += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Own(last)) if last.len() + bytes.len() <= PIECE_BYTES => {
                last.extend_from_slice(bytes)
            }
            _ => self.pieces.push_back(Piece::Own(bytes.to_vec())),
        }
    }

    pub(super) fn push_shared(&mut self, text: &Arc<str>) {
        // So short that holding on to it is no gain.
        if text.len() < PIECE_BYTES / 16 {
            return self.push(text.as_bytes());
        }
        self.left += text.len();
        self.pieces.push_back(Piece::Shared(Arc::clone(text)));
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Output::default();
    }

    /// Writes as much as is taken without waiting, and no more than is sent in one turn. What is written takes no
    /// memory any more.
    ///
    /// # Errors
    /// What the writer says, unless it is that it takes no more now.
    pub(super) fn write_to(&mut self, writer: &mut impl Write) -> io::Result<()> {
        let mut room = SENT_PER_TURN;
        while !self.is_empty() && room > 0 {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(PIECES_AT_ONCE);
            let mut left = room;
            for (index, piece) in self.pieces.iter().take(PIECES_AT_ONCE).enumerate() {
                let bytes = &piece.bytes()[if index == 0 { self.sent } else { 0 }..];
                slices.push(IoSlice::new(&bytes[..bytes.len().min(left)]));
                left = left.saturating_sub(bytes.len());
            }
            match writer.write_vectored(&slices) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.take_out(count);
                    room -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_out(&mut self, count: usize) {
        self.left -= count;
        self.sent += count;
        while let Some(first) = self.pieces.front().map(|piece| piece.bytes().len())
            && self.sent >= first
        {
            self.sent -= first;
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            // A queue's memory is not kept for as long as the client stays.
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes some bytes at a time, and now and then none.
    struct Reluctant {
        taken: Vec<u8>,
        portions: Vec<usize>,
    }

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.portions.pop() {
                None | Some(0) => Err(ErrorKind::WouldBlock.into()),
                Some(portion) => {
                    let count = portion.min(bytes.len());
                    self.taken.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_was_pushed_however_it_is_taken(
            pieces in proptest::collection::vec((any::<bool>(), 0usize..100_000), 0..8),
            portions in proptest::collection::vec(0usize..60_000, 0..60),
        ) {
            let (mut output, mut whole) = (Output::default(), Vec::new());
            for (index, (is_shared, length)) in pieces.into_iter().enumerate() {
                let text = char::from(b'a' + index as u8).to_string().repeat(length);
                whole.extend_from_slice(text.as_bytes());
                if is_shared { output.push_shared(&Arc::from(text)) } else { output.push(text.as_bytes()) }
            }
            let mut reader = Reluctant { taken: Vec::new(), portions };
            while !reader.portions.is_empty() {
                output.write_to(&mut reader).expect("it only waits");
                prop_assert_eq!(output.len(), whole.len() - reader.taken.len());
                if output.is_empty() {
                    prop_assert_eq!(output.held_bytes(), 0);
                    break;
                }
            }
            prop_assert_eq!(&reader.taken[..], &whole[..reader.taken.len()]);
        }
    }

    #[test]
    fn who_reads_all_the_time_is_sent_a_bounded_part_in_each_turn() {
        let (mut output, mut reader) = (Output::default(), Vec::new());
        let long = 5 * SENT_PER_TURN / 2;
        output.push_shared(&Arc::from("x".repeat(long)));
        for turn in 1..=3 {
            output.write_to(&mut reader).expect("it takes everything");
            assert_eq!(reader.len(), (turn * SENT_PER_TURN).min(long));
        }
        assert!(output.is_empty());
    }

    #[test]
    fn a_text_that_many_are_sent_takes_memory_once() {
        let text: Arc<str> = Arc::from("x".repeat(1 << 20));
        let mut outputs: Vec<Output> = (0..100).map(|_| Output::default()).collect();
        outputs.iter_mut().for_each(|output| output.push_shared(&text));
        let held: usize = outputs.iter().map(Output::held_bytes).sum();
        assert!(held <= text.len(), "{held}");
        drop(text);
        outputs.truncate(1);
        assert_eq!(outputs[0].held_bytes(), 1 << 20);
    }
}

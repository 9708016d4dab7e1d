//! What reads and writes past the page cache (`O_DIRECT`) need.

/// The bytes of a page. Addresses, lengths and positions are multiples of it, as every disk accepts.
pub const PAGE: usize = 4096;

/// Memory at an address that `O_DIRECT` accepts.
#[derive(Debug)]
pub struct DirectBuffer {
    bytes: Vec<u8>,
    offset: usize,
    length: usize,
}

impl DirectBuffer {
    /// So many bytes.
    pub fn new(length: usize) -> Self {
        let bytes = vec![b'x'; length + PAGE];
        let offset = bytes.as_ptr().align_offset(PAGE);
        DirectBuffer { bytes, offset, length }
    }

    /// What is to be written, or was read.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.offset..self.offset + self.length]
    }
}

/// The next of `count` places, in no order; `state` is where the order stands. A linear congruence is order enough for
/// a disk.
pub fn next_in_no_order(state: &mut u64, count: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_where_a_page_begins() {
        for length in [1, 512, PAGE, 3 * PAGE] {
            let mut buffer = DirectBuffer::new(length);
            assert_eq!((buffer.bytes().as_ptr() as usize % PAGE, buffer.bytes().len()), (0, length));
        }
    }
}

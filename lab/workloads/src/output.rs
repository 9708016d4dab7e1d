//! Lines on standard output without allocation: one `write` each, so that a killed program loses none.

use std::io::Write;

/// Writes `arguments` and a newline with a single system call. Lines longer than 127 bytes are cut.
pub fn line(arguments: std::fmt::Arguments<'_>) {
    let mut buffer = [0u8; 128];
    let mut rest: &mut [u8] = &mut buffer[..127];
    // A line that does not fit is cut: nothing the programs print comes near 127 bytes.
    let _ = rest.write_fmt(arguments);
    let used = 127 - rest.len();
    buffer[used] = b'\n';
    // SAFETY: the first `used + 1` bytes of the buffer are initialised. A reader that is gone is no reason to stop.
    unsafe { libc::write(1, buffer.as_ptr().cast(), used + 1) };
}

/// Nanoseconds as milliseconds, for printing.
pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

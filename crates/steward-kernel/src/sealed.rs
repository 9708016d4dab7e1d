//! Lines that show when a byte of them has changed: one JSON object each, with a sum over the rest of the line.
//!
//! A line reads `{"sum":"0123456789abcdef","made":{..}}`. The sum also covers a word that is not in the line, such as
//! the name of the boot that it is of: a line of another boot is then no line of this one, whatever else is damaged. It
//! protects against accidents, not against people.

use serde::Serialize;
use serde::de::DeserializeOwned;

const START: &str = "{\"sum\":\"";
const SUM_DIGITS: usize = 16;

/// One line with its end. `line` must be written by serde as a JSON object that is not empty.
///
/// # Errors
/// As `serde_json::to_string`.
pub fn encode(word: &str, line: &impl Serialize) -> serde_json::Result<String> {
    let object = serde_json::to_string(line)?;
    let rest = object.strip_prefix('{').unwrap_or(&object);
    Ok(format!("{START}{:016x}\",{rest}\n", sum(word, rest)))
}

/// What a line (without its end) says; `None` when it is not as it was written with this word.
pub fn decode<T: DeserializeOwned>(word: &str, line: &[u8]) -> Option<T> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix(START)?;
    let (digits, rest) = line.split_at_checked(SUM_DIGITS)?;
    let rest = rest.strip_prefix("\",")?;
    // Compared as text: there is one way to write a sum.
    if digits != format!("{:016x}", sum(word, rest)) {
        return None;
    }
    serde_json::from_str(&format!("{{{rest}")).ok()
}

/// The lines of a file, and what stands behind the last line's end: a line that was cut off.
pub fn lines(content: &[u8]) -> (impl Iterator<Item = &[u8]>, &[u8]) {
    let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (whole, cut) = content.split_at(end);
    (whole.split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1]), cut)
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo). Each step maps states one to one, so that two texts which differ in one byte
/// never have the same sum.
fn sum(word: &str, rest: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let bytes = word.bytes().chain([0]).chain(rest.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_read_as_written_and_never_with_a_byte_changed(
            entries in prop::collection::btree_map("[a-z]{1,8}", any::<u32>(), 1..5),
            place in any::<prop::sample::Index>(),
            flip in 1..=255_u8,
        ) {
            let text = encode("boot", &entries).expect("numbers can be written");
            let line = text.trim_end().as_bytes();
            prop_assert_eq!(decode::<BTreeMap<String, u32>>("boot", line), Some(entries));
            prop_assert_eq!(decode::<BTreeMap<String, u32>>("other boot", line), None);
            let mut changed = line.to_vec();
            changed[place.index(line.len())] ^= flip;
            prop_assert_eq!(decode::<BTreeMap<String, u32>>("boot", &changed), None);
        }
    }

    #[test]
    fn a_file_falls_into_lines_and_what_was_cut_off() {
        let split = |content: &'static str| {
            let (whole, cut) = lines(content.as_bytes());
            (whole.map(<[u8]>::to_vec).collect::<Vec<_>>(), cut)
        };
        assert_eq!(split(""), (vec![], &b""[..]));
        assert_eq!(split("a\n\nb"), (vec![b"a".to_vec(), vec![]], &b"b"[..]));
        assert_eq!(split("a\n"), (vec![b"a".to_vec()], &b""[..]));
    }
}

//! Names that others have chosen, as text that a terminal, a log and a table show as it is.
//!
//! Anybody may call a process or a cgroup what they like: with the end of a line in it, with what moves a terminal's
//! cursor, with what turns the direction of writing. Wherever such a name becomes text of ours it goes through
//! [`printable`], and nowhere later.

use std::borrow::Cow;
use std::path::Path;

/// Whether a character is to be ignored where it has no form of its own, as Unicode says
/// (`Default_Ignorable_Code_Point` of DerivedCoreProperties.txt): with one of these in it, a name looks like another
/// one.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character shows as itself and changes nothing beside it.
fn is_plain(character: char) -> bool {
    let ends_lines_or_annotates = matches!(character, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}');
    !character.is_control() && !ends_lines_or_annotates && !is_invisible(character)
}

/// The text with everything in it written out that is not plain: `\n`, `\u{1b}`. A backslash stays as it is, because
/// systemd's own names have some.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Nearly all names are such, and thousands are looked at.
    let is_usual = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_usual || text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_plain(character) {
            written.push(character);
        } else {
            written.extend(character.escape_default());
        }
    }
    Cow::Owned(written)
}

/// As [`printable`], of a name as the kernel has it: up to the first NUL; what is no UTF-8 becomes U+FFFD.
pub fn printable_name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    printable(&String::from_utf8_lossy(&bytes[..end])).into_owned()
}

/// As [`printable`], of a file's name; what is no UTF-8 becomes U+FFFD.
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_plain_stays_and_all_else_is_written_out() {
        for plain in ["mplayer", "a b", "Größe", "字幕", "dev-disk\\x2dby.swap", ""] {
            assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
        }
        assert_eq!(printable("a\n<0>b"), "a\\n<0>b");
        assert_eq!(printable("\u{1b}]0;x\u{7}\u{9b}2J"), "\\u{1b}]0;x\\u{7}\\u{9b}2J");
        assert_eq!(printable("a\u{202e}b\u{2028}"), "a\\u{202e}b\\u{2028}");
        assert_eq!(printable("ss\u{200b}hd\u{e0041}"), "ss\\u{200b}hd\\u{e0041}");
        assert_eq!(printable_name(b"sh\0rest"), "sh");
        assert_eq!(printable_name(b"\xff\x1b"), "\u{fffd}\\u{1b}");
        assert_eq!(printable_path(Path::new("/etc/a\x1b[2J\n.toml")), "/etc/a\\u{1b}[2J\\n.toml");
    }

    proptest! {
        #[test]
        fn whatever_the_name_it_is_one_line_that_moves_nothing_and_stays_as_it_is(bytes: Vec<u8>, text in "\\PC*|(?s).*") {
            for written in [printable_name(&bytes), printable(&text).into_owned()] {
                prop_assert!(written.chars().all(is_plain), "{written:?}");
                prop_assert!(written.bytes().all(|byte| byte >= b' ' && byte != 0x7f));
                prop_assert_eq!(printable(&written), written.as_str());
            }
        }
    }
}

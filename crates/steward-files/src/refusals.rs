//! The last refused change of each user, for `last_error`.

use std::collections::HashMap;

/// For how many users a refusal is remembered.
const USERS_MAX: usize = 1024;
/// The longest that is remembered of one, in bytes.
const BYTES_MAX: usize = 2048;

/// What was refused last, by user.
#[derive(Debug, Default)]
pub struct Refusals {
    by_user: HashMap<u32, (u64, String)>,
    count: u64,
}

impl Refusals {
    /// Remembers a refusal in place of the user's last one. The user who was refused longest ago is forgotten when
    /// there are too many.
    pub fn note(&mut self, uid: u32, mut text: String) {
        if text.len() > BYTES_MAX {
            let end = (0..=BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
        }
        self.count += 1;
        self.by_user.insert(uid, (self.count, text));
        if self.by_user.len() > USERS_MAX {
            let oldest = self.by_user.iter().min_by_key(|(_, (when, _))| *when).map(|(uid, _)| *uid);
            if let Some(uid) = oldest {
                self.by_user.remove(&uid);
            }
        }
    }

    /// What was refused to this user last; empty when nothing was.
    pub fn of(&self, uid: u32) -> &str {
        self.by_user.get(&uid).map_or("", |(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_sees_only_the_last_refusal_of_their_own() {
        let mut refusals = Refusals::default();
        refusals.note(1, "first".into());
        refusals.note(1, "second".into());
        refusals.note(2, "ö".repeat(BYTES_MAX));
        assert_eq!((refusals.of(1), refusals.of(3)), ("second", ""));
        assert_eq!(refusals.of(2).len(), BYTES_MAX);
    }

    #[test]
    fn memory_stays_bounded_whoever_is_refused() {
        let mut refusals = Refusals::default();
        for uid in 0..3000 {
            refusals.note(uid, "no".into());
        }
        assert_eq!(refusals.by_user.len(), USERS_MAX);
        assert_eq!((refusals.of(0), refusals.of(2999)), ("", "no"));
    }
}

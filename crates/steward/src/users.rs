//! Users by name and number, as /etc/passwd has them.

use std::collections::HashMap;

/// The names of users, by number.
#[derive(Clone, Debug, Default)]
pub struct Users {
    names: HashMap<u32, String>,
}

impl Users {
    /// Those of /etc/passwd. A user who is kept elsewhere is known by number only.
    pub fn read() -> Self {
        Users::of(&std::fs::read_to_string("/etc/passwd").unwrap_or_default())
    }

    /// Those of a text like /etc/passwd.
    pub fn of(passwd: &str) -> Self {
        let mut names = HashMap::new();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()));
            if let (Some(name), Some(uid)) = (name.filter(|name| !name.is_empty()), uid) {
                // The first name of a number is the one that ls and ps show.
                names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Users { names }
    }

    /// All names, in no order.
    pub fn names(&self) -> Vec<String> {
        self.names.values().cloned().collect()
    }

    /// What to call a user: the name, or else the number.
    pub fn name(&self, uid: u32) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// Reads a user's number, or a name of /etc/passwd.
///
/// # Errors
/// When there is no such name.
pub fn parse(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    uid.ok_or_else(|| format!("/etc/passwd has no user {text:?}; write the user's number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_called_by_the_first_name_of_the_number_or_by_the_number() {
        let users =
            Users::of("root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:\n:x:5:5\nbroken\nanna:x:1000:1000::/:\n");
        assert_eq!((users.name(0).as_str(), users.name(1000).as_str()), ("root", "anna"));
        assert_eq!((users.name(5).as_str(), Users::default().name(7).as_str()), ("5", "7"));
    }

    #[test]
    fn a_user_is_read_by_number_or_name() {
        assert_eq!((parse("4711"), parse("root")), (Ok(4711), Ok(0)));
        assert!(parse("no such user").unwrap_err().contains("/etc/passwd"));
    }
}

//! Users and groups of this machine.

use std::path::Path;

use steward_core::accounts::Accounts;
use steward_kernel::files;

/// Where users are looked up.
pub const PASSWD: &str = "/etc/passwd";
/// Where groups are looked up.
const GROUP: &str = "/etc/group";

/// Users and groups as passwd(5) and group(5) have them. Those of a directory service are not there: asking it could
/// take for ever, and the daemon waits for nobody. Their numbers can be written instead.
#[derive(Debug, Default)]
pub struct AccountFiles {
    passwd: String,
    group: String,
}

impl AccountFiles {
    /// Reads both files; one that cannot be read has nobody in it.
    pub fn read() -> Self {
        let text = |path: &str| {
            let bytes = files::read_bytes(Path::new(path), files::KEPT_BYTES_MAX).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        AccountFiles { passwd: text(PASSWD), group: text(GROUP) }
    }
}

impl Accounts for AccountFiles {
    fn uid_of(&self, name: &str) -> Option<u32> {
        number_of(name, &self.passwd)
    }

    fn gid_of(&self, name: &str) -> Option<u32> {
        number_of(name, &self.group)
    }
}

/// The third field of the line whose first is `name`: both files have it so.
fn number_of(name: &str, text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_or_group_is_found_by_the_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbroken\n";
        let accounts = AccountFiles { passwd: passwd.into(), group: "audio:x:29:alice\n".into() };
        assert_eq!(accounts.uid_of("alice"), Some(1000));
        assert_eq!(accounts.uid_of("ali"), None);
        assert_eq!(accounts.uid_of("broken"), None);
        assert_eq!(accounts.gid_of("audio"), Some(29));
        assert_eq!(accounts.gid_of("alice"), None);
    }
}

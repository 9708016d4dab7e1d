//! Who is who: the numbers behind the names of users and groups.

/// Where names of users and groups are looked up.
pub trait Accounts {
    /// The number of the user with that name.
    fn uid_of(&self, name: &str) -> Option<u32>;
    /// The number of the group with that name.
    fn gid_of(&self, name: &str) -> Option<u32>;
}

/// Knows nobody: for rules that name nobody.
pub(crate) struct NoAccounts;

impl Accounts for NoAccounts {
    fn uid_of(&self, _: &str) -> Option<u32> {
        None
    }
    fn gid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

//! Who may ask for what.
//!
//! The rule is Edwards & Cao 1997, section 2.3: the owner of the machine divides it, every other user may only
//! take less for processes of their own. The caller's user comes from the kernel (the socket's credentials), never
//! from what the caller says.

use serde::{Deserialize, Serialize};

/// Whom this machine belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The user who may reserve for anyone, besides root; `None` for root alone.
    pub owner_uid: Option<u32>,
}

impl Policy {
    fn is_owner(&self, uid: u32) -> bool {
        uid == 0 || self.owner_uid == Some(uid)
    }

    /// Whom to ask, in words.
    fn owners(&self) -> String {
        match self.owner_uid {
            Some(uid) if uid != 0 => format!("root and the machine's owner (user {uid})"),
            _ => "root (no owner is set)".to_owned(),
        }
    }
}

/// Why a request was turned down: the rule and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}; {advice}")]
pub struct Refusal {
    /// Who asked for what, and the rule against it.
    pub reason: String,
    /// What the person can do.
    pub advice: String,
}

/// May this user give CPU time, memory or disk time to a program, whoever's it is?
///
/// # Errors
/// [`Refusal`] for everyone but root and the owner.
pub fn may_reserve(caller_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    if policy.is_owner(caller_uid) {
        return Ok(());
    }
    Err(Refusal {
        reason: format!(
            "user {caller_uid} may not reserve: only {} may, because a reservation takes from everybody else",
            policy.owners()
        ),
        advice: "ask one of them, or set owner in /etc/steward/steward.toml".to_owned(),
    })
}

/// May this user lower or give up what a process of `target_uid` has?
///
/// # Errors
/// [`Refusal`] when the process is somebody else's and the caller is neither root nor the owner.
pub fn may_release(caller_uid: u32, target_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    if caller_uid == target_uid || policy.is_owner(caller_uid) {
        return Ok(());
    }
    Err(Refusal {
        reason: format!(
            "user {caller_uid} may not change a process of user {target_uid}: others than {} may only lower what \
             their own processes have",
            policy.owners()
        ),
        advice: format!("ask user {target_uid}, or one of them"),
    })
}

/// May this user change the daemon itself: reload it, change thresholds, revert what it did?
///
/// # Errors
/// [`Refusal`] for everyone but root and the owner.
pub fn may_administer(caller_uid: u32, policy: &Policy) -> Result<(), Refusal> {
    if policy.is_owner(caller_uid) {
        return Ok(());
    }
    Err(Refusal {
        reason: format!(
            "user {caller_uid} may not change how the machine is divided: only {} may",
            policy.owners()
        ),
        advice: "ask one of them, or set owner in /etc/steward/steward.toml".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNED: Policy = Policy { owner_uid: Some(1000) };
    const UNOWNED: Policy = Policy { owner_uid: None };

    #[test]
    fn root_and_the_owner_may_reserve_for_anyone_and_nobody_else_may() {
        assert_eq!(may_reserve(0, &OWNED), Ok(()));
        assert_eq!(may_reserve(1000, &OWNED), Ok(()));
        assert_eq!(may_reserve(0, &UNOWNED), Ok(()));
        let refusal = may_reserve(1001, &OWNED).unwrap_err().to_string();
        assert!(refusal.contains("user 1001") && refusal.contains("owner (user 1000)"), "{refusal}");
        let refusal = may_reserve(1000, &UNOWNED).unwrap_err().to_string();
        assert!(refusal.contains("no owner is set") && refusal.contains("steward.toml"), "{refusal}");
    }

    #[test]
    fn others_may_give_up_only_what_their_own_processes_have() {
        assert_eq!(may_release(1001, 1001, &OWNED), Ok(()));
        assert_eq!(may_release(1000, 1001, &OWNED), Ok(()));
        assert_eq!(may_release(0, 1001, &UNOWNED), Ok(()));
        let refusal = may_release(1001, 1002, &OWNED).unwrap_err().to_string();
        assert!(refusal.contains("user 1001") && refusal.contains("user 1002"), "{refusal}");
        assert!(may_release(1001, 0, &OWNED).is_err());
    }

    #[test]
    fn only_root_and_the_owner_may_change_the_daemon() {
        assert_eq!(may_administer(1000, &OWNED), Ok(()));
        assert!(may_administer(1001, &OWNED).is_err());
    }
}

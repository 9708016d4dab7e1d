//! The machine's memory and the domains, as they were seen at one look.

use serde::{Deserialize, Serialize};

use super::principal::Principal;
use super::protection::Wanting;

/// The machine's memory, as it was seen. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// All that the kernel hands out.
    pub total_bytes: u64,
    /// What nothing is in.
    pub free_bytes: u64,
    /// Below this much free memory, the kernel takes memory back by itself: its watermarks, and what is counted as free
    /// and given to no program.
    pub high_watermark_bytes: u64,
    /// What the kernel keeps for itself.
    pub kernel_bytes: u64,
    /// Pages of files that could be taken.
    pub file_bytes: u64,
    /// Pages of programs' own that could be taken, if there is room for them in the swap.
    pub anonymous_bytes: u64,
    /// Room for such.
    pub swap_free_bytes: u64,
    /// Pages of files that are held for protected domains, whoever is charged for them.
    pub held_bytes: u64,
}

/// A domain as it was seen. Its principal keeps nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The cgroup's id.
    pub id: u64,
    /// What it claims and stands for.
    pub principal: Principal,
    /// Whether it is to be protected, and how it stands.
    pub protected: Option<Protected>,
    /// Whether nothing is to be taken from it now: it is the manager's own, or the kernel found nothing there.
    pub is_spared: bool,
    /// What is in it, where it has a limit that matters: a maximum with protected domains below it, or one of what may
    /// be swapped out.
    #[serde(default)]
    pub limited: Option<Limited>,
}

/// A domain that is to be protected, as it was seen. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The user that it belongs to.
    #[serde(default)]
    pub user: u32,
    /// What of its claims was not used within its protection period, or is that of those below it.
    pub idle_bytes: u64,
    /// What of it may be taken, though nobody knows whether it is used ([`super::trials`]).
    #[serde(default)]
    pub offered_bytes: u64,
    /// What of it is in the swap.
    pub swapped_bytes: u64,
    /// Pages of files, of what it claims.
    pub file_bytes: u64,
    /// Whether it may be demoted when not all fits.
    pub is_revocable: bool,
}

/// What the kernel can take within a cgroup that has a limit, of it and all below it. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// Pages of files.
    pub file_bytes: u64,
    /// Pages of programs' own that could be taken, if there is room for them in the swap.
    pub anonymous_bytes: u64,
    /// How much more of it may be swapped out by its own limit; `u64::MAX` where it has none.
    pub swap_left_bytes: u64,
}

impl Machine {
    /// What programs have, and what is free for them, in bytes: a machine whose kernel keeps much for itself (huge
    /// pages, a disk in memory) is a smaller one.
    pub fn programs_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.kernel_bytes)
    }

    /// How much can still be allocated if all may be taken that can be, in bytes. It takes one reading of the machine.
    pub fn left_bytes(&self) -> u64 {
        self.free_bytes
            .saturating_add(self.file_bytes)
            .saturating_add(self.anonymous_bytes.min(self.swap_free_bytes))
    }
}

impl Seen {
    /// Whether it may not have more than so much.
    pub(super) fn has_maximum(&self) -> bool {
        self.principal.max_bytes != u64::MAX
    }

    /// What a protected one uses of what is charged to it, of files and of programs' own, in bytes.
    pub(super) fn used_of_files_and_own(&self) -> Option<(u64, u64)> {
        let (protected, wanting) = (self.protected.as_ref()?, self.wanting()?);
        let file_bytes = protected.file_bytes.min(wanting.used_bytes);
        Some((file_bytes, wanting.used_bytes - file_bytes))
    }

    pub(super) fn wanting(&self) -> Option<Wanting> {
        let protected = self.protected?;
        // Nothing of its own covers what is charged to others: that is held for it.
        let used_bytes = self.principal.charged_bytes().saturating_sub(protected.idle_bytes);
        Some(Wanting {
            id: self.id,
            user: protected.user,
            used_bytes,
            full_bytes: used_bytes.saturating_add(protected.swapped_bytes),
            is_revocable: protected.is_revocable,
        })
    }
}

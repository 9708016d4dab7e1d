//! What the memory loop does for domains and takes from them, as it is shown.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use libsteward::api;
use steward_core::domain::OWN_LEAF;
use steward_core::memory::principal::Principal;
use steward_core::memory::source::Source;

use super::sharing::FileUses;

/// What the memory loop does for cgroups, and takes from them. By path, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cared {
    /// What is kept of protected ones; 0 of one that is demoted.
    pub(crate) kept_bytes: BTreeMap<String, u64>,
    /// What the kernel is to leave to these: what is kept, and mostly what they have beside that and do not use.
    pub(crate) minimum_bytes: BTreeMap<String, u64>,
    /// Above how much of what is charged to it who allocates in one is to be slowed, because others below its maximum
    /// are protected.
    pub(crate) ceilings: BTreeMap<String, u64>,
    /// What was taken for others.
    pub(crate) taken_bytes: BTreeMap<String, u64>,
    /// How much is to be free, in bytes; 0 while nobody is protected.
    pub(crate) target_bytes: u64,
    /// How fast memory is freed that has to be written first, in bytes a second, where that was measured.
    pub(crate) written_per_second: Option<u64>,
    /// What was found out of who uses pages of files that are charged to others.
    pub(crate) file_uses: Arc<FileUses>,
    /// Whose programs go by how much they may use, and until when that is known, in nanoseconds.
    pub(crate) adapting: BTreeMap<String, u64>,
    /// What is to be free on top of the kernel's high watermark while there are such, in bytes.
    pub(crate) reserve_bytes: u64,
    /// By what it is known what protected domains use; `None` while none is protected.
    pub(crate) source: Option<Source>,
}

/// Who watches how much its own domain may use goes by it, and is known to for so long after it looked, in nanoseconds:
/// longer than the time between two looks for one who watches, however much its user watches.
const ADAPTS_FOR_NS: u64 = 5_000_000_000;

impl Cared {
    /// Whether the kernel is to be told the same for both.
    pub(crate) fn tells_the_same(&self, other: &Cared) -> bool {
        self.minimum_bytes == other.minimum_bytes && self.ceilings == other.ceilings
    }

    /// A program of this domain has looked how much that may use, and is told it without this reserve.
    pub(crate) fn note_adapting(&mut self, path: &str, now_ns: u64, reserve_bytes: u64) {
        self.reserve_bytes = reserve_bytes;
        self.adapting.retain(|_, until_ns| *until_ns > now_ns);
        self.adapting.insert(path.to_owned(), now_ns.saturating_add(ADAPTS_FOR_NS));
    }

    /// Whether programs of a domain go by how much it may use.
    pub(crate) fn adapts(&self, path: &str, now_ns: u64) -> bool {
        self.adapting.get(path).is_some_and(|until_ns| *until_ns > now_ns)
    }

    /// How much is not told to anybody, in bytes: what the memory loop keeps free, and while programs go by what they
    /// are told as much, though nobody is protected. It takes them some tenths of a second to give up what others
    /// begin to use, and with nothing left the kernel swaps out what they are about to give up, or what they use last.
    pub(crate) fn untold_bytes(&self, high_watermark_bytes: u64, now_ns: u64) -> u64 {
        let is_any = self.adapting.values().any(|until_ns| *until_ns > now_ns);
        let reserve_bytes = if is_any { self.reserve_bytes } else { 0 };
        high_watermark_bytes.saturating_add(reserve_bytes).max(self.target_bytes)
    }

    /// What is kept of a domain itself, in its cgroup and the leaf of its own processes; `None` where it is not
    /// protected.
    pub(crate) fn kept(&self, path: &str) -> Option<u64> {
        let leaf = self.kept_bytes.get(&format!("{path}/{OWN_LEAF}")).copied().unwrap_or(0);
        Some(self.kept_bytes.get(path)?.saturating_add(leaf))
    }

    /// What one claims to which so much is charged: without what others use of that, and with what it uses of others'.
    pub(crate) fn claimed_bytes(&self, path: &str, charged_bytes: u64) -> u64 {
        let principal = Principal { claimed_bytes: charged_bytes, ..Principal::of_weight(NonZeroU32::MIN) };
        self.file_uses.get(path).map_or(principal, |file_use| file_use.claims_of(principal)).claimed_bytes
    }

    /// By what it is known what protected domains use, as the API says it.
    pub(crate) fn used_from(&self) -> Option<api::UseSource> {
        self.source.map(|source| match source {
            Source::Mglru => api::UseSource::Mglru,
            Source::RefaultsAndPressure => api::UseSource::RefaultsAndPressure,
            Source::None => api::UseSource::None,
        })
    }

    /// What was taken from a domain itself.
    pub(crate) fn taken(&self, path: &str) -> u64 {
        let of = |path: &str| self.taken_bytes.get(path).copied().unwrap_or(0);
        of(path).saturating_add(of(&format!("{path}/{OWN_LEAF}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_looked_for_a_while_goes_by_it_no_longer_and_is_forgotten() {
        let mut cared = Cared::default();
        cared.note_adapting("a", 0, 0);
        assert!(cared.adapts("a", ADAPTS_FOR_NS - 1) && !cared.adapts("b", 0));
        cared.note_adapting("a", ADAPTS_FOR_NS - 1, 0);
        assert!(cared.adapts("a", ADAPTS_FOR_NS));
        cared.note_adapting("b", 2 * ADAPTS_FOR_NS, 0);
        assert!(!cared.adapts("a", 2 * ADAPTS_FOR_NS));
        assert_eq!(cared.adapting.len(), 1);
    }

    #[test]
    fn the_kernel_is_told_anew_when_what_is_kept_has_changed_or_where_who_allocates_is_slowed_alone() {
        let of = |bytes: u64| BTreeMap::from([("a".to_owned(), bytes)]);
        let before = Cared { minimum_bytes: of(1), ceilings: of(2), ..Cared::default() };
        assert!(Cared { taken_bytes: of(3), ..before.clone() }.tells_the_same(&before));
        assert!(!Cared { minimum_bytes: of(3), ..before.clone() }.tells_the_same(&before));
        assert!(!Cared { ceilings: of(3), ..before.clone() }.tells_the_same(&before));
        assert!(!Cared { ceilings: BTreeMap::new(), ..before.clone() }.tells_the_same(&before));
    }

    #[test]
    fn while_programs_go_by_what_they_are_told_the_reserve_is_told_to_nobody() {
        let mut cared = Cared::default();
        assert_eq!(cared.untold_bytes(20, 0), 20);
        cared.note_adapting("a", 0, 16);
        assert_eq!(cared.untold_bytes(20, ADAPTS_FOR_NS - 1), 36);
        assert_eq!(cared.untold_bytes(20, ADAPTS_FOR_NS), 20, "nobody does any more");
        cared.target_bytes = 40;
        assert_eq!(cared.untold_bytes(20, 0), 40, "the memory loop keeps more free");
    }
}

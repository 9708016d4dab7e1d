//! The tree of principals among whom memory is divided (Walfield, section 3): each domain with what it claims, what it
//! is promised, and what it stands for beside its siblings.

use std::num::NonZeroU32;

/// A domain as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The place of the one above it, before its own; `None` at the top.
    pub parent: Option<usize>,
    /// Order among its siblings: a higher one comes first.
    pub priority: u8,
    /// Its part among siblings of one priority.
    pub weight: NonZeroU32,
    /// What it claims with all below it, in bytes.
    pub claimed_bytes: u64,
    /// Of that, what it has used within the last moments, in bytes; 0 where nobody has looked.
    pub active_bytes: u64,
    /// What it is promised, in bytes.
    pub min_bytes: u64,
    /// What cannot be taken from it now beside its minimum, in bytes: what it used within its protection period, or
    /// what the kernel did not find.
    pub kept_bytes: u64,
    /// The most that it may use, in bytes.
    pub max_bytes: u64,
}

impl Principal {
    /// One at the top with this weight, which is promised nothing and keeps nothing.
    pub fn of_weight(weight: NonZeroU32) -> Self {
        Principal {
            parent: None,
            priority: crate::cpu::policy::PRIORITY_DEFAULT,
            weight,
            claimed_bytes: 0,
            active_bytes: 0,
            min_bytes: 0,
            kept_bytes: 0,
            max_bytes: u64::MAX,
        }
    }

    /// What of its own is not taken.
    fn own_floor_bytes(&self) -> u64 {
        self.min_bytes.max(self.kept_bytes)
    }
}

/// Principals with what follows from their order.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Those at the top.
    pub(super) top: Vec<usize>,
    /// By place: those directly below.
    pub(super) children: Vec<Vec<usize>>,
    /// By place: what is not taken from it and all below it together, whatever it claims.
    pub(super) floor_bytes: Vec<u64>,
}

impl Family {
    pub(super) fn of(principals: &[Principal]) -> Self {
        let mut family = Family {
            top: Vec::new(),
            children: vec![Vec::new(); principals.len()],
            floor_bytes: principals.iter().map(Principal::own_floor_bytes).collect(),
        };
        for (place, principal) in principals.iter().enumerate() {
            match parent_of(place, principal) {
                Some(parent) => family.children[parent].push(place),
                None => family.top.push(place),
            }
        }
        // Children come after their parents: what they keep, those above keep with them.
        for place in (0..principals.len()).rev() {
            // Of a promise that is not used, nothing has to be kept yet.
            let used = |child: &usize| family.floor_bytes[*child].min(principals[*child].claimed_bytes);
            let below = family.children[place].iter().map(used);
            let below = below.fold(0, u64::saturating_add);
            family.floor_bytes[place] = family.floor_bytes[place].max(below);
        }
        family
    }
}

/// The place above; one that is not before its child is none.
pub(super) fn parent_of(place: usize, principal: &Principal) -> Option<usize> {
    principal.parent.filter(|parent| *parent < place)
}

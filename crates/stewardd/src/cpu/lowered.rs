//! Domains that come after all their siblings for as long as somebody wants that, whatever priority they were given.
//!
//! As a [suspension](crate::cpu::suspension) it belongs to the connection that asked for it and ends with it, so that a
//! controller which is killed leaves nothing at a worse place than it had. It is not remembered over a restart of the
//! daemon.

use std::collections::{BTreeMap, BTreeSet};

/// A domain that is lowered.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) cgroup_id: u64,
    /// The connections that hold it, by [`crate::server::peer::Caller::id`].
    pub(crate) callers: BTreeSet<u64>,
}

/// All that is lowered, by path.
pub(crate) type AllLowered = BTreeMap<String, Lowered>;

//! What metrics of all resources share.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;

/// A counter of seconds.
pub(super) type Seconds = Counter<f64, AtomicU64>;

/// The label of a domain's figures.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfDomain {
    pub(super) domain: String,
}

/// A time in base units.
pub(super) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

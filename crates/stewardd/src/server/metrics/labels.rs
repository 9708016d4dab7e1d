//! What metrics of all resources share.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// A counter of seconds.
pub(super) type Seconds = Counter<f64, AtomicU64>;

/// A gauge that need not be whole.
pub(super) type Ratio = Gauge<f64, AtomicU64>;

/// The label of a domain's figures.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct OfDomain {
    pub(super) domain: String,
}

/// A label of ours.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct Word(pub(super) &'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }
}

/// A time in base units.
pub(super) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

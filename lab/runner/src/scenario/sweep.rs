//! What a scenario's file says of the parameter that it is run for several values of.

use serde::Deserialize;

/// What changes from run to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The parameter's name.
    pub parameter: String,
    /// Its values, ascending.
    pub values: Vec<toml::Value>,
}

/// A number that is read from the runs with all values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverSweep {
    /// The name of the number.
    pub name: String,
    /// The metric that it is read from.
    pub metric: String,
    /// The number is the smallest value from which on this metric is at most this.
    pub at_most: Option<f64>,
    /// The number when not even the largest value is enough.
    pub otherwise: Option<f64>,
    /// The number is this metric's worst value over its first one.
    #[serde(default)]
    pub growth: bool,
}

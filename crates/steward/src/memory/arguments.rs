//! What can be asked of memory on a command line, for a program (`steward run`) and for a domain alike.

use clap::Args;

use crate::arguments::{PROTECTION_PERIOD, parse_bytes, parse_protection};

/// What an option is given: an amount, or what the command has besides.
pub trait Amount: Clone + Send + Sync + 'static {
    /// Reads it, `parse` what is an amount in it.
    ///
    /// # Errors
    /// When it is none.
    fn read(text: &str, parse: fn(&str) -> Result<i64, String>) -> Result<Self, String>;
}

impl Amount for i64 {
    fn read(text: &str, parse: fn(&str) -> Result<i64, String>) -> Result<Self, String> {
        parse(text)
    }
}

/// Promised, at most, and kept.
#[derive(Clone, Debug, Args)]
pub struct MemoryArguments<T: Amount> {
    /// Memory promised, as 64M: what is used up to this is not taken away.
    #[arg(long, value_name = "SIZE", value_parser = read_bytes::<T>)]
    pub memory_min: Option<T>,
    /// The most memory that may be used, as 1G.
    #[arg(long, value_name = "SIZE", value_parser = read_bytes::<T>)]
    pub memory_max: Option<T>,
    /// Keep what is used in memory: a page may be taken only once it has gone unused for PERIOD (1s to 24h), unless
    /// said 30min.
    #[arg(
        long,
        value_name = "PERIOD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = PROTECTION_PERIOD,
        value_parser = read_protection::<T>
    )]
    pub protect: Option<T>,
}

impl<T: Amount> MemoryArguments<T> {
    /// Whether anything is asked.
    pub fn is_any(&self) -> bool {
        self.memory_min.is_some() || self.memory_max.is_some() || self.protect.is_some()
    }
}

impl<T: Amount> Default for MemoryArguments<T> {
    fn default() -> Self {
        Self { memory_min: None, memory_max: None, protect: None }
    }
}

fn read_bytes<T: Amount>(text: &str) -> Result<T, String> {
    T::read(text, parse_bytes)
}

fn read_protection<T: Amount>(text: &str) -> Result<T, String> {
    T::read(text, parse_protection)
}

//! What can be asked of the disk on a command line, for a program (`steward run`) and for a domain alike.

use clap::Args;
use libsteward::api::IoClass;
use steward_core::disk::Limit;
use steward_core::quantity::parse_fraction;

/// What an option is given: a value, or what the command has besides.
pub trait Asked<V>: Clone + Send + Sync + 'static {
    /// Reads it, `parse` what is a value in it.
    ///
    /// # Errors
    /// When it is none.
    fn read(text: &str, parse: fn(&str) -> Result<V, String>) -> Result<Self, String>;
}

impl<V: Clone + Send + Sync + 'static> Asked<V> for V {
    fn read(text: &str, parse: fn(&str) -> Result<V, String>) -> Result<Self, String> {
        parse(text)
    }
}

/// How soon requests are served, and how much of the disk's time is reserved.
#[derive(Clone, Debug, Args)]
pub struct DiskArguments<C: Asked<IoClass>, F: Asked<f64>, L: Asked<Limit>> {
    /// How soon disk requests are served: interactive (before all others), normal, or background (when nobody else
    /// wants the disk).
    #[arg(long, value_name = "CLASS", value_parser = read_class::<C>)]
    pub io: Option<C>,
    /// Disk time reserved, of what the parent has (at the top: of the machine's disks), as 20% or 0.2.
    #[arg(long, alias = "disk", value_name = "FRACTION", value_parser = read_fraction::<F>)]
    pub io_fraction: Option<F>,
    /// The most to read, and to write, of each disk in a second: 10M/s in bytes, 100/s in requests, or 10M/s,100/s. Who
    /// saves on the same file system may have to wait for what is held back.
    #[arg(long, value_name = "LIMIT", value_parser = read_limit::<L>)]
    pub io_max: Option<L>,
}

impl<C: Asked<IoClass>, F: Asked<f64>, L: Asked<Limit>> DiskArguments<C, F, L> {
    /// Whether anything is asked.
    pub fn is_any(&self) -> bool {
        self.io.is_some() || self.io_fraction.is_some() || self.io_max.is_some()
    }
}

impl<C: Asked<IoClass>, F: Asked<f64>, L: Asked<Limit>> Default for DiskArguments<C, F, L> {
    fn default() -> Self {
        Self { io: None, io_fraction: None, io_max: None }
    }
}

fn read_class<C: Asked<IoClass>>(text: &str) -> Result<C, String> {
    C::read(text, parse_class)
}

fn read_fraction<F: Asked<f64>>(text: &str) -> Result<F, String> {
    F::read(text, parse_fraction)
}

fn read_limit<L: Asked<Limit>>(text: &str) -> Result<L, String> {
    L::read(text, str::parse)
}

/// A number as the API has it.
pub fn per_second(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

/// Reads a class.
///
/// # Errors
/// When it is none.
pub fn parse_class(text: &str) -> Result<IoClass, String> {
    let class = IoClass::ALL.into_iter().find(|class| class.name() == text);
    class.ok_or_else(|| format!("it is one of {}", IoClass::ALL.map(IoClass::name).join(", ")))
}

/// The class as steward-core has it.
pub fn to_core(class: IoClass) -> steward_core::disk::Class {
    match class {
        IoClass::Interactive => steward_core::disk::Class::Interactive,
        IoClass::Normal => steward_core::disk::Class::Normal,
        IoClass::Background => steward_core::disk::Class::Background,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_one_of_three_words() {
        for class in IoClass::ALL {
            assert_eq!(parse_class(class.name()), Ok(class));
            assert_eq!(to_core(class).name(), class.name());
        }
        assert!(parse_class("idle").expect_err("no class").contains("background"));
    }
}

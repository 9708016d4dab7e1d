//! Sizes in scenario files: `512M`, `2G`.

use serde::{Deserialize, Deserializer};

/// Reads a size, in MiB.
///
/// # Errors
/// Says how one is written.
pub fn parse<E: serde::de::Error>(text: &str) -> Result<u32, E> {
    let mistake = || E::custom(format!("`{text}` is not a size: write 512M or 2G"));
    let (number, unit_mib) = match text.strip_suffix('M') {
        Some(number) => (number, 1),
        None => (text.strip_suffix('G').ok_or_else(mistake)?, 1024),
    };
    number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit_mib)).ok_or_else(mistake)
}

/// A size in MiB, from a file.
///
/// # Errors
/// As [`parse`].
pub fn mebibytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    parse(&String::deserialize(deserializer)?)
}

/// One that may be absent.
///
/// # Errors
/// As [`parse`].
pub fn some_mebibytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    mebibytes(deserializer).map(Some)
}

/// MiB as bytes.
pub fn bytes(mib: u32) -> u64 {
    u64::from(mib) << 20
}

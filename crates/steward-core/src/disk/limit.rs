//! The most that a domain may read and write: bytes and requests in a second, of each disk, and of reading and writing
//! each (`io.max`, Documentation/admin-guide/cgroup-v2.rst).
//!
//! Written as `10M/s` for bytes, `100/s` for requests, or both: `10M/s,100/s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::domain::setting::{Fault, Setting};
use crate::quantity::{format_size, parse_size};

/// The least that can be allowed, in bytes a second. Whoever waits for the journal of a file system waits for what is
/// held back, some megabytes at once: with less, everybody's saves there would seem to hang.
pub const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// The least that can be allowed, in requests a second, for the same reason.
pub const REQUESTS_PER_SECOND_MIN: u64 = 16;
/// More than any disk serves; the kernel counts them in 32 bits.
const REQUESTS_PER_SECOND_MAX: u64 = 1_000_000_000;

/// The most that may be read, and that may be written, in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    /// Bytes a second; `None`: as many as there can be.
    pub bytes_per_second: Option<u64>,
    /// Requests a second; `None`: as many as there can be.
    pub requests_per_second: Option<u64>,
}

impl Limit {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Limit::default()
    }

    /// Whether nothing is allowed that `before` does not allow.
    pub fn allows_no_more_than(&self, before: &Limit) -> bool {
        let is_within =
            |one: Option<u64>, other: Option<u64>| one.unwrap_or(u64::MAX) <= other.unwrap_or(u64::MAX);
        is_within(self.bytes_per_second, before.bytes_per_second)
            && is_within(self.requests_per_second, before.requests_per_second)
    }

    /// What it does to others (docs/disk.md), in sentences; `also` follows on whoever waits.
    pub fn harm(&self, also: &str) -> String {
        format!(
            "The journal of a file system waits for what is held back, so that whoever saves on the same one waits too{also}: 0.6 s on \
             average, and 1 s, were seen where a save took 0.03 s. --io background holds up nobody."
        )
    }

    /// As the kernel has it for the device of this number, in the form in which it shows it.
    pub fn to_kernel(&self, device_number: &str) -> String {
        let word = |value: Option<u64>| value.map_or_else(|| "max".to_owned(), |value| value.to_string());
        let (bytes, requests) = (word(self.bytes_per_second), word(self.requests_per_second));
        format!("{device_number} rbps={bytes} wbps={bytes} riops={requests} wiops={requests}")
    }
}

/// Bytes a second that can be allowed.
pub(crate) fn bytes_per_second(value: i64) -> Result<u64, Fault> {
    let known = u64::try_from(value).ok().filter(|value| *value >= BYTES_PER_SECOND_MIN);
    known.ok_or_else(|| Fault {
        setting: Setting::IoMaxBytes,
        reason: format!(
            "{value} bytes a second are too few: with less than {} whoever waits for the same journal would seem to hang",
            format_size(BYTES_PER_SECOND_MIN)
        ),
    })
}

/// Requests a second that can be allowed.
pub(crate) fn requests_per_second(value: i64) -> Result<u64, Fault> {
    let range = REQUESTS_PER_SECOND_MIN..=REQUESTS_PER_SECOND_MAX;
    u64::try_from(value).ok().filter(|value| range.contains(value)).ok_or_else(|| Fault {
        setting: Setting::IoMaxRequests,
        reason: format!(
            "{value} requests a second cannot be allowed; they go from {REQUESTS_PER_SECOND_MIN} to \
             {REQUESTS_PER_SECOND_MAX}: with fewer whoever waits for the same journal would seem to hang"
        ),
    })
}

impl FromStr for Limit {
    type Err = String;

    /// Reads `10M/s`, `100/s` or both, in any order, with a comma or a blank between them. What is a plain number is
    /// one of requests.
    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str =
            "write bytes a second, as in 10M/s, requests a second, as in 100/s, or both, as in 10M/s,100/s";
        let mut limit = Limit::default();
        if matches!(text, "none" | "default") {
            return Err(format!("\"{text}\" is no limit: leave it out where there is to be none; {EXAMPLE}"));
        }
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let amount =
                part.strip_suffix("/s").ok_or_else(|| format!("\"{part}\" is no limit; {EXAMPLE}"))?;
            let is_number = !amount.is_empty() && amount.bytes().all(|byte| byte.is_ascii_digit());
            let value = match is_number {
                true => amount.parse().map_err(|_| format!("{amount} is too much; {EXAMPLE}"))?,
                false => parse_size(amount).map_err(|error| format!("{error}; {EXAMPLE}"))?,
            };
            let asked = i64::try_from(value).unwrap_or(i64::MAX);
            let place = if is_number { &mut limit.requests_per_second } else { &mut limit.bytes_per_second };
            let checked = if is_number { requests_per_second(asked) } else { bytes_per_second(asked) };
            if place.replace(checked.map_err(|fault| fault.reason)?).is_some() {
                return Err(format!("\"{text}\" says the same twice; {EXAMPLE}"));
            }
        }
        if limit.is_none() {
            return Err(format!("\"{text}\" is no limit; {EXAMPLE}"));
        }
        Ok(limit)
    }
}

impl fmt::Display for Limit {
    /// As it is read; `none` where nothing is limited.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes_per_second.map(|bytes| {
            let size = format_size(bytes);
            // A number without a unit would be one of requests.
            if size.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{size}B/s")
            } else {
                format!("{size}/s")
            }
        });
        let requests = self.requests_per_second.map(|requests| format!("{requests}/s"));
        let parts: Vec<String> = bytes.into_iter().chain(requests).collect();
        formatter.write_str(if parts.is_empty() { "none" } else { "" })?;
        formatter.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_have_a_unit_and_requests_have_none() {
        let of = |bytes_per_second, requests_per_second| Limit { bytes_per_second, requests_per_second };
        for (text, limit) in [
            ("10M/s", of(Some(10 << 20), None)),
            ("100/s", of(None, Some(100))),
            ("10M/s,100/s", of(Some(10 << 20), Some(100))),
            ("100/s 1G/s", of(Some(1 << 30), Some(100))),
        ] {
            assert_eq!(text.parse::<Limit>(), Ok(limit), "{text}");
        }
        for wrong in [
            "",
            "10M",
            "10M/s,20M/s",
            "0/s",
            "15/s",
            "1023K/s",
            "-5/s",
            "/s",
            "10M/min",
            "none",
            "99999999999999999999/s",
        ] {
            let error = wrong.parse::<Limit>().expect_err(wrong);
            assert!(error.len() > 20, "{error}");
        }
    }

    #[test]
    fn where_a_limit_is_given_first_none_is_said_to_be_left_out() {
        for word in ["none", "default"] {
            let error = word.parse::<Limit>().expect_err("it is no limit");
            assert!(error.contains("leave it out"), "{error}");
        }
    }

    #[test]
    fn the_kernel_is_told_each_direction_of_a_device() {
        let limit = Limit { bytes_per_second: Some(10 << 20), requests_per_second: None };
        assert_eq!(limit.to_kernel("8:0"), "8:0 rbps=10485760 wbps=10485760 riops=max wiops=max");
    }

    #[test]
    fn a_lower_limit_takes_less_and_none_takes_most() {
        let of = |bytes_per_second, requests_per_second| Limit { bytes_per_second, requests_per_second };
        assert!(of(Some(1), Some(1)).allows_no_more_than(&of(Some(2), None)));
        assert!(!of(Some(1), None).allows_no_more_than(&of(Some(2), Some(9))));
        assert!(!Limit::default().allows_no_more_than(&of(None, Some(9))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            bytes in proptest::option::of(BYTES_PER_SECOND_MIN..1 << 50),
            requests in proptest::option::of(16_u64..1 << 29),
        ) {
            let limit = Limit { bytes_per_second: bytes, requests_per_second: requests };
            prop_assume!(!limit.is_none());
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }
    }
}

//! What the arguments of several commands have in common.

use std::time::Duration;

use clap::Args;
use libsteward::api;
use steward_core::cpu::reservation::Reservation;
use steward_core::memory::settings::check_protection_period;
use steward_core::quantity::{parse_duration, parse_fraction, parse_size};

/// The smallest page that a kernel has, in bytes.
const PAGE_MIN_BYTES: u64 = 4096;

/// For commands whose only choice is JSON.
#[derive(Debug, Args)]
pub struct JsonFlag {
    /// Print one JSON object, with its "schema".
    #[arg(long)]
    pub json: bool,
}

/// Which domain a command is to show.
#[derive(Debug, Args)]
pub struct OneDomain {
    /// The domain; your own unless said.
    #[arg(value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// That of this process.
    #[arg(long, conflicts_with = "domain", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
}

impl OneDomain {
    /// What is asked of the daemon.
    pub fn request(&self) -> api::ShowDomain {
        api::ShowDomain { domain: self.domain.clone(), pid: self.pid }
    }
}

/// What is promised to a process, or to a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// Time in every period.
    Reservation(Reservation),
    /// A fraction of the parent's.
    Fraction(f64),
}

pub fn parse_promise(text: &str) -> Result<Promise, String> {
    if text.ends_with('%') || text.parse::<f64>().is_ok() {
        return parse_fraction(text).map(Promise::Fraction);
    }
    parse_reservation(text).map(Promise::Reservation)
}

pub fn parse_reservation(text: &str) -> Result<Reservation, String> {
    let reservation: Reservation = text.parse().map_err(|error| format!("{error}"))?;
    reservation.validate().map_err(|error| error.to_string())?;
    Ok(reservation)
}

/// Reads an amount of memory, in bytes.
///
/// # Errors
/// When it is none.
pub fn parse_bytes(text: &str) -> Result<i64, String> {
    let bytes = parse_size(text).map_err(|fault| fault.to_string())?;
    // Of less than a page there is nothing; whoever writes 2 means more than that.
    if (1..PAGE_MIN_BYTES).contains(&bytes) {
        return Err(format!(
            "{bytes} bytes are less than a page; write K, M, G or T behind the number, as in \"64M\""
        ));
    }
    i64::try_from(bytes).map_err(|_| "that is more than any machine has".to_owned())
}

/// The protection period of `--protect` without one, as it is written.
pub const PROTECTION_PERIOD: &str = "30min";

/// Reads a protection period, in nanoseconds.
///
/// # Errors
/// When it is none that can be asked for.
pub fn parse_protection(text: &str) -> Result<i64, String> {
    let period_ns = parse_duration(text).map_err(|error| error.to_string())?;
    let period_ns = i64::try_from(period_ns).unwrap_or(i64::MAX);
    check_protection_period(period_ns).map(|_| period_ns).map_err(|error| error.to_string())
}

/// Reads a time above 0.
///
/// # Errors
/// When it is none.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        0 => Err("it must be above 0".to_owned()),
        time_ns => Ok(Duration::from_nanos(time_ns)),
    }
}

#[cfg(test)]
mod tests {
    use steward_core::memory::settings::PROTECTION_PERIOD_NS;

    use super::*;

    #[test]
    fn a_promise_is_a_fraction_either_way_or_time_in_every_period() {
        let fraction = |text| match parse_promise(text) {
            Ok(Promise::Fraction(fraction)) => Ok(fraction),
            Ok(Promise::Reservation(reservation)) => Err(reservation.to_string()),
            Err(message) => Err(message),
        };
        assert_eq!([fraction("20%"), fraction("0.2"), fraction("100 %")], [Ok(0.2), Ok(0.2), Ok(1.0)]);
        assert_eq!(fraction("5ms/30ms"), Err("5ms/30ms".to_owned()));
        for wrong in ["0", "0%", "-5%", "101%", "1.01", "nan", "inf", "half", "", "%", "30ms/5ms"] {
            assert!(parse_promise(wrong).is_err(), "{wrong}");
        }
        assert!(fraction("20").unwrap_err().contains("did you mean 20%?"));
    }

    #[test]
    fn a_protection_period_is_a_time_within_bounds() {
        assert_eq!(parse_protection("90s"), Ok(90_000_000_000));
        assert_eq!(parse_protection(PROTECTION_PERIOD), Ok(PROTECTION_PERIOD_NS as i64));
        for (wrong, expected) in [
            ("0s", "from 1s to 24h, and 30min is usual"),
            ("500ms", "500ms is no protection period"),
            ("25h", "25h is no protection period"),
            ("999999h", "is no protection period"),
            ("30", "has no unit of time"),
            ("30 minutes", "not a unit of time"),
            ("-30min", "not a duration"),
            ("", "not a duration"),
        ] {
            let error = parse_protection(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_time_has_a_unit_and_is_above_nothing() {
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["0s", "1", "", "-1s", "5m"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}

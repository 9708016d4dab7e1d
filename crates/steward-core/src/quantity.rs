//! Amounts as people write them: durations (`30ms`), sizes (`64M`) and reservations (`5ms/30ms`).
//!
//! Own code rather than a crate, for three reasons: fractions (`1.5s`, `0.25ms`) must come out exact to the
//! nanosecond and go back to the same text, sizes must mean what they mean in cgroup files (`K` is 1024), and a
//! person who writes an ambiguous unit (`m`, `MB`) must be asked which one was meant.

/// Why a text is not an amount. Its `Display` says what is wrong and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {advice}")]
pub struct QuantityError {
    /// What is wrong, with the text.
    pub what: String,
    /// What to write in its place.
    pub advice: String,
}

impl QuantityError {
    pub(crate) fn new(what: String, advice: &str) -> Self {
        QuantityError { what, advice: advice.to_owned() }
    }
}

/// Units of time and their length in nanoseconds, shortest first.
const TIME_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// How many units of [`TIME_UNITS`] are decimal, and so may be written with a fraction.
const DECIMAL_TIME_UNITS: usize = 4;

/// Units of memory and their size in bytes, smallest first.
const SIZE_UNITS: [(&str, u64); 5] =
    [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Reads a duration such as `5ms`, `1.5s`, `250us` or `30min`; gives nanoseconds.
///
/// # Errors
/// Says which part of the text is not a duration: no number, no unit, an unknown unit, more digits than
/// nanoseconds, or more than a `u64` of nanoseconds (584 years).
pub fn parse_duration(text: &str) -> Result<u64, QuantityError> {
    let example = "write a number and a unit: ns, us, ms, s, min or h, as in \"30ms\"";
    let (number, unit) = split_unit(text);
    let factor = match unit {
        _ if number.is_empty() => return Err(ScaleFault::NotANumber.describe(text, "duration", "", example)),
        "µs" | "μs" => 1_000,
        "m" => {
            return Err(QuantityError::new(
                format!("\"{text}\" could be minutes or milliseconds"),
                "write \"min\" or \"ms\"",
            ));
        }
        "" => return Err(QuantityError::new(format!("\"{text}\" has no unit of time"), example)),
        unit => TIME_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| QuantityError::new(format!("\"{unit}\" is not a unit of time"), example))?,
    };
    scale(number, factor).map_err(|fault| fault.describe(text, "duration", "a nanosecond", example))
}

/// Writes nanoseconds as the shortest text that [`parse_duration`] reads back exactly: the longest unit that
/// divides them, or a fraction of a longer decimal unit where that is shorter (`1.5s`, not `1500ms`).
pub fn format_duration(nanoseconds: u64) -> String {
    let whole = |(unit, factor): &(&str, u64)| {
        nanoseconds.is_multiple_of(*factor).then(|| format!("{}{unit}", nanoseconds / factor))
    };
    if nanoseconds == 0 {
        return "0ms".to_owned();
    }
    let longest_whole = TIME_UNITS.iter().rev().find_map(whole).unwrap_or_default();
    let fractions = TIME_UNITS[..DECIMAL_TIME_UNITS]
        .iter()
        .filter(|(_, factor)| nanoseconds > *factor)
        .map(|(unit, factor)| format!("{}{unit}", decimal(nanoseconds, *factor)));
    fractions.fold(longest_whole, |best, next| if next.len() < best.len() { next } else { best })
}

/// Writes nanoseconds for reading rather than for reading back: three significant digits (`3.22s`, `48ms`).
pub fn approximate_duration(nanoseconds: u64) -> String {
    let (unit, factor) = TIME_UNITS[..DECIMAL_TIME_UNITS]
        .iter()
        .rev()
        .find(|(_, factor)| nanoseconds >= *factor)
        .unwrap_or(&("ms", 1));
    let value = nanoseconds as f64 / *factor as f64;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Reads a size such as `64M`, `1.5G`, `512KiB` or `4096`; gives bytes. `K`, `M`, `G`, `T` are powers of 1024,
/// as in cgroup files.
///
/// # Errors
/// Says which part of the text is not a size; `MB` and its like are refused, as they mean two things.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let example = "write a number and K, M, G or T (powers of 1024), as in \"64M\"";
    let (number, unit) = split_unit(text);
    if number.is_empty()
        && unit.starts_with('-')
        && unit[1..].trim_start().starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(QuantityError::new(
            format!("\"{text}\" is negative"),
            "write an amount above 0, as in \"64M\"",
        ));
    }
    if unit == "%" {
        return Err(QuantityError::new(format!("\"{text}\" is a part, and no amount"), example));
    }
    let letter = unit.strip_suffix("iB").unwrap_or(unit);
    let factor = SIZE_UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(letter) || (unit == "B" && name.is_empty()))
        .map(|(_, factor)| *factor)
        .ok_or_else(|| match unit.to_ascii_uppercase().as_str() {
            "KB" | "MB" | "GB" | "TB" => {
                let letter = unit[..1].to_ascii_uppercase();
                let meant =
                    format!("write \"{number}{letter}\" for powers of 1024, or all of its bytes as a number");
                QuantityError::new(
                    format!("in \"{text}\", \"{unit}\" could be powers of 1000 or of 1024"),
                    &meant,
                )
            }
            _ => QuantityError::new(format!("\"{unit}\" is not a unit of memory"), example),
        })?;
    scale(number, factor).map_err(|fault| fault.describe(text, "size", "a byte", example))
}

/// Writes bytes as the shortest text that [`parse_size`] reads back exactly, in whole units.
pub fn format_size(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .rev()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(|| bytes.to_string(), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// Reads milliseconds with an optional fraction and no unit, as in the paper's rows (Yang 2009, 7.2.1); gives
/// nanoseconds.
///
/// # Errors
/// When the text is not such a number.
pub fn parse_milliseconds(text: &str) -> Result<u64, QuantityError> {
    let example = "write milliseconds as a plain number, as in \"5\" or \"0.5\"";
    scale(text, 1_000_000)
        .map_err(|fault| fault.describe(text, "number of milliseconds", "a nanosecond", example))
}

/// Writes nanoseconds as milliseconds without a unit, exactly.
pub fn format_milliseconds(nanoseconds: u64) -> String {
    decimal(nanoseconds, 1_000_000)
}

/// Reads `20%` or `0.2`.
///
/// # Errors
/// When it is neither, or not above 0 and at most all.
pub fn parse_fraction(text: &str) -> Result<f64, String> {
    let (number, divisor) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let value: f64 =
        number.parse().map_err(|_| "write a percentage or a fraction, as in 20% or 0.2".to_owned())?;
    let fraction = value / divisor;
    if fraction > 0.0 && fraction <= 1.0 {
        return Ok(fraction);
    }
    let hint = if divisor == 1.0 && value > 1.0 { format!("; did you mean {text}%?") } else { String::new() };
    Err(format!("it must be above 0 and at most 100% (1){hint}"))
}

/// About how many bytes, as people read it: to the mebibyte, or the kibibyte where it is less than ten of them.
pub fn approximate_size(bytes: u64) -> String {
    let unit: u64 = if bytes < 10 << 20 { 1 << 10 } else { 1 << 20 };
    format_size(bytes.saturating_add(unit / 2) / unit * unit)
}

/// A fraction as a percentage, with as many decimals as it has within a hundredth of a percent.
pub fn percent(fraction: f64) -> String {
    percent_to(fraction, 2)
}

/// Writes a fraction as a percentage with as many decimals as it has, at most `decimals`: `12.5 %`.
pub fn percent_to(fraction: f64, decimals: usize) -> String {
    format!("{} %", percent_number(fraction, decimals))
}

/// About which percentage, as people read it: with at most one decimal. What is not zero never reads as zero.
pub fn approximate_percent(fraction: f64) -> String {
    if fraction > 0.0 && fraction < 0.0005 {
        return "less than 0.1 %".to_owned();
    }
    percent_to(fraction, 1)
}

/// The number of [`percent_to`] without its sign: `12.5`.
pub fn percent_number(fraction: f64, decimals: usize) -> String {
    // Adding nothing makes a sum of nothing, which is -0, to 0.
    let text = format!("{:.decimals$}", fraction * 100.0 + 0.0);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Parts a number from its unit: `1.5s` into `1.5` and `s`.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Why a decimal number cannot be scaled to a whole one.
#[derive(Clone, Copy)]
enum ScaleFault {
    NotANumber,
    TooFine,
    TooLarge,
}

impl ScaleFault {
    fn describe(self, text: &str, kind: &str, grain: &str, example: &str) -> QuantityError {
        match self {
            ScaleFault::NotANumber => QuantityError::new(format!("\"{text}\" is not a {kind}"), example),
            ScaleFault::TooFine => QuantityError::new(
                format!("\"{text}\" is finer than {grain}"),
                "write fewer digits after the point",
            ),
            ScaleFault::TooLarge => {
                QuantityError::new(format!("\"{text}\" is too large for a {kind}"), "write a smaller number")
            }
        }
    }
}

/// `number` (decimal digits, at most one point) times `factor`, exactly.
fn scale(number: &str, factor: u64) -> Result<u64, ScaleFault> {
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return Err(ScaleFault::NotANumber);
    }
    let fraction = fraction.trim_end_matches('0');
    let too_large = |_| ScaleFault::TooLarge;
    let whole: u64 = whole.parse().map_err(too_large)?;
    let mut total = u128::from(whole) * u128::from(factor);
    if !fraction.is_empty() {
        // A fraction longer than this cannot be whole after scaling: no factor has as many powers of ten or two.
        let denominator = u32::try_from(fraction.len())
            .ok()
            .filter(|digits| *digits <= 19)
            .map(|digits| 10_u128.pow(digits))
            .ok_or(ScaleFault::TooFine)?;
        let numerator = u128::from(fraction.parse::<u64>().map_err(too_large)?) * u128::from(factor);
        if numerator % denominator != 0 {
            return Err(ScaleFault::TooFine);
        }
        total += numerator / denominator;
    }
    u64::try_from(total).map_err(|_| ScaleFault::TooLarge)
}

/// `value / factor` as an exact decimal number; `factor` is a power of ten.
fn decimal(value: u64, factor: u64) -> String {
    let digits = factor.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / factor, value % factor);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;

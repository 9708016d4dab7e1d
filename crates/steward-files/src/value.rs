//! What is written into a control file, and what is read from it: text with one value.

use steward_core::disk::Limit;
use steward_core::memory::settings::check_protection_period;
use steward_core::quantity::{parse_duration, parse_size, percent_number};

use libsteward::api::IoClass;

use crate::names::ControlFile;

/// The longest value, in bytes. What is longer is no value, and is refused before it is looked at.
pub const VALUE_BYTES_MAX: usize = 128;

/// The decimals of a percentage that count.
const DECIMALS_MAX: usize = 6;

/// One value, read from what was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// CPU reserved, as a fraction of the parent's, above 0 and at most 1; `None` gives it up.
    Cpu(Option<f64>),
    /// Weight among siblings; `None` gives it back to the cgroup's `cpu.weight`.
    Weight(Option<u32>),
    /// Order among siblings.
    Priority(u8),
    /// Disk time reserved, as a fraction of the parent's, above 0 and at most 1; `None` gives it up.
    Io(Option<f64>),
    /// How soon disk requests are served; `None`: as those of the domain above.
    IoClass(Option<IoClass>),
    /// The most that may be read, and written, of each disk in a second.
    IoMax(Limit),
    /// Memory promised, in bytes; `None` gives it up.
    Memory(Option<u64>),
    /// The most memory, in bytes; `None` for no such limit.
    MemoryMax(Option<u64>),
    /// The protection period, in nanoseconds; `None` for no protection.
    Protect(Option<u64>),
    /// A process to move into the domain.
    Member(i32),
}

/// Reads what one write brought.
///
/// # Errors
/// A sentence that says what is wrong and what to write.
pub fn parse(file: ControlFile, bytes: &[u8]) -> Result<Value, String> {
    let text = text_of(bytes)?;
    match file {
        ControlFile::Cpu => Ok(Value::Cpu(parse_fraction(text)?)),
        ControlFile::Io => Ok(Value::Io(parse_fraction(text)?)),
        ControlFile::IoClass => parse_class(text).map(Value::IoClass),
        ControlFile::IoMax if gives_up(text) => Ok(Value::IoMax(Limit::default())),
        ControlFile::IoMax => text.parse().map(Value::IoMax),
        ControlFile::CpuWeight => parse_weight(text).map(Value::Weight),
        ControlFile::CpuPriority => parse_priority(text).map(Value::Priority),
        ControlFile::Memory => parse_memory(text).map(Value::Memory),
        ControlFile::MemoryMax => parse_memory(text).map(Value::MemoryMax),
        ControlFile::MemoryProtect => parse_protection(text).map(Value::Protect),
        ControlFile::Members => parse_pid(text).map(Value::Member),
        _ => Err(format!("{} can only be read", file.name())),
    }
}

/// One line of plain text, without the white space around it.
fn text_of(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(format!("more than {VALUE_BYTES_MAX} bytes were written at once; write one value"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "this is no text; write one value".to_owned())?;
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    if text.is_empty() {
        return Err("nothing was written; write one value".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("a value is one line without control characters; write one value at a time".to_owned());
    }
    Ok(text)
}

/// Whether nothing particular is wanted: reservations read `none`, and the command line calls it `default`.
fn gives_up(text: &str) -> bool {
    matches!(text, "none" | "default")
}

/// A percentage above 0 and at most 100, such as `50`, `12.5` or `50%`, as a fraction; `none` is none.
fn parse_fraction(text: &str) -> Result<Option<f64>, String> {
    const EXAMPLE: &str = "write a percentage of the parent's, as in 50 or 12.5, or none";
    if gives_up(text) {
        return Ok(None);
    }
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX {
        return Err(format!("\"{text}\" is no percentage; {EXAMPLE}"));
    }
    let percent: f64 = number.parse().map_err(|_| format!("\"{text}\" is no percentage; {EXAMPLE}"))?;
    if percent == 0.0 {
        return Err(format!("0 % is no reservation; {EXAMPLE}"));
    }
    if percent > 100.0 {
        return Err(format!("{text} is more than all that the parent has; {EXAMPLE}"));
    }
    Ok(Some(percent / 100.0))
}

fn parse_weight(text: &str) -> Result<Option<u32>, String> {
    if gives_up(text) {
        return Ok(None);
    }
    let weight = parse_number(text).filter(|weight| (1..=10_000).contains(weight));
    let weight = weight.ok_or_else(|| {
        format!("\"{text}\" is no weight; write a number from 1 to 10000, or default for the cgroup's own")
    })?;
    Ok(u32::try_from(weight).ok())
}

fn parse_priority(text: &str) -> Result<u8, String> {
    let priority = parse_number(text).filter(|priority| *priority < 8);
    priority
        .and_then(|priority| u8::try_from(priority).ok())
        .ok_or_else(|| format!("\"{text}\" is no priority; write a number from 0 to 7, higher comes first"))
}

fn parse_class(text: &str) -> Result<Option<IoClass>, String> {
    if gives_up(text) {
        return Ok(None);
    }
    let class = IoClass::ALL.into_iter().find(|class| class.name() == text);
    let words = IoClass::ALL.map(IoClass::name).join(", ");
    class.map(Some).ok_or_else(|| format!("\"{text}\" is no class; write one of {words}, or none"))
}

fn parse_memory(text: &str) -> Result<Option<u64>, String> {
    if gives_up(text) {
        return Ok(None);
    }
    match parse_size(text) {
        Ok(0) => Err("0 bytes are nothing to promise or to work with; write none for neither".to_owned()),
        Ok(bytes) if i64::try_from(bytes).is_err() => {
            Err(format!("{text} is more memory than any machine has; write a size, as in 64M"))
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_protection(text: &str) -> Result<Option<u64>, String> {
    if gives_up(text) {
        return Ok(None);
    }
    let period_ns = parse_duration(text).map(|period_ns| i64::try_from(period_ns).unwrap_or(i64::MAX));
    period_ns.and_then(check_protection_period).map(Some).map_err(|error| error.to_string())
}

fn parse_pid(text: &str) -> Result<i32, String> {
    let pid = parse_number(text).and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
    pid.ok_or_else(|| format!("\"{text}\" is no process id; write one number per write"))
}

/// A plain decimal number: no sign, no blank, no more digits than ten.
fn parse_number(text: &str) -> Option<u64> {
    let plain = text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// A fraction as a percentage that [`parse`] reads back, rounded to the decimals that count.
pub fn percent(fraction: f64) -> String {
    percent_number(fraction, DECIMALS_MAX)
}

/// A reserved fraction as a percentage, or none.
pub fn reserved_percent(fraction: Option<f64>) -> String {
    fraction.filter(|fraction| *fraction > 0.0).map_or_else(|| "none".to_owned(), percent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_shell_writes_is_understood() {
        let cases = [
            (ControlFile::Cpu, "50\n", Value::Cpu(Some(0.5))),
            (ControlFile::Cpu, " 12.5 %\n", Value::Cpu(Some(0.125))),
            (ControlFile::Cpu, "100%", Value::Cpu(Some(1.0))),
            (ControlFile::Cpu, "none\n", Value::Cpu(None)),
            (ControlFile::Cpu, "default\n", Value::Cpu(None)),
            (ControlFile::Io, "10", Value::Io(Some(0.1))),
            (ControlFile::IoClass, "background\n", Value::IoClass(Some(IoClass::Background))),
            (ControlFile::IoClass, "none\n", Value::IoClass(None)),
            (ControlFile::Memory, "64M\n", Value::Memory(Some(64 << 20))),
            (ControlFile::Memory, "none\n", Value::Memory(None)),
            (ControlFile::MemoryMax, "1G", Value::MemoryMax(Some(1 << 30))),
            (ControlFile::MemoryProtect, "30min\n", Value::Protect(Some(1_800_000_000_000))),
            (ControlFile::MemoryProtect, "90 s\n", Value::Protect(Some(90_000_000_000))),
            (ControlFile::MemoryProtect, "none\n", Value::Protect(None)),
            (ControlFile::CpuWeight, "200\n", Value::Weight(Some(200))),
            (ControlFile::CpuWeight, "default\n", Value::Weight(None)),
            (ControlFile::CpuPriority, "7\n", Value::Priority(7)),
            (ControlFile::Members, "4242\n", Value::Member(4242)),
        ];
        for (file, text, value) in cases {
            assert_eq!(parse(file, text.as_bytes()), Ok(value), "{text:?} into {}", file.name());
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_what_to_write() {
        let refused = [
            (ControlFile::Cpu, "0", "no reservation"),
            (ControlFile::Cpu, "0.0%", "no reservation"),
            (ControlFile::Cpu, "100.1", "more than all"),
            (ControlFile::Cpu, "-5", "no percentage"),
            (ControlFile::Cpu, "1e2", "no percentage"),
            (ControlFile::Cpu, "NaN", "no percentage"),
            (ControlFile::Cpu, "5ms/30ms", "no percentage"),
            (ControlFile::Cpu, "50\n60\n", "one value at a time"),
            (ControlFile::Cpu, "\n", "nothing was written"),
            (ControlFile::Cpu, "5\0", "control characters"),
            (ControlFile::CpuWeight, "0", "1 to 10000"),
            (ControlFile::CpuWeight, "10001", "1 to 10000"),
            (ControlFile::CpuPriority, "8", "0 to 7"),
            (ControlFile::Members, "0", "no process id"),
            (ControlFile::Members, "-1", "no process id"),
            (ControlFile::Members, "99999999999", "no process id"),
            (ControlFile::Memory, "64MB", "1000 or of 1024"),
            (ControlFile::Memory, "9000000T", "more memory"),
            (ControlFile::MemoryProtect, "30", "no unit of time"),
            (ControlFile::MemoryProtect, "0s", "from 1s to 24h"),
            (ControlFile::MemoryProtect, "-30min", "not a duration"),
            (ControlFile::IoClass, "idle", "interactive, normal, background"),
            (ControlFile::CpuSum, "5", "only be read"),
        ];
        for (file, text, phrase) in refused {
            let sentence = parse(file, text.as_bytes()).expect_err(text);
            assert!(sentence.contains(phrase), "{text:?} into {}: {sentence}", file.name());
        }
        assert!(parse(ControlFile::Cpu, b"\xff5").expect_err("no text").contains("no text"));
        assert!(parse(ControlFile::Cpu, &[b' '; 200]).expect_err("too long").contains("128 bytes"));
    }

    #[test]
    fn percentages_are_as_short_as_can_be() {
        let texts =
            [(0.0, "0"), (-0.0, "0"), (1.0, "100"), (0.1, "10"), (0.125, "12.5"), (1.0 / 3.0, "33.333333")];
        for (fraction, text) in texts {
            assert_eq!(percent(fraction), text);
        }
        assert_eq!(reserved_percent(None), "none");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_in_range_or_a_sentence(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "[0-9 .%a-zMG/-]{0,20}\n?".prop_map(String::into_bytes),
            ],
            index in 0..ControlFile::ALL.len(),
        ) {
            match parse(ControlFile::ALL[index], &bytes) {
                Ok(Value::Cpu(Some(fraction)) | Value::Io(Some(fraction))) => {
                    prop_assert!(fraction > 0.0 && fraction <= 1.0);
                }
                Ok(Value::Weight(Some(weight))) => prop_assert!((1..=10_000).contains(&weight)),
                Ok(Value::Protect(Some(period_ns))) => {
                    prop_assert!(check_protection_period(period_ns as i64).is_ok());
                }
                Ok(Value::Priority(priority)) => prop_assert!(priority < 8),
                Ok(Value::Member(pid)) => prop_assert!(pid > 0),
                Ok(_) => {}
                Err(sentence) => prop_assert!(sentence.len() < 600 && !sentence.contains('\n')),
            }
        }

        #[test]
        fn a_percentage_is_read_back_as_it_was_written(millionths in 1u64..=100_000_000) {
            let fraction = millionths as f64 / 100_000_000.0;
            let read = parse(ControlFile::Cpu, percent(fraction).as_bytes());
            let Ok(Value::Cpu(Some(read))) = read else { panic!("{read:?}") };
            prop_assert!((read - fraction).abs() < 1e-12);
        }
    }
}

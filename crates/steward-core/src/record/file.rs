//! The store's form on the disk: text, one block of lines for each domain, each with a checksum of its own.
//!
//! ```text
//! <what is counted> <version>
//! time <seconds to add to those since boot> <boot>
//! domain <user> <last second> <path>
//! m <minute> <numbers of what was counted>
//! q <quarter of an hour> <numbers>
//! end <checksum of the block>
//! ```
//!
//! The seconds of the last minute are not written, so a domain takes at most 156 lines. Of a file that was cut off or
//! changed, the blocks that are whole are read, and what is wrong with the rest is said.

use std::fmt::Write;
use std::str::SplitAsciiWhitespace;

use super::counted::Counted;
use super::rings::{DOMAINS_MAX, Record, Records, Span, Timeline};

/// The whole store as text.
pub fn encode<T: Counted>(records: &Records<T>, timeline: &Timeline) -> String {
    let mut text = format!("{}\ntime {} {}\n", T::HEADER, timeline.offset_s, timeline.boot_id);
    for (path, record) in &records.by_path {
        // The kernel takes no such name for a cgroup; a line must stay a line.
        if path.contains(['\n', '\r']) {
            continue;
        }
        let begin = text.len();
        line(&mut text, format_args!("domain {} {} {path}", record.user, record.last_s));
        for (letter, ring) in [('m', &record.minutes), ('q', &record.quarters)] {
            for (number, counted) in &ring.slots {
                line(&mut text, format_args!("{letter} {number} {}", numbers(counted)));
            }
        }
        let sum = checksum(&text.as_bytes()[begin..]);
        line(&mut text, format_args!("end {sum:016x}"));
    }
    text
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = writeln!(text, "{content}");
}

fn numbers<T: Counted>(counted: &T) -> String {
    let numbers: Vec<String> = counted.numbers().as_ref().iter().map(u64::to_string).collect();
    numbers.join(" ")
}

/// FNV-1a: notices what was torn or rotted; the file's permissions are for the rest.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Reads what [`encode`] wrote. Never fails: what cannot be read is left out, and said in a sentence each, with the
/// line.
pub fn decode<T: Counted>(text: &str) -> (Records<T>, Timeline, Vec<String>) {
    let mut records = Records::default();
    let mut problems = Vec::new();
    let mut rest = text;
    let header = take_line(&mut rest);
    if header.map(str::trim_end) != Some(T::HEADER) {
        problems.push(format!("line 1: this is no {}: it does not begin with \"{}\"", T::NAME, T::HEADER));
        return (records, Timeline::default(), problems);
    }
    let timeline = take_line(&mut rest).and_then(read_time).unwrap_or_else(|| {
        problems.push("line 2: the time is missing: what follows counts as old".to_owned());
        Timeline::default()
    });
    let mut line_number = 3;
    while !rest.is_empty() {
        let (block, length) = take_block(&mut rest);
        match read_block(block) {
            Ok(_) if records.by_path.len() >= DOMAINS_MAX => {
                problems.push(format!("line {line_number}: there are more than {DOMAINS_MAX} domains"));
                break;
            }
            Ok((path, record)) => _ = records.by_path.insert(path, record),
            Err(what) => problems.push(format!("line {line_number}: a domain is left out: {what}")),
        }
        line_number += length;
    }
    (records, timeline, problems)
}

/// The next line with its end, if it has one.
fn take_line<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let line = rest.split_inclusive('\n').next()?;
    *rest = &rest[line.len()..];
    line.ends_with('\n').then_some(line)
}

/// Lines up to one that ends a block, or to the next that begins one; and how many they are.
fn take_block<'a>(rest: &mut &'a str) -> (&'a str, usize) {
    let (mut bytes, mut lines) = (0, 0);
    for line in rest.split_inclusive('\n') {
        if lines > 0 && line.starts_with("domain ") {
            break;
        }
        bytes += line.len();
        lines += 1;
        if line.starts_with("end ") {
            break;
        }
    }
    let block = &rest[..bytes];
    *rest = &rest[bytes..];
    (block, lines)
}

fn read_time(line: &str) -> Option<Timeline> {
    let (offset_s, boot_id) = line.strip_prefix("time ")?.trim_end().split_once(' ')?;
    Some(Timeline { boot_id: boot_id.to_owned(), offset_s: offset_s.parse().ok()? })
}

fn read_block<T: Counted>(block: &str) -> Result<(String, Record<T>), String> {
    let cut_off = || "it is cut off".to_owned();
    let mut lines: Vec<&str> = block.split_inclusive('\n').collect();
    let last = lines.pop().filter(|line| line.ends_with('\n')).ok_or_else(cut_off)?;
    let sum = last.strip_prefix("end ").and_then(|sum| u64::from_str_radix(sum.trim_end(), 16).ok());
    let sum = sum.ok_or_else(cut_off)?;
    if checksum(&block.as_bytes()[..block.len() - last.len()]) != sum {
        return Err("its checksum is wrong".to_owned());
    }
    let mut lines = lines.into_iter().map(|line| line.trim_end_matches('\n'));
    let (path, mut record) = lines.next().and_then(read_domain).ok_or("its first line names no domain")?;
    for line in lines {
        read_slot(line, &mut record)
            .ok_or_else(|| format!("it has a line that is none of ours: {line:?}"))?;
    }
    Ok((path, record))
}

fn read_domain<T: Counted>(line: &str) -> Option<(String, Record<T>)> {
    let mut parts = line.strip_prefix("domain ")?.splitn(3, ' ');
    let user = parts.next()?.parse().ok()?;
    let last_s = parts.next()?.parse().ok()?;
    let path = parts.next()?;
    Some((path.to_owned(), Record { user, last_s, ..Record::default() }))
}

fn read_slot<T: Counted>(line: &str, record: &mut Record<T>) -> Option<()> {
    let mut parts = line.split_ascii_whitespace();
    let (ring, span) = match parts.next()? {
        "m" => (&mut record.minutes, Span::Hour),
        "q" => (&mut record.quarters, Span::Day),
        _ => return None,
    };
    let number = parts.next()?.parse().ok()?;
    let counted = read_numbers(&mut parts)?;
    let follows = ring.slots.back().is_none_or(|(last, _)| *last < number);
    if !follows || ring.slots.len() as u64 >= span.slots() || parts.next().is_some() {
        return None;
    }
    ring.slots.push_back((number, counted));
    Some(())
}

fn read_numbers<T: Counted>(parts: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    let mut numbers = T::default().numbers();
    for number in numbers.as_mut() {
        *number = parts.next()?.parse().ok()?;
    }
    Some(T::of_numbers(numbers))
}

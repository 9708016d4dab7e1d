//! Reads TOML for people: every value keeps its line, every problem is collected, nothing stops at the first one.
//!
//! `serde` would stop at the first fault of a file; the files here must lose only the rows that are wrong. So the
//! text is parsed to values with their positions, and each table is then taken apart key by key.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Origin, Problem};

/// A TOML value with its position.
pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// A file that is being read, and what was found wrong with it so far.
pub(crate) struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    /// Where each line ends, so that finding a position's line does not count through the text again.
    line_ends: Vec<usize>,
    /// In the order found.
    pub(crate) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a Path, text: &'a str) -> Self {
        let bytes = text.bytes().enumerate();
        let line_ends = bytes.filter_map(|(at, byte)| (byte == b'\n').then_some(at)).collect();
        Reader { file, text, line_ends, problems: Vec::new() }
    }

    /// The whole file as a table; `None` after a syntax error, which is then among the problems.
    pub(crate) fn document(&mut self) -> Option<DeTable<'a>> {
        match DeTable::parse(self.text) {
            Ok(table) => Some(table.into_inner()),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
                let advice = "correct the line; until then nothing in this file is in force";
                self.error(span, format!("not valid TOML: {message}"), advice);
                None
            }
        }
    }

    /// The line on which a position is, counted from 1.
    pub(crate) fn origin(&self, span: &Range<usize>) -> Origin {
        let line = 1 + self.line_ends.partition_point(|end| *end < span.start);
        Origin::at(self.file, u32::try_from(line).unwrap_or(u32::MAX))
    }

    /// Records a problem at a position.
    pub(crate) fn error(&mut self, span: Range<usize>, what: impl Into<String>, advice: impl Into<String>) {
        self.problems.push(Problem::error(self.origin(&span), what, advice));
    }

    /// Records every key of `table` that is not among `known`.
    pub(crate) fn reject_unknown_keys(&mut self, table: &DeTable<'a>, known: &[&str], place: &str) {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                self.error(key.span(), format!("{place} has no key \"{name}\""), suggest(name, known));
            }
        }
    }

    /// The table of that name, if there is one; a key that it does not have is a problem.
    pub(crate) fn section<'t>(
        &mut self,
        table: &'t DeTable<'a>,
        name: &str,
        known: &[&str],
    ) -> Option<&'t DeTable<'a>> {
        let value = lookup(table, name)?;
        match value.get_ref() {
            DeValue::Table(section) => {
                self.reject_unknown_keys(section, known, &format!("[{name}]"));
                Some(section)
            }
            _ => {
                let advice = format!("write [{name}], then its keys below it");
                self.error(value.span(), format!("{name} is not a table"), advice);
                None
            }
        }
    }

    /// A part of something, above 0 and at most 1; `whole` says what of.
    pub(crate) fn part(&mut self, section: &DeTable<'a>, key: &str, whole: &str) -> Option<f64> {
        let part = self.number(section, key, "0.8")?;
        if *part.get_ref() > 0.0 && *part.get_ref() <= 1.0 {
            return Some(*part.get_ref());
        }
        let what = format!("{key} = {} is no fraction of {whole}", part.get_ref());
        self.error(part.span(), what, "give a number above 0 and at most 1");
        None
    }

    /// The text under `key` and its position, if the key is there; a problem if it is no text.
    pub(crate) fn string(
        &mut self,
        table: &DeTable<'a>,
        key: &str,
        example: &str,
    ) -> Option<Spanned<String>> {
        let value = lookup(table, key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.to_string())),
            other => {
                self.wrong_type(value, key, other, &format!("a text in quotes, as in {key} = \"{example}\""));
                None
            }
        }
    }

    /// The truth value under `key`, if the key is there; a problem if it is none.
    pub(crate) fn boolean(&mut self, table: &DeTable<'a>, key: &str) -> Option<bool> {
        let value = lookup(table, key)?;
        match value.get_ref() {
            DeValue::Boolean(truth) => Some(*truth),
            other => {
                self.wrong_type(value, key, other, "true or false, without quotes");
                None
            }
        }
    }

    /// The number under `key` and its position, if the key is there; a problem if it is none.
    pub(crate) fn number(&mut self, table: &DeTable<'a>, key: &str, example: &str) -> Option<Spanned<f64>> {
        let value = lookup(table, key)?;
        let number = match value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let advice = format!("a plain number, as in {key} = {example}");
            self.wrong_type(value, key, value.get_ref(), &advice);
        }
        number.map(|number| Spanned::new(value.span(), number))
    }

    fn wrong_type(&mut self, value: &Value<'a>, key: &str, found: &DeValue<'a>, wanted: &str) {
        let found = found.type_str();
        let article = if found.starts_with(['a', 'i']) { "an" } else { "a" };
        self.error(value.span(), format!("{key} is {article} {found}"), format!("write {wanted}"));
    }
}

/// The value under `key`.
pub(crate) fn lookup<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<&'t Value<'a>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

/// What to do about a word that is not among `known`: the nearest one, or all of them.
pub(crate) fn suggest(word: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word.to_lowercase(), candidate), *candidate))
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match nearest {
        Some((likeness, candidate)) if likeness > 0.8 => format!("did you mean \"{candidate}\"?"),
        _ => format!("use one of: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_is_on_the_line_that_as_many_ends_stand_before(
            text in "[a=\n]{0,40}",
            start in 0..50_usize,
        ) {
            let reader = Reader::new(Path::new("a.toml"), &text);
            let before = &text.as_bytes()[..start.min(text.len())];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            prop_assert_eq!(reader.origin(&(start..start)).line as usize, line);
        }
    }
}

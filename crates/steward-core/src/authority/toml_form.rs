//! Rules as TOML rows.
//!
//! ```toml
//! [[rule]]
//! who = ["user:alice", "group:audio"]
//! action = "reserve"
//! resource = "cpu"
//! of = "own"
//! verdict = "allow"
//! ```

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::request::{Action, Target};
use super::rule::{Effect, Rule, RuleName, Who};
use crate::accounts::Accounts;
use crate::problem::Problem;
use crate::quantity::parse_fraction;
use crate::resource::Resource;
use crate::toml_reader::{Reader, Value, lookup, suggest};

/// The keys of a row.
const KEYS: [&str; 6] = ["who", "action", "resource", "of", "at_most", "verdict"];

/// What one file gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedRules {
    /// The rules that stand, in the order written.
    pub rules: Vec<Rule>,
    /// What is wrong with the others, in the order of lines.
    pub problems: Vec<Problem>,
}

/// Reads a file of `[[rule]]` rows. A row with a fault is left out and every fault of it is among the problems; the
/// other rows stand. A syntax error costs the whole file.
pub fn parse_rules(file: &Path, text: &str, accounts: &dyn Accounts) -> ParsedRules {
    let mut reader = Reader::new(file, text);
    let mut rules = Vec::new();
    if let Some(document) = reader.document() {
        for key in document.keys().filter(|key| key.get_ref() != "rule") {
            let name: &str = key.get_ref();
            let advice = if KEYS.contains(&name) {
                format!("put [[rule]] on a line of its own before {name}")
            } else {
                "a file of rules has [[rule]] rows only".to_owned()
            };
            reader.error(key.span(), format!("\"{name}\" is outside of any [[rule]] row"), advice);
        }
        let rows = lookup(&document, "rule").map_or(&[][..], |value| rows_of(&mut reader, value));
        let numbered = rows.iter().zip(1..);
        rules = numbered.filter_map(|(row, number)| read_row(&mut reader, row, number, accounts)).collect();
    }
    let mut problems = reader.problems;
    problems.sort_by_key(|problem| problem.origin.line);
    ParsedRules { rules, problems }
}

fn rows_of<'t, 'a>(reader: &mut Reader<'a>, value: &'t Value<'a>) -> &'t [Value<'a>] {
    match value.get_ref() {
        DeValue::Array(rows) => rows,
        _ => {
            let advice = "write [[rule]] with two brackets on each side";
            reader.error(value.span(), "rule is not a list of rows", advice);
            &[]
        }
    }
}

/// One row; `None` if anything is wrong with it.
fn read_row<'a>(
    reader: &mut Reader<'a>,
    row: &Value<'a>,
    number: u32,
    accounts: &dyn Accounts,
) -> Option<Rule> {
    let DeValue::Table(table) = row.get_ref() else {
        reader.error(row.span(), "a row of rule is not a table", "write [[rule]], then its keys below it");
        return None;
    };
    let problems_before = reader.problems.len();
    reader.reject_unknown_keys(table, &KEYS, "a rule");
    let actions = Action::ALL.map(|action| (action.name(), action));
    let resources = Resource::ALL.map(|resource| (resource.name(), resource));
    let targets = Target::ALL.map(|target| (target.name(), target));
    let effects = Effect::ALL.map(|effect| (effect.name(), effect));
    let mut cells = Cells { reader, table, row: row.span() };
    let who = cells.words("who", true, |word| who_from(word, accounts).map(|who| vec![who]));
    let actions = cells.words("action", true, |word| one_of(word, "all", &actions));
    let resources = match lookup(table, "resource") {
        Some(_) => cells.words("resource", true, |word| one_of(word, "all", &resources)),
        None => Resource::ALL.to_vec(),
    };
    let of = cells.words("of", true, |word| one_of(word, "anyone", &targets));
    let verdict = cells.words("verdict", false, |word| one_of(word, "", &effects));
    let at_most = cells.at_most(&actions, &resources, &of, &verdict);
    if cells.reader.problems.len() > problems_before {
        return None;
    }
    let name = RuleName { origin: cells.reader.origin(&cells.row), number };
    Some(Rule { name, who, actions, resources, of, verdict: *verdict.first()?, at_most })
}

/// The word's meaning; `all_word` stands for every one.
fn one_of<T: Copy>(word: &str, all_word: &str, known: &[(&str, T)]) -> Result<Vec<T>, Fault> {
    if word == all_word && !all_word.is_empty() {
        return Ok(known.iter().map(|(_, meaning)| *meaning).collect());
    }
    if let Some((_, meaning)) = known.iter().find(|(name, _)| *name == word) {
        return Ok(vec![*meaning]);
    }
    let mut names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    names.extend(Some(all_word).filter(|word| !word.is_empty()));
    Err((format!("is \"{word}\""), suggest(word, &names)))
}

/// What is wrong with a word, to be put after its key, and what to do.
type Fault = (String, String);

fn who_from(word: &str, accounts: &dyn Accounts) -> Result<Who, Fault> {
    match word {
        "root" => return Ok(Who::Root),
        "owner" => return Ok(Who::Owner),
        "everyone" => return Ok(Who::Everyone),
        "active-session" => return Ok(Who::ActiveSession),
        _ => {}
    }
    let kinds = ["root", "owner", "active-session", "everyone", "user:NAME", "group:NAME"];
    let Some((kind @ ("user" | "group"), name)) = word.split_once(':') else {
        return Err((format!("is \"{word}\""), suggest(word, &kinds)));
    };
    let number = match name.parse().ok().filter(|_| name.bytes().all(|byte| byte.is_ascii_digit())) {
        // The kernel's word for "no user".
        Some(u32::MAX) => None,
        Some(number) => Some(number),
        None if kind == "user" => accounts.uid_of(name),
        None => accounts.gid_of(name),
    };
    match (kind, number) {
        ("user", Some(uid)) => Ok(Who::User(uid)),
        (_, Some(gid)) => Ok(Who::Group(gid)),
        (_, None) => Err((
            format!("names {kind} \"{name}\", whom /etc/{} does not have", file_of(kind)),
            format!("correct the name, or write {kind}:NUMBER (for accounts of a directory service)"),
        )),
    }
}

fn file_of(kind: &str) -> &'static str {
    if kind == "user" { "passwd" } else { "group" }
}

/// The keys of one row, being read.
struct Cells<'r, 't, 'a> {
    reader: &'r mut Reader<'a>,
    table: &'t DeTable<'a>,
    row: Range<usize>,
}

impl Cells<'_, '_, '_> {
    /// Reads the limit of a rule that has one. It can be kept only where everything that is counted is asked for under
    /// it.
    fn at_most(
        &mut self,
        actions: &[Action],
        resources: &[Resource],
        of: &[Target],
        verdict: &[Effect],
    ) -> Option<f64> {
        let value = lookup(self.table, "at_most")?;
        let fraction = match value.get_ref() {
            DeValue::String(text) => parse_fraction(text),
            _ => {
                let number = self.reader.number(self.table, "at_most", "\"50%\"")?.into_inner();
                parse_fraction(&number.to_string())
            }
        };
        if let Err(what) = &fraction {
            self.reader.error(value.span(), format!("at_most: {what}"), "give a part of one CPU");
        }
        let is_counted = (actions, resources, of) == (&[Action::Reserve], &[Resource::Cpu], &[Target::Own])
            && verdict != [Effect::Deny];
        if !is_counted {
            let advice = "write action = \"reserve\", resource = \"cpu\", of = \"own\" and another verdict than \
                          \"deny\" with it, or leave it out";
            self.reader.error(value.span(), "at_most limits nothing that this rule is about", advice);
        }
        fraction.ok()
    }

    /// Reads a word, or a list of words where that may be, and turns each into what it means. Problems are recorded.
    fn words<T>(
        &mut self,
        key: &str,
        may_be_list: bool,
        convert: impl Fn(&str) -> Result<Vec<T>, Fault>,
    ) -> Vec<T> {
        let Some(value) = lookup(self.table, key) else {
            self.reader.error(self.row.clone(), format!("the rule has no {key}"), format!("add {key} = ..."));
            return Vec::new();
        };
        let words = match value.get_ref() {
            DeValue::Array(words) if may_be_list && !words.is_empty() => &words[..],
            DeValue::Array(_) if may_be_list => {
                self.reader.error(value.span(), format!("{key} is empty"), "name at least one");
                return Vec::new();
            }
            _ => std::slice::from_ref(value),
        };
        let mut meanings = Vec::new();
        for word in words {
            match word.get_ref() {
                DeValue::String(text) => match convert(text) {
                    Ok(meaning) => meanings.extend(meaning),
                    Err((what, advice)) => self.reader.error(word.span(), format!("{key} {what}"), advice),
                },
                other => {
                    let list = if may_be_list { ", or a list of such" } else { "" };
                    let what = format!("{key} has a value of type {}", other.type_str());
                    self.reader.error(word.span(), what, format!("write a text in quotes{list}"));
                }
            }
        }
        meanings
    }
}

//! `KEY=VALUE` in place of what a scenario file says: for `--set` and `[sweep]`.
//!
//! Keys are paths as in `machine.cpus`; entries of `[[task]]`, `[[domain]]` and `[[buffer]]` are found by their name,
//! as in `task.player.count`.

use std::path::Path;

use steward_core::problem::{Origin, Problem};
use toml::{Table, Value};

/// The text of the file with the settings in it.
pub(super) fn apply(path: &Path, text: &str, settings: &[(String, String)]) -> Result<String, Problem> {
    let fault = |what: String, advice: &str| Problem::error(Origin::at(path, 0), what, advice);
    let mut document: Table = toml::from_str(text)
        .map_err(|error| fault(format!("not valid TOML: {}", error.message()), "correct the file"))?;
    document.remove("sweep");
    for (key, value) in settings {
        let place = find(&mut document, key).ok_or_else(|| {
            let advice = "name a table and a key of it, as in machine.cpus, or task.NAME.count for an entry that \
                          the file has";
            fault(format!("there is nothing to set with \"{key}\""), advice)
        })?;
        let (table, last) = place;
        table.insert(last, typed(value));
    }
    toml::to_string(&document)
        .map_err(|error| fault(format!("cannot be changed: {error}"), "correct the file"))
}

/// A number where it is one, else text.
fn typed(value: &str) -> Value {
    if let Ok(integer) = value.parse() {
        return Value::Integer(integer);
    }
    value.parse().map_or_else(|_| Value::String(value.to_owned()), Value::Float)
}

/// The table that the key's last part belongs into.
fn find<'t>(document: &'t mut Table, key: &str) -> Option<(&'t mut Table, String)> {
    let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
    if last.is_empty() {
        return None;
    }
    let Some((kind, name)) = path.split_once('.') else {
        if path.is_empty() {
            return Some((document, last.to_owned()));
        }
        let table = document.entry(path).or_insert_with(|| Value::Table(Table::new()));
        return Some((table.as_table_mut()?, last.to_owned()));
    };
    let entries = document.get_mut(kind)?.as_array_mut()?;
    let named = |entry: &&mut Value| entry.get("name").and_then(Value::as_str) == Some(name);
    let entry = entries.iter_mut().find(named)?;
    Some((entry.as_table_mut()?, last.to_owned()))
}

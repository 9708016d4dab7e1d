//! What all commands print with: text or JSON on standard output, where a reader that has gone is no failure.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

/// The version of everything that `--json` prints. It grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Standard output was closed by its reader, as `head` does.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the reader of standard output has gone")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints text as it is.
///
/// # Errors
/// [`ReaderGone`], or why it could not be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => Ok(other?),
    }
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Prints a struct as one JSON object with its "schema", indented.
///
/// # Errors
/// As [`print`].
pub fn print_json<T: Serialize>(content: &T) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(&Versioned { schema: SCHEMA, content })? + "\n"))
}

/// The same on one line.
///
/// # Errors
/// As [`print`].
pub fn print_json_line<T: Serialize>(content: &T) -> anyhow::Result<()> {
    print(&(serde_json::to_string(&Versioned { schema: SCHEMA, content })? + "\n"))
}

/// Highlights text on a terminal, unless NO_COLOR asks for none.
pub fn highlight(text: &str) -> String {
    let colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if colourless || !std::io::stdout().is_terminal() {
        text.to_owned()
    } else {
        format!("\x1b[33m{text}\x1b[0m")
    }
}

/// Lays rows out in columns; the first row is the header. Columns named in `right` are aligned to the right.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let padding = " ".repeat(widths[column] - cell.width());
            if right.contains(&column) { padding + cell } else { cell.clone() + &padding }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A line of a table.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["CPU".to_owned(), "NAME".into()], vec!["12".into(), "x".into()]];
        assert_eq!(table(&rows, &[0]), "CPU  NAME\n 12  x\n");
        let wide = [
            vec!["日本".to_owned(), "a".into()],
            vec!["abcd".into(), "b".into()],
            vec!["e\u{301}".into(), "c".into()],
        ];
        assert_eq!(table(&wide, &[]), "日本  a\nabcd  b\ne\u{301}     c\n");
    }
}

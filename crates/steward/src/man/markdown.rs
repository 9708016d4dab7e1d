//! From the Markdown of the reference to roff: headings, paragraphs, lists, tables, code. What the reference does not
//! use is not known here. Tables become lists: a man page is narrow.

use super::page::escape;

/// Turns a page of the reference into the man page `name`(5). `links` says what links to other files become.
pub fn to_roff(text: &str, name: &str, about: &str, links: &[(&str, &str)]) -> String {
    let mut roff = Roff { text: String::new(), links };
    roff.text =
        format!(".TH \"{name}\" \"5\" \"\" \"Steward\" \"Files\"\n.SH NAME\n{} \\- {about}\n", escape(name));
    let blocks = blocks(text);
    let mut described = false;
    for block in &blocks {
        match block {
            Block::Heading(1, _) => {}
            Block::Heading(level, title) => {
                described = true;
                roff.heading(*level, title);
            }
            other => {
                if !std::mem::replace(&mut described, true) {
                    roff.text.push_str(".SH DESCRIPTION\n");
                }
                roff.block(other);
            }
        }
    }
    roff.text
}

#[derive(Debug, PartialEq)]
enum Block {
    Heading(usize, String),
    Paragraph(String),
    Code(Vec<String>),
    Item(String),
    /// The header first.
    Table(Vec<Vec<String>>),
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with("<!--") {
            continue;
        }
        if line.starts_with("```") {
            blocks.push(Block::Code(
                lines.by_ref().take_while(|line| !line.starts_with("```")).map(str::to_owned).collect(),
            ));
        } else if let Some(code) = line.strip_prefix("    ") {
            let mut all = vec![code.to_owned()];
            while let Some(next) = lines.next_if(|next| next.starts_with("    ")) {
                all.push(next[4..].to_owned());
            }
            blocks.push(Block::Code(all));
        } else if line.starts_with('#') {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            blocks.push(Block::Heading(level, line[level..].trim().to_owned()));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(next) = lines.next_if(|next| next.starts_with('|')) {
                rows.push(cells(next));
            }
            rows.retain(|row| {
                !row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|sign| "-:".contains(sign)))
            });
            blocks.push(Block::Table(rows));
        } else {
            let (is_item, first) = match line.strip_prefix("- ") {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            let mut whole = first.trim().to_owned();
            let goes_on = |next: &&str| {
                !next.trim().is_empty()
                    && !next.starts_with(['#', '|'])
                    && !next.starts_with("```")
                    && !next.starts_with("- ")
            };
            while let Some(next) = lines.next_if(goes_on) {
                whole.push(' ');
                whole.push_str(next.trim());
            }
            blocks.push(if is_item { Block::Item(whole) } else { Block::Paragraph(whole) });
        }
    }
    blocks
}

/// The cells of a row; `\|` is no border.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.replace("\\|", "\u{0}").split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

struct Roff<'l> {
    text: String,
    links: &'l [(&'l str, &'l str)],
}

impl Roff<'_> {
    fn heading(&mut self, level: usize, title: &str) {
        let title = self.inline(title);
        let line = if level == 2 {
            format!(".SH \"{}\"\n", title.to_uppercase())
        } else {
            format!(".SS \"{title}\"\n")
        };
        self.text.push_str(&line);
    }

    fn block(&mut self, block: &Block) {
        let text = match block {
            Block::Heading(..) => String::new(),
            Block::Paragraph(text) => format!(".PP\n{}\n", self.inline(text)),
            Block::Item(text) => format!(".IP \\(bu 2\n{}\n", self.inline(text)),
            Block::Code(lines) => {
                let lines: Vec<String> = lines.iter().map(|line| escape(line)).collect();
                format!(".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", lines.join("\n"))
            }
            Block::Table(rows) => self.table(rows),
        };
        self.text.push_str(&text);
    }

    /// Each row with its first cell as the title; of the others each with what the header calls it, if that says
    /// anything.
    fn table(&self, rows: &[Vec<String>]) -> String {
        let Some((header, rows)) = rows.split_first() else { return String::new() };
        let mut text = String::new();
        for row in rows {
            let Some((first, rest)) = row.split_first() else { continue };
            text.push_str(&format!(".TP\n{}\n", self.inline(first)));
            let says_something = |title: &str| !title.is_empty() && title != "meaning" && rest.len() > 1;
            let told: Vec<String> = rest
                .iter()
                .enumerate()
                .filter(|(_, cell)| !cell.is_empty())
                .map(|(place, cell)| match header.get(place + 1).map(String::as_str) {
                    Some(title) if says_something(title) => {
                        format!("{title}: {}.", self.inline(cell))
                    }
                    _ => self.inline(cell),
                })
                .collect();
            text.push_str(&(told.join("\n.br\n") + "\n"));
        }
        text
    }

    /// Code, bold and links within a line.
    fn inline(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(place) = rest.find(['`', '*', '[']) {
            let (before, here) = rest.split_at(place);
            out.push_str(&escape_inline(before));
            rest = match self.span(here) {
                Some((span, after)) => {
                    out.push_str(&span);
                    after
                }
                None => {
                    out.push_str(&escape_inline(&here[..1]));
                    &here[1..]
                }
            };
        }
        out.push_str(&escape_inline(rest));
        if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
    }

    /// What begins here, and what comes after it.
    fn span<'t>(&self, here: &'t str) -> Option<(String, &'t str)> {
        for (mark, font) in [("`", "B"), ("**", "B"), ("*", "I")] {
            if let Some(inner) = here.strip_prefix(mark) {
                let (inner, after) = inner.split_once(mark)?;
                let inner = if mark == "`" { escape_inline(inner) } else { self.inline(inner) };
                return Some((format!("\\f{font}{inner}\\fR"), after));
            }
        }
        let (words, after) = here.strip_prefix('[')?.split_once("](")?;
        let (target, after) = after.split_once(')')?;
        let words = self.inline(words);
        let page = self.links.iter().find(|(file, _)| target.split('#').next() == Some(*file));
        Some((page.map_or_else(|| words.clone(), |(_, page)| format!("{words} ({page})")), after))
    }
}

fn escape_inline(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_reference_is_written_in_becomes_roff() {
        let text = "# Title\n\nSee [there](spec-files.md#x) and [here](#y), **not** `a-b|c`.\nMore\n\n    $ code -x\n    .two\n\n\
                    ## Keys\n\n| key | value | meaning |\n|---|---|---|\n| `a` | 1 or `\\|` | first |\n| b | | .dot |\n\n\
                    - one\n  goes on\n- two\n\n### Sub\n```toml\nx = 1\n```\n";
        let wanted = ".TH \"n\" \"5\" \"\" \"Steward\" \"Files\"\n.SH NAME\nn \\- about\n.SH DESCRIPTION\n.PP\n\
                      See there (spec(5)) and here, \\fBnot\\fR \\fBa\\-b|c\\fR. More\n\
                      .PP\n.RS 4\n.nf\n$ code \\-x\n\\&.two\n.fi\n.RE\n.SH \"KEYS\"\n\
                      .TP\n\\fBa\\fR\nvalue: 1 or \\fB|\\fR.\n.br\nfirst\n.TP\nb\n\\&.dot\n\
                      .IP \\(bu 2\none goes on\n.IP \\(bu 2\ntwo\n.SS \"Sub\"\n.PP\n.RS 4\n.nf\nx = 1\n.fi\n.RE\n";
        assert_eq!(to_roff(text, "n", "about", &[("spec-files.md", "spec(5)")]), wanted);
    }
}

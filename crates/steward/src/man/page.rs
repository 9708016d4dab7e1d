//! The man page of a command, from clap's definition of it. As clap_mangen makes it, but with values in the synopsis
//! and with the lines of the examples as they are.

use std::io::{Error, Write};

use clap::{Arg, ArgAction, Command};

/// The page. The command must be built.
///
/// # Errors
/// None that memory can give.
pub fn of(command: &Command, section: &str) -> Result<String, Error> {
    let man = clap_mangen::Man::new(command.clone()).section(section).source("Steward").manual("Steward");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    write!(page, ".SH SYNOPSIS\n{}\n", synopsis(command))?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(extra) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.write_all(sections(&extra.to_string()).as_bytes())?;
    }
    String::from_utf8(page).map_err(Error::other)
}

/// Text that roff shows as it is.
pub fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    // A line that begins so would be a request.
    let is_request = escaped.starts_with(['.', '\'']);
    if is_request { format!("\\&{escaped}") } else { escaped }
}

/// Name, options with their values, arguments.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escape(name))];
    let is_shown = |argument: &&Arg| {
        !argument.is_hide_set()
            && !matches!(
                argument.get_action(),
                ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
            )
    };
    let options = command.get_arguments().filter(|argument| !argument.is_positional());
    words.extend(options.filter(is_shown).map(option));
    words.extend(command.get_positionals().filter(is_shown).map(positional));
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        words.push("\\fICOMMAND\\fR".to_owned());
    }
    words.join(" ")
}

fn option(argument: &Arg) -> String {
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("\\fB{}\\fR", escape(&format!("--{long}"))),
        (None, Some(short)) => format!("\\fB{}\\fR", escape(&format!("-{short}"))),
        (None, None) => String::new(),
    };
    let value = if argument.get_action().takes_values() { values(argument) } else { String::new() };
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    let text = match value.as_str() {
        "" => name,
        value if is_optional => format!("{name} [{value}]"),
        value => format!("{name} {value}"),
    };
    if argument.is_required_set() { text } else { format!("[{text}]") }
}

fn positional(argument: &Arg) -> String {
    let several = argument.get_num_args().is_some_and(|count| count.max_values() > 1);
    let more = if several { "..." } else { "" };
    let text = format!("{}{more}", values(argument));
    match (argument.is_required_set(), argument.is_trailing_var_arg_set()) {
        (true, true) => format!("[\\-\\-] {text}"),
        (true, false) => text,
        (false, true) => format!("[\\-\\- {text}]"),
        (false, false) => format!("[{text}]"),
    }
}

fn values(argument: &Arg) -> String {
    let own = || vec![argument.get_id().as_str().to_uppercase()];
    let names: Vec<String> =
        argument.get_value_names().map_or_else(own, |names| names.iter().map(ToString::to_string).collect());
    let names: Vec<String> = names.iter().map(|name| format!("\\fI{}\\fR", escape(name))).collect();
    names.join(" ")
}

/// What stands below the options: examples, line by line, and paragraphs with a title.
fn sections(text: &str) -> String {
    let mut page = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        match paragraph.split_once(":\n") {
            Some(("Example" | "Examples", lines)) => {
                page.push_str(".SH EXAMPLES\n.nf\n");
                lines.lines().for_each(|line| page.push_str(&(escape(line.trim()) + "\n")));
                page.push_str(".fi\n");
            }
            _ => match paragraph.trim().split_once(": ") {
                Some(("Exit codes", codes)) => {
                    page.push_str(&format!(".SH \"EXIT STATUS\"\n{}\n", escape(codes)));
                }
                _ => page.push_str(&format!(".SH NOTES\n{}\n", escape(paragraph.trim()))),
            },
        }
    }
    page
}

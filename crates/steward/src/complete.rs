//! Completion of what only the machine knows: domains, processes, programs, users.
//!
//! The scripts that clap makes know commands and options. Before them, each asks `steward complete WORD...` what may
//! stand in the last word's place. That is told from the same definitions as everything else, by the name of the value:
//! DOMAIN, PROCESS, CMD, USER, and what is given of the disk, CLASS and LIMIT. Only names that a shell takes as they
//! are come out, since others name domains and processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::Shell;
use libsteward::{Client, api};
use steward_kernel::{Roots, process};

/// What a value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Domain,
    Process,
    ProcessOrDomain,
    Program,
    User,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Kind {
    fn of(value_name: &str) -> Option<Self> {
        match value_name {
            "DOMAIN" => Some(Kind::Domain),
            "PROCESS" => Some(Kind::Process),
            "PROCESS|DOMAIN" => Some(Kind::ProcessOrDomain),
            "CMD" => Some(Kind::Program),
            "USER" => Some(Kind::User),
            // A limit has no other words; a new one is a number.
            "CLASS" => Some(Kind::Word(&["interactive", "normal", "background", TAKEN_BACK])),
            "LIMIT" => Some(Kind::Word(&[TAKEN_BACK])),
            _ => None,
        }
    }
}

/// What takes a setting back (`domain::arguments::Wanted`).
const TAKEN_BACK: &str = "default";

/// `steward complete`: the candidates for the last word, one a line. False when clap's script knows better.
///
/// # Errors
/// When they cannot be printed.
pub fn complete(command: &Command, socket: &Path, words: &[String]) -> anyhow::Result<bool> {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => return Ok(false),
    };
    let Some(kind) = wanted(command, before, last) else { return Ok(false) };
    let found = candidates(kind, &socket_of(before).unwrap_or_else(|| socket.to_owned()), last);
    if found.is_empty() {
        return Ok(false);
    }
    let lines: Vec<String> = found.into_iter().collect();
    crate::output::print(&(lines.join("\n") + "\n"))?;
    Ok(true)
}

fn socket_of(words: &[String]) -> Option<PathBuf> {
    let place = words.iter().position(|word| word == "--socket")?;
    words.get(place + 1).map(PathBuf::from)
}

/// What the word after these names, if it is one of those.
fn wanted(command: &Command, before: &[String], last: &str) -> Option<Kind> {
    let (mut command, mut positionals, mut only_positionals) = (command, 0, false);
    let mut awaited: Option<&Arg> = None;
    for word in before {
        if awaited.take().is_some() {
            continue;
        }
        if word == "--" {
            only_positionals = true;
        } else if let Some(option) = word.strip_prefix('-').filter(|_| !only_positionals) {
            let option = option.trim_start_matches('-');
            let is_it = |arg: &&Arg| {
                arg.get_long() == Some(option) || arg.get_short().map(String::from).as_deref() == Some(option)
            };
            let found = command.get_arguments().find(is_it);
            awaited = found.filter(|arg| arg.get_action().takes_values());
        } else if let Some(below) =
            command.find_subcommand(word).filter(|_| positionals == 0 && !only_positionals)
        {
            command = below;
        } else {
            positionals += 1;
        }
    }
    if awaited.is_none() && last.starts_with('-') && !only_positionals {
        return None;
    }
    let argument = awaited.or_else(|| command.get_positionals().nth(positionals));
    // A program's own arguments are not ours.
    let is_own = |arg: &&Arg| !arg.is_trailing_var_arg_set() || positionals == 0;
    let name = argument.filter(is_own)?.get_value_names()?.first()?;
    // A program that is started has nothing yet that could be taken back.
    let is_run = command.get_name() == "run";
    match Kind::of(name)? {
        Kind::Word(words) if is_run => {
            let last = words.len() - usize::from(words.ends_with(&[TAKEN_BACK]));
            (last > 0).then(|| Kind::Word(&words[..last]))
        }
        kind => Some(kind),
    }
}

fn candidates(kind: Kind, socket: &Path, prefix: &str) -> BTreeSet<String> {
    let found = match kind {
        Kind::Domain => domains(socket),
        Kind::Process => running(),
        Kind::ProcessOrDomain => [domains(socket), running()].concat(),
        Kind::Program => programs(prefix),
        Kind::User => crate::users::Users::read().names(),
        Kind::Word(words) => words.iter().map(|word| (*word).to_owned()).collect(),
    };
    found.into_iter().filter(|name| name.starts_with(prefix) && is_plain(name)).collect()
}

/// Whether a shell takes it as one word, and as it is.
fn is_plain(name: &str) -> bool {
    let allowed = |character: char| character.is_alphanumeric() || "-_.+@:/%,=".contains(character);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(allowed)
}

/// None where the daemon does not answer, or is starting: who types waits for nothing.
fn domains(socket: &Path) -> Vec<String> {
    let list = Client::connect_within(socket, Duration::ZERO)
        .and_then(|mut client| client.call(&api::ListDomains {}));
    list.map(|list| list.domains.into_iter().map(|domain| domain.name).collect()).unwrap_or_default()
}

/// Names of programs that run, and the numbers of the caller's own processes.
fn running() -> Vec<String> {
    let own_uid = rustix::process::getuid().as_raw();
    let all = process::list_first_threads(&Roots::default()).unwrap_or_default();
    let mut found = Vec::new();
    for process in all.into_iter().filter(|process| !process.kernel_thread) {
        if process.uid == own_uid {
            found.push(process.id.tid.to_string());
        }
        found.push(process.name);
    }
    found
}

/// What can be executed by that name. Paths are left to the shell.
fn programs(prefix: &str) -> Vec<String> {
    if prefix.contains('/') {
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).filter_map(|directory| std::fs::read_dir(directory).ok());
    let entries = directories.flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The script for a shell: clap's, behind the question to `steward complete` where the shell is one that people use
/// here.
pub fn script(shell: Shell, command: &mut Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "steward", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Zsh => match text.rfind("if [ \"$funcstack[1]\" = \"_steward\" ]") {
            Some(end) => text[..end].to_owned() + ZSH,
            None => text,
        },
        Shell::Fish => text + FISH + &options_in_fish(command),
        _ => text,
    }
}

const BASH: &str = r#"
_steward_named() {
    local named
    if named=$(steward complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); then
        mapfile -t COMPREPLY <<<"$named"
    else
        _steward "$@"
    fi
}
complete -F _steward_named -o bashdefault -o default steward
"#;

const ZSH: &str = r#"_steward_named() {
    local named
    if named=$(steward complete -- "${(@)words[2,CURRENT]}" 2>/dev/null); then
        compadd -- "${(@f)named}"
    else
        _steward "$@"
    fi
}

if [ "$funcstack[1]" = "_steward" ]; then
    _steward_named "$@"
else
    compdef _steward_named steward
fi
"#;

const FISH: &str = r#"
complete -c steward -a '(steward complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"#;

/// The same for options whose values are names: for these fish asks only who has said something of the option. The
/// condition keeps it from offering the option where there is none.
fn options_in_fish(command: &Command) -> String {
    let mut options = BTreeSet::new();
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        let name = |argument: &&Arg| argument.get_value_names().and_then(|names| names.first().cloned());
        let names_something = |argument: &&Arg| name(argument).is_some_and(|name| Kind::of(&name).is_some());
        options.extend(command.get_arguments().filter(names_something).filter_map(Arg::get_long));
    }
    let line = |option| {
        format!(
            "complete -c steward -n 'test (commandline -opc)[-1] = --{option}' -l {option} -x \\\n    \
             -a '(steward complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'\n"
        )
    };
    options.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn kind(line: &str) -> Option<Kind> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().expect("at least one");
        let mut command = Cli::command();
        command.build();
        wanted(&command, before, last)
    }

    #[test]
    fn the_last_word_is_told_by_the_definitions() {
        for (line, wanted) in [
            ("", None),
            ("sta", None),
            ("status ", Some(Kind::Domain)),
            ("status --js", None),
            ("explain mpl", Some(Kind::Process)),
            ("explain --json mpl", Some(Kind::Process)),
            ("explain mplayer x", None),
            ("set ba", Some(Kind::ProcessOrDomain)),
            ("set --cpu ", None),
            ("set ba --io-max d", Some(Kind::Word(&["default"]))),
            ("domain set ba --io ", Some(Kind::Word(&["interactive", "normal", "background", "default"]))),
            ("run --io-max ", None),
            ("run --io b", Some(Kind::Word(&["interactive", "normal", "background"]))),
            ("set --cpu 5ms/30ms ba", Some(Kind::ProcessOrDomain)),
            ("domain ", None),
            ("domain set web", Some(Kind::Domain)),
            ("domain move ", Some(Kind::Process)),
            ("domain move 4321 ba", Some(Kind::Domain)),
            ("domain create ", None),
            ("domain create x --user ", Some(Kind::User)),
            ("run --domain ", Some(Kind::Domain)),
            ("run --domain batch ", Some(Kind::Program)),
            ("run --cpu 5ms/30ms -- mpl", Some(Kind::Program)),
            ("run -- mplayer --do", None),
            ("run -- mplayer film", None),
            ("top --pid ", Some(Kind::Process)),
            ("--socket /x forecast ", Some(Kind::ProcessOrDomain)),
        ] {
            assert_eq!(kind(line), wanted, "{line:?}");
        }
    }

    /// All commands that are shown, those of commands too.
    fn all(command: &Command) -> Vec<&Command> {
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        std::iter::once(command).chain(shown.flat_map(all)).collect()
    }

    #[test]
    fn the_scripts_of_zsh_and_fish_have_all_options_of_all_commands_and_ask_steward_first() {
        let mut command = Cli::command();
        let (zsh, fish) = (script(Shell::Zsh, &mut command), script(Shell::Fish, &mut command));
        command.build();
        let mut options = std::collections::BTreeMap::<&str, usize>::new();
        for argument in all(&command).into_iter().flat_map(Command::get_arguments) {
            if let Some(long) = argument.get_long().filter(|_| !argument.is_hide_set()) {
                *options.entry(long).or_default() += 1;
            }
        }
        assert!(options.len() > 40, "{options:?}");
        for (option, commands) in options {
            // A value follows after a sign of its own.
            let in_zsh =
                [format!("--{option}["), format!("--{option}=[")].map(|form| zsh.matches(&form).count());
            assert!(
                in_zsh.iter().sum::<usize>() >= commands,
                "--{option} of {commands} commands in zsh: {in_zsh:?}"
            );
            let form = format!(" -l {option} ");
            let in_fish = fish.lines().filter(|line| format!("{line} ").contains(&form)).count();
            assert!(in_fish >= 1, "--{option} in fish");
        }
        assert!(zsh.starts_with("#compdef steward\n") && zsh.ends_with(ZSH) && fish.contains(FISH));
        for option in ["domain", "pid", "user"] {
            assert!(fish.contains(&format!("[-1] = --{option}' -l {option} -x")), "{option}");
        }
        // Who completes is stated once.
        assert_eq!(zsh.matches("compdef _steward").count(), 1);
        assert!(!zsh.contains("compdef _steward steward"));
    }

    #[test]
    fn nothing_comes_out_that_a_shell_would_read_otherwise() {
        for name in ["batch", "user.slice/user-1000.slice", "4321", "日本", "a@b:c"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "-x", "a b", "$(reboot)", "`x`", "a;b", "a\nb", "it's", "~", "*", "a\\b"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn programs_users_and_processes_of_this_machine_are_found() {
        let nowhere = Path::new("/nonexistent/socket");
        assert!(candidates(Kind::Program, nowhere, "tr").contains("true"));
        assert!(candidates(Kind::User, nowhere, "ro").contains("root"));
        let own = std::process::id().to_string();
        assert!(candidates(Kind::ProcessOrDomain, nowhere, &own).contains(&own));
        assert!(candidates(Kind::Domain, nowhere, "").is_empty());
    }
}

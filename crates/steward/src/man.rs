//! `steward man`: the man pages of the commands from the command line's own definitions (section 1), and those of the
//! files from the reference (section 5).

mod markdown;
pub mod page;

use std::path::Path;

use anyhow::Context;
use clap::Command;

/// A page about a file: its name, in a few words what it is, and the reference that it is made from.
struct FilePage {
    name: &'static str,
    about: &'static str,
    text: &'static str,
}

const FILE_PAGES: [FilePage; 4] = [
    FilePage {
        name: "steward.toml",
        about: "configuration of stewardd",
        text: include_str!("../../../docs/reference/configuration.md"),
    },
    FilePage {
        name: "steward.spec",
        about: "what programs get from Steward when they start",
        text: include_str!("../../../docs/reference/spec-files.md"),
    },
    FilePage {
        name: "steward.authority",
        about: "who may ask Steward for what",
        text: include_str!("../../../docs/reference/authority.md"),
    },
    FilePage {
        name: "steward.domain",
        about: "domains that are there from the start of the machine on",
        text: include_str!("../../../docs/reference/domain-files.md"),
    },
];

/// What links between the reference's pages become.
const LINKS: [(&str, &str); 4] = [
    ("configuration.md", "steward.toml(5)"),
    ("spec-files.md", "steward.spec(5)"),
    ("authority.md", "steward.authority(5)"),
    ("domain-files.md", "steward.domain(5)"),
];

/// Writes a page for each command into a directory, which is made if need be.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_commands(directory: &Path, command: Command) -> anyhow::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_command(directory, &command)
}

fn write_command(directory: &Path, command: &Command) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    write(directory, &format!("{name}.1"), &page::of(command, "1")?)?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.into_iter().try_for_each(|below| write_command(directory, below))
}

/// Writes a page for each kind of file into a directory, which is made if need be.
///
/// # Errors
/// As [`write_commands`].
pub fn write_files(directory: &Path) -> anyhow::Result<()> {
    for FilePage { name, about, text } in FILE_PAGES {
        let others = FILE_PAGES.iter().map(|page| page.name).filter(|other| *other != name);
        let also: Vec<String> = others.map(|other| format!("{other}(5)")).collect();
        let mut page = markdown::to_roff(text, name, about, &LINKS);
        page.push_str(&format!(".SH SEE ALSO\n{}, steward(1), stewardd(8)\n", also.join(", ")));
        write(directory, &format!("{name}.5"), &page)?;
    }
    Ok(())
}

fn write(directory: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn pages(write: impl Fn(&Path) -> anyhow::Result<()>) -> Vec<(String, String)> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = directory.path().join("man");
        write(&place).expect("written");
        let entries = std::fs::read_dir(place).expect("it is there");
        let read = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, std::fs::read_to_string(entry.path()).expect("text"))
        };
        entries.map(|entry| read(entry.expect("an entry"))).collect()
    }

    fn page<'p>(pages: &'p [(String, String)], name: &str) -> &'p str {
        &pages.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name} is missing")).1
    }

    #[test]
    fn a_synopsis_has_values_and_examples_keep_their_lines() {
        let pages = pages(|directory| write_commands(directory, crate::cli::Cli::command()));
        let run = page(&pages, "steward-run.1");
        assert!(run.contains("[\\fB\\-\\-cpu\\fR \\fIC/T\\fR]"), "{run}");
        assert!(run.contains("\\fICMD\\fR..."), "{run}");
        let examples = run.split(".SH EXAMPLES\n").nth(1).expect("it has examples");
        assert!(examples.starts_with(".nf\n"), "{examples}");
        assert!(
            examples.contains("\nsteward run \\-\\-cpu 5ms/30ms \\-\\- mplayer film.mkv\n"),
            "{examples}"
        );
        assert!(page(&pages, "steward.1").contains(".SH \"EXIT STATUS\"\n"));
        assert!(page(&pages, "steward-domain-create.1").contains("\\fINAME\\fR"));
        assert!(!pages.iter().any(|(name, _)| name.contains("complete.1") || name.contains("help")));
    }

    #[test]
    fn the_pages_about_files_have_all_that_the_reference_says() {
        let pages = pages(write_files);
        let toml = page(&pages, "steward.toml.5");
        assert!(toml.starts_with(".TH \"steward.toml\" \"5\""), "{toml}");
        for part in [
            "steward.toml \\- configuration of stewardd",
            "owner = \"alice\"",
            "\\fBcpu.service_cycle\\fR",
            "steward.authority(5)",
        ] {
            assert!(toml.contains(part), "{part:?} is not in:\n{toml}");
        }
        for (name, text) in &pages {
            for left in ["```", "](", "**", "|---"] {
                assert!(!text.contains(left), "{left} is left in {name}");
            }
            let request = text.lines().find(|line| line.starts_with('\''));
            assert_eq!(request, None, "a line of {name} is no text");
        }
        assert!(page(&pages, "steward.spec.5").contains("mplayer"));
        let domain = page(&pages, "steward.domain.5");
        for part in [
            "name = \"web/front\"",
            "\n\\fBcpu_reservable\\fR\n",
            "(steward.spec(5))",
            "/etc/steward/domains/",
        ] {
            assert!(domain.contains(part), "{part:?} is not in:\n{domain}");
        }
    }

    #[test]
    fn what_is_installed_for_each_kind_of_file_is_removed_by_uninstall() {
        let makefile = include_str!("../../../Makefile");
        let line = makefile.lines().find(|line| line.contains("rm -f") && line.contains("man5/steward."));
        let removed = line.and_then(|line| line.split_once("man5/steward.,")).expect("it removes them").1;
        let mut removed: Vec<&str> = removed.trim_end_matches(')').split(' ').collect();
        removed.sort_unstable();
        let mut pages: Vec<String> = pages(write_files).into_iter().map(|(name, _)| name).collect();
        pages.sort_unstable();
        let pages: Vec<&str> = pages.iter().filter_map(|name| name.strip_prefix("steward.")).collect();
        assert_eq!(removed, pages);
    }
}

//! Reads scenario files, and holds them to the rules: what is measured must be there to be measured.
//!
//! An unknown key is an error with file and line, as everywhere in Steward.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::scenario::{MetricKind, Point, ProgramRow, Scenario};
use crate::{disk, domains, memory, sweep, wrk};

impl Scenario {
    /// Reads and checks a scenario file.
    ///
    /// # Errors
    /// Names the file, the line and what is wrong.
    pub fn load(path: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        Scenario::parse(&text, path)
    }

    /// Reads and checks the text of a scenario file that is called `path`.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Scenario> {
        let mut points = Vec::new();
        for (label, value, text) in sweep::texts(text, path)? {
            points.push(Point { label, value, scenario: Scenario::parse_one(&text, path)? });
        }
        match points.first() {
            // What does not depend on the parameter is the same in all of them.
            Some(first) => Ok(Scenario { points: points.clone(), ..first.scenario.clone() }),
            None => Scenario::parse_one(text, path),
        }
    }

    fn parse_one(text: &str, path: &Path) -> Result<Scenario> {
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text[..offset].matches('\n').count() + 1;
            anyhow::anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        scenario.id = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        scenario.check().with_context(|| format!("{} cannot be run", path.display()))?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        if self.contenders.is_empty() || self.repeat == 0 || self.programs.is_empty() {
            bail!("it needs at least one contender, one repetition and one program");
        }
        if !self.one_after_another && self.duration.is_zero() {
            bail!("its duration must be above 0");
        }
        let mut names = Vec::new();
        for (index, program) in self.programs.iter().enumerate() {
            check_program(program, self.duration).with_context(|| format!("program `{}`", program.name))?;
            for other in self.programs[..index].iter().filter(|other| other.name == program.name) {
                check_namesakes(other, program).with_context(|| format!("program `{}`", program.name))?;
            }
            names.push(&program.name);
        }
        if let Some(file) = self.files.iter().find(|file| file.script.is_some() == file.source.is_some()) {
            bail!("[[file]] {}: give either its source or the script that makes it", file.path);
        }
        if let Some(unknown) = self.measure.of.iter().find(|name| !names.contains(name)) {
            bail!("[measure] of: there is no program `{unknown}`");
        }
        if self.measure.idle.is_some_and(|(from, to)| from >= to || to > self.duration) {
            bail!(
                "[measure] idle: two moments of the run, one after the other, between which idle time is counted"
            );
        }
        memory::check(self)?;
        disk::check(self)?;
        domains::check(self)
    }
}

/// One program may be started in several ways, each under contenders of its own.
fn check_namesakes(one: &ProgramRow, other: &ProgramRow) -> Result<()> {
    let is_apart = |row: &ProgramRow, other: &ProgramRow| {
        !row.under.is_empty() && !row.under.iter().any(|contender| other.under.contains(contender))
    };
    if !is_apart(one, other) || !is_apart(other, one) {
        bail!("two are called so under one contender; say `under` for both, or rename one");
    }
    let measured = |row: &ProgramRow| {
        (row.metrics, row.count_lines, row.counted, row.fps, row.film, row.seconds_after.clone(), row.units)
    };
    if measured(one) != measured(other) || one.count != other.count {
        bail!("two are called so, and are not measured the same way");
    }
    Ok(())
}

fn check_program(program: &ProgramRow, duration: Duration) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if program.name.is_empty() || !program.name.chars().all(is_plain) {
        bail!("a name is made of letters, digits, _ and -");
    }
    let words = shell_words::split(&program.command).context("its command is not valid shell quoting")?;
    if words.is_empty() {
        bail!("its command is empty");
    }
    if let Some(option) = wrk::OPTIONS.iter().find(|option| !program.command.contains(**option))
        && program.metrics == MetricKind::Wrk
    {
        bail!("metrics = \"wrk\" stands on what `wrk` prints with `{option}`: give it that option");
    }
    let last = program.start + program.apart * program.count.saturating_sub(1);
    if program.count == 0 || last >= duration {
        bail!("it would never run: count {}, start {last:?} of {duration:?}", program.count);
    }
    if program.nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
        bail!("nice goes from -20 to 19");
    }
    if program.fps.is_some() != program.film.is_some() {
        bail!("fps and film belong together: they tell when each frame of a real player's film is due");
    }
    if let Some((from, to)) = program.counted
        && (!program.count_lines || from < program.start || from >= to || to > duration)
    {
        bail!(
            "counted: two moments of its run, one after the other, between which lines are counted (count_lines)"
        );
    }
    if program.seconds_after.is_some() != program.units.is_some() {
        bail!(
            "seconds_after and units belong together: they tell how much work a benchmark did in the time it prints"
        );
    }
    Ok(())
}

/// All scenario files of a directory, by name.
///
/// # Errors
/// When the directory cannot be read.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read the scenarios' directory {}", directory.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Contender;

    const SMALL: &str = r#"
title = "a film"
duration = "10s"
[[program]]
name = "film"
command = "frame-player --fps 25"
cpu = "5ms/30ms"
"#;

    fn parse(text: &str) -> Result<Scenario> {
        Scenario::parse(text, Path::new("lab/scenarios/small.toml"))
    }

    fn complaint(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("the text has a mistake"))
    }

    #[test]
    fn two_programs_of_one_name_run_under_different_contenders_and_are_measured_alike() {
        let file = |first: &str, second: &str| {
            let rows = format!(
                "[[program]]\nname='p'\ncommand='a'\n{first}\n[[program]]\nname='p'\ncommand='b'\n{second}\n"
            );
            Scenario::parse(&format!("title='t'\nduration='4s'\n{rows}"), Path::new("t.toml"))
        };
        let refusal = |first, second| format!("{:#}", file(first, second).unwrap_err());
        assert!(file("under=['stock']", "under=['steward']").is_ok());
        assert!(
            refusal("", "under=['steward']").contains("program `p`: two are called so under one contender")
        );
        assert!(refusal("under=['steward','stock']", "under=['steward']").contains("under one contender"));
        let metered = refusal("under=['stock']\nmetrics='work'", "under=['steward']");
        assert!(metered.contains("not measured the same way"), "{metered}");
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let scenario = parse(SMALL).unwrap();
        assert_eq!((scenario.id.as_str(), scenario.repeat), ("small", 5));
        assert_eq!(scenario.contenders, Contender::USUAL);
        assert_eq!((scenario.machine.memory_mib, scenario.machine.cpus), (512, 2));
    }

    #[test]
    fn an_unknown_key_is_an_error_with_file_and_line() {
        let text = complaint(&format!("{SMALL}colour = 3\n"));
        assert!(text.starts_with("lab/scenarios/small.toml:8: unknown field `colour`"), "{text}");
    }

    #[test]
    fn mistakes_name_the_program() {
        let text = complaint(&SMALL.replace("frame-player --fps 25", "frame-player '"));
        assert!(text.contains("program `film`") && text.contains("quoting"), "{text}");
        assert!(complaint(&SMALL.replace("5ms/30ms", "40ms/30ms")).contains("at most the period"));
        assert!(complaint(&format!("{SMALL}start = \"20s\"\n")).contains("never run"));
    }

    #[test]
    fn wrk_needs_the_options_that_its_numbers_stand_on() {
        let with = |command: &str| {
            SMALL.replace("frame-player --fps 25", command).replace("cpu = \"5ms/30ms\"", "metrics = \"wrk\"")
        };
        assert!(parse(&with("wrk --latency --timeout 10s http://localhost/")).is_ok());
        let text = complaint(&with("wrk --latency http://localhost/"));
        assert!(text.contains("program `film`") && text.contains("`--timeout 10s`"), "{text}");
    }

    #[test]
    fn every_scenario_that_ships_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
        let paths = files(&directory).unwrap();
        assert!(!paths.is_empty());
        for path in paths {
            Scenario::load(&path).unwrap();
        }
    }
}

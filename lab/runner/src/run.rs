//! Runs a scenario: brings programs into the machine, listens to the agent, and puts the result together.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use steward_lab_guest::{PLAN_PATH, PROGRAM_DIRECTORY, Plan, Record, Run};
use steward_machine::{GuestFile, KernelChoice, MachineConfig};

use crate::measure;
use crate::metrics::{Metrics, ProgramOutput};
use crate::outcome::{MachineFacts, Outcome, RunOutcome};
use crate::plan::{self, PREPARATION};
use crate::scenario::{Contender, DISK_SCRIPT, FileRow, Scenario, TimedDisk};
use crate::sweep;

const AGENT: &str = "steward-lab-guest";
/// The host may be this much slower than the guest's clock before a machine counts as stuck.
const SLOWEST_HOST: u32 = 40;
/// For booting, and for what happens between runs.
const SLACK: Duration = Duration::from_secs(300);

/// The host's; the guest's busybox knows no ext4.
const MAKE_FILE_SYSTEM: &str = "/usr/sbin/mke2fs";

/// How to run a scenario.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Only these; those of the file if empty.
    pub contenders: Vec<Contender>,
    /// Instead of the file's number of repetitions.
    pub repeat: Option<u32>,
    /// The guest's kernel.
    pub kernel: KernelChoice,
    /// Say nothing on standard error while it runs.
    pub quiet: bool,
    /// Where to leave what the programs printed, a file for each in a directory for each run; nowhere otherwise.
    pub printed: Option<PathBuf>,
}

/// Runs the scenario file at `path` and returns what was measured.
///
/// A contender that fails is part of the outcome; the others go on.
///
/// # Errors
/// When the file has a mistake, a program for the guest is missing, or the machine fails before any run was over.
pub fn run_scenario(path: &Path, options: &RunOptions) -> Result<Outcome> {
    let scenario = Scenario::load(path)?;
    let wanted = if options.contenders.is_empty() { &scenario.contenders } else { &options.contenders };
    let peers = Peers::find(wanted, &|peer| peer_files(peer, &options.kernel));
    let contenders = peers.not_skipped(wanted)?;
    let plan = plan::plan(&scenario, &contenders, options.repeat.unwrap_or(scenario.repeat))?;
    let scripts = path.parent().unwrap_or(Path::new("."));
    let files = guest_files(&scenario, &plan, peers.files, scripts)?;
    let config = machine_config(&scenario, &plan, options);
    let command = [format!("{PROGRAM_DIRECTORY}/{AGENT}")];
    let mut listener = Listener::new(&scenario, &plan, options);
    let booted = steward_machine::run(&config, &files, &command, &mut |line| listener.hear(line));
    let kernel = match booted {
        Ok(machine) if machine.status == 0 => machine.kernel_version,
        Ok(machine) => {
            listener.fail_the_rest(&format!("the agent ended with status {}", machine.status))?;
            machine.kernel_version
        }
        Err(error) => {
            listener.fail_the_rest(&format!("{error:#}"))?;
            "unknown".into()
        }
    };
    let facts = MachineFacts {
        cpus: scenario.machine.cpus,
        memory_mib: scenario.machine.memory_mib,
        icount_shift: scenario.machine.icount_shift,
        timed_disk: scenario.machine.timed_disk.as_ref().map(TimedDisk::to_string),
        kernel,
        emulated: true,
    };
    Ok(Outcome { skipped: peers.skipped, ..Outcome::new(&scenario, facts, listener.outcomes) })
}

fn machine_config(scenario: &Scenario, plan: &Plan, options: &RunOptions) -> MachineConfig {
    let disk = scenario.machine.timed_disk.as_ref();
    let guest_time: Duration = plan.runs.iter().map(|run| Duration::from_millis(run.duration_ms)).sum();
    MachineConfig {
        memory_mib: scenario.machine.memory_mib + disk.map_or(0, TimedDisk::store_mib),
        cpus: scenario.machine.cpus,
        disk_mib: scenario.machine.disk_mib,
        icount_shift: scenario.machine.icount_shift,
        packages: scenario.machine.packages.clone(),
        kernel: options.kernel.clone(),
        timeout_host: guest_time * SLOWEST_HOST + SLACK,
        ..MachineConfig::default()
    }
}

/// Other projects' schedulers: what they need in the machine, and why some cannot take part.
#[derive(Default)]
struct Peers {
    files: Vec<GuestFile>,
    skipped: BTreeMap<Contender, String>,
}

impl Peers {
    /// Has those among `contenders` built, each by `build`. One that cannot be is left out, with the reason.
    fn find(contenders: &[Contender], build: &dyn Fn(Contender) -> Result<Vec<GuestFile>>) -> Peers {
        let mut peers = Peers::default();
        for contender in contenders.iter().filter(|contender| contender.is_peer()) {
            match build(*contender) {
                Ok(files) => peers.files.extend(files),
                Err(error) => {
                    let reason = format!("{contender} is skipped: {error:#}");
                    eprintln!("{reason}");
                    peers.skipped.insert(*contender, reason);
                }
            }
        }
        peers
    }

    /// Those among `contenders` that take part.
    ///
    /// # Errors
    /// When there is none.
    fn not_skipped(&self, contenders: &[Contender]) -> Result<Vec<Contender>> {
        let can_run = contenders.iter().copied().filter(|who| !self.skipped.contains_key(who));
        let can_run: Vec<Contender> = can_run.collect();
        if can_run.is_empty() {
            let reasons: Vec<&str> = self.skipped.values().map(String::as_str).collect();
            bail!("none of the contenders can run: {}", reasons.join("; "));
        }
        Ok(can_run)
    }
}

/// What a peer needs in the machine; it is built if it is not yet.
fn peer_files(peer: Contender, kernel: &KernelChoice) -> Result<Vec<GuestFile>> {
    let program = steward_machine::peer(peer.name())?;
    // Their loaders look there for how the kernel was configured.
    let (version, configuration) = steward_machine::kernel_configuration(kernel)?;
    Ok(vec![
        GuestFile::from_host(program, format!("{PROGRAM_DIRECTORY}/{}", peer.name()))?,
        GuestFile::from_host(configuration, format!("/boot/config-{version}"))?,
    ])
}

/// The plan, the agent, the synthetic programs that the plan names, Steward itself when it runs, and its peers.
fn guest_files(
    scenario: &Scenario,
    plan: &Plan,
    peers: Vec<GuestFile>,
    scripts: &Path,
) -> Result<Vec<GuestFile>> {
    let binaries = binary_directory()?;
    let mut files = vec![
        GuestFile::from_bytes(serde_json::to_vec(plan)?, PLAN_PATH, 0o644),
        GuestFile::from_host(built(&binaries, AGENT)?, format!("{PROGRAM_DIRECTORY}/{AGENT}"))?,
    ];
    let mut synthetic: Vec<String> = Vec::new();
    for row in &scenario.programs {
        // What is not among the lab's own programs comes from the guest's packages. A word may be a script for a shell.
        for word in shell_words::split(&row.command)? {
            let names = word.split_ascii_whitespace().filter(|name| OWN_PROGRAMS.contains(name));
            synthetic.extend(names.map(str::to_owned));
        }
    }
    synthetic.sort();
    synthetic.dedup();
    for name in &synthetic {
        files.push(GuestFile::from_host(built(&binaries, name)?, format!("{PROGRAM_DIRECTORY}/{name}"))?);
    }
    if plan.runs.iter().any(|run| run.steward.is_some()) {
        files.push(GuestFile::from_host(built(&binaries, "stewardd")?, "/usr/sbin/stewardd")?);
        files.push(GuestFile::from_host(built(&binaries, "steward")?, "/usr/bin/steward")?);
    }
    let null = Contender::NullScheduler.name();
    if plan.runs.iter().any(|run| run.contender == null) {
        files.push(GuestFile::from_host(built(&binaries, null)?, format!("{PROGRAM_DIRECTORY}/{null}"))?);
    }
    if scenario.machine.timed_disk.is_some() {
        let script = steward_machine::repository().join("lab/machine/timed-disk.sh");
        files.push(GuestFile::from_host(script, DISK_SCRIPT)?);
        files.push(GuestFile::from_host(MAKE_FILE_SYSTEM, format!("{PROGRAM_DIRECTORY}/mke2fs"))?);
    }
    files.extend(peers);
    for row in &scenario.files {
        let path = match &row.source {
            Some(source) => scripts.join(source),
            None => scripted(row, scripts)?,
        };
        files.push(GuestFile::from_host(path, row.path.clone())?);
    }
    Ok(files)
}

/// The programs of `lab/workloads`.
const OWN_PROGRAMS: &[&str] = &[
    "frame-player",
    "busy-loops",
    "pipe-ring",
    "fork-exec",
    "yielders",
    "message-groups",
    "probe",
    "onoff",
    "sleeper",
    "storms",
    "io-loop",
    "read-ahead-player",
    "web-load",
    "forecast-check",
    "keystrokes",
    "memory-hog",
    "memory-burst",
    "memory-ramp",
    "memory-shares",
    "typist",
    "server-burst",
    "file-save",
    "disk-load",
];

/// Where built programs are: `STEWARD_LAB_BINARIES`, or beside the program that is running.
fn binary_directory() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("STEWARD_LAB_BINARIES") {
        return Ok(directory.into());
    }
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let directory = own.parent().context("this program has no directory")?;
    // Examples and tests are built one level below.
    let is_below = ["examples", "deps"].iter().any(|name| directory.ends_with(name));
    Ok(if is_below { directory.parent().unwrap_or(directory) } else { directory }.to_owned())
}

fn built(directory: &Path, name: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    if !path.is_file() {
        bail!(
            "{} is missing, and the lab brings it into the machine: build it with `cargo build --release --workspace`, \
             or point STEWARD_LAB_BINARIES at the directory that has it",
            path.display()
        );
    }
    Ok(path)
}

/// Runs a script that makes or fetches a file; the last line that it prints is the path.
fn scripted(row: &FileRow, scripts: &Path) -> Result<PathBuf> {
    let script = scripts.join(row.script.as_deref().context("a file needs a source or a script")?);
    let output = std::process::Command::new("bash")
        .arg(&script)
        .env("STEWARD_CACHE", steward_machine::cache_directory())
        .env("STEWARD_ROOT", steward_machine::repository())
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !output.status.success() {
        bail!("{} failed ({}); what it said is above", script.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().last().with_context(|| format!("{} printed no path", script.display()))?;
    Ok(PathBuf::from(path))
}

/// Hears the agent's records, shows progress, and measures each run when it is over.
struct Listener<'a> {
    scenario: &'a Scenario,
    plan: &'a Plan,
    printed: Option<&'a Path>,
    outputs: Vec<ProgramOutput>,
    outcomes: Vec<RunOutcome>,
    /// Runs of the plan that are over.
    finished: usize,
    /// Why the machine is not as the scenario wants it.
    unprepared: Option<String>,
    progress: Progress,
}

impl<'a> Listener<'a> {
    fn new(scenario: &'a Scenario, plan: &'a Plan, options: &'a RunOptions) -> Self {
        let progress = Progress { quiet: options.quiet, terminal: std::io::stderr().is_terminal() };
        progress.lasting(&format!("{}: booting the machine", scenario.id));
        let (outputs, outcomes) = (Vec::new(), Vec::new());
        let printed = options.printed.as_deref();
        Listener { scenario, plan, printed, outputs, outcomes, finished: 0, unprepared: None, progress }
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(record) => self.take(record),
            Err(error) => {
                self.progress.lasting(&format!("the agent said something unexpected ({error}): {line}"))
            }
        }
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Started { .. } => self.outputs.clear(),
            Record::Progress { run, elapsed_ms } => {
                if let Some(text) = self.describe(run) {
                    let total = self.plan.runs[run].duration_ms / 1000;
                    self.progress.passing(&format!("{text}: {} of {total} s", elapsed_ms / 1000));
                }
            }
            Record::Output { program, text, .. } => self.output(program).text.push_str(&text),
            Record::Program { program, ended, cpu_ms, notes, memory, .. } => {
                let output = self.output(program);
                (output.ended, output.cpu_ms, output.notes, output.memory) = (ended, cpu_ms, notes, memory);
            }
            Record::Finished { run, start_ms, end_ms, error, status, decisions, log, seen } => {
                let machine = [measure::machine_metrics(&seen), measure::scheduler_metrics(status.as_ref())];
                let machine = machine.into_iter().flatten().collect();
                if let Some(outcome) = self.finish(run, (start_ms, end_ms), error, machine) {
                    self.outcomes.push(RunOutcome { status, decisions, log, ..outcome });
                }
            }
            Record::Done => {}
        }
    }

    fn output(&mut self, name: String) -> &mut ProgramOutput {
        let known = self.outputs.iter().position(|output| output.name == name);
        let index = known.unwrap_or_else(|| {
            self.outputs.push(ProgramOutput { name, ..ProgramOutput::default() });
            self.outputs.len() - 1
        });
        &mut self.outputs[index]
    }

    fn describe(&self, run: usize) -> Option<String> {
        let planned = self.plan.runs.get(run)?;
        let all = self.plan.runs.iter().filter(|other| other.contender == planned.contender).count();
        let all = all / self.scenario.points.len().max(1);
        let point = match (&self.scenario.sweep, &planned.point) {
            (Some(sweep), Some(point)) => format!(", {} {point}", sweep.parameter),
            _ => String::new(),
        };
        Some(format!("{}: {}{point}, {} of {all}", self.scenario.id, planned.contender, planned.repeat))
    }

    /// Measures a run, of whose machine as a whole these numbers are known; `None` for one that only prepared it.
    fn finish(
        &mut self,
        run: usize,
        (start_ms, end_ms): (f64, f64),
        error: Option<String>,
        machine: Metrics,
    ) -> Option<RunOutcome> {
        let (planned, text) = (self.plan.runs.get(run)?, self.describe(run)?);
        self.finished = self.finished.max(run + 1);
        if planned.contender == PREPARATION {
            let said =
                self.outputs.first().filter(|output| output.ended.as_deref() != Some("exit status: 0"));
            if let Some(said) = said {
                let how = said.ended.as_deref().unwrap_or("it was not over in time");
                let reason = format!("{text}: FAILED: {how}: {}", last_lines(&said.text));
                self.progress.lasting(&reason);
                // What runs in a machine that is not prepared measures something else.
                self.unprepared.get_or_insert(reason);
            }
            return None;
        }
        if let Some(Err(error)) = self.printed.map(|directory| self.keep_printed(directory, planned)) {
            self.progress.lasting(&format!("{text}: what the programs printed cannot be kept: {error}"));
        }
        let contender: Contender = planned.contender.parse().expect("the plan has contenders only");
        let point = self.scenario.points.iter().find(|point| planned.point.as_ref() == Some(&point.label));
        let scenario = point.map_or(self.scenario, |point| &point.scenario);
        let mut measured = measure::measure(scenario, start_ms, end_ms, &self.outputs);
        measured.metrics.extend(machine);
        let error = error.or_else(|| self.unprepared.clone()).or_else(|| not_executed(&self.outputs));
        let error = error.or_else(|| measured.errors.first().cloned());
        match &error {
            Some(error) => self.progress.lasting(&format!("{text}: FAILED: {error}")),
            None => self.progress.lasting(&format!("{text}: {}", headline(&measured.metrics))),
        }
        let notes = self.outputs.iter().flat_map(|output| notes(scenario, output)).collect();
        if let Some(point) = point {
            measured = sweep::only(&measured.metrics, &point.label);
        }
        Some(RunOutcome {
            contender,
            repeat: planned.repeat,
            metrics: measured.metrics,
            error,
            notes,
            status: None,
            decisions: None,
            log: None,
            films: measured.films,
        })
    }

    fn keep_printed(&self, directory: &Path, run: &Run) -> std::io::Result<()> {
        let point = run.point.iter().map(|point| format!("-{point}")).collect::<String>();
        let directory = directory.join(format!("{}{point}-{}", run.contender, run.repeat));
        std::fs::create_dir_all(&directory)?;
        let mut written = self.outputs.iter().map(|one| std::fs::write(directory.join(&one.name), &one.text));
        written.try_for_each(|result| result)
    }

    /// The machine stopped early: what was not finished has failed.
    ///
    /// # Errors
    /// When no run at all was over.
    fn fail_the_rest(&mut self, reason: &str) -> Result<()> {
        if self.outcomes.is_empty() {
            bail!("{reason}");
        }
        for run in &self.plan.runs[self.finished..] {
            let Ok(contender) = run.contender.parse() else { continue };
            self.outcomes.push(RunOutcome {
                contender,
                repeat: run.repeat,
                metrics: Metrics::new(),
                error: Some(format!("the machine stopped early: {reason}")),
                notes: Vec::new(),
                status: None,
                decisions: None,
                log: None,
                films: Vec::new(),
            });
        }
        Ok(())
    }
}

/// What programs said that could not be executed: a run without them measures something else.
fn not_executed(outputs: &[ProgramOutput]) -> Option<String> {
    let is_missing = |ended: &str| ended == "exit status: 126" || ended == "exit status: 127";
    let missing = outputs.iter().find(|output| output.ended.as_deref().is_some_and(is_missing))?;
    Some(format!("{} could not be executed: {}", missing.name, last_lines(&missing.text)))
}

/// What a program was refused, and how it failed.
fn notes(scenario: &Scenario, output: &ProgramOutput) -> Vec<String> {
    let mut notes: Vec<String> = output.notes.iter().map(|note| format!("{}: {note}", output.name)).collect();
    let asked = |word: &str| output.text.lines().filter(|line| line.split(' ').next() == Some(word)).count();
    let (granted, refused) = (asked("granted"), asked("refused"));
    if granted + refused > 0 {
        notes.push(format!(
            "{}: {granted} tasks were granted what they asked for, {refused} refused",
            output.name
        ));
    }
    let is_ours = measure::row_of(scenario, &output.name).is_some();
    if let Some(ended) = output.ended.as_ref().filter(|ended| is_ours && *ended != "exit status: 0") {
        notes.push(format!("{}: {ended}: {}", output.name, last_lines(&output.text)));
    }
    notes
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

/// The few numbers that a line of progress has room for.
fn headline(metrics: &Metrics) -> String {
    let shown = ["frames_per_second_min", "frames_late", "gap_ms_max", "latency_ms_max", "work_per_second"];
    let parts = shown.iter().filter_map(|name| {
        metrics.get(*name).map(|value| format!("{name} {}", crate::outcome::readable(*value)))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Progress on standard error: lines that stay, and on a terminal one that is overwritten.
struct Progress {
    quiet: bool,
    terminal: bool,
}

impl Progress {
    fn lasting(&self, text: &str) {
        if !self.quiet {
            self.clear();
            eprintln!("{text}");
        }
    }

    fn passing(&self, text: &str) {
        if !self.quiet && self.terminal {
            self.clear();
            eprint!("{text}");
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use steward_lab_guest::Seen;

    use super::*;

    #[test]
    fn a_program_that_could_not_be_executed_fails_the_run() {
        let output = |ended: Option<&str>| ProgramOutput {
            name: "clients".into(),
            ended: ended.map(str::to_owned),
            text: "sh: 1: exec: web-load: not found".into(),
            ..ProgramOutput::default()
        };
        for fine in [None, Some("exit status: 0"), Some("exit status: 124"), Some("signal: 9 (SIGKILL)")] {
            assert_eq!(not_executed(&[output(fine)]), None, "{fine:?}");
        }
        let error = not_executed(&[output(None), output(Some("exit status: 127"))]).unwrap();
        assert_eq!(error, "clients could not be executed: sh: 1: exec: web-load: not found");
    }

    #[test]
    fn a_peer_that_cannot_be_built_is_skipped_with_a_sentence_and_the_others_run() {
        let text = "title = \"t\"\nduration = \"1s\"\nrepeat = 2\n\
                    contenders = [\"stock\", \"scx_bpfland\", \"scx_flash\", \"steward\"]\n\
                    [[program]]\nname = \"film\"\ncommand = \"true\"\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let build = |peer: Contender| match peer {
            Contender::ScxFlash => bail!("peer.sh failed (exit status: 101)"),
            built => Ok(vec![GuestFile::from_bytes(Vec::new(), format!("/{built}"), 0o755)]),
        };
        let peers = Peers::find(&scenario.contenders, &build);
        let reasons: Vec<&str> = peers.skipped.values().map(String::as_str).collect();
        assert_eq!(reasons, ["scx_flash is skipped: peer.sh failed (exit status: 101)"]);
        assert_eq!(peers.files.len(), 1, "the other one is brought into the machine");
        let contenders = peers.not_skipped(&scenario.contenders).unwrap();
        let plan = crate::plan::plan(&scenario, &contenders, 2).unwrap();
        let runs: Vec<&str> = plan.runs.iter().map(|run| run.contender.as_str()).collect();
        assert_eq!(runs, ["stock", "scx_bpfland", "steward", "stock", "scx_bpfland", "steward"]);
        // With nobody left there is nothing to compare, and the sentence says why.
        let error = peers.not_skipped(&[Contender::ScxFlash]).unwrap_err().to_string();
        assert_eq!(
            error,
            "none of the contenders can run: scx_flash is skipped: peer.sh failed (exit status: 101)"
        );
    }

    #[test]
    fn no_run_counts_in_a_machine_that_could_not_be_prepared() {
        let text = "title = \"t\"\nduration = \"1s\"\nrepeat = 1\ncontenders = [\"stock\"]\n[[prepare]]\ncommand = \"tar -xf x\"\n\
            [[program]]\nname = \"film\"\ncommand = \"true\"\n";
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        let plan = crate::plan::plan(&scenario, &scenario.contenders, 1).unwrap();
        let printed = tempfile::tempdir().unwrap();
        let options =
            RunOptions { quiet: true, printed: Some(printed.path().to_owned()), ..RunOptions::default() };
        let mut listener = Listener::new(&scenario, &plan, &options);
        for (run, ended) in [(0, None), (1, Some("exit status: 0".to_owned()))] {
            let program = if run == 0 { "prepare" } else { "film" }.to_owned();
            listener.take(Record::Started { run });
            let text = format!("said by {program}\n");
            listener.take(Record::Output { run, program: program.clone(), text });
            let (notes, memory) = (Vec::new(), None);
            listener.take(Record::Program { run, program, ended, cpu_ms: 1.0, notes, memory });
            let (start_ms, end_ms) = (0.0, 1000.0);
            listener.take(Record::Finished {
                run,
                start_ms,
                end_ms,
                error: None,
                status: None,
                decisions: None,
                log: None,
                seen: Seen::default(),
            });
        }
        let error = listener.outcomes[0].error.as_deref().unwrap();
        assert!(error.contains("not over in time"), "{error}");
        let film = std::fs::read_to_string(printed.path().join("stock-1/film")).unwrap();
        assert_eq!(film, "said by film\n", "what is printed is kept all the same");
    }
}

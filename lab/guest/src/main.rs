//! The agent inside the lab machine: carries out a plan and writes records (see the library beside it).
//!
//! It runs as `SCHED_FIFO`, ahead of every contender's tasks, so that 2,000 loops cannot keep it from starting,
//! timing and stopping programs; it sleeps nearly always, and its children start in the default class.

mod daemon;
mod disk;
mod domains;
mod group;
mod machine;
mod memory;
mod process;
mod scheduler;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use steward_lab_guest::{PLAN_PATH, Plan, RESULTS_PATH, Record, Run, Seen, WORK_DIRECTORY, pieces};
use steward_lab_workloads::{clock, output, scheduling};

use daemon::Daemon;
use machine::Watcher;
use process::Running;
use scheduler::Holder;

const AGENT_PRIORITY: u32 = 50;
/// How often the agent looks whether programs have ended, when nothing else wakes it.
const LOOK_MS: u64 = 100;
const PROGRESS_MS: u64 = 5_000;
/// Between two runs, for what is still dying.
const PAUSE: Duration = Duration::from_millis(300);

/// Appends records to the file that the host reads.
struct Records {
    file: File,
}

impl Records {
    fn write(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_string(record)?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).context("cannot write the results")
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let plan_path = arguments.next().unwrap_or_else(|| PLAN_PATH.into());
    let results_path = arguments.next().unwrap_or_else(|| RESULTS_PATH.into());
    let text = fs::read_to_string(&plan_path).with_context(|| format!("cannot read {plan_path}"))?;
    let plan: Plan = serde_json::from_str(&text).with_context(|| format!("{plan_path} is not a plan"))?;
    fs::create_dir_all(WORK_DIRECTORY)?;
    let file = OpenOptions::new().create(true).append(true).open(&results_path);
    let mut records = Records { file: file.with_context(|| format!("cannot write {results_path}"))? };

    if let Err(error) = scheduling::become_fifo(AGENT_PRIORITY) {
        eprintln!("the agent stays in the default class, and may starve: SCHED_FIFO: {error}");
    }
    if plan.runs.iter().any(|run| run.memory.is_some())
        && let Err(error) = memory::stay()
    {
        eprintln!("the agent may be swapped out, and be late: mlockall: {error}");
    }
    // Flat, as most servers and all the papers are: autogroups would weigh sessions instead of tasks.
    let _ = fs::write("/proc/sys/kernel/sched_autogroup_enabled", "0");
    for (index, run) in plan.runs.iter().enumerate() {
        records.write(&Record::Started { run: index })?;
        carry_out(index, run, &mut records)?;
        std::thread::sleep(PAUSE);
    }
    records.write(&Record::Done)
}

fn now_ms() -> f64 {
    output::ms(clock::now_ns())
}

/// What is known about a run besides its programs.
#[derive(Default)]
struct Findings {
    errors: Vec<String>,
    status: Option<serde_json::Value>,
    decisions: Option<String>,
    log: Option<String>,
    seen: Seen,
}

impl Findings {
    fn add<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(format!("{error:#}"))).ok()
    }

    /// Asks the daemon about itself, while what it manages still runs.
    fn ask_daemon(&mut self, daemon: &Daemon, directory: &Path) {
        self.add(daemon.is_still_in_force().context("during the run"));
        self.status = self.add(daemon::status(directory));
        self.errors.extend(self.status.as_ref().and_then(daemon::loaded_again));
        self.decisions = self.add(daemon::decisions(directory));
    }

    fn record(self, run: usize, start_ms: f64, end_ms: f64) -> Record {
        let Findings { errors, status, decisions, log, seen } = self;
        let error = if errors.is_empty() { None } else { Some(errors.join("; ")) };
        Record::Finished { run, start_ms, end_ms, error, status, decisions, log, seen }
    }
}

/// One run from start to clean machine. What goes wrong inside it is recorded, and the next run goes on.
fn carry_out(index: usize, run: &Run, records: &mut Records) -> Result<()> {
    let directory = PathBuf::from(WORK_DIRECTORY).join(format!("run-{index}"));
    fs::create_dir_all(directory.join("output"))?;
    let mut findings = Findings::default();
    let daemon = run.steward.as_ref().and_then(|setup| findings.add(Daemon::start(setup, &directory)));
    let other = run.scheduler.as_ref().and_then(|path| findings.add(Holder::start(path, &directory)));
    if (run.steward.is_some() && daemon.is_none()) || (run.scheduler.is_some() && other.is_none()) {
        let now_ms = now_ms();
        return records.write(&findings.record(index, now_ms, now_ms));
    }

    let mut programs = Vec::new();
    let made = findings.add(make_groups(run)).and_then(|()| findings.add(calibrate(run, &directory)));
    let start_ms = now_ms();
    if made.is_some() {
        let mut watcher = Watcher::new(run.idle_between_ms);
        if run.memory.is_some() {
            watcher.count_memory();
        }
        if run.disk.is_some() {
            watcher.count_disk();
        }
        findings.add(watch(index, run, &directory, (&mut programs, &mut watcher, daemon.as_ref()), records));
        findings.seen = watcher.finish();
    }
    let end_ms = now_ms();
    programs.iter_mut().for_each(Running::count);
    if let Some(daemon) = &daemon {
        findings.ask_daemon(daemon, &directory);
    }
    if let Some(other) = &other {
        findings.add(other.is_still_in_force().context("during the run"));
    }
    for running in &mut programs {
        findings.add(running.stop());
        report(index, running, records)?;
    }
    findings.add(domains::end_programs());
    programs.into_iter().for_each(|running| running.group.remove());
    findings.add(domains::remove(&run.domains));
    if let Some(daemon) = daemon {
        findings.log = Some(daemon.log());
        findings.add(daemon.stop());
    }
    if let Some(other) = other {
        findings.add(other.stop());
    }
    records.write(&findings.record(index, start_ms, end_ms))?;
    let _ = fs::remove_dir_all(&directory);
    Ok(())
}

/// The cgroups that are there before the programs.
fn make_groups(run: &Run) -> Result<()> {
    if let Some(setup) = &run.memory {
        memory::prepare(Path::new(group::ROOT), run, setup)?;
    }
    domains::make(&run.domains)?;
    // Weights may be for domains.
    run.disk.iter().try_for_each(|setup| disk::prepare(Path::new(group::ROOT), run, setup))
}

/// Once the disk is as it is during the run.
fn calibrate(run: &Run, directory: &Path) -> Result<()> {
    let path = run.steward.as_ref().and_then(|setup| setup.calibrated.as_ref());
    path.map_or(Ok(()), |path| daemon::calibrate(directory, path))
}

/// Tells what a stopped program printed and used.
fn report(index: usize, running: &mut Running, records: &mut Records) -> Result<()> {
    let name = running.program.name.clone();
    for piece in pieces(&running.take_output()) {
        records.write(&Record::Output { run: index, program: name.clone(), text: piece.to_owned() })?;
    }
    let ended = running.ended.map(|status| status.to_string());
    records.write(&Record::Program {
        run: index,
        program: name,
        ended,
        cpu_ms: running.cpu_ms,
        notes: std::mem::take(&mut running.notes),
        memory: running.memory,
    })
}

/// Starts and stops programs at their moments, and collects what they print, until the run is over.
fn watch(
    index: usize,
    run: &Run,
    directory: &Path,
    (programs, watcher, daemon): (&mut Vec<Running>, &mut Watcher, Option<&Daemon>),
    records: &mut Records,
) -> Result<()> {
    let (groups, outputs) = (Path::new(group::ROOT), directory.join("output"));
    let start_ns = clock::now_ns();
    let mut waiting = run.programs.clone();
    if run.one_after_another {
        waiting.reverse();
    } else {
        // The next one to start is the last of the list.
        waiting.sort_by_key(|program| std::cmp::Reverse(program.start_ms));
    }
    let mut progress_ms = 0;
    loop {
        let elapsed_ms = (clock::now_ns() - start_ns) / 1_000_000;
        watcher.look(elapsed_ms);
        if elapsed_ms >= run.duration_ms {
            return Ok(());
        }
        if elapsed_ms >= progress_ms {
            records.write(&Record::Progress { run: index, elapsed_ms })?;
            progress_ms += PROGRESS_MS;
            watcher.look_at_daemon(daemon);
            programs.iter_mut().for_each(Running::look_at_memory);
        }
        programs.iter_mut().for_each(Running::look);
        let all_ended = programs.iter().all(|running| running.ended.is_some());
        if run.one_after_another && all_ended && waiting.is_empty() {
            return Ok(());
        }
        let is_due = |start_ms: u64| start_ms <= elapsed_ms && (all_ended || !run.one_after_another);
        if waiting.last().is_some_and(|program| is_due(program.start_ms))
            && let Some(program) = waiting.pop()
        {
            let below = match run.memory {
                Some(_) => memory::place(groups, run, &program),
                None => groups.to_owned(),
            };
            programs.push(Running::start(program, &below, &outputs)?);
            continue;
        }
        for running in programs.iter_mut() {
            if running.program.stop_ms.is_some_and(|stop_ms| stop_ms <= elapsed_ms) {
                running.program.stop_ms = None;
                running.begin_stop()?;
            }
        }
        let next_ms =
            next_moment_ms(run, programs, &waiting, elapsed_ms).min(watcher.next_ms().unwrap_or(u64::MAX));
        wait_for_lines(programs, next_ms.saturating_sub(elapsed_ms).max(1));
    }
}

/// When the agent must act again, in milliseconds after the start of the run.
fn next_moment_ms(
    run: &Run,
    programs: &[Running],
    waiting: &[steward_lab_guest::Program],
    elapsed_ms: u64,
) -> u64 {
    let stops = programs.iter().filter_map(|running| running.program.stop_ms);
    let starts = waiting.iter().map(|program| program.start_ms).filter(|start_ms| *start_ms > elapsed_ms);
    stops.chain(starts).chain([run.duration_ms, elapsed_ms + LOOK_MS]).min().unwrap_or(run.duration_ms)
}

/// Waits until a stamped program prints something, at most `patience_ms`, and reads it.
fn wait_for_lines(programs: &mut [Running], patience_ms: u64) {
    let mut descriptors: Vec<libc::pollfd> = programs
        .iter()
        .filter_map(Running::pipe)
        .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: the vector is as long as it says.
    let ready = unsafe {
        libc::poll(descriptors.as_mut_ptr(), descriptors.len() as libc::nfds_t, patience_ms as libc::c_int)
    };
    if ready > 0 {
        programs.iter_mut().for_each(Running::read_lines);
    }
}

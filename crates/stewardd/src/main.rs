//! The daemon's command line: reads it, wires the real machine to the loop, ends with 0, 1 (failure) or 2 (usage).

// The man page is made as those of `steward` are.
#[path = "../../steward/src/man/page.rs"]
mod man_page;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, Parser, ValueEnum};
use steward_core::cpu::best_effort::BestEffortOrder;
use steward_core::cpu::config::MechanismChoice;
use steward_kernel::Roots;
use stewardd::cpu::mechanisms;
use stewardd::daemon::{Daemon, MEMORY_RESERVATION, OWN_RESERVATION, Options};
use stewardd::disk::counts::count_in_kernel;
use stewardd::disk::knobs::KernelKnobs;
use stewardd::disk::moments::watch_kernel;
use stewardd::domains::{cgroups, declared};
use stewardd::files::watch::Watch;
use stewardd::files::{journal, rules, specs};
use stewardd::memory::scopes;
use stewardd::server::{Server, peer, polkit};
use stewardd::turn::{self, Controls, log};
use stewardd::watchdog;

/// Gives programs the CPU time that they were promised, as specifications in /usr/lib/steward/specs,
/// /run/steward/specs and /etc/steward/specs say.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/steward/steward.toml")]
    config: PathBuf,
    /// A directory of specifications, in place of the usual ones. Give it up to three times; a file in a later
    /// directory masks the same name in an earlier one.
    #[arg(long = "spec-directory", value_name = "DIR")]
    spec_directories: Vec<PathBuf>,
    /// A directory of rules about who may ask for what, in place of the usual ones; as --spec-directory.
    #[arg(long = "rule-directory", value_name = "DIR")]
    rule_directories: Vec<PathBuf>,
    /// A directory of files that declare domains, in place of the usual ones; as --spec-directory.
    #[arg(long = "domain-directory", value_name = "DIR")]
    domain_directories: Vec<PathBuf>,
    /// Where to listen.
    #[arg(long, value_name = "PATH", default_value = libsteward::SOCKET_PATH)]
    socket: PathBuf,
    /// Where to mount the control files; links to them are made beside it.
    #[arg(long, value_name = "DIR", default_value = libsteward::CONTROL_FILES)]
    control_files: PathBuf,
    /// Mount no control files.
    #[arg(long, conflicts_with = "control_files")]
    no_control_files: bool,
    /// What enforces reservations, whatever the configuration says.
    #[arg(long, value_name = "NAME")]
    mechanism: Option<MechanismName>,
    /// In which order domains get the CPU, whatever the configuration says.
    #[arg(long, value_name = "ORDER")]
    best_effort: Option<OrderName>,
    /// Where what must survive a restart is kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/steward")]
    state_directory: PathBuf,
    /// Record what the memory loop sees at each look and decides, as JSON lines, to be replayed in the simulator.
    #[arg(long, value_name = "FILE")]
    record_memory: Option<PathBuf>,
    /// What to log: error, warn, info, debug, or a list as in info,bpf=debug.
    #[arg(long, value_name = "FILTER", env = "STEWARD_LOG", hide_env_values = true, default_value = "info")]
    log: String,
    /// Be the process that resumes suspended programs when stewardd is killed.
    #[arg(long, hide = true)]
    guard: bool,
    /// Print the man page, for packagers.
    #[arg(long, hide = true)]
    man: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MechanismName {
    /// sched_ext where the kernel has it, otherwise SCHED_DEADLINE.
    Auto,
    /// Steward's scheduler, through sched_ext.
    #[value(name = "sched_ext")]
    SchedExt,
    /// The kernel's SCHED_DEADLINE.
    Deadline,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderName {
    /// Virtual time at each level of the tree, with credit of a cycle for those who come back.
    VirtualTime,
    /// Move-To-Rear List Scheduling as published.
    MtrLs,
    /// Weighted round-robin by service cycles.
    Wrr,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.guard {
        watchdog::run(std::io::stdin().lock());
        return ExitCode::SUCCESS;
    }
    if arguments.man {
        let mut command = Arguments::command();
        command.build();
        let written =
            man_page::of(&command, "8").and_then(|page| std::io::stdout().write_all(page.as_bytes()));
        return if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    for (option, directories) in [
        ("--spec-directory", &arguments.spec_directories),
        ("--rule-directory", &arguments.rule_directories),
        ("--domain-directory", &arguments.domain_directories),
    ] {
        if directories.len() > specs::DIRECTORIES.len() {
            eprintln!("stewardd: {option} can be given at most {} times", specs::DIRECTORIES.len());
            return ExitCode::from(2);
        }
    }
    if let Err(error) = log::start(&arguments.log) {
        eprintln!("stewardd: --log {}: {error}", arguments.log);
        return ExitCode::from(2);
    }
    let outcome = run(arguments);
    log::finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stewardd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Two descriptors for each client, one for each cgroup that the memory loop looks at, of which there can be 3,072
/// below each at the top, and more than enough for all else.
const DESCRIPTORS_MIN: u64 = 32_768;

/// Makes room for the descriptors of all clients: the usual limit is 1,024. Where that is not allowed, there are fewer
/// clients.
fn allow_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < DESCRIPTORS_MIN) {
        let current = Some(limit.maximum.map_or(DESCRIPTORS_MIN, |maximum| maximum.min(DESCRIPTORS_MIN)));
        if let Err(errno) = setrlimit(Resource::Nofile, rustix::process::Rlimit { current, ..limit }) {
            tracing::warn!(
                %errno,
                "cannot raise the limit of open files: there is room for fewer clients, and for fewer cgroups whose memory is \
                 looked at"
            );
        }
    }
}

/// Has the kernel leave this process's pages as small as they are. Its `khugepaged` puts them together at nice 19 where
/// huge pages are for everybody, and whoever touches memory meanwhile waits for it: for as long as it takes to copy
/// 2 MiB, and for all programs that come before it.
fn refuse_huge_pages() {
    if let Err(errno) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%errno, "cannot do without huge pages");
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    refuse_huge_pages();
    allow_descriptors();
    let controls = controls()?;
    // Bound first: it tells whether another daemon runs, before anything is changed.
    let server = Server::bind(&arguments.socket, Box::new(peer::from_kernel))?;
    let watch = Watch::new()?;
    // What fails here fails again, and is told, where the journal is opened.
    let _ = journal::own(&arguments.state_directory);
    let leftovers = journal::undo_leftovers(&arguments.state_directory);
    for line in &leftovers {
        tracing::error!(decision = "not-reverted", "left behind by an earlier stewardd: {line}");
    }
    let options = options(&arguments);
    let undo = journal::open(&arguments.state_directory, &options.roots);
    if let Err(reason) = &undo {
        tracing::warn!(decision = "no-journal", "nothing is changed that would have to be undone: {reason}");
    }
    let cgroups = cgroups::open(&options.roots, &undo);
    let disk = Arc::new(KernelKnobs::new(&options.roots, &undo, watch_kernel, count_in_kernel));
    let daemon = Daemon::start(options, mechanisms::loader(undo), cgroups, disk)
        .and_then(|daemon| daemon.recording_memory(arguments.record_memory.as_deref()));
    match daemon {
        Ok(mut daemon) => {
            daemon.note_leftovers(leftovers);
            let files = Some(&arguments.control_files).filter(|_| !arguments.no_control_files);
            let files = files.and_then(|path| daemon.mount_control_files(path));
            turn::run(daemon, server, files, watch, controls)
        }
        Err(error) => {
            server.close();
            Err(error)
        }
    }
}

fn options(arguments: &Arguments) -> Options {
    let or_usual = |given: &[PathBuf], usual: [&str; 3]| {
        if given.is_empty() { usual.map(PathBuf::from).to_vec() } else { given.to_vec() }
    };
    Options {
        config: arguments.config.clone(),
        spec_directories: or_usual(&arguments.spec_directories, specs::DIRECTORIES),
        rule_directories: or_usual(&arguments.rule_directories, rules::DIRECTORIES),
        domain_directories: or_usual(&arguments.domain_directories, declared::DIRECTORIES),
        state_directory: arguments.state_directory.clone(),
        pressure_directory: arguments.socket.with_file_name("pressure"),
        mechanism: arguments.mechanism.map(|name| match name {
            MechanismName::Auto => MechanismChoice::Auto,
            MechanismName::SchedExt => MechanismChoice::SchedExt,
            MechanismName::Deadline => MechanismChoice::Deadline,
        }),
        best_effort: arguments.best_effort.map(|name| match name {
            OrderName::VirtualTime => BestEffortOrder::VirtualTime,
            OrderName::MtrLs => BestEffortOrder::MtrLs,
            OrderName::Wrr => BestEffortOrder::Wrr,
        }),
        roots: Roots::default(),
        own_reservation: Some(OWN_RESERVATION),
        memory_reservation: Some(MEMORY_RESERVATION),
        polkit: PathBuf::from(polkit::PROGRAM),
        systemd: Path::new(scopes::BOOTED).is_dir().then(|| PathBuf::from(scopes::PROGRAM)),
        disk_handed_out_for_ns: stewardd::disk::HANDED_OUT_FOR_NS,
    }
}

/// Turns signals into bytes that the loop can wait for.
fn controls() -> anyhow::Result<Controls> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let pipe = |signals: &[i32]| -> anyhow::Result<UnixStream> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
        }
        Ok(reader)
    };
    let stop = pipe(&[SIGTERM, SIGINT]).context("cannot take signals")?;
    let reload = pipe(&[SIGHUP]).context("cannot take signals")?;
    Ok(Controls { stop, reload })
}

//! A daemon in this process: on a fake mechanism, a socket and directories of its own, and with callers that are
//! whoever a test says.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use libsteward::{Client, api};
use steward_core::cpu::reservation::Reservation;
use steward_core::memory::limits::Told;
use steward_kernel::Roots;
use stewardd::daemon::{Daemon, Options};
use stewardd::fake::cgroups::FakeCgroups;
use stewardd::fake::disk::FakeDisk;
use stewardd::fake::tasks::FakeTasks;
use stewardd::fake::{Fake, options};
use stewardd::files::watch::Watch;
use stewardd::server::{Server, peer};
use stewardd::turn::{self, Controls};

/// The files of one machine; daemons come and go on it.
pub struct Machine {
    pub directory: tempfile::TempDir,
    pub fake: Fake,
    pub cgroups: FakeCgroups,
    pub tasks: FakeTasks,
    pub disk: FakeDisk,
    /// The kernel's trees.
    pub roots: Roots,
    /// The user that callers are taken for.
    pub caller_uid: Arc<AtomicU32>,
    /// What the memory loop is to have of the CPU.
    pub memory_reservation: Option<Reservation>,
    /// For how long the disk goes on being handed out for nobody.
    pub disk_handed_out_for_ns: u64,
}

/// A daemon that runs. Stops when dropped.
pub struct Running {
    pub socket: PathBuf,
    stop: UnixStream,
    reload: UnixStream,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Machine {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("specs")).expect("created");
        std::fs::write(directory.path().join("steward.toml"), "owner = 1000\n").expect("written");
        let (fake, cgroups) = (Fake::default(), FakeCgroups::default());
        let tasks = FakeTasks::default();
        Machine {
            directory,
            fake,
            cgroups,
            tasks,
            disk: FakeDisk::default(),
            roots: Roots::default(),
            caller_uid: Arc::new(AtomicU32::new(0)),
            memory_reservation: None,
            disk_handed_out_for_ns: 0,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write_specs(&self, name: &str, text: &str) {
        std::fs::write(self.path("specs").join(name), text).expect("written");
    }

    /// Writes the one file that declares domains.
    pub fn declare_domains(&self, text: &str) {
        std::fs::create_dir_all(self.path("domains.d")).expect("created");
        let beside = self.path("domains.d/declared.new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.path("domains.d/declared.toml")).expect("renamed");
    }

    /// As editors do: at no moment is the file there with less than all of it.
    pub fn replace_specs(&self, name: &str, text: &str) {
        let beside = self.path("specs").join(format!("{name}.new"));
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.path("specs").join(name)).expect("renamed");
    }

    /// A program of its own: a copy of sleep, that nobody else on the machine runs.
    pub fn program(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        // By another process: a file that is open for writing here, in a fork of another test's thread, cannot be
        // executed (ETXTBSY).
        let copied = Command::new("cp").arg("/bin/sleep").arg(&path).status().expect("every machine has cp");
        assert!(copied.success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
        path
    }

    pub fn start(&self) -> Running {
        self.try_start().expect("the daemon starts")
    }

    /// A daemon without a socket.
    pub fn daemon(&self) -> anyhow::Result<Daemon> {
        let options = Options {
            memory_reservation: self.memory_reservation,
            disk_handed_out_for_ns: self.disk_handed_out_for_ns,
            ..options(self.directory.path(), self.roots.clone())
        };
        let mut daemon = Daemon::start(
            options,
            self.fake.loader(),
            Ok(Box::new(self.cgroups.clone())),
            Arc::new(self.disk.clone()),
        )?;
        daemon.set_task_source(Box::new(self.tasks.clone()));
        Ok(daemon)
    }

    pub fn try_start(&self) -> anyhow::Result<Running> {
        self.try_start_with(None)
    }

    /// With control files mounted there, where that is possible.
    pub fn try_start_with(&self, control_files: Option<&Path>) -> anyhow::Result<Running> {
        let uid = self.caller_uid.clone();
        let identify = move |stream: &UnixStream| {
            let caller = peer::from_kernel(stream)?;
            let uid = uid.load(Ordering::SeqCst);
            Ok(peer::Caller { uid, payer: uid, ..caller })
        };
        let socket = self.path("socket");
        let server = Server::bind(&socket, Box::new(identify))?;
        let watch = Watch::new()?;
        let mut daemon = self.daemon()?;
        let (stop, stopped) = UnixStream::pair()?;
        let (reload, reloaded) = UnixStream::pair()?;
        reloaded.set_nonblocking(true)?;
        let controls = Controls { stop: stopped, reload: reloaded };
        let files = control_files.and_then(|path| daemon.mount_control_files(path));
        let thread = std::thread::spawn(move || turn::run(daemon, server, files, watch, controls));
        // Nobody can connect before the loop runs.
        while !thread.is_finished() && UnixStream::connect(&socket).is_err() {
            std::thread::yield_now();
        }
        Ok(Running { socket, stop, reload, thread: Some(thread) })
    }
}

impl Running {
    pub fn client(&self) -> Client {
        Client::connect(&self.socket).expect("the daemon listens")
    }

    pub fn status(&self) -> api::StatusReply {
        self.client().call(&api::Status {}).expect("everyone may ask for the status")
    }

    /// As SIGHUP does.
    pub fn signal_reload(&self) {
        (&self.reload).write_all(b"x").expect("the daemon runs");
    }

    /// As SIGTERM does.
    pub fn stop(mut self) {
        self.finish().expect("the daemon stops in order");
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // It may have ended by itself.
        let _ = (&self.stop).write_all(b"x");
        thread.join().expect("the daemon does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// A program that runs until the test ends.
pub struct Sleeper(Child);

impl Sleeper {
    /// Runs once this returns: exec has happened.
    pub fn start(program: &Path) -> Self {
        // std returns from spawn only once exec has succeeded.
        let child = Command::new(program).arg("1000").stdin(Stdio::null()).spawn().expect("it starts");
        Sleeper(child)
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A row of a specification file.
pub fn row(path: &Path, cpu: &str) -> String {
    format!("[[spec]]\npath = \"{}\"\ncpu = \"{cpu}\"\n", path.display())
}

pub const fn reservation(budget_ms: u64, period_ms: u64) -> api::Reservation {
    api::Reservation { budget_ns: budget_ms * 1_000_000, period_ns: period_ms * 1_000_000 }
}

pub fn set(pid: i32, cpu: api::Reservation) -> api::Set {
    api::Set { pid, cpu, inherit: None, revocable: None, keep_if_refused: None, requests_at: None }
}

/// A stand-in for systemd-run, which says who it is, and does `then` once it is told to go on.
pub fn systemd_run(machine: &Machine, then: &str) {
    let place = machine.directory.path().display();
    let fifo = Command::new("mkfifo").arg(machine.path("go")).status().expect("every machine has mkfifo");
    assert!(fifo.success());
    let script = format!(
        "#!/bin/sh\necho \"$@\" >{place}/arguments\necho $$ >{place}/asked.new\nmv {place}/asked.new {place}/asked\n\
         read -r _ <{place}/go\n{then}\n"
    );
    fs::write(machine.path("systemd-run"), script).expect("written");
    fs::set_permissions(machine.path("systemd-run"), fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The pid of that stand-in once it was asked.
pub fn asked(machine: &Machine, daemon: &Running) -> i32 {
    for _ in 0..100_000 {
        if let Ok(pid) = fs::read_to_string(machine.path("asked")) {
            fs::remove_file(machine.path("asked")).expect("it is there");
            return pid.trim().parse().expect("a pid");
        }
        daemon.status();
    }
    panic!("nobody was asked")
}

/// Waits until a cgroup was told these, a minimum and a maximum, in bytes.
#[track_caller]
pub fn until_told(machine: &Machine, daemon: &Running, path: &str, wanted: (Option<u64>, Option<u64>)) {
    let mut has = Told::default();
    for _ in 0..100_000 {
        has = machine.cgroups.tree().memory(path);
        if (has.min_bytes, has.max_bytes) == wanted {
            return;
        }
        daemon.status();
    }
    panic!("{path} has {has:?}, and not {wanted:?}")
}

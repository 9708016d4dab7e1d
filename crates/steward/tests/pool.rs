//! `steward pool haproxy` as a whole: against a HAProxy and a daemon that the test plays.

#[path = "../../libsteward/tests/daemon/mod.rs"]
mod daemon;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use libsteward::api::{self, Method};

/// Who says nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(120);
/// The limit that HAProxy's configuration gives.
const CONFIGURED: u32 = 40;

/// HAProxy with one server, whose limit can be read and set.
fn haproxy(control: &Path) -> Arc<AtomicU32> {
    haproxy_of(control, 7)
}

/// The same as a process of that id, in place of who was there before.
fn haproxy_of(control: &Path, pid: u32) -> Arc<AtomicU32> {
    let _ = std::fs::remove_file(control);
    let listener = UnixListener::bind(control).expect("a socket");
    let maxconn = Arc::new(AtomicU32::new(CONFIGURED));
    let shared = maxconn.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut command = String::new();
            BufReader::new(&stream).read_line(&mut command).expect("a command");
            let answer = match command.trim().strip_prefix("set maxconn server web/a ") {
                None if command == "show info\n" => format!("Name: HAProxy\nPid: {pid}\n\n"),
                Some(limit) => {
                    shared.store(limit.parse().expect("a number"), Ordering::SeqCst);
                    "\n".to_owned()
                }
                None => {
                    let limit = shared.load(Ordering::SeqCst);
                    format!("# pxname,svname,qcur,slim,\nweb,a,0,{limit},\nweb,BACKEND,7,200,\n\n")
                }
            };
            // Who only looked whether somebody is there has gone.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    maxconn
}

/// A daemon that gives the forecasts it is handed to the first one who watches.
fn daemon(socket: &Path) -> mpsc::Sender<api::Forecasts> {
    daemon::feed(socket, api::WatchForecasts::NAME)
}

/// A sidecar and what it says.
struct Sidecar {
    child: Child,
    /// Line by line.
    said: mpsc::Receiver<String>,
}

impl Sidecar {
    fn start(directory: &Path) -> Sidecar {
        let path = |name: &str| directory.join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        command
            .arg("--socket")
            .arg(path("daemon"))
            .args(["pool", "haproxy", "--server", "web/a", "--domain", "web"]);
        command.arg("--control").arg(path("control")).arg("--state-directory").arg(directory);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("started");
        let output = BufReader::new(child.stderr.take().expect("a pipe"));
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Sidecar { child, said }
    }

    /// Reads what it says until that contains `words`.
    fn until(&mut self, words: &str) -> String {
        let mut all = String::new();
        while !all.contains(words) {
            let Ok(line) = self.said.recv_timeout(PATIENCE) else {
                panic!("it ended, or fell silent, without saying `{words}`: {all}");
            };
            all += &line;
            all.push('\n');
        }
        all
    }

    fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
    }

    fn succeeded(&mut self) -> bool {
        self.child.wait().expect("waited for").success()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A domain of 50 workers that all want the one CPU, for as long as it takes to be sure.
fn crowd(feed: &std::sync::mpsc::Sender<api::Forecasts>) {
    let machine = api::Forecast { actual_ms_per_s: 1000.0, ..api::Forecast::default() };
    for at_ns in [0, 600_000_000] {
        let web = api::DomainForecast { name: "web".into(), runnable: 50, ..api::DomainForecast::default() };
        let forecasts =
            api::Forecasts { at_ns, cpus: 1, machine, domains: vec![web], ..api::Forecasts::default() };
        feed.send(forecasts).expect("the daemon lives");
    }
}

#[test]
fn a_crowded_pool_shrinks_and_has_its_own_size_again_at_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let maxconn = haproxy(&directory.path().join("control"));
    let feed = daemon(&directory.path().join("daemon"));
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("40 workers: to begin with");
    crowd(&feed);
    let said = sidecar.until(" 9 workers");
    assert!(said.contains("50.0 workers were busy, slowed down 50.0 times, above 10"), "{said}");
    assert_eq!(maxconn.load(Ordering::SeqCst), 9);
    sidecar.terminate();
    sidecar.until("has its own pool size again");
    assert!(sidecar.succeeded());
    assert_eq!(maxconn.load(Ordering::SeqCst), CONFIGURED);
}

#[test]
fn without_a_daemon_the_pool_stays_and_that_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let maxconn = haproxy(&directory.path().join("control"));
    let mut sidecar = Sidecar::start(directory.path());
    let said = sidecar.until("stays so without forecasts");
    assert!(said.contains("cannot reach stewardd"), "{said}");
    assert_eq!(maxconn.load(Ordering::SeqCst), CONFIGURED);
}

#[test]
fn a_second_one_is_refused_and_a_killed_one_is_undone_by_revert() {
    let directory = tempfile::tempdir().expect("a directory");
    let maxconn = haproxy(&directory.path().join("control"));
    let feed = daemon(&directory.path().join("daemon"));
    let mut first = Sidecar::start(directory.path());
    first.until("to begin with");
    crowd(&feed);
    first.until(" 9 workers");
    let mut second = Sidecar::start(directory.path());
    second.until("another `steward pool` sizes this server already");
    assert!(!second.succeeded());
    first.child.kill().expect("killed");
    first.child.wait().expect("waited for");
    assert_eq!(maxconn.load(Ordering::SeqCst), 9);
    revert(directory.path());
    assert_eq!(maxconn.load(Ordering::SeqCst), CONFIGURED);
}

fn revert(directory: &Path) {
    let mut revert = Command::new(env!("CARGO_BIN_EXE_steward"));
    revert.arg("--socket").arg(directory.join("nobody")).arg("revert");
    let output = revert.arg("--state-directory").arg(directory).output().expect("run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the server has its own pool size again"), "{said}");
}

#[test]
fn a_haproxy_that_is_started_anew_meanwhile_has_what_it_is_configured_for_at_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("control");
    haproxy(&control);
    let feed = daemon(&directory.path().join("daemon"));
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("to begin with");
    crowd(&feed);
    sidecar.until(" 9 workers");
    let since = haproxy_of(&control, 8);
    since.store(150, Ordering::SeqCst);
    crowd(&feed);
    sidecar.until("workers: again");
    sidecar.terminate();
    sidecar.until("has its own pool size again");
    assert!(sidecar.succeeded());
    assert_eq!(since.load(Ordering::SeqCst), 150);
}

#[test]
fn what_cannot_be_put_back_for_want_of_an_answer_stays_to_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("control");
    let before = haproxy(&control);
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("to begin with");
    sidecar.child.kill().expect("killed");
    sidecar.child.wait().expect("waited for");
    // It listens, and answers nobody.
    std::fs::remove_file(&control).expect("removed");
    let silent = UnixListener::bind(&control).expect("a socket");
    let closes = std::thread::spawn(move || silent.incoming().take(2).for_each(drop));
    let mut revert = Command::new(env!("CARGO_BIN_EXE_steward"));
    revert.arg("--socket").arg(directory.path().join("nobody")).arg("revert");
    let output = revert.arg("--state-directory").arg(directory.path()).output().expect("run");
    assert!(!output.status.success(), "{output:?}");
    closes.join().expect("no panic");
    assert!(std::fs::read_dir(directory.path().join("pool")).expect("kept").count() == 1);
    assert_eq!(before.load(Ordering::SeqCst), CONFIGURED);
}

#[test]
fn what_a_killed_one_left_is_not_put_back_in_a_haproxy_that_was_started_since() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("control");
    let before = haproxy(&control);
    let feed = daemon(&directory.path().join("daemon"));
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("to begin with");
    crowd(&feed);
    sidecar.until(" 9 workers");
    sidecar.child.kill().expect("killed");
    sidecar.child.wait().expect("waited for");
    let since = haproxy_of(&control, 8);
    since.store(150, Ordering::SeqCst);
    revert(directory.path());
    assert_eq!((before.load(Ordering::SeqCst), since.load(Ordering::SeqCst)), (9, 150));
}

#[test]
fn a_server_that_haproxy_does_not_know_or_nobody_at_the_socket_is_an_error_that_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("level admin");
    assert!(!sidecar.succeeded());
    let listener = UnixListener::bind(directory.path().join("control")).expect("a socket");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut command = String::new();
        BufReader::new(&stream).read_line(&mut command).expect("a command");
        stream.write_all(b"# pxname,svname,qcur,slim,\nother,a,0,1,\n\n").expect("sent");
    });
    let mut sidecar = Sidecar::start(directory.path());
    sidecar.until("knows no server web/a");
    assert!(!sidecar.succeeded());
}

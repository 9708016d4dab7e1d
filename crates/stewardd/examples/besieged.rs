//! What a user who means ill costs the others: `besieged SCENARIO...` beside a running stewardd, as root, in the lab's
//! machine.
//!
//! User 1000 does what the scenario says, while user 1001 (root for `subordinates`) calls; it prints how long those
//! calls took and what the daemon takes of memory. Scenarios: `quiet`, `forecasts`, `events`, `monitor`,
//! `subordinates`, `files`, `mounts`, `releases`, `ends`, `cgroups`, `churn`, `shows`, `removals`, `descriptors`,
//! `complaints`, `complainers`, `clients`, in which seven users more do what user 1000 does, and `all-clients`, in
//! which root does so too: the daemon then has more than 1,024 descriptors. `SCENARIO:METHOD` has user 1001 call
//! another method than `ListSpecs`.
//!
//! `metrics-N` is N idle connections to the metrics. The daemon is told to serve them (`/etc/steward/steward.toml` is
//! written anew); user 1001 reads them after each call, and calls again while their address is changed.
//!
//! What the daemon has in memory at most (`VmHWM`) is counted anew for each scenario.
//!
//! `BESIEGED_ROUNDS` in the environment is by how many decisions `events` and `monitor` fill the history before, by
//! twos, and how many programs have complained and ended before in `complaints`; unless said as many as fit, and
//! 70,000.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use libsteward::{Client, SOCKET_PATH, api};
use rustix::event::{PollFd, PollFlags, poll};

const ATTACKER: u32 = 1000;
const BYSTANDER: u32 = 1001;
/// Who helps the attacker in `clients`; in `all-clients` root does too, for whom connections are kept.
const HELPERS: [u32; 7] = [1002, 1003, 1004, 1005, 1006, 1007, 1008];
const ROOT: u32 = 0;
/// With those of all eight, nearly as many connections as there may be beside those kept for root and the owner.
const CLIENTS_EACH: usize = 55;
/// As in the report that this was written for.
const CONNECTIONS: usize = 480;
const THREADS: usize = 4000;
const SUBORDINATES: u32 = 560;
const READERS: usize = 60;
/// A power of two: each bind doubles them.
const MOUNTS: usize = 65_536;
const PROGRAMS: usize = 100;
/// More than are remembered.
const DECISIONS: usize = 4200;
/// More than there are places for what programs complain of.
const COMPLAINTS: usize = 70_000;
/// As many programs of one user are remembered that complained.
const COMPLAINERS: usize = 4096;
/// Where the metrics are served, and where they are in turns while the address is changed.
const METRICS_PORT: u16 = 9101;
const METRICS_PORT_OTHER: u16 = 9102;
/// For how long they are at one of them. The daemon reads a file 200 ms after it has changed.
const METRICS_STAY: Duration = Duration::from_millis(400);
/// Calls of the bystander, and the time between two.
const PROBES: usize = 60;
const PAUSE: Duration = Duration::from_millis(20);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["probe", method] => probe(method, false),
        ["probe-and-scrape", method] => probe(method, true),
        ["complain"] => complain(),
        ["attack", scenario] => attack(scenario),
        [] => bail!(
            "besieged SCENARIO[:METHOD]...: quiet forecasts events monitor subordinates files mounts releases ends \
             cgroups churn shows removals descriptors complaints complainers metrics-N clients all-clients"
        ),
        _ => words.iter().try_for_each(|scenario| measure(scenario)),
    }
}

/// A copy of this program, as that user.
fn own(uid: u32, words: &[&str]) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).uid(uid).gid(uid);
    Ok(command.spawn()?)
}

/// Goes on once the program has said a line.
fn wait_for(child: &mut Child) -> anyhow::Result<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().context("a pipe")?).read_line(&mut line)?;
    anyhow::ensure!(!line.is_empty(), "it ended before it was ready, so that nothing was measured");
    Ok(line)
}

fn measure(asked: &str) -> anyhow::Result<()> {
    let (scenario, method) = asked.split_once(':').unwrap_or((asked, "ListSpecs"));
    if scenario == "events" || scenario == "monitor" {
        fill_history_with(rounds(DECISIONS / 2)?)?;
    }
    if ["cgroups", "churn", "shows"].contains(&scenario) {
        std::fs::create_dir_all(OWN_CGROUP)?;
        std::os::unix::fs::chown(OWN_CGROUP, Some(ATTACKER), Some(ATTACKER))?;
    }
    if scenario.starts_with(METRICS) {
        serve_metrics(METRICS_PORT)?;
        await_metrics()?;
    }
    let mut complainer =
        if scenario == "complaints" { Some(Ends(own(BYSTANDER, &["complain"])?)) } else { None };
    if let Some(Ends(complainer)) = &mut complainer {
        wait_for(complainer)?;
    }
    let _of_root = if scenario == "removals" { Some(Ends(fill_domain()?)) } else { None };
    let pid = Client::connect(SOCKET_PATH)?.call(&api::Status {})?.pid;
    // What it has at most is counted anew (proc(5)).
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    let monitor = Client::connect(SOCKET_PATH)?.monitor(false)?;
    let mut attacker = own(ATTACKER, &["attack", scenario])?;
    if scenario == "subordinates" || scenario == "mounts" {
        map_users(&mut attacker)?;
    }
    print!("{}", wait_for(&mut attacker)?.replace("ready\n", ""));
    let helpers = match scenario {
        "clients" => HELPERS.to_vec(),
        "all-clients" => [&HELPERS[..], &[ROOT]].concat(),
        _ => Vec::new(),
    };
    let mut helpers: Vec<Child> =
        helpers.into_iter().map(|uid| own(uid, &["attack", scenario])).collect::<Result<_, _>>()?;
    for helper in &mut helpers {
        wait_for(helper)?;
    }
    let method = match scenario {
        "files" => FILE.to_owned(),
        _ => format!("io.steward.{method}"),
    };
    let of_bystander = |kind: &str| -> anyhow::Result<String> {
        let mut bystander = own(BYSTANDER, &[kind, &method])?;
        let line = wait_for(&mut bystander)?;
        bystander.wait()?;
        Ok(line)
    };
    if scenario.starts_with(METRICS) {
        print!("{asked}: {}", of_bystander("probe-and-scrape")?);
        print!("  while their address is changed: {}", while_metrics_move(|| of_bystander("probe"))?);
    } else {
        print!("{asked}: {}", of_bystander("probe")?);
    }
    if let Some(Ends(complainer)) = &mut complainer {
        complainer.stdin.as_mut().context("a pipe")?.write_all(b"again\n")?;
        print!("  {}", wait_for(complainer)?);
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    for key in ["VmHWM:", "VmRSS:"] {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        println!("  {}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    println!("  descriptors: {}", std::fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    if scenario == "subordinates" {
        // It is told of the next decision, so it was not dropped.
        fill_history_with(1)?;
        let mut monitor = monitor;
        println!(
            "  root's monitor: {}",
            if monitor.next().is_some_and(|event| event.is_ok()) { "kept" } else { "lost" }
        );
    }
    for mut child in helpers.into_iter().chain([attacker]) {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// A program that ends with this one.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives the attacker a domain with a program in it that is not the attacker's to end.
fn fill_domain() -> anyhow::Result<Child> {
    let mut client = Client::connect(SOCKET_PATH)?;
    let (domain, user, keep) = (GIVEN.to_owned(), Some(ATTACKER), Some(true));
    client.call(&api::CreateDomain { domain, user, keep, ..Default::default() })?;
    let child = Command::new("sleep").arg("3600").stdout(Stdio::null()).spawn()?;
    client.call(&api::MoveProcess { pid: Some(child.id() as i32), domain: GIVEN.to_owned() })?;
    Ok(child)
}

fn rounds(usual: usize) -> anyhow::Result<usize> {
    let rounds = std::env::var("BESIEGED_ROUNDS").ok().map_or(Ok(usual), |rounds| rounds.parse());
    rounds.context("BESIEGED_ROUNDS is no number")
}

fn fill_history_with(rounds: usize) -> anyhow::Result<()> {
    let mut client = Client::connect(SOCKET_PATH)?;
    let pid = std::process::id() as i32;
    let cpu = api::Reservation { budget_ns: 1_000_000, period_ns: 100_000_000 };
    for _ in 0..rounds {
        client.call(&api::Set {
            pid,
            cpu,
            inherit: None,
            revocable: None,
            keep_if_refused: None,
            requests_at: None,
        })?;
        client.call(&api::Release { pid })?;
    }
    Ok(())
}

/// What newuidmap does for a user who has subordinate users.
fn map_users(attacker: &mut Child) -> anyhow::Result<()> {
    let line = wait_for(attacker)?;
    let pid = attacker.id();
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{file}"), "0 1000 1\n1 100000 1000\n")
            .with_context(|| line.clone())?;
    }
    let input: &mut ChildStdin = attacker.stdin.as_mut().context("a pipe")?;
    input.write_all(b"go on\n")?;
    Ok(())
}

/// Stands for a method: a read of a control file.
const FILE: &str = "file";

/// Calls again and again, as a program would that connects for each call, and reads the metrics after each if it
/// `scrapes` them.
fn probe(method: &str, scrapes: bool) -> anyhow::Result<()> {
    let (mut calls, mut scraped) = (Vec::new(), Vec::new());
    let mut failed = 0;
    for _ in 0..PROBES {
        std::thread::sleep(PAUSE);
        let begun = Instant::now();
        if method == FILE {
            std::fs::read("/run/steward/domains/cpu")?;
        } else {
            Client::connect(SOCKET_PATH)?.call_by_name(method, serde_json::Map::new())?;
        }
        calls.push(begun.elapsed());
        if scrapes {
            let begun = Instant::now();
            match scrape() {
                Ok(()) => scraped.push(begun.elapsed()),
                Err(_) => failed += 1,
            }
        }
    }
    print!("{} calls: {}", calls.len(), spread(calls));
    if scrapes {
        anyhow::ensure!(!scraped.is_empty(), "no metrics were read");
        print!("; {} times the metrics, {failed} failed: {}", scraped.len(), spread(scraped));
    }
    println!();
    Ok(())
}

fn spread(took: Vec<Duration>) -> String {
    let mut took: Vec<(Duration, usize)> = took.into_iter().zip(1..).collect();
    took.sort();
    let ms = |place: usize| took[place].0.as_secs_f64() * 1e3;
    let last = took.len() - 1;
    format!(
        "median {:.1} ms, 95th of 100 {:.1} ms, worst {:.1} ms, which was number {}",
        ms(took.len() / 2),
        ms(took.len() * 95 / 100),
        ms(last),
        took[last].1
    )
}

/// Reads the metrics once, as Prometheus does.
fn scrape() -> anyhow::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS_PORT))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    anyhow::ensure!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("steward_build_info"), "{reply}");
    Ok(())
}

/// What scenarios about the metrics begin with; then comes how many connections.
const METRICS: &str = "metrics-";
const CONFIGURATION: &str = "/etc/steward/steward.toml";

/// Has the daemon serve metrics there, as soon as it has read its files again.
fn serve_metrics(port: u16) -> std::io::Result<()> {
    std::fs::create_dir_all("/etc/steward")?;
    // At once, so that it reads no half of it.
    let made = format!("{CONFIGURATION}.new");
    std::fs::write(&made, format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n"))?;
    std::fs::rename(made, CONFIGURATION)
}

fn await_metrics() -> anyhow::Result<()> {
    for _ in 0..100 {
        if scrape().is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("no metrics are served (is the loopback interface up?)")
}

/// Has the metrics be in one place and in another while `act` runs.
fn while_metrics_move<T>(act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| -> std::io::Result<()> {
            for port in [METRICS_PORT_OTHER, METRICS_PORT].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                serve_metrics(port)?;
                std::thread::sleep(METRICS_STAY);
            }
            serve_metrics(METRICS_PORT)
        });
        let outcome = act();
        is_over.store(true, Ordering::Relaxed);
        mover.join().expect("it does not panic")?;
        outcome
    })
}

/// Complains before and after the others do: what is remembered of it is both.
fn complain() -> anyhow::Result<()> {
    let mut client = Client::connect(SOCKET_PATH)?;
    client.call(&api::Complain { missed: 1, of: None })?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let sum = client.call(&api::Complain { missed: 1, of: None })?.complaints;
    println!("another user's complaints: {}", if sum == 2 { "kept" } else { "forgotten" });
    Ok(())
}

fn attack(scenario: &str) -> anyhow::Result<()> {
    match scenario {
        "quiet" => {
            println!("ready");
            std::thread::sleep(Duration::from_secs(3600));
            Ok(())
        }
        "forecasts" => {
            start_threads()?;
            flood(r#"{"method":"io.steward.ListForecasts"}"#)
        }
        "events" => flood(r#"{"method":"io.steward.ListEvents"}"#),
        "monitor" => flood(r#"{"method":"io.steward.Monitor","parameters":{"history":true},"more":true}"#),
        "subordinates" => subordinates(),
        "files" => {
            for _ in 1..READERS {
                std::thread::spawn(read_files);
            }
            println!("ready");
            read_files();
            Ok(())
        }
        "mounts" => mounts(),
        "releases" => releases(),
        "ends" => ends(),
        "clients" | "all-clients" => clients(),
        "cgroups" => cgroups(),
        "churn" => churn(),
        "shows" => shows(),
        "removals" => removals(),
        "descriptors" => descriptors(),
        "complaints" => complaints(),
        "complainers" => complainers(),
        other => match other.strip_prefix(METRICS) {
            Some(count) => idle_at_metrics(count.parse()?),
            None => bail!("there is no scenario {other}"),
        },
    }
}

fn start_threads() -> std::io::Result<()> {
    let asleep = || std::thread::sleep(Duration::from_secs(3600));
    for _ in 0..THREADS {
        std::thread::Builder::new().stack_size(16 * 1024).spawn(asleep)?;
    }
    Ok(())
}

/// Has what each of many threads has taken from it, which is nothing, so that it has to be remembered of all of them.
fn releases() -> anyhow::Result<()> {
    start_threads()?;
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok()?.parse::<i32>().ok());
    let tids: Vec<i32> = names.collect();
    let mut client = Client::connect(SOCKET_PATH)?;
    for pid in &tids[..tids.len() / 2] {
        client.call(&api::Release { pid: *pid })?;
    }
    println!("ready");
    loop {
        for pid in &tids {
            let _ = client.call(&api::Release { pid: *pid });
        }
    }
}

/// Has what each of many programs has taken from it, then ends all of them, again and again.
fn ends() -> anyhow::Result<()> {
    let mut client = Client::connect(SOCKET_PATH)?;
    for round in 0.. {
        let mut programs = Vec::with_capacity(ENDS_AT_ONCE);
        for _ in 0..ENDS_AT_ONCE {
            // SAFETY: there is one thread, and the child only waits.
            match unsafe { libc::fork() } {
                0 => loop {
                    // SAFETY: it has no arguments, and waits for a signal.
                    unsafe { libc::pause() };
                },
                pid if pid > 0 => programs.push(pid),
                _ => break,
            }
        }
        for pid in &programs {
            let _ = client.call(&api::Release { pid: *pid });
        }
        if round == 0 {
            println!("ready");
        }
        for pid in &programs {
            // SAFETY: they are this program's own children, and were not waited for yet.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        for pid in programs {
            // SAFETY: a child, and nobody wants its status.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
    Ok(())
}

/// Many connections, each with a call at a time.
fn clients() -> anyhow::Result<()> {
    let connect = || UnixStream::connect(SOCKET_PATH);
    let mut streams: Vec<UnixStream> = (0..CLIENTS_EACH).map(|_| connect()).collect::<Result<_, _>>()?;
    println!("ready");
    let mut bytes = vec![0; 1 << 16];
    loop {
        for stream in &mut streams {
            stream.write_all(b"{\"method\":\"io.steward.ListSpecs\"}\0")?;
        }
        for stream in &mut streams {
            let mut is_whole = false;
            while !is_whole {
                let count = stream.read(&mut bytes)?;
                anyhow::ensure!(count > 0, "a connection was closed");
                is_whole = bytes[count - 1] == 0;
            }
        }
    }
}

/// How many programs end at once.
const ENDS_AT_ONCE: usize = 512;
/// The domain that root has given the attacker.
const GIVEN: &str = "given";
/// How many programs the attacker has in it.
const MEMBERS: usize = 2000;
/// Where root has made a cgroup for the attacker.
const OWN_CGROUP: &str = "/sys/fs/cgroup/crowd";
const CGROUPS: usize = 4000;

fn make_cgroups() -> std::io::Result<()> {
    (0..CGROUPS).try_for_each(|number| match std::fs::create_dir(format!("{OWN_CGROUP}/{number}")) {
        // From a scenario before.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    })
}

/// Makes cgroups and removes them without end, each under another name, none of which is one for a terminal.
fn churn() -> anyhow::Result<()> {
    make_cgroups()?;
    println!("ready");
    for round in 0_u64.. {
        let path = format!("{OWN_CGROUP}/0/{}\u{1b}[2J", round % 3000);
        std::fs::create_dir(&path)?;
        std::fs::remove_dir(&path)?;
    }
    Ok(())
}

/// Asks about one of many, and changes it, again and again.
fn shows() -> anyhow::Result<()> {
    make_cgroups()?;
    let mut client = Client::connect(SOCKET_PATH)?;
    println!("ready");
    let domain = "crowd/7".to_owned();
    for round in 0.. {
        let _ = client.call(&api::ShowDomain { domain: Some(domain.clone()), pid: None });
        let settings = api::DomainSettings { weight: Some(100 - round % 2), ..Default::default() };
        let _ = client.call(&api::SetDomain { domain: domain.clone(), settings, ..Default::default() });
        let _ = client.call(&api::ExplainDomain { domain: Some(domain.clone()) });
        let _ = Client::connect(SOCKET_PATH)?.watch_domains(true)?.next();
    }
    Ok(())
}

/// Has it looked whose thousands of programs are, to be refused because of the last of them, on many connections.
fn removals() -> anyhow::Result<()> {
    Client::connect(SOCKET_PATH)?.call(&api::MoveProcess { pid: None, domain: GIVEN.to_owned() })?;
    for _ in 0..MEMBERS {
        // SAFETY: there is one thread, and the child only waits.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: it ends with its parent, and else waits for a signal.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                // SAFETY: it has no arguments, and waits for a signal.
                unsafe { libc::pause() };
            }
        }
    }
    flood(&format!(
        r#"{{"method":"io.steward.RemoveDomain","parameters":{{"domain":"{GIVEN}","kill":true}}}}"#
    ))
}

fn cgroups() -> anyhow::Result<()> {
    make_cgroups()?;
    let mut client = Client::connect(SOCKET_PATH)?;
    println!("ready");
    loop {
        std::fs::create_dir(format!("{OWN_CGROUP}/x"))?;
        let _ = client.call(&api::ListForecasts::default());
        std::fs::remove_dir(format!("{OWN_CGROUP}/x"))?;
        let _ = client.call(&api::ListDomains {});
    }
}

/// A program of the attacker's own that does this and ends.
fn fork_to(act: impl FnOnce()) -> Option<libc::pid_t> {
    // SAFETY: there is one thread, and the child does nothing but act and end.
    match unsafe { libc::fork() } {
        0 => {
            act();
            // SAFETY: it ends the child, and nothing of the parent's is finished twice.
            unsafe { libc::_exit(0) }
        }
        pid if pid > 0 => Some(pid),
        _ => None,
    }
}

fn await_end(pid: libc::pid_t) {
    // SAFETY: a child, and nobody wants its status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// One call on a connection of its own, with few instructions.
fn call_once(call: &[u8]) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(SOCKET_PATH)?;
    stream.write_all(call)?;
    stream.read(&mut [0; 256]).map(drop)
}

const COMPLAINT: &[u8] = b"{\"method\":\"io.steward.Complain\",\"parameters\":{\"missed\":1}}\0";

/// Has one program after the other complain and end.
fn complaints() -> anyhow::Result<()> {
    let complain_and_end = || fork_to(|| drop(call_once(COMPLAINT))).context("cannot fork").map(await_end);
    (0..rounds(COMPLAINTS)?).try_for_each(|_| complain_and_end())?;
    println!("ready");
    loop {
        complain_and_end()?;
    }
}

/// Has as many programs complain as are remembered of one user, which live on, while others have what they have taken
/// from them, and end: it is then looked who lives.
fn complainers() -> anyhow::Result<()> {
    for _ in 0..COMPLAINERS {
        let (mut said, mut saying) = UnixStream::pair()?;
        fork_to(|| {
            // SAFETY: it ends with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let _ = call_once(COMPLAINT).and_then(|()| saying.write_all(b"x"));
            loop {
                // SAFETY: it has no arguments, and waits for a signal.
                unsafe { libc::pause() };
            }
        })
        .context("cannot fork")?;
        drop(saying);
        said.read_exact(&mut [0])?;
    }
    println!("ready");
    loop {
        let own_release = || {
            let pid = std::process::id();
            drop(call_once(
                format!("{{\"method\":\"io.steward.Release\",\"parameters\":{{\"pid\":{pid}}}}}\0")
                    .as_bytes(),
            ));
        };
        await_end(fork_to(own_release).context("cannot fork")?);
    }
}

/// Connects to the metrics so many times and says nothing, again and again.
fn idle_at_metrics(count: usize) -> anyhow::Result<()> {
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, METRICS_PORT))?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    // Those that are in may go for others meanwhile.
    let mut streams: Vec<TcpStream> = (0..count).map(|_| connect()).collect::<Result<_, _>>()?;
    println!("ready");
    loop {
        let mut waiting: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        poll(&mut waiting, None)?;
        let ended: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (stream, _) in streams.iter_mut().zip(ended).filter(|(_, ended)| *ended) {
            match connect() {
                Ok(another) => *stream = another,
                // They are elsewhere for a while.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Leaves files with the daemon whose last user waits a minute when he closes them.
fn descriptors() -> anyhow::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut kept = Vec::new();
    for round in 0.. {
        let mut file = std::net::TcpStream::connect(listener.local_addr()?)?;
        kept.push(listener.accept()?);
        file.set_nonblocking(true)?;
        while file.write(&[0; 1 << 16]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 60 };
        // SAFETY: the kernel reads this much, which is there.
        let result = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&file),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of_val(&linger) as libc::socklen_t,
            )
        };
        anyhow::ensure!(result == 0, "cannot set SO_LINGER");
        file.set_nonblocking(false)?;
        let stream = UnixStream::connect(SOCKET_PATH)?;
        let files = [std::os::fd::AsFd::as_fd(&file)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let sent = sendmsg(&stream, &[std::io::IoSlice::new(b"{")], &mut ancillary, SendFlags::empty());
        if round == 0 {
            println!("ready {sent:?}");
        }
        if sent.is_err() {
            // Refused: there is nothing else to try, and its own end waits for nobody.
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    Ok(())
}

/// Puts the same call on many connections; who has got some of the answer calls again, on a new connection if this one
/// is closed.
fn flood(call: &str) -> anyhow::Result<()> {
    let message = format!("{call}\0");
    let connect = || -> std::io::Result<UnixStream> {
        let mut stream = UnixStream::connect(SOCKET_PATH)?;
        // It may be closed already, and is then made again.
        let _ = stream.write_all(message.as_bytes());
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let mut streams: Vec<UnixStream> = (0..CONNECTIONS).map(|_| connect()).collect::<Result<_, _>>()?;
    println!("ready");
    let mut bytes = vec![0; 1 << 16];
    loop {
        let mut waiting: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        poll(&mut waiting, None)?;
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (stream, _) in streams.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let count = stream.read(&mut bytes).unwrap_or(0);
            let is_whole = bytes[..count].contains(&0);
            if count == 0 || (is_whole && stream.write_all(message.as_bytes()).is_err()) {
                *stream = connect()?;
            }
        }
    }
}

/// Waits in a user namespace of its own until root has done what newuidmap does, then is as many users as it may.
fn enter_namespace(more: rustix::thread::UnshareFlags) -> anyhow::Result<()> {
    // SAFETY: there is one thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER | more)? };
    println!("unshared");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn subordinates() -> anyhow::Result<()> {
    enter_namespace(rustix::thread::UnshareFlags::empty())?;
    let mut streams = Vec::new();
    for uid in 1..=SUBORDINATES {
        // SAFETY: a system call that changes this thread's effective user; there is one thread.
        let became = |uid: u32| unsafe { libc::seteuid(uid) } == 0;
        anyhow::ensure!(became(uid), "cannot become {uid}");
        streams.push(UnixStream::connect(SOCKET_PATH)?);
        anyhow::ensure!(became(0), "cannot come back");
    }
    println!("ready");
    loop {
        for stream in &mut streams {
            let _ = stream.write_all(b"{\"method\":\"io.steward.Status\"}\0");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_files() {
    loop {
        for name in ["cpu", "status", "members", "forecast"] {
            let _ = std::fs::read(format!("/run/steward/domains/{name}"));
        }
    }
}

fn mounts() -> anyhow::Result<()> {
    enter_namespace(rustix::thread::UnshareFlags::NEWNS)?;
    let place = "/tmp";
    rustix::mount::mount(
        "none",
        place,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None::<&std::ffi::CStr>,
    )?;
    // Each bind of the tree on itself doubles what is below.
    let mut count = 1;
    while count < MOUNTS {
        let inner = format!("{place}/m");
        std::fs::create_dir_all(&inner)?;
        rustix::mount::mount_bind_recursive(place, &inner)?;
        count *= 2;
    }
    std::fs::copy("/bin/busybox", format!("{place}/sleep"))?;
    let start = || {
        let mut sleep = Command::new(format!("{place}/sleep"));
        // SAFETY: a system call in the child, which says that it ends with its parent.
        unsafe {
            sleep.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        sleep.arg("3600").stdout(Stdio::null()).spawn()
    };
    let programs: Vec<Child> = (0..PROGRAMS).map(|_| start()).collect::<Result<_, _>>()?;
    println!("ready");
    loop {
        for program in &programs {
            let release = api::Release { pid: program.id() as i32 };
            let _ = Client::connect(SOCKET_PATH)?.call(&release);
        }
    }
}

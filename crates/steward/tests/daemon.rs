//! Commands against a daemon in this process, on a fake mechanism.

#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;

use libsteward::{Client, api};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use steward_kernel::cgroup::reading::MemoryUse;

use common::{Machine, Running, Sleeper, reservation, row, set};

fn command(daemon: &Running, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    command.arg("--socket").arg(&daemon.socket).args(arguments).env("NO_COLOR", "1");
    command
}

fn steward(daemon: &Running, arguments: &[&str]) -> Output {
    command(daemon, arguments).output().expect("it runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(output: &Output) -> serde_json::Value {
    let value: serde_json::Value = serde_json::from_str(&text(output)).expect("JSON");
    assert_eq!(value["schema"], 1);
    value
}

#[test]
fn run_becomes_the_program_with_its_reservation() {
    let machine = Machine::new();
    let daemon = machine.start();
    let output =
        steward(&daemon, &["run", "--cpu", "5ms/30ms", "--inherit", "--", "sh", "-c", "echo $$; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let pid: i32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a pid");
    let (grant, _) = machine.fake.machine().tasks[&pid];
    assert_eq!((grant.reservation.budget_ns, grant.inherit, grant.revocable), (5_000_000, true, true));
    let rows = ["run", "--spec", "/any:Iact:2:40:I:-:-", "--", "sh", "-c", "echo $$"];
    let pid: i32 = text(&steward(&daemon, &rows)).trim().parse().expect("a pid");
    let (grant, _) = machine.fake.machine().tasks[&pid];
    assert_eq!((grant.reservation.period_ns, grant.inherit, grant.revocable), (40_000_000, true, false));
    let pid: i32 =
        text(&steward(&daemon, &["run", "--", "sh", "-c", "echo $$"])).trim().parse().expect("a pid");
    assert_eq!(machine.fake.machine().allowed, [pid]);
}

#[test]
fn run_becomes_another_user_for_good_and_warns_of_who_would_be_root() {
    let machine = Machine::new();
    let daemon = machine.start();
    let show = "id -u; id -G; echo $HOME $USER $LOGNAME $XDG_RUNTIME_DIR $SUDO_USER; cat /proc/self/status | grep CapEff";
    let mut as_nobody =
        command(&daemon, &["run", "--user", "nobody", "--cpu", "1ms/100ms", "--", "sh", "-c", show]);
    let as_nobody =
        as_nobody.env("SUDO_USER", "alice").env("XDG_RUNTIME_DIR", "/run/user/0").output().expect("it runs");
    let told = String::from_utf8_lossy(&as_nobody.stderr).into_owned();
    if rustix::process::geteuid().is_root() {
        assert!(as_nobody.status.success(), "{told}");
        let passwd = std::fs::read_to_string("/etc/passwd").expect("every machine has it");
        let line = passwd.lines().find(|line| line.starts_with("nobody:")).expect("every machine has nobody");
        let fields: Vec<&str> = line.split(':').collect();
        let expected =
            format!("{}\n{}\n{} nobody nobody\nCapEff:\t0000000000000000\n", fields[2], fields[3], fields[5]);
        assert_eq!(text(&as_nobody), expected);
        assert_eq!(told, "");
        let as_root =
            command(&daemon, &["run", "--", "true"]).env("SUDO_USER", "alice").output().expect("it runs");
        let warning = String::from_utf8_lossy(&as_root.stderr).into_owned();
        assert!(as_root.status.success() && warning.contains("true will run as root"), "{warning}");
        assert!(warning.contains("sudo steward run --user alice"), "{warning}");
    } else {
        assert!(as_nobody.status.code() == Some(125) && told.contains("only root may"), "{told}");
    }
    let nobody = steward(&daemon, &["run", "--user", "no such user", "--", "true"]);
    assert_eq!(nobody.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("there is no such user"));
}

#[test]
fn run_has_a_program_that_knows_systemds_pressure_protocol_be_told_when_its_domain_uses_more_than_it_may() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut batch = as_sd_event(&daemon, &["--domain", "batch", "--create"]);
    // Beside a domain that goes by what it is told, and wants more, there is not all that this one uses.
    steward(&daemon, &["domain", "create", "a", "--keep"]);
    {
        let mut tree = machine.cgroups.tree();
        let used = |mib: u64| MemoryUse { used_bytes: mib << 20, ..MemoryUse::default() };
        tree.used.extend([("steward.a".to_owned(), used(100)), ("steward.batch".to_owned(), used(300))]);
        tree.members.insert(std::process::id() as i32, "steward.a".to_owned());
    }
    let client = Client::connect(&daemon.socket).expect("the daemon listens");
    let mut own = client.watch_availability(&api::WatchAvailability::default()).expect("sent");
    own.next().expect("it goes on").expect("it may be asked");
    batch.wait();
    // The next daemon goes on with it.
    daemon.stop();
    let daemon = machine.start();
    let client = Client::connect(&daemon.socket).expect("the daemon listens");
    let mut own = client.watch_availability(&api::WatchAvailability::default()).expect("sent");
    own.next().expect("it goes on").expect("it may be asked");
    batch.wait();
}

#[test]
fn available_tells_a_user_of_its_own_domain_and_prints_the_refusal_for_anothers() {
    let machine = Machine::new();
    let daemon = machine.start();
    for (name, user) in [("mine", "1001"), ("theirs", "1002")] {
        text(&steward(&daemon, &["domain", "create", name, "--user", user, "--keep"]));
        machine.cgroups.tree().used.insert(format!("steward.{name}"), MemoryUse::default());
    }
    machine.cgroups.tree().memory_available = 64 << 20;
    machine.caller_uid.store(1001, Ordering::SeqCst);
    assert!(text(&steward(&daemon, &["available", "mine"])).starts_with("mine may use 64M of memory now"));
    assert_eq!(json(&steward(&daemon, &["available", "mine", "--json"]))["available"], 64 << 20);
    for more in [&[][..], &["--json"]] {
        let refused = steward(&daemon, &[&["available", "theirs"], more].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
        let why = "user 1001 may not read how much memory the domain theirs of user 1002 may use: no rule allows it";
        assert!(said.contains(why), "{said}");
    }
    let shown = |name: &str| text(&steward(&daemon, &["domain", "show", name])).contains("memory available:");
    assert_eq!((shown("mine"), shown("theirs")), (true, false));
}

#[test]
fn run_leaves_the_variables_of_the_pressure_protocol_alone_without_a_domain_and_where_it_is_turned_off() {
    let machine = Machine::new();
    let daemon = machine.start();
    let show = ["--", "sh", "-c", "echo $MEMORY_PRESSURE_WATCH $MEMORY_PRESSURE_WRITE"];
    let shown = |options: &[&str], watch: &str| {
        let mut shown = command(&daemon, &[&["run"], options, &show].concat());
        let shown = shown.env("MEMORY_PRESSURE_WATCH", watch).env("MEMORY_PRESSURE_WRITE", "eA==");
        text(&shown.output().expect("it runs"))
    };
    let in_domain = ["--domain", "batch", "--create"];
    assert_eq!(shown(&[], "/its/own"), "/its/own eA==\n");
    assert_eq!(shown(&in_domain, "/dev/null"), "/dev/null eA==\n");
    let told = shown(&in_domain, "/its/own");
    assert!(told.contains("/pressure/") && told.ends_with(" Cg==\n"), "{told}");
}

/// A program that waits to be told, as sd-event does it.
struct Listening {
    program: Child,
    fifo: File,
}

/// Runs a program so, opens what it is to watch and writes what it is to write.
fn as_sd_event(daemon: &Running, options: &[&str]) -> Listening {
    let show =
        "echo $MEMORY_PRESSURE_WATCH; echo $MEMORY_PRESSURE_WRITE | base64 -d | od -An -tx1; exec sleep 1000";
    let arguments = [&["run"], options, &["--", "sh", "-c", show]].concat();
    let mut program = command(daemon, &arguments).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut told = BufReader::new(program.stdout.take().expect("piped")).lines();
    let mut line = || told.next().expect("it prints it").expect("text");
    let (watch, data) = (line(), line());
    let bytes: Vec<u8> =
        data.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
    assert!(!bytes.is_empty(), "without data it would be opened for reading alone, and end with the daemon");
    let mut options = File::options();
    let mut fifo = options
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(&watch)
        .expect("it may");
    assert!(fifo.metadata().expect("it is there").file_type().is_fifo(), "{watch}");
    fifo.write_all(&bytes).expect("there is room");
    assert_eq!(fifo.read(&mut [0; 64]).expect("its own"), bytes.len());
    Listening { program, fifo }
}

impl Listening {
    /// Waits until it is told, and reads that away.
    fn wait(&mut self) {
        let mut waiting = [PollFd::new(&self.fifo, PollFlags::IN)];
        let at_most = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut waiting, Some(&at_most)), Ok(1), "it is told within a minute");
        assert_eq!(waiting[0].revents(), PollFlags::IN);
        assert!(self.fifo.read(&mut [0; 64]).expect("readable") > 0);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn run_is_refused_with_its_own_code_or_goes_on_as_best_effort() {
    let machine = Machine::new();
    let daemon = machine.start();
    let too_much = ["run", "--cpu", "29ms/30ms", "--", "true"];
    let output = steward(&daemon, &too_much);
    assert_eq!(output.status.code(), Some(125));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("no room for 29ms/30ms"), "{message}");
    let output = steward(&daemon, &["run", "--best-effort-if-refused", "--cpu", "29ms/30ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(0));
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let output = steward(&daemon, &["run", "--cpu", "1ms/30ms", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("user 1001 may not reserve"));
}

#[test]
fn set_gives_and_takes_and_explain_says_so() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid().to_string();
    assert_eq!(
        text(&steward(&daemon, &["set", &pid, "--cpu", "5ms/30ms"])),
        format!("Process {pid} has 5ms/30ms: admitted.\n")
    );
    let explained = text(&steward(&daemon, &["explain", &pid]));
    assert!(
        explained.contains("5ms of CPU time in every 30ms") && explained.contains("was admitted"),
        "{explained}"
    );
    assert!(text(&steward(&daemon, &["set", &pid, "--release"])).contains("is best-effort now"));
    let explained = json(&steward(&daemon, &["explain", &pid, "--json"]));
    assert!(explained["text"].as_str().is_some_and(|text| text.contains("best-effort")));
    let output = steward(&daemon, &["explain", "2147483647"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "steward: there is no process 2147483647\n");
}

#[test]
fn a_process_is_found_by_its_name_and_of_several_one_has_to_be_chosen() {
    let machine = Machine::new();
    let daemon = machine.start();
    let program = machine.program("steward-film");
    let one = Sleeper::start(&program);
    let (own, name) = (one.pid().to_string(), "steward-film");
    let explained = text(&steward(&daemon, &["explain", name]));
    assert!(explained.contains(&format!("(process {own})")), "{explained}");
    assert!(
        text(&steward(&daemon, &["set", name, "--cpu", "1ms/30ms"])).contains(&format!("Process {own} has"))
    );
    let whole = program.to_str().expect("UTF-8");
    assert!(text(&steward(&daemon, &["set", whole, "--release"])).contains(&format!("Process {own} is")));
    let second = Sleeper::start(&program);
    let other = second.pid().to_string();
    for arguments in
        [&["explain", name][..], &["set", name, "--release"], &["forecast", name], &["top", "--pid", name]]
    {
        let output = steward(&daemon, arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        for part in ["2 processes are called", &own, &other, "--newest"] {
            assert!(message.contains(part), "{part:?} is not in:\n{message}");
        }
    }
    let newest = text(&steward(&daemon, &["explain", name, "--newest"]));
    assert!(newest.contains(&format!("(process {other})")), "{newest}");
    let both = text(&steward(&daemon, &["set", name, "--cpu", "1ms/30ms", "--all"]));
    assert_eq!(both.lines().count(), 2, "{both}");
    text(&steward(&daemon, &["domain", "create", "films"]));
    let moved = text(&steward(&daemon, &["domain", "move", name, "films", "--all"]));
    assert_eq!(moved.matches("is in films now").count(), 2, "{moved}");
    let output = steward(&daemon, &["explain", "no-such-program"]);
    assert_eq!(output.status.code(), Some(1));
    let message = "steward: there is no process called \"no-such-program\"; steward top shows what runs\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), message);
}

#[test]
fn a_name_is_a_domains_where_only_that_makes_sense() {
    let machine = Machine::new();
    let daemon = machine.start();
    let _sleeper = Sleeper::start(&machine.program("steward-both"));
    text(&steward(&daemon, &["domain", "create", "steward-both", "--keep"]));
    assert!(text(&steward(&daemon, &["set", "steward-both", "--cpu", "1ms/30ms"])).starts_with("Process "));
    assert!(text(&steward(&daemon, &["set", "steward-both", "--cpu", "10%"])).starts_with("Domain "));
    assert!(text(&steward(&daemon, &["set", "steward-both", "--memory-min", "4M"])).starts_with("Domain "));
    assert!(text(&steward(&daemon, &["domain", "show", "steward-both"])).contains("4M"));
    assert!(text(&steward(&daemon, &["set", "steward-both", "--release"])).starts_with("Domain "));
    text(&steward(&daemon, &["domain", "remove", "steward-both"]));
    assert!(text(&steward(&daemon, &["set", "steward-both", "--release"])).starts_with("Process "));
}

#[test]
fn a_domain_that_could_not_be_named_is_refused_with_the_rule() {
    let machine = Machine::new();
    let daemon = machine.start();
    for (name, rule) in [
        ("a b", "letters, digits"),
        ("-x", "an option"),
        ("123", "number of a process"),
        ("cpu", "control files"),
    ] {
        let output = steward(&daemon, &["domain", "create", "--", name]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && message.contains(rule), "{name}: {message}");
    }
}

#[test]
fn status_shows_mechanism_loads_tasks_and_problems() {
    let machine = Machine::new();
    let program = machine.program("program");
    machine
        .write_specs("a.toml", &(row(&program, "5ms/30ms") + "[[spec]]\npath = \"/x\"\ncpu = \"9ms/3ms\"\n"));
    let sleeper = Sleeper::start(&program);
    let daemon = machine.start();
    let status = text(&steward(&daemon, &["status"]));
    for part in [
        "sched_ext is in force, 1 specification loaded",
        "user 1000",
        "5ms/30ms R",
        "admitted",
        "1 problem:",
        "a.toml:6",
    ] {
        assert!(status.contains(part), "{part} is not in:\n{status}");
    }
    assert!(!status.contains('\x1b'));
    let status = json(&steward(&daemon, &["status", "--json"]));
    assert_eq!(status["cpu"]["tasks"][0]["pid"], sleeper.pid());
    assert_eq!(status["cpu"]["mechanism"]["kind"], "sched_ext");
    let specs = json(&steward(&daemon, &["spec", "list", "--json"]));
    assert_eq!(specs["specs"][0]["name"].as_str(), program.to_str());
    assert!(text(&steward(&daemon, &["spec", "list"])).contains("a.toml:1"));
    assert_eq!(steward(&daemon, &["reload"]).status.code(), Some(1), "a row is bad");
}

#[test]
fn events_are_one_object_a_line_and_a_reader_that_goes_is_no_failure() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).expect("it fits");
    let listed = json(&steward(&daemon, &["events", "--json"]));
    assert_eq!(listed["event"]["kind"], "admitted");
    let mut following =
        command(&daemon, &["events", "--follow"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut output = BufReader::new(following.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the first event");
    assert!(line.contains("was admitted"), "{line}");
    drop(output);
    while following.try_wait().expect("it can be waited for").is_none() {
        daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).expect("it fits");
    }
    assert_eq!(following.wait().expect("it has ended").code(), Some(0));
}

#[test]
fn domains_are_made_listed_changed_and_removed() {
    let machine = Machine::new();
    let daemon = machine.start();
    let made = text(&steward(
        &daemon,
        &["domain", "create", "web", "--cpu", "20%", "--own-weight", "300", "--keep"],
    ));
    assert!(made.starts_with("Domain web has 20 % of the machine reserved: it is guaranteed 20 %"), "{made}");
    let made = text(&steward(&daemon, &["domain", "create", "front", "--parent", "web", "--cpu", "0.5"]));
    assert!(made.starts_with("Domain web/front has 50 % of web reserved"), "{made}");
    let listed = text(&steward(&daemon, &["domain", "list"]));
    for part in
        ["Order among domains: virtual-time, service cycle 500ms.", "\n  web ", "\n    front ", "20 %"]
    {
        assert!(listed.contains(part), "{part:?} is not in:\n{listed}");
    }
    let listed = json(&steward(&daemon, &["domain", "list", "--json"]));
    assert_eq!(listed["domains"][1]["name"], "web");
    let changed = text(&steward(&daemon, &["domain", "set", "web", "--cpu", "default", "--weight", "50"]));
    assert!(changed.contains("nothing reserved"), "{changed}");
    assert!(text(&steward(&daemon, &["set", "web", "--cpu", "30%"])).contains("30 % of the machine"));
    let shown = text(&steward(&daemon, &["domain", "show", "web"]));
    for part in ["/steward.web (id ", "30 % of the machine", "50 % of at most 100 %", "50, 4", "weight 300"] {
        assert!(shown.contains(part), "{part:?} is not in:\n{shown}");
    }
    assert_eq!(json(&steward(&daemon, &["domain", "show", "web", "--json"]))["domain"]["weight"], 50);
    let removed = text(&steward(&daemon, &["domain", "remove", "web"]));
    assert_eq!(removed, "Domain web is removed, with 1 below it; processes moved to its parent: 0.\n");
    let output = steward(&daemon, &["domain", "show", "web"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "steward: there is no domain web; steward domain list shows all\n"
    );
}

#[test]
fn a_domain_that_stays_says_for_how_long_and_what_to_write_to_have_it_longer() {
    let machine = Machine::new();
    let daemon = machine.start();
    let unkept = text(&steward(&daemon, &["domain", "create", "batch"]));
    assert!(!unkept.contains("reboot"), "{unkept}");
    let create = ["domain", "create", "web", "--cpu", "30%", "--weight", "300", "--user", "1002", "--keep"];
    let kept = text(&steward(&daemon, &create));
    assert!(
        kept.contains("until the next reboot") && kept.contains("/etc/steward/domains/web.toml:"),
        "{kept}"
    );
    let (_, row) = kept.split_once("\n\n").expect("the row stands by itself");
    let file = machine.path("web.toml");
    std::fs::write(&file, row).expect("written");
    let file = file.to_str().expect("text");
    assert!(text(&steward(&daemon, &["domain", "check", file])).contains("1 domain declared"), "{kept}");
    assert_eq!(text(&steward(&daemon, &["domain", "remove", "web"])).lines().count(), 1);
    machine.declare_domains(row);
    assert_eq!(steward(&daemon, &["reload"]).status.code(), Some(0));
    let list = json(&steward(&daemon, &["domain", "list", "--json"]));
    let web = list["domains"].as_array().expect("a list").iter().find(|domain| domain["name"] == "web");
    let web = web.expect("it is declared");
    assert_eq!((&web["cpu"], &web["weight"], &web["user"]), (&0.3.into(), &300.into(), &1002.into()));
    std::fs::write(file, row.replace("cpu", "cpus")).expect("written");
    let wrong = steward(&daemon, &["domain", "check", file]);
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(told.contains("web.toml:4: ") && told.contains("did you mean \"cpu\"?"), "{told}");
}

#[test]
fn a_protection_period_is_half_an_hour_unless_said_and_is_shown_written_and_taken_back() {
    let machine = Machine::new();
    let daemon = machine.start();
    let kept = text(&steward(&daemon, &["domain", "create", "web", "--protect", "--keep"]));
    assert!(kept.contains("    name = \"web\"\n    protect = \"30min\"\n"), "{kept}");
    let period_ns = |domain: &str| {
        json(&steward(&daemon, &["domain", "show", domain, "--json"]))["domain"]["protect"].as_u64()
    };
    assert_eq!(period_ns("web"), Some(1_800_000_000_000));
    text(&steward(&daemon, &["domain", "set", "web", "--protect=90s"]));
    let shown = text(&steward(&daemon, &["domain", "show", "web"]));
    assert!(shown.contains("protection period:") && shown.contains("90s"), "{shown}");
    for (wrong, expected) in [
        ("0s", "0ms is no protection period; they go from 1s to 24h, and 30min is usual"),
        ("30", "has no unit of time"),
        ("30 minutes", "is not a unit of time"),
        ("-30min", "is not a duration"),
    ] {
        let refused = steward(&daemon, &["domain", "set", "web", &format!("--protect={wrong}")]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && message.contains(expected), "{message}");
    }
    assert_eq!(period_ns("web"), Some(90_000_000_000));
    text(&steward(&daemon, &["domain", "set", "web", "--protect=default"]));
    assert_eq!(period_ns("web"), None);
    // It is there for as long as its program is, which shows it itself.
    let socket = daemon.socket.to_str().expect("text");
    let itself = [env!("CARGO_BIN_EXE_steward"), "--socket", socket, "domain", "show", "--json"];
    let own = json(&steward(&daemon, &[&["run", "--protect", "--"], &itself[..]].concat()));
    assert_eq!(own["domain"]["protect"].as_u64(), Some(1_800_000_000_000));
    assert!(own["domain"]["name"].as_str().is_some_and(|name| name.starts_with("run-")), "{own}");
}

#[test]
fn run_starts_a_program_in_a_domain_and_makes_it_if_asked() {
    let machine = Machine::new();
    let daemon = machine.start();
    let output = steward(&daemon, &["run", "--domain", "batch", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("no domain batch") && message.contains("--create makes"), "{message}");
    assert!(!message.contains("--best-effort-if-refused"), "{message}");
    let script = ["run", "--domain", "batch", "--create", "--", "sh", "-c", "echo $$; exec sleep 1000"];
    let mut running = command(&daemon, &script).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut pid = String::new();
    let output = running.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut pid).expect("it prints its number");
    let shown = json(&steward(&daemon, &["domain", "show", "--pid", pid.trim(), "--json"]));
    assert_eq!(
        (shown["domain"]["name"].as_str(), shown["processes"][0].to_string()),
        (Some("batch"), pid.trim().into())
    );
    let sleeper = Sleeper::start(&machine.program("program"));
    let moved = text(&steward(&daemon, &["domain", "move", &sleeper.pid().to_string(), "batch"]));
    assert!(moved.contains("is in batch now, and was in /"), "{moved}");
    running.kill().expect("it runs");
    running.wait().expect("it has ended");
}

#[test]
fn a_process_gets_time_in_every_period_and_a_domain_a_fraction() {
    let machine = Machine::new();
    let daemon = machine.start();
    let pid = std::process::id().to_string();
    let output = steward(&daemon, &["forecast", "no-such-thing"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("neither a domain nor a process called \"no-such-thing\""), "{message}");
    for (target, cpu, hint) in [
        (pid.as_str(), "20%", "a fraction is for a domain"),
        ("user.slice", "5ms/30ms", "as in --cpu 20%"),
        ("no-such-thing", "20%", "as in --cpu 5ms/30ms"),
    ] {
        let output = steward(&daemon, &["set", target, "--cpu", cpu]);
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(hint), "{message}");
    }
    assert!(text(&steward(&daemon, &["set", "user.slice", "--cpu", "20%"])).contains("20 % of the machine"));
    assert!(text(&steward(&daemon, &["set", "user.slice", "--release"])).contains("nothing reserved"));
}

#[test]
fn completion_in_bash_knows_what_the_machine_has_beside_commands_and_options() {
    let machine = Machine::new();
    let daemon = machine.start();
    text(&steward(&daemon, &["domain", "create", "films"]));
    let _sleeper = Sleeper::start(&machine.program("steward-fable"));
    let script = text(&steward(&daemon, &["completions", "bash"]));
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_steward")).parent().expect("a directory");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let ask = |words: &[&str]| {
        let (last, number) = (words[words.len() - 1], words.len() - 1);
        let line = format!(
            "COMP_WORDS=({} '{last}'); COMP_CWORD={number}; _steward_named steward '{last}' ''\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words[..number].join(" ")
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &(script.clone() + &line)]).env("PATH", &path).env("STEWARD_SOCKET", &daemon.socket);
        text(&bash.output().expect("there is bash"))
    };
    assert_eq!(ask(&["steward", "status", "fi"]), "films\n");
    assert_eq!(ask(&["steward", "run", "--domain", "fi"]), "films\n");
    assert_eq!(ask(&["steward", "explain", "steward-fab"]), "steward-fable\n");
    assert_eq!(ask(&["steward", "statu"]), "status\n", "what clap's script knows");
    assert!(ask(&["steward", "run", "--best"]).contains("--best-effort-if-refused"));
    assert!(ask(&["steward", "run", "--", "tru"]).contains("true\n"));
}

/// What a shell prints for a script, with `steward` among its programs; `None`, with the reason printed, where the
/// shell is not installed.
fn printed_by(shell: &str, arguments: &[&str], script: &str, daemon: &Running) -> Option<String> {
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_steward")).parent().expect("a directory");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell);
    command.args(arguments).args(["-c", script]).env("PATH", &path).env("STEWARD_SOCKET", &daemon.socket);
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: {shell} is not installed");
            None
        }
        output => Some(text(&output.expect("it runs"))),
    }
}

#[test]
fn completion_in_zsh_knows_what_the_machine_has_and_leaves_the_rest_to_the_script() {
    let machine = Machine::new();
    let daemon = machine.start();
    text(&steward(&daemon, &["domain", "create", "films"]));
    let script = text(&steward(&daemon, &["completions", "zsh"]));
    // In place of what only a terminal has: what is offered is printed, and so is who is to complete the command.
    let stand_ins = "compdef() { print -r -- \"compdef $*\" }\nautoload() { : }\n\
                     compadd() { shift; print -rl -- \"$@\" }\n";
    let ask = |words: &str| {
        let asked = "_steward() { print clap }\n".to_owned()
            + &format!("words=(steward {words}); CURRENT=${{#words}}; _steward_named\n");
        printed_by("zsh", &["-f"], &format!("{stand_ins}{script}{asked}"), &daemon)
    };
    let Some(domain) = ask("status fi") else { return };
    assert_eq!(domain, "compdef _steward_named steward\nfilms\n");
    let of_last_line = |words: &str| ask(words).and_then(|text| text.lines().last().map(str::to_owned));
    assert_eq!(of_last_line("run --domain fi").as_deref(), Some("films"));
    assert_eq!(of_last_line("statu").as_deref(), Some("clap"));
    assert_eq!(of_last_line("run --best").as_deref(), Some("clap"));
}

#[test]
fn completion_in_fish_knows_what_the_machine_has_beside_commands_and_options() {
    let machine = Machine::new();
    let daemon = machine.start();
    text(&steward(&daemon, &["domain", "create", "films"]));
    let script = text(&steward(&daemon, &["completions", "fish"]));
    let home = machine.path("fish");
    let ask = |line: &str| {
        let home = home.to_str().expect("UTF-8");
        let asked = format!("set -x HOME {home}; {script}\ncomplete -C '{line}'\n");
        let answer = printed_by("fish", &["--no-config"], &asked, &daemon)?;
        // Each with a tab and what it is.
        Some(answer.lines().filter_map(|line| line.split('\t').next().map(str::to_owned)).collect::<Vec<_>>())
    };
    let Some(domains) = ask("steward status fi") else { return };
    assert_eq!(domains, ["films"]);
    assert_eq!(ask("steward run --domain fi"), Some(vec!["films".to_owned()]));
    assert_eq!(ask("steward status --domai"), Some(Vec::new()), "an option of other commands");
    assert_eq!(ask("steward statu"), Some(vec!["status".to_owned()]));
    assert_eq!(ask("steward run --best"), Some(vec!["--best-effort-if-refused".to_owned()]));
}

#[test]
fn completions_and_man_pages_come_from_the_same_definitions() {
    let machine = Machine::new();
    let daemon = machine.start();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = text(&steward(&daemon, &["completions", shell]));
        assert!(completions.contains("best-effort-if-refused"), "{shell}");
    }
    let directory = machine.path("man");
    text(&steward(&daemon, &["man", directory.to_str().expect("UTF-8")]));
    let page = std::fs::read_to_string(directory.join("steward-run.1")).expect("a page");
    assert!(page.contains("best\\-effort\\-if\\-refused"));
    text(&steward(&daemon, &["man", "--files", directory.to_str().expect("UTF-8")]));
    assert!(directory.join("steward.toml.5").exists());
}

//! Memory that is given by hand to programs that run: where they are then, who goes with them, and what is refused.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use crate::common::{Machine, Running, Sleeper, asked, systemd_run, until_told};
use libsteward::api;
use steward_core::memory::limits::Told;
use steward_kernel::process::private::Private;
use stewardd::domains::cgroups::Promisable;

const MIB: u64 = 1 << 20;
const SLICE: &str = "user.slice/user-1001.slice";

/// A process with one that it has started.
struct Pair {
    parent: Child,
    below: i32,
}

impl Pair {
    fn start(program: &Path) -> Self {
        let script = format!("{} 1000 >/dev/null & echo $!; wait", program.display());
        let mut command = Command::new("sh");
        let mut parent =
            command.args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("every machine has sh");
        let mut line = String::new();
        let output = parent.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).expect("it says what it has started");
        Pair { below: line.trim().parse().expect("a pid"), parent }
    }

    fn pid(&self) -> i32 {
        self.parent.id() as i32
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: it is a child of this process' child, which has not been waited for.
        unsafe { libc::kill(self.below, libc::SIGKILL) };
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

fn memory(pid: i32, memory_min: Option<u64>, memory_max: Option<u64>) -> api::SetMemory {
    let asked = |bytes: Option<u64>| bytes.map(|bytes| bytes as i64);
    let (memory_min, memory_max) = (asked(memory_min), asked(memory_max));
    api::SetMemory { pid, memory_min, memory_max, ..api::SetMemory::default() }
}

fn ask(daemon: &Running, request: &api::SetMemory) -> Result<api::MemorySet, String> {
    daemon.client().call(request).map_err(|error| error.to_string())
}

fn place(machine: &Machine, pid: i32) -> String {
    machine.cgroups.tree().members.get(&pid).cloned().unwrap_or_default()
}

fn put(machine: &Machine, pid: i32, path: &str) {
    machine.cgroups.tree().members.insert(pid, path.to_owned());
}

#[test]
fn a_process_that_is_with_others_goes_with_what_it_has_started_into_a_domain_that_is_theirs() {
    let machine = Machine::new();
    let program = machine.program("program");
    let (pair, other) = (Pair::start(&program), Sleeper::start(&program));
    let pid = pair.pid();
    // Somebody has put what it started elsewhere later.
    let elsewhere = Pair::start(&program);
    for member in [pid, pair.below, other.pid(), elsewhere.pid()] {
        put(&machine, member, "");
    }
    machine.cgroups.tree().add("other", 0);
    put(&machine, elsewhere.below, "other");
    machine.cgroups.tree().private.insert(pid, Private { started_ticks: 7, bytes: 60 * MIB });
    let daemon = machine.start();
    let done = ask(&daemon, &memory(pid, Some(8 * MIB), Some(64 * MIB))).expect("root may");
    let own = format!("program-{pid}");
    let path = format!("steward.{own}");
    let expected = api::MemorySet {
        domain: own.clone(),
        from: Some("/".into()),
        moved: 2,
        stayed: 0,
        whole: true,
        left_bytes: Some(60 * MIB),
    };
    assert_eq!(done, expected);
    assert_eq!([pid, pair.below, other.pid()].map(|pid| place(&machine, pid)), [path.as_str(), &path, ""]);
    until_told(&machine, &daemon, &path, (Some(8 * MIB), Some(64 * MIB)));

    // From then on it is its own: another amount moves nobody.
    let done = ask(&daemon, &memory(pid, Some(16 * MIB), None)).expect("root may");
    let in_place = api::MemorySet { domain: own.clone(), whole: true, ..api::MemorySet::default() };
    assert_eq!(done, in_place);
    until_told(&machine, &daemon, &path, (Some(16 * MIB), Some(64 * MIB)));
    // Also after a restart, and what it has is taken back.
    daemon.stop();
    let daemon = machine.start();
    until_told(&machine, &daemon, &path, (Some(16 * MIB), Some(64 * MIB)));
    let back = api::SetMemory { pid, reset: vec!["memory_min".into()], ..api::SetMemory::default() };
    assert_eq!(ask(&daemon, &back).expect("root may"), in_place);
    until_told(&machine, &daemon, &path, (None, Some(64 * MIB)));

    // Who was put elsewhere stays there.
    let done = ask(&daemon, &memory(elsewhere.pid(), None, Some(64 * MIB))).expect("root may");
    assert_eq!((done.moved, place(&machine, elsewhere.below).as_str()), (1, "other"));

    // Who is there already and shares it with nobody stays, and who is not alone goes to one below.
    let made = api::CreateDomain { domain: "a".into(), keep: Some(true), ..api::CreateDomain::default() };
    daemon.client().call(&made).expect("it is free");
    let enter = |pid: i32| {
        let request = api::MoveProcess { pid: Some(pid), domain: "a".into() };
        daemon.client().call(&request).expect("root may");
    };
    enter(other.pid());
    let done = ask(&daemon, &memory(other.pid(), None, Some(32 * MIB))).expect("root may");
    assert_eq!((done.domain.as_str(), done.from), ("a", None));
    until_told(&machine, &daemon, "steward.a", (None, Some(32 * MIB)));
    enter(elsewhere.pid());
    let done = ask(&daemon, &memory(other.pid(), None, Some(16 * MIB))).expect("root may");
    let below = format!("a/program-{}", other.pid());
    assert_eq!((done.domain, done.from.as_deref(), done.moved), (below.clone(), Some("a"), 1));
    assert_eq!(place(&machine, other.pid()), format!("steward.{below}"));
    assert_eq!(place(&machine, elsewhere.pid()), "steward.a/.own");
    // It pays for what is below it: nothing.
    let refused =
        ask(&daemon, &memory(elsewhere.pid(), Some(MIB), None)).expect_err("it is promised nothing");
    assert!(refused.contains("promise a more first"), "{refused}");
    assert_eq!(place(&machine, elsewhere.pid()), "steward.a/.own");
}

#[test]
fn what_cannot_be_is_refused_with_the_rule_and_nothing_is_changed() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    put(&machine, pid, "");
    machine.cgroups.tree().promisable = Some(Promisable { programs_bytes: 512 * MIB, of_others_bytes: 0 });
    let daemon = machine.start();
    let before = format!("{:?}", machine.cgroups.tree());
    let refused = |request: &api::SetMemory, why: &str| {
        let said = ask(&daemon, request).expect_err(why);
        assert!(said.contains(why), "{said}");
        let now = format!("{:?}", machine.cgroups.tree());
        assert_eq!(now.split("memory_reads").next(), before.split("memory_reads").next(), "{why}");
    };
    refused(&memory(pid, Some(1 << 40), None), "cannot have 1T of the memory of the machine");
    refused(&memory(pid, Some(2 * MIB), Some(MIB)), "cannot be promised where at most 1M may be used");
    refused(&api::SetMemory { memory_min: Some(-1), ..memory(pid, None, None) }, "memory_min");
    refused(&memory(pid, None, None), "say what is asked");
    let reset = |name: &str| api::SetMemory { reset: vec![name.into()], ..memory(pid, None, None) };
    refused(&reset("cpu"), "memory_min, memory_max, protect");
    refused(&reset("weight"), "memory_min, memory_max, protect");
    refused(&memory(1, Some(MIB), None), "from process 1 all others descend");
    refused(&memory(0, Some(MIB), None), "there is no process 0");
    refused(&memory(-7, Some(MIB), None), "there is no process -7");
    refused(&memory(i32::MAX, Some(MIB), None), "no process");
    refused(&memory(std::process::id() as i32, Some(MIB), None), "that is stewardd itself");
    // Nothing was given that could be taken back.
    let done = ask(&daemon, &reset("memory_min")).expect("it has nothing");
    assert_eq!((done.domain.as_str(), done.from), ("/", None));

    // A thread is no process.
    let (told, tid) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        told.send(rustix::thread::gettid().as_raw_pid()).expect("it is waited for");
        let _ = ended.recv();
    });
    let tid = tid.recv().expect("it runs");
    refused(&memory(tid, Some(MIB), None), &format!("{tid} is a thread of process {}", std::process::id()));
    drop(end);
    thread.join().expect("it ends");

    // What the kernel does not do is undone.
    machine.cgroups.tree().refuses_memory = Some("the kernel says no".into());
    let said = ask(&daemon, &memory(pid, Some(MIB), None)).expect_err("the kernel says no");
    assert!(said.contains("the kernel says no"), "{said}");
    assert!(!machine.cgroups.tree().has(&format!("steward.program-{pid}")));
    assert_eq!(place(&machine, pid), "");
    machine.cgroups.tree().refuses_memory = None;

    // Whose it is not, or who may not reserve.
    for uid in [1001, 1002] {
        machine.caller_uid.store(uid, Ordering::SeqCst);
        let said = ask(&daemon, &memory(pid, Some(MIB), None)).expect_err("they may not");
        assert!(said.contains(&format!("user {uid} may not limit")), "{said}");
    }
    let rules = "[[rule]]\nwho = \"user:1001\"\naction = \"limit\"\nof = \"anyone\"\nverdict = \"allow\"\n";
    fs::create_dir_all(machine.path("rules")).expect("created");
    fs::write(machine.path("rules/50-test.toml"), rules).expect("written");
    machine.caller_uid.store(0, Ordering::SeqCst);
    daemon.client().call(&api::Reload {}).expect("root may");
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let said = ask(&daemon, &memory(pid, Some(MIB), None)).expect_err("they may not");
    assert!(said.contains("user 1001 may not reserve"), "{said}");
    assert_eq!(place(&machine, pid), "");
    // Out of what others made nobody is moved, and no systemd runs that could make a scope.
    machine.caller_uid.store(0, Ordering::SeqCst);
    machine.cgroups.tree().add("docker", 0);
    for (path, more) in [("docker", "shares what it has"), ("system.slice", "its manager's business")] {
        put(&machine, pid, path);
        let said = ask(&daemon, &memory(pid, Some(MIB), None)).expect_err("it is another manager's");
        assert!(said.contains("its manager's business") && said.contains(more), "{said}");
        assert_eq!(place(&machine, pid), path);
    }
}

#[test]
fn a_domain_that_a_killed_daemon_had_made_and_not_noted_is_taken_over() {
    let machine = Machine::new();
    let sleeper = Sleeper::start(&machine.program("program"));
    let pid = sleeper.pid();
    let path = format!("steward.program-{pid}");
    machine.cgroups.tree().add(&path, 0);
    put(&machine, pid, &path);
    let daemon = machine.start();
    let done = ask(&daemon, &memory(pid, Some(8 * MIB), None)).expect("root may");
    assert_eq!((done.domain, done.from), (format!("program-{pid}"), None));
    until_told(&machine, &daemon, &path, (Some(8 * MIB), None));
    daemon.stop();
    assert_eq!(machine.cgroups.tree().memory(&path), Told::default());

    // What anybody else has made is not, whatever it is called.
    let machine = Machine::new();
    machine.cgroups.tree().add(&path, 1001);
    put(&machine, pid, &path);
    let daemon = machine.start();
    let said = ask(&daemon, &memory(pid, Some(8 * MIB), None)).expect_err("it is another's");
    assert!(said.contains("its manager's business"), "{said}");
}

#[test]
fn a_domain_that_an_earlier_process_of_the_same_number_has_left_does_not_stand_in_the_way() {
    let machine = Machine::new();
    let (sleeper, left) =
        (Sleeper::start(&machine.program("program")), Sleeper::start(&machine.program("left")));
    let pid = sleeper.pid();
    put(&machine, pid, "");
    let daemon = machine.start();
    let own = format!("program-{pid}");
    daemon
        .client()
        .call(&api::CreateDomain { domain: own.clone(), ..api::CreateDomain::default() })
        .expect("root may");
    daemon.client().call(&api::MoveProcess { pid: Some(left.pid()), domain: own.clone() }).expect("root may");
    let done = ask(&daemon, &memory(pid, Some(8 * MIB), None)).expect("root may");
    assert!(done.domain.starts_with(&format!("{own}-")), "{}", done.domain);
    assert_eq!(place(&machine, left.pid()), format!("steward.{own}"));
}

#[test]
fn a_program_that_systemd_has_placed_waits_for_a_scope_while_others_are_answered() {
    let machine = Machine::new();
    systemd_run(&machine, "exec cat");
    let (pair, other) = (Pair::start(&machine.program("program")), Sleeper::start(&machine.program("other")));
    let pid = pair.pid();
    let session = format!("{SLICE}/session-2.scope");
    machine.cgroups.tree().add(SLICE, 0);
    machine.cgroups.tree().add(&session, 0);
    for member in [pid, pair.below, other.pid()] {
        put(&machine, member, &session);
    }
    let daemon = machine.start();
    let scope = format!("{SLICE}/steward-program-{pid}.scope");
    let request = memory(pid, Some(8 * MIB), None);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| ask(&daemon, &request));
        let stand_in = asked(&machine, &daemon);
        let arguments = fs::read_to_string(machine.path("arguments")).expect("written");
        assert!(
            arguments.contains(&format!("--unit=steward-program-{pid}.scope --slice=user-1001.slice")),
            "{arguments}"
        );
        // Who asks for the same meanwhile is told.
        let said = ask(&daemon, &request).expect_err("it is asked already");
        assert!(said.contains("already; ask again in a moment"), "{said}");
        {
            let mut tree = machine.cgroups.tree();
            tree.add(&scope, 0);
            tree.members.insert(stand_in, scope.clone());
        }
        fs::write(machine.path("go"), "\n").expect("it waits");
        let done = waiting.join().expect("it does not panic").expect("root may");
        assert_eq!((done.domain.as_str(), done.from.as_deref()), (scope.as_str(), Some(session.as_str())));
        assert_eq!((done.moved, done.stayed, done.whole), (2, 0, true));
    });
    assert_eq!(
        [pid, pair.below, other.pid()].map(|pid| place(&machine, pid)),
        [scope.as_str(), &scope, &session]
    );
    until_told(&machine, &daemon, &scope, (Some(8 * MIB), None));
    until_told(&machine, &daemon, SLICE, (Some(8 * MIB), None));
    // It is its own now, and nobody is asked again.
    let done = ask(&daemon, &memory(pid, Some(4 * MIB), Some(64 * MIB))).expect("root may");
    assert_eq!((done.domain.as_str(), done.from), (scope.as_str(), None));
    until_told(&machine, &daemon, &scope, (Some(4 * MIB), Some(64 * MIB)));
    assert!(!machine.path("asked").exists());
    // A slice of the user's own gives nobody the right to what the machine pays for.
    machine.caller_uid.store(1001, Ordering::SeqCst);
    let rules = "[[rule]]\nwho = \"user:1001\"\naction = \"limit\"\nof = \"anyone\"\nverdict = \"allow\"\n";
    fs::create_dir_all(machine.path("rules")).expect("created");
    fs::write(machine.path("rules/50-test.toml"), rules).expect("written");
    daemon.signal_reload();
    let mut said = String::new();
    for _ in 0..100_000 {
        said = ask(&daemon, &memory(other.pid(), Some(MIB), None)).expect_err("they may not");
        if said.contains("may not reserve") {
            break;
        }
    }
    assert!(said.contains("may not reserve CPU time and memory for a scope of its own"), "{said}");
    assert_eq!(place(&machine, other.pid()), session);
    daemon.stop();
    for path in [scope.as_str(), SLICE, "user.slice"] {
        assert_eq!(machine.cgroups.tree().memory(path), Told::default(), "{path}");
    }
}

#[test]
fn where_systemd_refuses_or_whoever_asked_has_gone_the_program_stays_where_it_is() {
    let machine = Machine::new();
    systemd_run(&machine, "echo 'Failed to start transient scope unit: Access denied' >&2\nexit 1");
    let sleeper = Sleeper::start(&machine.program("program"));
    let (pid, session) = (sleeper.pid(), format!("{SLICE}/session-2.scope"));
    machine.cgroups.tree().add(SLICE, 0);
    machine.cgroups.tree().add(&session, 0);
    put(&machine, pid, &session);
    let daemon = machine.start();
    let request = memory(pid, Some(8 * MIB), None);
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| ask(&daemon, &request));
        asked(&machine, &daemon);
        fs::write(machine.path("go"), "\n").expect("it waits");
        let said = waiting.join().expect("it does not panic").expect_err("systemd refuses");
        let why = format!(
            "systemd gives process {pid} no scope of its own, so it stays where it is (systemd-run: Failed to start transient scope unit: \
             Access denied)"
        );
        assert!(said.contains(&why), "{said}");
    });
    assert_eq!(place(&machine, pid), session);
    // Whoever asks goes before there is an answer: nobody is kept waiting by that.
    let mut stream = std::os::unix::net::UnixStream::connect(&daemon.socket).expect("it listens");
    let call = format!(
        "{{\"method\":\"io.steward.SetMemory\",\"parameters\":{{\"pid\":{pid},\"memory_min\":1048576}}}}\0"
    );
    std::io::Write::write_all(&mut stream, call.as_bytes()).expect("it reads");
    asked(&machine, &daemon);
    drop(stream);
    let at_once = "#!/bin/sh\necho 'Access denied' >&2\nexit 1\n";
    fs::write(machine.path("systemd-run.new"), at_once).expect("written");
    fs::set_permissions(machine.path("systemd-run.new"), fs::Permissions::from_mode(0o755))
        .expect("executable");
    fs::rename(machine.path("systemd-run.new"), machine.path("systemd-run")).expect("renamed");
    let mut said = String::new();
    for _ in 0..100_000 {
        said = ask(&daemon, &request).expect_err("systemd refuses");
        if said.contains("Access denied") {
            break;
        }
    }
    assert!(said.contains("Access denied"), "{said}");
    assert_eq!(place(&machine, pid), session);
}

#[test]
fn a_minimum_is_held_against_the_maxima_above_it_also_when_these_are_lowered_later() {
    let machine = Machine::new();
    let (one, other) = (Sleeper::start(&machine.program("one")), Sleeper::start(&machine.program("other")));
    let scope = |sleeper: &Sleeper| format!("{SLICE}/steward-program-{}.scope", sleeper.pid());
    machine.cgroups.tree().add(SLICE, 0);
    for sleeper in [&one, &other] {
        // From before a restart.
        machine.cgroups.tree().add(&scope(sleeper), 0);
        put(&machine, sleeper.pid(), &scope(sleeper));
    }
    let limit = |path: &str, mib: Option<u64>| {
        let maxima = &mut machine.cgroups.tree().maxima;
        match mib {
            Some(mib) => _ = maxima.insert(path.into(), mib * MIB),
            None => _ = maxima.remove(path),
        }
    };
    limit("user.slice", Some(64));
    limit(SLICE, Some(32));
    let daemon = machine.start();
    let said = ask(&daemon, &memory(one.pid(), Some(33 * MIB), None)).expect_err("its slice has less");
    let why = format!(
        "{} cannot have 33M of the memory: {SLICE}, which it is in, may use at most 32M with all below it (memory.max); ask for less, or raise \
         that (systemctl set-property user-1001.slice MemoryMax=...)",
        scope(&one)
    );
    assert!(said.contains(&why), "{said}");
    assert_eq!(machine.cgroups.tree().memory(&scope(&one)), Told::default());
    ask(&daemon, &memory(one.pid(), Some(24 * MIB), None)).expect("it fits");
    let said = ask(&daemon, &memory(other.pid(), Some(9 * MIB), None)).expect_err("8M are left");
    assert!(said.contains("(memory.max), of which others there are promised 24M; ask"), "{said}");
    ask(&daemon, &memory(other.pid(), Some(8 * MIB), None)).expect("it fits");
    until_told(&machine, &daemon, &scope(&one), (Some(24 * MIB), None));
    until_told(&machine, &daemon, SLICE, (Some(32 * MIB), None));

    let problem = || {
        let shown = api::ShowDomain { domain: Some(scope(&one)), pid: None };
        daemon.client().call(&shown).expect("it is there").domain.problem.unwrap_or_default()
    };
    assert_eq!(problem(), "");
    limit("user.slice", Some(16));
    until_told(&machine, &daemon, &scope(&one), (Some(12 * MIB), None));
    until_told(&machine, &daemon, &scope(&other), (Some(4 * MIB), None));
    until_told(&machine, &daemon, "user.slice", (Some(16 * MIB), None));
    let why = "user.slice may use at most 16M with all below it by now (memory.max), so of the 24M that are promised 12M are kept";
    assert_eq!(problem(), why);
    // Each question is a turn of the daemon's loop, which says so when it has looked at all of them.
    let is_told = || daemon.status().problems.iter().any(|problem| problem.message.contains(why));
    assert!((0..100_000).any(|_| is_told()), "{:?}", daemon.status().problems);
    // Less can be asked at any time, and more only where there is.
    ask(&daemon, &memory(one.pid(), Some(20 * MIB), None)).expect("it is less");
    let said = ask(&daemon, &memory(one.pid(), Some(21 * MIB), None)).expect_err("there is not so much");
    assert!(said.contains("user.slice, which it is in, may use at most 16M"), "{said}");
    limit("user.slice", None);
    until_told(&machine, &daemon, &scope(&one), (Some(20 * MIB), None));
    assert_eq!(problem(), "");
}

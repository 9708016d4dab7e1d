//! The control files over a daemon on a fake machine, used from shells of several users: in a mount namespace of one
//! thread, which nobody else sees. Where the kernel does not let us, it is said and nothing is tried.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::{Machine, Running};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const USER: u32 = 1001;

/// Runs a test with the files mounted in the directory `fs` of the machine, and the links beside it.
fn with_files(prepare: fn(&Machine), test: fn(&Machine, &Running)) {
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread's view of the mounts changes; no descriptors are unshared.
        if let Err(errno) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            return eprintln!("not tried: no mount namespace ({errno}); needs root");
        }
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).expect("a namespace's mounts can be made its own");
        let machine = Machine::new();
        // For other users too.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(machine.directory.path(), open).expect("its own directory");
        prepare(&machine);
        let daemon = machine.try_start_with(Some(&machine.path("fs"))).expect("the daemon starts");
        if daemon.status().problems.iter().any(|problem| problem.message.contains("no control files")) {
            return eprintln!("not tried: {:?}", daemon.status().problems);
        }
        test(&machine, &daemon);
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn shell(machine: &Machine, uid: u32, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("LC_ALL", "C").current_dir(machine.directory.path()).uid(uid).gid(uid);
    shell
}

/// What a script says, its errors too.
fn says(machine: &Machine, uid: u32, script: &str) -> String {
    let output = shell(machine, uid, script).output().expect("every machine has sh");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Puts a program in polkit's place that writes a line to `asked` and waits for one in `answer`.
fn person(machine: &Machine) {
    let rule = "[[rule]]\nwho = \"user:1001\"\naction = \"reserve\"\nof = \"anyone\"\nverdict = \"ask\"\n";
    std::fs::create_dir(machine.path("rules")).expect("created");
    std::fs::write(machine.path("rules/50-ask.toml"), rule).expect("written");
    let script = "mkfifo asked answer && printf '#!/bin/sh\\ncd %s && echo asked >asked && read code <answer && exit $code\\n' \
                  \"$PWD\" >pkcheck && chmod 755 pkcheck";
    assert_eq!(says(machine, 0, script), "");
}

fn start(machine: &Machine, uid: u32, script: &str) -> Child {
    let mut shell = shell(machine, uid, script);
    shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("every machine has sh")
}

#[test]
fn what_a_shell_writes_is_in_force_and_what_the_api_changes_is_read() {
    with_files(
        |_| {},
        |machine, daemon| {
            assert_eq!(says(machine, 0, "mkdir domains/batch && echo 50 >domains/batch/cpu"), "");
            let shown = libsteward::api::ShowDomain { domain: Some("batch".into()), pid: None };
            let domain = daemon.client().call(&shown).expect("made").domain;
            assert_eq!((domain.cpu, domain.user), (Some(0.5), 0));
            let settings = libsteward::api::DomainSettings { cpu: Some(0.25), ..Default::default() };
            let change =
                libsteward::api::SetDomain { domain: "batch".into(), settings, ..Default::default() };
            daemon.client().call(&change).expect("changed");
            assert_eq!(says(machine, 0, "cat domains/batch/cpu domains/batch/cpu.sum"), "25\n25\n");
            // The machine of this test has no tasks.
            let forecast = says(machine, 0, "tail -n 1 domains/batch/forecast; cat forecasts | wc -l");
            assert!(forecast.starts_with("- - - batch 0 0 0 ") && forecast.ends_with("\n1\n"), "{forecast}");
            let refused =
                says(machine, 0, "env echo 96 >domains/batch/cpu; cat last_error domains/batch/cpu");
            assert!(refused.contains("No space left"), "{refused}");
            assert!(refused.contains("write \"96\" to cpu of batch: batch cannot have"), "{refused}");
            assert!(refused.contains("\n25\n"), "{refused}");
            assert_eq!(
                says(machine, 0, "rmdir domains/batch; ls -d domains/batch 2>&1 | grep -c 'No such'"),
                "1\n"
            );
        },
    );
}

#[test]
fn each_user_is_judged_by_the_rules_and_reads_their_own_refusals() {
    with_files(
        |_| {},
        |machine, _| {
            assert_eq!(says(machine, 0, "mkdir domains/batch && echo 50 >domains/batch/cpu"), "");
            let refused = says(machine, USER, "env echo 40 >domains/batch/cpu; cat last_error");
            assert!(refused.contains("Permission denied"), "{refused}");
            assert!(refused.contains("user 1001 may not"), "{refused}");
            assert_eq!(says(machine, USER, "cat domains/batch/cpu"), "50\n");
            assert_eq!(says(machine, 0, "cat last_error"), "");
        },
    );
}

#[test]
fn a_write_waits_for_a_person_while_others_read() {
    with_files(person, |machine, _| {
        assert_eq!(says(machine, 0, "mkdir domains/batch"), "");
        for (code, expected) in [("0", "20\n"), ("1", "20\n")] {
            let value = if code == "0" { "20" } else { "60" };
            let mut writer = start(machine, USER, &format!("env echo {value} >domains/batch/cpu"));
            let asked = std::fs::File::open(machine.path("asked")).expect("somebody asks");
            let mut line = String::new();
            BufReader::new(asked).read_line(&mut line).expect("a line");
            // The person has not answered yet.
            assert_ne!(says(machine, 0, "cat domains/batch/cpu; cat domains/sched"), "");
            assert!(writer.try_wait().expect("ours").is_none(), "it waits");
            assert_eq!(says(machine, 0, &format!("echo {code} >answer")), "");
            let status = writer.wait().expect("it ends");
            assert_eq!(status.success(), code == "0");
            assert_eq!(says(machine, USER, "cat domains/batch/cpu"), expected);
        }
        assert!(says(machine, USER, "cat last_error").contains("it says no"));
        // Reading asks nobody.
        assert_eq!(says(machine, USER, "cat domains/batch/cpu"), "20\n");
    });
}

#[test]
fn what_a_domain_may_use_of_memory_is_read_by_root_and_its_user_and_refused_to_others() {
    with_files(
        |_| {},
        |machine, daemon| {
            assert_eq!(says(machine, 0, "mkdir domains/batch"), "");
            machine.cgroups.tree().used.insert("steward.batch".into(), Default::default());
            machine.cgroups.tree().memory_available = 100 << 20;
            let read = "cat domains/batch/memory.available";
            assert_eq!(says(machine, 0, read), "104857600\n");
            let refused = says(machine, USER, read);
            assert!(refused.contains("Permission denied") && !refused.contains("104857600"), "{refused}");
            assert_eq!(says(machine, USER, "cat domains/batch/cpu.weight"), "100\n", "that anybody may read");
            let give =
                libsteward::api::SetDomain { domain: "batch".into(), user: Some(USER), ..Default::default() };
            daemon.client().call(&give).expect("root may");
            assert_eq!(says(machine, USER, read), "104857600\n");
            assert!(says(machine, USER + 1, read).contains("Permission denied"));
        },
    );
}

#[test]
fn who_polls_what_may_be_used_of_memory_is_woken_at_once_and_by_each_change() {
    const PRINTS: &str = "import os, select, sys\n\
        file = os.open(sys.argv[1], os.O_RDONLY)\n\
        waits = select.poll()\n\
        waits.register(file, select.POLLPRI)\n\
        while waits.poll():\n    print(os.pread(file, 100, 0).decode().strip(), flush=True)\n";
    with_files(
        |_| {},
        |machine, _| {
            assert_eq!(says(machine, 0, "mkdir domains/batch"), "");
            let free = |mib: u64| machine.cgroups.tree().memory_available = mib << 20;
            machine.cgroups.tree().used.insert("steward.batch".into(), Default::default());
            free(100);
            let mut python = Command::new("python3");
            python
                .args(["-c", PRINTS, "domains/batch/memory.available"])
                .current_dir(machine.directory.path());
            let mut poller = python
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("make setup has installed python3");
            let mut lines = BufReader::new(poller.stdout.take().expect("it is piped")).lines();
            for mib in [100, 200, 50] {
                free(mib);
                let line = lines.next().expect("it goes on").expect("it is text");
                assert_eq!(line, (mib << 20).to_string());
            }
            // Its domain goes, and whoever waits finds that out.
            assert_eq!(says(machine, 0, "rmdir domains/batch"), "");
            assert!(!poller.wait().expect("ours").success(), "it cannot be read any more");
        },
    );
}

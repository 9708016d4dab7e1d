//! The adapter for programs with libgc: its rules, and an unmodified program under it against a daemon in this process.

mod built;
#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use built::Library;
use common::Machine;
use libsteward::api::CreateDomain;
use steward_kernel::cgroup::reading::MemoryUse;
use steward_machine::{GuestFile, MachineConfig, run};

const LIBRARY: Library = Library { name: "steward", directory: env!("CARGO_MANIFEST_DIR") };

/// More rounds than any test waits for.
const ROUNDS: &str = "1000000";
/// How many rounds a test waits for something that is to happen.
const ROUNDS_MAX: usize = 20_000;

/// Has make build the adapter with the library that cargo has put beside the tests.
fn build(into: &Path, targets: &[&str]) {
    let library = LIBRARY.built().join("libsteward.a");
    let adapter = LIBRARY.file("../../adapters/boehm");
    let mut make = Command::new("make");
    make.arg("-C").arg(adapter).arg(format!("LIBSTEWARD={}", library.display()));
    let output = make.arg(format!("BUILD={}", into.display())).args(targets).output();
    let output = output.expect("make setup has installed make");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program that makes and drops trees. It ends with the test.
struct Trees {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Trees {
    /// Has it wait under the adapter, for the daemon at that socket.
    fn start(built: &Path, socket: &Path) -> Self {
        let mut program = Command::new(built.join("trees"));
        program.args([ROUNDS, "16", "15"]).env("WAIT", "1").env("STEWARD_SOCKET", socket);
        program.env("LD_PRELOAD", built.join("libsteward-boehm.so"));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        let output = child.stdout.take().expect("it is piped");
        Trees { child, lines: BufReader::new(output).lines() }
    }

    fn begin(&mut self) {
        self.child.stdin.take().expect("once").write_all(b"\n").expect("it waits");
    }

    /// Collections so far and the heap in MiB, after the next round.
    fn round(&mut self) -> (u64, u64) {
        let line = self.lines.next().expect("it goes on").expect("it is text");
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
        (numbers.next().expect("collections"), numbers.next().expect("the heap"))
    }

    /// What it has in memory of its own, by the kernel's count, in MiB.
    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("the kernel tells") >> 10
    }

    /// Waits for a round with such a heap.
    fn until(&mut self, what: &str, is_so: impl Fn(u64) -> bool) {
        let mut heaps = (0..ROUNDS_MAX).map(|_| self.round().1);
        assert!(heaps.any(is_so), "the heap never {what}");
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_available(machine: &Machine, mib: u64) {
    let mut tree = machine.cgroups.tree();
    tree.used.insert("steward.a".into(), MemoryUse::default());
    tree.memory_available = mib << 20;
}

#[test]
fn its_rules_are_what_the_header_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    build(directory.path(), &["test"]);
}

#[test]
fn a_heap_of_which_more_has_to_go_than_is_left_stays_at_what_may_be_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    build(directory.path(), &["test-heap"]);
}

#[test]
fn a_heap_grows_as_long_as_there_is_memory_and_shrinks_as_soon_as_there_is_less() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    build(directory.path(), &["all", "bench"]);
    let machine = Machine::new();
    let daemon = machine.start();
    daemon
        .client()
        .call(&CreateDomain { domain: "a".into(), ..CreateDomain::default() })
        .expect("it is free");
    set_available(&machine, 400);
    let mut trees = Trees::start(directory.path(), &daemon.socket);
    machine.cgroups.tree().members.insert(trees.child.id() as i32, "steward.a".into());
    trees.begin();
    // By itself this collector keeps a heap of some 20 MiB for these trees.
    trees.until("grew", |heap| heap > 300);
    let (before, _) = trees.round();
    let heaps: Vec<u64> = (0..200).map(|_| trees.round().1).collect();
    let (after, _) = trees.round();
    assert!(heaps.iter().all(|heap| *heap <= 400), "{heaps:?}");
    // 200 trees of 4 MiB: a collection for each time that the heap fills up, and those that discard.
    assert!(after - before < 40, "{} collections", after - before);
    set_available(&machine, 64);
    trees.until("shrank", |heap| heap <= 64);
    let heaps: Vec<u64> = (0..200).map(|_| trees.round().1).collect();
    assert!(heaps.iter().all(|heap| *heap <= 64 + 8), "{heaps:?}");
    assert!(trees.resident_mib() <= 64 + 8, "{} MiB are in memory", trees.resident_mib());
    set_available(&machine, 400);
    trees.until("grew again", |heap| heap > 300);
}

#[test]
fn without_a_daemon_a_program_collects_as_it_would_without_the_adapter() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    build(directory.path(), &["all", "bench"]);
    let rounds = |socket: Option<PathBuf>| {
        let mut program = Command::new(directory.path().join("trees"));
        program.args(["100", "16", "15"]);
        if let Some(socket) = socket {
            program.env("STEWARD_SOCKET", socket);
            program.env("LD_PRELOAD", directory.path().join("libsteward-boehm.so"));
        }
        let output = program.output().expect("it was built");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().expect("a hundred rounds").to_owned();
        let mut numbers = last.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        (numbers.next().expect("collections"), numbers.next().expect("the heap"))
    };
    let (alone, heap_alone) = rounds(None);
    let (under_it, heap_under_it) = rounds(Some(directory.path().join("no-such-socket")));
    // What is on the stack by chance makes a collection more or less.
    assert!(alone > 10 && under_it.abs_diff(alone) <= alone / 5, "{under_it} collections, {alone} alone");
    assert!(heap_under_it.abs_diff(heap_alone) <= heap_alone / 2, "{heap_under_it} MiB, {heap_alone} alone");
}

#[test]
fn an_allocation_comes_to_the_adapter_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let passes = directory.path().join("passes.so");
    build(directory.path(), &["all", "bench", &passes.to_string_lossy()]);
    let adapter = directory.path().join("libsteward-boehm.so");
    let output = Command::new(directory.path().join("trees"))
        .args(["10", "12", "10"])
        .env("STEWARD_SOCKET", directory.path().join("no-such-socket"))
        .env("LD_PRELOAD", format!("{}:{}", adapter.display(), passes.display()))
        .output()
        .expect("it was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stderr);
    let counts = text.lines().find_map(|line| line.strip_prefix("passes ")).expect("it tells at the end");
    let mut counts = counts.split(' ').map(|count| count.parse::<u64>().expect("a number"));
    let (as_malloc, as_malloc_kind) = (counts.next().expect("two"), counts.next().expect("two"));
    // Ten trees of 2^13 nodes, and one of 2^11 with what stays.
    assert_eq!(as_malloc, 0, "libgc calls back by name");
    assert!((80_000..100_000).contains(&as_malloc_kind), "{as_malloc_kind}");
}

/// A huge page of which a part is discarded stays whole in memory; one that has been taken apart is made whole again.
#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn what_is_discarded_is_charged_to_nobody() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let shrinks = directory.path().join("shrinks");
    build(directory.path(), &[&shrinks.to_string_lossy()]);
    let files = [GuestFile::from_host(&shrinks, "/usr/bin/shrinks").expect("it was built")];
    let script = "exec >/run/lab/results 2>&1; set -e
        huge=/sys/kernel/mm/transparent_hugepage
        echo always >$huge/enabled; echo 10 >$huge/khugepaged/scan_sleep_millisecs
        echo 100000 >$huge/khugepaged/pages_to_scan
        echo +memory >/sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/shrinks
        echo $$ >/sys/fs/cgroup/shrinks/cgroup.procs
        shrinks /sys/fs/cgroup/shrinks/memory.current 2
        grep -E '^thp_(fault_alloc|split_page|deferred_split_page) ' /proc/vmstat";
    let command = ["/bin/sh".into(), "-c".into(), script.into()];
    let mut told = String::new();
    let outcome = run(&MachineConfig::default(), &files, &command, &mut |line| told += &format!("{line}\n"))
        .expect("it runs");
    assert_eq!(outcome.status, 0, "{told}");
    let count = |name: &str| -> u64 {
        let line = told.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse().expect("a count")
    };
    assert!(count("thp_fault_alloc ") > 50, "no huge pages, which shows nothing: {told}");
    assert!(count("thp_split_page ") > 0, "none of which a part was discarded: {told}");
}

//! Tries to have a program with the rights of another user get something by a request that was made about a program
//! without: for the tests on a real kernel (crates/stewardd/tests/kernel/promises.sh), which run it as an ordinary user
//! who may reserve for processes of their own.
//!
//!     set-user-id-race ROUNDS RAISED    # RAISED: a copy of this program that is set-user-ID
//!
//! In each round a child executes RAISED while `io.steward.Set` about it is under way; with `inherit` in every other.
//! In the end it says how often the daemon refused because the child had other rights already (`refused`), noticed that
//! it had got them meanwhile (`taken-back`), and gave before that (`given`), and how often a program with other rights
//! had something that must not be (`violations`): anything by a request without `inherit`, which ends with the program,
//! and anything at all by one that was answered with an error.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libsteward::{Client, Error, api};

/// What came of a round.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Refused,
    TakenBack,
    Given,
    Other,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["raised"] => {
            println!("begun");
            wait_for_a_byte();
        }
        ["child", after_us, raised] => {
            wait_for_a_byte();
            spin(Duration::from_micros(number(after_us)));
            let error = Command::new(raised).arg("raised").exec();
            eprintln!("{raised}: {error}");
        }
        [rounds, raised] => race(number(rounds), raised),
        _ => eprintln!("set-user-id-race ROUNDS RAISED"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn wait_for_a_byte() {
    let _ = std::io::stdin().read(&mut [0]);
}

fn spin(duration: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < duration {
        std::hint::black_box(());
    }
}

/// A moment between none and `most_us`, another one each time (xorshift).
fn moment(state: &mut u64, most_us: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % most_us.max(1)
}

fn race(rounds: u64, raised: &str) {
    let mut client = Client::connect(libsteward::SOCKET_PATH).expect("the daemon listens");
    let (mut state, mut most_us, mut outcomes) = (0x9E37_79B9_7F4A_7C15, 2000, Vec::new());
    let (mut violations, mut kept) = (0, 0);
    for round in 0..rounds {
        let inherit = round % 2 == 1;
        let mut child = start(moment(&mut state, most_us), raised);
        let mut gate = child.stdin.take().expect("it is a pipe");
        gate.write_all(b"x").expect("the child waits");
        spin(Duration::from_micros(moment(&mut state, most_us)));
        let (outcome, took) = set(&mut client, &child, inherit);
        await_raised(&mut child);
        let holds = holds(&mut client, &child);
        violations += u64::from(holds && (!inherit || outcome != Outcome::Given));
        kept += u64::from(holds && inherit && outcome == Outcome::Given);
        outcomes.push(outcome);
        // So that the two meet anywhere in what the daemon does, however fast the machine is.
        most_us = (most_us * 7 + took.as_micros() as u64 * 2) / 8;
        drop(gate);
        child.wait().expect("it ends when nothing more can come");
    }
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    println!("rounds {rounds}\nrefused {}", count(Outcome::Refused));
    println!("taken-back {}\ngiven {}", count(Outcome::TakenBack), count(Outcome::Given));
    println!("inherited {kept}\nother {}\nviolations {violations}", count(Outcome::Other));
}

/// A child that executes the program so long after it has read a byte. It is there, and not just being started, when it
/// is asked for.
fn start(after_us: u64, raised: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["child", &after_us.to_string(), raised]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("it starts")
}

fn set(client: &mut Client, child: &Child, inherit: bool) -> (Outcome, Duration) {
    let request = api::Set {
        pid: child.id() as i32,
        cpu: api::Reservation { budget_ns: 1_000_000, period_ns: 100_000_000 },
        inherit: Some(inherit),
        revocable: Some(true),
        keep_if_refused: Some(false),
        requests_at: None,
    };
    let begin = Instant::now();
    let outcome = match client.call(&request) {
        Ok(_) => Outcome::Given,
        Err(Error::Api(api::ApiError::PermissionDenied { reason })) => match () {
            () if reason.contains("has the rights of several users") => Outcome::Refused,
            () if reason.contains("became another user's meanwhile") => Outcome::TakenBack,
            () => {
                println!("{reason}");
                Outcome::Other
            }
        },
        Err(error) => {
            println!("{error}");
            Outcome::Other
        }
    };
    (outcome, begin.elapsed())
}

/// Waits until the child runs as the other program, which the kernel makes of it in several steps.
fn await_raised(child: &mut Child) {
    let mut says = child.stdout.take().expect("it is a pipe");
    says.read_exact(&mut [0]).expect("it says that it has begun");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it waits");
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let users: Vec<&str> = users.split_whitespace().collect();
    assert!(users.len() == 4 && users[0] != users[1], "it has no other rights: {users:?}");
}

/// Whether the child has anything.
fn holds(client: &mut Client, child: &Child) -> bool {
    let status = client.call(&api::Status {}).expect("anybody may read");
    status.cpu.tasks.iter().any(|task| task.pid == child.id() as i32)
}

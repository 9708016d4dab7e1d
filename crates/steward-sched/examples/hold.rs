//! Loads the scheduler, optionally gives one program a reservation, and holds it for some seconds, printing what it
//! does. For trying the program in the lab's machine: `hold SECONDS [C_MS T_MS COMMAND...]`.

use std::process::Command;
use std::time::{Duration, Instant};

use steward_core::mechanism::{Grant, Mechanism, Reservation};
use steward_sched::{LoadOptions, SchedExt};

fn main() {
    // RUST_LOG=bpf=debug shows what libbpf and the verifier say.
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut scheduler = SchedExt::load(&LoadOptions::default()).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    println!("loaded");
    if let [_, budget_ms, period_ms, program, rest @ ..] = arguments.as_slice() {
        let ms = |text: &String| text.parse::<f64>().map_or(0, |ms| (ms * 1e6) as u64);
        let mut child = Command::new(program).args(rest).spawn().expect("the program starts");
        let reservation = Reservation { budget_ns: ms(budget_ms), period_ns: ms(period_ms) };
        let grant = Grant { reservation, inherit: true, revocable: true, keep_over_exec: true, spec_id: 0 };
        println!("{:?}", scheduler.assign(child.id() as i32, Some(grant)));
        // Taken off the list of processes when it ends.
        std::thread::spawn(move || child.wait());
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(500));
        scheduler.take_events(&mut |event| println!("{event:?}"));
        if let Some(reason) = scheduler.exit_reason() {
            println!("gone: {reason}");
            return;
        }
    }
    println!("{:#?}", scheduler.snapshot());
}

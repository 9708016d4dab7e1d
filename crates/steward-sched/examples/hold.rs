//! Loads the scheduler, optionally gives one program a reservation, and holds it for some seconds, printing what it
//! does. For trying the program in the lab's machine: `hold [OPTION...] SECONDS [C_MS T_MS COMMAND...]`, where an
//! option is `--best-effort virtual-time|mtr-ls|wrr`, `--cycle MS`, `--domain CGROUP_DIRECTORY=FRACTION` (as often as
//! wanted), `--quiet`, or `--verified`, which prints how many instructions the verifier looked at for each program, and
//! at the end what each run of it took (with `sysctl kernel.bpf_stats_enabled=1`).

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use steward_core::cpu::config::order_by_name;
use steward_core::cpu::mechanism::Mechanism;
use steward_core::cpu::policy::DomainPolicy;
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_sched::{LoadOptions, SchedExt};

fn main() {
    // RUST_LOG=bpf=debug shows what libbpf and the verifier say.
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = LoadOptions::default();
    let mut domains = Vec::new();
    let (mut quiet, mut verified) = (false, false);
    while arguments.first().is_some_and(|first| first.starts_with("--")) {
        let option = arguments.remove(0);
        match option.as_str() {
            "--quiet" => {
                quiet = true;
                continue;
            }
            "--verified" => {
                verified = true;
                continue;
            }
            _ => {}
        }
        let value = arguments.remove(0);
        match option.as_str() {
            "--best-effort" => {
                options.best_effort.order = order_by_name(&value).unwrap_or_default();
            }
            "--cycle" => {
                options.best_effort.service_cycle_ns =
                    value.parse::<u64>().expect("a number of ms") * 1_000_000
            }
            "--domain" => domains.push(value),
            _ => panic!("{option} is no option"),
        }
    }
    let seconds: u64 = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut scheduler = SchedExt::load(&options).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    println!("loaded");
    if verified {
        for program in libbpf_rs::query::ProgInfoIter::default() {
            println!("{:>8} {}", program.verified_insns, program.name.to_string_lossy());
        }
    }
    for domain in &domains {
        let (directory, fraction) = domain.split_once('=').expect("DIRECTORY=FRACTION");
        let cgroup_id = std::fs::metadata(directory).expect("the cgroup exists").ino();
        let reserved = fraction.parse().expect("a fraction");
        let policy = DomainPolicy { reserved, ..DomainPolicy::default() };
        println!("{directory}: {:?}", scheduler.set_domain(cgroup_id, Some(policy)));
    }
    if let [_, budget_ms, period_ms, program, rest @ ..] = arguments.as_slice() {
        let ms = |text: &String| text.parse::<f64>().map_or(0, |ms| (ms * 1e6) as u64);
        let mut child = Command::new(program).args(rest).spawn().expect("the program starts");
        let reservation = Reservation { budget_ns: ms(budget_ms), period_ns: ms(period_ms) };
        let irrevocable_for = IrrevocableFor::Anybody;
        let grant = Grant {
            reservation,
            inherit: true,
            revocable: true,
            irrevocable_for,
            keep_over_exec: true,
            requests_at: None,
            spec_id: 0,
        };
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
    if verified {
        for program in libbpf_rs::query::ProgInfoIter::default().filter(|program| program.run_cnt > 0) {
            let name = program.name.to_string_lossy();
            println!(
                "{:>8} runs of {:>6} ns: {name}",
                program.run_cnt,
                program.run_time_ns / program.run_cnt
            );
        }
    }
    if !quiet {
        println!("{:#?}", scheduler.snapshot());
        println!("{:#?}", scheduler.domains());
    }
}

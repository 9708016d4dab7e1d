//! Prints what disks did for whom, and who waited for them: `ledger-seen SECONDS`.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use steward_core::disk::ledger::Served;
use steward_waits::ledger::Ledger;

fn main() -> Result<()> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let mut ledger = Ledger::start()?;
    println!("lacks: {:?}", ledger.lacks());
    let mut served: Vec<Served> = Vec::new();
    for _ in 0..seconds {
        sleep(Duration::from_secs(1));
        let reading = ledger.read(now_ns())?;
        served.extend(reading.served);
        for wait in reading.waits {
            let mut by: BTreeMap<String, u64> = BTreeMap::new();
            for line in served.iter().filter(|line| line.at_ns > wait.began_ns && line.at_ns <= wait.ended_ns)
            {
                *by.entry(format!("{:?} of {} {} {}", line.what, line.cgroup_id, line.pid, line.name))
                    .or_default() += if line.device_ns == 0 { 1_000_000 } else { line.device_ns };
            }
            println!(
                "{} {} {}: {} ms, journal {}, others' {}, dirty {}",
                wait.name,
                wait.pid,
                if wait.goes_on { "waits" } else { "waited" },
                wait.waited_ns() / 1_000_000,
                wait.journal_ns / 1_000_000,
                wait.others_commit_ns / 1_000_000,
                wait.dirty_ns / 1_000_000
            );
            for (who, ns) in by {
                println!("    {who}: {} ms", ns / 1_000_000);
            }
        }
    }
    for (key, account) in ledger.read(now_ns())?.accounts {
        let part = |part| account.latencies.percentile_ns(part).unwrap_or(0) / 1_000;
        println!(
            "{key:?}: {} requests, p50 {} p99 {} max {} us, device {} ms",
            account.latencies.requests(),
            part(0.5),
            part(0.99),
            account.max_ns / 1_000,
            account.device_ns / 1_000_000
        );
    }
    Ok(())
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

//! What it costs to read the forecasts of many tasks through the socket: the call, the daemon's answer, and its
//! parsing. `forecast-read [TASKS]... [--reads N]`; the tasks are made up, a tenth of them busy, in a hundred domains.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libsteward::{Client, api};
use steward_kernel::Roots;
use stewardd::daemon::Daemon;
use stewardd::fake::cgroups::FakeCgroups;
use stewardd::fake::disk::FakeDisk;
use stewardd::fake::tasks::{FakeTask, FakeTasks};
use stewardd::fake::{Fake, options};
use stewardd::files::watch::Watch;
use stewardd::server::{Server, peer};
use stewardd::turn::{self, Controls};

const DOMAINS: u32 = 100;
const READS: usize = 30;

fn main() -> anyhow::Result<()> {
    let mut counts: Vec<i32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![1_000, 10_000];
    }
    counts.into_iter().try_for_each(measure)
}

fn measure(count: i32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let place = |name: &str| directory.path().join(name);
    let (cgroups, tasks) = (FakeCgroups::default(), FakeTasks::default());
    for number in 0..DOMAINS {
        cgroups.tree().add(&format!("domain-{number}.slice"), 0);
    }
    tasks.tasks().extend((1..=count).map(|pid| {
        let domain = format!("domain-{}.slice", pid as u32 % DOMAINS);
        let busy = if pid % 10 == 0 { 0.01 } else { 0.0 };
        FakeTask::new(pid, 1000, cgroups.tree().id(&domain), busy, busy)
    }));
    let options = options(directory.path(), Roots::default());
    let mut daemon = Daemon::start(
        options,
        Fake::default().loader(),
        Ok(Box::new(cgroups)),
        Arc::new(FakeDisk::default()),
    )?;
    daemon.set_task_source(Box::new(tasks));
    let server = Server::bind(&place("socket"), Box::new(peer::from_kernel))?;
    let (stop, stopped) = UnixStream::pair()?;
    let (_reload, reload) = UnixStream::pair()?;
    reload.set_nonblocking(true)?;
    let controls = Controls { stop: stopped, reload };
    let watch = Watch::new()?;
    let serving = std::thread::spawn(move || turn::run(daemon, server, None, watch, controls));
    while !serving.is_finished() && UnixStream::connect(place("socket")).is_err() {
        std::thread::yield_now();
    }

    let mut client = Client::connect(place("socket"))?;
    let request = api::ListForecasts::default();
    while client.call(&request)?.window_ns == 0 {}
    let mut costs: Vec<Duration> = Vec::new();
    for _ in 0..READS {
        let begun = Instant::now();
        let forecasts = client.call(&request)?;
        costs.push(begun.elapsed());
        anyhow::ensure!(forecasts.tasks.len() == count as usize, "{} tasks", forecasts.tasks.len());
    }
    costs.sort_unstable();
    println!(
        "{count} tasks: a read takes {:?} (least {:?}, most {:?})",
        costs[READS / 2],
        costs[0],
        costs[READS - 1]
    );
    drop(stop);
    serving.join().expect("the daemon does not panic")
}

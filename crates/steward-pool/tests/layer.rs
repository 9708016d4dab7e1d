//! The layer against a daemon that is played by the test.
#![cfg(feature = "tower")]

#[path = "../../libsteward/tests/daemon/mod.rs"]
mod daemon;

use std::time::Instant;

use libsteward::api::{self, Method};
use steward_pool::{Settings, WorkerPoolLayer};

/// A process of so many threads that all want the one CPU, at this moment.
fn forecasts(runnable: usize, at_ms: u64) -> api::Forecasts {
    let task = api::TaskForecast { runnable: true, ..api::TaskForecast::default() };
    api::Forecasts {
        at_ns: at_ms * 1_000_000,
        cpus: 1,
        machine: api::Forecast { actual_ms_per_s: 1_000.0, ..api::Forecast::default() },
        tasks: vec![task; runnable],
        ..api::Forecasts::default()
    }
}

/// Waits for something that another thread does.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now();
    while !is_so() {
        assert!(patience.elapsed().as_secs() < 60, "{what} did not come about");
        std::thread::yield_now();
    }
}

fn settings() -> Settings {
    Settings { smallest: 1, largest: 8, patience_ns: 0, ..Settings::default() }
}

#[test]
fn the_limit_follows_the_forecasts_and_ends_with_the_layer() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let feed = daemon::feed(&socket, api::WatchForecasts::NAME);
    let layer =
        WorkerPoolLayer::watching(settings(), 4, socket, api::WatchForecasts::default()).expect("valid");
    assert_eq!(layer.size(), 4);
    for at_ms in [0, 600] {
        feed.send(forecasts(50, at_ms)).expect("the daemon lives");
    }
    until("a smaller pool", || layer.size() == 3);
    for at_ms in [20_000, 20_600] {
        feed.send(forecasts(50, at_ms)).expect("the daemon lives");
    }
    until("the smallest pool", || layer.size() == 1);
    drop(layer);
    // The thread notices at the next forecast, and closes its connection.
    until("the end of the watch", || feed.send(forecasts(50, 21_000)).is_err());
}

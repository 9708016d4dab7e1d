//! The layer against a daemon that is played by the test.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::Instant;

use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::*;

/// A socket at which forecasts can be given to whoever asks first.
fn daemon(path: &std::path::Path) -> mpsc::Sender<api::Forecasts> {
    let listener = UnixListener::bind(path).expect("a socket");
    let (sender, receiver) = mpsc::channel::<api::Forecasts>();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut asked = [0u8; 1024];
        let count = stream.read(&mut asked).expect("a call");
        assert!(String::from_utf8_lossy(&asked[..count]).contains("io.steward.WatchForecasts"));
        for forecasts in receiver {
            let reply = serde_json::json!({"parameters": forecasts, "continues": true});
            let mut message = serde_json::to_vec(&reply).expect("JSON");
            message.push(0);
            if stream.write_all(&message).is_err() {
                return;
            }
        }
    });
    sender
}

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
    let feed = daemon(&socket);
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

#[tokio::test]
async fn no_more_requests_pass_than_the_limit_and_those_that_wait_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("nobody");
    let layer =
        WorkerPoolLayer::watching(settings(), 1, socket, api::WatchForecasts::default()).expect("valid");
    let (open, opened) = tokio::sync::watch::channel(false);
    let service = ServiceBuilder::new().layer(layer.clone()).service(service_fn(move |request: u32| {
        let mut opened = opened.clone();
        async move {
            let _ = opened.wait_for(|open| *open).await;
            Ok::<_, std::convert::Infallible>(request)
        }
    }));
    let first = tokio::spawn(service.clone().oneshot(1));
    let second = tokio::spawn(service.clone().oneshot(2));
    while layer.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished() && !second.is_finished());
    open.send(true).expect("the service lives");
    let answers = [first.await.expect("no panic"), second.await.expect("no panic")];
    assert_eq!(answers, [Ok(1), Ok(2)]);
    assert_eq!((layer.waiting(), layer.size()), (0, 1));
}

#[tokio::test]
async fn one_who_gives_up_waiting_is_not_counted_any_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("nobody");
    let layer =
        WorkerPoolLayer::watching(settings(), 1, socket, api::WatchForecasts::default()).expect("valid");
    let service = ServiceBuilder::new()
        .layer(layer.clone())
        .service(service_fn(|()| std::future::pending::<Result<(), std::convert::Infallible>>()));
    let first = tokio::spawn(service.clone().oneshot(()));
    let second = tokio::spawn(service.clone().oneshot(()));
    while layer.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    second.abort();
    assert!(first.await.is_err() && second.await.is_err());
    assert_eq!(layer.waiting(), 0);
    assert_eq!(layer.gate.permits().available_permits(), 1);
}

//! The layer without a daemon.

use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::*;

fn settings() -> Settings {
    Settings { smallest: 1, largest: 8, patience_ns: 0, ..Settings::default() }
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

//! The layer: around a plain service, and in an axum service over a real connection.
#![cfg(all(feature = "tower", feature = "http"))]

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::{get, post};
use steward_server::{Answer, Goal, Otherwise, Refused, RouteSnapshot, Server, ServerLayer, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::{ServiceBuilder, ServiceExt, service_fn};

/// Two requests are accepted for as long as a test takes.
fn server(otherwise: Otherwise) -> Server {
    let goal = Goal::new(Duration::from_secs(400), 0.6).costing(Duration::from_secs(100));
    let settings = Settings { socket: None, plain_workers: 1, cpus: 1, ..Settings::default() };
    Server::start(settings.route("/a", goal.otherwise(otherwise))).expect("valid")
}

fn seen(server: &Server) -> RouteSnapshot {
    server.snapshot().routes.remove(0)
}

#[derive(Debug, PartialEq)]
enum Reply {
    Served(u32),
    Refused,
    Panicked,
}

impl Answer for Reply {
    fn refused(_: &Refused) -> Self {
        Reply::Refused
    }

    fn panicked() -> Self {
        Reply::Panicked
    }
}

#[tokio::test]
async fn requests_are_served_refused_or_end_in_a_panic_and_each_is_counted() {
    let server = server(Otherwise::Refuse);
    let route = server.route("/a").expect("given");
    let service = ServiceBuilder::new().layer(ServerLayer::new(&server, route)).service(service_fn(
        |request: u32| async move {
            // What is waited for is the runtime's, wherever the request is served.
            let (tell, told) = tokio::sync::oneshot::channel();
            tokio::spawn(async move { tell.send(()) });
            told.await.expect("told");
            assert_ne!(request, 2, "the second one panics");
            Ok::<_, Infallible>(Reply::Served(request))
        },
    ));
    let mut replies = Vec::new();
    for request in 1..=3 {
        replies.push(service.clone().oneshot(request).await.expect("infallible"));
    }
    assert_eq!(replies, [Reply::Served(1), Reply::Panicked, Reply::Refused]);
    server.close(Duration::from_secs(60));
    let counts = seen(&server).counts;
    assert_eq!((counts.met, counts.panicked, counts.refused), (1, 1, 1));
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_worker() {
    let server = server(Otherwise::BestEffort);
    let route = server.route("/a").expect("given");
    let service = ServiceBuilder::new().layer(ServerLayer::new(&server, route)).service(service_fn(
        |request: u32| async move {
            if request < 3 { pending().await } else { Ok::<_, Infallible>(Reply::Served(request)) }
        },
    ));
    // The first holds the only worker, the second waits behind it; both are given up.
    let first = tokio::spawn(service.clone().oneshot(1));
    let second = tokio::spawn(service.clone().oneshot(2));
    while seen(&server).in_hand < 2 {
        tokio::task::yield_now().await;
    }
    first.abort();
    second.abort();
    assert_eq!(service.oneshot(3).await, Ok(Reply::Served(3)));
    server.close(Duration::from_secs(60));
    assert_eq!((seen(&server).counts.abandoned, seen(&server).in_hand), (2, 0));
}

#[tokio::test]
async fn in_place_the_cpu_time_of_each_poll_is_the_request_s() {
    let server = server(Otherwise::Refuse);
    let route = server.route("/a").expect("given");
    let here = std::thread::current().id();
    let service = ServiceBuilder::new().layer(ServerLayer::new(&server, route).in_place()).service(
        service_fn(move |request: u32| async move {
            assert_eq!(std::thread::current().id(), here);
            if request == 2 {
                pending::<()>().await;
            }
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(Reply::Served(request))
        }),
    );
    assert_eq!(service.clone().oneshot(1).await, Ok(Reply::Served(1)));
    let second = tokio::spawn(service.clone().oneshot(2));
    while seen(&server).in_hand == 0 {
        tokio::task::yield_now().await;
    }
    second.abort();
    assert!(second.await.expect_err("aborted").is_cancelled());
    assert_eq!(service.oneshot(3).await, Ok(Reply::Refused));
    let counts = seen(&server).counts;
    assert_eq!((counts.met, counts.abandoned, counts.refused, seen(&server).in_hand), (1, 1, 1, 0));
}

/// What a client gets that asks over a connection of its own.
async fn ask(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}

#[tokio::test]
async fn an_axum_service_needs_one_line() {
    let server = server(Otherwise::Refuse);
    let app = Router::new()
        .route("/a", get(|| async { "served" }))
        .route("/panics", get(|| async { "no goal" }))
        .layer(server.layer())
        .layer(server.page_at("/steward"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    for _ in 0..2 {
        let answer = ask(address, "/a").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("served"), "{answer}");
    }
    let refused = ask(address, "/a").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nretry-after: "), "{refused}");
    assert!(ask(address, "/panics").await.ends_with("no goal"));
    assert!(ask(address, "/steward").await.contains("ROUTE"));
    assert!(ask(address, "/steward/x").await.starts_with("HTTP/1.1 404 "), "only that path is the page");
    assert!(ask(address, "/steward?json").await.contains(r#""refused":1"#));
    serving.abort();
}

#[tokio::test]
async fn a_client_that_closes_its_connection_frees_the_worker_of_its_request() {
    let server = server(Otherwise::BestEffort);
    let handler = |request: Request<Body>| async move {
        if request.uri().query() == Some("waits") {
            pending::<()>().await;
        }
        "served"
    };
    let app = Router::new().route("/a", get(handler)).layer(server.layer());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut gone = tokio::net::TcpStream::connect(address).await.expect("it listens");
    gone.write_all(b"GET /a?waits HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    while seen(&server).in_hand == 0 {
        tokio::task::yield_now().await;
    }
    drop(gone);
    // There is one worker.
    assert!(ask(address, "/a").await.ends_with("served"));
    serving.abort();
    server.close(Duration::from_secs(60));
    let seen = seen(&server);
    assert_eq!((seen.counts.abandoned, seen.counts.met, seen.in_hand), (1, 1, 0));
}

/// Clients that send the bodies of their requests slowly, or never, as a hostile one does to many servers at once: each
/// would have a worker, and more than there are, those that take the places of such included.
#[tokio::test]
async fn requests_that_wait_for_their_clients_cost_no_worker_once_their_time_is_over() {
    let goal = Goal::new(Duration::from_millis(2), 0.6);
    let settings = Settings { socket: None, plain_workers: 1, strays_max: 1, cpus: 1, ..Settings::default() };
    let server = Server::start(settings.route("/a", goal)).expect("valid");
    let app = Router::new().route("/a", post(|body: String| async { body })).layer(server.layer());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let begin = async |body: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let head = "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
        stream
    };
    let answer = async |mut stream: tokio::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    };
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(begin("be").await);
    }
    let patience = Duration::from_secs(60);
    let quick = tokio::time::timeout(patience, async { answer(begin("fast").await).await }).await;
    assert!(quick.is_ok_and(|answer| answer.ends_with("fast")));
    while seen(&server).counts.overdue < 8 {
        tokio::task::yield_now().await;
    }
    // One goes, and the others are answered when all of their requests is there.
    drop(slow.pop());
    for mut stream in slow {
        stream.write_all(b"at").await.expect("sent");
        assert!(answer(stream).await.ends_with("beat"));
    }
    // One that was late by little is in hand and not overdue, and that its client has gone is noticed in a while.
    let is_open = |seen: RouteSnapshot| seen.counts.overdue > 0 || seen.in_hand > 0;
    while is_open(seen(&server)) {
        tokio::task::yield_now().await;
    }
    let seen = seen(&server);
    let counts = seen.counts;
    // The one that has gone was abandoned, or read what there was of its request and failed.
    let answered = counts.met + counts.missed + counts.best_effort_met + counts.best_effort_missed;
    assert_eq!((answered + counts.abandoned, seen.in_hand, counts.panicked), (9, 0, 0), "{counts:?}");
    assert_eq!(server.snapshot().best_effort_workers, 1);
    assert_eq!(server.close(patience), 0);
    serving.abort();
}

#[test]
fn an_answer_of_any_body_says_what_happened() {
    let response: Response<Body> = Answer::panicked();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

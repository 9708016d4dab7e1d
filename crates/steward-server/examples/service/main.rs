//! A web service with two kinds of requests, each with a goal; README.md beside this file goes through it.
//!
//! `cargo run --release -p steward-server --example service [ADDRESS]`

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use steward_server::{Goal, Otherwise, Server, Settings};

/// Stands for a request that computes: some rounds of work.
fn compute(rounds: u64) -> String {
    let result = (0..rounds).fold(1u64, |state, round| std::hint::black_box(state.wrapping_mul(31) ^ round));
    format!("{result}\n")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());

    // Searches are answered within 100 ms, with at most 40 % of the CPU. When there are more than that allows, the rest
    // is told to come back.
    let search = Goal::new(Duration::from_millis(100), 0.4).otherwise(Otherwise::Refuse);
    // Reports within 2 s, with 20 %. More of them are made when there is nothing better to do.
    let report = Goal::new(Duration::from_secs(2), 0.2);
    let server = Server::start(Settings::default().route("/search", search).route("/report", report))?;

    let app = Router::new()
        .route("/search", get(|| async { compute(2_000_000) }))
        .route("/report", get(|| async { compute(50_000_000) }))
        // The one line.
        .layer(server.layer())
        // And what there is to see, at a path of your choice.
        .layer(server.page_at("/steward"));

    // The runtime's threads only take requests in and send answers; they must not wait for the workers meanwhile.
    let takes_in = server.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || {
            takes_in.reserve_for_this_thread(Duration::from_millis(1), Duration::from_millis(20));
        })
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        println!("http://{address}/search, /report, and /steward for what there is to see");
        axum::serve(listener, app).await
    })?;
    Ok(())
}

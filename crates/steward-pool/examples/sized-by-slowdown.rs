//! A service that computes, behind a limit that follows Steward's forecasts; prints the limit as it changes.
//!
//! `cargo run -p steward-pool --example sized-by-slowdown [SECONDS]`

use std::convert::Infallible;
use std::time::{Duration, Instant};

use steward_pool::{Settings, WorkerPoolLayer};
use tower::{ServiceBuilder, ServiceExt, service_fn};

/// A request that needs some CPU time, in a thread of its own.
async fn compute(rounds: u64) -> Result<u64, Infallible> {
    let work =
        move || (0..rounds).fold(1u64, |state, round| std::hint::black_box(state.wrapping_mul(31) ^ round));
    Ok(tokio::task::spawn_blocking(work).await.expect("the work does not panic"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let layer = WorkerPoolLayer::new(Settings { largest: 64, ..Settings::default() }, 64)?;
    let service = ServiceBuilder::new().layer(layer.clone()).service(service_fn(compute));
    for _ in 0..100 {
        let service = service.clone();
        tokio::spawn(async move {
            loop {
                // One client: it asks again as soon as it has its answer.
                let _ = service.clone().oneshot(20_000_000).await;
            }
        });
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        println!("{} at work, {} waiting", layer.size(), layer.waiting());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

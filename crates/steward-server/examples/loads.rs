//! How many requests of streams and of loads drawn at random are answered in time, by the server and by pools: on CPUs
//! in memory, so that it says the same everywhere. What docs/how-to/server-response-times.md says of that is from here.
//!
//! `cargo run --release -p steward-server --features simulation --example loads`

use steward_server::simulation::{random_load, stream, sums};

fn main() {
    for rate in [50, 80, 90, 100, 120, 150, 200, 400] {
        println!("{rate} a second: {:?}", sums((0..20).map(|seed| stream(rate, seed))));
    }
    println!("random: {:?}", sums((0..200).map(random_load)));
}

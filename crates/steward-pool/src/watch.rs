//! Forecasts as they come, across restarts of the daemon.

use std::path::Path;
use std::time::Duration;

use libsteward::{Client, Error, api};

/// What comes from [`forecasts`].
#[derive(Debug)]
pub enum Watched {
    /// A new forecast.
    Forecasts(Box<api::Forecasts>),
    /// There are none, for this reason; the next attempt follows by itself.
    Nothing(Error),
}

/// Between two attempts to reach the daemon.
const PAUSE: Duration = Duration::from_secs(2);

/// Asks for `request` at `socket`, and calls `take` with what comes until that returns false. Blocks: give it a thread
/// of its own. While the daemon cannot be reached or refuses it tries again every two seconds.
pub fn forecasts(socket: &Path, request: &api::WatchForecasts, mut take: impl FnMut(Watched) -> bool) {
    loop {
        match Client::connect(socket).and_then(|client| client.stream(request)) {
            Ok(replies) => {
                for reply in replies {
                    let watched =
                        reply.map_or_else(Watched::Nothing, |reply| Watched::Forecasts(Box::new(reply)));
                    if !take(watched) {
                        return;
                    }
                }
            }
            Err(error) => {
                if !take(Watched::Nothing(error)) {
                    return;
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
}

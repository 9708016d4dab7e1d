//! The thread that looks after time: requests whose turn it is, requests that do not end, workers that are missing.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::state::Class;
use crate::clock;

/// After a thread could not be had.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks after the server until it is closed and nobody is at work.
pub(super) fn keep(shared: &Arc<Shared>) {
    loop {
        let now_ns = clock::now_ns();
        let (timeout, missing) = {
            let mut state = shared.state();
            state.let_in(now_ns);
            let (overdue_ns, count) = state.give_up(now_ns);
            if count > 0 {
                tracing::warn!(
                    "steward-server: {count} requests do not end: others take the place of their workers"
                );
            }
            let next_ns = [overdue_ns, state.controller.poll_timeout(now_ns)].into_iter().flatten().min();
            state.keeper_wakes(next_ns);
            if state.is_closing && state.is_over() {
                return;
            }
            (next_ns.map(|next_ns| Duration::from_nanos(next_ns.saturating_sub(now_ns))), state.missing())
        };
        match (0..missing).try_for_each(|_| shared.start(Class::BestEffort, |_| Some(None)).map(drop)) {
            Ok(()) if missing > 0 => {}
            Ok(()) => shared.keeper_waits(timeout),
            Err(error) => {
                tracing::warn!(
                    "steward-server: the kernel gives no thread for a worker: {error}; trying again"
                );
                std::thread::sleep(PAUSE);
            }
        }
    }
}

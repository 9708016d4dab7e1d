//! What the CPU's room keeps.

use std::os::fd::BorrowedFd;

use steward_core::cpu::mechanism::MechanismError;
use steward_core::cpu::plan::ByHand;
use steward_core::cpu::retry::Retries;
use steward_core::cpu::waiting::Waiting;

use super::audit::Audit;
use super::herald::Sampler;
use super::mechanisms::{Enforcer, InForce, Loader};
use super::suspension::Suspensions;
use crate::files::state::StateFile;
use crate::turn::descriptors::{Source, Wait};
use crate::turn::part::Part;
use crate::turn::worker::Worker;

/// With how many, and twice as many as ran last, they are cleared sooner.
pub(crate) const PRUNE_ABOVE_MIN: usize = 64;

/// What became of the mechanisms so far.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Why the one in force is not the one that was asked for.
    pub(crate) note: Option<String>,
    /// Why the last one ended.
    pub(crate) exit_reason: Option<String>,
    /// How often one was loaded again.
    pub(crate) restarts: u64,
    pub(crate) retries: Retries,
    pub(crate) retry_at_ns: Option<u64>,
    pub(crate) load_failed: bool,
}

/// What a change of specifications did to running tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) assigned: u64,
    pub(crate) released: u64,
}

/// The CPU's part of the daemon.
pub(crate) struct Cpu {
    pub(crate) loader: Loader,
    pub(crate) mechanism: InForce,
    pub(crate) loading: Loading,
    /// What people gave.
    pub(crate) by_hand: Vec<ByHand>,
    pub(crate) state: StateFile<ByHand>,
    pub(crate) sampler: Sampler,
    pub(crate) suspensions: Suspensions,
    pub(crate) audit: Audit,
    pub(crate) waiting: Waiting,
    pub(crate) prune_at_ns: u64,
    /// With how many that were given something by hand those are sought that have ended.
    pub(crate) prune_above: usize,
    pub(crate) scan_at_ns: u64,
}

impl Cpu {
    /// Nothing is in force yet; `by_hand` is what an earlier daemon of this boot kept.
    pub(crate) fn new(loader: Loader, state: StateFile<ByHand>, by_hand: Vec<ByHand>, audit: Audit) -> Self {
        Cpu {
            loader,
            mechanism: None,
            loading: Loading::default(),
            by_hand,
            state,
            sampler: Sampler::default(),
            suspensions: Suspensions::default(),
            audit,
            waiting: Waiting::default(),
            prune_at_ns: 0,
            prune_above: PRUNE_ABOVE_MIN,
            scan_at_ns: 0,
        }
    }

    /// Takes back what tasks were given, lets the mechanism go, and has the record of promises written.
    pub(crate) fn stop(&mut self, worker: &mut Worker) {
        if let Some(mechanism) = self.mechanism.take() {
            take_back(mechanism);
        }
        self.audit.finish(worker);
    }
}

/// Takes from all tasks what they hold, and lets the mechanism go.
fn take_back(mut mechanism: Box<dyn Enforcer>) {
    let held = mechanism.snapshot().map(|snapshot| snapshot.tasks).unwrap_or_default();
    if let Err(error) = mechanism.set_exec_table(&[]) {
        tracing::warn!(%error, "while stopping");
    }
    for task in held {
        match mechanism.assign_thread(task.pid, task.tid, None) {
            Ok(_) | Err(MechanismError::NoSuchTask { .. } | MechanismError::Gone { .. }) => {}
            Err(error) => tracing::warn!(%error, "while stopping"),
        }
    }
}

impl Part for Cpu {
    fn descriptor(&self) -> Option<Wait<'_>> {
        let mechanism = self.mechanism.as_ref().and_then(|mechanism| mechanism.event_descriptor());
        // SAFETY: the mechanism keeps its descriptor open for as long as it lives, and it is not touched while this is
        // borrowed.
        let mechanism = mechanism.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) });
        mechanism.map(|events| Wait::readable(Source::Mechanism, events))
    }

    fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let scans = self.mechanism.as_ref().is_some_and(|mechanism| mechanism.scan_every().is_some());
        let scan_at_ns = scans.then_some(self.scan_at_ns);
        let sample_at_ns = Some(self.sampler.wake_at_ns(now_ns));
        let moments = [self.loading.retry_at_ns, scan_at_ns, self.audit.wake_at_ns(), sample_at_ns];
        moments.into_iter().flatten().min()
    }
}

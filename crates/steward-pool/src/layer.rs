//! A tower layer that lets as many requests through at once as the controller says.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use libsteward::api;
use tokio_util::sync::PollSemaphore;
use tower_layer::Layer;
use tower_service::Service;

use crate::controller::{Observed, Settings, SettingsError, WorkerPool};
use crate::gate::{Gate, Place, Waiting};
use crate::watch::{self, Watched};

/// Limits how many requests a service works on at once, by how many of the program's own threads share each CPU.
///
/// All clones and all services made by one layer share one limit. A thread of its own reads the forecasts; it ends with
/// the last of them. While there is no daemon the limit stays what it is, and a `tracing` warning says so once.
///
/// It fits services whose requests compute in a thread of their own (`tokio::task::spawn_blocking`, a thread pool):
/// then threads are workers. The few threads of a runtime that handlers share are never a crowd: there the limit keeps
/// the CPU from being idle, and no more.
#[derive(Clone, Debug)]
pub struct WorkerPoolLayer {
    gate: Arc<Gate>,
}

impl WorkerPoolLayer {
    /// A limit of `workers` at first, which follows the forecasts of this process that the daemon at
    /// [`libsteward::SOCKET_PATH`] gives.
    ///
    /// # Errors
    /// What is wrong with `settings`.
    pub fn new(settings: Settings, workers: u32) -> Result<Self, SettingsError> {
        let pid = i32::try_from(std::process::id()).expect("process numbers fit");
        let request = api::WatchForecasts { pid: Some(pid), ..api::WatchForecasts::default() };
        Self::watching(settings, workers, libsteward::SOCKET_PATH.into(), request)
    }

    /// As [`WorkerPoolLayer::new`], for workers that are elsewhere: in a domain, in another process, seen by another
    /// daemon. What is asked for must have tasks in its answer (not `domains_only`): these are the workers.
    ///
    /// # Errors
    /// What is wrong with `settings`.
    pub fn watching(
        settings: Settings,
        workers: u32,
        socket: PathBuf,
        request: api::WatchForecasts,
    ) -> Result<Self, SettingsError> {
        let pool = WorkerPool::new(settings, workers)?;
        let gate = Arc::new(Gate::new(pool.size() as usize));
        let follower = Follower { gate: Arc::downgrade(&gate), pool, warned: false };
        let thread = std::thread::Builder::new().name("steward-pool".into());
        let begun = thread.spawn(move || {
            let mut follower = follower;
            watch::forecasts(&socket, &request, |watched| follower.take(watched));
        });
        if let Err(error) = begun {
            tracing::warn!(
                "steward-pool: no thread to read forecasts ({error}): the pool stays at {workers}"
            );
        }
        Ok(WorkerPoolLayer { gate })
    }

    /// How many requests may be worked on at once now.
    pub fn size(&self) -> usize {
        self.gate.size()
    }

    /// How many requests wait to be let through.
    pub fn waiting(&self) -> u64 {
        self.gate.waiting()
    }
}

impl<S> Layer<S> for WorkerPoolLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, entry: Entry::new(self.gate.clone()) }
    }
}

/// Applies forecasts to the gate for as long as somebody uses that.
struct Follower {
    gate: Weak<Gate>,
    pool: WorkerPool,
    warned: bool,
}

impl Follower {
    fn take(&mut self, watched: Watched) -> bool {
        let Some(gate) = self.gate.upgrade() else { return false };
        match watched {
            Watched::Forecasts(forecasts) => {
                let observed = Observed::of_tasks(&forecasts, Some(gate.waiting()));
                if let Some(size) = self.pool.observe(forecasts.at_ns, &observed) {
                    tracing::debug!("steward-pool: {size} workers: {}", self.pool.reason());
                    gate.resize(size as usize);
                }
            }
            Watched::Nothing(error) if !self.warned => {
                self.warned = true;
                tracing::warn!("steward-pool: no forecasts ({error}); the pool stays at {}", gate.size());
            }
            Watched::Nothing(_) => {}
        }
        true
    }
}

/// Where one copy of a service stands at the gate.
#[derive(Debug)]
struct Entry {
    gate: Arc<Gate>,
    permits: PollSemaphore,
    waiting: Option<Waiting>,
    place: Option<Place>,
}

impl Entry {
    fn new(gate: Arc<Gate>) -> Self {
        Entry { permits: PollSemaphore::new(gate.permits()), gate, waiting: None, place: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.place.is_some() {
            return Poll::Ready(());
        }
        let Poll::Ready(permit) = self.permits.poll_acquire(context) else {
            self.waiting.get_or_insert_with(|| Waiting::new(self.gate.clone()));
            return Poll::Pending;
        };
        self.waiting = None;
        self.place = Some(Place::new(self.gate.clone(), permit.expect("the semaphore is never closed")));
        Poll::Ready(())
    }
}

/// A service behind a [`WorkerPoolLayer`].
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    entry: Entry,
}

impl<S: Clone> Clone for Limited<S> {
    /// The copy stands in line anew: a place belongs to one.
    fn clone(&self) -> Self {
        Limited { inner: self.inner.clone(), entry: Entry::new(self.entry.gate.clone()) }
    }
}

impl<R, S: Service<R>> Service<R> for Limited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The inner service first: a place that is held while that is not ready would keep another one out.
        ready!(self.inner.poll_ready(context))?;
        self.entry.poll(context).map(Ok)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let place = self.entry.place.take().expect("poll_ready said that it is ready before call");
        ResponseFuture { inner: self.inner.call(request), _place: place }
    }
}

pin_project_lite::pin_project! {
    /// The answer of a [`Limited`] service; the request has its place until this is dropped.
    #[derive(Debug)]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        _place: Place,
    }
}

impl<F: Future> Future for ResponseFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().inner.poll(context)
    }
}

#[cfg(test)]
mod tests;

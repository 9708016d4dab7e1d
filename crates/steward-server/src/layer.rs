//! A tower layer: one line for services on axum, hyper or tonic.
//!
//! In an asynchronous runtime many requests share few threads, so that neither a thread's CPU time nor its reservation
//! is that of one request. Therefore a request is handed to a worker of the server's own, which polls it from the
//! beginning to the end: what the worker's thread uses meanwhile is what the request costs, and the worker's
//! reservation is its own. What it waits for (sockets, timers) is still the runtime's, and so is the request itself
//! when it has been at work for a response time and waits. Handing over and back costs two switches between threads.
//!
//! [`ServerLayer::in_place`] spares that for accepted requests: they stay on the runtime's threads, the CPU time of
//! each poll is measured, and nothing is reserved for them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tower_layer::Layer;
use tower_service::Service;

use crate::clock;
use crate::controller::{End, RouteId};
use crate::server::{Came, InHand, Outcome, Place, Refused, Server};

/// Which route a request is for.
pub trait Classify<R> {
    /// The route; `None` for a request that has no goal and is let through as it is.
    fn classify(&self, request: &R) -> Option<RouteId>;
}

impl<R> Classify<R> for RouteId {
    /// All requests are for this route.
    fn classify(&self, _: &R) -> Option<RouteId> {
        Some(*self)
    }
}

/// A response that says that there is none. [`http::Response`](https://docs.rs/http) is one (feature `http`).
pub trait Answer {
    /// The request was refused.
    fn refused(refused: &Refused) -> Self;
    /// The code that served it panicked.
    fn panicked() -> Self;
}

/// Has the requests of a service served by a [`Server`], so that those that it accepts are answered in time.
///
/// When nobody waits for an answer any more (the client has gone, the future is dropped), the request is not served, or
/// not to its end. What a response's body costs that is made after the response is not measured.
#[derive(Clone, Debug)]
pub struct ServerLayer<C> {
    server: Server,
    classes: C,
    is_in_place: bool,
}

impl<C> ServerLayer<C> {
    /// Requests are for the routes that `classes` says: a [`RouteId`] for all, or [`by_path`](Server::layer).
    pub fn new(server: &Server, classes: C) -> Self {
        ServerLayer { server: server.clone(), classes, is_in_place: false }
    }

    /// Accepted requests stay on the runtime's threads, for services whose requests cost so little that handing them to
    /// a worker would be most of it. The CPU time of each poll is measured (two system calls of some 200 ns). What they
    /// compute elsewhere (`spawn_blocking`) is not, and nothing is reserved for them. Others go to best-effort workers.
    #[must_use]
    pub fn in_place(self) -> Self {
        ServerLayer { is_in_place: true, ..self }
    }
}

impl<S, C: Clone> Layer<S> for ServerLayer<C> {
    type Service = Served<S, C>;

    fn layer(&self, inner: S) -> Served<S, C> {
        Served { inner, layer: self.clone() }
    }
}

/// A service behind a [`ServerLayer`].
#[derive(Clone, Debug)]
pub struct Served<S, C> {
    inner: S,
    layer: ServerLayer<C>,
}

impl<R, S, C> Service<R> for Served<S, C>
where
    R: Send + 'static,
    S: Service<R> + Clone + Send + 'static,
    S::Response: Answer + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
    C: Classify<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Some(route) = self.layer.classes.classify(&request) else {
            return ResponseFuture { way: Way::InPlace { inner: self.inner.call(request), in_hand: None } };
        };
        let way = match self.layer.server.arrive(route) {
            Err(refused) => Way::Refused { response: Some(S::Response::refused(&refused)) },
            Ok(place) if self.layer.is_in_place && place.is_accepted() => {
                let before_ns = clock::thread_cpu_ns();
                let inner = self.inner.call(request);
                let cpu_ns = clock::thread_cpu_ns().saturating_sub(before_ns);
                Way::InPlace { inner, in_hand: place.hold(cpu_ns) }
            }
            Ok(place) => {
                // The one that is ready serves; its copy has to become so first.
                let copy = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, copy);
                Way::Elsewhere { answer: serve(place, inner, request) }
            }
        };
        ResponseFuture { way }
    }
}

type Answered<R, S> = Result<<S as Service<R>>::Response, <S as Service<R>>::Error>;

/// Has a worker call the service and poll what it returns. Nobody wants the answer any more when the receiver is
/// dropped.
///
/// A request that has been at work for a response time and then waits for something leaves its worker, and the runtime
/// polls it from then on: a client that sends its request slowly costs no worker.
fn serve<R, S>(place: Place, mut inner: S, request: R) -> oneshot::Receiver<Answered<R, S>>
where
    R: Send + 'static,
    S: Service<R> + Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send + 'static,
{
    let (mut sender, receiver) = oneshot::channel();
    let (runtime, patience) = (Handle::try_current().ok(), place.patience());
    place.serve_job(Box::new(move || {
        if sender.is_closed() {
            return Outcome::Abandoned { has_begun: false }.into();
        }
        let _entered = runtime.as_ref().map(Handle::enter);
        let until = runtime.as_ref().and_then(|_| Instant::now().checked_add(patience));
        let mut response = Box::pin(inner.call(request));
        let polled =
            block_on_until(until, poll_fn(|context| poll_wanted(&mut sender, &mut response, context)));
        match (polled, &runtime) {
            (Some(answer), _) => match end(sender, answer) {
                End::Answered => Outcome::Done.into(),
                _ => Outcome::Abandoned { has_begun: true }.into(),
            },
            (None, Some(runtime)) => {
                let runtime = runtime.clone();
                Came::GoesOn(Box::new(move |afterwards| {
                    runtime.spawn(async move {
                        let polled =
                            poll_fn(|context| poll_wanted(&mut sender, &mut response, context)).await;
                        afterwards.end(end(sender, polled));
                    });
                }))
            }
            (None, None) => unreachable!("without a runtime there is no end to patience"),
        }
    }));
    receiver
}

/// The answer, once there is one; `None` once nobody wants it.
fn poll_wanted<T, E, F: Future<Output = Result<T, E>>>(
    sender: &mut oneshot::Sender<Result<T, E>>,
    response: &mut Pin<Box<F>>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<T, E>>> {
    match sender.poll_closed(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => response.as_mut().poll(context).map(Some),
    }
}

/// Sends an answer, if there is one. Whoever has gone by now does not mind.
fn end<T>(sender: oneshot::Sender<T>, answer: Option<T>) -> End {
    match answer {
        Some(answer) => {
            let _ = sender.send(answer);
            End::Answered
        }
        None => End::Abandoned,
    }
}

/// Wakes a thread that polls.
struct Polls(Thread);

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is a result; the thread sleeps in between. `None` when there is none by then and it would sleep.
fn block_on_until<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Polls(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return None,
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
    }
}

pin_project_lite::pin_project! {
    /// The answer of a [`Served`] service.
    #[derive(Debug)]
    pub struct ResponseFuture<F, T, E> {
        #[pin]
        way: Way<F, T, E>,
    }
}

pin_project_lite::pin_project! {
    // How a request is answered.
    #[derive(Debug)]
    #[project = Projected]
    enum Way<F, T, E> {
        // It has no goal, or was accepted and stays on the runtime's threads.
        InPlace { #[pin] inner: F, in_hand: Option<InHand> },
        // A worker has it, and sends the answer.
        Elsewhere { #[pin] answer: oneshot::Receiver<Result<T, E>> },
        // It was refused; this is said of that, once.
        Refused { response: Option<T> },
    }
}

impl<F, T: Answer, E> Future for ResponseFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            Projected::InPlace { inner, in_hand: None } => inner.poll(context),
            Projected::InPlace { inner, in_hand } => {
                let measured = in_hand.as_mut().expect("it is there").during(|| inner.poll(context));
                if measured.is_ready() {
                    in_hand.take().expect("it is there").end(End::Answered);
                }
                measured
            }
            Projected::Elsewhere { answer } => {
                // A sender that is dropped without a word was in the way of a panic.
                Poll::Ready(ready!(answer.poll(context)).unwrap_or_else(|_| Ok(T::panicked())))
            }
            Projected::Refused { response } => {
                Poll::Ready(Ok(response.take().expect("it is polled until it is ready, and no more")))
            }
        }
    }
}

//! HTTP: goals by path, answers for requests that are not served, and a page that shows what there is to see.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CACHE_CONTROL, CONTENT_TYPE, REFRESH, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::controller::RouteId;
use crate::layer::{Answer, Classify, ServerLayer};
use crate::server::{Refused, Server};

/// Routes by the path of a request: the one with the longest name that the path is or begins with, by whole segments.
/// `/search` is for `/search` and `/search/all`, and not for `/searches`; `/` is for all.
#[derive(Clone, Debug)]
pub struct ByPath {
    /// The longest first.
    routes: Arc<[(String, RouteId)]>,
}

impl ByPath {
    /// The routes of a server whose names begin with `/`.
    fn of(server: &Server) -> Self {
        let mut routes = server.routes();
        let routes_are_paths = |name: &str| name.starts_with('/');
        routes.retain(|(_, name)| routes_are_paths(name));
        routes.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
        ByPath { routes: routes.into_iter().map(|(route, name)| (name, route)).collect() }
    }

    fn find(&self, path: &str) -> Option<RouteId> {
        let is_for = |name: &str| {
            let rest = path.strip_prefix(name.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.routes.iter().find(|(name, _)| is_for(name)).map(|(_, route)| *route)
    }
}

impl<B> Classify<Request<B>> for ByPath {
    fn classify(&self, request: &Request<B>) -> Option<RouteId> {
        self.find(request.uri().path())
    }
}

impl Server {
    /// A layer for HTTP services: the names of routes are paths. Requests for other paths are let through as they are.
    ///
    /// `Router::new().route("/search", get(search)).layer(server.layer())`
    pub fn layer(&self) -> ServerLayer<ByPath> {
        ServerLayer::new(self, ByPath::of(self))
    }

    /// A layer that answers requests for one path with [`Server::page`], and lets all others through. Whoever can reach
    /// the path sees the page.
    ///
    /// `Router::new().route("/search", get(search)).layer(server.layer()).layer(server.page_at("/steward"))`
    pub fn page_at(&self, path: &str) -> PageLayer {
        PageLayer { server: self.clone(), path: path.into() }
    }

    /// What there is to see as a response: JSON for a request that accepts that (`Accept: application/json`) or asks
    /// for `?json`, else a table for people, which a browser gets anew every two seconds.
    pub fn page<A, B: From<String>>(&self, request: &Request<A>) -> Response<B> {
        let accepts = request.headers().get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        let is_json = request.uri().query() == Some("json")
            || accepts.is_some_and(|accepts| accepts.contains("application/json"));
        let snapshot = self.snapshot();
        let (kind, text) = if is_json {
            ("application/json", snapshot.to_json())
        } else {
            ("text/plain; charset=utf-8", snapshot.to_string())
        };
        let mut response = Response::new(B::from(text));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if !is_json {
            response.headers_mut().insert(REFRESH, HeaderValue::from_static("2"));
        }
        response
    }
}

/// Answers requests for one path with what there is to see of a server; [`Server::page_at`] makes one.
#[derive(Clone, Debug)]
pub struct PageLayer {
    server: Server,
    path: Arc<str>,
}

impl<S> Layer<S> for PageLayer {
    type Service = WithPage<S>;

    fn layer(&self, inner: S) -> WithPage<S> {
        WithPage { inner, layer: self.clone() }
    }
}

/// A service behind a [`PageLayer`].
#[derive(Clone, Debug)]
pub struct WithPage<S> {
    inner: S,
    layer: PageLayer,
}

impl<A, B, S> Service<Request<A>> for WithPage<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: From<String>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = PageFuture<S::Future, Response<B>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if request.uri().path() == &*self.layer.path {
            return PageFuture { inner: None, page: Some(self.layer.server.page(&request)) };
        }
        PageFuture { inner: Some(self.inner.call(request)), page: None }
    }
}

pin_project_lite::pin_project! {
    /// The answer of a service [`WithPage`].
    #[derive(Debug)]
    pub struct PageFuture<F, T> {
        // That of the service, unless the page is the answer.
        #[pin]
        inner: Option<F>,
        page: Option<T>,
    }
}

impl<F, T, E> Future for PageFuture<F, T>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll(context),
            None => Poll::Ready(Ok(this.page.take().expect("it is polled until it is ready, and no more"))),
        }
    }
}

impl<B: Default> Answer for Response<B> {
    /// 503, with whole seconds in `Retry-After`, which has no fractions.
    fn refused(refused: &Refused) -> Self {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = refused.retry_after.as_secs_f64().ceil().max(1.0) as u64;
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
        response
    }

    /// 500.
    fn panicked() -> Self {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::goal::Goal;
    use crate::server::{Settings, Why};

    fn server() -> Server {
        let goal = Goal::new(Duration::from_secs(1), 0.1);
        let settings = Settings { socket: None, plain_workers: 1, ..Settings::default() };
        Server::start(settings.route("/search", goal).route("/search/all/", goal).route("rpc", goal))
            .expect("valid")
    }

    #[test]
    fn the_longest_name_that_the_path_begins_with_is_its_route() {
        let server = server();
        let paths = ByPath::of(&server);
        let (search, all) = (server.route("/search"), server.route("/search/all/"));
        assert!(search.is_some() && all.is_some() && search != all);
        let find = |path| paths.find(path);
        assert_eq!(["/search", "/search/", "/search/al"].map(find), [search; 3]);
        assert_eq!(["/search/all", "/search/all/x"].map(find), [all; 2]);
        assert_eq!(["/", "/searches", "rpc", "", "*"].map(find), [None; 5]);
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_whole_seconds() {
        let after = |ms| {
            let refused = Refused { retry_after: Duration::from_millis(ms), why: Why::Full };
            let response: Response<String> = Answer::refused(&refused);
            assert_eq!(response.status(), 503);
            response.headers()["retry-after"].to_str().expect("a number").to_owned()
        };
        assert_eq!([0, 1, 1_000, 1_001].map(after), ["1", "1", "1", "2"]);
    }

    #[test]
    fn the_page_is_a_table_or_json_as_asked() {
        let server = server();
        let page = |request: http::request::Builder| -> Response<String> {
            server.page(&request.body(()).expect("valid"))
        };
        let table = page(Request::builder().uri("/steward"));
        assert!(
            table.body().starts_with("ROUTE")
                && table.headers()["content-type"] == "text/plain; charset=utf-8"
                && table.headers()["refresh"] == "2"
        );
        for request in
            [Request::builder().uri("/s?json"), Request::builder().header("accept", "application/json")]
        {
            let json = page(request);
            assert_eq!(json.headers()["content-type"], "application/json");
            assert!(!json.headers().contains_key("refresh"), "a program asks when it likes");
            assert!(json.body().starts_with(r#"{"routes":[{"route":"/search","#), "{}", json.body());
        }
    }
}

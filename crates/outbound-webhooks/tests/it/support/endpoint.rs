//! An HTTP server as an endpoint, and its responses.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use axum::serve::Listener;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use webhook_signature::Secret;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn id(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }

    pub(crate) fn signatures(&self) -> usize {
        self.headers["webhook-signature"].to_str().unwrap().split(' ').count()
    }

    /// Whether one of its signatures is valid under this secret.
    pub(crate) fn has_valid_signature(&self, secret: &Secret) -> bool {
        let now_s = Timestamp::now().as_second();
        let secrets = std::slice::from_ref(secret);
        webhook_signature::verify(secrets, &self.headers, &self.body, now_s, 300).is_ok()
    }
}

/// How an endpoint responds.
pub(crate) enum Reply {
    /// Respond immediately.
    Now(Response<Body>),
    /// Never respond while the test runs.
    Never,
}

/// A response with a status and an empty body.
pub(crate) fn status(status: u16) -> Reply {
    Reply::Now(Response::builder().status(status).body(Body::empty()).unwrap())
}

/// A response whose head arrives immediately and whose body ends when `released` becomes true.
pub(crate) fn held_response(status: u16, released: &watch::Receiver<bool>) -> Reply {
    let mut released = released.clone();
    let body = Body::from_stream(body_until(async move {
        let _ = released.wait_for(|is_released| *is_released).await;
    }));
    Reply::Now(Response::builder().status(status).body(body).unwrap())
}

/// A body that ends after `event`.
pub(crate) fn body_until(
    event: impl Future<Output = ()> + Send + 'static,
) -> impl futures::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    futures::stream::once(async move {
        event.await;
        Ok(Bytes::from_static(b"late"))
    })
}

type Handler = dyn Fn(&ReceivedRequest, usize) -> Reply + Send + Sync;

/// Numbers of requests in flight, by name.
#[derive(Default)]
struct InFlight {
    now: HashMap<String, usize>,
    max: BTreeMap<String, usize>,
}

/// An HTTP server on a port of its own.
#[derive(Clone)]
pub(crate) struct TestEndpoint {
    scheme: &'static str,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Requests in flight by path, and by path and event.
    in_flight: Arc<Mutex<InFlight>>,
    handler: Arc<Mutex<Arc<Handler>>>,
    _task: Arc<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts a request as in flight until it is dropped.
struct InFlightGuard(Arc<Mutex<InFlight>>, Vec<String>);

impl InFlightGuard {
    fn new(in_flight: Arc<Mutex<InFlight>>, names: Vec<String>) -> Self {
        let mut counts = in_flight.lock().unwrap();
        for name in &names {
            let now = counts.now.entry(name.clone()).or_default();
            *now += 1;
            let now = *now;
            let max = counts.max.entry(name.clone()).or_default();
            *max = now.max(*max);
        }
        drop(counts);
        Self(in_flight, names)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut counts = self.0.lock().unwrap();
        for name in &self.1 {
            *counts.now.entry(name.clone()).or_default() -= 1;
        }
    }
}

impl TestEndpoint {
    /// `handler` receives the request and the number of requests for its event at its path, from 1.
    pub(crate) async fn start(
        handler: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::on(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), "http", handler)
    }

    /// Like [`TestEndpoint::start`], on any listener.
    pub(crate) fn on<L: Listener<Addr = SocketAddr>>(
        listener: L,
        scheme: &'static str,
        handler: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (requests, in_flight) = (Arc::default(), Arc::default());
        let handler: Arc<Mutex<Arc<Handler>>> = Arc::new(Mutex::new(Arc::new(handler)));
        let shared = (Arc::clone(&requests), Arc::clone(&in_flight), Arc::clone(&handler));
        let app = axum::Router::new().route("/{name}", post(receive)).with_state(shared);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { scheme, address, requests, in_flight, handler, _task: Arc::new(AbortOnDrop(task)) }
    }

    /// Replaces the handler.
    pub(crate) fn respond_with(
        &self,
        handler: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static,
    ) {
        *self.handler.lock().unwrap() = Arc::new(handler);
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}://{}/{name}", self.scheme, self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Requests to a path.
    pub(crate) fn requests_to(&self, name: &str) -> Vec<ReceivedRequest> {
        self.requests().into_iter().filter(|request| request.path == name).collect()
    }

    /// Largest number of requests to a path in flight at once.
    pub(crate) fn max_in_flight(&self, name: &str) -> usize {
        self.in_flight.lock().unwrap().max.get(name).copied().unwrap_or_default()
    }
}

type Shared = (Arc<Mutex<Vec<ReceivedRequest>>>, Arc<Mutex<InFlight>>, Arc<Mutex<Arc<Handler>>>);

async fn receive(
    State((requests, in_flight, handler)): State<Shared>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let request = ReceivedRequest { path, headers, body };
    let times = {
        let mut requests = requests.lock().unwrap();
        requests.push(request.clone());
        requests.iter().filter(|other| other.path == request.path && other.id() == request.id()).count()
    };
    let names = vec![request.path.clone(), format!("{} {}", request.path, request.id())];
    let _guard = InFlightGuard::new(in_flight, names);
    let handler = handler.lock().unwrap().clone();
    match handler(&request, times) {
        Reply::Now(response) => {
            // Lets other requests proceed, as a real server does.
            tokio::task::yield_now().await;
            response
        }
        Reply::Never => std::future::pending().await,
    }
}

//! The network between a client and its switch, in both directions. Each request and each answer is held until the run decides:
//! it passes, it is lost, or it is delivered later. Nothing here knows a schedule.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A lost message leaves its sender without an answer for this long; every sender stops waiting sooner.
const SILENCE: Duration = Duration::from_secs(30);
/// Upper bound of a body, in bytes.
const BODY_MAX: usize = 64 * 1024;
/// Headers of one connection, which are not forwarded.
const HOP_BY_HOP: [HeaderName; 4] =
    [header::CONNECTION, header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A query of a transfer.
    Query,
    /// A submit of a transfer.
    Submit,
    /// A cancel.
    Cancel,
    /// A recall.
    Recall,
    /// A callback of the switch.
    Callback,
    /// A charge that the naive client books on its account.
    Charge,
    /// Anything else.
    Other,
}

/// A request on its way to its receiver, or an answer on its way back.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The transfer's reference; of a charge, the order.
    pub(super) reference: String,
    /// Of an answer, the HTTP status; `None` of a request.
    pub(super) status: Option<u16>,
    pub(super) body: Value,
}

impl Message {
    pub(super) fn is_request(&self, kind: Kind) -> bool {
        self.kind == kind && self.status.is_none()
    }

    pub(super) fn is_answer(&self, kind: Kind) -> bool {
        self.kind == kind && self.status.is_some()
    }
}

enum Fate {
    Pass,
    Twice,
    Lose,
    Acknowledge,
}

/// A message that waits. Dropped, it passes.
pub(super) struct Held {
    pub(super) message: Message,
    fate: oneshot::Sender<Fate>,
    forward: Option<Forward>,
}

impl Held {
    /// The message goes on.
    pub(super) fn pass(self) {
        let _ = self.fate.send(Fate::Pass);
    }

    /// The request goes on twice; its sender gets the second answer.
    pub(super) fn pass_twice(self) {
        let _ = self.fate.send(Fate::Twice);
    }

    /// The message never arrives; the client waits for an answer until it gives up.
    pub(super) fn lose(self) {
        let _ = self.fate.send(Fate::Lose);
    }

    /// The request never arrives, and its sender believes that it did.
    pub(super) fn acknowledge(self) {
        let _ = self.fate.send(Fate::Acknowledge);
    }

    /// The message stays on its way, and [`Late::deliver`] lets it arrive afterwards. The sender of a request waits until it gives
    /// up; a callback is acknowledged by the network, so that the switch does not repeat it. A late answer reaches nobody.
    pub(super) fn keep(self) -> Late {
        let is_callback = self.message.is_request(Kind::Callback);
        let _ = self.fate.send(if is_callback { Fate::Acknowledge } else { Fate::Lose });
        Late { message: self.message, forward: self.forward }
    }
}

/// A message on its way for a long time.
pub(super) struct Late {
    pub(super) message: Message,
    forward: Option<Forward>,
}

impl Late {
    /// The message arrives; returns the receiver's answer, `None` if the message is an answer itself.
    pub(super) async fn deliver(self) -> anyhow::Result<Option<Message>> {
        let Some(forward) = self.forward else { return Ok(None) };
        let (status, _, body) = forward.send().await?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Some(Message { status: Some(status.as_u16()), body, ..self.message }))
    }
}

/// A request as it is sent on.
#[derive(Clone)]
struct Forward {
    http: reqwest::Client,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Forward {
    async fn send(&self) -> anyhow::Result<(StatusCode, HeaderMap, Bytes)> {
        let request = self.http.request(self.method.clone(), &self.url).headers(self.headers.clone());
        let response = request.body(self.body.clone()).send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok((status, headers, response.bytes().await?))
    }
}

/// Where messages go.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    /// URL of the switch: `/v1/..`.
    pub(super) switch: String,
    /// URL of the client: `/callbacks/..`.
    pub(super) client: String,
    /// URL of the naive client's account: `/charges`.
    pub(super) account: String,
}

/// A running gate.
pub(super) struct Gate {
    /// Listen address, `127.0.0.1:port`.
    pub(super) address: String,
    inner: Arc<Inner>,
    serving: JoinHandle<()>,
}

struct Inner {
    http: reqwest::Client,
    targets: Mutex<Targets>,
    /// The run that decides; without one, everything passes.
    line: Mutex<Option<mpsc::UnboundedSender<Held>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// Starts a gate.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port is free")?;
        let address = listener.local_addr()?.to_string();
        let inner =
            Arc::new(Inner { http: testkit::http(), targets: Mutex::default(), line: Mutex::default() });
        let router = Router::new().fallback(handle).with_state(Arc::clone(&inner));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(error = &error as &dyn std::error::Error, "the gate has stopped");
            }
        });
        Ok(Self { address, inner, serving })
    }

    /// Sets where messages go.
    pub(super) fn connect(&self, change: impl FnOnce(&mut Targets)) {
        change(&mut lock(&self.inner.targets));
    }

    /// From now on each message waits for a decision; when the line is dropped, everything passes again.
    pub(super) fn hold(&self) -> mpsc::UnboundedReceiver<Held> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *lock(&self.inner.line) = Some(sender);
        receiver
    }
}

impl std::ops::Drop for Gate {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A task of its own: what was sent goes on when the sender dies.
async fn handle(State(gate): State<Arc<Inner>>, request: Request) -> Response {
    let exchange = tokio::spawn(async move {
        exchange(&gate, request).await.unwrap_or_else(|error| {
            tracing::info!(error = &*error as &dyn std::error::Error, "a message found no receiver");
            StatusCode::BAD_GATEWAY.into_response()
        })
    });
    exchange.await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}

async fn exchange(gate: &Inner, request: Request) -> anyhow::Result<Response> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, BODY_MAX).await?;
    let message = read(&parts, &body);
    let targets = lock(&gate.targets).clone();
    let target = match message.kind {
        Kind::Callback => targets.client,
        Kind::Charge => targets.account,
        _ => targets.switch,
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    HOP_BY_HOP.iter().for_each(|name| {
        headers.remove(name);
    });
    let url = format!("{target}{path}");
    let forward = Forward { http: gate.http.clone(), method: parts.method, url, headers, body };
    match gate.decide(message.clone(), Some(forward.clone())).await {
        Fate::Pass => {}
        Fate::Twice => {
            forward.send().await?;
        }
        Fate::Lose => return Ok(silence().await),
        Fate::Acknowledge => return Ok(StatusCode::OK.into_response()),
    }
    let (status, mut headers, body) = forward.send().await?;
    let answered = Message {
        status: Some(status.as_u16()),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        ..message
    };
    if let Fate::Lose | Fate::Acknowledge = gate.decide(answered, None).await {
        return Ok(silence().await);
    }
    HOP_BY_HOP.iter().for_each(|name| {
        headers.remove(name);
    });
    Ok((status, headers, Body::from(body)).into_response())
}

async fn silence() -> Response {
    tokio::time::sleep(SILENCE).await;
    StatusCode::GATEWAY_TIMEOUT.into_response()
}

impl Inner {
    async fn decide(&self, message: Message, forward: Option<Forward>) -> Fate {
        let (fate, decided) = oneshot::channel();
        let held = Held { message, fate, forward };
        let is_held = lock(&self.line).as_ref().is_some_and(|line| line.send(held).is_ok());
        if is_held { decided.await.unwrap_or(Fate::Pass) } else { Fate::Pass }
    }
}

fn read(parts: &Parts, body: &Bytes) -> Message {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let path = parts.uri.path();
    let in_path = |rest: &str| rest.replace("%3A", ":");
    let in_body = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    let (kind, reference) = match path.strip_prefix("/v1/transfers/") {
        Some(rest) => match rest.rsplit_once('/') {
            Some((reference, "cancel")) => (Kind::Cancel, in_path(reference)),
            Some((reference, "recall")) => (Kind::Recall, in_path(reference)),
            Some(_) => (Kind::Other, String::new()),
            None => (Kind::Query, in_path(rest)),
        },
        None if path == "/v1/transfers" && parts.method == Method::POST => {
            (Kind::Submit, in_body("reference"))
        }
        None if path.starts_with("/callbacks") => (Kind::Callback, in_body("reference")),
        None if path == "/charges" => (Kind::Charge, in_body("order")),
        None => (Kind::Other, String::new()),
    };
    Message { kind, reference, status: None, body }
}

//! A database of endpoints, a real server that plays them, and senders that can be stopped or dropped.

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this")]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use axum::serve::Listener;
use jiff::Timestamp;
use outbound_webhooks::deliveries::{self, Delivery, Filter};
use outbound_webhooks::endpoints::{self, Creation, Endpoint, NewEndpoint, Whose};
use outbound_webhooks::secret::MasterKey;
use outbound_webhooks::target::Target;
use outbound_webhooks::{
    CheckedOutboundWebhooks, EndpointId, Message, OutboundWebhooksOptions, Sender, fan_out,
};
use serde_json::json;
use service_kit::signature::Secret;
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take here.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);
/// Base64 of 32 bytes.
pub(crate) const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// What the senders of these tests are told: this machine may be reached, and pauses are short.
pub(crate) fn options() -> OutboundWebhooksOptions {
    OutboundWebhooksOptions {
        master_key: Some(MASTER_KEY.into()),
        allow_http: true,
        allowed_ports: Vec::new(),
        allowed_networks: vec!["127.0.0.0/8".parse().unwrap()],
        attempt_timeout_ms: 2_000,
        lease_ms: 4_000,
        pauses_ms: vec![20, 20, 20],
        postpone_ms: 20,
        poll_interval_ms: 10,
        ..OutboundWebhooksOptions::default()
    }
}

pub(crate) fn master_key(options: &CheckedOutboundWebhooks) -> &MasterKey {
    options.master_key.as_ref().unwrap()
}

/// Endpoints and what is sent to them.
pub(crate) struct Book {
    pub(crate) pool: PgPool,
    pub(crate) options: CheckedOutboundWebhooks,
}

impl Book {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, options: options().check().unwrap() }
    }

    /// Its senders wait for an answer longer than a test waits for anything.
    pub(crate) fn patient(pool: PgPool) -> Self {
        let mut book = Self::new(pool);
        book.options.attempt_timeout = Duration::from_secs(120);
        book.options.lease = Duration::from_secs(240);
        book
    }

    pub(crate) async fn endpoint(&self, tenant: &str, url: &str, kinds: &[&str]) -> Endpoint {
        match self.try_endpoint(tenant, url, kinds).await {
            Creation::Made(endpoint) => *endpoint,
            refused => panic!("{tenant}: {refused:?}"),
        }
    }

    pub(crate) async fn try_endpoint(&self, tenant: &str, url: &str, kinds: &[&str]) -> Creation {
        let target = Target::read(url, &self.options.rules).unwrap();
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let new = NewEndpoint { tenant, target: &target, kinds: &kinds };
        let mut tx = self.pool.begin().await.unwrap();
        let made =
            endpoints::create(&mut tx, master_key(&self.options), new, self.options.endpoints_max).await;
        tx.commit().await.unwrap();
        made.unwrap()
    }

    /// An event of a tenant; how many endpoints are told.
    pub(crate) async fn happens(&self, tenant: &str, event_id: &str, kind: &str) -> u64 {
        let message = Message {
            tenant,
            event_id,
            kind,
            version: 1,
            key: "k",
            sequence: 7,
            at: Timestamp::UNIX_EPOCH,
            data: &json!({"amount": "12.50"}),
        };
        let mut tx = self.pool.begin().await.unwrap();
        let told = fan_out(&mut tx, &message).await.unwrap();
        tx.commit().await.unwrap();
        told
    }

    pub(crate) async fn read(&self, id: &EndpointId) -> Endpoint {
        let mut connection = self.pool.acquire().await.unwrap();
        endpoints::get(&mut connection, Whose::Anybodys, id).await.unwrap().unwrap()
    }

    /// What an endpoint was sent, the newest first.
    pub(crate) async fn deliveries(&self, id: &EndpointId) -> Vec<Delivery> {
        let mut connection = self.pool.acquire().await.unwrap();
        deliveries::list(&mut connection, id, Filter::default(), 1_000).await.unwrap()
    }

    /// Waits until the only delivery of an endpoint is as wanted.
    pub(crate) async fn until_one(
        &self,
        id: &EndpointId,
        what: &str,
        is_so: impl Fn(&Delivery) -> bool,
    ) -> Delivery {
        let begun = Instant::now();
        loop {
            let all = self.deliveries(id).await;
            let [one] = &all[..] else { panic!("{all:?}") };
            if is_so(one) {
                return one.clone();
            }
            assert!(begun.elapsed() < WITHIN, "waited in vain: {what}: {one:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn sql(&self, sql: &'static str, id: &EndpointId) {
        sqlx::query(sql).bind(id.as_str()).execute(&self.pool).await.unwrap();
    }

    pub(crate) fn secret(&self, id: &EndpointId, version: i32) -> Secret {
        master_key(&self.options).secret(id, version)
    }

    pub(crate) fn sender(&self) -> Running {
        self.sender_of(self.options.clone())
    }

    pub(crate) fn sender_of(&self, options: CheckedOutboundWebhooks) -> Running {
        self.sender_over(self.pool.clone(), options)
    }

    pub(crate) fn sender_over(&self, pool: PgPool, options: CheckedOutboundWebhooks) -> Running {
        let sender = Sender::new(pool, master_key(&options).clone(), &options).unwrap();
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        Running { stop, task: tokio::spawn(async move { sender.run(&stopping).await }) }
    }
}

/// A sender that runs until it is dropped: then everything it had under way is cut off.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops it as a process is stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        tokio::time::timeout(WITHIN, &mut self.task).await.unwrap().unwrap();
    }

    /// Ends it where it stands, as a killed process ends.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks until `look` is true.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !look().await {
        assert!(begun.elapsed() < WITHIN, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Came {
    pub(crate) fn id(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }

    pub(crate) fn signatures(&self) -> usize {
        self.headers["webhook-signature"].to_str().unwrap().split(' ').count()
    }

    /// Whether a receiver that knows this secret believes it.
    pub(crate) fn is_good(&self, secret: &Secret) -> bool {
        let now_s = Timestamp::now().as_second();
        let secrets = std::slice::from_ref(secret);
        service_kit::signature::verify(secrets, &self.headers, &self.body, now_s, 300).is_ok()
    }
}

/// How an endpoint answers.
pub(crate) enum Reply {
    /// At once.
    Now(Response<Body>),
    /// Never, while the test runs.
    Never,
}

/// An answer with a status and nothing else.
pub(crate) fn status(status: u16) -> Reply {
    Reply::Now(Response::builder().status(status).body(Body::empty()).unwrap())
}

type Manner = dyn Fn(&Came, usize) -> Reply + Send + Sync;

/// What is known of requests under way.
#[derive(Default)]
struct UnderWay {
    now: HashMap<String, usize>,
    most: BTreeMap<String, usize>,
}

/// A real server on a port of its own.
#[derive(Clone)]
pub(crate) struct Receiver {
    scheme: &'static str,
    address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
    /// By path, and by path and event.
    under_way: Arc<Mutex<UnderWay>>,
    manner: Arc<Mutex<Arc<Manner>>>,
    _task: Arc<Aborted>,
}

struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts a request as under way for as long as somebody waits for it.
struct Counted(Arc<Mutex<UnderWay>>, Vec<String>);

impl Counted {
    fn new(under_way: Arc<Mutex<UnderWay>>, names: Vec<String>) -> Self {
        let mut counted = under_way.lock().unwrap();
        for name in &names {
            let now = counted.now.entry(name.clone()).or_default();
            *now += 1;
            let now = *now;
            let most = counted.most.entry(name.clone()).or_default();
            *most = now.max(*most);
        }
        drop(counted);
        Self(under_way, names)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counted = self.0.lock().unwrap();
        for name in &self.1 {
            *counted.now.entry(name.clone()).or_default() -= 1;
        }
    }
}

impl Receiver {
    /// `manner` is given the request and how often its event has come to its path, from 1.
    pub(crate) async fn start(manner: impl Fn(&Came, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), "http", manner)
    }

    /// As [`Receiver::start`], on any listener.
    pub(crate) fn on<L: Listener<Addr = SocketAddr>>(
        listener: L,
        scheme: &'static str,
        manner: impl Fn(&Came, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (came, under_way) = (Arc::default(), Arc::default());
        let manner: Arc<Mutex<Arc<Manner>>> = Arc::new(Mutex::new(Arc::new(manner)));
        let shared = (Arc::clone(&came), Arc::clone(&under_way), Arc::clone(&manner));
        let app = axum::Router::new().route("/{name}", post(take)).with_state(shared);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { scheme, address, came, under_way, manner, _task: Arc::new(Aborted(task)) }
    }

    pub(crate) fn behave(&self, manner: impl Fn(&Came, usize) -> Reply + Send + Sync + 'static) {
        *self.manner.lock().unwrap() = Arc::new(manner);
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}://{}/{name}", self.scheme, self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }

    /// Requests that came to a path.
    pub(crate) fn came_to(&self, name: &str) -> Vec<Came> {
        self.came().into_iter().filter(|one| one.path == name).collect()
    }

    /// Most requests to a path that were under way at once.
    pub(crate) fn most_at_once(&self, name: &str) -> usize {
        self.under_way.lock().unwrap().most.get(name).copied().unwrap_or_default()
    }
}

type Shared = (Arc<Mutex<Vec<Came>>>, Arc<Mutex<UnderWay>>, Arc<Mutex<Arc<Manner>>>);

async fn take(
    State((came, under_way, manner)): State<Shared>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let one = Came { path, headers, body };
    let times = {
        let mut came = came.lock().unwrap();
        came.push(one.clone());
        came.iter().filter(|other| other.path == one.path && other.id() == one.id()).count()
    };
    let _counted = Counted::new(under_way, vec![one.path.clone(), format!("{} {}", one.path, one.id())]);
    let manner = manner.lock().unwrap().clone();
    match manner(&one, times) {
        Reply::Now(response) => {
            // As a real one: others go on meanwhile.
            tokio::task::yield_now().await;
            response
        }
        Reply::Never => std::future::pending().await,
    }
}

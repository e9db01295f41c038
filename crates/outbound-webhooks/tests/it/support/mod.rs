//! A database of endpoints, senders that can be stopped or killed, and HTTP servers as endpoints.

mod endpoint;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use outbound_webhooks::deliveries::{self, Delivery, DeliveryFilter};
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, Endpoint, EndpointScope, NewEndpoint};
use outbound_webhooks::secret::MasterKey;
use outbound_webhooks::target::Target;
use outbound_webhooks::{
    CheckedOutboundWebhooks, DeliverySender, EndpointId, OutboundWebhooksOptions, WebhookEvent, fan_out,
};
use postgres_kit::Pool;
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use webhook_signature::Secret;

pub(crate) use endpoint::{Reply, TestEndpoint, body_until, held_response, status};

/// Longest wait for an asynchronous effect.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Base64 of 32 bytes.
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// URL on which nothing listens.
pub(crate) const CLOSED_PORT_URL: &str = "http://127.0.0.1:9/hook";

/// Options of the tests' senders: local addresses are permitted, and delays are short.
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

/// The webhook tables of one test and the options of its senders.
pub(crate) struct TestWebhooks {
    pub(crate) pool: PgPool,
    pub(crate) options: CheckedOutboundWebhooks,
}

impl TestWebhooks {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self { pool, options: options().check().unwrap() }
    }

    /// The attempt timeout of its senders exceeds every wait of a test.
    pub(crate) fn with_long_timeouts(pool: PgPool) -> Self {
        let mut webhooks = Self::new(pool);
        webhooks.options.attempt_timeout = Duration::from_secs(120);
        webhooks.options.lease = Duration::from_secs(240);
        webhooks
    }

    pub(crate) async fn endpoint(&self, tenant: &str, url: &str, kinds: &[&str]) -> Endpoint {
        match self.try_endpoint(tenant, url, kinds).await {
            CreateEndpointOutcome::Created(endpoint) => *endpoint,
            refused => panic!("expected an endpoint of {tenant}, got {refused:?}"),
        }
    }

    pub(crate) async fn try_endpoint(
        &self,
        tenant: &str,
        url: &str,
        kinds: &[&str],
    ) -> CreateEndpointOutcome {
        let target = Target::parse(url, &self.options.rules).unwrap();
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let new = NewEndpoint { tenant, target: &target, kinds: &kinds };
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        let outcome =
            endpoints::create(&mut tx, master_key(&self.options), new, self.options.endpoints_max).await;
        tx.commit().await.unwrap();
        outcome.unwrap()
    }

    /// Fans an event of a tenant out; returns the number of deliveries.
    pub(crate) async fn publish(&self, tenant: &str, event_id: &str, kind: &str) -> u64 {
        let event = WebhookEvent {
            tenant,
            event_id,
            kind,
            version: 1,
            key: "k",
            sequence: 7,
            at: Timestamp::UNIX_EPOCH,
            data: &json!({"amount": "12.50"}),
            trace_parent: None,
        };
        let mut tx = Pool::from(self.pool.clone()).begin().await.unwrap();
        let deliveries = fan_out(&mut tx, &[event]).await.unwrap();
        tx.commit().await.unwrap();
        deliveries
    }

    pub(crate) async fn read(&self, id: &EndpointId) -> Endpoint {
        let mut connection = Pool::from(self.pool.clone()).acquire().await.unwrap();
        endpoints::get(&mut connection, EndpointScope::All, id).await.unwrap().unwrap()
    }

    /// Deliveries of an endpoint, newest first.
    pub(crate) async fn deliveries(&self, id: &EndpointId) -> Vec<Delivery> {
        let mut connection = Pool::from(self.pool.clone()).acquire().await.unwrap();
        deliveries::list(&mut connection, id, DeliveryFilter::default(), 1_000).await.unwrap()
    }

    /// Waits until the only delivery of an endpoint satisfies the condition.
    pub(crate) async fn wait_for_delivery(
        &self,
        id: &EndpointId,
        what: &str,
        condition: impl Fn(&Delivery) -> bool,
    ) -> Delivery {
        let started = Instant::now();
        loop {
            let all = self.deliveries(id).await;
            let [delivery] = &all[..] else { panic!("expected one delivery, got {all:?}") };
            if condition(delivery) {
                return delivery.clone();
            }
            assert!(started.elapsed() < TIMEOUT, "expected within {TIMEOUT:?}: {what}, got {delivery:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn sql(&self, sql: &'static str, id: &EndpointId) {
        sqlx::query(sql).bind(id.as_str()).execute(&self.pool).await.unwrap();
    }

    pub(crate) fn secret(&self, id: &EndpointId, version: i32) -> Secret {
        master_key(&self.options).secret(id, version)
    }

    pub(crate) fn sender(&self) -> RunningSender {
        self.sender_with(self.options.clone())
    }

    pub(crate) fn sender_with(&self, options: CheckedOutboundWebhooks) -> RunningSender {
        self.sender_over(self.pool.clone(), options)
    }

    pub(crate) fn sender_over(&self, pool: PgPool, options: CheckedOutboundWebhooks) -> RunningSender {
        let sender = DeliverySender::new(pool.into(), master_key(&options).clone(), &options).unwrap();
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        RunningSender { stop, task: tokio::spawn(async move { sender.run(&stopping).await }) }
    }
}

/// A running sender. Dropping it interrupts its attempts in flight.
pub(crate) struct RunningSender {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningSender {
    /// Shuts the sender down.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, &mut self.task).await.unwrap().unwrap();
    }

    /// Ends the sender without a shutdown, like a killed process.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningSender {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < TIMEOUT, "expected within {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

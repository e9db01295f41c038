//! Relay, broker and consumers of one test.

use std::time::Duration;

use async_nats::jetstream;
use outbox::Event;
use outbox::consume::{EffectError, EventEffect, ReceivedEvent};
use outbox::nats::{Broker, BrokerOptions, Consumer, ConsumerOptions, JetStreamPublisher};
use postgres_kit::Connection;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::NatsServer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::support::{RunningRelay, SequencesByKey, options, until};

/// Name of the consumer unless a test needs two.
pub(crate) const CONSUMER: &str = "test";

/// Writes a row for each event, in the order of the effects; an event with `"poison": true` fails.
struct WriteEffect;

impl EventEffect for WriteEffect {
    async fn apply(&self, tx: &mut Connection, events: &[&ReceivedEvent]) -> Result<(), EffectError> {
        for ReceivedEvent { event, .. } in events {
            if event.body["poison"] == json!(true) {
                return Err(EffectError::Poison("the body says so".into()));
            }
            sqlx::query("INSERT INTO effects (event_id, key, sequence) VALUES ($1, $2, $3)")
                .bind(&event.event_id)
                .bind(&event.key)
                .bind(event.sequence)
                .execute(&mut *tx)
                .await
                .map_err(|error| EffectError::Unavailable(error.into()))?;
        }
        Ok(())
    }
}

/// A consumer that runs until it is dropped.
pub(crate) struct RunningConsumer(JoinHandle<()>);

impl Drop for RunningConsumer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A broker and a database; tests start relays and consumers.
pub(crate) struct EventPipeline {
    pub(crate) server: NatsServer,
    pub(crate) options: BrokerOptions,
    pub(crate) pool: PgPool,
}

impl EventPipeline {
    /// Starts a broker with a store of this name.
    pub(crate) async fn start(name: &str, connect: PgConnectOptions) -> Self {
        let pool = PgPoolOptions::new().max_connections(12).connect_with(connect).await.unwrap();
        sqlx::query(
            "CREATE TABLE effects (position bigint GENERATED ALWAYS AS IDENTITY, event_id text, key text, sequence bigint)",
        )
        .execute(&pool)
        .await
        .unwrap();
        let server = NatsServer::start(name).await.unwrap();
        let options = BrokerOptions { url: server.url(), ..BrokerOptions::default() };
        Self { server, options, pool }
    }

    /// Starts a relay.
    pub(crate) async fn relay(&self) -> RunningRelay {
        let broker = Broker::connect(&self.options, "relay").await.unwrap();
        RunningRelay::start(&self.pool, JetStreamPublisher::new(broker), options())
    }

    /// Starts the consumer [`CONSUMER`].
    pub(crate) async fn consumer(&self) -> RunningConsumer {
        self.start_consumer(CONSUMER).await
    }

    pub(crate) async fn start_consumer(&self, name: &str) -> RunningConsumer {
        self.start_consumer_with(ConsumerOptions::new(name)).await
    }

    /// Starts the consumer [`CONSUMER`] with this limit of out-of-order deliveries.
    pub(crate) async fn consumer_with_out_of_order_max(&self, out_of_order_max: u32) -> RunningConsumer {
        self.start_consumer_with(ConsumerOptions { out_of_order_max, ..ConsumerOptions::new(CONSUMER) }).await
    }

    async fn start_consumer_with(&self, options: ConsumerOptions) -> RunningConsumer {
        let broker = Broker::connect(&self.options, &options.name).await.unwrap();
        let options = ConsumerOptions {
            ack_wait: Duration::from_secs(1),
            deliveries_max: 3,
            redelivery_pause: Duration::from_millis(20),
            ..options
        };
        let consumer = Consumer::new(broker, self.pool.clone().into(), WriteEffect, options);
        RunningConsumer(tokio::spawn(async move { consumer.run(&CancellationToken::new()).await }))
    }

    /// Sends an event of `key-0` to the stream without the relay, so also out of order.
    pub(crate) async fn send_event(&self, sequence: i64) {
        let event = Event {
            event_id: format!("key-0:{sequence}"),
            kind: "happened".into(),
            version: 1,
            key: "key-0".into(),
            sequence,
            appended_at: jiff::Timestamp::UNIX_EPOCH,
            body: json!({}),
        };
        let payload = serde_json::to_vec(&event).unwrap();
        let jetstream = self.jetstream().await;
        jetstream.publish("events.happened", payload.into()).await.unwrap().await.unwrap();
    }

    /// An established connection to the broker.
    pub(crate) async fn broker(&self) -> Broker {
        let broker = Broker::connect(&self.options, "test").await.unwrap();
        until("the broker is connected", async || broker.ensure_connected().is_ok()).await;
        broker
    }

    /// Events that a consumer has processed.
    pub(crate) async fn processed_by(&self, consumer: &str) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM processed_events WHERE consumer = $1")
            .bind(consumer)
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    /// Kills and restarts the broker. It then knows only the ids of messages that are still in the stream.
    pub(crate) async fn kill_and_restart_server(&mut self) {
        self.server.kill().await.unwrap();
        self.server.restart().await.unwrap();
    }

    /// The broker's JetStream context, without this crate.
    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(&self.options.url).await.unwrap())
    }

    pub(crate) async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&self.pool).await.unwrap()
    }

    /// Waits for this many effects and asserts that there are no more.
    pub(crate) async fn until_effects(&self, count: i64) {
        until("every event has had its effect", async || self.effects().await >= count).await;
        assert_eq!(self.effects().await, count);
    }

    /// The sequence numbers of each key in the order of their effects.
    pub(crate) async fn sequences(&self) -> SequencesByKey {
        let rows: Vec<(String, i64)> = sqlx::query_as("SELECT key, sequence FROM effects ORDER BY position")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let mut sequences = SequencesByKey::new();
        for (key, sequence) in rows {
            sequences.entry(key).or_default().push(sequence);
        }
        sequences
    }
}

/// The sequence numbers 1 to `count` for each of `keys` keys.
pub(crate) fn in_order(keys: i64, count: i64) -> SequencesByKey {
    (0..keys).map(|key| (format!("key-{key}"), (1..=count).collect())).collect()
}

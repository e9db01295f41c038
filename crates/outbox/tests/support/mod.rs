//! Events, a broker in memory, and queries that do not use the crate's own functions.

#![allow(dead_code, reason = "each test binary uses a part of this module")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::{Event, NewEvent, PublishError, Publisher, Relay, RelayOptions, append};
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sequence numbers by key.
pub(crate) type SequencesByKey = BTreeMap<String, Vec<i64>>;

/// Writes the next event of a key, with the id `{key}-{n}`.
pub(crate) async fn write(pool: &PgPool, key: &str, n: i64) {
    let mut tx = postgres_kit::Pool::from(pool.clone()).begin().await.unwrap();
    let id = format!("{key}-{n}");
    let event = NewEvent {
        event_id: &id,
        kind: "happened",
        version: 1,
        key,
        body: &json!({"key": key, "n": n}),
        trace_parent: None,
    };
    assert_eq!(append(&mut tx, event).await.unwrap(), Some(n));
    tx.commit().await.unwrap();
}

/// Repeats `condition` until it is true.
pub(crate) async fn until(description: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < TIMEOUT, "timed out waiting until {description}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn unpublished(pool: &PgPool) -> i64 {
    outbox::measure(&pool.clone().into()).await.unwrap().unpublished
}

pub(crate) async fn until_all_published(pool: &PgPool) {
    until("all events are published", async || unpublished(pool).await == 0).await;
}

/// The broker's answer to an event and the number of its attempt, from 1.
pub(crate) type Answer = Arc<dyn Fn(&Event, usize) -> Result<(), PublishError> + Send + Sync>;

/// A broker in memory, as one relay reaches it. Clones share the broker.
#[derive(Clone)]
pub(crate) struct MemoryBroker {
    /// Received events with the name of the relay, in order.
    received: Arc<Mutex<Vec<(String, Event)>>>,
    /// Name of the relay.
    relay: String,
    answer: Answer,
    /// Attempts by event id.
    attempts: Arc<Mutex<HashMap<String, usize>>>,
}

const EVENT_LOST: &str = "the event was lost";

/// No confirmation: the event did not reach the broker.
pub(crate) fn event_lost() -> PublishError {
    PublishError::Unconfirmed { reason: EVENT_LOST.into() }
}

/// No confirmation: the broker received the event, and its answer was lost.
pub(crate) fn answer_lost() -> PublishError {
    PublishError::Unconfirmed { reason: "the answer was lost".into() }
}

impl MemoryBroker {
    pub(crate) fn new(
        answer: impl Fn(&Event, usize) -> Result<(), PublishError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            received: Arc::default(),
            relay: "first".into(),
            answer: Arc::new(answer),
            attempts: Arc::default(),
        }
    }

    /// The same broker, as another relay reaches it.
    pub(crate) fn for_relay(&self, relay: &str) -> Self {
        Self { relay: relay.into(), ..self.clone() }
    }

    /// The sequence numbers of each key in the order of their first receipt.
    pub(crate) fn sequences(&self) -> SequencesByKey {
        let mut ids = HashSet::new();
        let mut sequences = SequencesByKey::new();
        for (_, event) in self.received.lock().unwrap().iter() {
            if ids.insert(event.event_id.clone()) {
                sequences.entry(event.key.clone()).or_default().push(event.sequence);
            }
        }
        sequences
    }

    /// How often the broker received an event.
    pub(crate) fn receipts(&self, event_id: &str) -> usize {
        self.received.lock().unwrap().iter().filter(|(_, event)| event.event_id == event_id).count()
    }

    /// How often a relay tried to publish an event.
    pub(crate) fn attempts(&self, event_id: &str) -> usize {
        self.attempts.lock().unwrap().get(event_id).copied().unwrap_or_default()
    }

    /// How often a relay tried to publish any event.
    pub(crate) fn all_attempts(&self) -> usize {
        self.attempts.lock().unwrap().values().sum()
    }

    /// The relays in the order of their events, without consecutive repeats.
    pub(crate) fn relays(&self) -> Vec<String> {
        let mut relays: Vec<String> =
            self.received.lock().unwrap().iter().map(|(relay, _)| relay.clone()).collect();
        relays.dedup();
        relays
    }
}

impl Publisher for MemoryBroker {
    async fn publish(&self, event: &Event) -> Result<(), PublishError> {
        // Other tasks run meanwhile, as with a real broker.
        tokio::task::yield_now().await;
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempts = attempts.entry(event.event_id.clone()).or_default();
            *attempts += 1;
            *attempts
        };
        let answer = (self.answer)(event, attempt);
        if answer != Err(event_lost()) {
            self.received.lock().unwrap().push((self.relay.clone(), event.clone()));
        }
        answer
    }
}

pub(crate) fn options() -> RelayOptions {
    RelayOptions {
        poll_interval: Duration::from_millis(20),
        batch: 7,
        rejection_pause: Duration::from_millis(5),
        backoff_pause: Duration::from_millis(5),
        backoff_pause_max: Duration::from_millis(20),
        ..RelayOptions::default()
    }
}

/// A relay that runs until it is dropped.
pub(crate) struct RunningRelay {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningRelay {
    pub(crate) fn start<P: Publisher + 'static>(pool: &PgPool, publisher: P, options: RelayOptions) -> Self {
        let (stop, relay) = (CancellationToken::new(), Relay::new(pool.clone().into(), publisher, options));
        let stopping = stop.clone();
        Self { stop, task: tokio::spawn(async move { relay.run(&stopping).await }) }
    }

    /// Stops the relay as a process is stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, &mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

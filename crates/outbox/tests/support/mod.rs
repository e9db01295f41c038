//! Events of a test's own, a broker in memory, and looks at the tables in plain SQL.

#![allow(dead_code, reason = "each test file is a binary of its own and uses a part of this")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::{Event, NewEvent, PublishError, Publisher, Relay, RelayOptions, append};
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take here.
const WITHIN: Duration = Duration::from_secs(30);

/// Writes the next event of a key, as `{key}-{n}`.
pub(crate) async fn write(pool: &PgPool, key: &str, n: i64) {
    let mut tx = pool.begin().await.unwrap();
    let id = format!("{key}-{n}");
    let event =
        NewEvent { event_id: &id, kind: "happened", version: 1, key, body: &json!({"key": key, "n": n}) };
    assert_eq!(append(&mut tx, event).await.unwrap(), Some(n));
    tx.commit().await.unwrap();
}

/// Looks until `look` is true.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !look().await {
        assert!(begun.elapsed() < WITHIN, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn unpublished(pool: &PgPool) -> i64 {
    outbox::measure(pool).await.unwrap().unpublished
}

pub(crate) async fn until_all_published(pool: &PgPool) {
    until("everything is published", async || unpublished(pool).await == 0).await;
}

/// How a broker takes one event.
pub(crate) type Manner = Arc<dyn Fn(&Event, usize) -> Result<(), PublishError> + Send + Sync>;

/// A broker in memory: what came to it, in order, by whom.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) came: Arc<Mutex<Vec<(String, Event)>>>,
    /// Who is told of by `came`.
    pub(crate) relay: String,
    /// What is answered to the event and the number of its try, from 1.
    manner: Manner,
    tries: Arc<Mutex<HashMap<String, usize>>>,
}

/// No answer since the event was lost on its way.
pub(crate) fn lost() -> PublishError {
    PublishError::Unknown { reason: LOST.into() }
}

/// No answer since that was lost on its way back.
pub(crate) fn unanswered() -> PublishError {
    PublishError::Unknown { reason: "the answer was lost".into() }
}

const LOST: &str = "the event was lost";

impl Memory {
    pub(crate) fn new(
        manner: impl Fn(&Event, usize) -> Result<(), PublishError> + Send + Sync + 'static,
    ) -> Self {
        Self { came: Arc::default(), relay: "first".into(), manner: Arc::new(manner), tries: Arc::default() }
    }

    /// The same broker, reached by another relay.
    pub(crate) fn by(&self, relay: &str) -> Self {
        Self { relay: relay.into(), ..self.clone() }
    }

    /// The numbers of each key in the order in which they first came.
    pub(crate) fn orders(&self) -> BTreeMap<String, Vec<i64>> {
        let mut seen = HashSet::new();
        let mut orders: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (_, event) in self.came.lock().unwrap().iter() {
            if seen.insert(event.event_id.clone()) {
                orders.entry(event.key.clone()).or_default().push(event.sequence);
            }
        }
        orders
    }

    /// Times an event came.
    pub(crate) fn times(&self, event_id: &str) -> usize {
        self.came.lock().unwrap().iter().filter(|(_, event)| event.event_id == event_id).count()
    }

    /// Times it was tried to publish an event.
    pub(crate) fn tries(&self, event_id: &str) -> usize {
        self.tries.lock().unwrap().get(event_id).copied().unwrap_or_default()
    }

    /// Who told of events, each once, in order.
    pub(crate) fn relays(&self) -> Vec<String> {
        let mut relays: Vec<String> =
            self.came.lock().unwrap().iter().map(|(relay, _)| relay.clone()).collect();
        relays.dedup();
        relays
    }
}

impl Publisher for Memory {
    async fn publish(&self, event: &Event) -> Result<(), PublishError> {
        // As a real one: others go on meanwhile.
        tokio::task::yield_now().await;
        let tries = {
            let mut tries = self.tries.lock().unwrap();
            let tries = tries.entry(event.event_id.clone()).or_default();
            *tries += 1;
            *tries
        };
        let answer = (self.manner)(event, tries);
        if answer != Err(lost()) {
            self.came.lock().unwrap().push((self.relay.clone(), event.clone()));
        }
        answer
    }
}

pub(crate) fn options() -> RelayOptions {
    RelayOptions {
        poll_interval: Duration::from_millis(20),
        batch: 7,
        refused_pause: Duration::from_millis(5),
        ..RelayOptions::default()
    }
}

/// A relay that runs until it is dropped.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start<P: Publisher + 'static>(pool: &PgPool, publisher: P, options: RelayOptions) -> Self {
        let (stop, relay) = (CancellationToken::new(), Relay::new(pool.clone(), publisher, options));
        let stopping = stop.clone();
        Self { stop, task: tokio::spawn(async move { relay.run(&stopping).await }) }
    }

    /// Stops it as a process is stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        tokio::time::timeout(WITHIN, &mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

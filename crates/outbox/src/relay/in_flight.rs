//! The events that are being published, and their outcomes.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;

/// Keys whose events are being published.
#[derive(Default)]
pub(super) struct InFlight<'a> {
    futures: FuturesUnordered<BoxFuture<'a, Ended>>,
    /// Their events are not read until their outcomes are recorded.
    keys: HashSet<String>,
    /// Ended while nobody asked.
    ended: Vec<Ended>,
    /// When the broker last confirmed or rejected an event.
    pub(super) last_answer: Option<Instant>,
}

/// A key whose events have outcomes.
pub(super) struct Ended {
    pub(super) key: String,
    pub(super) started_at: Instant,
    pub(super) deadline: Instant,
    pub(super) outcomes: Vec<PublishOutcome>,
}

impl Ended {
    /// Whether the broker confirmed or rejected an event.
    pub(super) fn is_answered(&self) -> bool {
        self.outcomes.iter().any(|outcome| !matches!(outcome, PublishOutcome::Unconfirmed { .. }))
    }
}

impl<'a> InFlight<'a> {
    /// Number of keys that have not ended.
    pub(super) fn len(&self) -> usize {
        self.futures.len()
    }

    /// Adds a key and what publishes its events until `deadline`.
    pub(super) fn add(
        &mut self,
        key: String,
        deadline: Instant,
        publishing: impl Future<Output = Vec<PublishOutcome>> + Send + 'a,
    ) {
        self.keys.insert(key.clone());
        self.futures.push(Box::pin(async move {
            let started_at = Instant::now();
            let outcomes = publishing.await;
            Ended { key, started_at, deadline, outcomes }
        }));
    }

    /// The keys whose events must not be read now.
    pub(super) fn keys(&self) -> Vec<String> {
        self.keys.iter().cloned().collect()
    }

    /// Releases a key whose outcomes are recorded.
    pub(super) fn release(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// The next key that ends; `None` if none is in flight.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        self.futures.next().await
    }

    /// Waits until a key has ended, and keeps it for [`InFlight::take_ended`]; for ever if none is in flight.
    pub(super) async fn wait_for_one(&mut self) {
        match self.next().await {
            Some(ended) => self.ended.push(ended),
            None => std::future::pending().await,
        }
    }

    /// The keys that have ended so far.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        let mut ended = std::mem::take(&mut self.ended);
        while let Some(Some(more)) = self.next().now_or_never() {
            ended.push(more);
        }
        ended
    }

    /// All keys, when the last one has ended.
    pub(super) async fn take_all(&mut self) -> Vec<Ended> {
        let mut ended = std::mem::take(&mut self.ended);
        while let Some(more) = self.next().await {
            ended.push(more);
        }
        ended
    }
}

/// Outcome of publishing an event.
pub(super) enum PublishOutcome {
    Published { position: i64 },
    Rejected { position: i64, rejections: i32, event_id: String, reason: String },
    Unconfirmed { event_id: String, reason: String },
}

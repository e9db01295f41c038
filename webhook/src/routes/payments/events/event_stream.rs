//! The event stream of one client: reads timeline entries on from its position at each update, until the final event was sent.
//!
//! Nothing is buffered for a slow client: while it does not take the entries of one page, no further page is read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::reads::view::TimelineEntry as StoredEntry;
use payment_protocol::ids::PaymentId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::END;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::payments::retrieve::find;
use crate::routes::payments::view::{Payment, TimelineEntry};
use crate::streams::StreamSlot;

/// Upper bound of entries on one page.
const PAGE: i64 = 100;
/// Pause after a failed read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The stream of one payment to one client.
pub(super) struct EventStream {
    app: Arc<App>,
    caller: Caller,
    id: PaymentId,
    updates: watch::Receiver<i64>,
    /// When the stream ends, in whatever state the payment is.
    deadline: Instant,
    /// Entries that were read and not sent yet.
    unsent: VecDeque<StoredEntry>,
    /// Number of entries that the client has received.
    sent: i64,
    /// Whether further entries may exist.
    may_have_more: bool,
    /// The payment in its final state, to be sent after the entries.
    end: Option<Box<Payment>>,
    /// Whether the final event was sent.
    has_ended: bool,
    _slot: StreamSlot,
}

impl EventStream {
    /// Opens the stream after the first `sent` entries. The first page is read here, so that an unavailable database
    /// is answered 503.
    pub(super) async fn open(
        app: &Arc<App>,
        caller: Caller,
        id: PaymentId,
        sent: i64,
        slot: StreamSlot,
    ) -> Result<Self, ApiError> {
        let mut stream = Self {
            // Before the first read, so that later entries are reported as updates.
            updates: app.streams.subscribe(&id),
            deadline: Instant::now() + app.streams.lifetime,
            unsent: VecDeque::new(),
            sent,
            may_have_more: true,
            end: None,
            has_ended: false,
            app: app.clone(),
            caller,
            id,
            _slot: slot,
        };
        stream.read_page().await?;
        Ok(stream)
    }

    /// The next event; `None` if the stream ends.
    pub(super) async fn next(mut self) -> Option<(Result<Event, axum::Error>, Self)> {
        let stopping = self.app.stopping.clone();
        loop {
            if self.has_ended || stopping.is_cancelled() || self.deadline <= Instant::now() {
                return None;
            }
            if let Some(entry) = self.unsent.pop_front() {
                self.sent += 1;
                return Some((event(self.sent, entry), self));
            }
            if let Some(payment) = self.end.take() {
                self.has_ended = true;
                return Some((Event::default().id(END).event(END).json_data(payment), self));
            }
            // No connection is held and no query runs during this wait.
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = self.wait_for_more() => {}
            }
        }
    }

    /// Waits until further entries may exist, and reads them. A failed read is retried without the client's notice.
    async fn wait_for_more(&mut self) {
        if !self.may_have_more {
            // Fails only without a sender, which exists while a stream is subscribed.
            let _ = self.updates.changed().await;
            self.may_have_more = true;
        }
        while let Err(error) = self.read_page().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "an event stream could not read the timeline of its payment; it tries again"
            );
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Reads the next page of entries.
    async fn read_page(&mut self) -> Result<(), ApiError> {
        let app = &self.app;
        let _permit = app.streams.acquire_read().await;
        // The state first: if it is final, all entries have been written.
        let payment = find(app, &self.caller, &self.id).await?;
        let entries = app.reads.timeline(&self.id, self.sent, PAGE).await?;
        self.may_have_more = i64::try_from(entries.len()).is_ok_and(|count| count >= PAGE);
        self.unsent = entries.into();
        if !self.may_have_more && payment.state.end().is_some() {
            self.end = Some(Box::new(Payment::of(payment)?));
        }
        Ok(())
    }
}

/// The event of one entry.
fn event(position: i64, entry: StoredEntry) -> Result<Event, axum::Error> {
    let entry = TimelineEntry::from(entry);
    Event::default().id(position.to_string()).event(entry.status()).json_data(entry)
}

//! Updates of streamed payments: one query for the newest timeline entries of all payments streamed by this process, four times
//! a second, and none while no payment is streamed.
//!
//! LISTEN would not replace the query: a NOTIFY inside the money transaction serialises all commits, and one outside of it may
//! be lost. The query costs one index probe for each payment, however many streams it has. An update only says that a payment
//! has a new entry; each stream reads on from its own position, so a failed query loses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use payment_ledger::Ledger;
use payment_protocol::ids::PaymentId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Pause between two queries.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The newest timeline entry of each streamed payment.
///
/// An entry number is compared only with earlier ones of its own payment: those are in commit order, because each writer of an
/// entry holds the lock of the payment's row. One number for all payments would miss an entry whose transaction took its number
/// early and committed late.
pub(super) struct PaymentUpdates {
    newest: Mutex<HashMap<PaymentId, watch::Sender<i64>>>,
    subscribed: Notify,
}

impl PaymentUpdates {
    /// Starts the task that polls until `stopping`.
    pub(super) fn start(ledger: Ledger, stopping: CancellationToken) -> Arc<Self> {
        let updates = Arc::new(Self { newest: Mutex::default(), subscribed: Notify::new() });
        let polled = updates.clone();
        tokio::spawn(async move { stopping.run_until_cancelled(polled.poll(ledger)).await });
        updates
    }

    /// See [`super::Streams::subscribe`].
    pub(super) fn subscribe(&self, payment_id: &PaymentId) -> watch::Receiver<i64> {
        let mut newest = self.lock();
        let sender = newest.entry(payment_id.clone()).or_insert_with(|| watch::Sender::new(0));
        let receiver = sender.subscribe();
        self.subscribed.notify_one();
        receiver
    }

    async fn poll(&self, ledger: Ledger) {
        loop {
            let payments = self.streamed_payments();
            if payments.is_empty() {
                self.subscribed.notified().await;
                continue;
            }
            match ledger.newest_timeline_entries(&payments).await {
                Ok(newest) => self.publish(newest),
                // The next query finds what this one did not.
                Err(error) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the payments-api could not query updates for its event streams; it tries again"
                ),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes payments without a stream and returns the others.
    fn streamed_payments(&self) -> Vec<PaymentId> {
        let mut newest = self.lock();
        newest.retain(|_, sender| sender.receiver_count() > 0);
        newest.keys().cloned().collect()
    }

    fn publish(&self, entries: Vec<(PaymentId, i64)>) {
        let newest = self.lock();
        for (payment_id, entry) in entries {
            if let Some(sender) = newest.get(&payment_id) {
                sender.send_if_modified(|known| std::mem::replace(known, entry) != entry);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PaymentId, watch::Sender<i64>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> PaymentId {
        PaymentId::new(text).unwrap()
    }

    #[test]
    fn each_event_stream_gets_updates_of_its_own_payment_only() {
        let updates = PaymentUpdates { newest: Mutex::default(), subscribed: Notify::new() };
        assert_eq!(updates.streamed_payments(), []);
        let (first, mut second) = (updates.subscribe(&id("a")), updates.subscribe(&id("a")));
        let mut other = updates.subscribe(&id("b"));
        assert_eq!(
            updates.streamed_payments().len(),
            2,
            "expected one item for each payment, not for each stream"
        );

        updates.publish(vec![(id("a"), 7), (id("unstreamed"), 9)]);
        assert!(second.has_changed().unwrap() && !other.has_changed().unwrap());
        second.mark_unchanged();
        updates.publish(vec![(id("a"), 7), (id("b"), 3)]);
        assert!(!second.has_changed().unwrap(), "expected no update for the same entry");
        assert!(
            other.has_changed().unwrap(),
            "expected an update although another payment has a higher number"
        );
        other.mark_unchanged();
        assert!(
            !updates.subscribe(&id("b")).has_changed().unwrap(),
            "expected no update for a new subscriber"
        );

        drop((first, second));
        assert_eq!(updates.streamed_payments(), [id("b")]);
        drop(other);
        assert_eq!(updates.streamed_payments(), []);
    }
}

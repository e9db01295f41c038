//! Which payments have moved: one look at the newest lines of all payments that somebody watches here, four times a
//! second, and none when nobody does.
//!
//! Not LISTEN: a NOTIFY inside the money transaction serialises all commits, and one outside of it may be lost, so that a
//! look would be needed all the same. What it costs is one index probe for each watched payment, however many streams watch
//! it; what it tells is only that there is something new, never what: each stream reads on from where it stands, so a
//! look that is missed loses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use payment_ledger::Ledger;
use payment_protocol::ids::PaymentId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The newest line of each watched payment.
///
/// A number is compared with earlier ones of its own payment only: those are in the order of their commits, since whoever
/// writes a line holds the payment's row. One number for all payments would pass over a line whose transaction took its
/// number early and committed late.
pub(super) struct News {
    watched: Mutex<HashMap<PaymentId, watch::Sender<i64>>>,
    somebody: Notify,
}

impl News {
    /// Starts the task that looks until `stopping`.
    pub(super) fn start(ledger: Ledger, stopping: CancellationToken) -> Arc<Self> {
        let news = Arc::new(Self { watched: Mutex::default(), somebody: Notify::new() });
        let looking = news.clone();
        tokio::spawn(async move { stopping.run_until_cancelled(looking.look(ledger)).await });
        news
    }

    /// See [`super::Streams::news_of`].
    pub(super) fn of(&self, payment_id: &PaymentId) -> watch::Receiver<i64> {
        let mut watched = self.watched();
        let newest = watched.entry(payment_id.clone()).or_insert_with(|| watch::Sender::new(0));
        let receiver = newest.subscribe();
        self.somebody.notify_one();
        receiver
    }

    async fn look(&self, ledger: Ledger) {
        loop {
            let payments = self.still_watched();
            if payments.is_empty() {
                self.somebody.notified().await;
                continue;
            }
            match ledger.newest_timeline_entries(&payments).await {
                Ok(newest) => self.tell(newest),
                // The streams stay as they are, and the next look finds what this one did not.
                Err(error) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "watched payments were not looked at"
                ),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Forgets those that nobody watches any more.
    fn still_watched(&self) -> Vec<PaymentId> {
        let mut watched = self.watched();
        watched.retain(|_, newest| newest.receiver_count() > 0);
        watched.keys().cloned().collect()
    }

    fn tell(&self, newest: Vec<(PaymentId, i64)>) {
        let watched = self.watched();
        for (payment_id, line) in newest {
            if let Some(known) = watched.get(&payment_id) {
                known.send_if_modified(|known| std::mem::replace(known, line) != line);
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<PaymentId, watch::Sender<i64>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> PaymentId {
        PaymentId::new(text).unwrap()
    }

    #[test]
    fn each_payment_hears_of_itself_and_who_is_watched_by_nobody_is_forgotten() {
        let news = News { watched: Mutex::default(), somebody: Notify::new() };
        assert_eq!(news.still_watched(), []);
        let (first, mut again, mut other) = (news.of(&id("a")), news.of(&id("a")), news.of(&id("b")));
        assert_eq!(news.still_watched().len(), 2, "however many watch it");

        news.tell(vec![(id("a"), 7), (id("nobodys"), 9)]);
        assert!(again.has_changed().unwrap() && !other.has_changed().unwrap());
        again.mark_unchanged();
        news.tell(vec![(id("a"), 7), (id("b"), 3)]);
        assert!(!again.has_changed().unwrap(), "nothing new");
        assert!(other.has_changed().unwrap(), "a lower number than another payment's is news all the same");
        other.mark_unchanged();
        assert!(!news.of(&id("b")).has_changed().unwrap(), "who comes now looks by itself");

        drop((first, again));
        assert_eq!(news.still_watched(), [id("b")]);
        drop(other);
        assert_eq!(news.still_watched(), []);
    }
}

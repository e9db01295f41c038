//! Restores customers' accounts that the background-worker has not restored in time, so that a restore waits for neither process alone. It
//! needs the ledger's database, and no Temporal.

#![expect(clippy::disallowed_methods, reason = "the pause between rounds is outside workflow code")]

use std::time::Duration;

use payment_ledger::Ledger;
use tokio_util::sync::CancellationToken;

/// How long a restore is overdue before this process makes it: the background-worker is given the time of one round.
const OVERDUE: Duration = Duration::from_millis(250);
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(200);

/// Restores overdue accounts until `stop`.
pub(crate) async fn run(ledger: Ledger, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match ledger.restore_all_due(OVERDUE).await {
            Ok(round) => metrics::counter!("accounts_restored_total").increment(round.restored as u64),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the payment-worker could not read which accounts are due to be restored; it tries again"
            ),
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
    }
}

//! Seals what was posted to the journal, and rolls internal balances forward. Here, since it must not stop when Temporal
//! does.

use std::time::Duration;

use monitoring::task::BackgroundTask;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;

/// Runs until `stop`. Several relays may: whoever finds another at it does nothing.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let size = BatchSize::new(options.seal_batch_max);
    while !stop.is_cancelled() {
        match ledger.seal(size).await {
            Ok(SealOutcome::Batch { entries, is_full }) => {
                BackgroundTask::Seal.succeeded();
                metrics::counter!("journal_sealed_total").increment(entries as u64);
                // What came meanwhile waits for the next look, or a batch of its own would be made for each entry.
                if is_full {
                    continue;
                }
            }
            Ok(SealOutcome::NothingToSeal | SealOutcome::Busy) => BackgroundTask::Seal.succeeded(),
            // What was begun is sealed the next time; how old what waits has become is a gauge.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "sealing failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.seal_interval_ms)) => {}
        }
    }
}

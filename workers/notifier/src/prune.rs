//! Periodic deletion of rows beyond their retention.

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Calls `delete`, which returns the number of deleted `rows`, until `stop`. A failure is repeated after the interval.
pub(crate) async fn prune<E: Error + 'static>(
    rows: &'static str,
    delete: impl AsyncFn() -> Result<u64, E>,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        match delete().await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(rows, deleted, "the notifier deleted {rows} beyond their retention")
            }
            Err(error) => {
                tracing::warn!(
                    rows,
                    error = &error as &dyn Error,
                    "the notifier could not delete {rows} beyond their retention; it tries again"
                );
            }
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(PRUNE_INTERVAL)).await;
    }
}

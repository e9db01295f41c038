//! Deletes what is old, now and then.

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Pause between two looks.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// Deletes until `stop`; `delete` says how many `what` it deleted. What fails is tried again with the next look.
pub(crate) async fn prune<E: Error + 'static>(
    what: &'static str,
    delete: impl AsyncFn() -> Result<u64, E>,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        match delete().await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(what, deleted, "what is old was deleted"),
            Err(error) => {
                tracing::warn!(what, error = &error as &dyn Error, "deleting what is old failed");
            }
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(PRUNE_EVERY)).await;
    }
}

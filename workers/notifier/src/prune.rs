//! Periodic deletion of rows beyond their retention.

use std::error::Error;
use std::time::Duration;

use postgres_kit::deletion::DELETED_MAX;
use tokio_util::sync::CancellationToken;

const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Calls `delete`, which returns the number of deleted `rows`, until `stop`: at once while rows are left, so that the deletion keeps up with
/// whatever rate they are written at. A failure is repeated after the interval.
pub(crate) async fn prune<E: Error + 'static>(
    rows: &'static str,
    delete: impl AsyncFn() -> Result<u64, E>,
    stop: &CancellationToken,
) {
    while let Some(outcome) = stop.run_until_cancelled(delete()).await {
        match outcome {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(rows, deleted, "the notifier deleted {rows} beyond their retention");
                if deleted >= DELETED_MAX {
                    continue;
                }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    /// The interval is longer than the test may take, so that the calls follow one another at once.
    #[tokio::test]
    async fn rows_are_deleted_until_none_is_left() {
        let stop = CancellationToken::new();
        let calls = Cell::new(0);
        let delete = async || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 {
                return Ok::<_, Infallible>(DELETED_MAX);
            }
            stop.cancel();
            Ok(1)
        };
        prune("rows", delete, &stop).await;
        assert_eq!(calls.get(), 3);
    }
}

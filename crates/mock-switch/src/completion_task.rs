//! The background task that completes due transfers.
//!
//! The task is woken by a submit, and polls when the next transfer is due, and at an interval, so that no transfer is missed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::book::completion::{BATCH, DueBatch, complete_due};
use crate::state::SharedSwitch;

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest pause: a due transfer may be one that is being cancelled.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Pause after a failure of the database.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);

/// Completes due transfers until `stop`.
pub(crate) async fn run(switch: SharedSwitch, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let pause = match complete_due(&switch).await {
            Ok(DueBatch { completed, next_due }) => {
                if completed > 0 {
                    metrics::counter!("mock_switch_transfers_ended_total").increment(completed as u64);
                    switch.callback_due.notify_one();
                }
                // More transfers may be due after a full batch.
                let is_full = completed >= BATCH as usize;
                let pause = next_due.unwrap_or(POLL_INTERVAL).clamp(PAUSE_MIN, POLL_INTERVAL);
                if is_full { Duration::ZERO } else { pause }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the mock switch could not complete due transfers; it tries again"
                );
                FAILURE_PAUSE
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = switch.completion_due.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

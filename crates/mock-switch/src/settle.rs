//! The task that ends transfers when they are due.
//!
//! It looks often rather than sleeping until the next one: a look at an index
//! that is empty costs nothing, and nothing can be missed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::book::finish::{BATCH, finish_due};
use crate::switch::Shared;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// After the database failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Runs until told to stop.
pub(crate) async fn run(switch: Shared, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let pause = match finish_due(&switch).await {
            Ok(0) => LOOK_EVERY,
            Ok(ended) => {
                metrics::counter!("mock_switch_transfers_ended_total").increment(ended as u64);
                switch.call_now.notify_one();
                // A full batch says that more is due.
                if ended < BATCH as usize { LOOK_EVERY } else { Duration::ZERO }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "settling failed");
                AFTER_FAILURE
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = switch.settle_now.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

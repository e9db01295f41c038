//! The metrics that every process exports.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::metrics::{self as listed, Process};

/// Pause between two updates of the pool's gauges.
const POOL_INTERVAL: Duration = Duration::from_secs(5);

/// Describes the metrics of a process, and updates the gauges of its database pool until `stop`. Call it once, inside a
/// tokio runtime, after the recorder was installed.
pub fn start(process: Process, pool: PgPool, stop: CancellationToken) {
    listed::all()
        .filter(|entry| entry.exported_by.contains(&process))
        .for_each(|entry| entry.metric.describe());
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            set_pool_gauges(&pool);
            let _ = stop.run_until_cancelled(tokio::time::sleep(POOL_INTERVAL)).await;
        }
    });
}

#[allow(clippy::cast_precision_loss, reason = "connections stay far below 2^53")]
fn set_pool_gauges(pool: &PgPool) {
    metrics::gauge!("database_connections").set(f64::from(pool.size()));
    metrics::gauge!("database_connections_idle").set(pool.num_idle() as f64);
    metrics::gauge!("database_connections_max").set(f64::from(pool.options().get_max_connections()));
}

//! What every process measures of itself.

use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::metrics::{METRICS, Process};

/// Pause between two looks at the pool.
const POOL_EVERY: Duration = Duration::from_secs(5);

/// Describes what a process measures, and shows how its database connections are used until `stop`. To be called once,
/// inside a tokio runtime, after the recorder was installed.
pub fn start(process: Process, pool: PgPool, stop: CancellationToken) {
    METRICS.iter().filter(|listed| listed.by.contains(&process)).for_each(|listed| listed.metric.describe());
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            show(&pool);
            let _ = stop.run_until_cancelled(tokio::time::sleep(POOL_EVERY)).await;
        }
    });
}

#[allow(clippy::cast_precision_loss, reason = "connections are few")]
fn show(pool: &PgPool) {
    metrics::gauge!("database_connections").set(f64::from(pool.size()));
    metrics::gauge!("database_connections_idle").set(pool.num_idle() as f64);
    metrics::gauge!("database_connections_max").set(f64::from(pool.options().get_max_connections()));
}

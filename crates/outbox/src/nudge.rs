//! Tells the relay that something was written: a NOTIFY outside the transaction of the event (inside it, NOTIFY serialises
//! all commits) and at most one per 50 ms.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Channel that the relay listens on.
pub(crate) const CHANNEL: &str = "outbox_appended";

/// Shortest time between two nudges of one process.
const PAUSE: Duration = Duration::from_millis(50);

/// The handle that writers hold. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Starts the task that sends nudges until `stop`. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, stop: CancellationToken) -> Self {
        let wanted = Arc::new(Notify::new());
        tokio::spawn(send(pool, wanted.clone(), stop));
        Self(wanted)
    }

    /// Asks for a nudge, after the commit, and does not wait for it. Many askings become one.
    pub fn ask(&self) {
        self.0.notify_one();
    }
}

async fn send(pool: PgPool, wanted: Arc<Notify>, stop: CancellationToken) {
    let nudges = async {
        loop {
            wanted.notified().await;
            let sent = sqlx::query!("SELECT pg_notify($1, '') AS nudged", CHANNEL).fetch_one(&pool).await;
            if let Err(error) = sent {
                // The relay looks by itself, only a little later.
                tracing::debug!(error = &error as &dyn std::error::Error, "the relay was not nudged");
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    stop.run_until_cancelled(nudges).await;
}

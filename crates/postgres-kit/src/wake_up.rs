//! Wake-up notifications: a NOTIFY that ends the wait of a polling task early.

use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};

/// Receives the wake-up notifications of one channel. Each may get lost, so the task that waits here also polls.
#[derive(Debug)]
pub struct WakeUpListener {
    /// The connection that listens; `None` if it failed: the task only polls.
    listener: Option<PgListener>,
}

impl WakeUpListener {
    /// Listens on `channel`, over a connection of its own, beside those of `pool`.
    pub async fn open(pool: &PgPool, channel: &str) -> Self {
        Self { listener: listen(pool, channel).await.ok() }
    }

    /// Waits for a wake-up notification; without a connection for ever. After a lost connection the listener reconnects at the
    /// next call.
    pub async fn wait(&mut self) {
        if let Some(listener) = &mut self.listener
            && listener.try_recv().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

async fn listen(pool: &PgPool, channel: &str) -> sqlx::Result<PgListener> {
    // The listener keeps its connection, and a pool of one connection would have none left for its users.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(pool.options().get_acquire_timeout())
        .connect_lazy_with((*pool.connect_options()).clone());
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

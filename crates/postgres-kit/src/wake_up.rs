//! Wake-up notifications: a NOTIFY that ends the wait of a polling task early.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::Instant;

/// Pause after a listener that could not be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Receives the wake-up notifications of one channel. Each may get lost, so the task that waits here also polls.
#[derive(Debug)]
pub struct WakeUpListener {
    pool: PgPool,
    channel: &'static str,
    /// The connection that listens; `None` until it can be opened: the task only polls.
    listener: Option<PgListener>,
    /// When it is opened again.
    retry_at: Instant,
}

impl WakeUpListener {
    /// Listens on `channel`, over a connection of its own, beside those of `pool`.
    pub async fn open(pool: &PgPool, channel: &'static str) -> Self {
        let mut this = Self { pool: pool.clone(), channel, listener: None, retry_at: Instant::now() };
        this.try_to_open().await;
        this
    }

    async fn try_to_open(&mut self) {
        self.retry_at = Instant::now() + RETRY_INTERVAL;
        match listen(&self.pool, self.channel).await {
            Ok(listener) => self.listener = Some(listener),
            Err(error) => tracing::warn!(
                channel = self.channel,
                error = &error as &dyn std::error::Error,
                "the wake-up notifications of a channel cannot be listened to, so its task only polls; it tries again"
            ),
        }
    }

    /// Waits for a wake-up notification, or until the listener is open that could not be opened before: one may have been missed. After a
    /// lost connection the listener reconnects at the next call.
    pub async fn wait(&mut self) {
        while self.listener.is_none() {
            tokio::time::sleep_until(self.retry_at).await;
            self.try_to_open().await;
            if self.listener.is_some() {
                return;
            }
        }
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

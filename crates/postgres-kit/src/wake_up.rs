//! Wake-up notifications: a NOTIFY that ends the wait of a polling task early.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{Pool, unanswered};

/// Pause after a listener that could not be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Time without a notification, in limits of a statement, after which the listener asks whether the server is there: one that went away
/// without a word notifies nobody.
const CHECKED_AFTER_LIMITS: u32 = 3;

/// Receives the wake-up notifications of one channel. Each may get lost, so the task that waits here also polls.
#[derive(Debug)]
pub struct WakeUpListener {
    pool: Pool,
    channel: &'static str,
    /// The connection that listens; `None` until it can be opened: the task only polls.
    listener: Option<PgListener>,
    /// The task that opens it again: a caller may give its wait up sooner than a connection is there.
    opening: Option<JoinHandle<sqlx::Result<PgListener>>>,
    /// When it is opened again.
    retry_at: Instant,
    /// When the server was heard last.
    heard_at: Instant,
    /// When it was asked whether it is there, without an answer since.
    asked_at: Option<Instant>,
}

impl WakeUpListener {
    /// Listens on `channel`, over a connection of its own, beside those of `pool`.
    pub async fn open(pool: &Pool, channel: &'static str) -> Self {
        let now = Instant::now();
        let mut this = Self {
            pool: pool.clone(),
            channel,
            listener: None,
            opening: None,
            retry_at: now,
            heard_at: now,
            asked_at: None,
        };
        this.try_to_open().await;
        this
    }

    /// Opens the listener at its time, or waits for the task that does. A call that was given up is continued by the next one.
    async fn try_to_open(&mut self) {
        if self.opening.is_none() {
            tokio::time::sleep_until(self.retry_at).await;
        }
        let (pool, channel) = (&self.pool, self.channel);
        let opening = self.opening.get_or_insert_with(|| {
            let pool = pool.clone();
            tokio::spawn(async move {
                timeout(pool.limit(), listen(&pool, channel)).await.unwrap_or_else(|_| Err(unanswered()))
            })
        });
        let opened = opening.await.unwrap_or_else(|_| Err(unanswered()));
        self.opening = None;
        self.retry_at = Instant::now() + RETRY_INTERVAL;
        match opened {
            Ok(listener) => {
                self.listener = Some(listener);
                self.heard();
            }
            Err(error) => tracing::warn!(
                channel = self.channel,
                error = &error as &dyn std::error::Error,
                "the wake-up notifications of a channel cannot be listened to, so its task only polls; it tries again"
            ),
        }
    }

    fn heard(&mut self) {
        self.heard_at = Instant::now();
        self.asked_at = None;
    }

    /// Waits for a wake-up notification, or until the listener is open that could not be opened before, or whose server went away: one
    /// may have been missed. After a connection that was seen to be lost the listener reconnects at the next call.
    pub async fn wait(&mut self) {
        let limit = self.pool.limit();
        loop {
            let Some(listener) = &mut self.listener else {
                self.try_to_open().await;
                if self.listener.is_some() {
                    return;
                }
                continue;
            };
            // The caller may give this call up, and call again: the times are those of the server.
            let check_at = self.heard_at + limit * CHECKED_AFTER_LIMITS;
            match timeout_at(check_at, listener.try_recv()).await {
                Ok(Ok(_)) => {
                    self.heard();
                    return;
                }
                Ok(Err(_)) => std::future::pending::<()>().await,
                Err(_) => {}
            }
            let asked_at = *self.asked_at.get_or_insert_with(Instant::now);
            match timeout_at(asked_at + limit, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => self.heard(),
                _ => self.listener = None,
            }
        }
    }
}

async fn listen(pool: &Pool, channel: &str) -> sqlx::Result<PgListener> {
    let pool = pool.inner();
    // The listener keeps its connection, and a pool of one connection would have none left for its users.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(pool.options().get_acquire_timeout())
        .connect_lazy_with((*pool.connect_options()).clone());
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

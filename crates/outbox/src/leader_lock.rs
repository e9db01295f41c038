//! The leader lock: an advisory lock, held by the database session of the active relay.
//!
//! The relay changes rows only in this session. A relay that has lost the lock has lost the session too and changes nothing.

use std::time::Duration;

use postgres_kit::Pool;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::OutboxError;

/// Key of the advisory lock, in the database of the outbox.
const LOCK: i64 = 0x006f_7574_626f_7801;

/// Time without a query after which the database ends the session, so that a stalled relay loses the lock. Longer than a
/// publishing round and the longest pause after it.
const SESSION_IDLE_MAX: Duration = Duration::from_secs(15);

/// Timeout of opening and closing the session, and of each query in it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A session that holds the lock. Dropping it closes the connection, which releases the lock.
pub(crate) struct LeaderLock(PgConnection);

impl LeaderLock {
    /// Acquires the lock; asks for it at each `interval` while another session holds it. `None` if stopped meanwhile.
    ///
    /// # Errors
    /// [`OutboxError::Database`].
    pub(crate) async fn acquire(
        pool: &Pool,
        interval: Duration,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, OutboxError> {
        // One session for all attempts: a new one for each would cost more than the events that the other relay publishes.
        let mut session = with_timeout(open_session(pool)).await?;
        while !with_timeout(try_acquire(&mut session)).await? {
            tracing::debug!(
                "the outbox relay waits because the relay of another process holds the leader lock"
            );
            if stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_none() {
                Self(session).release().await;
                return Ok(None);
            }
        }
        Ok(Some(Self(session)))
    }

    /// The session, for every change that only the active relay may make.
    pub(crate) fn session(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    /// Closes the session, so that another relay acquires the lock without a wait.
    pub(crate) async fn release(self) {
        // After an error or timeout the connection is dropped, which ends the session too.
        let _ = tokio::time::timeout(TIMEOUT, self.0.close()).await;
    }
}

async fn open_session(pool: &Pool) -> Result<PgConnection, OutboxError> {
    let mut session = pool.inner().connect_options().as_ref().clone().connect().await?;
    // SET takes no parameters, so the timeout is set by `set_config`.
    let idle_max_ms = SESSION_IDLE_MAX.as_millis().to_string();
    sqlx::query!(
        // The table's statistics are mostly from a time without a backlog: by them the database would sort the whole
        // backlog, or read it in parallel, to return its first events. A mark that a crash of the database loses is written
        // again, after the event was published again; so no mark waits for the disk.
        r#"SELECT set_config('idle_session_timeout', $1, false) AS idle,
                  set_config('enable_sort', 'off', false) AS sort,
                  set_config('enable_bitmapscan', 'off', false) AS bitmaps,
                  set_config('max_parallel_workers_per_gather', '0', false) AS parallel,
                  set_config('synchronous_commit', 'off', false) AS disk"#,
        idle_max_ms,
    )
    .fetch_one(&mut session)
    .await?;
    Ok(session)
}

async fn try_acquire(session: &mut PgConnection) -> Result<bool, OutboxError> {
    Ok(sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "free!""#, LOCK).fetch_one(session).await?)
}

/// Limits the duration of a query in the session. The session is unusable after a timeout.
pub(crate) async fn with_timeout<T>(
    query: impl Future<Output = Result<T, OutboxError>>,
) -> Result<T, OutboxError> {
    tokio::time::timeout(TIMEOUT, query).await.map_err(|_| postgres_kit::unanswered())?
}

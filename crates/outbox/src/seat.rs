//! One relay is at work at a time: the one whose session holds the lock. Whatever it does to the rows it does in this very
//! session, so that one that has lost the seat can change nothing.

use std::time::Duration;

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};

use crate::OutboxError;

/// Key of the advisory lock, in the database of the events.
const LOCK: i64 = 0x006f_7574_626f_7801;

/// How long a session may be silent before the database ends it: a relay that stands still gives its seat up. Longer than a
/// look can take.
const SILENT_MAX: Duration = Duration::from_secs(15);

/// How long taking the seat may take.
const SIT_WITHIN: Duration = Duration::from_secs(5);

/// A session that holds the lock.
pub(crate) struct Seat(PgConnection);

impl Seat {
    /// Takes the seat; none when another session has it.
    ///
    /// # Errors
    /// [`OutboxError::Database`].
    pub(crate) async fn take(pool: &PgPool) -> Result<Option<Self>, OutboxError> {
        let sit = async {
            let mut session = pool.connect_options().as_ref().clone().connect().await?;
            // By `set_config`, since SET takes no parameters.
            let silent_ms = SILENT_MAX.as_millis().to_string();
            let free = sqlx::query_scalar!(
                r#"SELECT pg_try_advisory_lock($1) AS "free!" FROM set_config('idle_session_timeout', $2, false)"#,
                LOCK,
                silent_ms,
            )
            .fetch_one(&mut session)
            .await?;
            if free {
                return Ok(Some(Self(session)));
            }
            session.close().await?;
            Ok(None)
        };
        tokio::time::timeout(SIT_WITHIN, sit).await.map_err(|_| sqlx::Error::PoolTimedOut)?
    }

    /// The session, for everything that only the one at work may do.
    pub(crate) fn session(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    /// Gives the seat up, so that another relay need not wait.
    pub(crate) async fn leave(self) {
        // Where it cannot be said the connection is closed all the same.
        let _ = tokio::time::timeout(SIT_WITHIN, self.0.close()).await;
    }
}

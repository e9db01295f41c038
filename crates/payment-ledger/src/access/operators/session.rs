//! Sessions: opened by a login, ended by a logout, an administrator or time.

use jiff::Timestamp;

use super::{Operator, SessionToken, roles};
use crate::{Ledger, LedgerError};

/// Longest session, in seconds.
pub const SESSION_MAX_S: i32 = 12 * 3600;
/// A session that was not used for this long has ended, in seconds. `operator_session_idle_max()` in the database.
pub const SESSION_IDLE_S: i64 = 1_800;

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSession {
    /// Its id, which is no secret.
    pub session_id: String,
    /// Whose session it is.
    pub operator: Operator,
    /// When it ends, whatever happens.
    pub expires_at: Timestamp,
}

impl Ledger {
    /// Opens a session of an operator who is not disabled, and forgets failed logins.
    pub(super) async fn open_operator_session(
        &self,
        name: &str,
        token: &SessionToken,
        address: Option<&str>,
    ) -> Result<Option<OperatorSession>, LedgerError> {
        let hash = token.hash();
        let mut tx = postgres_kit::transaction::begin(&self.pool).await?;
        let row = sqlx::query!(
            r#"INSERT INTO operator_sessions (operator, token_hash, address, expires_at)
               SELECT name, $2, $3, clock_timestamp() + $4::int * interval '1 second' FROM operators
               WHERE name = $1 AND disabled_at IS NULL
               RETURNING session_id, expires_at AS "expires_at: jiff_sqlx::Timestamp""#,
            name,
            hash.as_slice(),
            address,
            SESSION_MAX_S,
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let stored = sqlx::query_scalar!(
            "UPDATE operators SET failed_logins = 0, locked_until = NULL WHERE name = $1 RETURNING roles",
            name
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        let operator = Operator { name: name.to_owned(), roles: roles(name, &stored)? };
        Ok(Some(OperatorSession {
            session_id: row.session_id,
            operator,
            expires_at: row.expires_at.to_jiff(),
        }))
    }

    /// The open session of a token, which this use prolongs up to its end; `None` if there is none.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn operator_session(
        &self,
        token: &SessionToken,
    ) -> Result<Option<OperatorSession>, LedgerError> {
        let hash = token.hash();
        let row = sqlx::query!(
            r#"SELECT s.session_id, s.operator, s.expires_at AS "expires_at: jiff_sqlx::Timestamp", o.roles,
                      s.last_used_at < clock_timestamp() - interval '1 minute' AS "is_due!"
               FROM operator_sessions s JOIN operators o ON o.name = s.operator
               WHERE s.token_hash = $1 AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()
                 AND s.last_used_at > clock_timestamp() - operator_session_idle_max() AND o.disabled_at IS NULL"#,
            hash.as_slice(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        if row.is_due {
            // Ended meanwhile: this request was authenticated before.
            sqlx::query!(
                "UPDATE operator_sessions SET last_used_at = clock_timestamp() WHERE session_id = $1 AND ended_at IS NULL",
                row.session_id
            )
            .execute(&self.pool)
            .await?;
        }
        let operator = Operator { roles: roles(&row.operator, &row.roles)?, name: row.operator };
        Ok(Some(OperatorSession {
            session_id: row.session_id,
            operator,
            expires_at: row.expires_at.to_jiff(),
        }))
    }

    /// Ends a session. A repeat changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn end_operator_session(&self, session_id: &str) -> Result<(), LedgerError> {
        sqlx::query!(
            "UPDATE operator_sessions SET ended_at = clock_timestamp() WHERE session_id = $1 AND ended_at IS NULL",
            session_id
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

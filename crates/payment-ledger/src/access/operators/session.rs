//! Sessions: opened by a login, ended by a logout, an administrator or time. The database keeps their times: 12 hours, and 30 minutes
//! without use.

use jiff::Timestamp;

use super::{Operator, SessionToken, roles};
use crate::{Ledger, LedgerError};

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
    /// The open session of a token, which this use prolongs up to its end; `None` if no session has it.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn operator_session(
        &self,
        token: &SessionToken,
    ) -> Result<Option<OperatorSession>, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT used AS "used!", ends_at AS "ends_at!: jiff_sqlx::Timestamp", acting AS "acting!", has_roles AS "has_roles!"
               FROM use_operator_session($1)"#,
            token.proof(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let operator = Operator { roles: roles(&row.acting, &row.has_roles)?, name: row.acting };
        Ok(Some(OperatorSession { session_id: row.used, operator, expires_at: row.ends_at.to_jiff() }))
    }

    /// Ends the session of a token. A repeat changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn end_operator_session(&self, token: &SessionToken) -> Result<(), LedgerError> {
        sqlx::query!("SELECT FROM end_operator_session($1)", token.proof()).execute(&self.pool).await?;
        Ok(())
    }
}

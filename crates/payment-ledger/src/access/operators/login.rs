//! Logins: a name and a password open a session.
//!
//! Each attempt is counted before its password is compared, so that attempts at the same moment cannot be more than the count allows.

use std::sync::LazyLock;

use payment_protocol::text_enum;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use super::{OperatorSession, PasswordHashText, SessionToken};
use crate::{Ledger, LedgerError};

/// Attempts after which a login is locked.
pub const LOGIN_ATTEMPTS_MAX: i32 = 5;
/// How long a login stays locked, in seconds.
pub const LOGIN_LOCKED_S: i32 = 900;

/// Comparisons at once in this process: each takes 19 MiB and a core for some ten milliseconds.
static COMPARISONS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));

/// Outcome of a login.
#[derive(Clone, Debug)]
pub enum LoginOutcome {
    /// The session that was opened.
    Opened(OperatorSession),
    /// Refused. The reason is for the log: all are answered alike, so that nobody learns which names exist.
    Refused(LoginRefusal),
}

text_enum!(
    /// Why a login was refused.
    LoginRefusal {
        /// No such operator.
        Unknown = "unknown",
        /// The operator is disabled.
        Disabled = "disabled",
        /// Another password.
        WrongPassword = "wrong_password",
        /// Too many attempts failed: none counts until the lockout ends.
        Locked = "locked",
    }
);

impl Ledger {
    /// Compares the password of an operator, and opens a session under `token` if it is right.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn log_operator_in(
        &self,
        name: &str,
        password: &SecretString,
        token: &SessionToken,
        address: Option<&str>,
    ) -> Result<LoginOutcome, LedgerError> {
        let (hash, refusal) = self.count_login(name).await?;
        // Compared in any case: the time of the answer says nothing about the name.
        let matches = compare(hash, password.clone()).await;
        let refusal = refusal.or((!matches).then_some(LoginRefusal::WrongPassword));
        if let Some(refusal) = refusal {
            return Ok(LoginOutcome::Refused(refusal));
        }
        Ok(match self.open_operator_session(name, token, address).await? {
            Some(session) => LoginOutcome::Opened(session),
            // Disabled meanwhile.
            None => LoginOutcome::Refused(LoginRefusal::Disabled),
        })
    }

    /// Counts an attempt. Returns what the password is compared with, and why the login is refused whatever it is.
    async fn count_login(&self, name: &str) -> Result<(PasswordHashText, Option<LoginRefusal>), LedgerError> {
        let counted = sqlx::query!(
            r#"UPDATE operators
               SET failed_logins = CASE WHEN locked_until IS NULL THEN failed_logins + 1 ELSE 1 END,
                   locked_until = CASE WHEN locked_until IS NULL AND failed_logins + 1 >= $2
                                       THEN clock_timestamp() + $3::int * interval '1 second' END
               WHERE name = $1 AND (locked_until IS NULL OR locked_until <= clock_timestamp())
               RETURNING password_hash, disabled_at IS NOT NULL AS "is_disabled!""#,
            name,
            LOGIN_ATTEMPTS_MAX,
            LOGIN_LOCKED_S,
        )
        .fetch_optional(&self.pool)
        .await?;
        if let Some(row) = counted {
            let refusal = row.is_disabled.then_some(LoginRefusal::Disabled);
            return Ok((PasswordHashText::stored(row.password_hash), refusal));
        }
        let exists = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM operators WHERE name = $1) AS "exists!""#,
            name
        )
        .fetch_one(&self.pool)
        .await?;
        let refusal = if exists { LoginRefusal::Locked } else { LoginRefusal::Unknown };
        Ok((PasswordHashText::of_nobody(), Some(refusal)))
    }
}

/// Compares beside the runtime, a few at a time.
async fn compare(hash: PasswordHashText, password: SecretString) -> bool {
    // Never closed.
    let Ok(_permit) = COMPARISONS.acquire().await else { return false };
    tokio::task::spawn_blocking(move || hash.matches(&password)).await.unwrap_or(false)
}

//! Logins: a name and a password open a session, of which the database counts the attempts and compares; or an identity, which the
//! caller has verified by an ID token of its OpenID provider, and which opens one session for each token.

use payment_protocol::text_enum;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::password::secret_of_login;
use super::{Operator, OperatorIdentity, OperatorSession, SessionToken, roles};
use crate::operator::decisions::validate_operator_name;
use crate::{Ledger, LedgerError};

/// Attempts after which a login is locked, for 15 minutes: `open_operator_session()` in the database.
pub const LOGIN_ATTEMPTS_MAX: usize = 5;

/// Outcome of a login.
#[derive(Clone, Debug)]
pub enum LoginOutcome {
    /// The session that was opened.
    Opened(OperatorSession),
    /// Refused. The reason is for the log: all are answered alike.
    Refused(LoginRefusal),
}

text_enum!(
    /// Why a login was refused.
    LoginRefusal {
        /// No such operator, or none with this identity.
        Unknown = "unknown",
        /// The operator is disabled.
        Disabled = "disabled",
        /// Another password.
        WrongPassword = "wrong_password",
        /// Too many attempts failed: none counts until the lockout ends.
        Locked = "locked",
        /// The ID token has opened a session already.
        TokenUsed = "token_used",
    }
);

impl Ledger {
    /// Opens a session under `token` if the password is the operator's.
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
        // Another name is nobody's, and the database could not store some of them.
        let name = if validate_operator_name(name).is_ok() { name } else { "-" };
        let salt = sqlx::query!("SELECT salt, version FROM operator_password_salt($1)", name)
            .fetch_optional(&self.pool)
            .await?;
        let salt = salt.and_then(|row| Some((row.salt?, row.version?)));
        let unusable = |error: super::PasswordError| LedgerError::Unreadable {
            id: name.to_owned(),
            column: "password_version",
            value: error.to_string(),
        };
        let secret = secret_of_login(password, salt).await.map_err(unusable)?;
        let row = sqlx::query!(
            r#"SELECT refusal, opened, ends_at AS "ends_at: jiff_sqlx::Timestamp", has_roles
               FROM open_operator_session($1, $2, $3, $4)"#,
            name,
            secret.as_slice(),
            token.proof(),
            address,
        )
        .fetch_one(&self.pool)
        .await?;
        outcome(row.refusal.as_deref(), Some(name.to_owned()), row.opened, row.ends_at, row.has_roles)
    }

    /// Opens a session under `token` for the operator with an identity. The caller has verified the ID token, which opens one session.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn log_identity_in(
        &self,
        identity: &OperatorIdentity,
        id_token: &SecretString,
        token: &SessionToken,
        address: Option<&str>,
    ) -> Result<LoginOutcome, LedgerError> {
        // Without the signature, of which somebody without the key can make a second valid one: (r, s) and (r, n - s) sign the same.
        let text = id_token.expose_secret();
        let signed = text.rsplit_once('.').map_or(text, |(signed, _)| signed);
        let token_hash = Sha256::digest(signed.as_bytes());
        let row = sqlx::query!(
            r#"SELECT refusal, login, opened, ends_at AS "ends_at: jiff_sqlx::Timestamp", has_roles
               FROM open_operator_session_of_identity($1, $2, $3, $4, $5)"#,
            identity.issuer(),
            identity.subject(),
            token_hash.as_slice(),
            token.proof(),
            address,
        )
        .fetch_one(&self.pool)
        .await?;
        outcome(row.refusal.as_deref(), row.login, row.opened, row.ends_at, row.has_roles)
    }
}

/// What the database made of a login.
fn outcome(
    refusal: Option<&str>,
    name: Option<String>,
    opened: Option<String>,
    ends_at: Option<jiff_sqlx::Timestamp>,
    has_roles: Option<Vec<String>>,
) -> Result<LoginOutcome, LedgerError> {
    let (Some(name), Some(session_id), Some(ends_at), Some(has_roles)) = (name, opened, ends_at, has_roles)
    else {
        let refusal = refusal.and_then(LoginRefusal::parse);
        return Ok(LoginOutcome::Refused(refusal.unwrap_or(LoginRefusal::Unknown)));
    };
    let operator = Operator { roles: roles(&name, &has_roles)?, name };
    Ok(LoginOutcome::Opened(OperatorSession { session_id, operator, expires_at: ends_at.to_jiff() }))
}

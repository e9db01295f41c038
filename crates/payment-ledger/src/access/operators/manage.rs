//! Operators: created, changed, disabled, listed.

use jiff::Timestamp;

use super::{OperatorIdentity, OperatorRole, StoredPassword, columns, roles};
use crate::{Ledger, LedgerError};

/// How an operator logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorLogin {
    /// With a password of operator-api's own.
    Password(StoredPassword),
    /// As an identity of an OpenID provider.
    Identity(OperatorIdentity),
}

impl From<StoredPassword> for OperatorLogin {
    fn from(password: StoredPassword) -> Self {
        Self::Password(password)
    }
}

impl From<OperatorIdentity> for OperatorLogin {
    fn from(identity: OperatorIdentity) -> Self {
        Self::Identity(identity)
    }
}

impl OperatorLogin {
    fn password(&self) -> Option<&StoredPassword> {
        match self {
            Self::Password(password) => Some(password),
            Self::Identity(_) => None,
        }
    }

    fn identity(&self) -> Option<&OperatorIdentity> {
        match self {
            Self::Password(_) => None,
            Self::Identity(identity) => Some(identity),
        }
    }
}

/// An operator as administrators see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorView {
    /// The name.
    pub name: String,
    /// The roles.
    pub roles: Vec<OperatorRole>,
    /// As which identity the operator logs in; `None` for a password.
    pub identity: Option<OperatorIdentity>,
    /// When the operator was created.
    pub created_at: Timestamp,
    /// When the operator was disabled.
    pub disabled_at: Option<Timestamp>,
    /// Until when no login is accepted, if that is still to come.
    pub locked_until: Option<Timestamp>,
    /// Sessions that are open now.
    pub open_sessions: i64,
}

/// Outcome of creating an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewOperatorOutcome {
    /// Created now.
    Created,
    /// An operator of this name, of another spelling of it, or with this identity exists already.
    Exists(String),
}

/// Outcome of a change of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOperatorOutcome {
    /// Changed now.
    Changed,
    /// There is no such operator.
    Unknown,
    /// Another operator, this one, has the identity.
    IdentityOf(String),
}

impl ChangeOperatorOutcome {
    fn of(rows: u64) -> Self {
        if rows > 0 { Self::Changed } else { Self::Unknown }
    }
}

impl Ledger {
    /// Creates an operator. `name`: 1 to 64 ASCII letters, digits and . _ - @, the first one a letter or a digit.
    ///
    /// # Errors
    /// [`LedgerError`], also for another name.
    pub async fn create_operator(
        &self,
        name: &str,
        roles: &[OperatorRole],
        login: &OperatorLogin,
    ) -> Result<NewOperatorOutcome, LedgerError> {
        let (password, identity) = (login.password(), login.identity());
        let created = sqlx::query!(
            "INSERT INTO operators (name, roles, password_salt, password_version, password_proof, oidc_issuer, oidc_subject)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT DO NOTHING",
            name,
            &columns(roles),
            password.map(|password| password.salt.as_slice()),
            password.map(|password| password.version),
            password.map(|password| password.proof.as_slice()),
            identity.map(OperatorIdentity::issuer),
            identity.map(OperatorIdentity::subject),
        )
        .execute(&self.pool)
        .await?;
        if created.rows_affected() > 0 {
            return Ok(NewOperatorOutcome::Created);
        }
        let existing = sqlx::query_scalar!(
            "SELECT name FROM operators
             WHERE lower(regexp_replace(name, '[^a-zA-Z0-9]', '', 'g')) = lower(regexp_replace($1, '[^a-zA-Z0-9]', '', 'g'))
                OR (oidc_issuer, oidc_subject) = ($2, $3)
             LIMIT 1",
            name,
            identity.map(OperatorIdentity::issuer),
            identity.map(OperatorIdentity::subject),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(NewOperatorOutcome::Exists(existing))
    }

    /// Replaces an operator's roles, which takes effect at once.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn set_operator_roles(
        &self,
        name: &str,
        roles: &[OperatorRole],
    ) -> Result<ChangeOperatorOutcome, LedgerError> {
        let changed = sqlx::query!("UPDATE operators SET roles = $2 WHERE name = $1", name, &columns(roles))
            .execute(&self.pool)
            .await?;
        Ok(ChangeOperatorOutcome::of(changed.rows_affected()))
    }

    /// Replaces how an operator logs in, ends a lockout, and ends the operator's sessions.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn set_operator_login(
        &self,
        name: &str,
        login: &OperatorLogin,
    ) -> Result<ChangeOperatorOutcome, LedgerError> {
        let (password, identity) = (login.password(), login.identity());
        let mut tx = self.pool.begin().await?;
        if let Some(identity) = identity {
            let other = sqlx::query_scalar!(
                "SELECT name FROM operators WHERE (oidc_issuer, oidc_subject) = ($2, $3) AND name <> $1",
                name,
                identity.issuer(),
                identity.subject(),
            )
            .fetch_optional(&mut *tx)
            .await?;
            if let Some(other) = other {
                return Ok(ChangeOperatorOutcome::IdentityOf(other));
            }
        }
        let changed = sqlx::query!(
            "UPDATE operators SET password_salt = $2, password_version = $3, password_proof = $4, oidc_issuer = $5, oidc_subject = $6,
                 failed_logins = 0, locked_until = NULL
             WHERE name = $1",
            name,
            password.map(|password| password.salt.as_slice()),
            password.map(|password| password.version),
            password.map(|password| password.proof.as_slice()),
            identity.map(OperatorIdentity::issuer),
            identity.map(OperatorIdentity::subject),
        )
        .execute(&mut *tx)
        .await?;
        end_sessions(&mut tx, name).await?;
        tx.commit().await?;
        Ok(ChangeOperatorOutcome::of(changed.rows_affected()))
    }

    /// Disables an operator for good and ends the operator's sessions. A repeat changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn disable_operator(&self, name: &str) -> Result<ChangeOperatorOutcome, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let changed = sqlx::query!(
            "UPDATE operators SET disabled_at = coalesce(disabled_at, clock_timestamp()) WHERE name = $1",
            name,
        )
        .execute(&mut *tx)
        .await?;
        end_sessions(&mut tx, name).await?;
        tx.commit().await?;
        Ok(ChangeOperatorOutcome::of(changed.rows_affected()))
    }

    /// All operators, by name.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn operators(&self) -> Result<Vec<OperatorView>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT o.name, o.roles, o.oidc_issuer, o.oidc_subject, o.created_at AS "created_at: jiff_sqlx::Timestamp",
                      o.disabled_at AS "disabled_at: jiff_sqlx::Timestamp",
                      CASE WHEN o.locked_until > clock_timestamp() THEN o.locked_until END AS "locked_until: jiff_sqlx::Timestamp",
                      (SELECT count(*) FROM operator_sessions s
                       WHERE s.operator = o.name AND s.ended_at IS NULL AND s.expires_at > clock_timestamp()
                         AND s.last_used_at > clock_timestamp() - operator_session_idle_max()) AS "open_sessions!"
               FROM operators o ORDER BY o.name"#,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(OperatorView {
                    roles: roles(&row.name, &row.roles)?,
                    identity: identity(&row.name, row.oidc_issuer.as_deref(), row.oidc_subject.as_deref())?,
                    name: row.name,
                    created_at: row.created_at.to_jiff(),
                    disabled_at: row.disabled_at.map(|at| at.to_jiff()),
                    locked_until: row.locked_until.map(|at| at.to_jiff()),
                    open_sessions: row.open_sessions,
                })
            })
            .collect()
    }
}

/// The identity of a row.
fn identity(
    name: &str,
    issuer: Option<&str>,
    subject: Option<&str>,
) -> Result<Option<OperatorIdentity>, LedgerError> {
    let (Some(issuer), Some(subject)) = (issuer, subject) else { return Ok(None) };
    let identity = OperatorIdentity::new(issuer, subject).map_err(|error| LedgerError::Unreadable {
        id: name.to_owned(),
        column: "oidc_subject",
        value: error.to_string(),
    })?;
    Ok(Some(identity))
}

async fn end_sessions(tx: &mut postgres_kit::Connection, name: &str) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE operator_sessions SET ended_at = clock_timestamp() WHERE operator = $1 AND ended_at IS NULL",
        name
    )
    .execute(tx)
    .await?;
    Ok(())
}

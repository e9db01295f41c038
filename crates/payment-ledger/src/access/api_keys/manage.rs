//! API keys: created and listed. Operators create, rotate and revoke them by changes ([`crate::operator::changes`]).

use jiff::Timestamp;
use payment_protocol::ids::{ClientId, KeyId, TenantId};

use super::{Caller, Scopes, caller, key_id, scopes};
use crate::{Ledger, LedgerError};

/// A key to insert. The key itself is never stored.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// Its public id.
    pub id: &'a KeyId,
    /// SHA-256 of the key.
    pub hash: &'a [u8],
    /// Recognisable prefix, too short to guess the rest from.
    pub prefix: &'a str,
    /// The tenant and client that it authenticates.
    pub caller: &'a Caller,
    /// Its scopes.
    pub scopes: &'a Scopes,
    /// Lifetime in seconds; `None` for ever.
    pub lifetime_s: Option<i64>,
}

/// Status of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// Can authenticate.
    Active,
    /// Past its expiry.
    Expired,
    /// Revoked by an operator.
    Revoked,
}

impl KeyStatus {
    /// The word shown to operators.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A key as operators see it: without the key and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its public id.
    pub id: KeyId,
    /// Prefix of the key.
    pub prefix: String,
    /// The tenant and client that it authenticates.
    pub caller: Caller,
    /// Its scopes.
    pub scopes: Scopes,
    /// Its status now.
    pub status: KeyStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its expiry; `None` for ever.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// The successor.
    pub rotated_to: Option<KeyId>,
}

impl Ledger {
    /// Inserts a key. Inserting the same key again changes nothing, whatever its client.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn insert_api_key(&self, key: &NewKey<'_>) -> Result<(), LedgerError> {
        sqlx::query!(
            "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, now() + $7::bigint * interval '1 second')
             ON CONFLICT (key_hash) DO NOTHING",
            key.id.as_str(),
            key.hash,
            key.prefix,
            key.caller.tenant.as_str(),
            key.caller.client.as_str(),
            &key.scopes.to_columns(),
            key.lifetime_s,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// All keys of any status, by tenant, client and age; optionally of one tenant and one client.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn api_keys(
        &self,
        tenant: Option<&TenantId>,
        client: Option<&ClientId>,
    ) -> Result<Vec<KeyView>, LedgerError> {
        let rows = sqlx::query_as!(
            ApiKeyRow,
            r#"SELECT id, prefix, tenant_id, client_id, scopes, created_at, expires_at, revoked_at, rotated_to,
                   coalesce(expires_at <= clock_timestamp(), false) AS "expired!"
               FROM api_keys
               WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR client_id = $2)
               ORDER BY tenant_id, client_id, created_at, id"#,
            tenant.map(TenantId::as_str),
            client.map(ClientId::as_str),
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(ApiKeyRow::view).collect()
    }
}

/// Columns of a key.
struct ApiKeyRow {
    id: String,
    prefix: String,
    tenant_id: String,
    client_id: String,
    scopes: Vec<String>,
    created_at: jiff_sqlx::Timestamp,
    expires_at: Option<jiff_sqlx::Timestamp>,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    rotated_to: Option<String>,
    expired: bool,
}

impl ApiKeyRow {
    fn view(self) -> Result<KeyView, LedgerError> {
        let status = match (&self.revoked_at, self.expired) {
            (Some(_), _) => KeyStatus::Revoked,
            (None, true) => KeyStatus::Expired,
            (None, false) => KeyStatus::Active,
        };
        Ok(KeyView {
            caller: caller(&self.id, self.tenant_id, self.client_id)?,
            scopes: scopes(&self.id, &self.scopes)?,
            id: key_id(self.id)?,
            prefix: self.prefix,
            status,
            created_at: self.created_at.to_jiff(),
            expires_at: self.expires_at.map(|at| at.to_jiff()),
            revoked_at: self.revoked_at.map(|at| at.to_jiff()),
            rotated_to: self.rotated_to.map(key_id).transpose()?,
        })
    }
}

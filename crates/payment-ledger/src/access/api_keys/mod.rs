//! Who may call, and what for. Keys are stored hashed; the hash is the caller's to make.
//!
//! A key belongs to one client of one tenant for ever, and so do its scopes: another client or another
//! scope is another key. What ends a key (expiry, rotation, revocation) is judged by the database's
//! clock, so that all processes agree.

mod manage;
mod scopes;

use payment_protocol::ids::{ClientId, KeyId, TenantId};

use crate::{Ledger, LedgerError};

pub use manage::{KeyStatus, KeyView, NewKey, Revocation, Rotated, Rotation, Successor};
pub use scopes::{Scope, Scopes, UnknownScope};

/// Whom a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The tenant.
    pub tenant: TenantId,
    /// The client within it; the same through rotation of its keys.
    pub client: ClientId,
}

/// A key that is good now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidKey {
    /// Its public id.
    pub id: KeyId,
    /// Whom it belongs to.
    pub caller: Caller,
    /// What it may do.
    pub scopes: Scopes,
}

impl Ledger {
    /// The key with this SHA-256, unless it was revoked or has expired.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn valid_key(&self, key_hash: &[u8]) -> Result<Option<ValidKey>, LedgerError> {
        let row = sqlx::query!(
            "SELECT id, tenant_id, client_id, scopes FROM api_keys
             WHERE key_hash = $1 AND revoked_at IS NULL
                 AND (expires_at IS NULL OR expires_at > clock_timestamp())",
            key_hash,
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            Ok(ValidKey {
                caller: caller(&row.id, row.tenant_id, row.client_id)?,
                scopes: scopes(&row.id, &row.scopes)?,
                id: key_id(row.id)?,
            })
        })
        .transpose()
    }
}

fn key_id(id: String) -> Result<KeyId, LedgerError> {
    KeyId::new(id.as_str()).map_err(|_| unreadable("api key", "id", id))
}

fn caller(id: &str, tenant: String, client: String) -> Result<Caller, LedgerError> {
    Ok(Caller {
        tenant: TenantId::new(tenant.as_str()).map_err(|_| unreadable(id, "tenant_id", tenant))?,
        client: ClientId::new(client.as_str()).map_err(|_| unreadable(id, "client_id", client))?,
    })
}

fn scopes(id: &str, stored: &[String]) -> Result<Scopes, LedgerError> {
    let known = stored.iter().map(|scope| scope.parse()).collect::<Result<Vec<Scope>, _>>().ok();
    known.and_then(Scopes::new).ok_or_else(|| unreadable(id, "scopes", stored.join(",")))
}

fn unreadable(id: &str, column: &'static str, value: String) -> LedgerError {
    LedgerError::Unreadable { id: id.to_owned(), column, value }
}

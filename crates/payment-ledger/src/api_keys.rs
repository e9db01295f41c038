//! Who may call. Keys are stored hashed; the hash is the caller's to make.

use payment_protocol::ids::{ClientId, TenantId};

use crate::{Ledger, LedgerError};

/// Whom a key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant: TenantId,
    /// The client within it; the same through rotation of its keys.
    pub client: ClientId,
}

impl Ledger {
    /// Whom the key with this SHA-256 belongs to, unless it was revoked.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn caller(&self, key_hash: &[u8]) -> Result<Option<Caller>, LedgerError> {
        let row = sqlx::query!(
            "SELECT tenant_id, client_id FROM api_keys WHERE key_hash = $1 AND revoked_at IS NULL",
            key_hash,
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            let unreadable = |column: &'static str, value: &str| LedgerError::Unreadable {
                id: "api key".into(),
                column,
                value: value.to_owned(),
            };
            Ok(Caller {
                tenant: TenantId::new(row.tenant_id.as_str())
                    .map_err(|_| unreadable("tenant_id", &row.tenant_id))?,
                client: ClientId::new(row.client_id.as_str())
                    .map_err(|_| unreadable("client_id", &row.client_id))?,
            })
        })
        .transpose()
    }

    /// Stores a key. `prefix` is its recognisable beginning. Storing it again changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn store_api_key(
        &self,
        key_hash: &[u8],
        prefix: &str,
        caller: &Caller,
    ) -> Result<(), LedgerError> {
        sqlx::query!(
            "INSERT INTO api_keys (key_hash, prefix, tenant_id, client_id) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            key_hash,
            prefix,
            caller.tenant.as_str(),
            caller.client.as_str(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

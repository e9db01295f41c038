//! API keys: authentication and scopes. Only the SHA-256 of a key is stored; the caller computes it.
//!
//! A key's client and scopes never change: another client or another scope needs another key. The database's
//! clock decides when a key expires, so that all processes agree.

mod lookup;
mod manage;
mod scopes;

use payment_protocol::ids::{ClientId, KeyId, TenantId};

use crate::LedgerError;

pub(crate) use lookup::KeyLookups;
pub use manage::{KeyStatus, KeyView, NewKey};
pub use scopes::{ApiKeyScope, Scopes, UnknownScope};

/// The tenant and client that a key authenticates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The tenant.
    pub tenant: TenantId,
    /// The client within it; unchanged by rotations.
    pub client: ClientId,
}

/// A key that is active now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    /// Its public id.
    pub id: KeyId,
    /// The tenant and client that it authenticates.
    pub caller: Caller,
    /// Its scopes.
    pub scopes: Scopes,
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
    let known = stored.iter().map(|scope| scope.parse()).collect::<Result<Vec<ApiKeyScope>, _>>().ok();
    known.and_then(Scopes::new).ok_or_else(|| unreadable(id, "scopes", stored.join(",")))
}

fn unreadable(id: &str, column: &'static str, value: String) -> LedgerError {
    LedgerError::Unreadable { id: id.to_owned(), column, value }
}

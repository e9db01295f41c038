//! Reads endpoints.

use postgres_kit::Connection;

use super::{Endpoint, EndpointRow};
use crate::{EndpointId, WebhooksError};

/// The endpoints that a caller may see.
#[derive(Clone, Copy, Debug)]
pub enum EndpointScope<'a> {
    /// Endpoints of one tenant.
    Tenant(&'a str),
    /// Endpoints of every tenant: for operators.
    All,
}

impl<'a> EndpointScope<'a> {
    fn tenant(self) -> Option<&'a str> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::All => None,
        }
    }
}

/// Up to `limit` endpoints by tenant, oldest first.
///
/// # Errors
/// [`WebhooksError`].
pub async fn list(
    connection: &mut Connection,
    scope: EndpointScope<'_>,
    limit: i64,
) -> Result<Vec<Endpoint>, WebhooksError> {
    let rows = sqlx::query_as!(
        EndpointRow,
        "SELECT endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                old_secret_until, failing_since, created_at, rotated_at
         FROM webhook_endpoints
         WHERE status <> 'deleted' AND ($1::text IS NULL OR tenant_id = $1)
         ORDER BY tenant_id, created_at, endpoint_id LIMIT $2",
        scope.tenant(),
        limit,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Endpoint::try_from).collect()
}

/// One endpoint; `None` if it does not exist or is outside the scope.
///
/// # Errors
/// [`WebhooksError`].
pub async fn get(
    connection: &mut Connection,
    scope: EndpointScope<'_>,
    id: &EndpointId,
) -> Result<Option<Endpoint>, WebhooksError> {
    let row = sqlx::query_as!(
        EndpointRow,
        "SELECT endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                old_secret_until, failing_since, created_at, rotated_at
         FROM webhook_endpoints
         WHERE endpoint_id = $1 AND status <> 'deleted' AND ($2::text IS NULL OR tenant_id = $2)",
        id.as_str(),
        scope.tenant(),
    )
    .fetch_optional(connection)
    .await?;
    row.map(Endpoint::try_from).transpose()
}

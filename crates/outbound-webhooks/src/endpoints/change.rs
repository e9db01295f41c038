//! Changes of a tenant's endpoint by the tenant.

use postgres_kit::Connection;

use super::create::is_host_disabled_by_operator;
use super::{Endpoint, EndpointRow, EndpointScope, EndpointStatus, get};
use crate::secret::MasterKey;
use crate::target::Target;
use crate::{EndpointId, WebhooksError};

/// The fields to change; `None` leaves a field as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointChange<'a> {
    /// Its URL.
    pub target: Option<&'a Target>,
    /// Kinds of events that it receives; empty for all.
    pub kinds: Option<&'a [String]>,
    /// Whether it receives events.
    pub status: Option<EndpointStatus>,
}

/// Outcome of a tenant's change of its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointUpdateOutcome<T> {
    /// Changed.
    Done(T),
    /// The tenant has no such endpoint.
    NotFound,
    /// An operator has disabled the endpoint, or one on the new host; only an operator can enable it.
    DisabledByOperator,
}

/// Changes a tenant's endpoint. Pending deliveries are sent to the new URL.
///
/// # Errors
/// [`WebhooksError`].
pub async fn change(
    tx: &mut Connection,
    tenant: &str,
    id: &EndpointId,
    change: EndpointChange<'_>,
) -> Result<EndpointUpdateOutcome<Box<Endpoint>>, WebhooksError> {
    if let Some(target) = change.target
        && is_host_disabled_by_operator(&mut *tx, tenant, target).await?
    {
        return Ok(EndpointUpdateOutcome::DisabledByOperator);
    }
    let row = sqlx::query_as!(
        EndpointRow,
        "UPDATE webhook_endpoints
         SET url = coalesce($3, url), kinds = coalesce($4, kinds), status = coalesce($5, status),
             disabled_reason = CASE WHEN $5::text IS NULL THEN disabled_reason
                                 WHEN $5 = 'disabled' THEN coalesce(disabled_reason, 'by_tenant') END,
             disabled_note = CASE WHEN $5::text IS DISTINCT FROM 'active' THEN disabled_note END,
             -- A new URL or enabling the endpoint restarts the failure period.
             failing_since = CASE WHEN $3::text IS NULL AND $5::text IS DISTINCT FROM 'active' THEN failing_since END
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted' AND disabled_reason IS DISTINCT FROM 'by_operator'
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        tenant,
        change.target.map(Target::as_str),
        change.kinds,
        change.status.map(EndpointStatus::as_str),
    )
    .fetch_optional(&mut *tx)
    .await?;
    match row {
        Some(row) => Ok(EndpointUpdateOutcome::Done(Box::new(row.try_into()?))),
        None => refusal(tx, tenant, id).await,
    }
}

/// Why a tenant's endpoint was not changed.
async fn refusal<T>(
    connection: &mut Connection,
    tenant: &str,
    id: &EndpointId,
) -> Result<EndpointUpdateOutcome<T>, WebhooksError> {
    let endpoint = get(connection, EndpointScope::Tenant(tenant), id).await?;
    Ok(match endpoint {
        Some(_) => EndpointUpdateOutcome::DisabledByOperator,
        None => EndpointUpdateOutcome::NotFound,
    })
}

/// Rotates the secret of a tenant's endpoint. The previous secret signs too for `overlap_s` seconds; an older one signs no
/// longer. `None` if the tenant has no such endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn rotate(
    tx: &mut Connection,
    master_key: &MasterKey,
    tenant: &str,
    id: &EndpointId,
    overlap_s: u32,
) -> Result<Option<Endpoint>, WebhooksError> {
    let row = sqlx::query_as!(
        EndpointRow,
        "UPDATE webhook_endpoints
         SET secret_version = secret_version + 1, rotated_at = clock_timestamp(), secret_check = $3,
             -- A previous secret of another master key cannot sign any more.
             old_secret_until = CASE WHEN secret_check = $3
                                     THEN clock_timestamp() + $4::bigint * interval '1 second' END
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted'
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        tenant,
        &master_key.check(id)[..],
        i64::from(overlap_s),
    )
    .fetch_optional(tx)
    .await?;
    row.map(Endpoint::try_from).transpose()
}

/// Deletes a tenant's endpoint and its pending deliveries.
///
/// # Errors
/// [`WebhooksError`].
pub async fn delete(
    tx: &mut Connection,
    tenant: &str,
    id: &EndpointId,
) -> Result<EndpointUpdateOutcome<()>, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints SET status = 'deleted', disabled_reason = NULL, disabled_note = NULL
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted' AND disabled_reason IS DISTINCT FROM 'by_operator'",
        id.as_str(),
        tenant,
    )
    .execute(&mut *tx)
    .await?;
    if rows.rows_affected() > 0 { Ok(EndpointUpdateOutcome::Done(())) } else { refusal(tx, tenant, id).await }
}

//! Creates endpoints.

use postgres_kit::Connection;

use super::{Endpoint, EndpointRow};
use crate::secret::MasterKey;
use crate::target::Target;
use crate::{EndpointId, WebhooksError};

/// An endpoint to create.
#[derive(Clone, Copy, Debug)]
pub struct NewEndpoint<'a> {
    /// The tenant that owns it.
    pub tenant: &'a str,
    /// Its URL.
    pub target: &'a Target,
    /// Kinds of events that it receives; empty for all.
    pub kinds: &'a [String],
}

/// Outcome of creating an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateEndpointOutcome {
    /// Created and active.
    Created(Box<Endpoint>),
    /// The tenant has reached its limit of endpoints.
    TooMany,
    /// An operator has disabled an endpoint of this tenant on the same host; a new one would circumvent that.
    DisabledByOperator,
}

/// Creates an endpoint, unless the tenant has `max` endpoints or an operator has disabled one of its endpoints on the host.
///
/// # Errors
/// [`WebhooksError`]: the transaction must not be committed.
pub async fn create(
    tx: &mut Connection,
    master_key: &MasterKey,
    new: NewEndpoint<'_>,
    max: i64,
) -> Result<CreateEndpointOutcome, WebhooksError> {
    // Serialises creations of one tenant; otherwise two could both count one below the limit.
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoints:' || $1, 0)) AS "locked?""#,
        new.tenant,
    )
    .execute(&mut *tx)
    .await?;
    if is_host_disabled_by_operator(&mut *tx, new.tenant, new.target).await? {
        return Ok(CreateEndpointOutcome::DisabledByOperator);
    }
    let id = EndpointId::random();
    let row = sqlx::query_as!(
        EndpointRow,
        "INSERT INTO webhook_endpoints (endpoint_id, tenant_id, url, kinds, secret_check)
         SELECT $1, $2, $3, $4, $5
         WHERE (SELECT count(*) FROM webhook_endpoints WHERE tenant_id = $2 AND status <> 'deleted') < $6
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        new.tenant,
        new.target.as_str(),
        new.kinds,
        &master_key.check(&id)[..],
        max,
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) => Ok(CreateEndpointOutcome::Created(Box::new(row.try_into()?))),
        None => Ok(CreateEndpointOutcome::TooMany),
    }
}

/// Whether an operator has disabled an endpoint of this tenant on the target's host.
pub(super) async fn is_host_disabled_by_operator(
    connection: &mut Connection,
    tenant: &str,
    target: &Target,
) -> Result<bool, WebhooksError> {
    let disabled = sqlx::query_scalar!(
        "SELECT url FROM webhook_endpoints WHERE tenant_id = $1 AND status <> 'deleted' AND disabled_reason = 'by_operator'",
        tenant,
    )
    .fetch_all(connection)
    .await?;
    Ok(disabled.iter().any(|url| target.has_host_of(url)))
}

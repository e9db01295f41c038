//! Commands of operators on any tenant's endpoint.

use sqlx::PgConnection;

use crate::{EndpointId, WebhooksError};

/// Disables an endpoint with an operator's note. False if there is no such endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn disable_as_operator(
    tx: &mut PgConnection,
    id: &EndpointId,
    note: &str,
) -> Result<bool, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'by_operator', disabled_note = $2
         WHERE endpoint_id = $1 AND status <> 'deleted'",
        id.as_str(),
        note,
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}

/// Enables an endpoint, whatever disabled it. False if it was not disabled.
///
/// # Errors
/// [`WebhooksError`].
pub async fn enable_as_operator(tx: &mut PgConnection, id: &EndpointId) -> Result<bool, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints
         SET status = 'active', disabled_reason = NULL, disabled_note = NULL, failing_since = NULL
         WHERE endpoint_id = $1 AND status = 'disabled'",
        id.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}

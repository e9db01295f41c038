//! Commands of operators on any tenant's endpoint.

use postgres_kit::Connection;

use crate::{EndpointId, WebhooksError};

/// Disables an endpoint with an operator's note. False if there is no such endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn disable_as_operator(
    tx: &mut Connection,
    id: &EndpointId,
    note: &str,
) -> Result<bool, WebhooksError> {
    let is_known =
        sqlx::query_scalar!(r#"SELECT disable_webhook_endpoint($1, $2) AS "is_known!""#, id.as_str(), note);
    Ok(is_known.fetch_one(tx).await?)
}

/// Enables an endpoint, whatever disabled it. False if it was not disabled.
///
/// # Errors
/// [`WebhooksError`].
pub async fn enable_as_operator(tx: &mut Connection, id: &EndpointId) -> Result<bool, WebhooksError> {
    let was_disabled =
        sqlx::query_scalar!(r#"SELECT enable_webhook_endpoint($1) AS "was_disabled!""#, id.as_str());
    Ok(was_disabled.fetch_one(tx).await?)
}

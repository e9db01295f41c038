//! `/api/v1/webhook-endpoints`: URLs of a tenant that receive the events of its payments. One file for each verb.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deliveries;
pub(crate) mod list;
pub(crate) mod replay;
pub(crate) mod replay_failed;
pub(crate) mod retrieve;
pub(crate) mod rotate_secret;
pub(crate) mod update;
mod view;

use std::collections::BTreeSet;

use outbound_webhooks::EndpointId;
use outbound_webhooks::endpoints::{self, Endpoint, EndpointScope};
use outbound_webhooks::secret::MasterKey;
use outbound_webhooks::target::Target;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::events::EventKind;
use postgres_kit::Connection;
use service_kit::problem::Problem;

use crate::app::App;
use crate::error::{ApiError, excerpt, webhooks_not_configured};

/// The problem with status 404, also for endpoints of other tenants.
fn not_found(id: &str) -> ApiError {
    Problem::missing(
        "endpoint_not_found",
        format!("no webhook endpoint {} exists; check the id", excerpt(id)),
    )
    .into()
}

/// 409: a tenant can neither update, delete nor recreate an endpoint that an operator has disabled.
fn disabled_by_operator() -> Problem {
    let detail = "an operator of the bank has disabled this endpoint, or yours on that host; ask the bank to enable it";
    Problem::conflict("disabled_by_operator", detail)
}

/// Parses an endpoint id of a path; a malformed id is not found.
fn endpoint_id(text: &str) -> Result<EndpointId, ApiError> {
    EndpointId::new(text).map_err(|_| not_found(text))
}

/// The endpoint, if it belongs to the caller's tenant.
async fn find(connection: &mut Connection, caller: &Caller, id: &EndpointId) -> Result<Endpoint, ApiError> {
    let endpoint = endpoints::get(connection, EndpointScope::Tenant(caller.tenant.as_str()), id).await?;
    endpoint.ok_or_else(|| not_found(id.as_str()))
}

/// The key from which signing secrets are derived.
fn master_key(app: &App) -> Result<&MasterKey, ApiError> {
    app.webhooks.master_key.as_ref().ok_or_else(|| webhooks_not_configured().into())
}

/// Validates the URL of a request.
fn target(app: &App, url: &str) -> Result<Target, Problem> {
    Target::parse(url, &app.webhooks.rules)
        .map_err(|error| Problem::unprocessable("invalid_url", error.to_string()))
}

/// Validates the kinds of events of a request; each is returned once.
fn kinds(given: &[String]) -> Result<Vec<String>, Problem> {
    let kinds: BTreeSet<&String> = given.iter().collect();
    if let Some(unknown) = kinds.iter().find(|kind| EventKind::parse(kind).is_none()) {
        let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let detail = format!(
            "kinds contains {}, which is not a kind of event; send some of {}",
            excerpt(unknown),
            known.join(", ")
        );
        return Err(Problem::unprocessable("unknown_kind", detail));
    }
    Ok(kinds.into_iter().cloned().collect())
}

//! `/api/v1/webhook-endpoints`: where a tenant is told of what happens to its payments. One file per verb.

pub(crate) mod change;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deliveries;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod replay;
pub(crate) mod replay_failed;
pub(crate) mod rotate_secret;
mod view;

use std::collections::BTreeSet;

use outbound_webhooks::EndpointId;
use outbound_webhooks::endpoints::{self, Endpoint, EndpointScope};
use outbound_webhooks::secret::MasterKey;
use outbound_webhooks::target::Target;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::events::EventKind;
use service_kit::problem::Problem;
use sqlx::PgConnection;

use crate::app::App;
use crate::error::{ApiError, excerpt, webhooks_not_configured};

/// 404, for other tenants' endpoints too.
fn not_found(id: &str) -> ApiError {
    Problem::missing("endpoint_not_found", format!("you have no webhook endpoint {}", excerpt(id))).into()
}

/// 409: what the bank's own people have disabled, its tenant neither changes nor deletes nor makes anew.
fn disabled_by_operator() -> Problem {
    let detail = "the bank's own people have disabled this endpoint, or yours on that host; ask them";
    Problem::conflict("disabled_by_operator", detail)
}

/// Reads an id from a path. What is no id is no endpoint either.
fn endpoint_id(text: &str) -> Result<EndpointId, ApiError> {
    EndpointId::new(text).map_err(|_| not_found(text))
}

/// The caller's endpoint of this id.
async fn find(connection: &mut PgConnection, caller: &Caller, id: &EndpointId) -> Result<Endpoint, ApiError> {
    let found = endpoints::get(connection, EndpointScope::Tenant(caller.tenant.as_str()), id).await?;
    found.ok_or_else(|| not_found(id.as_str()))
}

/// What secrets are made from.
fn master_key(app: &App) -> Result<&MasterKey, ApiError> {
    app.webhooks.master_key.as_ref().ok_or_else(|| webhooks_not_configured().into())
}

/// Reads a URL from a request.
fn target(app: &App, url: &str) -> Result<Target, Problem> {
    Target::parse(url, &app.webhooks.rules)
        .map_err(|error| Problem::unprocessable("invalid_url", error.to_string()))
}

/// Reads kinds of events from a request, each once.
fn kinds(given: &[String]) -> Result<Vec<String>, Problem> {
    let kinds: BTreeSet<&String> = given.iter().collect();
    if let Some(unknown) = kinds.iter().find(|kind| EventKind::parse(kind).is_none()) {
        let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        let detail = format!("{} is none of {}", excerpt(unknown), known.join(", "));
        return Err(Problem::unprocessable("unknown_kind", detail));
    }
    Ok(kinds.into_iter().cloned().collect())
}

//! Endpoints: list and show.

use outbound_webhooks::EndpointId;
use outbound_webhooks::endpoints::{self, DisabledReason, Endpoint, EndpointScope};
use payment_protocol::ids::TenantId;
use serde_json::{Value, json};

use super::{age_of, read_endpoint};
use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Upper bound of endpoints that are listed.
const ENDPOINTS_MAX: i64 = 10_000;

pub(super) async fn list(
    database: &DatabaseArgs,
    tenant: Option<&TenantId>,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ledger = database.ledger().await?;
    let mut connection = ledger.pool().acquire().await?;
    let whose = tenant.map_or(EndpointScope::All, |tenant| EndpointScope::Tenant(tenant.as_str()));
    let listed = endpoints::list(&mut connection, whose, ENDPOINTS_MAX).await?;
    if json {
        let listed: Vec<Value> = listed.iter().map(document).collect();
        out.write_json(&json!({ "webhook_endpoints": listed }))?;
    } else if listed.is_empty() {
        out.write_line("no webhook endpoint matches")?;
    } else {
        out.write_line(table(&listed))?;
    }
    Ok(CommandOutcome::Success)
}

pub(super) async fn show(
    database: &DatabaseArgs,
    id: &EndpointId,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ledger = database.ledger().await?;
    let endpoint = read_endpoint(&mut ledger.pool().acquire().await?, id).await?;
    match json {
        true => out.write_json(&document(&endpoint))?,
        false => out.write_line(fields(&endpoint))?,
    }
    Ok(CommandOutcome::Success)
}

fn table(endpoints: &[Endpoint]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("endpoint", left),
        ("tenant", left),
        ("status", left),
        ("failing for", Align::Right),
        ("url", left),
    ]);
    for endpoint in endpoints {
        let failing = endpoint.failing_since.map_or_else(String::new, age_of);
        table.row([endpoint.id.as_str(), &endpoint.tenant, &status(endpoint), &failing, &endpoint.url]);
    }
    table
}

fn fields(endpoint: &Endpoint) -> Table<2> {
    let mut fields = Table::new([("", Align::Left), ("", Align::Left)]);
    fields.row(["endpoint", endpoint.id.as_str()]);
    fields.row(["tenant", &endpoint.tenant]);
    fields.row(["url", &endpoint.url]);
    let kinds = if endpoint.kinds.is_empty() { "all".into() } else { endpoint.kinds.join(", ") };
    fields.row(["event kinds", &kinds]);
    fields.row(["status", &status(endpoint)]);
    if let Some(note) = &endpoint.disabled_note {
        fields.row(["disabled by", note]);
    }
    if let Some(failing_since) = endpoint.failing_since {
        fields.row(["failing for", &age_of(failing_since)]);
    }
    fields.row(["secret", &format!("version {}", endpoint.secret_version)]);
    fields.row(["created at", &format!("{:.0}", endpoint.created_at)]);
    fields
}

fn status(endpoint: &Endpoint) -> String {
    match endpoint.disabled_reason {
        Some(reason) => format!("{} ({})", endpoint.status.as_str(), reason.as_str()),
        None => endpoint.status.as_str().to_owned(),
    }
}

fn document(endpoint: &Endpoint) -> Value {
    json!({
        "endpoint_id": endpoint.id.as_str(),
        "tenant": endpoint.tenant,
        "url": endpoint.url,
        "kinds": endpoint.kinds,
        "status": endpoint.status.as_str(),
        "disabled_reason": endpoint.disabled_reason.map(DisabledReason::as_str),
        "disabled_note": endpoint.disabled_note,
        "secret_version": endpoint.secret_version,
        "old_secret_until": endpoint.old_secret_until,
        "failing_since": endpoint.failing_since,
        "created_at": endpoint.created_at,
        "rotated_at": endpoint.rotated_at,
    })
}

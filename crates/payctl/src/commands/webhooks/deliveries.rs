//! Deliveries to one endpoint.

use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{self, Delivery, DeliveryFilter, DeliveryState};
use serde_json::{Value, json};

use super::{age_of, read_endpoint};
use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};

pub(super) async fn list(
    database: &DatabaseArgs,
    id: &EndpointId,
    state: Option<DeliveryState>,
    limit: i64,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ledger = database.ledger().await?;
    let mut connection = ledger.pool().acquire().await?;
    read_endpoint(&mut connection, id).await?;
    let listed = deliveries::list(&mut connection, id, DeliveryFilter { state, after: None }, limit).await?;
    if json {
        let listed: Vec<Value> = listed.iter().map(document).collect();
        out.write_json(&json!({ "deliveries": listed }))?;
    } else if listed.is_empty() {
        out.write_line(format_args!("no delivery to webhook endpoint {id} matches"))?;
    } else {
        out.write_line(table(&listed))?;
        tables::note_limit(listed.len(), limit, out)?;
    }
    let has_failed = listed.iter().any(|delivery| delivery.state == DeliveryState::Failed);
    Ok(if has_failed { CommandOutcome::CheckFailed } else { CommandOutcome::Success })
}

fn table(deliveries: &[Delivery]) -> Table<6> {
    let left = Align::Left;
    let mut table = Table::new([
        ("event", left),
        ("state", left),
        ("age", Align::Right),
        ("failures", Align::Right),
        ("next attempt at", left),
        ("last attempt", left),
    ]);
    for delivery in deliveries {
        table.row([
            &delivery.event_id,
            delivery.state.as_str(),
            &age_of(delivery.created_at),
            &delivery.failed_attempts.to_string(),
            &delivery.next_attempt_at.map_or_else(String::new, |at| format!("{at:.0}")),
            &last_attempt(delivery),
        ]);
    }
    table
}

fn last_attempt(delivery: &Delivery) -> String {
    let Some(last) = delivery.attempts.last() else { return "none".into() };
    match (&last.error, last.response_status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => format!("answered {status}"),
        (None, None) => String::new(),
    }
}

fn document(delivery: &Delivery) -> Value {
    let attempts: Vec<Value> = delivery
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "ended_at": attempt.ended_at,
                "duration_ms": attempt.duration_ms,
                "response_status": attempt.response_status,
                "error": attempt.error,
                "response_excerpt": attempt.response_excerpt,
            })
        })
        .collect();
    json!({
        "event_id": delivery.event_id,
        "kind": delivery.kind,
        "state": delivery.state.as_str(),
        "failures": delivery.failed_attempts,
        "next_attempt_at": delivery.next_attempt_at,
        "created_at": delivery.created_at,
        "ended_at": delivery.ended_at,
        "attempts": attempts,
    })
}

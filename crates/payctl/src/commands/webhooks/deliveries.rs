//! Deliveries to one endpoint: list and replay.

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{
    self, Delivery, DeliveryFilter, DeliveryState, REPLAYED_MAX, ReplayOutcome,
};
use payment_ledger::Ledger;
use serde_json::{Value, json};

use super::{age_of, read_endpoint, require_active};
use crate::database::DatabaseArgs;
use crate::document::counted;
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

/// Replays one event.
pub(super) async fn replay(
    ledger: &Ledger,
    id: &EndpointId,
    event_id: &str,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let mut connection = ledger.pool().acquire().await?;
    require_active(&read_endpoint(&mut connection, id).await?)?;
    match deliveries::replay(&mut connection, id, event_id).await? {
        ReplayOutcome::Due => {
            out.write_line(format_args!("event {event_id} queued for webhook endpoint {id}"))?;
        }
        ReplayOutcome::InFlight => {
            out.write_line(format_args!(
                "nothing to replay: event {event_id} is being delivered to webhook endpoint {id}"
            ))?;
        }
        ReplayOutcome::Unknown => {
            bail!(
                "webhook endpoint {id} has no delivery of event {event_id}; see: payctl webhooks deliveries {id}"
            )
        }
    }
    Ok(CommandOutcome::Success)
}

/// Replays the failed deliveries of events at most `age_s` seconds old.
pub(super) async fn replay_failed(
    ledger: &Ledger,
    id: &EndpointId,
    age_s: i64,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let mut connection = ledger.pool().acquire().await?;
    require_active(&read_endpoint(&mut connection, id).await?)?;
    let since = Timestamp::now()
        .checked_sub(SignedDuration::from_secs(age_s))
        .context("--failed-since is out of range; write it like 2h")?;
    let mut replayed = 0;
    loop {
        let batch = deliveries::replay_failed(&mut connection, id, since).await?;
        replayed += batch;
        if batch < REPLAYED_MAX.unsigned_abs() {
            break;
        }
    }
    out.write_line(format_args!(
        "{} queued for webhook endpoint {id}",
        counted(replayed, "failed delivery")
    ))?;
    Ok(CommandOutcome::Success)
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

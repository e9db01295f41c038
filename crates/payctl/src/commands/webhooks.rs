//! `payctl webhooks`: where tenants are told of their payments, what they were told, and what could not be delivered.

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::{
    self, Delivery, DeliveryFilter, DeliveryState, REPLAYED_MAX, ReplayOutcome,
};
use outbound_webhooks::endpoints::{self, DisabledReason, Endpoint, EndpointScope, EndpointStatus};
use payment_ledger::Ledger;
use payment_ledger::operator::decisions::said;
use payment_protocol::ids::TenantId;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{self as tables, Align, Table};
use crate::{age, outcome};

/// Endpoints that are listed at most.
const ENDPOINTS_MAX: i64 = 10_000;

/// See and mend where tenants are told of their payments
#[derive(Debug, clap::Subcommand)]
#[command(after_help = outcome::EXIT_CODES)]
pub(crate) enum Command {
    /// List endpoints by tenant; no secret is shown
    List {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Only of this tenant
        #[arg(long, value_parser = super::id::<TenantId>)]
        tenant: Option<TenantId>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show an endpoint
    Show {
        #[command(flatten)]
        database: DatabaseArgs,
        /// As `list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// List what was sent to an endpoint, the newest event first, and what came of it
    Deliveries {
        #[command(flatten)]
        database: DatabaseArgs,
        /// As `list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Only in this state: pending, delivered or failed
        #[arg(long, value_parser = state)]
        state: Option<DeliveryState>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Have an event sent to an endpoint again, or everything that failed
    Replay {
        #[command(flatten)]
        database: DatabaseArgs,
        /// As `list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// As `deliveries` shows it
        #[arg(
            value_name = "EVENT",
            required_unless_present = "failed_since",
            conflicts_with = "failed_since"
        )]
        event: Option<String>,
        /// What failed of the events of this last while, like 2h
        #[arg(long, value_name = "AGE", value_parser = age::parse)]
        failed_since: Option<i64>,
    },
    /// Tell an endpoint nothing more; only `enable` lifts it, not its tenant
    Disable {
        #[command(flatten)]
        database: DatabaseArgs,
        /// As `list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Who decides; its tenant can read it
        #[arg(long)]
        by: String,
        /// Why; its tenant can read it, too
        #[arg(long)]
        reason: String,
    },
    /// Tell a disabled endpoint again
    Enable {
        #[command(flatten)]
        database: DatabaseArgs,
        /// As `list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
    },
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::List { database, tenant, json } => list(&database, tenant.as_ref(), json, out).await,
        Command::Show { database, endpoint, json } => show(&database, &endpoint, json, out).await,
        Command::Deliveries { database, endpoint, state, limit, json } => {
            sent(&database, &endpoint, state, limit, json, out).await
        }
        Command::Replay { database, endpoint, event, failed_since } => {
            let ledger = database.ledger().await?;
            match (event, failed_since) {
                (Some(event), _) => replay(&ledger, &endpoint, &event, out).await,
                (None, Some(age_s)) => replay_failed(&ledger, &endpoint, age_s, out).await,
                (None, None) => bail!("say which event, or --failed-since"),
            }
        }
        Command::Disable { database, endpoint, by, reason } => {
            let (by, reason) = said(&by, &reason)?;
            let ledger = database.ledger().await?;
            let note = format!("{by}: {reason}");
            let mut connection = ledger.pool().acquire().await?;
            let is_known = endpoints::disable_as_operator(&mut connection, &endpoint, &note).await?;
            anyhow::ensure!(is_known, unknown(&endpoint));
            out.line(format_args!("{endpoint} is told nothing more"))?;
            Ok(Outcome::Done)
        }
        Command::Enable { database, endpoint } => {
            let ledger = database.ledger().await?;
            let mut connection = ledger.pool().acquire().await?;
            let was_disabled = endpoints::enable_as_operator(&mut connection, &endpoint).await?;
            anyhow::ensure!(was_disabled, "{endpoint} is not there, or not disabled");
            out.line(format_args!("{endpoint} is told again"))?;
            Ok(Outcome::Done)
        }
    }
}

async fn list(
    database: &DatabaseArgs,
    tenant: Option<&TenantId>,
    json: bool,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let ledger = database.ledger().await?;
    let mut connection = ledger.pool().acquire().await?;
    let whose = tenant.map_or(EndpointScope::All, |tenant| EndpointScope::Tenant(tenant.as_str()));
    let found = endpoints::list(&mut connection, whose, ENDPOINTS_MAX).await?;
    if json {
        let found: Vec<Value> = found.iter().map(document).collect();
        out.json(&json!({ "webhook_endpoints": found }))?;
    } else if found.is_empty() {
        out.line("no webhook endpoint")?;
    } else {
        let left = Align::Left;
        let mut table = Table::new([
            ("endpoint", left),
            ("tenant", left),
            ("status", left),
            ("failing for", Align::Right),
            ("url", left),
        ]);
        for endpoint in &found {
            let failing = endpoint.failing_since.map_or_else(String::new, since);
            table.row([endpoint.id.as_str(), &endpoint.tenant, &status(endpoint), &failing, &endpoint.url]);
        }
        out.line(table)?;
    }
    Ok(Outcome::Done)
}

async fn show(
    database: &DatabaseArgs,
    id: &EndpointId,
    json: bool,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let ledger = database.ledger().await?;
    let endpoint = find(&mut *ledger.pool().acquire().await?, id).await?;
    if json {
        out.json(&document(&endpoint))?;
        return Ok(Outcome::Done);
    }
    let mut facts = Table::new([("", Align::Left), ("", Align::Left)]);
    facts.row(["endpoint", endpoint.id.as_str()]);
    facts.row(["tenant", &endpoint.tenant]);
    facts.row(["url", &endpoint.url]);
    let kinds = if endpoint.kinds.is_empty() { "all".into() } else { endpoint.kinds.join(", ") };
    facts.row(["kinds", &kinds]);
    facts.row(["status", &status(&endpoint)]);
    if let Some(note) = &endpoint.disabled_note {
        facts.row(["disabled by", note]);
    }
    if let Some(failing) = endpoint.failing_since {
        facts.row(["failing for", &since(failing)]);
    }
    facts.row(["secret", &format!("version {}", endpoint.secret_version)]);
    facts.row(["made", &format!("{:.0}", endpoint.made_at)]);
    out.line(facts)?;
    Ok(Outcome::Done)
}

async fn sent(
    database: &DatabaseArgs,
    id: &EndpointId,
    state: Option<DeliveryState>,
    limit: i64,
    json: bool,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let ledger = database.ledger().await?;
    let mut connection = ledger.pool().acquire().await?;
    find(&mut connection, id).await?;
    let found = deliveries::list(&mut connection, id, DeliveryFilter { state, after: None }, limit).await?;
    if json {
        let found: Vec<Value> = found.iter().map(delivery_document).collect();
        out.json(&json!({ "deliveries": found }))?;
    } else if found.is_empty() {
        out.line("nothing was sent")?;
    } else {
        let left = Align::Left;
        let mut table = Table::new([
            ("event", left),
            ("state", left),
            ("age", Align::Right),
            ("failed", Align::Right),
            ("next", left),
            ("last attempt", left),
        ]);
        for delivery in &found {
            table.row([
                &delivery.event_id,
                delivery.state.as_str(),
                &since(delivery.made_at),
                &delivery.tries.to_string(),
                &delivery.next_at.map_or_else(String::new, |at| format!("{at:.0}")),
                &last(delivery),
            ]);
        }
        out.line(table)?;
        tables::remark_cut(found.len(), limit, out)?;
    }
    let has_failed = found.iter().any(|delivery| delivery.state == DeliveryState::Failed);
    Ok(if has_failed { Outcome::NotAsItShouldBe } else { Outcome::Done })
}

async fn replay(
    ledger: &Ledger,
    id: &EndpointId,
    event_id: &str,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let mut connection = ledger.pool().acquire().await?;
    require_active(&find(&mut connection, id).await?)?;
    match deliveries::replay(&mut connection, id, event_id).await? {
        ReplayOutcome::Due => out.line(format_args!("{event_id} is sent again"))?,
        ReplayOutcome::InFlight => out.line(format_args!("{event_id} is being sent"))?,
        ReplayOutcome::Unknown => {
            bail!("{event_id} was not to be sent to {id}; see: payctl webhooks deliveries {id}")
        }
    }
    Ok(Outcome::Done)
}

async fn replay_failed(
    ledger: &Ledger,
    id: &EndpointId,
    age_s: i64,
    out: &mut Out<'_>,
) -> anyhow::Result<Outcome> {
    let mut connection = ledger.pool().acquire().await?;
    require_active(&find(&mut connection, id).await?)?;
    let since = Timestamp::now()
        .checked_sub(SignedDuration::from_secs(age_s))
        .context("--failed-since is before all time")?;
    let mut replayed = 0;
    loop {
        let batch = deliveries::replay_failed(&mut connection, id, since).await?;
        replayed += batch;
        if batch < REPLAYED_MAX.unsigned_abs() {
            break;
        }
    }
    out.line(format_args!("{replayed} events are sent again"))?;
    Ok(Outcome::Done)
}

async fn find(connection: &mut PgConnection, id: &EndpointId) -> anyhow::Result<Endpoint> {
    let found = endpoints::get(connection, EndpointScope::All, id).await?;
    found.with_context(|| unknown(id))
}

/// What is replayed at an endpoint that is not told would only wait.
fn require_active(endpoint: &Endpoint) -> anyhow::Result<()> {
    anyhow::ensure!(
        endpoint.status == EndpointStatus::Active,
        "{0} is disabled; first: payctl webhooks enable {0}",
        endpoint.id
    );
    Ok(())
}

fn unknown(id: &EndpointId) -> String {
    format!("there is no webhook endpoint {id}; see: payctl webhooks list")
}

fn state(word: &str) -> Result<DeliveryState, String> {
    DeliveryState::parse(word).ok_or_else(|| "the states are pending, delivered and failed".into())
}

fn status(endpoint: &Endpoint) -> String {
    match endpoint.disabled_for {
        Some(reason) => format!("{} ({})", endpoint.status.as_str(), reason.as_str()),
        None => endpoint.status.as_str().to_owned(),
    }
}

/// How long ago.
fn since(at: Timestamp) -> String {
    age::show(Timestamp::now().duration_since(at).as_secs())
}

/// What came of the last attempt.
fn last(delivery: &Delivery) -> String {
    let Some(last) = delivery.attempts.last() else { return "none".into() };
    match (&last.error, last.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => format!("answered {status}"),
        (None, None) => String::new(),
    }
}

fn document(endpoint: &Endpoint) -> Value {
    json!({
        "endpoint_id": endpoint.id.as_str(),
        "tenant": endpoint.tenant,
        "url": endpoint.url,
        "kinds": endpoint.kinds,
        "status": endpoint.status.as_str(),
        "disabled_for": endpoint.disabled_for.map(DisabledReason::as_str),
        "disabled_note": endpoint.disabled_note,
        "secret_version": endpoint.secret_version,
        "old_secret_until": endpoint.old_secret_until,
        "failing_since": endpoint.failing_since,
        "made_at": endpoint.made_at,
        "rotated_at": endpoint.rotated_at,
    })
}

fn delivery_document(delivery: &Delivery) -> Value {
    let attempts: Vec<Value> = delivery
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "ended_at": attempt.ended_at,
                "took_ms": attempt.took_ms,
                "status": attempt.status,
                "error": attempt.error,
                "answer": attempt.answer,
            })
        })
        .collect();
    json!({
        "event_id": delivery.event_id,
        "kind": delivery.kind,
        "state": delivery.state.as_str(),
        "tries": delivery.tries,
        "next_at": delivery.next_at,
        "made_at": delivery.made_at,
        "ended_at": delivery.ended_at,
        "attempts": attempts,
    })
}

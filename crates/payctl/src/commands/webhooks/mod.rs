//! `payctl webhooks`: tenants' outbound webhook endpoints, and the deliveries to them.

mod deliveries;
mod endpoints;

use anyhow::Context as _;
use jiff::Timestamp;
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::endpoints::{Endpoint, EndpointScope, get};
use payment_protocol::ids::TenantId;
use postgres_kit::Connection;
use serde_json::json;

use crate::database::DatabaseArgs;
use crate::operator_api::{ReasonArgs, SessionArgs};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::{age, outcome};

/// List tenants' webhook endpoints and deliveries, replay deliveries, and disable endpoints
#[derive(Debug, clap::Subcommand)]
#[command(after_help = outcome::EXIT_CODES)]
pub(crate) enum Command {
    /// List webhook endpoints by tenant; prints no secrets
    List {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Show only endpoints of this tenant
        #[arg(long, value_parser = super::id::<TenantId>)]
        tenant: Option<TenantId>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show a webhook endpoint; prints no secrets
    Show {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// List the deliveries of events to a webhook endpoint, newest event first
    ///
    /// Exit code 1: a listed delivery failed.
    Deliveries {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Show only deliveries in this state: pending, delivered or failed
        #[arg(long, value_parser = parse_state)]
        state: Option<DeliveryState>,
        /// Show at most this many deliveries, 1 to 10000
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Deliver one event to a webhook endpoint again, or all recent events whose delivery to it failed
    Replay {
        #[command(flatten)]
        session: SessionArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Id of the event, as `payctl webhooks deliveries` shows it
        #[arg(
            value_name = "EVENT",
            required_unless_present = "failed_since",
            conflicts_with = "failed_since"
        )]
        event: Option<String>,
        /// Replay failed deliveries of events at most this old, like 90s, 10m or 48h
        #[arg(long, value_name = "AGE", value_parser = age::parse)]
        failed_since: Option<i64>,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Disable a webhook endpoint: deliveries stop until an operator enables the endpoint; its tenant cannot
    ///
    /// The endpoint's tenant can read the operator's name and the reason.
    Disable {
        #[command(flatten)]
        session: SessionArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Enable a disabled webhook endpoint: deliveries to it start again
    Enable {
        #[command(flatten)]
        session: SessionArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::List { database, tenant, json } => {
            return endpoints::list(&database, tenant.as_ref(), json, out).await;
        }
        Command::Show { database, endpoint, json } => {
            return endpoints::show(&database, &endpoint, json, out).await;
        }
        Command::Deliveries { database, endpoint, state, limit, json } => {
            return deliveries::list(&database, &endpoint, state, limit, json, out).await;
        }
        Command::Replay { session, endpoint, event: Some(event), reason, .. } => {
            let id = endpoint.as_str();
            let change = json!({"kind": "replay_delivery", "endpoint_id": id, "event_id": event});
            session.client()?.change(change, &reason).await?;
            out.write_line(format_args!("event {event} queued for webhook endpoint {endpoint}"))?;
        }
        Command::Replay { session, endpoint, event: None, failed_since, reason } => {
            let now = Timestamp::now();
            let since =
                age::before(now, failed_since.context("a replay needs an event id or --failed-since")?)?;
            let change = json!({
                "kind": "replay_failed_deliveries", "endpoint_id": endpoint.as_str(), "since": since, "failed_before": now,
            });
            let what = format!(" for webhook endpoint {endpoint}");
            session.client()?.change_all(change, &reason, &what, out).await?;
        }
        Command::Disable { session, endpoint, reason } => {
            let change = json!({"kind": "disable_endpoint", "endpoint_id": endpoint.as_str()});
            session.client()?.change(change, &reason).await?;
            out.write_line(format_args!(
                "webhook endpoint {endpoint} disabled; to enable it again: payctl webhooks enable {endpoint} --reason TEXT"
            ))?;
        }
        Command::Enable { session, endpoint, reason } => {
            let change = json!({"kind": "enable_endpoint", "endpoint_id": endpoint.as_str()});
            session.client()?.change(change, &reason).await?;
            out.write_line(format_args!("webhook endpoint {endpoint} enabled"))?;
        }
    }
    Ok(CommandOutcome::Success)
}

async fn read_endpoint(connection: &mut Connection, id: &EndpointId) -> anyhow::Result<Endpoint> {
    let endpoint = get(connection, EndpointScope::All, id).await?;
    endpoint.with_context(|| unknown(id))
}

fn unknown(id: &EndpointId) -> String {
    format!("there is no webhook endpoint {id}; see: payctl webhooks list")
}

fn parse_state(word: &str) -> Result<DeliveryState, String> {
    DeliveryState::parse(word).ok_or_else(|| "the states are pending, delivered and failed".into())
}

fn age_of(at: Timestamp) -> String {
    age::format(Timestamp::now().duration_since(at).as_secs())
}

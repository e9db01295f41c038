//! `payctl webhooks`: tenants' outbound webhook endpoints, and the deliveries to them.

mod deliveries;
mod endpoints;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use outbound_webhooks::EndpointId;
use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::endpoints::{Endpoint, EndpointScope, EndpointStatus, get};
use payment_protocol::ids::TenantId;
use sqlx::PgConnection;

use crate::database::DatabaseArgs;
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
        database: DatabaseArgs,
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
    },
    /// Disable a webhook endpoint: deliveries stop until an operator enables the endpoint; its tenant cannot
    Disable {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
        /// Name of the operator who disables the endpoint; the endpoint's tenant can read the name
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Reason for disabling the endpoint; the endpoint's tenant can read the reason
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Enable a disabled webhook endpoint: deliveries to it start again
    Enable {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Id of the endpoint, as `payctl webhooks list` shows it
        #[arg(value_name = "ENDPOINT", value_parser = super::id::<EndpointId>)]
        endpoint: EndpointId,
    },
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::List { database, tenant, json } => {
            endpoints::list(&database, tenant.as_ref(), json, out).await
        }
        Command::Show { database, endpoint, json } => endpoints::show(&database, &endpoint, json, out).await,
        Command::Deliveries { database, endpoint, state, limit, json } => {
            deliveries::list(&database, &endpoint, state, limit, json, out).await
        }
        Command::Replay { database, endpoint, event, failed_since } => {
            let ledger = database.ledger().await?;
            match (event, failed_since) {
                (Some(event), _) => deliveries::replay(&ledger, &endpoint, &event, out).await,
                (None, Some(age_s)) => deliveries::replay_failed(&ledger, &endpoint, age_s, out).await,
                (None, None) => bail!("a replay needs an event id or --failed-since"),
            }
        }
        Command::Disable { database, endpoint, by, reason } => {
            endpoints::disable(&database, &endpoint, &by, &reason, out).await
        }
        Command::Enable { database, endpoint } => endpoints::enable(&database, &endpoint, out).await,
    }
}

async fn read_endpoint(connection: &mut PgConnection, id: &EndpointId) -> anyhow::Result<Endpoint> {
    let endpoint = get(connection, EndpointScope::All, id).await?;
    endpoint.with_context(|| unknown(id))
}

/// Refuses a replay to a disabled endpoint, which would only queue.
fn require_active(endpoint: &Endpoint) -> anyhow::Result<()> {
    anyhow::ensure!(
        endpoint.status == EndpointStatus::Active,
        "nothing was replayed: webhook endpoint {0} is disabled; first run: payctl webhooks enable {0}",
        endpoint.id
    );
    Ok(())
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

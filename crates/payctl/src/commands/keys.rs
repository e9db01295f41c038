//! `payctl keys`: API keys of clients, with their scopes and expiry.

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::access::api_keys::ApiKeyScope;
use payment_protocol::ids::{ClientId, KeyId, TenantId};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_key::ApiKey;
use crate::operator_api::{ApiKeyDocument, ReasonArgs, SessionArgs, note_waiting};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Create, list, rotate and revoke API keys; a new key takes two operators
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Rotate(RotateArgs),
    Revoke(RevokeArgs),
}

/// Generate an API key for a client, print it once, and propose it; it is valid once another operator confirms it
///
/// Only its hash leaves this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    /// Tenant whose accounts the API key may use
    #[arg(long, value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// Client of the tenant that uses the API key
    #[arg(long, value_parser = super::id::<ClientId>)]
    client: ClientId,
    /// Scope of the API key: pay, read or webhooks; repeat the option for several [default: pay and read]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = str::parse::<ApiKeyScope>)]
    scopes: Vec<ApiKeyScope>,
    /// Lifetime of the API key in days, 1 to 3650 [default: until the key is rotated or revoked]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i64).range(1..=3_650))]
    expires_in_days: Option<i64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// List API keys by tenant and client, including expired and revoked ones; prints neither keys nor hashes
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Show only keys of this tenant
    #[arg(long, value_parser = super::id::<TenantId>)]
    tenant: Option<TenantId>,
    /// Show only keys of clients with this name
    #[arg(long, value_parser = super::id::<ClientId>)]
    client: Option<ClientId>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Generate an API key in the place of another one, print it once, and propose it; another operator confirms it
///
/// Client, scopes and lifetime stay. The old key expires after the confirmation. Only the new key's hash leaves this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    /// Id of the key, like pk_ab12cd34ef56
    #[arg(value_name = "ID", value_parser = super::id::<KeyId>)]
    id: KeyId,
    /// Hours until the old key expires, 0 to 720; an earlier expiry stays
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(i64).range(0..=720))]
    overlap_hours: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Revoke an API key at once and permanently
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    /// Id of the key, like pk_ab12cd34ef56
    #[arg(value_name = "ID", value_parser = super::id::<KeyId>)]
    id: KeyId,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Create(args) => create(args, out).await?,
        Command::List(args) => list(args, out).await?,
        Command::Rotate(args) => rotate(args, out).await?,
        Command::Revoke(args) => revoke(args, out).await?,
    }
    Ok(CommandOutcome::Success)
}

#[derive(Deserialize)]
struct ApiKeys {
    api_keys: Vec<ApiKeyDocument>,
}

async fn create(args: CreateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let scopes = match &*args.scopes {
        [] => vec![ApiKeyScope::Pay.as_str(), ApiKeyScope::Read.as_str()],
        given => given.iter().map(|scope| scope.as_str()).collect(),
    };
    let key = ApiKey::generate()?;
    let change = json!({
        "kind": "create_api_key", "key_id": key.id, "key_sha256": key.sha256(), "tenant_id": args.tenant, "client_id": args.client,
        "scopes": scopes, "expires_in_days": args.expires_in_days,
    });
    propose_new(&args.session, &key, change, &args.reason, args.json, out).await
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    // Ids have no character with a meaning in a query.
    let only = |name: &str, id: Option<String>| id.map(|id| format!("{name}={id}"));
    let filters = [
        only("tenant_id", args.tenant.map(|id| id.to_string())),
        only("client_id", args.client.map(|id| id.to_string())),
    ];
    let filters: Vec<String> = filters.into_iter().flatten().collect();
    let path = format!("api-keys?{}", filters.join("&"));
    let response = args.session.client()?.get::<ApiKeys>(&path).await?;
    let keys = response.document.api_keys;
    if args.json {
        out.write_line(response.body)?;
    } else if keys.is_empty() {
        out.write_line("no API key matches")?;
    } else {
        out.write_line(table(&keys))?;
    }
    Ok(())
}

async fn rotate(args: RotateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let key = ApiKey::generate()?;
    let change = json!({
        "kind": "rotate_api_key", "key_id": args.id, "successor_id": key.id, "successor_sha256": key.sha256(),
        "overlap_hours": args.overlap_hours,
    });
    propose_new(&args.session, &key, change, &args.reason, args.json, out).await
}

async fn revoke(args: RevokeArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let change = json!({"kind": "revoke_api_key", "key_id": args.id});
    args.session.client()?.change(change, &args.reason).await?;
    Ok(out.write_line(format_args!("API key {} revoked", args.id))?)
}

/// Writes a new key, alone on the first line, and proposes it. The key is written first: without an answer it may be proposed, and exists
/// nowhere else.
async fn propose_new(
    session: &SessionArgs,
    key: &ApiKey,
    change: Value,
    reason: &ReasonArgs,
    as_json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<()> {
    let client = session.client()?;
    let secret = key.secret.expose_secret();
    if !as_json {
        out.write_line(secret)?;
        out.write_line(format_args!("\nThe first line is the API key {}. It is not shown again.", key.id))?;
    }
    let proposed = client.change(change, reason).await;
    let proposed = proposed.with_context(|| format!("API key {} is not valid", key.id))?;
    if as_json {
        let mut document = serde_json::to_value(&proposed).context("the change is no JSON document")?;
        document["key"] = Value::from(secret);
        return Ok(out.write_json(&document)?);
    }
    note_waiting(&proposed, out)?;
    Ok(())
}

fn table(keys: &[ApiKeyDocument]) -> Table<8> {
    let left = Align::Left;
    let mut table = Table::new([
        ("key", left),
        ("tenant", left),
        ("client", left),
        ("scopes", left),
        ("status", left),
        ("expires", left),
        ("rotated to", left),
        ("prefix", left),
    ]);
    for key in keys {
        table.row([
            &key.key_id,
            &key.tenant_id,
            &key.client_id,
            &key.scopes.join(", "),
            &key.status,
            &if key.status == "revoked" { String::new() } else { time_or_never(key.expires_at) },
            key.rotated_to.as_deref().unwrap_or_default(),
            &key.prefix,
        ]);
    }
    table
}

/// A time with whole seconds, or "never".
fn time_or_never(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".into(), |time| format!("{time:.0}"))
}

//! `payctl keys`: API keys of clients, with their scopes and expiry.

use anyhow::bail;
use jiff::Timestamp;
use payment_ledger::access::api_keys::{
    ApiKeyScope, Caller, KeyStatus, KeyView, RevokeKeyOutcome, RotateKeyOutcome, RotatedKeys, Scopes,
};
use payment_protocol::ids::{ClientId, KeyId, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::api_key::ApiKey;
use crate::database::DatabaseArgs;
use crate::document;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;

/// Create, list, rotate and revoke API keys
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Rotate(RotateArgs),
    Revoke(RevokeArgs),
}

/// Create an API key for a client and print it once; only its hash is stored
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
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
    database: DatabaseArgs,
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

/// Replace an API key and print the new key once; client, scopes and lifetime stay, the old key expires
#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
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
    database: DatabaseArgs,
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

async fn create(args: CreateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    let caller = Caller { tenant: args.tenant, client: args.client };
    let default_scopes = || Scopes::new([ApiKeyScope::Pay, ApiKeyScope::Read]);
    let Some(scopes) = Scopes::new(args.scopes).or_else(default_scopes) else {
        bail!("an API key needs a scope; add --scope")
    };
    let key = ApiKey::generate()?;
    let lifetime_s = args.expires_in_days.map(|days| days * DAY_S);
    ledger.insert_api_key(&key.new_key(&caller, &scopes, lifetime_s)).await?;
    let Some(view) = ledger.api_key(&key.id).await? else {
        bail!("API key {} was not stored; run payctl keys create again", key.id)
    };
    if args.json {
        return Ok(out.write_json(&new_key_document(&key, &view))?);
    }
    print_new_key(&key, &view, out)
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let keys = args.database.ledger().await?.api_keys(args.tenant.as_ref(), args.client.as_ref()).await?;
    if args.json {
        let keys: Vec<Value> = keys.iter().map(document::api_key).collect();
        out.write_json(&json!({ "keys": keys }))?;
    } else if keys.is_empty() {
        out.write_line("no API key matches")?;
    } else {
        out.write_line(table(&keys))?;
    }
    Ok(())
}

async fn rotate(args: RotateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    let key = ApiKey::generate()?;
    let rotation = ledger.rotate_api_key(&args.id, &key.successor(), args.overlap_hours * HOUR_S).await?;
    let RotatedKeys { old, new } = match rotation {
        RotateKeyOutcome::Rotated(rotated) => *rotated,
        RotateKeyOutcome::UnknownKey => bail!(unknown(&args.id)),
        RotateKeyOutcome::AlreadyRotated(next) => {
            bail!("API key {} was rotated before; rotate its successor {next}", args.id)
        }
        RotateKeyOutcome::Inactive(status) => {
            bail!("API key {} is {}; create a new key", args.id, status.as_str())
        }
    };
    if args.json {
        let mut document = new_key_document(&key, &new);
        document["replaces"] = document::api_key(&old);
        return Ok(out.write_json(&document)?);
    }
    print_new_key(&key, &new, out)?;
    Ok(out.write_line(format_args!(
        "\nold API key {} expires at {}",
        old.id,
        time_or_never(old.expires_at)
    ))?)
}

async fn revoke(args: RevokeArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    match ledger.revoke_api_key(&args.id).await? {
        RevokeKeyOutcome::Revoked(key) => {
            let Caller { tenant, client } = &key.caller;
            Ok(out.write_line(format_args!(
                "API key {} of client {client} of tenant {tenant} revoked",
                key.id
            ))?)
        }
        RevokeKeyOutcome::UnknownKey => bail!(unknown(&args.id)),
        RevokeKeyOutcome::AlreadyRevoked(key) => {
            bail!("API key {} was revoked before, at {}", key.id, time_or_never(key.revoked_at))
        }
    }
}

fn unknown(id: &KeyId) -> String {
    format!("there is no API key {id}; see: payctl keys list")
}

/// Prints a new key, alone on the first line.
fn print_new_key(key: &ApiKey, view: &KeyView, out: &mut Output<'_>) -> anyhow::Result<()> {
    let mut fields = Table::new([("", Align::Left), ("", Align::Left)]);
    fields.row(["id", view.id.as_str()]);
    fields.row(["tenant", view.caller.tenant.as_str()]);
    fields.row(["client", view.caller.client.as_str()]);
    fields.row(["scopes", &view.scopes.words().join(", ")]);
    fields.row(["expires", &time_or_never(view.expires_at)]);
    out.write_line(key.secret.expose_secret())?;
    Ok(out.write_line(format_args!("\n{fields}\n\nThe first line is the API key. It is not shown again."))?)
}

/// The JSON document of a new key, including the key.
fn new_key_document(key: &ApiKey, view: &KeyView) -> Value {
    let mut document = document::api_key(view);
    document["key"] = key.secret.expose_secret().into();
    document
}

fn table(keys: &[KeyView]) -> Table<8> {
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
            key.id.as_str(),
            key.caller.tenant.as_str(),
            key.caller.client.as_str(),
            &key.scopes.words().join(", "),
            key.status.as_str(),
            &if key.status == KeyStatus::Revoked { String::new() } else { time_or_never(key.expires_at) },
            key.rotated_to.as_ref().map_or("", KeyId::as_str),
            &key.prefix,
        ]);
    }
    table
}

/// A time with whole seconds, or "never".
fn time_or_never(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".into(), |time| format!("{time:.0}"))
}

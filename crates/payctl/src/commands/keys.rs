//! `payctl keys`: who may call the API, what for, and until when.

use anyhow::bail;
use jiff::Timestamp;
use payment_ledger::access::api_keys::{
    Caller, KeyStatus, KeyView, RevokeKeyOutcome, RotateKeyOutcome, RotatedKeys, Scope, Scopes,
};
use payment_protocol::ids::{ClientId, KeyId, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::secret::Key;
use crate::table::{Align, Table};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;

/// Make, list, rotate and revoke API keys
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Rotate(RotateArgs),
    Revoke(RevokeArgs),
}

/// Make a key for a client and show it this once; only its hash is stored
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The tenant whose accounts it may use
    #[arg(long, value_parser = super::id::<TenantId>)]
    tenant: TenantId,
    /// The client within the tenant
    #[arg(long, value_parser = super::id::<ClientId>)]
    client: ClientId,
    /// What it may do: pay, read, webhooks or operate; may be given more than once [default: pay and read]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = str::parse::<Scope>)]
    scopes: Vec<Scope>,
    /// Days that it is good for [default: until it is rotated or revoked]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i64).range(1..=3_650))]
    expires_in_days: Option<i64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// List keys, good or not, by tenant and client; neither keys nor hashes are shown
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only of this tenant
    #[arg(long, value_parser = super::id::<TenantId>)]
    tenant: Option<TenantId>,
    /// Only of clients of this name
    #[arg(long, value_parser = super::id::<ClientId>)]
    client: Option<ClientId>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Make a key that takes another's place, for the same client with the same scopes and lifetime, and show
/// it this once; the other one expires
#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The key's id, like pk_ab12cd34ef56
    #[arg(value_name = "ID", value_parser = super::id::<KeyId>)]
    id: KeyId,
    /// Hours until the other one expires, if it does not before
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(i64).range(0..=720))]
    overlap_hours: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// End a key at once and for ever
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The key's id, like pk_ab12cd34ef56
    #[arg(value_name = "ID", value_parser = super::id::<KeyId>)]
    id: KeyId,
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Create(args) => create(args, out).await?,
        Command::List(args) => list(args, out).await?,
        Command::Rotate(args) => rotate(args, out).await?,
        Command::Revoke(args) => revoke(args, out).await?,
    }
    Ok(Outcome::Done)
}

async fn create(args: CreateArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    let caller = Caller { tenant: args.tenant, client: args.client };
    let usual = || Scopes::new([Scope::Pay, Scope::Read]);
    let Some(scopes) = Scopes::new(args.scopes).or_else(usual) else { bail!("a key needs a scope") };
    let key = Key::generate()?;
    let lifetime_s = args.expires_in_days.map(|days| days * DAY_S);
    ledger.insert_api_key(&key.new_key(&caller, &scopes, lifetime_s)).await?;
    let Some(view) = ledger.api_key(&key.id).await? else {
        bail!("key {} was not stored; try again", key.id)
    };
    if args.json {
        return Ok(out.json(&shown(&key, &view))?);
    }
    show(&key, &view, out)
}

async fn list(args: ListArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let keys = args.database.ledger().await?.api_keys(args.tenant.as_ref(), args.client.as_ref()).await?;
    if args.json {
        let keys: Vec<Value> = keys.iter().map(document::key).collect();
        out.json(&json!({ "keys": keys }))?;
    } else if keys.is_empty() {
        out.line("no key")?;
    } else {
        out.line(table(&keys))?;
    }
    Ok(())
}

async fn rotate(args: RotateArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    let key = Key::generate()?;
    let rotation = ledger.rotate_api_key(&args.id, &key.successor(), args.overlap_hours * HOUR_S).await?;
    let RotatedKeys { old, new } = match rotation {
        RotateKeyOutcome::Rotated(rotated) => *rotated,
        RotateKeyOutcome::UnknownKey => bail!(unknown(&args.id)),
        RotateKeyOutcome::AlreadyRotated(next) => bail!("key {} was rotated before; rotate {next}", args.id),
        RotateKeyOutcome::Inactive(status) => {
            bail!("key {} is {}; create a new one", args.id, status.as_str())
        }
    };
    if args.json {
        let mut document = shown(&key, &new);
        document["replaces"] = document::key(&old);
        return Ok(out.json(&document)?);
    }
    show(&key, &new, out)?;
    Ok(out.line(format_args!("\nkey {} is good until {}", old.id, until(old.expires_at)))?)
}

async fn revoke(args: RevokeArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let ledger = args.database.ledger().await?;
    match ledger.revoke_api_key(&args.id).await? {
        RevokeKeyOutcome::Revoked(key) => {
            let Caller { tenant, client } = &key.caller;
            Ok(out.line(format_args!("key {} of client {client} of tenant {tenant} is revoked", key.id))?)
        }
        RevokeKeyOutcome::UnknownKey => bail!(unknown(&args.id)),
        RevokeKeyOutcome::AlreadyRevoked(key) => {
            bail!("key {} was revoked before, at {}", key.id, until(key.revoked_at))
        }
    }
}

fn unknown(id: &KeyId) -> String {
    format!("there is no key {id}; see: payctl keys list")
}

/// A new key, for people. The key stands alone in the first line.
fn show(key: &Key, view: &KeyView, out: &mut Out<'_>) -> anyhow::Result<()> {
    let mut facts = Table::new([("", Align::Left), ("", Align::Left)]);
    facts.row(["id", view.id.as_str()]);
    facts.row(["tenant", view.caller.tenant.as_str()]);
    facts.row(["client", view.caller.client.as_str()]);
    facts.row(["scopes", &view.scopes.words().join(", ")]);
    facts.row(["expires", &until(view.expires_at)]);
    out.line(key.secret.expose_secret())?;
    Ok(out.line(format_args!("\n{facts}\n\nThe key is in the first line. It is not shown again."))?)
}

/// A new key, for programs.
fn shown(key: &Key, view: &KeyView) -> Value {
    let mut document = document::key(view);
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
        ("begins with", left),
    ]);
    for key in keys {
        table.row([
            key.id.as_str(),
            key.caller.tenant.as_str(),
            key.caller.client.as_str(),
            &key.scopes.words().join(", "),
            key.status.as_str(),
            &if key.status == KeyStatus::Revoked { String::new() } else { until(key.expires_at) },
            key.rotated_to.as_ref().map_or("", KeyId::as_str),
            &key.prefix,
        ]);
    }
    table
}

/// To the second.
fn until(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".into(), |time| format!("{time:.0}"))
}

//! `payctl limits`: how much an account, or a tenant's accounts together, may send.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope, LimitView};
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{Money, MoneyError, parse_currency};
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::money;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};

/// Set and list how much an account, or a tenant's accounts together, may send
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Set(SetArgs),
    List(ListArgs),
}

/// Set a limit, which replaces the earlier limit; without a bound, remove the limit
///
/// A payment is checked against the limit when its amount is held; a release returns the amount to the limit. A day
/// is a UTC day. Use is counted from the moment at which a limit per day is set.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("scope").required(true).args(["account", "tenant"]))]
pub(crate) struct SetArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Account that the limit applies to
    #[arg(long, value_name = "ID", value_parser = super::id::<AccountId>)]
    account: Option<AccountId>,
    /// Tenant whose accounts together the limit applies to
    #[arg(long, value_name = "ID", value_parser = super::id::<TenantId>)]
    tenant: Option<TenantId>,
    /// Currency of the limit, an ISO 4217 code like EUR
    #[arg(long, value_parser = parse_currency)]
    currency: Currency,
    /// Largest amount of one payment, as a decimal in major units like 10.00
    #[arg(long, value_name = "AMOUNT")]
    per_payment: Option<String>,
    /// Largest amount of one UTC day, as a decimal in major units like 100.00
    #[arg(long, value_name = "AMOUNT")]
    per_day: Option<String>,
    /// Most payments of one UTC day, 0 or more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    per_day_count: Option<i64>,
    /// Name of the operator who sets the limit; recorded
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Reason for the limit; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// List the current limits and their use of this UTC day
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Show at most this many limits, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Set(args) => set(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn set(args: SetArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let (scope, scope_text) = match (args.account, args.tenant) {
        (Some(account), _) => {
            let text = format!("account {account}");
            (LimitScope::Account(account), text)
        }
        (None, Some(tenant)) => {
            let text = format!("tenant {tenant}");
            (LimitScope::Tenant(tenant), text)
        }
        (None, None) => anyhow::bail!("a limit needs --account or --tenant"),
    };
    let minor = |amount: Option<String>| -> Result<Option<i64>, MoneyError> {
        amount.map(|amount| Ok(Money::parse_major(&amount, args.currency)?.amount_minor())).transpose()
    };
    let bounds = LimitBounds {
        per_payment_minor: minor(args.per_payment)?,
        per_day_minor: minor(args.per_day)?,
        per_day_count: args.per_day_count,
    };
    let ledger = args.database.ledger().await?;
    ledger.set_limit(&scope, args.currency, bounds, &args.by, &args.reason).await?;
    let change = if bounds == LimitBounds::default() { "removed" } else { "set" };
    out.write_line(format_args!("limit of {scope_text} in {} {change}", args.currency.code()))?;
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let limits = args.database.ledger().await?.limits(args.limit).await?;
    if args.json {
        let limits: Vec<Value> = limits.iter().map(document).collect();
        out.write_json(&json!({ "limits": limits }))?;
    } else if limits.is_empty() {
        out.write_line("no limit is set")?;
    } else {
        out.write_line(table(&limits))?;
        tables::note_limit(limits.len(), args.limit, out)?;
    }
    Ok(())
}

fn table(limits: &[LimitView]) -> Table<7> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([
        ("scope", left),
        ("per payment", right),
        ("per day", right),
        ("payments per day", right),
        ("used today", right),
        ("set by", left),
        ("reason", left),
    ]);
    for limit in limits {
        let amount =
            |minor: Option<i64>| minor.map(|minor| money(minor, &limit.currency)).unwrap_or_default();
        let count = limit.bounds.per_day_count.map(|count| count.to_string()).unwrap_or_default();
        table.row([
            &format!("{} {}", limit.scope, limit.scope_id),
            &amount(limit.bounds.per_payment_minor),
            &amount(limit.bounds.per_day_minor),
            &count,
            &format!("{} in {}", money(limit.used_minor, &limit.currency), limit.used_count),
            &limit.set_by,
            &limit.reason,
        ]);
    }
    table
}

fn document(limit: &LimitView) -> Value {
    json!({
        "scope": limit.scope,
        "scope_id": limit.scope_id,
        "currency": limit.currency,
        "per_payment_minor": limit.bounds.per_payment_minor,
        "per_day_minor": limit.bounds.per_day_minor,
        "per_day_count": limit.bounds.per_day_count,
        "used_today_minor": limit.used_minor,
        "used_today_count": limit.used_count,
        "set_by": limit.set_by,
        "reason": limit.reason,
    })
}

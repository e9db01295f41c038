//! `payctl limits`: what may leave an account, or a tenant's accounts together.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope, LimitView};
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{Money, MoneyError, parse_currency};
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::money;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{self as tables, Align, Table};

/// Set and list what may leave an account, or a tenant's accounts together
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Set(SetArgs),
    List(ListArgs),
}

/// Set a limit in the place of the one before; without bounds there is none
///
/// It is looked at when a payment's amount is held, and given back with what is released. A day is UTC's, and its use counts
/// from when a limit for a day is set.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("scope").required(true).args(["account", "tenant"]))]
pub(crate) struct SetArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Of this account
    #[arg(long, value_name = "ID", value_parser = super::id::<AccountId>)]
    account: Option<AccountId>,
    /// Of all accounts of this tenant together
    #[arg(long, value_name = "ID", value_parser = super::id::<TenantId>)]
    tenant: Option<TenantId>,
    /// ISO 4217 code, like EUR
    #[arg(long, value_parser = parse_currency)]
    currency: Currency,
    /// Of one payment, decimal in major units
    #[arg(long, value_name = "AMOUNT")]
    per_payment: Option<String>,
    /// Of one day, decimal in major units
    #[arg(long, value_name = "AMOUNT")]
    per_day: Option<String>,
    /// Payments of one day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    per_day_count: Option<i64>,
    /// Your name
    #[arg(long, value_name = "NAME")]
    by: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// List the limits that count now, with what today has used
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Set(args) => set(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(Outcome::Done)
}

async fn set(args: SetArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let scope = match (args.account, args.tenant) {
        (Some(account), _) => LimitScope::Account(account),
        (None, Some(tenant)) => LimitScope::Tenant(tenant),
        (None, None) => anyhow::bail!("whose limit? give --account or --tenant"),
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
    out.line(if bounds == LimitBounds::default() { "no limit any more" } else { "limit set" })?;
    Ok(())
}

async fn list(args: ListArgs, out: &mut Out<'_>) -> anyhow::Result<()> {
    let limits = args.database.ledger().await?.limits(args.limit).await?;
    if args.json {
        let limits: Vec<Value> = limits.iter().map(document).collect();
        out.json(&json!({ "limits": limits }))?;
    } else if limits.is_empty() {
        out.line("no limit")?;
    } else {
        out.line(table(&limits))?;
        tables::remark_cut(limits.len(), args.limit, out)?;
    }
    Ok(())
}

fn table(limits: &[LimitView]) -> Table<7> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([
        ("of", left),
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

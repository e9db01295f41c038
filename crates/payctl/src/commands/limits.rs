//! `payctl limits`: how much an account, or a tenant's accounts together, may send.

use clap::ArgGroup;
use iso_currency::Currency;
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::parse_currency;
use serde::Deserialize;
use serde_json::json;

use crate::document::money;
use crate::operator_api::{LimitDocument, ReasonArgs, SessionArgs, note_waiting};
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
/// is a UTC day. Use is counted from the moment at which a limit per day is set. A bound that is raised or removed takes
/// another operator's confirmation.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("scope").required(true).args(["account", "tenant"]))]
pub(crate) struct SetArgs {
    #[command(flatten)]
    session: SessionArgs,
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
    #[command(flatten)]
    reason: ReasonArgs,
}

/// List the current limits and their use of this UTC day
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Show at most this many limits, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000))]
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

#[derive(Deserialize)]
struct Limits {
    limits: Vec<LimitDocument>,
}

async fn set(args: SetArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let scope_text = match (&args.account, &args.tenant) {
        (Some(account), _) => format!("account {account}"),
        (None, Some(tenant)) => format!("tenant {tenant}"),
        (None, None) => anyhow::bail!("a limit needs --account or --tenant"),
    };
    let is_removed = args.per_payment.is_none() && args.per_day.is_none() && args.per_day_count.is_none();
    let change = json!({
        "kind": "set_limit", "account_id": args.account, "tenant_id": args.tenant, "currency": args.currency.code(),
        "per_payment": args.per_payment, "per_day": args.per_day, "per_day_count": args.per_day_count,
    });
    let change = args.session.client()?.change(change, &args.reason).await?;
    if !note_waiting(&change, out)? {
        let done = if is_removed { "removed" } else { "set" };
        out.write_line(format_args!("limit of {scope_text} in {} {done}", args.currency.code()))?;
    }
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let path = format!("limits?limit={}", args.limit);
    let response = args.session.client()?.get::<Limits>(&path).await?;
    let limits = response.document.limits;
    if args.json {
        out.write_line(response.body)?;
    } else if limits.is_empty() {
        out.write_line("no limit is set")?;
    } else {
        out.write_line(table(&limits))?;
        tables::note_limit(limits.len(), args.limit, out)?;
    }
    Ok(())
}

fn table(limits: &[LimitDocument]) -> Table<7> {
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
        let count = limit.per_day_count.map(|count| count.to_string()).unwrap_or_default();
        table.row([
            &format!("{} {}", limit.scope, limit.scope_id),
            &amount(limit.per_payment_minor),
            &amount(limit.per_day_minor),
            &count,
            &format!("{} in {}", money(limit.used_today_minor, &limit.currency), limit.used_today_count),
            &limit.set_by,
            &limit.reason,
        ]);
    }
    table
}

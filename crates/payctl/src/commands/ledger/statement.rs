//! `payctl ledger statement`: what moved an account in a period. Internal accounts too.

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::reads::statement::{AccountStatement, StatementEntry, StatementPosition, StatementQuery};
use serde_json::{Value, json};

use super::balance;
use crate::database::DatabaseArgs;
use crate::document::money;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{Align, Table};

/// Show what moved an account in a period, oldest first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// A customer's account, or an internal one like internal:escrow:EUR
    account: String,
    /// From this instant on, like 2026-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT")]
    from: Timestamp,
    /// Until before this instant [default: now]
    #[arg(long, value_name = "INSTANT")]
    to: Option<Timestamp>,
    /// Only after this place: what the page before named
    #[arg(long, value_name = "PLACE")]
    after: Option<StatementPosition>,
    /// At most so many entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.database.ledger().await?;
    let period = StatementQuery { from: args.from, to: args.to, after: args.after, limit: args.limit };
    let found = ledger.statement(&args.account, None, &period).await?;
    let statement = found.with_context(|| format!("there is no account {}", args.account))?;
    if args.json {
        out.json(&document(&statement))?;
    } else {
        print(&statement, out)?;
    }
    Ok(Outcome::Done)
}

fn print(statement: &AccountStatement, out: &mut Out<'_>) -> anyhow::Result<()> {
    let AccountStatement { opening, closing, lines, next } = statement;
    out.line(balance::table([("opening", opening), ("closing", closing)]))?;
    if lines.is_empty() {
        out.line("no entry")?;
    } else {
        out.line(table(lines, &opening.currency))?;
    }
    if let Some(next) = next {
        out.line(format_args!("there may be more: --after {next}"))?;
    }
    Ok(())
}

fn table(lines: &[StatementEntry], currency: &str) -> Table<6> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([
        ("posted", left),
        ("kind", left),
        ("amount", right),
        ("available after", right),
        ("other account", left),
        ("payment", left),
    ]);
    for line in lines {
        table.row([
            &line.posted_at.to_string(),
            &line.kind,
            &money(line.amount_minor, currency),
            &money(line.balance_minor, currency),
            &line.counter_account,
            line.payment_id.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

fn document(statement: &AccountStatement) -> Value {
    let entries: Vec<Value> = statement
        .lines
        .iter()
        .map(|line| {
            json!({
                "entry_id": line.entry_id,
                "posted_at": line.posted_at,
                "kind": line.kind,
                "payment_id": line.payment_id,
                "counter_account": line.counter_account,
                "amount_minor": line.amount_minor,
                "available_after_minor": line.balance_minor,
            })
        })
        .collect();
    json!({
        "opening": balance::document(&statement.opening),
        "closing": balance::document(&statement.closing),
        "entries": entries,
        "next": statement.next.map(|next| next.to_string()),
    })
}

//! `payctl ledger statement`: the entries of a customer's or internal account in a period.

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::reads::statement::{
    AccountStatement, AccountStatementEntry, AccountStatementQuery, StatementPosition,
};
use serde_json::{Value, json};

use super::balance;
use crate::database::DatabaseArgs;
use crate::document::money;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Show an account's statement: its entries in a period, oldest first
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Id of a customer's account, or of an internal account like internal:escrow:EUR
    account: String,
    /// First instant of the period, inclusive, like 2026-01-01T00:00:00Z
    #[arg(long, value_name = "INSTANT")]
    from: Timestamp,
    /// End of the period, exclusive, like 2026-02-01T00:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT")]
    to: Option<Timestamp>,
    /// Show only entries after this position, which the previous page printed
    #[arg(long, value_name = "POSITION")]
    after: Option<StatementPosition>,
    /// Show at most this many entries, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.database.ledger().await?;
    let period = AccountStatementQuery { from: args.from, to: args.to, after: args.after, limit: args.limit };
    let statement = ledger.statement(&args.account, None, &period).await?;
    let statement = statement
        .with_context(|| format!("the ledger has no account {}; check the account id", args.account))?;
    if args.json {
        out.write_json(&document(&statement))?;
    } else {
        print(&statement, out)?;
    }
    Ok(CommandOutcome::Success)
}

fn print(statement: &AccountStatement, out: &mut Output<'_>) -> anyhow::Result<()> {
    let AccountStatement { opening, closing, lines, next } = statement;
    out.write_line(balance::table([("opening", opening), ("closing", closing)]))?;
    if lines.is_empty() {
        out.write_line("no entry in this period")?;
    } else {
        out.write_line(table(lines, &opening.currency))?;
    }
    if let Some(next) = next {
        out.write_line(format_args!("more entries may follow; next page: --after {next}"))?;
    }
    Ok(())
}

fn table(lines: &[AccountStatementEntry], currency: &str) -> Table<7> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([
        ("posted at", left),
        ("value date", left),
        ("kind", left),
        ("amount", right),
        ("available after", right),
        ("counter account", left),
        ("payment", left),
    ]);
    for line in lines {
        table.row([
            &line.posted_at.to_string(),
            &line.value_date.to_string(),
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
                "value_date": line.value_date,
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

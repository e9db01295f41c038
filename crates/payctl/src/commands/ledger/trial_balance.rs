//! `payctl ledger trial-balance`: every account's balance, and whether each currency sums to zero.

use std::collections::BTreeMap;

use jiff::Timestamp;
use payment_ledger::reads::statement::TrialBalanceLine;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::money;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};

/// Show all balances at an instant, by currency; each currency must sum to zero
///
/// Exit code 1: a currency does not sum to zero.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Instant of the balances, like 2026-01-31T23:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.database.ledger().await?;
    let lines = ledger.trial_balance(args.at).await?;
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for line in &lines {
        let sum = sums.entry(&line.currency).or_default();
        *sum = sum.saturating_add(line.balance_minor);
    }
    if args.json {
        let lines: Vec<Value> = lines
            .iter()
            .map(|line| {
                json!({"currency": line.currency, "account": line.account, "balance_minor": line.balance_minor})
            })
            .collect();
        out.write_json(&json!({ "lines": lines, "sums_minor": sums }))?;
    } else if lines.is_empty() {
        out.write_line("the ledger has no account")?;
    } else {
        out.write_line(table(&lines, &sums))?;
    }
    let is_balanced = sums.values().all(|sum| *sum == 0);
    Ok(if is_balanced { CommandOutcome::Success } else { CommandOutcome::CheckFailed })
}

/// A table of balances by currency; negative balances are debits, others credits.
fn table(lines: &[TrialBalanceLine], sums: &BTreeMap<&str, i64>) -> Table<3> {
    let mut table = Table::new([("account", Align::Left), ("debit", Align::Right), ("credit", Align::Right)]);
    let mut row = |account: &str, currency: &str, minor: i64| {
        let amount = money(minor.saturating_abs(), currency);
        if minor < 0 { table.row([account, &amount, ""]) } else { table.row([account, "", &amount]) }
    };
    for line in lines {
        row(&line.account, &line.currency, line.balance_minor);
    }
    for (currency, sum) in sums {
        row(&format!("sum in {currency}"), currency, *sum);
    }
    table
}

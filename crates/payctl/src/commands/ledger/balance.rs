//! `payctl ledger balance`: a customer's or internal account's balance at an instant.

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::reads::statement::BalanceAt;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::money;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Show an account's balance at an instant
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Id of a customer's account, or of an internal account like internal:escrow:EUR
    account: String,
    /// Instant of the balance, like 2026-01-31T23:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.database.ledger().await?;
    let balance = ledger.balance_at(&args.account, None, args.at).await?;
    let balance = balance
        .with_context(|| format!("the ledger has no account {}; check the account id", args.account))?;
    if args.json {
        out.write_json(&document(&balance))?;
    } else {
        out.write_line(table([("", &balance)]))?;
    }
    Ok(CommandOutcome::Success)
}

/// A table of balances, each with a label.
pub(super) fn table<'a>(balances: impl IntoIterator<Item = (&'static str, &'a BalanceAt)>) -> Table<6> {
    let (left, right) = (Align::Left, Align::Right);
    let mut table = Table::new([
        ("", left),
        ("account", left),
        ("available", right),
        ("held", right),
        ("balance", right),
        ("at", left),
    ]);
    for (label, balance) in balances {
        let amount = |minor| money(minor, &balance.currency);
        table.row([
            label,
            &balance.account_id,
            &amount(balance.available_minor),
            &amount(balance.held_minor),
            &amount(balance.ledger_minor()),
            &balance.at.to_string(),
        ]);
    }
    table
}

/// The JSON document of a balance.
pub(super) fn document(balance: &BalanceAt) -> Value {
    json!({
        "account_id": balance.account_id,
        "currency": balance.currency,
        "at": balance.at,
        "available_minor": balance.available_minor,
        "held_minor": balance.held_minor,
        "balance_minor": balance.ledger_minor(),
    })
}

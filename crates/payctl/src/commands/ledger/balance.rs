//! `payctl ledger balance`: what an account held at an instant. Internal accounts too.

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::reads::statement::BalanceAt;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::money;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{Align, Table};

/// Show what an account held at an instant
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// A customer's account, or an internal one like internal:escrow:EUR
    account: String,
    /// The instant, like 2026-01-31T23:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.database.ledger().await?;
    let found = ledger.balance_at(&args.account, None, args.at).await?;
    let balance = found.with_context(|| format!("there is no account {}", args.account))?;
    if args.json {
        out.json(&document(&balance))?;
    } else {
        out.line(table([("", &balance)]))?;
    }
    Ok(Outcome::Done)
}

/// Balances for people, each with a word in front.
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
    for (word, balance) in balances {
        let amount = |minor| money(minor, &balance.currency);
        table.row([
            word,
            &balance.account_id,
            &amount(balance.available_minor),
            &amount(balance.held_minor),
            &amount(balance.ledger_minor()),
            &balance.at.to_string(),
        ]);
    }
    table
}

/// A balance as JSON for programs.
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

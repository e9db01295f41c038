//! `payctl stuck`: open payments that do not move, and what people may do about them.

use payment_ledger::operator::decisions::{DecisionStatus, DecisionView};
use payment_ledger::reads::queues::StuckPayment;
use serde_json::{Value, json};

use super::list::reason;
use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{self as tables, Align, Table};
use crate::{age, document};

/// List open payments that stand before a person, are being cancelled or are idle for long, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// For this long at least, like 10m
    #[arg(long, value_name = "AGE", default_value = "5m", value_parser = age::parse)]
    older_than: i64,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.bank.read()?.ledger().await?;
    let stuck = ledger.stuck(args.older_than, args.limit).await?;
    if args.json {
        let stuck: Vec<Value> = stuck.iter().map(document::stuck).collect();
        out.json(&json!({ "stuck": stuck }))?;
    } else if stuck.is_empty() {
        out.line(format_args!("no open payment has stood still for {}", age::show(args.older_than)))?;
    } else {
        out.line(table(&stuck))?;
        tables::remark_cut(stuck.len(), args.limit, out)?;
    }
    Ok(Outcome::Done)
}

fn table(stuck: &[StuckPayment]) -> Table<7> {
    let left = Align::Left;
    let mut table = Table::new([
        ("payment", left),
        ("state", left),
        ("for", Align::Right),
        ("amount", Align::Right),
        ("reason", left),
        ("may be decided", left),
        ("pending", left),
    ]);
    for StuckPayment { payment, age_s, pending, .. } in stuck {
        table.row([
            &payment.payment_id,
            payment.state.as_str(),
            &age::show(*age_s),
            &document::money(payment.amount_minor, &payment.currency),
            reason(payment),
            &document::actions(&payment.allowed_actions),
            &pending.as_ref().map(waits).unwrap_or_default(),
        ]);
    }
    table
}

/// What an open decision waits for.
pub(super) fn waits(decision: &DecisionView) -> String {
    let DecisionView { decision_id, action, proposed_by, .. } = decision;
    match decision.status {
        DecisionStatus::Confirmed => format!("{decision_id}: {action}, being carried out"),
        _ => format!("{decision_id}: {action}, proposed by {proposed_by}, to be confirmed by another"),
    }
}

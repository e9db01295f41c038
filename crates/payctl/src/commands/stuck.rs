//! `payctl stuck`: open payments that do not progress, and the decisions that operators may take.

use payment_ledger::operator::decisions::{DecisionStatus, DecisionView};
use payment_ledger::reads::queues::StuckPayment;
use serde_json::{Value, json};

use super::list::reason;
use crate::config::ConfigArgs;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{self as tables, Align, Table};
use crate::{age, document};

/// List open payments that need an operator, are being cancelled or are idle, longest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Show only payments without progress for at least this long, like 90s, 10m or 48h
    #[arg(long, value_name = "AGE", default_value = "5m", value_parser = age::parse)]
    older_than: i64,
    /// Show at most this many payments, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.config.read()?.ledger().await?;
    let stuck = ledger.stuck(args.older_than, args.limit).await?;
    if args.json {
        let stuck: Vec<Value> = stuck.iter().map(document::stuck).collect();
        out.write_json(&json!({ "stuck": stuck }))?;
    } else if stuck.is_empty() {
        out.write_line(format_args!("no payment is stuck for {} or longer", age::format(args.older_than)))?;
    } else {
        out.write_line(table(&stuck))?;
        tables::note_limit(stuck.len(), args.limit, out)?;
    }
    Ok(CommandOutcome::Success)
}

fn table(stuck: &[StuckPayment]) -> Table<7> {
    let left = Align::Left;
    let mut table = Table::new([
        ("payment", left),
        ("state", left),
        ("for", Align::Right),
        ("amount", Align::Right),
        ("reason", left),
        ("allowed actions", left),
        ("open decision", left),
    ]);
    for StuckPayment { payment, age_s, pending, .. } in stuck {
        table.row([
            &payment.payment_id,
            payment.state.as_str(),
            &age::format(*age_s),
            &document::money(payment.amount_minor, &payment.currency),
            reason(payment),
            &document::actions(&payment.allowed_actions),
            &pending.as_ref().map(open_decision).unwrap_or_default(),
        ]);
    }
    table
}

/// An open decision and its next step.
fn open_decision(decision: &DecisionView) -> String {
    let DecisionView { decision_id, action, proposed_by, .. } = decision;
    match decision.status {
        DecisionStatus::Confirmed => format!("{decision_id}: {action}, confirmed, not applied yet"),
        _ => format!(
            "{decision_id}: {action}, proposed by {proposed_by}, awaits another operator's confirmation"
        ),
    }
}

//! `payctl restore-check`: protects the open payments after commits may have been lost, and lists what differs.

use jiff::Timestamp;
use payment_ledger::audit::reconcile::restore::{EndedWithoutAttempt, UnrecordedTransfer};
use reconciliation::restore::RestoreReport;

use super::reconcile;
use crate::age;
use crate::config::ConfigArgs;
use crate::document::counted;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};

/// After a restored backup, or a failover that lost commits: mark the open payments, and list what differs
///
/// A marked payment is sent again only where the switch deduplicates, is never started from the beginning, and is released only
/// after the switch has answered its cancel. Then the switch statements, the ledger and the workflows are compared as by `payctl
/// reconcile`, which opens an exception for each drift. No money moves. The command may be repeated; stop the payment-workers
/// before the first run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// An instant up to which the database surely has every commit, like 2026-01-01T00:00:00Z, or how long ago it was, like 10m
    /// or 48h
    #[arg(long, value_name = "INSTANT|AGE", value_parser = age::parse_since)]
    since: Timestamp,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let reconciler = reconcile::reconciler(&args.config).await?;
    let report = reconciler.check_restore(args.since).await?;
    if args.json {
        out.write_json(&serde_json::to_value(&report)?)?;
    } else {
        print(&report, out)?;
    }
    Ok(reconcile::outcome(report.difference_count(), &report.reconciliation))
}

fn print(report: &RestoreReport, out: &mut Output<'_>) -> anyhow::Result<()> {
    let RestoreReport { since, marked, transfers_without_attempt, .. } = report;
    let marked = counted(*marked, "open payment");
    out.write_line(format_args!("marked {marked}; commits may be lost since {since}"))?;
    reconcile::print(&report.reconciliation, out)?;
    out.write_line("")?;
    if *transfers_without_attempt == 0 {
        out.write_line("no transfer without a recorded attempt")?;
    } else {
        let listed = &report.first_transfers_without_attempt;
        out.write_line(format_args!(
            "{} without a recorded attempt, {} listed; an open payment follows the switch's \
             answer to its cancel\n{}",
            counted(*transfers_without_attempt, "transfer"),
            listed.len(),
            transfers(listed)
        ))?;
    }
    if !report.ended_without_attempt.is_empty() {
        out.write_line(format_args!(
            "\nended since then without a recorded attempt; right, unless the switch has a transfer: payctl show PAYMENT\n{}",
            ended(&report.ended_without_attempt)
        ))?;
    }
    if !report.reconciliation.not_compared.is_empty() {
        out.write_line(
            "\nWhat was not compared is not checked. A switch without a statement is asked about each open payment when the \
             payment is cancelled; ask its operators for transfers since then that match no payment.",
        )?;
    }
    out.write_line(format_args!(
        "\nnext: start the payment-workers, and repeat payctl restore-check --since {since} until only what needs an \
         operator is left; deploy/runbook/lost-commits.md has each step"
    ))?;
    Ok(())
}

fn transfers(transfers: &[UnrecordedTransfer]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("payment", left),
        ("state", left),
        ("switch", left),
        ("transfer", left),
        ("there", left),
    ]);
    for UnrecordedTransfer { payment_id, state, switch, transfer_id, status } in transfers {
        table.row([payment_id, state, switch, transfer_id, status]);
    }
    table
}

fn ended(payments: &[EndedWithoutAttempt]) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new([("payment", left), ("state", left), ("switch", left), ("ended at", left)]);
    for EndedWithoutAttempt { payment_id, state, switch, ended_at } in payments {
        table.row([payment_id, state, switch, &ended_at.to_string()]);
    }
    table
}

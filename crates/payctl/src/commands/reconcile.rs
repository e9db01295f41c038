//! `payctl reconcile`: the switches' statements, our books and the running workflows, side by side.

use reconciliation::report::{PaymentSum, ReportedFinding, SwitchTotals};
use reconciliation::{Reconciler, ReconciliationReport, Tolerance};
use workflow_api::RunningWorkflows;

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{Align, Table};
use crate::{age, document};

/// Compare the switches' statements, the ledger and the running workflows; open an exception for what does not agree
///
/// Moves no money. What is younger than the grace counts as under way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// How long the books may take to follow each other, like 10m
    #[arg(long, value_name = "AGE", default_value = "10m", value_parser = age::parse)]
    grace: i64,
    /// How long a switch may be asked to cancel, like 15m
    #[arg(long, value_name = "AGE", default_value = "15m", value_parser = age::parse)]
    cancelling: i64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let bank = args.bank.read()?;
    let (ledger, switches) = (bank.ledger().await?, bank.switches()?);
    let temporal = RunningWorkflows::new(bank.temporal.clone(), "payctl");
    let switches = switches.iter().map(|switch| (&switch.options, &switch.profile));
    let reconciler = Reconciler::new(ledger, switches, temporal)?;
    let patience = Tolerance { grace_s: args.grace, cancelling_s: args.cancelling };
    let report = reconciler.run(patience, &|_| ()).await?;
    if args.json {
        out.json(&serde_json::to_value(&report)?)?;
    } else {
        print(&report, out)?;
    }
    Ok(match report.drift_count() {
        0 if report.not_compared.is_empty() => Outcome::Done,
        0 => Outcome::StillOpen,
        _ => Outcome::NotAsItShouldBe,
    })
}

fn print(report: &ReconciliationReport, out: &mut Out<'_>) -> anyhow::Result<()> {
    let ReconciliationReport { reconciliation_id, payments, lines, new_lines, workflows, .. } = report;
    out.line(format_args!(
        "reconciliation {reconciliation_id}: {payments} payments, {lines} statement lines ({new_lines} new), {workflows} workflows"
    ))?;
    for book in &report.not_compared {
        out.line(format_args!("not compared: {book}"))?;
    }
    if !report.totals.is_empty() {
        out.line("")?;
        out.line(totals(&report.totals))?;
    }
    out.line("")?;
    if report.closed_before > 0 {
        out.line(format_args!("{} that people have closed before", report.closed_before))?;
    }
    if report.drift_count() == 0 {
        out.line("no drift")?;
        return Ok(());
    }
    out.line(counts(report))?;
    out.line("")?;
    out.line(findings(&report.findings))?;
    let listed = report.findings.len() as u64;
    if listed < report.drift_count() {
        out.line(format_args!("the first {listed} of {}; payctl exceptions has all", report.drift_count()))?;
    }
    Ok(())
}

fn totals(totals: &[SwitchTotals]) -> Table<5> {
    let right = Align::Right;
    let mut table = Table::new([
        ("switch", Align::Left),
        ("payments", right),
        ("held", right),
        ("committed", right),
        ("settled at the switch", right),
    ]);
    for SwitchTotals { switch, currency, payments, held, committed, settled_at_switch } in totals {
        let money = |sum: &PaymentSum| {
            format!("{} in {}", document::wide_money(sum.amount_minor, currency), sum.count)
        };
        table.row([
            switch,
            &payments.to_string(),
            &money(held),
            &money(committed),
            &settled_at_switch.as_ref().map_or_else(|| "not known".to_owned(), money),
        ]);
    }
    table
}

fn counts(report: &ReconciliationReport) -> Table<2> {
    let mut table = Table::new([("drift", Align::Left), ("found", Align::Right)]);
    for (drift, found) in report.drift.iter().filter(|(_, found)| **found > 0) {
        table.row([drift.as_str(), &found.to_string()]);
    }
    table
}

fn findings(findings: &[ReportedFinding]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("exception", Align::Right),
        ("drift", left),
        ("payment", left),
        ("may be decided", left),
        ("what", left),
    ]);
    for ReportedFinding { drift, payment_id, exception_id, allowed, detail, .. } in findings {
        table.row([
            &exception_id.to_string(),
            drift.as_str(),
            payment_id.as_deref().unwrap_or("none of ours"),
            &allowed.join(", "),
            detail,
        ]);
    }
    table
}

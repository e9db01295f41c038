//! `payctl reconcile`: one reconciliation run over the switch statements, the ledger and the running workflows.

use payment_protocol::drift::Tolerance;
use reconciliation::report::{PaymentSum, ReportedFinding, SwitchTotals};
use reconciliation::{Reconciler, ReconciliationReport};
use workflow_api::PaymentWorkflows;

use crate::config::ConfigArgs;
use crate::document::counted;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};
use crate::{age, document};

/// Compare the switch statements, the ledger and the running workflows; open an exception for each drift
///
/// The command moves no money: a return that a statement lists is left to the scheduled runs of payment-worker. A difference younger than the
/// grace period is not a drift yet.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Grace period: a younger difference between the books is still in progress, like 90s, 10m or 48h
    #[arg(long, value_name = "AGE", default_value = "10m", value_parser = age::parse)]
    grace: i64,
    /// Longest time that a payment may be cancelling without being a drift, like 90s, 10m or 48h
    #[arg(long, value_name = "AGE", default_value = "15m", value_parser = age::parse)]
    cancelling: i64,
    /// Compare only what is open, and what changed within this time, like 12h or 72h; without it, everything since the beginning
    #[arg(long, value_name = "AGE", value_parser = age::parse)]
    window: Option<i64>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let reconciler = reconciler(&args.config).await?;
    let tolerance = Tolerance { grace_s: args.grace, cancelling_s: args.cancelling };
    let report = reconciler.run(tolerance, args.window, &|_| ()).await?;
    if args.json {
        out.write_json(&serde_json::to_value(&report)?)?;
    } else {
        print(&report, out)?;
    }
    Ok(outcome(report.drift_count(), &report))
}

/// A reconciler for the configured ledger, switches and Temporal, which records no return.
pub(super) async fn reconciler(config: &ConfigArgs) -> anyhow::Result<Reconciler> {
    let config = config.read()?;
    let (ledger, switches) = (config.ledger().await?, config.switches()?);
    let temporal = PaymentWorkflows::new(config.temporal.clone(), "payctl");
    let switches = switches.iter().map(|switch| (&switch.options, &switch.profile));
    Ok(Reconciler::new(ledger, switches, temporal)?.without_recording_returns())
}

/// Outcome of a comparison that found this many differences.
pub(super) fn outcome(differences: u64, report: &ReconciliationReport) -> CommandOutcome {
    match differences {
        0 if report.not_compared.is_empty() && report.unrecorded_returns == 0 => CommandOutcome::Success,
        0 => CommandOutcome::Unknown,
        _ => CommandOutcome::CheckFailed,
    }
}

pub(super) fn print(report: &ReconciliationReport, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ReconciliationReport { reconciliation_id, payments, lines, new_lines, workflows, .. } = report;
    out.write_line(format_args!(
        "reconciliation run {reconciliation_id} compared {}, {} ({new_lines} new) and {}",
        counted(*payments, "payment"),
        counted(*lines, "statement line"),
        counted(*workflows, "workflow")
    ))?;
    if let Some(since) = report.window_began_at {
        out.write_line(format_args!(
            "compared was what is open, and what has changed since {since:.0}; without --window, everything is"
        ))?;
    }
    for source in &report.not_compared {
        out.write_line(format_args!("not compared: {source}"))?;
    }
    if report.unrecorded_returns > 0 {
        out.write_line(format_args!(
            "the statements list a return of {} that is not recorded yet; the next scheduled run of payment-worker records it",
            counted(report.unrecorded_returns, "payment")
        ))?;
    }
    if !report.totals.is_empty() {
        out.write_line("")?;
        out.write_line(totals(&report.totals))?;
    }
    out.write_line("")?;
    if report.closed_before > 0 {
        let differences = counted(report.closed_before, "difference");
        out.write_line(format_args!("operators have closed {differences} before"))?;
    }
    if report.drift_count() == 0 {
        out.write_line("no drift")?;
        return Ok(());
    }
    out.write_line(counts(report))?;
    out.write_line("")?;
    out.write_line(findings(&report.findings))?;
    let listed = report.findings.len() as u64;
    if listed < report.drift_count() {
        out.write_line(format_args!(
            "{listed} of {} listed; see all: payctl exceptions",
            counted(report.drift_count(), "drift")
        ))?;
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
        let money =
            |sum: &PaymentSum| format!("{} in {}", document::total(sum.amount_minor, currency), sum.count);
        table.row([
            switch,
            &payments.to_string(),
            &money(held),
            &money(committed),
            &settled_at_switch.as_ref().map_or_else(|| "unknown".to_owned(), money),
        ]);
    }
    table
}

fn counts(report: &ReconciliationReport) -> Table<2> {
    let mut table = Table::new([("drift", Align::Left), ("count", Align::Right)]);
    for (drift, count) in report.drift.iter().filter(|(_, count)| **count > 0) {
        table.row([drift.as_str(), &count.to_string()]);
    }
    table
}

fn findings(findings: &[ReportedFinding]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("exception", Align::Right),
        ("drift", left),
        ("payment", left),
        ("allowed decisions", left),
        ("detail", left),
    ]);
    for ReportedFinding { drift, payment_id, exception_id, allowed, detail, .. } in findings {
        table.row([
            &exception_id.to_string(),
            drift.as_str(),
            payment_id.as_deref().unwrap_or("unmatched"),
            &allowed.join(", "),
            detail,
        ]);
    }
    table
}

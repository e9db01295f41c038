//! Sets the gauges of open payments, of payments that need an operator, and of the background tasks' backlogs, with their ages
//! (S0.15). Also whether the database's settings allow a confirmed commit to be lost: a standby may be attached at any time. The
//! gauges of holds are set by `hold_audit`.

use std::time::Duration;

use anyhow::Result;
use monitoring::background_task::BackgroundTask;
use outbox::ConsumerLagMonitor;
use payment_ledger::Ledger;
use payment_ledger::durability::CommitLossReason;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::outbox_publishing;
use crate::periodic::{self, RoundOutcome};

/// Updates the gauges until `stop`. A payment that ended `erase_after` ago may be erased.
pub(crate) async fn run(
    ledger: &Ledger,
    options: &BackgroundWorkerOptions,
    erase_after: Duration,
    stop: &CancellationToken,
) {
    let mut lag_monitors = outbox_publishing::lag_monitors();
    let interval = Duration::from_millis(options.metrics_interval_ms);
    periodic::run_sparingly(BackgroundTask::MetricsCollection, interval, stop, async || {
        collect(ledger, erase_after, &mut lag_monitors).await?;
        Ok(RoundOutcome::Idle)
    })
    .await;
}

/// Sets every gauge once.
#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts and ages stay far below 2^53")]
pub(crate) async fn collect(
    ledger: &Ledger,
    erase_after: Duration,
    lag_monitors: &mut [ConsumerLagMonitor],
) -> Result<()> {
    for open in ledger.open_by_state().await? {
        let state = open.state.as_str();
        metrics::gauge!("payments_open", "state" => state).set(open.count as f64);
        metrics::gauge!("payments_open_oldest_seconds", "state" => state).set(open.oldest_s as f64);
        metrics::gauge!("payments_open_idle_seconds", "state" => state).set(open.idle_s as f64);
    }
    for waiting in ledger.needs_operator_by_reason().await? {
        let reason = waiting.reason.as_str();
        metrics::gauge!("payments_needing_operator", "reason" => reason).set(waiting.count as f64);
        metrics::gauge!("payments_needing_operator_oldest_seconds", "reason" => reason)
            .set(waiting.oldest_s as f64);
    }
    for alerted in ledger.alerts_by_kind().await? {
        metrics::gauge!("payments_alerted", "kind" => alerted.kind.as_str()).set(alerted.count as f64);
    }
    for open in ledger.open_exceptions_by_kind().await? {
        metrics::gauge!("exceptions_open", "kind" => open.kind).set(open.count as f64);
        metrics::gauge!("exceptions_open_oldest_seconds", "kind" => open.kind).set(open.oldest_s as f64);
    }
    let overdue = ledger.overdue_restores().await?;
    metrics::gauge!("restores_overdue").set(overdue.count as f64);
    metrics::gauge!("restores_overdue_seconds").set(overdue.oldest_s as f64);
    metrics::gauge!("restores_late").set(overdue.late as f64);
    for claims in ledger.claims_by_switch().await? {
        let (switch, currency) = (claims.switch, claims.currency);
        metrics::gauge!("claims_open", "switch" => switch.clone(), "currency" => currency.clone())
            .set(claims.count as f64);
        metrics::gauge!("claims_open_minor", "switch" => switch.clone(), "currency" => currency.clone())
            .set(claims.amount_minor as f64);
        metrics::gauge!("claims_open_oldest_seconds", "switch" => switch, "currency" => currency)
            .set(claims.oldest_s as f64);
    }
    for recalls in ledger.recalls_by_switch().await? {
        metrics::gauge!("recalls_unfinished", "switch" => recalls.switch.clone())
            .set(recalls.unfinished as f64);
        metrics::gauge!("recalls_overdue", "switch" => recalls.switch.clone()).set(recalls.overdue as f64);
        metrics::gauge!("recalls_overdue_seconds", "switch" => recalls.switch)
            .set(recalls.overdue_oldest_s as f64);
    }
    let unsealed = ledger.unsealed().await?;
    metrics::gauge!("journal_unsealed").set(unsealed.count as f64);
    metrics::gauge!("journal_unsealed_oldest_seconds").set(unsealed.oldest_s as f64);
    let undelivered = ledger.undelivered().await?;
    metrics::gauge!("inbox_undelivered").set(undelivered.count as f64);
    metrics::gauge!("inbox_undelivered_oldest_seconds").set(undelivered.oldest_s as f64);
    let admission = ledger.restrictions().await?;
    metrics::gauge!("kill_switches_active", "target" => "switch").set(admission.switches_stopped as f64);
    metrics::gauge!("kill_switches_active", "target" => "corridor").set(admission.corridors_stopped as f64);
    metrics::gauge!("kill_switches_active_oldest_seconds").set(admission.stop_oldest_s as f64);
    metrics::gauge!("limits_configured", "scope" => "account").set(admission.accounts_limited as f64);
    metrics::gauge!("limits_configured", "scope" => "tenant").set(admission.tenants_limited as f64);
    metrics::gauge!("limits_exhausted", "scope" => "account").set(admission.accounts_used_up as f64);
    metrics::gauge!("limits_exhausted", "scope" => "tenant").set(admission.tenants_used_up as f64);
    let erasures = ledger.open_erasures(erase_after).await?;
    metrics::gauge!("erasures_failing").set(erasures.failing as f64);
    metrics::gauge!("erasures_overdue_seconds").set(erasures.overdue_s as f64);
    let run = ledger.last_reconciliation_run().await?;
    metrics::gauge!("reconciliation_last_run_age_seconds").set(run.finished_s as f64);
    metrics::gauge!("reconciliation_last_full_run_age_seconds").set(run.full_finished_s as f64);
    metrics::gauge!("reconciliation_unread_sources").set(run.not_compared as f64);
    let reasons = ledger.commit_settings().await?.commit_loss_reasons();
    for reason in CommitLossReason::ALL {
        let applies = f64::from(u8::from(reasons.contains(reason)));
        metrics::gauge!("ledger_commits_may_be_lost", "reason" => reason.as_str()).set(applies);
    }
    outbox_publishing::set_gauges(ledger.pool(), lag_monitors).await?;
    Ok(())
}

//! Measures what is open and what waits for people, and how old it is (S0.15). Here, since it must not stop when Temporal
//! does. What is held is the audit's (`audit`).

use std::time::Duration;

use anyhow::Result;
use monitoring::task::BackgroundTask;
use outbox::Watch;
use payment_ledger::Ledger;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::publish;

/// Runs until `stop`.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let mut watches = publish::watches();
    while !stop.is_cancelled() {
        match measure(ledger, &mut watches).await {
            Ok(()) => BackgroundTask::Measure.succeeded(),
            Err(error) => tracing::warn!(error = &*error as &dyn std::error::Error, "measuring failed"),
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.metrics_interval_ms)) => {}
        }
    }
}

/// One measurement of everything.
#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts and ages stay far below 2^53")]
pub(crate) async fn measure(ledger: &Ledger, watches: &mut [Watch]) -> Result<()> {
    for open in ledger.open_by_state().await? {
        let state = open.state.as_str();
        metrics::gauge!("payments_open", "state" => state).set(open.count as f64);
        metrics::gauge!("payments_open_oldest_seconds", "state" => state).set(open.oldest_s as f64);
        metrics::gauge!("payments_open_idle_seconds", "state" => state).set(open.idle_s as f64);
    }
    for standing in ledger.needs_operator_by_reason().await? {
        let reason = standing.reason.as_str();
        metrics::gauge!("payments_needing_operator", "reason" => reason).set(standing.count as f64);
        metrics::gauge!("payments_needing_operator_oldest_seconds", "reason" => reason)
            .set(standing.oldest_s as f64);
    }
    for alerted in ledger.alerts_by_kind().await? {
        metrics::gauge!("payments_alerted", "kind" => alerted.kind.as_str()).set(alerted.count as f64);
    }
    for open in ledger.open_exceptions_by_kind().await? {
        metrics::gauge!("exceptions_open", "kind" => open.kind).set(open.count as f64);
        metrics::gauge!("exceptions_open_oldest_seconds", "kind" => open.kind).set(open.oldest_s as f64);
    }
    let unsealed = ledger.unsealed().await?;
    metrics::gauge!("journal_unsealed").set(unsealed.count as f64);
    metrics::gauge!("journal_unsealed_oldest_seconds").set(unsealed.oldest_s as f64);
    let undelivered = ledger.undelivered().await?;
    metrics::gauge!("inbox_undelivered").set(undelivered.count as f64);
    metrics::gauge!("inbox_undelivered_oldest_seconds").set(undelivered.oldest_s as f64);
    let restrained = ledger.restrictions().await?;
    metrics::gauge!("kill_switches_active", "target" => "switch").set(restrained.switches_stopped as f64);
    metrics::gauge!("kill_switches_active", "target" => "corridor").set(restrained.corridors_stopped as f64);
    metrics::gauge!("kill_switches_active_oldest_seconds").set(restrained.stop_oldest_s as f64);
    metrics::gauge!("limits_set", "scope" => "account").set(restrained.accounts_limited as f64);
    metrics::gauge!("limits_set", "scope" => "tenant").set(restrained.tenants_limited as f64);
    metrics::gauge!("limits_used_up", "scope" => "account").set(restrained.accounts_used_up as f64);
    metrics::gauge!("limits_used_up", "scope" => "tenant").set(restrained.tenants_used_up as f64);
    let sweep = ledger.last_reconciliation_run().await?;
    metrics::gauge!("reconciliation_last_run_age_seconds").set(sweep.finished_s as f64);
    metrics::gauge!("reconciliation_unread_books").set(sweep.not_compared as f64);
    publish::measure(ledger.pool(), watches).await?;
    Ok(())
}

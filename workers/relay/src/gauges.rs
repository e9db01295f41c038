//! Measures what is held and what waits for people, and how old it is (S0.15). Here, since it must not stop when
//! Temporal does.

use std::time::Duration;

use payment_ledger::{Ledger, LedgerError};
use tokio_util::sync::CancellationToken;

use crate::config::RelayOptions;
use crate::publish;

/// Runs until `stop`.
pub(crate) async fn run(ledger: &Ledger, options: &RelayOptions, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = measure(ledger).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "measuring failed");
        }
        if let Err(error) = publish::measure(ledger.pool()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "measuring events failed");
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.measure_every_ms)) => {}
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts and ages stay far below 2^53")]
async fn measure(ledger: &Ledger) -> Result<(), LedgerError> {
    for open in ledger.open_by_state().await? {
        metrics::gauge!("payments_open", "state" => open.state.as_str()).set(open.count as f64);
        metrics::gauge!("payments_open_oldest_seconds", "state" => open.state.as_str())
            .set(open.oldest_s as f64);
    }
    for held in ledger.held_by_currency().await? {
        metrics::gauge!("holds_open", "currency" => held.currency.clone()).set(held.count as f64);
        metrics::gauge!("holds_open_minor", "currency" => held.currency).set(held.amount_minor as f64);
    }
    let unsealed = ledger.unsealed().await?;
    metrics::gauge!("journal_unsealed").set(unsealed.count as f64);
    metrics::gauge!("journal_unsealed_oldest_seconds").set(unsealed.oldest_s as f64);
    metrics::gauge!("inbox_undelivered").set(ledger.undelivered().await? as f64);
    for standing in ledger.standing_by_reason().await? {
        let reason = standing.reason.as_str();
        metrics::gauge!("payments_standing", "reason" => reason).set(standing.count as f64);
        metrics::gauge!("payments_standing_oldest_seconds", "reason" => reason).set(standing.oldest_s as f64);
    }
    for open in ledger.open_exceptions_by_kind().await? {
        metrics::gauge!("exceptions_open", "kind" => open.kind).set(open.count as f64);
    }
    Ok(())
}

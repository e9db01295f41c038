//! Restores customers' accounts when no confirmation arrived in time. It needs the ledger's database alone, so it holds while Temporal, the
//! switch and the payment-workers are down.

use std::time::Duration;

use monitoring::background_task::BackgroundTask;
use payment_ledger::Ledger;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Restores accounts until `stop`. Several processes may: each account is restored once.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let interval = Duration::from_millis(options.restore_interval_ms);
    periodic::run(BackgroundTask::AccountRestoring, interval, stop, async || {
        let round = ledger.restore_all_due(Duration::ZERO).await?;
        metrics::counter!("accounts_restored_total").increment(round.restored as u64);
        Ok(RoundOutcome::Idle)
    })
    .await;
}

//! Seals journal entries and rolls the balances of internal accounts forward; seals the entries of the audit log.

use std::time::Duration;

use monitoring::background_task::BackgroundTask;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Seals journal entries until `stop`. Several processes may: the one that holds the lock seals, the others skip the
/// round.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let size = BatchSize::new(options.seal_batch_max);
    let interval = Duration::from_millis(options.seal_interval_ms);
    periodic::run(BackgroundTask::JournalSealing, interval, stop, async || {
        let audit_log = ledger.seal_audit_log(size).await?;
        let more_of_audit_log = matches!(audit_log, SealOutcome::Batch { is_full: true, .. });
        match ledger.seal(size).await? {
            SealOutcome::Batch { entries, is_full } => {
                metrics::counter!("journal_sealed_total").increment(entries as u64);
                // Entries posted meanwhile wait for the next round: without the pause each would make a batch of its own.
                Ok(if is_full || more_of_audit_log { RoundOutcome::MoreWork } else { RoundOutcome::Idle })
            }
            SealOutcome::NothingToSeal if more_of_audit_log => Ok(RoundOutcome::MoreWork),
            SealOutcome::NothingToSeal | SealOutcome::Busy => Ok(RoundOutcome::Idle),
        }
    })
    .await;
}

//! Delivers what is in the inbox and was not delivered.
//!
//! A notice that cannot be delivered now is put off with growing pauses before it is tried, so that
//! a poisonous one or a crash of this process holds nobody else up.

use std::time::Duration;

use monitoring::task::RelayTask;
use payment_ledger::inbox::NoticeKind;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::decision::{CarriedOut, Decision};
use tokio_util::sync::CancellationToken;
use workflow_api::{Delivery, Signaller};

use crate::config::RelayOptions;

/// Runs until `stop`.
pub(crate) async fn run(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &RelayOptions,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        match deliver(ledger, signaller, options).await {
            Ok(taken) => {
                RelayTask::Deliver.succeeded();
                if taken > 0 {
                    continue;
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "looking into the inbox failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.look_every_ms)) => {}
        }
    }
}

/// One look; says how many notices it took.
async fn deliver(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &RelayOptions,
) -> Result<usize, LedgerError> {
    let notices = ledger.take_undelivered(options.batch, options.backoff_ms).await?;
    for notice in &notices {
        let delivery = signaller.deliver(notice).await;
        let done = match &notice.kind {
            NoticeKind::Decision(decision) => is_closed(ledger, decision, &delivery).await?,
            _ => delivery == Delivery::Delivered,
        };
        if done {
            ledger.mark_delivered(notice.inbox_id).await?;
            metrics::counter!("relay_delivered_total").increment(1);
            tracing::info!(payment.id = %notice.payment_id, inbox.id = notice.inbox_id, "delivered by the relay");
        } else {
            metrics::counter!("relay_put_off_total").increment(1);
            tracing::debug!(payment.id = %notice.payment_id, inbox.id = notice.inbox_id, ?delivery, "not delivered yet");
        }
    }
    Ok(notices.len())
}

/// A decision is told until something came of it: the run that took it may be lost before it carries it
/// out. One that the payment will never take is closed as refused.
async fn is_closed(ledger: &Ledger, decision: &Decision, delivery: &Delivery) -> Result<bool, LedgerError> {
    if let Delivery::Refused { detail } = delivery {
        let came = CarriedOut::Refused { detail: detail.clone() };
        ledger.close_decision(&decision.decision_id, &came, detail).await?;
        return Ok(true);
    }
    Ok(ledger.decision_outcome(&decision.decision_id).await?.is_some())
}

//! Delivers what is in the inbox and was not delivered.
//!
//! A message that cannot be delivered now is put off with growing pauses before it is tried, so that
//! a poisonous one or a crash of this process holds nobody else up.

use std::time::Duration;

use monitoring::task::BackgroundTask;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::inbox::InboxMessageKind;
use tokio_util::sync::CancellationToken;
use workflow_api::{InboxDeliveryOutcome, Signaller};

use crate::config::BackgroundWorkerOptions;

/// Runs until `stop`.
pub(crate) async fn run(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &BackgroundWorkerOptions,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        match deliver(ledger, signaller, options).await {
            Ok(taken) => {
                BackgroundTask::Deliver.succeeded();
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
            () = tokio::time::sleep(Duration::from_millis(options.poll_interval_ms)) => {}
        }
    }
}

/// One look; says how many messages it took.
async fn deliver(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &BackgroundWorkerOptions,
) -> Result<usize, LedgerError> {
    let messages = ledger.claim_undelivered(options.batch, options.backoff_ms).await?;
    for message in &messages {
        let delivery = signaller.deliver(message).await;
        let done = match &message.kind {
            InboxMessageKind::Decision(decision) => is_closed(ledger, decision, &delivery).await?,
            _ => delivery == InboxDeliveryOutcome::Delivered,
        };
        if done {
            ledger.mark_delivered(message.inbox_id).await?;
            metrics::counter!("inbox_delivered_total").increment(1);
            tracing::info!(payment.id = %message.payment_id, inbox.id = message.inbox_id, "delivered by the relay");
        } else {
            metrics::counter!("inbox_delivery_failures_total").increment(1);
            tracing::debug!(payment.id = %message.payment_id, inbox.id = message.inbox_id, ?delivery, "not delivered yet");
        }
    }
    Ok(messages.len())
}

/// A decision is told until something came of it: the run that took it may be lost before it carries it
/// out. One that the payment will never take is closed as refused.
async fn is_closed(
    ledger: &Ledger,
    decision: &Decision,
    delivery: &InboxDeliveryOutcome,
) -> Result<bool, LedgerError> {
    if let InboxDeliveryOutcome::Rejected { detail } = delivery {
        let came = DecisionOutcome::Refused { detail: detail.clone() };
        ledger.close_decision(&decision.decision_id, &came, detail).await?;
        return Ok(true);
    }
    Ok(ledger.decision_outcome(&decision.decision_id).await?.is_some())
}

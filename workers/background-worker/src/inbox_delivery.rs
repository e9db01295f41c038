//! Delivers inbox messages to workflows by signal or update.
//!
//! A message that cannot be delivered is retried with growing pauses, so that neither it nor a crash of this process delays
//! other messages.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use crash_point::crash_point;
use futures::future::join_all;
use monitoring::background_task::BackgroundTask;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::PaymentId;
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use tokio_util::sync::CancellationToken;
use trace_kit::{Span, SpanKind, TraceParent, attribute, span};
use workflow_api::{InboxDeliveryOutcome, Signaller};

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Messages whose deliveries are marked by one statement.
const MARKED_TOGETHER: usize = 10;

/// Delivers inbox messages until `stop`. Several processes may: each message is claimed by one.
pub(crate) async fn run(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &BackgroundWorkerOptions,
    stop: &CancellationToken,
) {
    let interval = Duration::from_millis(options.poll_interval_ms);
    periodic::run(BackgroundTask::InboxDelivery, interval, stop, async || {
        let claimed = deliver_batch(ledger, signaller, options, stop).await?;
        Ok(if claimed > 0 { RoundOutcome::MoreWork } else { RoundOutcome::Idle })
    })
    .await;
}

/// Claims due messages and delivers each; returns how many were claimed. Those that `stop` leaves are due again after their pause.
async fn deliver_batch(
    ledger: &Ledger,
    signaller: &Signaller,
    options: &BackgroundWorkerOptions,
    stop: &CancellationToken,
) -> Result<usize> {
    let messages = ledger.claim_undelivered(options.batch, options.backoff_ms).await?;
    // Not after the whole batch: a slow delivery must not make those before it due again.
    for messages in messages.chunks(MARKED_TOGETHER).take_while(|_| !stop.is_cancelled()) {
        let mut delivered = Vec::with_capacity(messages.len());
        let result = deliver(ledger, signaller, messages, &mut delivered).await;
        // Also those before a message that failed.
        ledger.mark_all_delivered(&delivered).await?;
        metrics::counter!("inbox_delivered_total").increment(delivered.len() as u64);
        result?;
    }
    Ok(messages.len())
}

/// Delivers messages of several payments at once, and adds the inbox ids of the finished ones to `delivered`: a workflow that accepts no
/// message holds up its own only.
async fn deliver(
    ledger: &Ledger,
    signaller: &Signaller,
    messages: &[InboxMessage],
    delivered: &mut Vec<i64>,
) -> Result<(), LedgerError> {
    let mut payments: BTreeMap<&PaymentId, Vec<&InboxMessage>> = BTreeMap::new();
    for message in messages {
        payments.entry(&message.payment_id).or_default().push(message);
    }
    let deliveries = payments.into_values().map(async |messages| {
        let mut finished = Vec::with_capacity(messages.len());
        let ended = deliver_in_order(ledger, signaller, messages, &mut finished).await;
        (finished, ended)
    });
    let mut result = Ok(());
    for (finished, ended) in join_all(deliveries).await {
        delivered.extend(finished);
        result = result.and(ended);
    }
    result
}

/// Delivers messages of one payment in their order, and adds the inbox ids of the finished ones to `delivered`.
async fn deliver_in_order(
    ledger: &Ledger,
    signaller: &Signaller,
    messages: Vec<&InboxMessage>,
    delivered: &mut Vec<i64>,
) -> Result<(), LedgerError> {
    for message in messages {
        crash_point("before delivering a message");
        let span = delivery_span(ledger, message).await;
        let delivery = span.run(signaller.deliver(message)).await;
        if !delivery.is_delivered() {
            span.fail("not delivered");
        }
        drop(span);
        let is_delivered = match &message.kind {
            InboxMessageKind::Decision(decision) => is_decision_closed(ledger, decision, &delivery).await?,
            _ => delivery == InboxDeliveryOutcome::Delivered,
        };
        if is_delivered {
            crash_point("after delivering a message");
            delivered.push(message.inbox_id);
            tracing::info!(payment.id = %message.payment_id, inbox.id = message.inbox_id, ?delivery, "the background task inbox_delivery finished an inbox message");
        } else {
            metrics::counter!("inbox_delivery_failures_total").increment(1);
            tracing::debug!(payment.id = %message.payment_id, inbox.id = message.inbox_id, ?delivery, "the background task inbox_delivery has not finished an inbox message yet; it tries again");
        }
    }
    Ok(())
}

async fn delivery_span(ledger: &Ledger, message: &InboxMessage) -> Span {
    let position = TraceParent::stored(ledger.trace_parent(&message.payment_id)).await;
    span(SpanKind::Client, "signal workflow")
        .child_of(position.as_ref())
        .with(attribute::PAYMENT_ID, message.payment_id.to_string())
        .with(attribute::WORKFLOW_ID, message.workflow_id.clone())
        .start()
}

/// A decision is delivered until its outcome is recorded, since the workflow run that accepted it may be lost before it
/// applies it. A decision that the payment can never apply is closed as refused. One that the workflow refused, or followed by another
/// cancel, is closed again: the database may have lost the close, and an open decision bars every other.
async fn is_decision_closed(
    ledger: &Ledger,
    decision: &Decision,
    delivery: &InboxDeliveryOutcome,
) -> Result<bool, LedgerError> {
    if let InboxDeliveryOutcome::Rejected { detail } = delivery {
        let outcome = DecisionOutcome::Refused { detail: detail.clone() };
        ledger.close_decision(&decision.decision_id, &outcome, detail).await?;
        return Ok(true);
    }
    if let InboxDeliveryOutcome::Applied(
        outcome @ (DecisionOutcome::Refused { .. } | DecisionOutcome::RetryCancel),
    ) = delivery
    {
        ledger
            .close_decision(&decision.decision_id, outcome, "the payment's workflow had applied it")
            .await?;
    }
    Ok(ledger.decision_outcome(&decision.decision_id).await?.is_some())
}

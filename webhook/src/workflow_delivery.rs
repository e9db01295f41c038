//! Delivers an inbox message to the payment's workflow. The inbox row is authoritative: if this delivery fails, the
//! background worker delivers the message.

use crash_point::crash_point;
use payment_protocol::inbox::InboxMessage;
use trace_kit::{SpanKind, attribute, span};
use workflow_api::InboxDeliveryOutcome;

use crate::app::App;

/// Delivers the message within two seconds and marks its row. A failure does not fail the request.
pub(crate) async fn deliver_to_workflow(app: &App, message: &InboxMessage) {
    let span = span(SpanKind::Client, "signal workflow")
        .with(attribute::PAYMENT_ID, message.payment_id.to_string())
        .with(attribute::WORKFLOW_ID, message.workflow_id.clone())
        .start();
    let delivery = span.run(app.signaller.deliver(message)).await;
    if !delivery.is_delivered() {
        span.fail("not delivered; the background-worker delivers it later");
    }
    drop(span);
    let outcome = match delivery {
        InboxDeliveryOutcome::Delivered | InboxDeliveryOutcome::Applied(_) => {
            crash_point("after signalling a workflow");
            match app.ledger.mark_delivered(message.inbox_id).await {
                Ok(()) => "delivered",
                Err(error) => {
                    tracing::warn!(
                        payment.id = %message.payment_id,
                        error = &error as &dyn std::error::Error,
                        "the payments-api delivered an inbox message to its workflow but could not mark it as delivered; the background-worker delivers the message again"
                    );
                    "not_marked"
                }
            }
        }
        // Operator decisions are not delivered here; the background worker closes one that is refused.
        InboxDeliveryOutcome::NotDelivered { detail } | InboxDeliveryOutcome::Rejected { detail } => {
            tracing::info!(
                payment.id = %message.payment_id,
                detail,
                "the payments-api could not deliver an inbox message to its workflow; the background-worker delivers the message later"
            );
            "deferred"
        }
    };
    metrics::counter!("inbox_direct_deliveries_total", "outcome" => outcome).increment(1);
}

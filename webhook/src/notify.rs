//! Tells a payment's workflow that something came in for it. The inbox row is the truth: when this
//! fails, the relay tells it again.

use payment_protocol::inbox::InboxMessage;
use workflow_api::InboxDeliveryOutcome;

use crate::app::App;

/// Tells the workflow (two seconds at most) and marks the row. Never fails the request.
pub(crate) async fn notify(app: &App, message: &InboxMessage) {
    let outcome = match app.signaller.deliver(message).await {
        InboxDeliveryOutcome::Delivered => match app.ledger.mark_delivered(message.inbox_id).await {
            Ok(()) => "delivered",
            Err(error) => {
                tracing::warn!(
                    payment.id = %message.payment_id,
                    error = &error as &dyn std::error::Error,
                    "a delivered message is not marked; the relay tells the workflow again"
                );
                "not_marked"
            }
        },
        // Decisions do not come in here; the relay closes one that is refused.
        InboxDeliveryOutcome::NotDelivered { detail } | InboxDeliveryOutcome::Rejected { detail } => {
            tracing::info!(payment.id = %message.payment_id, detail, "the relay will tell the workflow");
            "not_yet"
        }
    };
    metrics::counter!("inbox_direct_deliveries_total", "outcome" => outcome).increment(1);
}

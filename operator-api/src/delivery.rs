//! Delivers a confirmed decision to the payment's workflow. Best effort: the decision is in the inbox, and background-worker delivers it
//! otherwise.

use std::sync::Arc;

use crash_point::crash_point;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::DecisionId;
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use workflow_api::{UpdateError, UpdateOutcome, UpdateSender};

/// Delivers in the background; the outcome is read from the decision's row.
pub(crate) fn start(ledger: Ledger, updates: Arc<UpdateSender>, message: InboxMessage) {
    tokio::spawn(async move {
        if let Err(detail) = deliver(&ledger, &updates, &message).await {
            tracing::info!(
                payment.id = %message.payment_id,
                detail,
                "the operator-api could not deliver a decision to its workflow; the background-worker delivers it later"
            );
        }
    });
}

async fn deliver(ledger: &Ledger, updates: &UpdateSender, message: &InboxMessage) -> Result<(), String> {
    let InboxMessageKind::Decision(decision) = &message.kind else { return Ok(()) };
    if message.ended {
        return Ok(());
    }
    let updated = updates.decide(&message.workflow_id, decision).await;
    if updated.is_ok() {
        crash_point("after updating a workflow");
    }
    match updated {
        // Not marked as delivered: the run that accepted the decision may be lost before it applies it.
        Ok(UpdateOutcome::Accepted) => Ok(()),
        Ok(UpdateOutcome::Completed(_)) => {
            mark_if_closed(ledger, message, &decision.decision_id).await.map_err(|error| error.to_string())
        }
        Err(UpdateError::Rejected { detail }) => {
            // Permanent. Whichever process receives the rejection first closes the decision.
            let outcome = DecisionOutcome::Refused { detail: detail.clone() };
            let closed = ledger.close_decision(&decision.decision_id, &outcome, &detail).await;
            closed.map(|_| ()).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A database may have lost the decision's outcome: then the background-worker has the workflow apply it again, or closes it.
async fn mark_if_closed(
    ledger: &Ledger,
    message: &InboxMessage,
    decision_id: &DecisionId,
) -> Result<(), LedgerError> {
    if ledger.decision_outcome(decision_id).await?.is_some() {
        ledger.mark_delivered(message.inbox_id).await?;
    }
    Ok(())
}

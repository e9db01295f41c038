//! Delivers a confirmed decision to the payment's workflow and waits for the outcome. Best effort: the
//! decision is in the inbox, and background-worker delivers it otherwise.

use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::operator::decisions::DecisionView;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use tokio::time::{Instant, sleep, timeout_at};
use workflow_api::{UpdateError, UpdateOutcome, UpdateSender};

use crate::config::Config;

/// Pause between two reads of the decision.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A decision at the end of the wait.
pub(super) struct DecisionProgress {
    pub(super) decision_id: DecisionId,
    pub(super) payment_id: PaymentId,
    /// The decision as last read; `None` if the ledger did not answer.
    pub(super) decision: Option<DecisionView>,
    /// Result of the delivery to the workflow, in words.
    pub(super) delivery: String,
}

/// Delivers the decision and waits for its end, `wait_s` seconds or Ctrl-C.
pub(super) async fn for_outcome(
    config: &Config,
    ledger: &Ledger,
    message: &InboxMessage,
    id: &DecisionId,
    wait_s: u64,
) -> DecisionProgress {
    let deadline = Instant::now() + Duration::from_secs(wait_s);
    let mut delivery = "the payment's workflow has not answered yet".to_owned();
    let deliver_only = async {
        delivery = deliver(config, ledger, message).await;
        // The outcome is read from the decision's row: another process may deliver the decision.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = deliver_only => {}
        _ = timeout_at(deadline, until_closed(ledger, id)) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let decision = ledger.decision(id).await.ok().flatten();
    DecisionProgress { decision_id: id.clone(), payment_id: message.payment_id.clone(), decision, delivery }
}

async fn deliver(config: &Config, ledger: &Ledger, message: &InboxMessage) -> String {
    let InboxMessageKind::Decision(decision) = &message.kind else {
        return "the message is not a decision".into();
    };
    if message.ended {
        return "the payment has ended".into();
    }
    let sender = UpdateSender::new(config.temporal.clone(), "payctl");
    match sender.decide(&message.workflow_id, decision).await {
        // Not marked as delivered: the run that accepted the decision may be lost before it applies it.
        Ok(UpdateOutcome::Accepted) => "the payment's workflow accepted the decision and applies it".into(),
        Ok(UpdateOutcome::Completed(_)) => {
            let _ = ledger.mark_delivered(message.inbox_id).await;
            "the payment's workflow applied the decision".into()
        }
        Err(UpdateError::Rejected { detail }) => {
            // Permanent. Whichever process receives the rejection first closes the decision.
            let outcome = DecisionOutcome::Refused { detail: detail.clone() };
            let _ = ledger.close_decision(&decision.decision_id, &outcome, &detail).await;
            format!("the payment's workflow rejected the decision: {detail}")
        }
        Err(error) => format!("the decision was not delivered: {error}"),
    }
}

/// Returns once the decision is closed. Ledger errors are retried.
async fn until_closed(ledger: &Ledger, id: &DecisionId) {
    loop {
        if let Ok(Some(decision)) = ledger.decision(id).await
            && decision.closed_at.is_some()
        {
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}

//! Tells the workflow of a confirmed decision, and waits for what comes of it. Nothing here has to
//! succeed: the decision is in the inbox, and the relay delivers it otherwise.

use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::operator::decisions::DecisionView;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use tokio::time::{Instant, sleep, timeout_at};
use workflow_api::{UpdateError, UpdateOutcome, UpdateSender};

use super::Said;
use crate::bank::Bank;

/// Pause between two looks at the decision's row.
const PAUSE: Duration = Duration::from_millis(200);

/// What was seen of a decision in the time there was.
pub(super) struct Seen {
    pub(super) decision_id: DecisionId,
    pub(super) payment_id: PaymentId,
    /// As it stands last. None when the ledger did not answer.
    pub(super) decision: Option<DecisionView>,
    /// What became of telling the workflow, in words.
    pub(super) delivery: String,
}

/// Delivers, and waits until the decision is closed, the time is over, or Ctrl-C.
pub(super) async fn for_outcome(
    bank: &Bank,
    ledger: &Ledger,
    message: &InboxMessage,
    id: &DecisionId,
    said: &Said,
) -> Seen {
    let deadline = Instant::now() + Duration::from_secs(said.wait);
    let mut delivery = "the workflow has not answered yet".to_owned();
    let told = async {
        delivery = deliver(bank, ledger, message).await;
        // What came of it is in the row, however it got there.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = told => {}
        _ = timeout_at(deadline, closed(ledger, id)) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let decision = ledger.decision(id).await.ok().flatten();
    Seen { decision_id: id.clone(), payment_id: message.payment_id.clone(), decision, delivery }
}

async fn deliver(bank: &Bank, ledger: &Ledger, message: &InboxMessage) -> String {
    let InboxMessageKind::Decision(decision) = &message.kind else { return "nothing is to be told".into() };
    if message.ended {
        return "the payment has ended".into();
    }
    let sender = UpdateSender::new(bank.temporal.clone(), "payctl");
    match sender.decide(&message.workflow_id, decision).await {
        // The relay tells it again until something came of it: the run that took it may be lost before.
        Ok(UpdateOutcome::Accepted) => "the workflow has taken it and carries it out".into(),
        Ok(UpdateOutcome::Completed(_)) => {
            let _ = ledger.mark_delivered(message.inbox_id).await;
            "the workflow has carried it out".into()
        }
        Err(UpdateError::Rejected { detail }) => {
            // For good. Whoever hears it first closes the decision.
            let came = DecisionOutcome::Refused { detail: detail.clone() };
            let _ = ledger.close_decision(&decision.decision_id, &came, &detail).await;
            format!("the workflow refuses it: {detail}")
        }
        Err(undelivered) => format!("the workflow was not reached: {undelivered}"),
    }
}

/// Returns once the decision is closed. A ledger that does not answer is asked again.
async fn closed(ledger: &Ledger, id: &DecisionId) {
    loop {
        if let Ok(Some(decision)) = ledger.decision(id).await
            && decision.closed_at.is_some()
        {
            return;
        }
        sleep(PAUSE).await;
    }
}
